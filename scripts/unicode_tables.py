#!/usr/bin/env python3
"""Writes include/tessera/tokenizers/unicode_tables.hpp from Python's copy of the Unicode character database.

    python3 scripts/unicode_tables.py
"""
import os
import unicodedata

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


def category(code):
    return "Cs" if 0xD800 <= code <= 0xDFFF else unicodedata.category(chr(code))


def folded(code):
    """Lower case without accents: what BERT's uncased vocabularies make of a character."""
    decomposed = unicodedata.normalize("NFD", chr(code))
    kept = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
    lower = "".join(c.lower() for c in kept)
    return "".join(c for c in unicodedata.normalize("NFD", lower) if unicodedata.category(c) != "Mn")


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


def table(name, comment, text):
    lines = [text[i:i + 108] for i in range(0, len(text), 108)]
    return f"/// {comment}\ninline constexpr char {name}[] =\n" + "\n".join(f'    "{l}"' for l in lines) + ";\n"


def main():
    version = unicodedata.unidata_version
    parts = [
        table("letters", "Categories L*.", ranges(lambda c: category(c)[0] == "L")),
        table("numbers", "Categories N*.", ranges(lambda c: category(c)[0] == "N")),
        table("punctuation", "Categories P*.", ranges(lambda c: category(c)[0] == "P")),
        table("others", "Categories C*: control, format, private use, surrogates, unassigned.",
              ranges(lambda c: category(c)[0] == "C")),
        table("nonspacing_marks", "Category Mn.", ranges(lambda c: category(c) == "Mn")),
        table("foldings", "Lower case without accents, of characters that it changes.", foldings()),
    ]
    header = f"""// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>

// Properties of characters, of Unicode {version}. Written by scripts/unicode_tables.py: never edited. Numbers are
// digits of five bits, the lowest first, of the alphabet of base64; 32 is added where more follow.

namespace tessera {{ inline namespace TESSERA_ISA {{ namespace tokenizers {{ namespace tables {{

// clang-format off
{chr(10).join(parts)}// clang-format on

}}}}}}}}  // namespace tessera::TESSERA_ISA::tokenizers::tables
"""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../include/tessera/tokenizers/unicode_tables.hpp")
    with open(path, "w") as out:
        out.write(header)


if __name__ == "__main__":
    main()
