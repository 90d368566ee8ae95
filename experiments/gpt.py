# SPDX-License-Identifier: BSD-3-Clause
"""A character GPT of 3.2 M parameters on tinyshakespeare: dense and 90 % sparse at equal wall-clock time."""

import os
import pathlib
import statistics

TITLE = "A character GPT at equal time: dense, and 10 % of the weights in blocks"
PROGRAM = "pretrain"
SEEDS = 3
MINUTES = 10  # of steps, for each run
BLOCKS = [1, 4, 8, 16]
THREADS = 2
# What all runs were made with; the defaults of `pretrain` were other ones later.
MOVING = ["--prune-fraction", "0.5", "--newborn", "zero", "--updates", "80"]
RATES = {"dense": 2e-3, "sparse": 4e-3}  # of rates.md; sparse runs are 15 times as long as there, with half its rate


def text():
    return str(pathlib.Path(os.environ.get("TESSERA_DATA", "data")) / "tinyshakespeare.txt")


def model_arguments(quick):
    """The arguments that tell the text and the shape of the model."""
    shape = ["--layers", "1", "--hidden", "64", "--heads", "2", "--context", "32", "--batch", "4"] if quick else [
        "--layers", "4", "--hidden", "256", "--heads", "4", "--context", "128", "--batch", "32"]
    # Without the data, a quick run learns the project's own text.
    return [*(["--text", text()] if not quick or pathlib.Path(text()).exists() else []), *shape]


def arguments(contestant, quick):
    which = ["--only", "dense", "--lr", str(RATES["dense"])] if contestant == "dense" else [
        "--only", "sparse", "--density", "0.1", "--block", contestant.split("x")[0], "--sparse-lr", str(RATES["sparse"]), *MOVING]
    return [*model_arguments(quick), *which, "--threads", str(THREADS)]


def contestants(quick):
    names = ["dense", "16x16"] if quick else ["dense", *(f"{b}x{b}" for b in BLOCKS)]
    return {name: [*arguments(name, quick), "--steps", "12", "--eval-every", "6"] for name in names}


def runs(quick, seconds):
    table = {}
    for seed in range(1, 2 if quick else SEEDS + 1):
        for name in contestants(quick):
            steps = 20 if quick else int(60 * MINUTES / seconds[name])
            table[f"{name}, seed {seed}"] = [*arguments(name, quick), "--steps", str(steps), "--eval-every",
                                             str(max(1, steps // 24)), "--seed", str(seed)]
    return table


def of_contestant(results, contestant):
    return [r for name, r in results.items() if name.startswith(contestant + ", seed ")]


def minutes_to_loss(result, seconds, loss):
    """Where the curve first comes down to a loss, on the line between its two nearest evaluations."""
    before = None
    for step, _, validation in result["curve"]:
        if validation <= loss:
            if before is None:
                return step * seconds / 60
            share = (before[1] - loss) / (before[1] - validation)
            return (before[0] + share * (step - before[0])) * seconds / 60
        before = step, validation
    return None


def spread(values, digits):
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


def page(results):
    seconds = results["seconds of a step"]
    dense = of_contestant(results, "dense")
    best = min((p[2] for r in dense for p in r["curve"]), default=None)
    lines = [
        f"nanoGPT's shape with four heads and layers, 256 features, 128 characters of context, batches of 32. Each run has",
        f"as many steps as fit into {MINUTES} minutes on {THREADS} threads, by the step times below, which were measured in turns.",
        f"Highest learning rate {RATES['dense']:g} dense and {RATES['sparse']:g} sparse, half of the best of 300 steps in [rates.md](rates.md),",
        "since these runs are longer; a cosine down to a tenth; sparse patterns change by magnitude and at random. Losses in",
        "nats per character of the validation text, mean ± deviation of the seeds. *Minutes to the best dense loss* are those",
        "until an evaluation during the run is as low as the lowest of all dense runs; the loss at the end is of more text.",
        "",
        "| | seconds of a step | steps | loss at the end | minutes to the best dense loss | memory of tensors, MB | runs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, time in seconds.items():
        mine = of_contestant(results, name)
        if not mine:
            lines.append(f"| {name} | {time:.3f} | | | | | 0 |")
            continue
        reached = [minutes_to_loss(r, time, best) for r in mine] if best else [None]
        lines.append(
            f"| {name} | {time:.3f} | {mine[0]['steps']} | {spread([r['loss'] for r in mine], 3)} | "
            f"{'–' if None in reached else spread(reached, 1)} | {mine[0]['peak_bytes'] / 1e6:.0f} | {len(mine)} |")
    lines += ["", "![Loss by time](gpt.svg)"]
    return "\n".join(lines)


def plots(results):
    import figures

    seconds = results["seconds of a step"]
    figure, axes = figures.plt.subplots(figsize=(6.4, 3.6))
    for (name, time), colour in zip(seconds.items(), ["#444444", *figures.COLOURS]):
        for number, result in enumerate(of_contestant(results, name)):
            axes.plot([p[0] * time / 60 for p in result["curve"]], [p[2] for p in result["curve"]], color=colour,
                      label=None if number else name)
    axes.set_xlabel("minutes of steps")
    axes.set_ylabel("validation loss")
    axes.legend()
    return {"gpt.svg": figure}
