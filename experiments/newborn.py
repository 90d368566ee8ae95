# SPDX-License-Identifier: BSD-3-Clause
"""What blocks that grow need: the moments they begin with, how many grow at once, and how long they are safe; for
BERT-Tiny in four sizes of block, at equal steps."""

import statistics

import bert

TITLE = "Patterns that move: what newborn blocks need"
PROGRAM = "pretrain"
STEPS, UPDATES, RATE = 8000, 80, 4e-3
PLATEAU = 4.1  # below it, a model has learned more than how frequent words are
BLOCKS = (8, 4, 1, 16)
SHARES = {"half": "0.5", "a tenth": "0.1"}
MOMENTS = ("zero", "mean", "age", "smet")
RANDOM = ["--newborn-values", "1"]  # as large as those of the blocks that stay
ZEROS = ["--newborn-values", "0"]
# Beside the second moment of the blocks that stay and a tenth that is replaced.
TENTH_AND_MEAN = ["--prune-fraction", "0.1", "--newborn", "mean", *ZEROS]
OTHERS = {
    "mean, warm-up of 100": [*TENTH_AND_MEAN, "--newborn-warmup", "100"],
    "mean, warm-up of 20": [*TENTH_AND_MEAN, "--newborn-warmup", "20"],
    "mean, grace of 1": [*TENTH_AND_MEAN, "--grace", "1"],
    "mean, grace of 5": [*TENTH_AND_MEAN, "--grace", "5"],
    "mean, pruned by norm and age": [*TENTH_AND_MEAN, "--prune-score", "age"],
    "mean, pruned by momentum": [*TENTH_AND_MEAN, "--prune-score", "momentum"],
    "mean, random values of a tenth": [*TENTH_AND_MEAN[:-2], "--newborn-values", "0.1"],
    "mean, 320 updates": [*TENTH_AND_MEAN, "--updates", "320"],
    "mean, 20 updates": [*TENTH_AND_MEAN, "--updates", "20"],
    "mean, 5 updates": [*TENTH_AND_MEAN, "--updates", "5"],
    "mean, 1280 updates": [*TENTH_AND_MEAN, "--updates", "1280"],
    # The dense rate of 0.001, times the density (as SMET scales it), as it is, and divided by the density.
    "mean, rate of 0.0001": [*TENTH_AND_MEAN, "--sparse-lr", "1e-4"],
    "mean, rate of 0.001": [*TENTH_AND_MEAN, "--sparse-lr", "1e-3"],
    "mean, rate of 0.01": [*TENTH_AND_MEAN, "--sparse-lr", "1e-2"],
    "mean, RigL": [*TENTH_AND_MEAN, "--policy", "rigl"],
    "zero, RigL": ["--prune-fraction", "0.1", "--newborn", "zero", *ZEROS, "--policy", "rigl"],
    "mean, SET": [*TENTH_AND_MEAN, "--policy", "set"],
    "zero, SET": ["--prune-fraction", "0.1", "--newborn", "zero", *ZEROS, "--policy", "set"],
    "mean, SNFS": [*TENTH_AND_MEAN, "--policy", "snfs"],
    "zero, SNFS": ["--prune-fraction", "0.1", "--newborn", "zero", *ZEROS, "--policy", "snfs"],
}
SEEDS = 3
OTHER_BLOCKS, OTHER_SEEDS = (16, 4), 1
# The two best, beside a pattern that stays, for a larger model.
MINI = {"static": ["--static"], "a tenth, mean, random values": [*TENTH_AND_MEAN[:-2], *RANDOM],
        "a tenth, mean": TENTH_AND_MEAN}
MINI_BLOCKS, MINI_SEEDS = (16, 4), 2
# First what decides: a tenth replaced, and where newborn blocks begin; then what is replaced how often.
EARLY = ["static", "a tenth, zero", "a tenth, mean", "a tenth, zero, random values", "a tenth, mean, random values"]
SECOND = [f"a tenth, {name}" for name in OTHERS if name.endswith("updates")]


