#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws docs/pictures/: what a pattern, a panel, a tile, the three products and a superstep are."""
import pathlib
import random

ink, faint, blue, orange, green = "#37474f", "#b0bec5", "#3f6ea8", "#e07b39", "#4d9a6a"
folder = pathlib.Path(__file__).resolve().parent.parent / "docs/pictures"
folder.mkdir(exist_ok=True)


class Picture:
    def __init__(self, name, width, height, title):
        self.name, self.size, self.title, self.parts = name, (width, height), title, []

    def box(self, x, y, width, height, fill="none", stroke=ink, line=1, opacity=1):
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" stroke="{stroke}" '
                          f'stroke-width="{line}" fill-opacity="{opacity}"/>')

    def text(self, x, y, words, size=14, anchor="middle", colour=ink, weight="normal"):
        words = words.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{colour}" '
                          f'font-weight="{weight}">{words}</text>')

    def arrow(self, x1, y1, x2, y2, colour=ink):
        self.parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{colour}" stroke-width="1.5" '
                          'marker-end="url(#tip)"/>')

    def blocks(self, x, y, side, rows, cols, stored, fill=blue):
        """A matrix whose blocks (i, j) in `stored` exist."""
        for i in range(rows):
            for j in range(cols):
                if (i, j) in stored:
                    self.box(x + j * side + 1, y + i * side + 1, side - 2, side - 2, fill, "none", opacity=0.85)
        self.box(x, y, cols * side, rows * side)

    def panels(self, x, y, width, height, count, fill, marked=None):
        """An activation, cut into panels of tokens."""
        each = width / count
        for p in range(count):
            self.box(x + p * each + 1, y + 1, each - 2, height - 2, fill, "none",
                     opacity=0.9 if p == marked else 0.3)
        self.box(x, y, width, height)

    def write(self):
        width, height = self.size
        (folder / f"{self.name}.svg").write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
            f'font-family="Inter, Roboto, Helvetica, Arial, sans-serif">\n<title>{self.title}</title>\n'
            f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{ink}"/></marker></defs>\n'
            f'<rect width="{width}" height="{height}" rx="8" fill="#fafbfc"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def some_blocks(rows, cols, count, seed):
    return set(random.Random(seed).sample([(i, j) for i in range(rows) for j in range(cols)], count))


stored = some_blocks(8, 8, 13, 4)

p = Picture("idea", 760, 290, "A mask on a dense matrix, and a matrix of which only the stored blocks exist")
p.text(190, 32, "others: a dense matrix times a mask", 15, weight="bold")
for i in range(8):
    for j in range(8):
        p.box(90 + j * 25 + 1, 50 + i * 25 + 1, 23, 23, blue if (i, j) in stored else faint, "none", opacity=0.85)
