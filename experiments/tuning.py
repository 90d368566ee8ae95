# SPDX-License-Identifier: BSD-3-Clause
"""Fine-tuning with all weights, by LoRA and by adapters behind layers, on two tasks: a BERT tells which of three texts a
passage is from, a GPT does as it is told with the words of a sentence. About three hours."""

import functools
import json
import os
import pathlib
import random
import statistics

TITLE = "Fine-tuning: all weights, LoRA, and adapters behind layers"
PROGRAM = "pretrain"
SEEDS = 3
METHODS = {  # its arguments, and learning rates, of which the first seed finds the best
    "full": (["--method", "full"], (2e-4, 1e-3)),
    "lora q,v": (["--method", "lora", "--target", "q,v"], (1e-3, 5e-3)),
    "lora all": (["--method", "lora", "--target", "all"], (1e-3, 5e-3)),
    "adapter": (["--method", "adapter", "--width", "32"], (1e-3, 5e-3)),
}
TASKS = {"classes": "accuracy", "instructions": "validation_loss"}
KINDS = ("dense", "sparse")
SENTENCES = {"say the first word": lambda w: w[0], "say the last word": lambda w: w[-1],
             "say it twice": lambda w: " ".join(w + w), "count the words": lambda w: str(len(w)),
             "write it in capitals": lambda w: " ".join(w).upper()}


def data(name):
    return pathlib.Path(os.environ.get("TESSERA_DATA", "data")) / name


def made_of(name, make):
    """A file of the tasks, in the folder of the build."""
    path = pathlib.Path("build/experiments/tuning") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(make())
    return str(path)


def passages(count, seed, words):
    """(the text it is from, the words) of passages of three texts; without the files, of made ones."""
    chosen, texts = random.Random(seed), {}
    for name in ("wikipedia.txt", "tinyshakespeare.txt", "wikitext2_valid.txt"):
        texts[name] = (data(name).read_text(errors="replace") if data(name).exists() else f"{name} has no text here " * 99).split()
    for number in range(count):
        name = list(texts)[number % len(texts)]
        start = chosen.randrange(len(texts[name]) - words)
        yield name.split(".")[0], texts[name][start:start + words]


def classes(count, seed):
    return "".join(f"{name}\t{' '.join(words)}\n" for name, words in passages(count, seed, 24))


def instructions(count, seed):
    asked = list(SENTENCES)
    return json.dumps([{"instruction": asked[number % len(asked)], "input": " ".join(words),
                        "output": SENTENCES[asked[number % len(asked)]](words)}
                       for number, (_, words) in enumerate(passages(count, seed, 4))], indent=0)


def base(task, kind, quick):
    """The command that trains the model."""
    shape = ["--layers", "1", "--hidden", "32", "--heads", "2", "--steps", "8"] if quick else [
        "--layers", "2", "--hidden", "128", "--heads", "4", "--steps", "1500"]
    texts = [str(data(name)) for name in ("wikipedia.txt", "tinyshakespeare.txt", "wikitext2_valid.txt")
             if data(name).exists()]
    model = ["--model", "bert", "--vocabulary", "300" if quick else "4000", "--context", "64", "--mask-share", "0.3"] \
        if task == "classes" else ["--model", "gpt", "--level", "byte", "--context", "128"]
    which = ["--only", "dense", "--lr", "1e-3"] if kind == "dense" else [
        "--only", "sparse", "--density", "0.1", "--block", "16", "--sparse-lr", "2e-3"]
    return ["pretrain", *model, *(["--text", *texts] if texts else []), *shape, *which, "--batch", "4" if quick else "16",
            "--threads", "1", "--quiet", "--out", "FOLDER", "--name", "base"]


def commands(task, kind, method, rate, seed, quick):
    count = (12, 6) if quick else (1200, 900)
    if task == "classes":
        files = ["--train", made_of("train.tsv", functools.partial(classes, count[0], 1)),
                 "--validation", made_of("test.tsv", functools.partial(classes, count[1], 2))]
    else:
        files = ["--instructions", made_of("train.json", functools.partial(instructions, count[0], 1)),
                 "--validation", made_of("test.json", functools.partial(instructions, count[1], 2)),
                 "--template", "brief"]
    return [base(task, kind, quick),
            ["finetune", "--checkpoint", "FOLDER/base", *files, *METHODS[method][0], "--lr", str(rate), "--epochs",
             "1" if quick else "5", "--seed", str(seed), "--threads", "1"]]


def name_of(task, kind, method, rate, seed):
    return f"{task}, {kind}, {method}, {rate:g}, seed {seed}"


def runs(quick):
    """All methods at all rates, by one seed."""
    table = {}
    for task in TASKS:
        for kind in KINDS[:1] if quick else KINDS:
            for method in ["full"] if quick else METHODS:
                for rate in METHODS[method][1][:1 if quick else None]:
                    table[name_of(task, kind, method, rate, 1)] = commands(task, kind, method, rate, 1, quick)
    return table


def measured(task, result):
    return result["epochs"][-1][TASKS[task]]


def best_rate(task, kind, method, results):
    """Of the rates that the first seed has been trained with."""
    made = {rate: measured(task, results[name_of(task, kind, method, rate, 1)]) for rate in METHODS[method][1]
            if name_of(task, kind, method, rate, 1) in results}
    return (max if task == "classes" else min)(made, key=made.get) if made else None


def follow_ups(quick, results):
    """The best rate by the other seeds."""
    table = {}
    for task in TASKS:
        for kind in KINDS:
            for method in METHODS:
                rate = best_rate(task, kind, method, results)
                for seed in range(2, 2 if quick or rate is None else SEEDS + 1):
                    table[name_of(task, kind, method, rate, seed)] = commands(task, kind, method, rate, seed, quick)
    return table


def page(results):
    lines = [
        "Models of 2 layers and 128 features, trained for 1500 steps on `wikipedia.txt`, `tinyshakespeare.txt` and",
        "`wikitext2_valid.txt`: dense, or a tenth of the layers' weights in 16x16 blocks that moved. Then 5 epochs of 1200",
        "examples. *Classes*: a BERT tells which text 24 words are from; the share that is right of 900 others. *Instructions*:",
        "a GPT on bytes does as it is told with four words (says the first or the last, says them twice, counts them, writes",
        "capitals); the loss of a byte of 900 other responses, in nats. Mean and deviation of the seeds, at the better of two",
        "learning rates. LoRA has rank 8, adapters have 32 features. Memory is of gradients and the optimizer's state.",
        "",
        "| task | model | method | trained | memory | result | rate | seeds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for task in TASKS:
        for kind in KINDS:
            for method in METHODS:
                rate = best_rate(task, kind, method, results)
                mine = [results[name_of(task, kind, method, rate, seed)] for seed in range(1, SEEDS + 1)
                        if rate is not None and name_of(task, kind, method, rate, seed) in results]
                if not mine:
                    continue
                values = [measured(task, result) for result in mine]
                scale, unit = (100, " %") if task == "classes" else (1, "")
                spread = f" ± {scale * statistics.stdev(values):.2f}" if len(values) > 1 else ""
                lines.append(
                    f"| {task} | {kind} | {method} | {100 * mine[0]['trained'] / mine[0]['parameters']:.1f} % | "
                    f"{mine[0]['training_bytes'] / 1e6:.1f} MB | "
                    f"{scale * statistics.mean(values):.2f}{spread}{unit} | {rate:g} | {len(values)} |")
    return "\n".join(lines)
