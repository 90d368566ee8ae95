#!/usr/bin/env python3
"""Trains a small tokenizer as each of GPT-2, LLaMA 2, Mistral, LLaMA 3, Qwen2 and BERT have it, and records its
tokenizer.json and what it makes of some texts, in tests/golden/tokenizer_files.json.gz.

    pip install tokenizers==0.23.3
    TESSERA_DATA=… python3 tests/golden/record_tokenizer_files.py

Of whole books, and of all characters of Unicode, a hash over the tokens is recorded.
"""
import gzip
import json
import os
import random
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.environ["TESSERA_DATA"]
BOOKS = ("tinyshakespeare.txt", "wikipedia.txt")
SIZE = 800

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
          r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")

TEXTS = json.load(open(os.path.join(HERE, "tokenizers.json"), encoding="utf-8"))["texts"] + [
    "a", "\n", "\t", "\r\n", "   a", " a ", "a  b   c    d", "\u2581", "\u2581a \u2581 b", "a\u2581b",
    "\x00", "a\x00b", "\ufffd \ufeffBOM", "\r\n\r\n  \r\n x \t\n",
    "I'M YOU'RE he'll HE'LL they'Ve 'D 's'S'\u017f don\u2019t",
    "1 12 123 1234 12345 1234567.890 \u0661\u0662\u0663\u0664 \u00bd\u00b2 \u2160\u216b",
    "e\u0301\u0323 e\u0323\u0301 \u1e69 s\u0323\u0307 s\u0307\u0323 \u212b \u2126 \u03a9 \u0344 \u0958 \ufb1d",
    "\u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00 \u1100\u1161\u0301\u11a8 \uac00\u11a8",
    "\u0301 \u0301\u0301 a\u034f\u0301 \u0f71\u0f72\u0f74",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f3f3\ufe0f\u200d\U0001f308 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "\u05e9\u05b8\u05dc\u05d5\u05b9\u05dd \u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627 \u202eabc\u202c \u200f",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\u3053\u3093\u306b\u3061\u306f\u2026\uff21\uff22\uff23 \uff11\uff12",
    "<s>a</s> <s> </s>b<s><s> c <unk> <unk>d <0x41> <0xE2>",
    "<|begin_of_text|>Hi<|end_of_text|> <|im_start|>user\nHi there<|im_end|>\n <|endoftext|>x<|endoftext",
    "[CLS]a[SEP] [SEP] [PAD][UNK] [mask] [MASK] x[MASK]y",
    "sole sole. (sole) resole soles sole_ \u00e9sole sole\u00e9 sole",
    "left  LEFT  a LEFT\n\tLEFTLEFT  right RIGHT  b RIGHT\n\tc RIGHTRIGHT  LEFT RIGHT  LEFT",
    "Norm norm NORM na\u00efvenorm \u00c9norm nor m",
    "All these common general people must be here upon this time, and not in the place of their nation",
    "longer<longer><longer longer>", "==>=> => =", "x" * 300, "ab" * 300, " " * 70, "\n" * 70, " \n" * 35, "!" * 70, "a " * 200,
    "https://example.org/a/b?q=%20&r=1#x \\path\\to\\file C++ #hash @name $5.00 50% 3^2 ~/x `code` {a: [1, 2]} <b>x</b> /* c */",
]

# Characters are taken in chunks: all of the first three planes, and every 17th of those that have few or none.
CHUNKS = [range(first, first + 0x2000) for first in range(0, 0x30000, 0x2000)]
CHUNKS += [range(first, first + 0x10000, 17) for first in range(0x30000, 0x110000, 0x10000)]


def hash_of(tokens):
    """FNV-1a over the tokens as 32-bit little-endian numbers."""
    h = 0xCBF29CE484222325
    for t in tokens:
        for byte in int(t).to_bytes(4, "little"):
            h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def book(name):
    return open(os.path.join(DATA, name), encoding="utf-8", newline="").read()


def trained(tokenizer, trainer):
    """On a part of each book, and on letters that it has few of."""
    parts = [book(b)[:150000] for b in BOOKS] + [t for t in TEXTS if len(t) < 200] * 3
    tokenizer.train_from_iterator([line for part in parts for line in part.splitlines(keepends=True)], trainer)
    return tokenizer


def byte_level(specials, size=SIZE):
    """A trainer for vocabularies with all bytes."""
    return trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                               initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return trained(t, byte_level(["<|endoftext|>"]))


