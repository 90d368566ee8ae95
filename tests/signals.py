#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Ends pretrain by signals at random moments, resumes it, and compares the end with that of an unbroken run.

    tests/signals.py build/release/examples/programs/pretrain [--signals 40] [--seed 1]

Each run gets a few signals (TERM, INT, both, KILL), each in another start of the program, and is then resumed
to its end, with one or two threads. Wrong are: a program that is still there a minute after TERM or INT, a run
that cannot be resumed, another bit in the last checkpoint, a file that was left behind. freeze is interrupted
in the same way, alone and two at a time: what it writes is whole or absent.
"""
import argparse
import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LONGEST = 60  # seconds from a signal to the end of a program
COMMON = ("--layers 2 --hidden 32 --heads 2 --context 16 --batch 4 --steps 60 --updates 19 --density 0.25 "
          "--eval-every 7 --checkpoint-every 5 --quiet").split()
RUNS = {
    "gpt": [],
    "rigl": ["--policy", "rigl", "--prune-fraction", "0.3", "--only", "sparse", "--frames", "5"],
    "snfs": ["--policy", "snfs", "--only", "sparse"],
    "dropout": ["--only", "sparse", "--dropout", "0.1", "--policy", "deep-r", "--prune-fraction", "0.3"],
    "bfloat16": ["--only", "sparse", "--precision", "bfloat16", "--block", "16", "--hidden", "64"],
    "rnn": ["--model", "rnn", "--only", "sparse"],
    "bert": ["--model", "bert", "--only", "sparse", "--vocabulary", "300"],
}


def tensors_of(path):
    """The header without metadata, and the bytes of all tensors."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[8 + size:][slice(*t["data_offsets"])])
            for name, t in header.items()}


def last_tensors(run):
    return {variant.name: tensors_of(max(variant.glob("step-*[0-9]")) / "tensors.safetensors")
            for variant in sorted(run.iterdir()) if variant.is_dir()}


class Trials:
    def __init__(self, programs, work, chance):
        self.programs, self.work, self.chance = programs, work, chance
        self.signals, self.faults = {}, []
        self.text = work / "text"
        self.text.write_text("".join(f"of {i} the square is {i * i}.\n\n" for i in range(500)))

    def fault(self, what, output=b""):
        self.faults.append(what)
        print("WRONG:", what, output.decode(errors="replace")[-2000:], flush=True)

    def start(self, program, *arguments):
        return subprocess.Popen([str(self.programs / program), *map(str, arguments)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def interrupt(self, started, within):
        """Sends one of the signals at a random moment; returns the exit code, negative for a signal."""
        time.sleep(self.chance.uniform(0, within))
        name, sent = self.chance.choice([("TERM", [signal.SIGTERM]), ("INT", [signal.SIGINT]),
                                         ("TERM, TERM", [signal.SIGTERM] * 2),
                                         ("INT, TERM", [signal.SIGINT, signal.SIGTERM]),
                                         ("KILL", [signal.SIGKILL])])
        if started.poll() is None:
            self.signals[name] = self.signals.get(name, 0) + 1
        for one in sent:
            started.send_signal(one)
            time.sleep(self.chance.choice([0, 0, 0.01]))
        try:
            output, _ = started.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            started.kill()
            output, _ = started.communicate()
            self.fault(f"{started.args} is there {LONGEST} s after {name}", output)
        allowed = {0} | {-s for s in sent} | {128 + s for s in sent}
        if started.returncode not in allowed:
            self.fault(f"{started.args} ended with {started.returncode} after {name}", output)
        return started.returncode

    def train(self, name, folder):
        return ["--text", self.text, "--out", folder, "--name", name, *COMMON, *RUNS[name]]

    def reference(self, name):
        began = time.time()
        whole = self.start("pretrain", *self.train(name, self.work / "whole"))
        output, _ = whole.communicate()
        if whole.returncode != 0:
            sys.exit(output.decode())
        return time.time() - began, last_tensors(self.work / "whole" / name)

    def trial(self, name, took, expected):
        folder = self.work / "parts"
        run = folder / name
        shutil.rmtree(folder, ignore_errors=True)
        for _ in range(self.chance.randint(1, 4)):
            threads = ["--threads", self.chance.choice([1, 2])]
            begun = (run / "settings.json").exists()
            if not begun:
                shutil.rmtree(run, ignore_errors=True)
            arguments = ["--resume", run] if begun else self.train(name, folder)
            self.interrupt(self.start("pretrain", *arguments, *threads), took)
        if not (run / "settings.json").exists():
            return
        last = self.start("pretrain", "--resume", run)
        output, _ = last.communicate()
        if last.returncode != 0:
            return self.fault(f"{name} cannot be resumed", output)
        if last_tensors(run) != expected:
            self.fault(f"{name} has other bits at its end")
        left = [str(p) for p in run.rglob("*") if re.search(r"\.(partial|replaced)", p.name)]
        if left:
            self.fault(f"{name} leaves {left}")

    def freeze(self, name):
        out = self.work / "frozen"
        shutil.rmtree(out, ignore_errors=True)
        both = [self.start("freeze", "--checkpoint", self.work / "whole" / name, "--out", out)
                for _ in range(self.chance.choice([1, 2]))]
        for one in both:
            self.interrupt(one, 0.1)
        if out.exists() and {p.name for p in out.iterdir()} != {"state.json", "tensors.safetensors"}:
            self.fault(f"freeze leaves half of a folder: {sorted(out.iterdir())}")
        if out.exists():
            shutil.rmtree(out)
        last = self.start("freeze", "--checkpoint", self.work / "whole" / name, "--out", out)
        output, _ = last.communicate()
        left = [p.name for p in self.work.iterdir() if ".partial" in p.name]
        if last.returncode != 0 or left:
            self.fault(f"freeze after a signal: {left}", output)


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("programs", type=pathlib.Path)
    asked.add_argument("--signals", type=int, default=40)
    asked.add_argument("--seed", type=int, default=1)
    asked = asked.parse_args()
    with tempfile.TemporaryDirectory() as work:
        trials = Trials(asked.programs.resolve(), pathlib.Path(work), random.Random(asked.seed))
        references = {}
        while sum(trials.signals.values()) < asked.signals:
            name = trials.chance.choice(list(RUNS))
            if name not in references:
                references[name] = trials.reference(name)
            if trials.chance.random() < 0.2:
                trials.freeze(name)
            else:
                trials.trial(name, *references[name])
    print(f"{sum(trials.signals.values())} signals {trials.signals}: {len(trials.faults)} faults")
    return 1 if trials.faults else 0


if __name__ == "__main__":
    sys.exit(main())
