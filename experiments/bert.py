# SPDX-License-Identifier: BSD-3-Clause
"""BERT on wikipedia.txt (Dietrich et al. 2021 at a small size): patterns, blocks, norms and updates against dense
models at equal FLOPs and at equal wall-clock time."""

import os
import pathlib
import statistics

TITLE = "BERT-Tiny and BERT-Mini: static and dynamic sparsity against dense, by FLOPs and by time"
PROGRAM = "pretrain"
THREADS = 2
DENSE_STEPS = {"tiny": 6000, "mini": 4000}
MOST_STEPS = 20000  # of a sparse run
SEEDS = 3
RATES = {"dense": 1e-3, "sparse": 4e-3}  # about the best of rates.md
# Of a contestant: options, and how many seeds.
SPARSE = {
    "static 4x4": (["--block", "4", "--static"], SEEDS),
    "static 16x16": (["--block", "16", "--static"], SEEDS),
    "dynamic 4x4": (["--block", "4"], SEEDS),
    "dynamic 16x16": (["--block", "16"], SEEDS),
    "dynamic 16x16, a tenth": (["--block", "16", "--prune-fraction", "0.1"], SEEDS),
    "dynamic 1x1": (["--block", "1"], 1),
    "dynamic 8x8": (["--block", "8"], 1),
    "RigL 16x16": (["--block", "16", "--policy", "rigl"], 1),
    "dynamic 16x16, L2": (["--block", "16", "--block-norm", "l2"], 1),
    "dynamic 16x16, largest": (["--block", "16", "--block-norm", "max"], 1),
    "dynamic 16x16, 40 updates": (["--block", "16", "--updates", "40"], 1),
    "dynamic 16x16, 640 updates": (["--block", "16", "--updates", "640"], 1),
}
MODELS = {"tiny": ["dense", *SPARSE], "mini": ["dense", "static 16x16", "dynamic 4x4", "dynamic 16x16"]}
# These came later, and have the step of "dynamic 16x16".
NOT_TIMED = ["tiny, dynamic 16x16, a tenth", "mini, static 16x16"]


def text():
    return str(pathlib.Path(os.environ.get("TESSERA_DATA", "data")) / "wikipedia.txt")


def model_arguments(model, quick):
    """The arguments that tell the text, the shape of a model and what it predicts. With 4096 pieces, 128 tokens and 15 % of
    the words masked, no model learns more than the frequencies of words in the time of a run."""
    shape = ["--preset", model, "--vocabulary", "512", "--context", "32", "--batch", "32", "--mask", "tokens",
             "--mask-share", "0.4"]
    if quick:
        shape = ["--layers", "1", "--hidden", "64", "--heads", "2", "--vocabulary", "300", "--context", "32",
                 "--batch", "4"]
    return ["--model", "bert", *(["--text", text()] if not quick or pathlib.Path(text()).exists() else []), *shape]


def arguments(model, contestant, quick):
    which = ["--only", "dense", "--lr", str(RATES["dense"])] if contestant == "dense" else [
        "--only", "sparse", "--sparse-lr", str(RATES["sparse"]), "--density", "0.1", *SPARSE[contestant][0]]
    if contestant != "dense" and not {"--static", "--updates"} & set(which):
        which += ["--updates", "10" if quick else "160"]
    return [*model_arguments(model, quick), *which, "--threads", str(THREADS)]


def all_contestants(quick):
    if quick:
        return [("tiny", "dense"), ("tiny", "dynamic 16x16")]
    return [(model, name) for model, names in MODELS.items() for name in names]


def with_one_update(arguments):
    """Of so few steps each would have one; of a run they take less than a hundredth."""
    return ["1" if before == "--updates" else each for before, each in zip(["", *arguments], arguments)]


def contestants(quick):
    return {f"{model}, {name}": [*with_one_update(arguments(model, name, quick)), "--steps", "12", "--eval-every", "6"]
            for model, name in all_contestants(quick) if f"{model}, {name}" not in NOT_TIMED}


def time_of(seconds, model, name):
    return seconds.get(f"{model}, {name}", seconds.get(f"{model}, dynamic 16x16"))