def sentence_piece(prefixed_by):
    """LLaMA 2 and Mistral: unknown characters become the tokens of their bytes."""
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    specials = ["<unk>", "<s>", "</s>"]
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    trained(t, trainers.BpeTrainer(vocab_size=SIZE + 256, special_tokens=specials + bytes_, limit_alphabet=120,
                                   show_progress=False))
    file = json.loads(t.to_str())
    file["added_tokens"] = [a for a in file["added_tokens"] if a["content"] in specials]
    t = Tokenizer.from_str(json.dumps(file))
    end = [decoders.Fuse()]
    if prefixed_by == "normalizer":
        t.pre_tokenizer = None
        t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), *end,
                                   decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return t


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trained(t, byte_level([]))
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                      special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])])
    # Pieces that no merge makes, as LLaMA 3 has some: a word that is one of them is found whole.
    file = json.loads(t.to_str())
    dropped = {"".join(pair) for pair in file["model"]["merges"][-40:]}
    file["model"]["merges"] = [m for m in file["model"]["merges"] if not dropped & {"".join(m), *m}]
    return Tokenizer.from_str(json.dumps(file))


def qwen2():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    trained(t, byte_level([]))
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return t


def bert(lower):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trained(t, trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=specials, limit_alphabet=150, show_progress=False))
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]"))])
    return t


def legacy(source):
    """Older files: merges as lines, no names of types, no defaults."""
    file = json.loads(source.to_str())
    file["model"]["merges"] = [" ".join(m) for m in file["model"]["merges"]]
    for key in ("type", "ignore_merges", "byte_fallback", "dropout"):
        del file["model"][key]
    file["model"]["unk_token"] = file["model"]["continuing_subword_prefix"] = file["model"]["end_of_word_suffix"] = ""
    return file


def flags(source):
    """Tokens with each flag, in a file that prefixes a blank and drops what is no letter."""
    t = Tokenizer.from_str(source.to_str())
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace("norm", "NORM")])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split("=", "merged_with_previous"), pre_tokenizers.Split(Regex(r"\p{L}+"), "merged_with_next"),
        pre_tokenizers.Split(Regex(r"\s"), "contiguous"), pre_tokenizers.Split(Regex(r"[\p{L}\p{N}=\s]+"), "removed", True),
        pre_tokenizers.ByteLevel(add_prefix_space=True)])
    t.add_tokens([AddedToken("sole", single_word=True, normalized=False), AddedToken("LEFT", lstrip=True, normalized=False),
                  AddedToken("RIGHT", rstrip=True, normalized=False), AddedToken("\u00c9norm", normalized=True),
                  AddedToken("Norm", normalized=True, special=True), AddedToken("longer", normalized=False),
                  AddedToken("<longer>", normalized=False), AddedToken("=>", normalized=True)])
    return t


def splits(pattern, behaviour, invert, source):
    t = Tokenizer.from_str(source.to_str())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, behaviour, invert),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return t


def metaspace(scheme, split, source):
    t = Tokenizer.from_str(source.to_str())
    t.normalizer = None
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    t.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return t


def without_bytes(source, fuse):
    """Unknown characters become <unk>, where not all of their bytes are tokens."""
    file = json.loads(source.to_str())
    file["model"]["fuse_unk"] = fuse
    for b in range(0xE0, 0x100):
        file["model"]["vocab"][f"<gone {b}>"] = file["model"]["vocab"].pop(f"<0x{b:02X}>")
    return file


def cased(source):
    file = json.loads(source.to_str())
    file["normalizer"]["lowercase"] = False
    file["decoder"]["cleanup"] = False
    return file


def changes(tokenizer, of):
    """The members of the file and of its model that differ from those of another file; None for those that it lacks."""
    file = tokenizer if isinstance(tokenizer, dict) else json.loads(tokenizer.to_str())

    def differing(a, b):
        return {k: a.get(k) for k in {**b, **a} if k not in a or k not in b or a[k] != b[k]}

    changed = differing(file, of)
    if "model" in changed:
        changed["model"] = differing(file["model"], of["model"])
    return {"changes": changed}


def normalized_names(source):
    """Older files of LLaMA 2: names of special tokens are normalized, so that they are found behind blanks."""
    file = json.loads(source.to_str())
    for token in file["added_tokens"]:
        token["normalized"] = True
    file["decoder"] = None
    return file


def recorded(tokenizer, with_file=True):
    file = tokenizer if isinstance(tokenizer, dict) else json.loads(tokenizer.to_str())
    t = Tokenizer.from_str(json.dumps(file))
    special = {i for i, token in t.get_added_tokens_decoder().items() if token.special}
    ids = [t.encode(x, add_special_tokens=False).ids for x in TEXTS]
    result = {
        "size": max(t.get_vocab(with_added_tokens=True).values()) + 1,
        "tokens": ids,
        # Not by skip_special_tokens, which keeps special tokens that are normalized.
        "decoded": [t.decode([i for i in x if i not in special], skip_special_tokens=False) for x in ids],
        "decoded with special": [t.decode(x, skip_special_tokens=False) for x in ids],
        "enclosed": t.encode(TEXTS[2]).ids,
        "enclosed pair": t.encode(TEXTS[2], TEXTS[4]).ids,
    }
    if with_file:
        result["file"] = file
        result["characters"] = [
            hash_of(t.encode("".join(f"a{chr(c)}1{chr(c)} {chr(c)}" for c in chunk if not 0xD800 <= c <= 0xDFFF),
                             add_special_tokens=False).ids) for chunk in CHUNKS]
        result["books"] = {name: hash_of(t.encode(book(name), add_special_tokens=False).ids) for name in BOOKS}
    return result