p.box(90, 50, 200, 200)
p.text(190, 275, "all of it in memory, in every product", 13)
p.text(570, 32, "tessera: the stored blocks", 15, weight="bold")
for n, (i, j) in enumerate(sorted(stored)):
    p.box(452 + n % 7 * 34, 60 + n // 7 * 34, 30, 30, blue, "none", opacity=0.85)
    p.text(467 + n % 7 * 34, 79 + n // 7 * 34, f"{i},{j}", 11, colour="white")
for n, line in enumerate(["forward, backward, update: their time",
                          "weights, gradients, moments: their memory",
                          "their places are a pattern, shared and cheap to copy"]):
    p.text(570, 165 + 26 * n, line, 13)
p.write()

p = Picture("pattern", 760, 300, "A pattern numbers the stored blocks row by row; a matrix adds their values")
p.text(130, 30, "pattern: which blocks exist", 15, weight="bold")
some = sorted(some_blocks(5, 6, 9, 7))
p.blocks(40, 50, 36, 5, 6, set(some), faint)
for slot, (i, j) in enumerate(some):
    p.text(40 + j * 36 + 18, 50 + i * 36 + 23, str(slot), 13, weight="bold")
p.text(148, 255, "numbers are slots: row by row", 13)
p.text(530, 30, "block_sparse_matrix: a pattern and values", 15, weight="bold")
for slot in range(9):
    x = 300 + slot * 49
    p.box(x, 70, 45, 45, blue, ink, opacity=0.25)
    for k in range(1, 4):
        p.parts.append(f'<path d="M{x + k * 11.25} 70v45M{x} {70 + k * 11.25}h45" stroke="{ink}" stroke-width="0.4"/>')
    p.text(x + 22, 134, f"slot {slot}", 11)
p.text(520, 175, "each block (here 4x4) row by row, one after the other", 13)
p.text(520, 203, "a gradient of the same pattern has the same slots,", 13)
p.text(520, 223, "so an update is one loop over values", 13)
p.write()

p = Picture("panels", 760, 330, "An activation is stored in panels of 64 tokens, each feature by feature")
p.text(215, 30, "activation (features, tokens)", 15, weight="bold")
p.panels(60, 50, 320, 180, 5, green, marked=1)
p.text(220, 252, "tokens → (a token is a column)", 13)
p.parts.append(f'<text transform="translate(42 140) rotate(-90)" font-size="13" text-anchor="middle" fill="{ink}">'
               'features</text>')
p.text(156, 145, "panel 1", 12, colour="white", weight="bold")
p.arrow(385, 105, 415, 105)
p.text(600, 30, "one panel in memory", 15, weight="bold")
for f in range(5):
    y = 55 + f * 34
    p.text(478, y + 18, f"feature {f}", 12, "end")
    for lane in range(8):
        p.box(486 + lane * 31, y, 29, 26, green, "none", opacity=0.35 + 0.07 * (lane % 2))
    p.text(610, y + 18, "64 tokens", 11)
p.text(610, 245, "tokens lie along the SIMD lanes:", 13)
p.text(610, 265, "a product multiplies whole registers", 13)
p.text(610, 285, "by one weight, for any size of block", 13)
p.text(220, 285, "rows of PyTorch or NumPy are the transpose;", 13)
p.text(220, 305, "copies and runs transpose in registers", 13)
p.write()

p = Picture("tiles", 760, 320, "A run is cut into tiles, which threads compute")
p.text(380, 30, "run(ctx, h = relu(up * x), y = x + down * h)", 15, weight="bold")
for n, (name, colour) in enumerate((("x", green), ("h", orange), ("y", blue))):
    y = 60 + n * 70
    p.text(60, y + 28, name, 15, weight="bold")
    p.panels(85, y, 390, 46, 6, colour, marked=2)
for a, b in ((106, 130), (176, 200)):
    p.arrow(247, a, 247, b)
p.box(214, 52, 67, 208, "none", ink, 2)
p.text(247, 282, "a task: a panel", 13)
p.text(247, 300, "through all statements", 13)
for n, line in enumerate(["it stays in the L2 cache from x to y", "threads take tasks in ranges,",
                          "and help each other at the end", "no sum is split between threads:",
                          "the same bits for any number of them"]):
    p.text(620, 90 + 30 * n, line, 13)
p.write()

p = Picture("products", 760, 300, "The three products of a layer, all of which read only stored blocks")
small = some_blocks(5, 4, 7, 11)
turned = {(j, i) for i, j in small}
for n, (title, what) in enumerate((("forward", "y = w * x"), ("backward", "dx = transposed(w) * dy"),
                                   ("gradient", "dw = sampled(dy * transposed(x))"))):
    x = 20 + n * 247
    p.text(x + 115, 32, title, 15, weight="bold")
    p.text(x + 115, 55, what, 13)
    if n == 0:
        p.blocks(x + 10, 85, 22, 5, 4, small)
        p.panels(x + 118, 90, 50, 88, 1, green, 0)
        p.text(x + 183, 145, "→", 18)
        p.panels(x + 195, 80, 36, 110, 1, orange, 0)
    elif n == 1:
        p.blocks(x + 5, 90, 22, 4, 5, turned)
        p.panels(x + 130, 80, 40, 110, 1, orange, 0)
        p.text(x + 183, 145, "→", 18)
        p.panels(x + 195, 90, 36, 88, 1, green, 0)
    else:
        p.panels(x + 5, 80, 36, 110, 1, orange, 0)
        p.panels(x + 50, 95, 88, 36, 1, green, 0)
        p.text(x + 152, 145, "→", 18)
        p.blocks(x + 165, 80, 18, 5, 4, small, blue)
for n, line in enumerate(["SpMM: a block times a register of tokens,", "SpMM with the blocks in the order",
                          "SDDMM: the sum over tokens, at the"]):
    p.text(20 + n * 247 + 115, 225, line, 12)
for n, line in enumerate(["sums stay in registers", "of the transpose", "stored blocks and nowhere else"]):
    p.text(20 + n * 247 + 115, 245, line, 12)
p.write()

p = Picture("supersteps", 780, 250, "Supersteps of the emulated machine: tiles exchange data, wait for each other, and compute")
draw = random.Random(7)
left, top, height = 90, 46, 20
for n, what in enumerate(["tile 0", "tile 1", "tile 2", "…", "tile 1471"]):
    p.text(left - 12, top + n * 34 + 15, what, 13, "end")
at = left
for kind, length, colour in [("exchange X", 110, orange), ("multiply", 190, blue), ("exchange partial sums", 140, orange),
                             ("reduce", 110, blue)]:
    if colour == orange:
        p.box(at, top - 6, 16, 5 * 34 + 4, faint, "none", opacity=0.6)
        at += 20
    for n in range(5):
        if n != 3:
            p.box(at, top + n * 34, length * (1 if n == draw.choice([0, 1, 2, 4]) else draw.uniform(0.6, 0.97)), height, colour, "none", opacity=0.85)
    p.text(at + length / 2, top - 14, kind, 13, colour=colour)
    at += length + 6
p.text(left + 8, top + 5 * 34 + 18, "sync", 12, colour=ink)
p.text(390, 244, "The slowest tile decides how long a step takes; data moves between tiles in exchanges only.", 13)
p.write()
