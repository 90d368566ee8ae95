# SPDX-License-Identifier: BSD-3-Clause
"""The techniques of training that `pretrain` has, each alone beside AdamW, at equal time: a character GPT of 3.2 M
parameters, 90 % sparse."""

import statistics

import gpt

TITLE = "The toolbox: each technique beside AdamW, at equal time"
PROGRAM = "pretrain"
MINUTES, SEEDS = 3, 3  # of steps on one thread, for each run; seeds of the best rate
BLOCK, DENSITY = 8, 0.1
RATE = 8e-3  # of AdamW: the best of 300 steps in rates.md
FACTORS = (1, 0.5, 2)  # of the rate, which are tried
BASE = "AdamW"
# {name: (its rate, its options)}
TECHNIQUES = {
    BASE: (RATE, []),
    "static pattern": (RATE, ["--static"]),
    "RigL": (RATE, ["--policy", "rigl"]),
    "ITOP": (RATE, ["--policy", "itop"]),
    "GraNet, from half": (RATE, ["--policy", "granet"]),
    "random values of new blocks": (RATE, ["--newborn-values", "1"]),
    "warm-up of new blocks (SMET)": (RATE, ["--newborn", "smet"]),
    "AdamW in 8 bits": (RATE, ["--optimizer", "adamw-8bit"]),
    "Adam-mini": (RATE, ["--optimizer", "adam-mini"]),
    "schedule-free AdamW": (RATE, ["--optimizer", "schedule-free"]),
    "Lion": (RATE / 10, ["--optimizer", "lion", "--weight-decay", "1"]),
    "LAMB": (RATE, ["--optimizer", "lamb"]),
    "LARS": (1, ["--optimizer", "lars"]),
    "EMA": (RATE, ["--average", "ema"]),
    "LAWA": (RATE, ["--average", "lawa"]),
    "warm-up-stable-decay": (RATE, ["--decay", "wsd"]),
    "ReZero": (RATE, ["--residual", "rezero"]),
    "SkipInit": (RATE, ["--residual", "skipinit"]),
    "LayerScale": (RATE, ["--residual", "layerscale"]),
    "Fixup": (RATE, ["--init", "fixup"]),
    "T-Fixup, no warm-up": (RATE, ["--init", "t-fixup", "--warmup", "0"]),
    "SµPar, from 64 features": (RATE, ["--parameterisation", "supar", "--base-hidden", "64"]),
}


# Whose steps are timed with other options: GraNet's at the mean of its densities.
TIMED_AS = {"GraNet, from half": ["--policy", "rigl", "--density", "0.15"]}


def arguments(name, rate, quick, options=None):
    options = TECHNIQUES[name][1] if options is None else options
    density = [] if "--density" in options else ["--density", str(DENSITY if not quick else 0.25)]
    return [*gpt.model_arguments(quick), "--only", "sparse", *density, "--block", str(BLOCK), "--sparse-lr", f"{rate:g}",
            *options, "--threads", "1"]


def contestants(quick):
    return {name: [*arguments(name, TECHNIQUES[name][0], quick, TIMED_AS.get(name)), "--steps", "12", "--eval-every", "6"]
            for name in ([BASE, "Adam-mini"] if quick else TECHNIQUES)}


def run_name(name, rate, seed):
    return f"{name}, {rate:g}, seed {seed}"


def made_with(name, rate, seed, quick, seconds):
    steps = 20 if quick else int(60 * MINUTES / seconds[name])
    return [*arguments(name, rate, quick), "--steps", str(steps), "--eval-every", str(max(1, steps // 12)), "--seed",
            str(seed)]


def rates_of(name):
    return [factor * TECHNIQUES[name][0] for factor in FACTORS]


def runs(quick, seconds):
    return {run_name(name, rate, 1): made_with(name, rate, 1, quick, seconds)
            for name in contestants(quick) for rate in (rates_of(name)[:1] if quick else rates_of(name))}


def loss(result):
    """At the end; of a run that averages its weights, of the average."""
    average = result.get("average_loss")
    return result["loss"] if average is None else average


def losses_by_rate(results, name):
    return {rate: loss(results[run_name(name, rate, 1)]) for rate in rates_of(name)
            if run_name(name, rate, 1) in results}


def follow_ups(quick, seconds, results):
    """Other seeds of the best rate of each technique."""
    table = {}
    for seed in range(2, 3 if quick else SEEDS + 1):
        for name in contestants(quick):
            its = losses_by_rate(results, name)
            best = min(its, key=its.get)
            table[run_name(name, best, seed)] = made_with(name, best, seed, quick, seconds)
    return table


def of_seeds(results, name):
    """The best rate, and the losses of all its seeds."""
    its = losses_by_rate(results, name)
    if not its:
        return None, []
    best = min(its, key=its.get)
    return best, [loss(results[run_name(name, best, seed)]) for seed in range(1, SEEDS + 1)
                  if run_name(name, best, seed) in results]


def page(results):
    seconds = results["seconds of a step"]
    _, base = of_seeds(results, BASE)
    lines = [
        f"The model of [gpt.md](gpt.md) with {100 * DENSITY:g} % of the weights of its blocks in {BLOCK}x{BLOCK}; patterns move by the",
        f"defaults of `pretrain` unless said otherwise. Each run has as many steps as fit into {MINUTES} minutes on one thread, by",
        "the step times below, which were measured in turns. Three rates with one seed, the best one with three. Losses in nats per",
        "character of the validation text at the end, of averages where a technique makes one; mean ± deviation (seeds).",
        "",
        "| | options | seconds of a step | peak memory of tensors, MB | " + " | ".join(f"rate x {f:g}" for f in FACTORS) +
        " | best rate | loss | beside AdamW |",
        "| --- | --- |" + " --- |" * (len(FACTORS) + 5),
    ]
    for name in seconds:
        _, options = TECHNIQUES[name]
        tried = losses_by_rate(results, name)
        best, losses = of_seeds(results, name)
        cells = [f"{tried[rate]:.3f}" if rate in tried else "" for rate in rates_of(name)]
        if losses:
            peak = results[run_name(name, best, 1)]["peak_bytes"] / 1e6
            spread = f" ± {statistics.stdev(losses):.3f}" if len(losses) > 1 else ""
            apart = f"{statistics.mean(losses) - statistics.mean(base):+.3f}".replace("-", "−") if base else ""
            end = [f"{best:g}", f"{statistics.mean(losses):.3f}{spread} ({len(losses)})", apart if name != BASE else ""]
        else:
            peak, end = None, ["", "", ""]
        lines.append("| " + " | ".join([name, f"`{' '.join(options)}`" if options else "", f"{seconds[name]:.3f}",
                                        f"{peak:.0f}" if peak else "", *cells, *end]) + " |")
    lines += ["", "![Loss at the end](toolbox.svg)"]
    return "\n".join(lines)


def plots(results):
    import figures

    names = [name for name in results["seconds of a step"] if of_seeds(results, name)[1]]
    names.sort(key=lambda name: statistics.mean(of_seeds(results, name)[1]))
    figure, axes = figures.plt.subplots(figsize=(6.4, 0.8 + 0.24 * len(names)))
    for at, name in enumerate(names):
        losses = of_seeds(results, name)[1]
        axes.plot(losses, [at] * len(losses), "o", color=figures.COLOURS[0] if name != BASE else "#444444", markersize=4)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("validation loss, each seed")
    return {"toolbox.svg": figure}
