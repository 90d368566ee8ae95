# SPDX-License-Identifier: BSD-3-Clause
"""Lottery tickets of LeNet-300-100 on MNIST (Frankle, Carbin 2019, figures 3 and 4)."""

import statistics

TITLE = "LeNet-300-100 on MNIST: lottery tickets"
PROGRAM = "mnist"
SEEDS = 3
ROUNDS = 15  # 0.8^15 = 3.5 %
# As in the paper, but 10800 steps of its 50000, and 20 % of the last matrix pruned as of the others, not 10 %.
PAPER = ["--optimizer", "adam", "--rate", "0.0012", "--drop-every", "0", "--weight-decay", "0", "--batch", "60",
         "--epochs", "12"]


def runs(quick):
    if quick:
        return {"seed 1": ["--made-up", "--epochs", "2", "--examples", "1000", "--optimizer", "adam", "--rate", "0.002",
                           "--tickets", "2", "--reinitialise"]}
    return {f"seed {seed}": [*PAPER, "--tickets", str(ROUNDS), "--reinitialise", "--seed", str(seed)]
            for seed in range(1, SEEDS + 1)}


def values(results, number, of):
    """of(round) in each run that has this round and a value for it."""
    rounds = [r["rounds"][number] for r in results.values() if number < len(r["rounds"])]
    return [v for v in map(of, rounds) if v is not None]


def ticket(one):
    return one and 100 * one["test_accuracy"]


def early(one):
    return one and 100 * one["curve"][0][1]


def control(one):
    return one.get("reinitialised")


COLUMNS = {
    "ticket": ticket,
    "new weights on its pattern": lambda one: ticket(control(one)),
    "ticket, after an epoch": early,
    "new weights, after an epoch": lambda one: early(control(one)),
}


def cell(all_values):
    if not all_values:
        return ""
    spread = f" ± {statistics.stdev(all_values):.2f}" if len(all_values) > 1 else ""
    return f"{statistics.mean(all_values):.2f}{spread}"


def page(results):
    some = next(iter(results.values()))
    told = some["settings"]
    lines = [
        f"A network 784-300-100-10 of single elements (1x1). {told['optimizer'].capitalize()}, learning rate "
        f"{told['rate']:g}, batches of {told['batch']}, {told['epochs']} epochs of each round.",
        f"After a round, {100 * told['ticket-share']:g} % of the weights that each matrix still has are pruned by magnitude,",
        f"and the others get the values of step {told['rewind']} back: the next ticket. The new weights are drawn anew for the same",
        "pattern, and trained as long. Percent of the 10000 test images at the end, and of 6000 validation images after",
        f"the first epoch; mean ± deviation of {len(results)} seeds.",
        "",
        "| weights | " + " | ".join(COLUMNS) + " |",
        "| --- |" + " --- |" * len(COLUMNS),
    ]
    for number, one in enumerate(some["rounds"]):
        row = [cell(values(results, number, of)) for of in COLUMNS.values()]
        lines.append(f"| {100 * one['density']:.1f} % | " + " | ".join(row) + " |")
    return "\n".join([*lines, "", "![Accuracy by density](tickets.svg)"])


def plots(results):
    import figures

    figure, axes = figures.plt.subplots(figsize=(6.4, 3.6))
    rounds = next(iter(results.values()))["rounds"]
    for (name, of), colour in zip(list(COLUMNS.items())[:2], figures.COLOURS):
        points = [(100 * one["density"], values(results, number, of)) for number, one in enumerate(rounds)]
        points = [(density, *figures.mean_and_spread(v)) for density, v in points if v]
        if points:
            x, y, spread = zip(*points)
            axes.errorbar(x, y, yerr=spread, marker="o", color=colour, capsize=2, label=name)
    axes.set_xscale("log")
    axes.invert_xaxis()
    ticks = [100, 50, 20, 10, 5]
    axes.set_xticks(ticks, [f"{t} %" for t in ticks])
    axes.minorticks_off()
    axes.set_xlabel("weights that are left")
    axes.set_ylabel("test accuracy, %")
    axes.legend(fontsize=7)
    return {"tickets.svg": figure}
