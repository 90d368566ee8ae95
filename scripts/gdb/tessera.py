# SPDX-License-Identifier: BSD-3-Clause
"""Shows tensors and patterns in gdb: `source tessera.py`, then `print w`, `print x`, `print w.pattern_`.

A matrix shows its size, its density and its stored blocks, an activation its features one by one, a vector its
numbers, a pattern its blocks as text. `set print elements` limits how much is shown.
"""
import re
import struct

import gdb
import gdb.printing

PANEL_TOKENS = 64
MOST_TOKENS = 8  # of a feature
MOST_LINES = 32  # of a pattern


def number(value):
    """An element as a number of Python."""
    kind = value.type.strip_typedefs()
    if kind.code != gdb.TYPE_CODE_STRUCT:
        return float(value)
    bits = int(value[kind.fields()[0]]) & 0xFFFF
    if "bfloat16" in str(kind):
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def text_of(values):
    return "[" + ", ".join(f"{value:g}" for value in values) + "]"


def element_name(kind):
    return re.sub(r"^tessera::(\w+::)?", "", str(kind.strip_typedefs()))


def items(vector):
    """Address and size of a std::vector."""
    implementation = vector["_M_impl"] if any(f.name == "_M_impl" for f in vector.type.fields()) else None
    if implementation is None:
        implementation = vector[vector.type.fields()[0]]["_M_impl"]
    start, finish = implementation["_M_start"], implementation["_M_finish"]
    return start, int(finish - start)


class Pattern:
    """The blocks of a gdb.Value of tessera::pattern."""

    def __init__(self, value):
        pointer = value["data_"]["_M_ptr"]
        self.rows = self.cols = self.stored = 0
        self.dense = True
        if int(pointer) == 0:
            return
        data = pointer.dereference()
        self.rows, self.cols, self.stored = (int(data[name]) for name in ("block_rows", "block_cols", "stored"))
        self.starts, count = items(data["row_start"])
        self.columns, _ = items(data["cols"])
        self.dense = count == 0

    def blocks(self):
        """Row and column of each stored block, by slot."""
        for i in range(self.rows):
            columns = range(self.cols) if self.dense else (
                int(self.columns[slot]) for slot in range(int(self.starts[i]), int(self.starts[i + 1])))
            for j in columns:
                yield i, j

    def summary(self):
        return f"{self.stored} of {self.rows} x {self.cols} blocks"


class PatternPrinter:
    def __init__(self, value):
        self.pattern = Pattern(value)

    def to_string(self):
        lines = {}
        for i, j in self.pattern.blocks():
            if i >= MOST_LINES:
                break
            lines.setdefault(i, [" "] * self.pattern.cols)[j] = "#"
        rows = ("".join(lines.get(i, [])).rstrip() for i in range(min(self.pattern.rows, MOST_LINES)))
        more = "\n…" if self.pattern.rows > MOST_LINES else ""
        return "pattern, " + self.pattern.summary() + "".join("\n" + row for row in rows) + more


class MatrixPrinter:
    def __init__(self, value):
        self.value = value
        self.pattern = Pattern(value["pattern_"])
        block = value.type.strip_typedefs().template_argument(1)
        self.height, self.width = (int(block.template_argument(n)) for n in (0, 1))

    def to_string(self):
        element = element_name(self.value.type.strip_typedefs().template_argument(0))
        return (f"matrix of {element}, {int(self.value['rows_'])} x {int(self.value['cols_'])} in blocks of "
                f"{self.height} x {self.width}, {self.pattern.summary()}")

    def children(self):
        data = self.value["values_"]["data_"]
        for slot, (i, j) in enumerate(self.pattern.blocks()):
            first = slot * self.height * self.width
            rows = (text_of(number(data[first + r * self.width + c]) for c in range(self.width))
                    for r in range(self.height))
            yield f"block ({i}, {j})", "[" + ", ".join(rows) + "]"


class ActivationPrinter:
    def __init__(self, value):
        self.value = value
        self.features, self.tokens = int(value["features_"]), int(value["tokens_"])

    def to_string(self):
        element = element_name(self.value.type.strip_typedefs().template_argument(0))
        return f"activation of {element}, {self.features} features x {self.tokens} tokens"

    def children(self):
        data = self.value["values_"]["data_"]
        if int(data) == 0:
            return
        lane = 4 // data.dereference().type.sizeof or 1  # features that share a lane
        stride = -(-self.features // 16) * 16 * PANEL_TOKENS
        for f in range(self.features):
            def at(token):
                panel, inside = divmod(token, PANEL_TOKENS)
                return number(data[panel * stride + (f // lane * PANEL_TOKENS + inside) * lane + f % lane])
            shown = text_of(at(token) for token in range(min(self.tokens, MOST_TOKENS)))
            yield f"feature {f}", shown if self.tokens <= MOST_TOKENS else shown[:-1] + ", …]"


class VectorPrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        kind = self.value.type.strip_typedefs()
        axis = "feature" if "features" in str(kind.template_argument(1)) or int(kind.template_argument(1)) == 1 \
            else "token"
        return f"a number for each of {int(self.value['size_'])} {axis}s, {element_name(kind.template_argument(0))}"

    def children(self):
        for i in range(int(self.value["size_"])):
            yield f"[{i}]", f"{number(self.value['values_']['data_'][i]):g}"


def printers():
    collection = gdb.printing.RegexpCollectionPrettyPrinter("tessera")
    of = r"^tessera::(\w+::)?"
    collection.add_printer("pattern", of + "pattern$", PatternPrinter)
    collection.add_printer("matrix", of + "block_sparse_matrix<", MatrixPrinter)
    collection.add_printer("activation", of + "panel_matrix<", ActivationPrinter)
    collection.add_printer("vector", of + "axis_vector<", VectorPrinter)
    return collection


gdb.printing.register_pretty_printer(None, printers(), replace=True)