EXPRESSIONS = [
    LLAMA3, TEKKEN, r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]|\s+",
    r"[a-c]+(?=d)|d++d|(?:ab|a)(?:c|bcd)?e", r"(?>a|ab)c|[^\S\n]+|.{2}", r"(?:a[bc]){2,3}d|(a|b)*c|\P{L}",
    r"(?:ab?)++b|x(?:yz){2}|\r\n|[\r\n-]", r"(?:a|b|cc){1,}d|(?!b)[bc]", r"[\^\]a-]+|\(|\{|\t",
]


def expressions():
    """The matches of expressions in texts of few characters."""
    draw = random.Random(1)
    alphabet = list("aaaabbbccdexyz \n\r\t-^](.'") + ["'LL", "'s", "'\u017f", "\u00e9", "\u4e2d", "\u0301", "\u3000", "12", "1234", "\u01c5"]
    texts = ["".join(draw.choice(alphabet) for _ in range(draw.randrange(30))) for _ in range(40)]
    return {"texts": texts, "matches": [
        {"pattern": p, "of": [[m for m, _ in pre_tokenizers.Split(Regex(p), "removed", True).pre_tokenize_str(t)] for t in texts]}
        for p in EXPRESSIONS]}


def compositions():
    """Letters and marks in any order, and their Normalization Form C."""
    draw = random.Random(2)
    everything = [chr(c) for c in range(0x30000) if not 0xD800 <= c <= 0xDFFF]
    decomposing = [c for c in everything if normalizers.NFD().normalize_str(c) != c and not 0xAC00 <= ord(c) <= 0xD7A3]
    kinds = [decomposing, [c for c in everything if unicodedata.combining(c)],
             sorted({p for c in decomposing for p in normalizers.NFD().normalize_str(c)}), list("aeouAEO x"),
             [chr(c) for c in (*range(0x1100, 0x1120), *range(0x1160, 0x1180), *range(0x11A6, 0x11D0), *range(0xAC00, 0xAC40))]]
    texts = ["".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randrange(2, 8))) for _ in range(500)]
    return [[t, normalizers.NFC().normalize_str(t)] for t in texts]


def main():
    families = {"gpt2": gpt2(), "llama2": sentence_piece("normalizer"), "mistral": sentence_piece("pre_tokenizer"),
                "llama3": llama3(), "qwen2": qwen2(), "bert": bert(True)}
    golden = {"texts": TEXTS, "chunks": [[c.start, c.stop, c.step] for c in CHUNKS],
              "families": {name: recorded(t) for name, t in families.items()}}
    g, l = families["gpt2"], families["llama2"]
    variants = {"legacy": (legacy(g), "gpt2"), "flags": (flags(g), "gpt2"), "cased": (cased(families["bert"]), "bert"),
                "tekken": (splits(Regex(TEKKEN), "isolated", False, g), "gpt2"),
                "isolated text": (splits(" ", "isolated", False, g), "gpt2"),
                "removed": (splits(Regex(r"\s+"), "removed", False, g), "gpt2"),
                "merged with next": (splits(Regex(r"\s"), "merged_with_next", False, g), "gpt2"),
                "merged with previous": (splits(Regex(r"\P{L}"), "merged_with_previous", True, g), "gpt2"),
                "contiguous": (splits(Regex(r"[a-z]"), "contiguous", True, g), "gpt2"),
                "metaspace always": (metaspace("always", True, l), "llama2"),
                "metaspace first": (metaspace("first", True, l), "llama2"),
                "metaspace never": (metaspace("never", False, l), "llama2"),
                "normalized names": (normalized_names(l), "llama2"),
                "unknown fused": (without_bytes(l, True), "llama2"), "unknown": (without_bytes(l, False), "llama2")}
    golden["variants"] = {name: {"of": of, **changes(t, golden["families"][of]["file"]), **recorded(t, False)}
                          for name, (t, of) in variants.items()}
    golden["expressions"], golden["compositions"] = expressions(), compositions()
    with open(os.path.join(HERE, "tokenizer_files.json.gz"), "wb") as out:
        text = json.dumps(golden, ensure_ascii=False, separators=(",", ":")).encode()
        out.write(gzip.compress(text, 9, mtime=0))


main()
