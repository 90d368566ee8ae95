# SPDX-License-Identifier: BSD-3-Clause
"""What `bench --results` or `--json` wrote, to be drawn by plot.py."""

import collections
import json
import sys

BLOCKS = ["16x16", "8x8", "4x4", "1x1"]


class Results:
    """The records of a folder, and the machine of the newest file."""

    def __init__(self, folder):
        reports = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        if not reports:
            sys.exit(f"no JSON files in {folder}: `bench --results {folder}` writes them")
        reports.sort(key=lambda report: report["machine"]["date"])
        for report in reports:
            for r in report["records"]:
                r["run"] = report["machine"]["date"]
        self.machine = reports[-1]["machine"]
        names = "question contestant operation m k n density block element threads".split()
        newest = {tuple(r[name] for name in names): r for report in reports for r in report["records"]}
        self.records = list(newest.values())

    def find(self, **wanted):
        shape = wanted.pop("shape", None)
        return [
            r
            for r in self.records
            if all(r[name] == value for name, value in wanted.items())
            and (shape is None or (r["m"], r["k"], r["n"]) == shape)
        ]

    def one(self, **wanted):
        found = self.find(**wanted)
        return found[0] if found else None

    def about(self):
        m = self.machine
        return (
            f"{m['name']}, {m['instruction_set']}, {m['compiler']}, tessera {m['tessera']}, "
            f"{m['date'][:10]}; peak {m['measured_peaks']['float']['1 thread']:.0f} GFLOP/s in float with one thread"
        )


def is_ours(record):
    return record["contestant"].startswith("tessera")


Step = collections.namedtuple("Step", "density block parts whole")  # parts by name, in ns like the whole


def parts_of_steps(results, model, element):
    """The parts of a model's steps in one precision, each step beside the whole of the same run, and their shape
    (hidden, layers, tokens); None if they were not measured."""
    records = results.find(question="parts", operation=f"{model} parts", element=element, threads=1)
    if not records:
        return None
    shape = max((r["m"], r["k"], r["n"]) for r in records)
    steps = []
    for density, block in [(1, "16x16")] + [(0.1, block) for block in BLOCKS]:
        parts = [r for r in records if (r["m"], r["k"], r["n"], r["density"], r["block"]) == (*shape, density, block)]
        newest = max((r["run"] for r in parts), default=None)
        parts = {r["contestant"].removeprefix("tessera "): r["time_ns"] for r in parts if r["run"] == newest}
        whole = results.one(question="step", contestant="tessera", operation=model, element=element, shape=shape,
                            density=density, block=block, threads=1, run=newest)  # fmt: skip
        step = Step(density, block, parts, whole and whole["time_ns"])
        require_sum(step, f"{model} in {element}, {100 * density:g} % in blocks of {block}")
        steps.append(step)
    return steps, shape


def require_sum(step, name, tolerance=0.15):
    """Parts that do not add up to the whole step are those of another one, or not all."""
    total = sum(step.parts.values())
    assert not step.whole or abs(total / step.whole - 1) <= tolerance, (
        f"{name}: the parts add up to {total * 1e-6:.1f} ms, but the whole step of the same run takes "
        f"{step.whole * 1e-6:.1f} ms; they should agree within {100 * tolerance:g} %"
    )
