# SPDX-License-Identifier: BSD-3-Clause
"""BERT on wikipedia.txt (Dietrich et al. 2021 at small sizes): three sizes, dense and with 10 % of the encoder in blocks of
four sizes, at equal time and at equal FLOPs. Its first part decides, and takes about six hours with --jobs 2."""

import os
import pathlib
import statistics
import typing

import rates

TITLE = "BERT in three sizes: dense, and 10 % of the encoder in blocks, by time and by FLOPs"
PROGRAM = "pretrain"
LONGEST = 6 * 60 * 60  # the longest run has two hours of steps, and another one beside it
# How patterns move.
MOVING = ["--prune-fraction", "0.1", "--newborn", "mean", "--updates", "160"]
MINUTES = {"tiny": 4, "mini": 20, "small": 40}  # of steps on one thread, for each run of a size
LONG = 120  # of one dense run of the largest
SEEDS = 3
BLOCKS = (4, 16, 8, 1)  # in the order of making
# Highest rates; the first one is that of all runs that are not about rates.
DENSE_RATES = {
    "tiny": (1e-3, 5e-4, 2e-3, 2.5e-4, 4e-3),
    "mini": (5e-4, 2.5e-4, 1e-3, 1.25e-4, 2e-3),
    "small": (2.5e-4, 5e-4, 1.25e-4, 1e-3, 6.25e-5),
}
SPARSE_RATES = {"tiny": (4e-3, 2e-3, 8e-3), "mini": (4e-3, 2e-3, 8e-3), "small": (2e-3, 1e-3, 4e-3)}
RATE_BLOCK = "moving 4x4"  # of which there are runs at all three
TIMED_STEPS = {"tiny": 240, "mini": 48, "small": 12}
EVALUATIONS = 40
FRONT_MINUTES = (1, 2, 4, 10, 20, 40, LONG)
# Dietrich et al. 2021, 10 % of the weights: validation loss in blocks of 1, 4, 8 and 16 (tables 1 and A.8), of a dense model
# with equal FLOPs, and ε_crit, which is computed from its tables by interpolation between logarithms.
PAPER = {
    "BERT-Medium": ((2.408, 2.546, 2.591, 2.621), 2.603, (2.34, 1.27, 1.05, None)),
    "BERT-Base": ((2.160, 2.272, 2.295, 2.311), 2.350, (2.05, 1.38, 1.27, 1.20)),
}


class Run(typing.NamedTuple):
    size: str
    what: str  # "dense", or "moving" or "static" and the blocks
    rate: float
    minutes: int
    seed: int = 1

    def __str__(self):
        return f"{self.size}, {self.what}, {self.rate:g}, {self.minutes} min, seed {self.seed}"

    def contestant(self):
        """Whose step it has: a pattern that stays has the step of one that moves."""
        return f"{self.size}, {self.what.split()[-1]}"


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


def arguments(run, quick):
    which = ["--only", "dense", "--lr", str(run.rate)]
    if run.what != "dense":
        how, blocks = run.what.split()
        which = ["--only", "sparse", "--density", "0.1", "--sparse-lr", str(run.rate), "--block", blocks.split("x")[0],
                 *(["--static"] if how == "static" else MOVING)]
    return [*model_arguments(run.size, quick), *which, "--threads", "1"]


def with_updates(arguments, number):
    return [number if before == "--updates" else each for before, each in zip(["", *arguments], arguments)]


def usual(size, what, seed=1):
    return Run(size, what, (DENSE_RATES if what == "dense" else SPARSE_RATES)[size][0], MINUTES[size], seed)


def first_part():
    """Every size and block once. The dense models of smaller sizes get the time of a larger one, too, before anything is
    compared with it: they may be better."""
    table, sizes = [], list(MINUTES)
    for number, size in enumerate(sizes):
        table += [usual(each, "dense")._replace(minutes=MINUTES[size]) for each in sizes[number::-1]]
        table += [usual(size, f"moving {b}x{b}") for b in BLOCKS]
        table += [usual(size, "dense")._replace(rate=rate) for rate in DENSE_RATES[size][1:]]
    return table


