#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws what `bench --results` or `--json` wrote: plot.py FOLDER reads all its JSON files, later ones replace the
records of earlier ones, and writes SVG plots beside them. A plot whose question was not asked is left out."""

import pathlib
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plots need Matplotlib: pip install matplotlib")

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter

from results import BLOCKS, Results, is_ours, parts_of_steps

COLOURS = dict(zip(BLOCKS, ["#0b4f8a", "#2a8fbd", "#5ab4ac", "#d8871f"]))
DENSE, PEERS, INK, FAINT = "#444444", "#9a9a9a", "#222222", "#cccccc"
SHAPES = [(1024, 1024, 1024), (3072, 768, 4096), (768, 3072, 4096), (768, 768, 4096)]

plt.rcParams.update(
    {
        "svg.fonttype": "none",  # text stays text: small files
        "svg.hashsalt": "bench",  # the same bytes for the same figures
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": INK,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#ececec",
        "grid.linewidth": 0.8,
        "legend.frameon": False,
        "lines.markersize": 4,
        "lines.linewidth": 1.6,
    }
)


def shape_name(shape):
    return " × ".join(map(str, shape))


def percent(axis):
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))


def plain(axis):
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def grouped_bars(axes, groups, series, colours, height_of):
    """Bars side by side; height_of(group, member) is None where there is nothing."""
    width = 0.8 / len(series)
    for s, name in enumerate(series):
        heights = [(g, height_of(group, name)) for g, group in enumerate(groups)]
        at = [g - 0.4 + (s + 0.5) * width for g, height in heights if height is not None]
        heights = [height for _, height in heights if height is not None]
        axes.bar(at, heights, 0.9 * width, color=colours[name], label=name)
        for x, height in zip(at, heights):
            axes.text(x, height + 0.01, f"{height:.2f}".lstrip("0"), ha="center", fontsize=min(6.5, 42 * width), color=INK)
    axes.set_xticks(range(len(groups)))
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.grid(False, axis="x")


# ---- the plots: each returns a figure, or nothing ----


def roofline(results):
    """GFLOP/s in float over useful operations per byte that has to be moved at least."""
    records = [r for r in results.find(element="float", threads=1) if "least_bytes" in r and r["n"] >= 64]
    if not records:
        return None
    peak = results.machine["measured_peaks"]["float"]["1 thread"]
    reads = results.machine["measured_reads"]
    figure, axes = plt.subplots(figsize=(7.2, 4.4))

    def intensity(record):
        return record["useful_gflops"] * record["time_ns"] / record["least_bytes"]

    low, high = 1.0, 1.6 * max(map(intensity, records))
    floor = 0.5 * min(r["useful_gflops"] for r in records if r["contestant"] == "tessera")
    for name, place in (("memory", "262144 KiB"), ("L3", "8192 KiB"), ("L2", "512 KiB")):
        ridge = peak / reads[place]
        axes.plot([low, ridge], [low * reads[place], peak], color="#aaaaaa", linewidth=1.2, zorder=1)
        if ridge < 1.3 * low:
            continue
        x = (low * ridge) ** 0.5
        axes.annotate(
            f"{name}: {reads[place]:.0f} GB/s", (x, x * reads[place]), (7, -7), textcoords="offset points",
            rotation=45, rotation_mode="anchor", transform_rotates_text=True,
            color="#777777", fontsize=8, ha="center", va="top",
        )  # fmt: skip
    axes.plot([low, high], [peak, peak], color=INK, linewidth=1.2, zorder=1)
    axes.text(high, peak * 1.05, f"multiply-adds: {peak:.0f} GFLOP/s", ha="right", color=INK, fontsize=8)

    markers = {"forward": "o", "transposed": "^", "sampled": "s", "dense": "D"}
    meanings = {"forward": "W·X", "transposed": "Wᵀ·dY", "sampled": "dY·Xᵀ sampled", "dense": "dense W·X"}
    best = {}  # of the other libraries at the same sizes
    for r in sorted(records, key=lambda r: r["share_of_peak"]):
        if r["question"] == "peers" and not is_ours(r):
            best[tuple(r[name] for name in ("operation", "m", "k", "n", "density", "block"))] = r
    for r in best.values():
        axes.plot(intensity(r), r["useful_gflops"], "x", color=PEERS, zorder=2)
    for r in records:
        if r["contestant"] == "tessera":
            colour = DENSE if r["density"] == 1 else COLOURS[r["block"]]
            axes.plot(intensity(r), r["useful_gflops"], markers[r["operation"]], color=colour, alpha=0.85, zorder=3)
    handles = [plt.Line2D([], [], marker="o", linestyle="", color=c, label=b) for b, c in COLOURS.items()]
    handles += [plt.Line2D([], [], marker="D", linestyle="", color=DENSE, label="all blocks stored")]
    handles += [
        plt.Line2D([], [], marker=markers[o], linestyle="", color=INK, fillstyle="none", label=meanings[o])
        for o in ("forward", "transposed", "sampled")
    ]
    handles += [plt.Line2D([], [], marker="x", linestyle="", color=PEERS, label="best other library")]
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(floor, peak * 1.5))
    axes.set(xlabel="useful operations per byte of weights and activations", ylabel="useful GFLOP/s")
    axes.set_title("Roofline in float, one thread")
    plain(axes.xaxis)
    plain(axes.yaxis)
    return figure


def share_of_peak(results):
    """By product, shape and block at 10 %; by density."""
    operations = [("forward", "W·X"), ("transposed", "Wᵀ·dY"), ("sampled", "dY·Xᵀ sampled")]
    figure, rows = plt.subplots(1, 3, figsize=(13, 3.2), sharey=True)
    drawn = False
    for axes, (operation, title) in zip(rows, operations):

        def share(shape, block):
            r = results.one(question=operation, operation=operation, contestant="tessera", shape=shape, block=block,
                            element="float", threads=1)  # fmt: skip
            return r and r["share_of_peak"]

        drawn |= any(share(shape, block) for shape in SHAPES for block in BLOCKS)
        grouped_bars(axes, SHAPES, BLOCKS, COLOURS, share)
        axes.set_xticklabels(["\n".join([f"{s[0]} × {s[1]},", f"{s[2]} tokens"]) for s in SHAPES], fontsize=8)
        axes.set_title(title)
        axes.set_ylim(0, 1)
        percent(axes.yaxis)
    rows[0].set_ylabel("share of the FMA peak")
    handles, names = rows[0].get_legend_handles_labels()
    figure.legend(handles, names, ncols=4, fontsize=8, loc="upper right", columnspacing=1, handlelength=1)
    figure.suptitle("10 % of the blocks stored, float, one thread", x=0.01, ha="left", fontsize=10, color=INK)
    return figure if drawn else None


def density(results):
    """How many times as fast as the best dense product, over density."""
    shape = (1024, 1024, 1024)
    dense = [r for r in results.find(operation="dense", element="float", shape=shape, threads=1) if not is_ours(r)]
    ours = results.find(question="density", operation="forward", element="float", threads=1)
    if not ours:
        return None
    dense = dense or results.find(operation="dense", element="float", contestant="tessera", shape=shape, threads=1)
    reference = max(dense, key=lambda r: r["share_of_peak"])
    figure, both = plt.subplots(1, 2, figsize=(10, 4))
    axes = both[0]
    for block in BLOCKS:
        line = sorted((r["density"], r["share_of_peak"]) for r in ours if r["block"] == block)
        axes.plot(*zip(*line), "o-", color=COLOURS[block], label=block)
    axes.set(xscale="log", ylim=(0, 1), xlabel="stored blocks", ylabel="share of the FMA peak")
    axes.set_title("W·X in float, 1024 × 1024, 1024 tokens")
    percent(axes.xaxis)
    percent(axes.yaxis)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.legend()

    axes = both[1]

    def speed_up(r):
        return r["share_of_peak"] / r["density"] / reference["share_of_peak"]

    peers = [
        r
        for r in results.find(question="peers", operation="forward", element="float", shape=shape, threads=1)
        if not is_ours(r)
    ]
    ends = []
    for name in sorted({r["contestant"].removesuffix(" as on Intel") for r in peers}):
        best = {}  # of both settings and both blocks that were asked
        for r in peers:
            if r["contestant"].startswith(name) and r["block"] in ("16x16", "1x1"):
                best[r["density"]] = max(best.get(r["density"], 0), speed_up(r))
        line = sorted(best.items())
        if len(line) > 1:
            axes.plot(*zip(*line), ".-", color=PEERS, linewidth=0.9, markersize=3, zorder=2)
            ends.append((line[0][1], line[0][0], name))
    for block in BLOCKS:
        line = sorted((r["density"], speed_up(r)) for r in ours if r["block"] == block)
        axes.plot(*zip(*line), "o-", color=COLOURS[block], label=block, zorder=3)
    densities = sorted({r["density"] for r in ours})
    axes.plot(densities, [1 / d for d in densities], ":", color=INK, linewidth=1, label="only stored blocks' work")
    axes.axhline(1, color="#b03030", linewidth=1)
    axes.text(densities[0], 0.93, "break-even", color="#b03030", fontsize=8, va="top")
    axes.set(xscale="log", yscale="log", xlabel="stored blocks")
    axes.set_xlim(densities[0] / (4 if ends else 1.2), densities[-1] * 1.15)
    last = 0
    for y, x, name in sorted(ends):  # labels from below, none on another
        last = max(y, last * 1.28)
        axes.annotate(name, (x, y), (x / 1.1, last), fontsize=7, color="#666666", ha="right", va="center")
    axes.set_title(f"times as fast as the best dense product ({reference['contestant']})")
    axes.set_xticks([d for d in densities if d in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)])
    percent(axes.xaxis)
    axes.xaxis.set_minor_formatter(NullFormatter())
    plain(axes.yaxis)
    axes.legend(loc="upper right")
    return figure


def peers(results):
    """All contestants at 10 %, by block, and all dense ones."""
    records = results.find(question="peers", element="float", shape=SHAPES[1], threads=1)
    if not any(not is_ours(r) for r in records):
        return None
    panels = [("dense", "16x16", 1.0, "dense")]
    panels += [("forward", block, 0.1, f"10 % in blocks of {block}") for block in BLOCKS]
    tables = []
    for operation, block, stored, title in panels:
        found = [r for r in records if (r["operation"], r["block"], r["density"]) == (operation, block, stored)]
        tables.append((title, sorted(found, key=lambda r: r["share_of_peak"])))
    figure, rows = plt.subplots(
        len(tables), 1, figsize=(7.2, 9), sharex=True, height_ratios=[max(1, len(t)) for _, t in tables]
    )
    for axes, (title, table) in zip(rows, tables):
        for y, r in enumerate(table):
            colour = (DENSE if r["density"] == 1 else COLOURS[r["block"]]) if is_ours(r) else "#c4c4c4"
            axes.barh(y, r["share_of_peak"], 0.72, color=colour)
            axes.text(
                r["share_of_peak"] + 0.008, y, f"{r['useful_gflops']:.0f}", va="center", fontsize=7.5, color=INK
            )
        axes.set_yticks(range(len(table)), [r["contestant"] for r in table], fontsize=8)
        axes.set_title(title, fontsize=9)
        axes.grid(False, axis="y")
        axes.set_xlim(0, 1)
        percent(axes.xaxis)
    m, k, n = SHAPES[1]
    product = f"W·X in float, {m} × {k}, {n} tokens, one thread"
    rows[-1].set_xlabel(f"share of the FMA peak, {product}; figures: useful GFLOP/s")
    return figure


def scaling(results):
    """Over tokens, and what the second thread brings."""
    tokens = results.find(question="tokens", element="float", threads=1)
    threads = results.find(question="scaling", element="float", contestant="tessera")
    if not tokens and not threads:
        return None
    figure, (left, right) = plt.subplots(1, 2, figsize=(11.5, 3.8), width_ratios=[1, 1.6])
    left.set_visible(bool(tokens))
    right.set_visible(bool(threads))
    for name, records in [
        *((b, [r for r in tokens if is_ours(r) and r["block"] == b and r["density"] < 1]) for b in BLOCKS),
        ("all blocks", [r for r in tokens if is_ours(r) and r["density"] == 1]),
        ("oneDNN, dense", [r for r in tokens if r["contestant"] == "oneDNN"]),
    ]:
        line = sorted((r["n"], r["share_of_peak"]) for r in records)
        if line:
            colour = COLOURS.get(name, DENSE if name == "all blocks" else PEERS)
            left.plot(*zip(*line), "o-" if name in COLOURS else "o--", color=colour, label=name)
    left.set(xscale="log", ylim=(0, 1), xlabel="tokens", ylabel="share of the FMA peak")
    left.set_xticks([64, 256, 1024, 4096])
    plain(left.xaxis)
    percent(left.yaxis)
    left.set_title("W·X in float, 1024 × 1024, 10 % stored")
    left.legend(fontsize=8, loc="lower right", ncols=2)

    operations = {"forward": "W·X", "transposed": "Wᵀ·dY", "sampled": "dY·Xᵀ sampled"}
    several = max((r["threads"] for r in threads), default=1)
    groups = [(o, s) for o in operations for s in SHAPES]

    def times(group, block):
        found = {
            r["threads"]: r["useful_gflops"]
            for r in threads
            if (r["operation"], (r["m"], r["k"], r["n"]), r["block"]) == (*group, block) and r["density"] < 1
        }
        return found.get(several) and found[several] / found[1]

    if threads:
        grouped_bars(right, groups, BLOCKS, COLOURS, times)
        for text in list(right.texts):
            text.remove()
        for i, name in enumerate(operations.values()):
            right.axvline(i * len(SHAPES) - 0.5, color=FAINT, linewidth=0.8)
            right.text((i + 0.5) * len(SHAPES) - 0.5, several * 1.07, name, ha="center", fontsize=8.5)
        right.axhline(several, color=INK, linewidth=1, linestyle=":")
        right.set_xticklabels([f"{s[0]}\n{s[1]}\n{s[2]}" for _, s in groups], fontsize=7.5)
        right.set(ylim=(0, several * 1.15), ylabel="times as fast as one thread")
        right.set_title(f"{several} threads, float, 10 % stored")
    return figure


def step_parts(results, model, element):
    """What the steps of a model spend their time on."""
    found = parts_of_steps(results, model, element)
    if not found:
        return None
    steps, (m, k, n) = found
    names = list(dict.fromkeys(name for step in steps for name in step.parts))
    ordered = [p for p in ("products forward", "products dX", "products dW") if p in names]
    ordered += [p for p in names if p not in ordered]
    total = {name: sum(step.parts.get(name, 0) for step in steps) for name in ordered}
    small = [name for name in ordered if total[name] < 0.02 * sum(total.values())]
    palette = ["#0b4f8a", "#2a8fbd", "#8cc6de", "#d8871f", "#edb86b", "#7a5195", "#bc8fcf", "#5ab4ac", "#a8d5c8"]
    figure, axes = plt.subplots(figsize=(8.4, 3.2))
    colour = dict(zip([p for p in ordered if p not in small], palette))
    for y, step in enumerate(steps):
        left = 0
        for name in [p for p in ordered if p not in small]:
            width = step.parts.get(name, 0) * 1e-6
            axes.barh(y, width, 0.66, left=left, color=colour[name], label=name if y == 0 else None)
            left += width
        rest = sum(step.parts.get(name, 0) for name in small) * 1e-6
        axes.barh(y, rest, 0.66, left=left, color=FAINT, label="the rest" if y == 0 and small else None)
        if step.whole:
            axes.plot([step.whole * 1e-6] * 2, [y - 0.4, y + 0.4], color=INK, linewidth=1.2,
                      label="the whole step" if y == 0 else None)  # fmt: skip
    pytorch = results.one(question="step", contestant="PyTorch", operation=model, shape=(m, k, n), element=element,
                          threads=1)  # fmt: skip
    labels = ["dense" if step.density == 1 else f"{100 * step.density:g} %, {step.block}" for step in steps]
    if pytorch:
        axes.barh(len(steps), pytorch["time_ns"] * 1e-6, 0.66, color="#c4c4c4")
        labels.append("PyTorch, dense")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlabel("ms")
    axes.set_title(f"A training step in {element}: {model}, hidden {m}, layers {k}, {n} tokens, one thread")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7.5)
    return figure


def layer(results):
    """Forward and backward of a linear layer beside PyTorch and SparseProp."""
    records = results.find(question="layer", element="float", threads=1)
    if not records:
        return None
    columns = [("dense", 1.0, "16x16"), *((f"{100 * d:g} %", d, None) for d in (0.1, 0.05, 0.01))]
    series = ["tessera 16x16", "tessera 1x1", "PyTorch", "PyTorch as on Intel", "SparseProp", "SparseProp kernels"]
    series = [s for s in series if any(s.startswith(r["contestant"]) for r in records)]
    colours = dict(zip(series, [COLOURS["16x16"], COLOURS["1x1"], "#dddddd", "#c4c4c4", "#a5a5a5", "#858585"]))
    figure, rows = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True)
    for axes, shape in zip(rows, SHAPES):

        def share(column, name):
            _, stored, block = column
            who, _, own_block = name.partition(" ") if name.startswith("tessera") else (name, "", block or "1x1")
            if stored == 1 and own_block == "1x1":
                return None
            r = results.one(question="layer", contestant=who, shape=shape, density=stored, block=own_block,
                            element="float", threads=1)  # fmt: skip
            return r and r["share_of_peak"]

        grouped_bars(axes, columns, series, colours, share)
        axes.set_xticklabels([name for name, _, _ in columns])
        axes.set_title(shape_name(shape), fontsize=9)
        axes.set_ylim(0, 1)
        percent(axes.yaxis)
    rows[0].set_ylabel("share of the FMA peak")
    handles, names = rows[0].get_legend_handles_labels()
    figure.legend(handles, names, ncols=6, fontsize=7.5, loc="upper right", columnspacing=1, handlelength=1)
    figure.suptitle("A linear layer in float, forward and backward", x=0.01, ha="left", fontsize=10)
    return figure


PLOTS = {
    "roofline": roofline,
    "share_of_peak": share_of_peak,
    "density": density,
    "peers": peers,
    "scaling": scaling,
    "layer": layer,
    "step_gpt": lambda results: step_parts(results, "gpt", "float"),
    "step_bert": lambda results: step_parts(results, "bert", "float"),
    "step_bert_bfloat16": lambda results: step_parts(results, "bert", "bfloat16"),
}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    results = Results(folder)
    for name, draw in PLOTS.items():
        figure = draw(results)
        if figure is None:
            continue
        figure.tight_layout(rect=(0, 0.04, 1, 1))
        figure.text(0.01, 0.012, results.about(), fontsize=9, color="#444444")
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)
        print(folder / f"{name}.svg")


if __name__ == "__main__":
    main()
