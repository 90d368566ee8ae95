#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""An experiment is a table of runs. `./dev experiment NAME` makes the runs whose lines are missing in
docs/experiments/NAME.jsonl, adds a line for each as it ends, and writes the page docs/experiments/NAME.md with its
plots anew. It can be ended at any time, and goes on where it was, also on another machine.

An experiment is a module beside this file:
  TITLE           of its page
  PROGRAM         of examples/programs that makes a run: `mnist` or `pretrain`
  runs(quick)     a dict {name of the run: its arguments}; the quick ones are a few seconds each. A run of several
                  programs is a list of commands, each with a program of that folder first; the last one has the
                  result. FOLDER stands for a folder of the others, which are run once for all runs that begin so
  page(results)   the text of the page, from {name of the run: its result}, which is what `mnist --json` writes, the
                  model of `pretrain`'s summary.json with "curve": [step, training loss, validation loss] of all
                  evaluations, the summary.json of `interpolate`, or what `finetune --json` writes
  plots(results)  if it has any, {file name: figure of Matplotlib}
  LONGEST         if it is not 20 minutes: the seconds after which a run is ended
One whose contestants get equal time has contestants(quick), {contestant: arguments of a short run}, too. These are
timed in turns, once, on a machine that does nothing else: the result is the line "seconds of a step", and
runs(quick, seconds) makes of it the number of steps of each. So the runs themselves may be disturbed.
An experiment may have follow_ups(quick, results), with contestants follow_ups(quick, seconds, results): runs that depend
on the results of the others."""

import argparse
import collections
import concurrent.futures
import datetime
import functools
import hashlib
import importlib
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
LONGEST = 20 * 60  # seconds of a run, unless the experiment says otherwise
TIMES = "seconds of a step"  # the line of them
KINDS = {"run": str, "machine": str, "day": str, "result": dict}  # what a line has

children = []  # programs that run
preparing = collections.defaultdict(threading.Lock)  # of a folder that several runs begin with
ending = threading.Event()


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
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            if isinstance(entry, dict) and all(isinstance(entry.get(key), kind) for key, kind in KINDS.items()):
                results[entry["run"]] = entry
            else:
                print(f"{file}:{number} is no result and is left out", file=sys.stderr)
    return results


def lock(file):
    """The file, held until it is closed: two processes would make every run twice."""
    held = file.open("a")
    try:
        import fcntl
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another process is making the runs of {file}")
    except (ImportError, OSError):  # there are no locks here
        pass
    return held


def pretrain_result(folder):
    """Of the one model that a run of pretrain trained."""
    (model,) = json.loads((folder / "run" / "summary.json").read_text()).values()
    points = model.pop("points")  # step, tokens, seconds, training loss, validation loss, learning rate
    first, last = points[0], points[-1]
    model["seconds_per_step"] = (last[2] - first[2]) / max(1, last[0] - first[0])
    model["curve"] = [[p[0], p[3], p[4]] for p in points]
    return model


def line_result(folder):
    """Without the names of checkpoints, which are gone."""
    summary = json.loads((folder / "line" / "summary.json").read_text())
    return {key: value for key, value in summary.items() if key not in ("first", "second")}


# How a program is told where its result goes, and how that is read.
OUTPUT = {
    "mnist": (lambda folder: ["--json", str(folder / "result.json")],
              lambda folder: json.loads((folder / "result.json").read_text())),
    "pretrain": (lambda folder: ["--out", str(folder), "--name", "run", "--quiet"], pretrain_result),
    "finetune": (lambda folder: ["--json", str(folder / "result.json")],
                 lambda folder: json.loads((folder / "result.json").read_text())),
    "interpolate": (lambda folder: ["--out", str(folder / "line")], line_result),
}


def end(*_):
    """What Ctrl-C and SIGTERM do. The threads that wait for the programs remove their folders."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ending.set()
    for child in list(children):
        child.kill()
    raise KeyboardInterrupt


