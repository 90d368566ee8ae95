# SPDX-License-Identifier: BSD-3-Clause
"""Learning rates of the model of gpt.py by density, beside the rule of Dietrich et al. 2021 (equation 3)."""

import math

import gpt

TITLE = "The best learning rate by density, and the rule of Dietrich et al."
PROGRAM = "pretrain"
STEPS, BLOCK = 300, 16
RATES = {  # by density
    1: [5e-4, 1e-3, 2e-3, 4e-3],
    0.5: [1e-3, 2e-3, 4e-3, 8e-3],
    0.25: [1e-3, 2e-3, 4e-3, 8e-3, 16e-3],
    0.1: [1e-3, 2e-3, 4e-3, 8e-3, 16e-3],
}


def named(density, rate):
    return f"gpt, {density:g} of the weights, {rate:g}"


def runs(quick):
    table = {}
    for density, rates in ({0.1: [4e-3]} if quick else RATES).items():
        for rate in rates:
            which = ["--only", "dense", "--lr", str(rate)] if density == 1 else [
                "--only", "sparse", "--density", str(density), "--block", str(BLOCK), "--sparse-lr", str(rate), *gpt.MOVING]
            steps = 20 if quick else STEPS
            table[named(density, rate)] = [*gpt.model_arguments(quick), *which, "--threads", "2", "--seed", "1",
                                           "--steps", str(steps), "--eval-every", str(steps)]
    return table


def suggested(dense_rate, density):
    sparsity = 1 - density
    return dense_rate * math.exp(1.969 * sparsity**2 + 0.2905 * sparsity)


def least(losses):
    """The rate at the vertex of the parabola, over the logarithm of the rate, through the best loss and its neighbours;
    the best rate itself where it is the first or the last."""
    rates = sorted(losses)
    best = min(rates, key=losses.get)
    i = rates.index(best)
    if i in (0, len(rates) - 1):
        return best
    x = [math.log(r) for r in rates[i - 1:i + 2]]
    y = [losses[r] for r in rates[i - 1:i + 2]]
    left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1])
    if left == right:
        return best
    return math.exp((x[0] + x[1]) / 2 - left * (x[2] - x[0]) / 2 / (right - left))


def by_density(results):
    """{density: {rate: loss}} of the runs that are there."""
    table = {}
    for density, rates in RATES.items():
        losses = {r: results[named(density, r)]["loss"] for r in rates if named(density, r) in results}
        if losses:
            table[density] = losses
    return table


def page(results):
    table = by_density(results)
    rates = sorted({r for losses in table.values() for r in losses})
    dense = least(table[1]) if 1 in table else None
    lines = [
        f"The character GPT of [gpt.md](gpt.md), blocks of {BLOCK} x {BLOCK} whose patterns change by magnitude and at random, {STEPS} steps;",
        "one seed. Validation losses in nats, by the highest learning rate of a cosine down to a tenth. *Best* is the vertex of",
        "a parabola through the least loss and its two neighbours; where the least loss is at an end of the rates that were",
        "tried, *best* is that rate, and a better one may lie beyond. *Rule* is equation 3 of Dietrich et al. 2021, from the",
        "best dense rate. Empty cells were not run. Rates of BERT are in [bert.md](bert.md).",
        "",
        "| weights | " + " | ".join(f"{r:g}" for r in rates) + " | best | rule |",
        "| --- |" + " --- |" * (len(rates) + 2),
    ]
    for density, losses in table.items():
        row = [f"{losses[r]:.3f}" if r in losses else "" for r in rates]
        rule = f"{suggested(dense, density):.1e}" if dense and density != 1 else ""
        lines.append(f"| {100 * density:g} % | " + " | ".join(row) + f" | {least(losses):.1e} | {rule} |")
    return "\n".join([*lines, "", "![Loss by learning rate](rates.svg)"])


def plots(results):
    import figures

    figure, axes = figures.plt.subplots(figsize=(6.4, 3.6))
    for (density, losses), colour in zip(by_density(results).items(), ["#444444", *figures.COLOURS]):
        axes.plot(sorted(losses), [losses[r] for r in sorted(losses)], marker="o", color=colour,
                  label=f"{100 * density:g} %")
    axes.set_xscale("log")
    axes.set_xlabel("highest learning rate")
    axes.set_ylabel("validation loss")
    if axes.has_data():
        axes.legend()
    return {"rates.svg": figure}
