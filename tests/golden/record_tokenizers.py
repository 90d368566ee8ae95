#!/usr/bin/env python3
"""Records what the tokenizers of Hugging Face make of some texts, in tests/golden/tokenizers.json.

    pip install transformers==5.24.0 tokenizers==0.23.3
    TESSERA_DATA=… python3 tests/golden/record_tokenizers.py

Small vocabularies are recorded with their tokens, files that are written in unusual ways with what is read from
them; of the vocabularies of BERT and GPT-2, which TESSERA_DATA holds, the tokens of the same texts and a hash over
those of a whole book; of each character of Unicode, what they take it for.
"""
import json
import os
import tempfile

import tokenizers
from tokenizers.normalizers import BertNormalizer
from transformers import BertTokenizerFast, GPT2Tokenizer, GPT2TokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.environ["TESSERA_DATA"]
TEXTS = [
    "",
    " ",
    "The quick brown fox jumps over the lazy dog.",
    "  leading and   many    blanks \n\n\n new\tlines\r\n and tabs\t\t ",
    "It's 1,234.56 dollars -- don't you'll we've they're I'm he'd 'tis 'S",
    "Café naïve ÀÉÎÕÜ ångström Żółć İstanbul ǅ ẞ ß ŉ ſ K Å Ω",
    "中文字符和 English mixed 日本語テキスト 한국어 문장",
    "emoji 😀👍🏽 and ZWJ 👩‍👩‍👧 flags 🇩🇪",
    "control\x00\x01\x07 zero\u200bwidth \u00ad soft\ufeff bom \x0b\x0c \x85 nel",
    "nbsp\u00a0thin\u2009ideographic\u3000line\u2028para\u2029end",
    "math ∑∫≠ ½ ² Ⅷ ٣ १ 𝟙 𝒳 punctuation «quoted» „low“ ‚x‘ … – — ¿qué? 、。！",
    "combining e\u0301 o\u0308\u0301 a\u0323\u0302 \u0301alone",
    "भारत का संविधान ไทยภาษา العَرَبِيَّة עִבְרִית",
    "[CLS] a [MASK] token [SEP] and [mask] [MASK][PAD]x [ MASK ]",
    "one<|endoftext|>two <|endoftext|> <|ENDOFTEXT|>",
    "a" * 99 + " " + "b" * 100 + " " + "c" * 101 + " " + "ab" * 60,
    "under_score snake_case CamelCase http://example.com/a?b=c&d=1#e x@y.z",
    "\n\n  def f(x):\n      return x**2  # comment\n",
    "'''''''' \"\" ``quoted'' ---- ==== ++ 'll 've   's",
]


def hash_of(tokens):
    """FNV-1a over the tokens as 32-bit little-endian numbers."""
    h = 0xCBF29CE484222325
    for t in tokens:
        for byte in int(t).to_bytes(4, "little"):
            h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def bert(path, lower):
    return BertTokenizerFast(vocab=path, do_lower_case=lower)


def tokens_of(tokenizer, text):
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


WORDS = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\n##s\n"
VOCABULARIES = {
    "empty lines": WORDS.replace("the\n", "the\n\n\n"),
    "empty lines at the end": WORDS + "\n\n",
    "CRLF": WORDS.replace("\n", "\r\n"),
    "CR within a line": WORDS.replace("cat", "ca\rcat"),
    "no line break at the end": WORDS[:-1],
    "a byte order mark": "\ufeff" + WORDS,
    "a piece twice": WORDS + "cat\n",
    "[UNK] twice": WORDS + "[UNK]\n",
    "no [UNK]": WORDS.replace("[UNK]\n", ""),
    "no [MASK]": WORDS.replace("[MASK]\n", ""),
    "no special tokens": "the\ncat\n##s\n",
    "a blank behind a piece": WORDS.replace("cat", "cat "),
    "a blank before a piece": WORDS.replace("cat", " cat"),
    "other blanks": WORDS.replace("cat", "cat\t\x0c\u3000\x85"),
    "a blank within a piece": WORDS.replace("cat\n", "cat\nthe\x0bcat\n"),
}
WORD_TEXTS = ["the cats", "the [MASK] cat[PAD]", "a dog"]