def call(command, longest):
    """Runs a program for so many seconds at most: its exit code, and what it wrote to stderr."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          errors="replace") as child:
        children.append(child)
        try:
            if ending.is_set():  # perhaps after end() went through the list
                child.kill()
            _, errors = child.communicate(timeout=longest)
            return child.returncode, errors
        finally:
            child.kill()
            children.remove(child)


def commands_of(program, arguments):
    """Each with the name of its program first."""
    return arguments if isinstance(arguments[0], list) else [[program.name, *arguments]]


def make(program, longest, shared, name, arguments):
    """One run of the program: the line it wrote, with its name, machine and day. Folders of `shared` are kept for other
    runs."""
    *first, last = commands_of(program, arguments)
    told, read = OUTPUT[last[0]]
    begun = pathlib.Path(shared) / hashlib.sha256(json.dumps(first).encode()).hexdigest()

    def run(command, more):
        whole = [str(program.with_name(command[0])), *(each.replace("FOLDER", str(begun)) for each in command[1:]), *more]
        code, errors = call(whole, longest)
        if code != 0:
            raise RuntimeError(f"{name}: {' '.join(whole)}: {errors.strip()[-500:] or f'exit code {code}'}")

    try:
        with preparing[begun]:
            if not begun.exists():
                try:
                    for command in first:
                        run(command, [])
                except BaseException:
                    shutil.rmtree(begun, ignore_errors=True)
                    raise
        with tempfile.TemporaryDirectory() as folder:
            run(last, told(pathlib.Path(folder)))
            result = read(pathlib.Path(folder))
        if not isinstance(result, dict):
            raise ValueError("the result is not a JSON object")
        return {**entry(name, result), "arguments": portable(arguments)}
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{name}: took more than {longest // 60} minutes") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise RuntimeError(f"{name}: {type(error).__name__}: {error}") from None


def portable(arguments):
    """Arguments as they are on every machine: of a path, its last part."""
    if any(isinstance(each, list) for each in arguments):
        return [portable(each) for each in arguments]
    return [pathlib.Path(each).name if "/" in each else each for each in arguments]


def require_same_arguments(file, done, runs):
    for name, arguments in runs.items():
        then = done.get(name, {}).get("arguments", portable(arguments))  # the first lines have none
        if then != portable(arguments):
            sys.exit(f"{file}: {name} was made with other arguments, {' '.join(map(str, then))}: rename the run, or "
                     "delete its line")


def entry(name, result):
    return {"run": name, "machine": machine(), "day": datetime.date.today().isoformat(), "result": result}


def append(file, line):
    with file.open("ab+") as lines:
        lines.seek(0)
        torn = lines.read()[-1:] not in (b"", b"\n")  # the last line was cut off
        lines.write((b"\n" if torn else b"") + json.dumps(line).encode() + b"\n")


def time_steps(make_one, file, contestants, rounds):
    """The median seconds of a step of each contestant; their short runs take turns."""
    seconds = {name: [] for name in contestants}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # a signal never meets the start of a program
        for number in range(1, rounds + 1):
            for name, arguments in contestants.items():
                try:
                    made = pool.submit(make_one, name, arguments).result()
                except RuntimeError as error:
                    sys.exit(f"step of {error}")
                seconds[name].append(made["result"]["seconds_per_step"])
                print(f"step of {name}, round {number}: {seconds[name][-1]:.4f} s", flush=True)
    line = entry(TIMES, {name: statistics.median(all) for name, all in seconds.items()})
    append(file, line)
    return line


def are_timed(contestants, done):
    seconds = done[TIMES]["result"] if TIMES in done else {}
    return all(isinstance(seconds.get(name), (int, float)) and seconds[name] > 0 for name in contestants)


def make_missing(make_one, file, done, runs, jobs, minutes):
    results = dict(done)
    missing = [name for name in runs if name not in results]
    print(f"{len(runs) - len(missing)} of {len(runs)} runs are in {file}")
    start, failures = time.monotonic(), []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        waiting = iter(missing)
        running = {}

        def begin_more():
            in_time = not minutes or time.monotonic() - start < 60 * minutes
            while len(running) < jobs and in_time and len(failures) < 3:
                name = next(waiting, None)
                if name is None:
                    return
                running[pool.submit(make_one, name, runs[name])] = name

        begin_more()
        made = 0
        while running:
            ended, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ended:
                name = running.pop(future)
                try:
                    line = future.result()
                    append(file, line)
                except (RuntimeError, OSError) as error:
                    failures.append(str(error))
                    print(error, file=sys.stderr)
                    continue
                results[name] = line
                made += 1
                spent = time.monotonic() - start
                left = spent / made * (len(missing) - made)
                print(f"[{made}/{len(missing)}] {name}  {spent / 60:.1f} min, {left / 60:.0f} min left", flush=True)
            begin_more()
    return {name: results[name] for name in runs if name in results}, failures


def write_page(experiment, name, folder, results, made, all_runs):
    lines = [f"# {experiment.TITLE}", ""]
    lines += [experiment.page({run: entry["result"] for run, entry in results.items()}).strip(), ""]
    machines = sorted({entry["machine"] for entry in results.values()})
    days = sorted({entry["day"] for entry in results.values()})
    lines += [f"`./dev experiment {name}`; {made} of {all_runs} runs have been made, on "
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


def main(shared):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=names())
    parser.add_argument("--quick", action="store_true", help="a few short runs, into build/experiments")
    parser.add_argument("--jobs", type=int, default=1,
                        help="runs side by side, of one thread each, in gpt and rates of two (default 1)")
    parser.add_argument("--minutes", type=float, default=0, help="begin no run after this time")
    parser.add_argument("--page", action="store_true", help="write the page from the lines that are there")
    parser.add_argument("--programs", default="build/release/examples/programs", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.jobs < 1:
        parser.error("--jobs must be at least 1")
    if not given.minutes >= 0:  # nor nan
        parser.error("--minutes must be at least 0")
    experiment = importlib.import_module(given.name)
    folder = pathlib.Path("build/experiments" if given.quick else "docs/experiments")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{given.name}.jsonl"
    program = pathlib.Path(given.programs) / experiment.PROGRAM / experiment.PROGRAM
    if not given.page and not program.exists():
        sys.exit(f"{program} is not built: ./dev experiment builds it")
    if not given.page:
        held = lock(file)
        if given.quick:
            held.truncate(0)
    make_one = functools.partial(make, program, getattr(experiment, "LONGEST", LONGEST), shared)
    done, failures = read_lines(file), []
    if not hasattr(experiment, "contestants"):
        runs = experiment.runs(given.quick)
    else:
        contestants = experiment.contestants(given.quick)
        if not are_timed(contestants, done):
            if given.page:
                sys.exit(f"{file} has no line of the step times of all contestants yet")
            done[TIMES] = time_steps(make_one, file, contestants, 1 if given.quick else 5)
        runs = experiment.runs(given.quick, done[TIMES]["result"])
    if given.page:
        results = {name: done[name] for name in runs if name in done}
    else:
        require_same_arguments(file, done, runs)
        results, failures = make_missing(make_one, file, done, runs, given.jobs, given.minutes)
    if hasattr(experiment, "follow_ups") and len(results) == len(runs):
        first = {name: entry["result"] for name, entry in results.items()}
        timed = [done[TIMES]["result"]] if TIMES in done else []
        runs = {**runs, **experiment.follow_ups(given.quick, *timed, first)}
        if given.page:
            results = {name: done[name] for name in runs if name in done}
        elif not failures:
            require_same_arguments(file, done, runs)
            results, failures = make_missing(make_one, file, {**done, **results}, runs, given.jobs, given.minutes)
    times = {TIMES: done[TIMES]} if TIMES in done else {}
    if results:
        write_page(experiment, given.name, folder, {**times, **results}, len(results), len(runs))
    elif not failures:
        sys.exit(f"{file} has no runs yet, so there is no page")
    sys.exit(1 if failures or not results else 0)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)
    try:
        with tempfile.TemporaryDirectory() as shared:
            main(shared)
    except KeyboardInterrupt:
        sys.exit("ended; the runs that were complete are kept")
