# SPDX-License-Identifier: BSD-3-Clause
"""The line between two trainings that part at a step (Frankle et al. 2020, "Linear mode connectivity and the lottery
ticket hypothesis", figures 2 and 3): a small character GPT on tinyshakespeare, dense and 90 % sparse."""

import statistics

import gpt

TITLE = "The line between two trainings that part at a step"
PROGRAM = "pretrain"
SEEDS = 2
STEPS = 400
PARTED = [0, 20, 100]  # after how many steps; 20: the end of the warm-up
KINDS = {
    "dense": ["--only", "dense", "--lr", str(gpt.RATES["dense"])],
    "sparse": ["--only", "sparse", "--density", "0.1", "--block", "16", "--static", "--sparse-lr",
               str(gpt.RATES["sparse"])],
}
NAMES = {"dense": "dense", "sparse": "10 % of the blocks, 16x16, static"}


def commands(kind, parted, seed, quick):
    """Of one run: both trainings, of which the second repeats the first up to the step, and the line."""
    steps = 8 if quick else STEPS
    shape = gpt.model_arguments(True) if quick else [
        "--text", gpt.text(), "--layers", "2", "--hidden", "192", "--heads", "4", "--context", "64", "--batch", "16"]
    told = ["--threads", "1", "--quiet", "--out", "FOLDER"]
    new = [*shape, *KINDS[kind], "--steps", str(steps), "--eval-every", str(steps), "--seed", str(seed), *told]
    kept = ["--checkpoint-every", str(parted or steps), "--keep", "99"]
    beginning = ["--from", "FOLDER/first", "--branch", str(parted), *told] if parted else new
    ends = [f"FOLDER/{end}/{kind}/step-{steps:08}" for end in ("first", "second")]
    return [["pretrain", *new, *kept, "--name", "first"],
            ["pretrain", *beginning, "--data-seed", str(1000 + seed), "--name", "second"],
            ["interpolate", *ends, "--threads", "1", "--points", "3" if quick else "11"]]


def runs(quick):
    return {f"{kind}, step {parted}, seed {seed}": commands(kind, parted, seed, quick)
            for seed in range(1, 2 if quick else SEEDS + 1) for kind in KINDS for parted in ([0, 4] if quick else PARTED)}


def cells(results, kind):
    """{step: results} of a kind of model."""
    of_step = {}
    for name, result in results.items():
        its, step, _ = name.split(", ")
        if its == kind:
            of_step.setdefault(int(step.split()[1]), []).append(result)
    return of_step


def middle(result):
    return result["loss"][len(result["loss"]) // 2]


def page(results):
    lines = [
        f"A character GPT of two layers and 192 features, {STEPS} steps of 16 sequences. Two trainings begin with the same weights,",
        "and see the same batches up to a step; from there each goes on with an order of the data of its own, and with the state of",
        "the optimizer (`pretrain --branch`). Then `interpolate` takes the loss at eleven points of the straight line between",
        "their last weights. The *barrier*, which Frankle et al. call the instability to SGD noise, is the greatest loss on",
        "the line above the mean of those at its ends; zero would be two trainings in one basin. Nats per character of the",
        "whole validation text, mean ± deviation of the seeds.",
        "",
        "| | parted after step | loss at the ends | loss in the middle | barrier | runs |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kind in KINDS:
        for step, mine in cells(results, kind).items():
            row = [gpt.spread([of(r) for r in mine], 3) for of in (lambda r: r["ends"], middle, lambda r: r["barrier"])]
            lines.append(f"| {NAMES[kind]} | {step} | {' | '.join(row)} | {len(mine)} |")
    lines += [
        "",
        "![Barrier by the step at which the trainings part](interpolate.svg)",
        "",
        "Trainings that part at the first step end in two basins, dense and sparse alike. Those that part after a quarter of",
        "the steps end in one: no point of the line is above both of its ends, the middle is a little below them, and the",
        "barrier is half the difference of the ends. At the end of the warm-up, step 20, the sparse model has a third of its",
        "first barrier left, the dense one most of it; two seeds are few.",
    ]
    return "\n".join(lines)


def plots(results):
    import figures

    figure, axes = figures.plt.subplots(figsize=(6.4, 3.6))
    for kind, colour in zip(KINDS, figures.COLOURS):
        points = [(step, statistics.mean(r["barrier"] for r in mine)) for step, mine in cells(results, kind).items()]
        if points:
            axes.plot(*zip(*points), marker="o", color=colour, label=NAMES[kind])
    axes.set_xlabel("step at which the trainings part")
    axes.set_ylabel("barrier, nats per character")
    axes.set_ylim(bottom=0)
    axes.legend()
    return {"interpolate.svg": figure}