LETTERS = {c: i for i, c in enumerate("\u0120,aeht")}
PAIRS = {**LETTERS, "at": 6, "th": 7, "he": 8, "the": 9}
MERGES = "#version: 0.2\na t\nt h\nh e\nt he\n"
PAIR_FILES = {
    "no end of a text": (PAIRS, MERGES),
    "an end of a text": ({**PAIRS, "<|endoftext|>": 10}, MERGES),
    "the end of a text first": ({"<|endoftext|>": 0, **{k: v + 1 for k, v in PAIRS.items()}}, MERGES),
    "no version": (PAIRS, MERGES.split("\n", 1)[1]),
    "CRLF": (PAIRS, MERGES.replace("\n", "\r\n")),
    "no line break at the end": (PAIRS, MERGES[:-1]),
    "no merges": (PAIRS, ""),
    "numbers left out": ({**PAIRS, "the": 40}, MERGES),
    "numbers left out before the end of a text": ({**PAIRS, "<|endoftext|>": 40}, MERGES),
    "a merge twice": (PAIRS, MERGES + "a t\n"),
}
PAIR_TEXTS = ["the hat, that heath", "aththe<|endoftext|>the the", "tttththhehee"]


def read_from_files(folder):
    """What is read from each of these files; None for a text that the reference refuses."""

    def tokens(tokenizer, text):
        try:
            return tokens_of(tokenizer, text)
        except Exception:
            return None

    words, pairs = [], []
    path = os.path.join(folder, "vocab.txt")
    for name, text in VOCABULARIES.items():
        open(path, "wb").write(text.encode())
        t = bert(path, True)
        specials = [t.pad_token_id, t.unk_token_id, t.cls_token_id, t.sep_token_id, t.mask_token_id]
        words.append({"name": name, "text": text, "specials": specials, "tokens": [tokens(t, x) for x in WORD_TEXTS]})
    for name, (vocabulary, merges) in PAIR_FILES.items():
        json.dump(vocabulary, open(os.path.join(folder, "vocab.json"), "w"))
        open(os.path.join(folder, "merges.txt"), "wb").write(merges.encode())
        t = GPT2Tokenizer.from_pretrained(folder)
        pairs.append({"name": name, "vocabulary": json.dumps(vocabulary), "merges": merges, "end": t.eos_token_id,
                      "tokens": [tokens(t, x) for x in PAIR_TEXTS]})
    return {"word_texts": WORD_TEXTS, "words": words, "pair_texts": PAIR_TEXTS, "pairs": pairs}


# Characters are taken a block at a time: all of the first three planes, and every 17th of those that have few or none.
BLOCKS = [range(first, first + 0x1000) for first in range(0, 0x30000, 0x1000)]
BLOCKS += [range(first, first + 0x10000, 17) for first in range(0x30000, 0x110000, 0x10000)]


def characters_of(block):
    return [chr(c) for c in block if not 0xD800 <= c <= 0xDFFF]


def characters(folder):
    """Hashes over the tokens of each character between two letters: which characters BERT leaves out, takes for a blank,
    sets apart or changes, and which GPT-2 takes for letters, for numbers and for neither."""
    fold = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=True)
    everything = [c for block in BLOCKS for c in characters_of(block)]
    results = sorted({r for c in everything for r in fold.normalize_str(c) if fold.normalize_str(c) != c and not r.isspace()})
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b", "ab", "##ab"]
    pieces += [p for r in results if r not in "ab" for p in (r, "##" + r)]
    path = os.path.join(folder, "vocab.txt")
    open(path, "w", encoding="utf-8").write("\n".join(pieces) + "\n")
    golden = {"blocks": [[b.start, b.stop, b.step] for b in BLOCKS], "results": "".join(results)}
    for name, lower in (("lower", True), ("kept", False)):
        tokenizer = bert(path, lower)
        golden[name] = [hash_of(tokens_of(tokenizer, " ".join(f"a{c}b" for c in characters_of(b)))) for b in BLOCKS]
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = [(x, y) for x in "a1!" for y in alphabet]
    vocabulary = {p: i for i, p in enumerate(alphabet + [x + y for x, y in merges] + ["<|endoftext|>"])}
    json.dump(vocabulary, open(os.path.join(folder, "vocab.json"), "w"))
    open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8").write("".join(f"{x} {y}\n" for x, y in merges))
    pairs = GPT2TokenizerFast(vocab=os.path.join(folder, "vocab.json"), merges=os.path.join(folder, "merges.txt"))
    golden["pairs"] = [hash_of(tokens_of(pairs, "".join(f"a{c}1{c}!{c}" for c in characters_of(b)))) for b in BLOCKS]
    return golden


