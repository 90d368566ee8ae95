#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The figures of `bench decoding --json FILE` as a Markdown table: table.py FILE. A cell has one thread / several."""

import json
import pathlib
import sys

COLUMNS = {  # by the name of what stands beside
    "transformers": "times as fast as transformers",
    "llama.cpp": "as llama.cpp",
    "reading its bytes": "as reading its bytes",
    "its bytes and FLOPs": "share of what bytes and FLOPs allow",
    "100 tokens before it": "as with 100 tokens before it",
}
MODELS = {"gpt2": "GPT-2 small", "llama": "LLaMA"}


def name(r):
    kind, pass_ = r["operation"].split()
    what = f"prompt of {r['n']} tokens" if pass_ == "prefill" else f"{r['n']} × a token, {r['k']} before it"
    stored = "dense" if r["density"] == 1 else f"{100 * r['density']:g} %"
    return f"{MODELS[kind]}, {what}, {r['element']}, {stored}"


def cell(values):
    return " / ".join(f"{v:.2f}" if v is not None else "–" for v in values)


def main():
    records = json.loads(pathlib.Path(sys.argv[1]).read_text())["records"]
    rows = {}
    for r in records:
        if r["contestant"] == "tessera":
            rows.setdefault(name(r), {})[r["threads"]] = r
    threads = sorted({r["threads"] for r in records})
    print("| | " + " | ".join([*COLUMNS.values(), "ms", "unsteady"]) + " |")
    print("| --- " * (len(COLUMNS) + 3) + "|")
    for row, by_threads in rows.items():
        found = [by_threads.get(t) for t in threads]
        cells = []
        for column in COLUMNS:
            beside = [{c["with"]: c["times"] for c in r.get("beside", [])} if r else {} for r in found]
            values = [b.get(column) for b in beside]
            cells.append(cell(values) if any(v is not None for v in values) else "")
        cells.append(cell([r and r["time_ns"] * 1e-6 for r in found]))
        cells.append(" / ".join("yes" if r and r["unsteady"] else "no" for r in found))
        print(f"| {row} | " + " | ".join(cells) + " |")


main()
