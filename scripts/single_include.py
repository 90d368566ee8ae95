#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes single_include/: the library as two headers, each of which stands alone.

  tessera.hpp         <tessera/tessera.hpp> and the statements of attention and embeddings
  tessera_train.hpp   all of the library: layers, optimizers, sparsity policies, checkpoints, files

  single_include.py           writes them
  single_include.py --check   says whether they are current; exit code 1 if not

A header that is in both is read once, whichever is included first.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r"^#include <(tessera/[^>]+)>\n", re.MULTILINE)

HEADERS = {
    "tessera.hpp": ["tessera/tessera.hpp", "tessera/statements/attention.hpp", "tessera/statements/embedding.hpp"],
    "tessera_train.hpp": ["tessera/tessera.hpp", *sorted(
        str(path.relative_to(ROOT / "include")) for path in (ROOT / "include/tessera").rglob("*.hpp")
        if "// Moved: " not in path.read_text(encoding="utf-8"))],
}


def inlined(header, seen):
    """The text of a header, after those that it includes and that are not yet there."""
    if header in seen:
        return ""
    seen.add(header)
    text = (ROOT / "include" / header).read_text(encoding="utf-8")
    before = "".join(inlined(included, seen) for included in INCLUDE.findall(text))
    text = INCLUDE.sub("", text).replace("// SPDX-License-Identifier: BSD-3-Clause\n", "")
    text = re.sub(r"\n{3,}", "\n\n", text.replace("#pragma once\n", "")).strip("\n")
    guard = "TESSERA_SINGLE_" + re.sub(r"\W", "_", header.removeprefix("tessera/").removesuffix(".hpp")).upper()
    return f"{before}\n// ---- {header}\n#ifndef {guard}\n#define {guard}\n{text}\n#endif\n" if text else before


def single(name):
    license_text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    head = "// SPDX-License-Identifier: BSD-3-Clause\n"
    head += "// tessera in one header, made by scripts/single_include.py of include/: change that.\n//\n"
    head += "".join(f"// {line}".rstrip() + "\n" for line in license_text.splitlines())
    seen = set()
    return head + "#pragma once\n" + "".join(inlined(header, seen) for header in HEADERS[name])


def main():
    check = sys.argv[1:] == ["--check"]
    stale = []
    for name in HEADERS:
        path, text = ROOT / "single_include" / name, single(name)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if check and stale:
        sys.exit(f"single_include/ is not that of include/: {', '.join(stale)}; write it by scripts/single_include.py")


main()
