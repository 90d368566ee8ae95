#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a step that plot.py draws are those of one precision and one run, and add up to the whole step."""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "benchmarks"))
from results import Results, parts_of_steps


def record(question, contestant, operation, element, time_ns, block="16x16", density=1):
    return dict(question=question, contestant=contestant, operation=operation, element=element, time_ns=time_ns,
                block=block, density=density, m=768, k=1, n=4096, threads=1)  # fmt: skip


def bert(element, whole, first, second):
    return [
        record("step", "tessera", "bert", element, whole),
        record("parts", "tessera products forward", "bert parts", element, first),
        record("parts", "tessera norms", "bert parts", element, second),
    ]


def results_of(*reports):
    with tempfile.TemporaryDirectory() as folder:
        for i, (date, records) in enumerate(reports):
            text = json.dumps({"machine": {"date": date}, "records": records})
            (pathlib.Path(folder) / f"{i}.json").write_text(text)
        return Results(pathlib.Path(folder))


class Parts(unittest.TestCase):
    def test_precisions_are_not_mixed(self):
        both = results_of(("2026-01-01", bert("float", 100, 60, 50) + bert("bfloat16", 50, 30, 22)))
        for element, whole, parts in (("float", 100, [60, 50]), ("bfloat16", 50, [30, 22])):
            steps, shape = parts_of_steps(both, "bert", element)
            self.assertEqual(shape, (768, 1, 4096))
            self.assertEqual(steps[0].whole, whole)
            self.assertEqual(list(steps[0].parts.values()), parts)

    def test_parts_of_another_step_are_refused(self):
        for first, second in ((30, 22), (80, 40), (60, 0)):
            with self.assertRaisesRegex(AssertionError, "bert in float, 100 % in blocks of 16x16: the parts add up to"):
                parts_of_steps(results_of(("2026-01-01", bert("float", 100, first, second))), "bert", "float")

    def test_a_whole_of_another_run_is_no_whole(self):
        earlier, later = bert("float", 100, 60, 40), bert("float", 200, 100, 90)[1:]
        steps, _ = parts_of_steps(results_of(("2026-01-01", earlier), ("2026-01-02", later)), "bert", "float")
        self.assertIsNone(steps[0].whole)
        self.assertEqual(list(steps[0].parts.values()), [100, 90])

    def test_without_parts_there_is_nothing(self):
        self.assertIsNone(parts_of_steps(results_of(("2026-01-01", [])), "bert", "float"))


if __name__ == "__main__":
    unittest.main()