def options_of(block):
    """{name: options}"""
    table = {"static": ["--static"]}
    for share, fraction in SHARES.items():
        for moments in MOMENTS:
            options = ["--prune-fraction", fraction, "--newborn", moments]
            table[f"{share}, {moments}"] = [*options, *ZEROS]
            if share == "a tenth" and moments in ("zero", "mean"):
                table[f"{share}, {moments}, random values"] = [*options, *RANDOM]
    if block in OTHER_BLOCKS:
        table |= {f"a tenth, {name}": options for name, options in OTHERS.items()}
    return table


def run_name(block, name, seed, model="tiny"):
    return f"{'Mini ' if model == 'mini' else ''}{block}x{block}, {name}, seed {seed}"


def arguments(block, options, seed, quick, model="tiny"):
    moves = [] if "--static" in options or "--updates" in options else ["--updates", "4" if quick else str(UPDATES)]
    rate = [] if "--sparse-lr" in options else ["--sparse-lr", str(RATE)]
    steps = 20 if quick else STEPS
    return [*bert.model_arguments(model, quick), "--only", "sparse", "--density", "0.1", *rate,
            "--block", str(block), *options, *moves, "--threads", "1", "--seed", str(seed), "--steps", str(steps),
            "--eval-every", str(max(1, steps // 20))]


def runs(quick):
    if quick:
        return {run_name(16, "half, mean", 1): arguments(16, options_of(16)["half, mean"], 1, True)}
    tiny = [(block, name, options, seed) for seed in range(1, SEEDS + 1) for block in BLOCKS
            for name, options in options_of(block).items()
            if seed <= OTHER_SEEDS or name.removeprefix("a tenth, ") not in OTHERS]
    early = [each for each in tiny if each[1] in EARLY]
    second = [each for each in tiny if each[1] in SECOND]
    rest = [each for each in tiny if each[1] not in EARLY + SECOND]
    mini = [(block, name, options, seed, "mini") for seed in range(1, MINI_SEEDS + 1) for block in MINI_BLOCKS
            for name, options in MINI.items()]
    last = [each for each in early if each[3] == SEEDS]
    first = [each for each in early if each[3] < SEEDS]
    return {run_name(block, name, seed, *model): arguments(block, options, seed, False, *model)
            for block, name, options, seed, *model in [*first, *mini, *last, *second, *rest]}


def of_contestant(results, block, name):
    """Of a block, or "Mini 16" and its like."""
    side = str(block).removeprefix("Mini ")
    return [r for run, r in results.items() if run.startswith(f"{block}x{side}, {name}, seed ")]


def mean_loss(results, block, name):
    made = of_contestant(results, block, name)
    return statistics.mean(r["loss"] for r in made) if made else None


def cell(results, block, name):
    losses = [r["loss"] for r in of_contestant(results, block, name)]
    if not losses:
        return ""
    return f"{statistics.mean(losses):.3f}" + (f" ± {statistics.stdev(losses):.3f}" if len(losses) > 1 else
                                              "") + f" ({len(losses)})"


def left_plateau(result):
    """The step of the first evaluation below PLATEAU, or none."""
    return next((step for step, _, loss in result["curve"] if loss < PLATEAU), None)


def page(results):
    lines = [
        f"BERT-Tiny as in [bert.md](bert.md): 10 % of the weights of the encoder, {STEPS} steps, {UPDATES} updates of the pattern",
        f"unless said otherwise, highest rate {RATE:g}, β₂ = 0.99. The share that an update replaces falls along a cosine from the",
        "one that is named. Validation loss at the end, nats per masked token: mean ± deviation (number of seeds). *Zero*, *mean*,",
        "*age* and *smet* are the values of `--newborn`; *random values* are `--newborn-values 1`, else new blocks are zero.",
        "",
        "| | " + " | ".join(f"{b}x{b}" for b in sorted(BLOCKS)) + " | 16x16 leaves the plateau at step |",
        "| --- |" + " --- |" * (len(BLOCKS) + 1),
    ]
    for name in options_of(16):
        cells = [cell(results, b, name) for b in sorted(BLOCKS)]
        if any(cells):
            left = [left_plateau(r) for r in of_contestant(results, 16, name)]
            lines.append(f"| {name} | " + " | ".join([*cells, ", ".join(str(at or "–") for at in left)]) + " |")
    lines += [
        "",
        "![Losses of 16x16 while they train](newborn_curves.svg)",
        "",
        "Every model first learns how frequent words are, 4.2 nats, and is on that plateau until its attention finds the words",
        "around a gap. In 16x16 a matrix of BERT-Tiny has six blocks: each that is replaced is a sixth of a layer, and sets back",
        "what grows slowly from small weights. So most runs with moving patterns leave the plateau later than those with static",
        "ones, at a step that differs by seed, or not at all; how low they end is told by when they left it. In 4x4 and 8x8 a",
        "tenth with the mean ends below the static patterns; in 1x1 it does so with random values.",
    ]
    mini = [(b, name) for b in MINI_BLOCKS for name in MINI if of_contestant(results, f"Mini {b}", name)]
    if mini:
        lines += ["", f"BERT-Mini, {STEPS} steps:", "", "| | loss |", "| --- | --- |"]
        lines += [f"| {b}x{b}, {name} | {cell(results, f'Mini {b}', name)} |" for b, name in mini]
    return "\n".join(lines)


def plots(results):
    import figures

    figure, (steps, losses) = figures.plt.subplots(1, 2, figsize=(9, 3.4))
    ages = range(1, 201)
    after = lambda beta, age: 1 - beta**age
    curves = {
        "zero": lambda a: after(0.9, a) / after(0.99, a) ** 0.5,
        "mean": lambda a: after(0.9, a),
        "age": lambda a: 1.0,
        "smet": lambda a: min(a / 100, 1.0),
    }
    colours = dict(zip(curves, figures.COLOURS))
    for name, curve in curves.items():
        steps.plot(ages, [curve(a) for a in ages], color=colours[name], label=name)
    steps.set_xlabel("steps since the block grew")
    steps.set_ylabel("step, of the learning rate")
    steps.set_ylim(0, 2.3)
    steps.set_title("of a gradient that keeps its sign")
    steps.legend()

    blocks = sorted(BLOCKS)
    shown = {"static": "#444444", "a tenth, zero": colours["zero"], "a tenth, mean": colours["mean"],
             "a tenth, mean, random values": figures.COLOURS[4]}
    for i, (name, colour) in enumerate(shown.items()):
        for at, block in enumerate(blocks):
            made = [r["loss"] for r in of_contestant(results, block, name)]
            label = name if at == 0 else None
            losses.plot([at + (i - 2) * 0.13] * len(made), made, "o", color=colour, markersize=4, label=label)
    losses.set_xticks(range(len(blocks)), [f"{b}x{b}" for b in blocks])
    losses.set_ylabel("validation loss")
    losses.set_title(f"after {STEPS} steps of BERT-Tiny")
    losses.legend(fontsize=7)
    large, curves_of_16 = figures.plt.subplots(figsize=(6, 3.4))
    for name, colour in shown.items():
        for i, made in enumerate(of_contestant(results, 16, name)):
            curve = made["curve"]
            curves_of_16.plot([p[0] for p in curve], [p[2] for p in curve], color=colour, linewidth=1.2,
                              label=name if i == 0 else None)
    curves_of_16.set_xlabel("steps")
    curves_of_16.set_ylabel("validation loss")
    curves_of_16.set_title("16x16, each seed")
    curves_of_16.legend(fontsize=7)
    return {"newborn.svg": figure, "newborn_curves.svg": large}
