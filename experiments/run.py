#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""An experiment is a table of runs. `./dev experiment NAME` makes the runs whose lines are missing in
docs/experiments/NAME.jsonl, adds a line for each as it ends, and writes the page docs/experiments/NAME.md with its
plots anew. It can be ended at any time, and goes on where it was, also on another machine.

An experiment is a module beside this file:
  TITLE           of its page
  PROGRAM         of examples/programs that makes a run
  runs(quick)     a dict {name of the run: its arguments}; the quick ones are a few seconds each
  page(results)   the text of the page, from {name of the run: what the program wrote}
  plots(results)  if it has any, {file name: figure of Matplotlib}
A program takes --json FILE, to which it adds one line with its result."""

import argparse
import concurrent.futures
import datetime
import importlib
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LONGEST = 20 * 60  # seconds of a run


def names():
    return sorted(file.stem for file in HERE.glob("*.py") if file.stem not in ("run", "figures"))


def machine():
    """What the processor calls itself, and how many of its cores are here."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        fields = dict(map(str.strip, line.split(":", 1)) for line in lines if ":" in line)
        model = f"{fields['model name']}, family {fields['cpu family']} model {fields['model']}"
    except (OSError, KeyError):
        model = platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores"


def read_lines(file):
    """The results so far. A line that was cut off in the middle is left out, and made again."""
    results = {}
    if file.exists():
        for number, line in enumerate(file.read_text().splitlines(), 1):
            try:
                entry = json.loads(line)
                results[entry["run"]] = entry
            except (ValueError, KeyError):
                print(f"{file}:{number} is no result and is left out", file=sys.stderr)
    return results


def make(program, name, arguments):
    """One run of the program: the line it wrote, with its name, machine and day."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "result.json"
        try:
            done = subprocess.run(
                [str(program), *arguments, "--json", str(out)], capture_output=True, text=True, timeout=LONGEST
            )
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{name}: took more than {LONGEST // 60} minutes") from None
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {' '.join([program.name, *arguments])}: {done.stderr.strip()[-500:]}")
        return {
            "run": name,
            "machine": machine(),
            "day": datetime.date.today().isoformat(),
            "result": json.loads(out.read_text()),
        }


def make_missing(experiment, program, file, runs, jobs, minutes):
    results = read_lines(file)
    missing = [name for name in runs if name not in results]
    print(f"{len(runs) - len(missing)} of {len(runs)} runs are in {file}")
    if missing and not program.exists():
        sys.exit(f"{program} is not built: ./dev experiment builds it")
    start, failures = time.monotonic(), []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = iter(missing)
        running = {}

        def begin_more():
            while len(running) < jobs and (not minutes or time.monotonic() - start < 60 * minutes):
                name = next(waiting, None)
                if name is None:
                    return
                running[pool.submit(make, program, name, runs[name])] = name

        begin_more()
        made = 0
        while running:
            ended, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ended:
                name = running.pop(future)
                try:
                    results[name] = future.result()
                except RuntimeError as error:
                    failures.append(str(error))
                    print(error, file=sys.stderr)
                    continue
                with file.open("a") as lines:
                    lines.write(json.dumps(results[name]) + "\n")
                made += 1
                spent = time.monotonic() - start
                left = spent / made * (len(missing) - made)
                print(f"[{made}/{len(missing)}] {name}  {spent / 60:.1f} min, {left / 60:.0f} min left", flush=True)
            begin_more()
    return {name: results[name] for name in runs if name in results}, failures


def write_page(experiment, name, folder, results, all_runs):
    lines = [f"# {experiment.TITLE}", ""]
    lines += [experiment.page({run: entry["result"] for run, entry in results.items()}).strip(), ""]
    machines = sorted({entry["machine"] for entry in results.values()})
    days = sorted({entry["day"] for entry in results.values()})
    lines += [f"`./dev experiment {name}`; {len(results)} of {all_runs} runs have been made, on "
              f"{' and '.join(machines)}, {' to '.join(dict.fromkeys([days[0], days[-1]]))}."]
    if hasattr(experiment, "plots"):
        try:
            import figures
        except ImportError:
            print("plots need Matplotlib: pip install matplotlib", file=sys.stderr)
        else:
            for file, figure in experiment.plots({run: e["result"] for run, e in results.items()}).items():
                figures.save(figure, folder / file)
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n")
    print(f"see {folder / name}.md")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=names())
    parser.add_argument("--quick", action="store_true", help="a few short runs, into build/experiments")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, each of one thread (default 1)")
    parser.add_argument("--minutes", type=float, default=0, help="begin no run after this time")
    parser.add_argument("--page", action="store_true", help="write the page from the lines that are there")
    parser.add_argument("--programs", default="build/release/examples/programs", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.jobs < 1:
        parser.error("--jobs must be at least 1")
    experiment = importlib.import_module(given.name)
    folder = pathlib.Path("build/experiments" if given.quick else "docs/experiments")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{given.name}.jsonl"
    if given.quick:
        file.unlink(missing_ok=True)
    runs, failures = experiment.runs(given.quick), []
    if given.page:
        done = read_lines(file)
        results = {name: done[name] for name in runs if name in done}
    else:
        folder_of = {"generate": "pretrain"}.get(experiment.PROGRAM, experiment.PROGRAM)
        program = pathlib.Path(given.programs) / folder_of / experiment.PROGRAM
        results, failures = make_missing(experiment, program, file, runs, given.jobs, given.minutes)
    if results:
        write_page(experiment, given.name, folder, results, len(runs))
    sys.exit(1 if failures or not results else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("ended; the runs that were complete are kept")
