#!/usr/bin/env python3
"""Writes include/tessera/tokenizers/unicode_tables.hpp and composition_tables.hpp: what the tokenizers of Hugging Face
take each character for, which is what they do with it. Their tables are of several versions of Unicode, so none of it
gives the same tokens.

    pip install tokenizers==0.23.3
    python3 scripts/unicode_tables.py
"""
import os
import unicodedata

import tokenizers
from tokenizers.normalizers import NFC, NFD, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer, ByteLevel, Split, Whitespace

DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
LAST = 0x10FFFF


def number(n):
    """Five bits a digit, the lowest first; 32 is added where more follow."""
    digits = ""
    while n >= 32:
        digits += DIGITS[32 + n % 32]
        n //= 32
    return digits + DIGITS[n]


def signed(n):
    return number(2 * n if n >= 0 else -2 * n - 1)


def ranges(holds):
    """Gaps between ranges and their lengths less one, in turn."""
    text, end, code = "", 0, 0
    while code <= LAST:
        if not holds(code):
            code += 1
            continue
        first = code
        while code <= LAST and holds(code):
            code += 1
        text += number(first - end) + number(code - 1 - first)
        end = code
    return text


def words(cutter, text):
    return len(cutter.pre_tokenize_str(text))


# BERT's tokenizer in the parts that its tables need, the words of GPT-2's, and of an expression with \\w.
CLEANED = BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
FOLDED = BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=True)
MARKS, PAIRS, WORDS = BertPreTokenizer(), ByteLevel(add_prefix_space=False, use_regex=True), Whitespace()
COMPOSED, DECOMPOSED = NFC(), NFD()


def holds(code, property_of):
    """Surrogates are no characters of a text."""
    return not 0xD800 <= code <= 0xDFFF and property_of(chr(code))


def folded(code):
    """Lower case without accents: what BERT's uncased vocabularies make of a character."""
    return FOLDED.normalize_str(chr(code))


def foldings():
    """For each character that changes: the distance from the last, the number of results, and each one less
    the character. Hangul syllables are left to arithmetic."""
    text, last = "", 0
    for code in range(LAST + 1):
        if 0xAC00 <= code <= 0xD7A3 or 0xD800 <= code <= 0xDFFF:
            continue
        to = folded(code)
        if to == chr(code):
            continue
        text += number(code - last) + number(len(to)) + "".join(signed(ord(c) - code) for c in to)
        last = code
    return text


def category(name):
    """A category of Unicode as the splitting expressions of a file know it."""
    everything = "".join(chr(c) for c in range(LAST + 1) if not 0xD800 <= c <= 0xDFFF)
    others = Split(tokenizers.Regex(rf"[^\p{{{name}}}]"), "removed")
    members = {c for run, _ in others.pre_tokenize_str(everything) for c in run}
    return ranges(lambda code: chr(code) in members)


def decompositions():
    """For each character that has one: the distance from the last; 0 if it is composed of two characters, else how many
    it is decomposed to for good; and each of them less the character. Hangul syllables are left to arithmetic."""
    text, last = "", 0
    for code in range(LAST + 1):
        c = chr(code)
        if 0xAC00 <= code <= 0xD7A3 or 0xD800 <= code <= 0xDFFF or DECOMPOSED.normalize_str(c) == c:
            continue
        parts = DECOMPOSED.normalize_str(c)
        composes = COMPOSED.normalize_str(parts) == c
        if len(parts) > 1:
            parts = (COMPOSED.normalize_str(parts[:-1]) if composes else parts[:-1]) + parts[-1]
        assert len(parts) <= 2 or not composes, hex(code)
        text += number(code - last) + number(0 if composes else len(parts)) + "".join(signed(ord(p) - code) for p in parts)
        last = code
    return text


def combining_classes():
    """For each run of characters of one class but 0: the distance from the end of the last, its length less one, the class.
    Of the marks that Python knows, the tokenizers order those that they know, too."""

    def class_of(code):
        if 0xD800 <= code <= 0xDFFF or (known := unicodedata.combining(chr(code))) == 0:
            return 0
        pair = ("\u0345" + chr(code)) if known < 240 else (chr(code) + "\u0334")  # in the wrong order
        return known if known == 240 or DECOMPOSED.normalize_str(pair) == pair[::-1] else 0

    text, end, code = "", 0, 0
    while code <= LAST:
        first, of = code, class_of(code)
        while code <= LAST and class_of(code) == of:
            code += 1
        if of:
            text += number(first - end) + number(code - 1 - first) + number(of)
            end = code
    return text


def table(name, comment, text):
    lines = [text[i:i + 108] for i in range(0, len(text), 108)]
    return f"/// {comment}\ninline constexpr char {name}[] =\n" + "\n".join(f'    "{l}"' for l in lines) + ";\n"


def write(name, comment, parts):
    header = f"""// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>

// {comment}, as tokenizers {tokenizers.__version__} of Hugging Face has them. Written by
// scripts/unicode_tables.py: never edited. Numbers are digits of five bits, the lowest first, of the alphabet of
// base64; 32 is added where more follow.

namespace tessera {{ inline namespace TESSERA_ISA {{ namespace tokenizers {{ namespace tables {{

// clang-format off
{chr(10).join(parts)}// clang-format on

}}}}}}}}  // namespace tessera::TESSERA_ISA::tokenizers::tables
"""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../include/tessera/tokenizers", name)
    with open(path, "w") as out:
        out.write(header)


def main():
    write("unicode_tables.hpp", "Properties of characters", [
        table("letters", "Categories L*.", ranges(lambda c: holds(c, lambda x: words(PAIRS, "a" + x + "a") == 1))),
        table("numbers", "Categories N*.", ranges(lambda c: holds(c, lambda x: words(PAIRS, "1" + x + "1") == 1))),
        *[table(f"category_{name.lower()}", f"Category {name}{'*' if len(name) == 1 else ''}.", category(name))
          for name in ("Lu", "Ll", "Lt", "Lm", "Lo", "M")],
        table("punctuation", "Categories P* and the symbols of ASCII.",
              ranges(lambda c: holds(c, lambda x: words(MARKS, "a" + x + "b") == 3))),
        table("word_characters", "Characters that \\w stands for.",
              ranges(lambda c: holds(c, lambda x: words(WORDS, "a" + x + "a") == 1))),
        table("controls", "Characters that BERT leaves out: categories Cc, Cf and Co, and U+FFFD.",
              ranges(lambda c: holds(c, lambda x: CLEANED.normalize_str(x) == ""))),
        table("foldings", "Lower case without accents, of characters that it changes.", foldings()),
    ])
    write("composition_tables.hpp", "Canonical decompositions and the order of marks", [
        table("decompositions", "Gap; 0 for two characters that compose again, else how many for good; each less the character.", decompositions()),
        table("combining_classes", "Canonical combining classes but 0.", combining_classes()),
    ])


if __name__ == "__main__":
    main()