def runs(quick, seconds):
    table = {}
    for seed in range(1, 2 if quick else SEEDS + 1):
        for model, name in all_contestants(quick):
            seeds = SPARSE[name][1] if name != "dense" and model == "tiny" else SEEDS if model == "tiny" else 1
            if seed > seeds:
                continue
            steps = 20 if quick else DENSE_STEPS[model]
            if name != "dense" and not quick:  # as long as the dense run
                steps = min(MOST_STEPS, int(steps * seconds[f"{model}, dense"] / time_of(seconds, model, name)))
            table[f"{model}, {name}, seed {seed}"] = [*arguments(model, name, quick), "--steps", str(steps),
                                                      "--eval-every", str(max(1, steps // 24)), "--seed", str(seed)]
    return table


def of_contestant(results, name):
    return [r for run, r in results.items() if run.startswith(name + ", seed ")]


def loss_after(curve, step):
    """On the line between two evaluations; None beyond the ends."""
    for before, after in zip(curve, curve[1:]):
        if before[0] <= step <= after[0]:
            share = (step - before[0]) / (after[0] - before[0])
            return before[2] + share * (after[2] - before[2])
    return None


def step_of(curve, loss):
    """The first step with this validation loss, on the line between two evaluations; None if there is none."""
    for before, after in zip(curve, curve[1:]):
        if after[2] <= loss:
            return before[0] + (before[2] - loss) / (before[2] - after[2]) * (after[0] - before[0])
    return None


def spread(values):
    values = [v for v in values if v is not None]
    if not values:
        return "–"
    return f"{statistics.mean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")


def page(results):
    seconds = results["seconds of a step"]
    lines = [
        "Masked language models; 40 % of the tokens masked (Wettig et al. 2023), vocabulary of 512 pieces, 32 tokens, batches of",
        "32; 10 % of the weights of the encoder in blocks, by default 160 updates by magnitude with random growth; highest rate",
        f"{RATES['dense']:g} dense, {RATES['sparse']:g} sparse, about the best of [rates.md](rates.md). A sparse run has as many steps as fit",
        "into the time of the dense one",
        f"({', '.join(f'{m} {n}' for m, n in DENSE_STEPS.items())} steps), at most {MOST_STEPS}. *Dense at equal FLOPs* is the",
        "loss that the dense models had when they had taken as many FLOPs as the sparse one at its end. ε is the time of a",
        "FLOP of the sparse model divided by that of the dense one; ε_crit is the largest ε with which the sparse model still",
        "reaches the last loss of the dense model in the same time: the FLOPs of the dense run divided by the FLOPs of the sparse",
        "run up to that loss (Dietrich et al. 2021). *Blocks tried* were ever stored; L2 and largest are norms of blocks in",
        "place of L1. Losses in nats per masked token, mean ± deviation of the seeds.",
        "",
        "| | seconds of a step | steps | loss at the end | dense at equal FLOPs | ε | ε_crit | blocks tried | runs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for model, contestant in all_contestants(False):
        name, time = f"{model}, {contestant}", time_of(seconds, model, contestant)
        mine, dense = of_contestant(results, name), of_contestant(results, f"{model}, dense")
        if not mine:
            continue
        flops = mine[0]["step_flops"]
        equal, cost, critical = [], "", ""
        if dense and contestant != "dense":
            steps = mine[0]["steps"] * flops / dense[0]["step_flops"]
            equal = [loss_after(r["curve"], steps) for r in dense]
            cost = f"{time / flops / (seconds[f'{model}, dense'] / dense[0]['step_flops']):.2f}"
            last = statistics.mean(r["loss"] for r in dense)
            reached = [s for s in (step_of(r["curve"], last) for r in mine) if s]
            ratios = [dense[0]["steps"] * dense[0]["step_flops"] / (s * flops) for s in reached]
            critical = f"{statistics.mean(ratios):.1f}" if ratios else "–"
            if ratios and len(ratios) < len(mine):
                critical += f" ({len(ratios)} of {len(mine)})"
        lines.append(f"| {name} | {time:.4f} | {mine[0]['steps']} | {spread([r['loss'] for r in mine])} | "
                     f"{spread(equal) if equal else ''} | {cost} | {critical} | {100 * mine[0]['explored']:.0f} % | {len(mine)} |")
    lines += [
        "",
        "*A tenth*: the first update replaces a tenth of the blocks, not half of them (`--prune-fraction`).",
        "",
        "![Loss by time](bert.svg)",
        "",
        "Every model first learns how frequent words are, 4.2 nats, and stays there until its attention finds the words",
        "around a gap; when that happens, which differs by seed, decides how low a run ends. Random growth delays it, most in",
        "16x16: a matrix of BERT-Tiny has 6 such blocks, of which the first updates replace 3. Where a tenth is replaced, two",
        "of three runs end below the static ones (2.97 and 3.01), and one does not leave the plateau. In BERT-Mini, with 26",
        "blocks a matrix, the static pattern is better too. So in runs of these lengths a pattern is best left alone, unlike",
        "in the paper, whose models are trained for far longer. The dense BERT-Mini is still at 4.2 nats at its end.",
    ]
    return "\n".join(lines)


def plots(results):
    import figures

    seconds = results["seconds of a step"]
    figure, axes = figures.plt.subplots(1, 2, figsize=(9, 3.8), sharey=True)
    shown = ["dense", "static 4x4", "static 16x16", "dynamic 4x4", "dynamic 16x16", "dynamic 16x16, a tenth"]
    colours = dict(zip(shown, ["#444444", *figures.COLOURS]))
    for model, contestant in all_contestants(False):
        if contestant not in shown:
            continue
        name, time, colour = f"{model}, {contestant}", time_of(seconds, model, contestant), colours[contestant]
        for number, r in enumerate(of_contestant(results, name)):
            losses = [p[2] for p in r["curve"]]
            label = None if number else name
            style = "-" if model == "tiny" else "--"
            axes[0].plot([p[0] * time for p in r["curve"]], losses, style, color=colour, label=label)
            axes[1].plot([p[0] * r["step_flops"] for p in r["curve"]], losses, style, color=colour, label=label)
    axes[0].set_xlabel("seconds of steps"), axes[1].set_xlabel("FLOPs")
    axes[0].set_ylabel("validation loss")
    axes[1].set_xscale("log")
    axes[0].legend(fontsize=7)
    return {"bert.svg": figure}