def later_part():
    """Of each size: static patterns, sparse rates, other seeds, and sparse models with the time of the next size. At last the
    largest dense model for long."""
    table, sizes = [], list(MINUTES)
    for size, larger in zip(sizes, [*sizes[1:], None]):
        moving, static = ([f"{how} {b}x{b}" for b in BLOCKS] for how in ("moving", "static"))
        table += [usual(size, what) for what in static]
        table += [usual(size, RATE_BLOCK)._replace(rate=rate) for rate in SPARSE_RATES[size][1:]]
        table += [usual(size, what, seed) for seed in range(2, SEEDS + 1) for what in ("dense", *moving, *static)]
        if larger:
            table += [usual(size, what)._replace(minutes=MINUTES[larger]) for what in moving]
    return [*table, usual(sizes[-1], "dense")._replace(minutes=LONG)]


def contestants(quick):
    table = {}
    for size in ["tiny"] if quick else MINUTES:
        for what in ("dense", *(f"moving {b}x{b}" for b in ([16] if quick else BLOCKS))):
            run, steps = usual(size, what), 12 if quick else TIMED_STEPS[size]
            table[run.contestant()] = [*with_updates(arguments(run, quick), "1"), "--steps", str(steps), "--eval-every",
                                       str(steps // 2)]
    return table


def runs(quick, seconds):
    table = {}
    for run in [usual("tiny", "dense"), usual("tiny", "moving 16x16")] if quick else [*first_part(), *later_part()]:
        its = with_updates(arguments(run, quick), "10") if quick else arguments(run, quick)
        steps = 20 if quick else int(60 * run.minutes / seconds[run.contestant()])
        table[str(run)] = [*its, "--steps", str(steps), "--eval-every", str(max(1, steps // EVALUATIONS)),
                           "--seed", str(run.seed)]
    return table


class Made(typing.NamedTuple):
    """A run that is there."""
    run: Run
    result: dict
    second: float  # of a step

    def points(self, unit):
        """(cost, validation loss) at each evaluation, the last one of the whole validation text."""
        r = self.result
        return [*((p[0] * unit, p[2]) for p in r["curve"] if p[0] < r["steps"]), (r["steps"] * unit, r["loss"])]

    def by_time(self):
        return self.points(self.second)

    def by_flops(self):
        return self.points(self.result["step_flops"])


def made(results):
    seconds = results.get("seconds of a step", {})
    return [Made(run, results[str(run)], seconds[run.contestant()])
            for run in [*first_part(), *later_part()] if str(run) in results]


def of(there, size, what):
    """The runs of all seeds with the usual rate and time; of dense models those of the rate with the least loss."""
    if what != "dense":
        return [m for m in there if m.run == usual(size, what, m.run.seed)]
    mine = [m for m in there if (m.run.size, m.run.what, m.run.minutes) == (size, "dense", MINUTES[size])]
    best = min(mine, key=lambda m: m.result["loss"], default=None)
    return [m for m in mine if m.run.rate == best.run.rate]


def front(points):
    """Of (cost, loss): those with a lower loss than every cheaper one."""
    lowest = []
    for point in sorted(points):
        if not lowest or point[1] < lowest[-1][1]:
            lowest.append(point)
    return lowest


def loss_within(points, cost):
    """The least loss up to a cost, with room for a rounded number of steps; None if there is none."""
    return min((loss for at, loss in points if at <= 1.001 * cost), default=None)


def cost_of(points, loss):
    return min(at for at, its in points if its <= loss)


def dense_front(there, axis):
    return front(point for m in there if m.run.what == "dense" for point in getattr(m, axis)())


def cost_ratio(mine, there, axis):
    """What dense models take to the lowest loss that they and this run reach, ÷ what this run takes."""
    dense, own = dense_front(there, axis), getattr(mine, axis)()
    loss = max(min(loss for _, loss in each) for each in (dense, own))
    return cost_of(dense, loss) / cost_of(own, loss)


def mean(values):
    values = [v for v in values if v is not None]
    return statistics.mean(values) if values else None


def number(value, digits=3, sign=""):
    return "" if value is None else f"{value:{sign}.{digits}f}".replace("-", "−")


def losses(its):
    values = [m.result["loss"] for m in its]
    if len(values) < 2:
        return number(mean(values))
    return f"{number(mean(values))} ± {statistics.stdev(values):.3f} ({len(values)})"


def equal(there, its, axis):
    """The least dense loss at the cost of these runs."""
    dense = dense_front(there, axis)
    return mean(loss_within(dense, getattr(m, axis)()[-1][0]) for m in its)


def flop_cost(there, size, what):
    """ε of a contestant."""
    sparse, dense = of(there, size, what), of(there, size, "dense")
    if not sparse or not dense:
        return None
    second_of_flop = [m.second / m.result["step_flops"] for m in (sparse[0], dense[0])]
    return second_of_flop[0] / second_of_flop[1]


def critical(there, its, axis="by_flops"):
    """ε_crit, or by time how many times sooner than dense models."""
    return mean(cost_ratio(m, there, axis) for m in its) if any(m.run.what == "dense" for m in there) else None


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def header(*cells):
    return [row(*cells), row(*("---" for _ in cells))]


def front_table(there):
    """The least loss of each block within so many minutes, of all sizes."""
    longest = max((m.run.minutes for m in there if m.run.what == "dense"), default=0)
    columns = [minutes for minutes in FRONT_MINUTES if minutes <= longest]
    dense = dense_front(there, "by_time")
    lines = header("within minutes of steps", *map(str, columns or MINUTES.values()))
    for what in ("dense", *(f"{how} {b}x{b}" for how in ("moving", "static") for b in sorted(BLOCKS))):
        cells = []
        for minutes in columns:
            its = [(loss_within(m.by_time(), 60 * minutes), m.run.size) for m in there if m.run.what == what]
            loss, size = min((each for each in its if each[0] is not None), default=(None, ""))
            limit = loss_within(dense, 60 * minutes)
            bold = "**" if None not in (loss, limit) and loss < limit else ""
            cells.append(f"{bold}{number(loss)}{bold} {size}".strip())
        lines.append(row(what, *(cells or ["" for _ in MINUTES])))
    return lines


def contestant_table(there, seconds):
    lines = header("", "second of a step", "steps", "rate", "loss", "of a static pattern", "dense in the same time",
                   "dense with the same FLOPs", "ε", "ε_crit", "times sooner", "explored")
    for size in MINUTES:
        for blocks in ("dense", *(f"{b}x{b}" for b in sorted(BLOCKS))):
            what = blocks if blocks == "dense" else f"moving {blocks}"
            its, time = of(there, size, what), seconds.get(f"{size}, {blocks}")
            steps, rate = (str(its[0].result["steps"]), f"{its[0].run.rate:g}") if its else ("", "")
            cells = [number(time, 4), steps, rate, losses(its)]
            if what != "dense":
                share = mean(m.result["explored"] for m in its)
                cells += [losses(of(there, size, f"static {blocks}")), number(equal(there, its, "by_time")),
                          number(equal(there, its, "by_flops")), number(flop_cost(there, size, what), 2),
                          number(critical(there, its), 2), number(critical(there, its, "by_time"), 2),
                          f"{100 * share:.0f} %" if share else ""]
            lines.append(row(f"{size}, {blocks}", *cells, *("" for _ in range(11 - len(cells)))))
    return lines


def losses_by_rate(there, size, what):
    return {m.run.rate: m.result["loss"] for m in there
            if (m.run.size, m.run.what, m.run.minutes, m.run.seed) == (size, what, MINUTES[size], 1)}


def rate_table(there):
    tried = sorted({rate for table in (DENSE_RATES, SPARSE_RATES) for its in table.values() for rate in its})
    lines = header("", *(f"{rate:g}" for rate in tried), "best", "rule")
    for size in MINUTES:
        dense = losses_by_rate(there, size, "dense")
        for what in ("dense", RATE_BLOCK):
            its = losses_by_rate(there, size, what)
            best = f"{rates.least(its):.1e}" if its else ""
            rule = f"{rates.suggested(rates.least(dense), 0.1):.1e}" if dense and what != "dense" else ""
            lines.append(row(f"{size}, {what}", *(number(its.get(rate)) for rate in tried), best, rule))
    return lines


def paper_table(there):
    lines = header("", *(f"{size.capitalize()}" for size in MINUTES), *PAPER)
    for i, block in enumerate(sorted(BLOCKS)):
        cells = []
        for size in MINUTES:
            its = of(there, size, f"moving {block}x{block}")
            dense = equal(there, its, "by_flops")
            gain = mean(m.result["loss"] for m in its) - dense if its and dense is not None else None
            cells.append(f"{number(gain, sign='+')}; {number(critical(there, its), 2)}" if gain is not None else "")
        for its, dense, most in PAPER.values():
            cells.append(f"{number(its[i] - dense, sign='+')}; {number(most[i], 2) if most[i] else 'none'}")
        lines.append(row(f"{block}x{block}", *cells))
    return lines


def what_is_missing(there, seconds):
    if not seconds:
        return ["**Nothing is measured yet.** `./dev experiment bert --jobs 2` first times a step of each contestant, some ten",
                "minutes in which the machine may do nothing else; its runs may be disturbed. Those of the first part have",
                f"{sum(run.minutes for run in first_part()) / 60:.1f} hours of steps on one thread, those of the rest "
                f"{sum(run.minutes for run in later_part()) / 60:.0f}.", ""]
    part, runs_made = first_part(), {m.run for m in there}
    missing = [run for run in part if run not in runs_made]
    if not missing:
        return []
    return [f"Of the {len(part)} runs that decide, {len(missing)} are missing; next is: {missing[0]}.", ""]


def page(results):
    there, seconds = made(results), results.get("seconds of a step", {})
    budgets = ", ".join(f"{minutes} minutes ({size})" for size, minutes in MINUTES.items())
    pictures = [["", f"![{said}]({file})"] if there else [] for said, file in
                (("Loss by time", "bert.svg"), ("Loss by block size, and by learning rate", "bert_blocks.svg"))]
    lines = [
        "Masked language models of 2 x 128, 4 x 256 and 4 x 512 (layers x features) on 2.5 MB of Wikipedia: 40 % of the tokens",
        "masked (Wettig et al. 2023), a vocabulary of 512 pieces, 32 tokens, batches of 32. Sparse models have 10 % of the",
        f"encoder's weights; patterns move by `{' '.join(MOVING)}`, growth at random, where they are not",
        "static. AdamW; rates rise over 5 % of the steps and fall along a cosine to a tenth. A run has as many steps as fit, by the",
        f"step times below, into {budgets} on one thread;",
        "smaller models have the time of larger ones as well. Losses in nats per masked token, mean ± deviation (seeds).",
        "Every model first learns how frequent words are, 4.2 nats, and stays there until its attention finds the words around",
        "a gap; when it does differs by seed. Empty cells are not run.",
        "",
        *what_is_missing(there, seconds),
        "## The front",
        "",
        "The least validation loss of any run within a time, and the size that had it. Bold: below the dense models of",
        "all sizes and rates.",
        "",
        *front_table(there),
        *pictures[0],
        "",
        "## Each size and block",
        "",
        "*Dense in the same time* and *with the same FLOPs* are the least losses that dense models of any size had by then. FLOPs",
        "are those of all products of a step, head and attention included. With t the time and F the FLOPs of a step, F(L) the",
        "FLOPs until the loss L, after Dietrich et al. 2021 (appendix A.3):",
        "",
        "- ε = (t_sparse / F_sparse) / (t_dense / F_dense), of one size: the time of a sparse FLOP in dense ones",
        "- ε_crit = F_dense(L) / F_sparse(L), where dense is the front of all sizes, and L the lowest loss that it and the",
        "  sparse model reach: sparse training takes less time while ε < ε_crit",
        "",
        "*Times sooner* is the time of the dense front until L, divided by that of the sparse model. *Explored* is the share of",
        "all blocks that were ever stored. The dense rate is the best of five in the table further down.",
        "",
        *contestant_table(there, seconds),
        *pictures[1],
        "",
        "## Beside the paper",
        "",
        "Loss less that of dense models with the same FLOPs; then ε_crit, which for the paper is computed from its tables by",
        "interpolation between logarithms (it prints 2 for 1x1 and 1.2 for blocks). It trains 128 tokens over ten epochs, ours are",
        "32 tokens; its FLOPs leave out the head.",
        "",
        *paper_table(there),
        "",
        "## Learning rates",
        "",
        "One seed. *Best* is the vertex of a parabola through the least loss and its neighbours, or the rate at the end of those",
        "that were tried; *rule* is equation 3 of the paper, from the best dense rate.",
        "",
        *rate_table(there),
    ]
    return "\n".join(lines)


STYLES = {"tiny": "-", "mini": "--", "small": ":"}


def ticks_at(axes, places):
    """On an axis of logarithms."""
    axes.set_xscale("log")
    axes.set_xticks(places, [f"{each:g}" for each in places])
    axes.minorticks_off()


def plot_by_time(axes, there, colours):
    of_what = {"dense": "#444444", **{f"moving {b}x{b}": c for b, c in zip(sorted(BLOCKS), colours)}}

    def plot(draw, points, **look):
        draw([seconds / 60 for seconds, _ in points], [loss for _, loss in points], **look)

    plot(lambda *its, **look: axes.step(*its, where="post", **look), dense_front(there, "by_time"), color="#cccccc",
         linewidth=5, label="dense front")
    for size in MINUTES:
        for what, colour in of_what.items():
            for m in of(there, size, what)[:1]:
                plot(axes.plot, m.by_time(), linestyle=STYLES[size], color=colour, label=f"{size}, {what.split()[-1]}")
    ticks_at(axes, FRONT_MINUTES)
    axes.set_xlabel("minutes of steps, first seed")
    axes.set_ylabel("validation loss")
    axes.legend(fontsize=7, ncols=2)


def plot_ends(axes, there, colours):
    places, dense = sorted(BLOCKS), dense_front(there, "by_time")
    for size, colour in zip(MINUTES, colours):
        axes.plot([], [], "s", color=colour, label=size)
        for how, marker in (("moving", "o"), ("static", "x")):
            for i, b in enumerate(places):
                its = [m.result["loss"] for m in of(there, size, f"{how} {b}x{b}")]
                axes.plot([i] * len(its), its, marker, color=colour, markersize=5)
        if of(there, size, "dense") and (limit := loss_within(dense, 60 * MINUTES[size])) is not None:
            axes.axhline(limit, color=colour, linewidth=1, linestyle="--")
    axes.set_xticks(range(len(places)), [f"{b}x{b}" for b in places])
    axes.set_title("o moving, x static, – – dense front in that time", fontsize=9)
    axes.set_ylabel("validation loss at the end")
    axes.legend(fontsize=7)


def plot_rates(axes, there, colours):
    for size, colour in zip(MINUTES, colours):
        for what, line in (("dense", "-o"), (RATE_BLOCK, "--s")):
            its = sorted(losses_by_rate(there, size, what).items())
            if its:
                axes.plot(*zip(*its), line, color=colour, markersize=4, label=f"{size}, {what}")
    ticks_at(axes, (1e-4, 3e-4, 1e-3, 3e-3))
    axes.set_xlabel("highest learning rate")
    axes.legend(fontsize=7)


def plots(results):
    import figures

    there = made(results)
    by_time, axes = figures.plt.subplots(figsize=(7.2, 4.2))
    plot_by_time(axes, there, figures.COLOURS)
    blocks, (ends, grid) = figures.plt.subplots(1, 2, figsize=(9, 3.8))
    plot_ends(ends, there, figures.COLOURS)
    plot_rates(grid, there, figures.COLOURS)
    return {"bert.svg": by_time, "bert_blocks.svg": blocks}