def main():
    book = open(os.path.join(DATA, "wikipedia.txt"), encoding="utf-8").read()
    sample = book[:200000]
    golden = {"texts": TEXTS}

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    full = open(os.path.join(DATA, "bert/vocab.txt"), encoding="utf-8").read().split("\n")[:-1]
    used = set()
    big = bert(os.path.join(DATA, "bert/vocab.txt"), True)
    for text in TEXTS:
        used.update(tokens_of(big, text))
    pieces = words + [p for i, p in enumerate(full) if i in used and p not in words]
    pieces += ["Café", "The", "##É", "À"]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "vocab.txt")
        open(path, "w", encoding="utf-8").write("\n".join(pieces) + "\n")
        golden["wordpiece"] = {
            "pieces": pieces,
            "lower": [tokens_of(bert(path, True), t) for t in TEXTS],
            "kept": [tokens_of(bert(path, False), t) for t in TEXTS],
        }
        trained = tokenizers.ByteLevelBPETokenizer()
        text_file = os.path.join(folder, "text.txt")
        # Without line breaks: the trainer reads a file line by line.
        open(text_file, "w", encoding="utf-8").write(sample[:60000].replace("\n", " "))
        trained.train([text_file], vocab_size=600, min_frequency=2, show_progress=False)
        trained.save_model(folder)
        merges = [l.split(" ") for l in open(os.path.join(folder, "merges.txt"), encoding="utf-8").read().split("\n")[1:] if l]
        golden["trained"] = {"characters": 60000, "size": 600, "merges": merges}
        vocabulary = json.load(open(os.path.join(folder, "vocab.json"), encoding="utf-8"))
        vocabulary["<|endoftext|>"] = len(vocabulary)
        json.dump(vocabulary, open(os.path.join(folder, "vocab.json"), "w"))
        small = GPT2TokenizerFast(vocab=os.path.join(folder, "vocab.json"), merges=os.path.join(folder, "merges.txt"))
        golden["byte_pair"] = {"merges": merges, "tokens": [tokens_of(small, t) for t in TEXTS]}

    gpt2 = GPT2TokenizerFast(vocab=os.path.join(DATA, "gpt2/vocab.json"), merges=os.path.join(DATA, "gpt2/merges.txt"))
    shakespeare = open(os.path.join(DATA, "tinyshakespeare.txt"), encoding="utf-8").read()
    golden["bert"] = {"tokens": [tokens_of(big, t) for t in TEXTS],
                      "books": {"tinyshakespeare.txt": hash_of(tokens_of(big, shakespeare)),
                                "wikipedia.txt": hash_of(tokens_of(big, book))}}
    golden["gpt2"] = {"tokens": [tokens_of(gpt2, t) for t in TEXTS],
                      "books": {"tinyshakespeare.txt": hash_of(tokens_of(gpt2, shakespeare)),
                                "wikipedia.txt": hash_of(tokens_of(gpt2, book))}}
    with tempfile.TemporaryDirectory() as folder:
        golden["files"] = read_from_files(folder)
        golden["characters"] = characters(folder)
    with open(os.path.join(HERE, "tokenizers.json"), "w", encoding="utf-8") as out:
        json.dump(golden, out, ensure_ascii=False, separators=(",", ":"))


main()
