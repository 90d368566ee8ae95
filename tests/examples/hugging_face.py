# SPDX-License-Identifier: BSD-3-Clause
"""Whether transformers reads what `freeze --format hf` writes: its models go on with a text as `generate` does, and fill
masks with the probabilities of `fill_mask`.

    hugging_face.py FOLDER_OF_PROGRAMS      exit code 77 without PyTorch and transformers, or without the models
"""

import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

transformers.logging.set_verbosity_error()
PROGRAMS = pathlib.Path(sys.argv[1])
PROMPT = "the square of 12"
TEXT = "".join(f"the square of {i} is {i * i}, and the cube of {i} is {i ** 3}.\n" for i in range(300))
SHAPE = "--layers 2 --hidden 64 --heads 4 --context 32 --batch 8 --steps 60 --block 4 --quiet"


def call(program, *arguments):
    run = subprocess.run([PROGRAMS / program, *map(str, arguments)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def frozen(here, name, *options):
    """A small model as pretrain leaves it, and as a folder of Hugging Face."""
    call("pretrain", *SHAPE.split(), "--text", here / "text.txt", "--out", here, "--name", name, *options)
    call("freeze", "--checkpoint", here / name, "--format", "hf", "--out", here / f"hf-{name}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(here / f"hf-{name}")
    return here / name, here / f"hf-{name}", tokenizer


def check_decoder(here, name, *options):
    run, folder, tokenizer = frozen(here, name, *options)
    model, told = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()), told
    ids = tokenizer(PROMPT, return_tensors="pt")
    assert tokenizer.decode(ids["input_ids"][0]) == PROMPT
    added = 24 - ids["input_ids"].shape[1]
    theirs = model.generate(**ids, do_sample=False, max_new_tokens=added, pad_token_id=0)
    ours = call("generate", "--checkpoint", run, "--prompt", PROMPT, "--temperature", 0, "--tokens", added)
    theirs = tokenizer.decode(theirs[0])
    assert ours.rstrip("\n") == theirs.rstrip("\n"), f"{name}: {ours!r} by generate, {theirs!r} by transformers"
    print(f"{name}: {theirs!r} by both")


def check_encoder(here, name, *options):
    run, folder, tokenizer = frozen(here, name, "--model", "bert", *options)
    model, told = transformers.AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()), told
    printed = call("fill_mask", "--checkpoint", run, "--text", "the square of [MASK] is", "--top", 5)
    ours = {word: int(share) for word, share in re.findall(r"(\S+) (\d+) %", printed)}
    assert len(ours) == 5, printed
    ids = tokenizer("the square of [MASK] is", return_tensors="pt")
    at = ids["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    with torch.no_grad():
        shares = torch.softmax(model(**ids).logits[0, at], 0)
    for word, share in ours.items():
        theirs = 100 * shares[tokenizer.convert_tokens_to_ids(word)].item()
        assert abs(theirs - share) < 0.51, f"{name}: {word} is {share} % by fill_mask, {theirs} % by transformers"
    print(f"{name}: {ours} by both")


with tempfile.TemporaryDirectory() as scratch:
    here = pathlib.Path(scratch)
    (here / "text.txt").write_text(TEXT)
    check_decoder(here, "characters")
    check_decoder(here, "bytes", "--level", "byte", "--only", "sparse")
    check_decoder(here, "pieces", "--level", "bpe", "--vocabulary", "300")
    check_decoder(here, "words of a decoder", "--level", "wordpiece", "--vocabulary", "300")
    check_decoder(here, "a LLaMA", "--model", "llama", "--key-heads", 2, "--only", "dense")
    check_encoder(here, "words", "--vocabulary", "300")
