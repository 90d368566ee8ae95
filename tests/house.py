#!/usr/bin/env python3
"""The house's own rules, read from the sources; nothing is built. usage: house.py SOURCE_DIR [RULE…]

Each rule is a function below, with its reason in its first line; it reports (file, line, message). Exceptions stand in
tests/house.txt, each with what excuses it. The list may only shrink: an entry that excuses nothing any more is reported too.
"""

import re
import subprocess
import sys
from pathlib import Path

SECTIONS = ("long functions", "kernels tested elsewhere", "words")
MOST_LINES = {"header": 400, "expr/": 999, "function": 60, "design.md": 350}  # function_lengths.py has the last one, too

root = Path()
problems = []


def report(path, line, message):
    where = path.relative_to(root) if isinstance(path, Path) else path
    problems.append(f"{where}:{line}: {message}")


def lines_of(path):
    return path.read_text(encoding="utf-8").splitlines()


def headers(folder=""):
    """Headers of the library, without the forwards that stand where a header was before it moved."""
    for path in sorted((root / "include/tessera" / folder).rglob("*.hpp")):
        if not any(line.startswith("// Moved: ") for line in lines_of(path)[:8]):
            yield path


def sources():
    for folder in ("include", "src", "examples", "benchmarks", "tests", "test_package"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".hpp", ".cpp"):
                yield path


def exceptions(section):
    """{name: (what excuses it, line)} of a section of tests/house.txt."""
    found, inside = {}, None
    for number, line in enumerate(lines_of(root / "tests/house.txt"), 1):
        if line.startswith("["):
            inside = line.strip("[]")
            if inside not in SECTIONS:
                report(root / "tests/house.txt", number, f"no rule has exceptions named [{inside}]")
        elif inside == section and line and not line.startswith("#"):
            name, _, reason = line.partition(" ")
            if name in found or not reason:
                report(root / "tests/house.txt", number, f"{name} stands here twice, or without an excuse")
            found[name] = (reason.strip(), number)
    return found


def unused(names, section, advice):
    for name, (_, number) in exceptions(section).items():
        if name not in names:
            report(root / "tests/house.txt", number, f"[{section}] {name} excuses nothing: {advice}")


# ---- sizes ----


def header_lines():
    """A header holds one idea, which seldom takes more than 250 lines."""
    for path in headers():
        count = len(lines_of(path))
        if count > MOST_LINES["header"]:
            report(path, count, f"{count} lines, at most {MOST_LINES['header']}: look for the second idea")


def function_lines():
    """A function that does not fit on a screen has a name hiding in it."""
    script, section, found = root / "tests/function_lengths.py", "long functions", set()
    if not script.exists():
        return
    ran = subprocess.run([sys.executable, str(script), "include", "src"], cwd=root, capture_output=True, text=True)
    if ran.stderr:
        report(script, 1, ran.stderr.strip())
    for place, function, lines in (line.rsplit(" ", 2) for line in ran.stdout.splitlines()):
        file, _, line = place.rpartition(":")
        name = f"{file}:{function}"
        found.add(name)
        if name not in exceptions(section):
            report(file, line, f"{function} has {lines} lines, at most {MOST_LINES['function']}: look for the name in it")
    unused(found, section, "it is short enough now, or is gone")


def expression_lines():
    """The notation is what a user has to learn: it stays small enough to be read at once."""
    count = sum(len(lines_of(path)) for path in headers("expr"))
    if count > MOST_LINES["expr/"]:
        report("include/tessera/expr", 1, f"{count} lines, at most {MOST_LINES['expr/']}")


def design_lines():
    """The design is read by everyone who changes the library: how to add a thing is told in extending.md."""
    path = root / "docs/design.md"
    if (count := len(lines_of(path))) > MOST_LINES["design.md"]:
        report(path, count, f"{count} lines, at most {MOST_LINES['design.md']}")


# ---- files that belong together ----


def kernel_tests():
    """A kernel is tested on arrays, where a mistake is its own."""
    section, untested = "kernels tested elsewhere", set()
    for path in headers("kernels"):
        if not (root / "tests/kernels" / f"{path.stem}.test.cpp").exists():
            untested.add(path.name)
            if path.name not in exceptions(section):
                report(path, 1, f"has no tests/kernels/{path.stem}.test.cpp, nor a reason in [{section}] of tests/house.txt")
    unused(untested, section, "it has a test now, or is gone")


def named_files():
    """A page that names a file which has moved sends its reader to nothing."""
    tops = ("include", "src", "tests", "examples", "benchmarks", "experiments", "docs", "scripts", "cmake", "packaging", "single_include")
    there = {str(path.relative_to(root)) for top in tops for path in (root / top).rglob("*")}
    moved = {str(path.relative_to(root)) for path in (root / "include/tessera").rglob("*.hpp")} - {
        str(path.relative_to(root)) for path in headers()}
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        for number, line in enumerate(lines_of(path), 1):
            for name in re.findall(r"(?<=`)(?:tessera/)?((?:[\w.-]+/)+[\w.-]+\.(?:hpp|cpp|py|sh|cmake|md))(?=`)", line):
                if not name.startswith("build/") and "NAME" not in name and not any(
                        file.endswith(f"/{name}") or file == name for file in there - moved):
                    report(path, number, f"there is no {name}")


# ---- comments ----

NOT_A_NOUN = ("as|for|at|in|of|with|and|or|on|to|where|if|when|by|is|are|from|that|whether|way")
NAMELESS = re.compile(
    r"\b(?:what(?!'s|  |`| (?:the|a|an|each|every|any|no|this|these|one|its|their|his|all|both)\b)|those|so many|"
    rf"the same(?! (?!(?:{NOT_A_NOUN})\b)\w))\b", re.IGNORECASE)


def comments(path):
    """(number, text before the comment, mark, text) of each line that has one."""
    for number, line in enumerate(lines_of(path), 1):
        if found := re.match(r'^((?:[^"/]|"(?:[^"\\]|\\.)*"|/(?!/))*)(///?)(.*)$', line):
            yield number, found[1], found[2], found[3]


def nameless_words():
    """A reader who begins with this line must know which thing it is about: design.md, section 10."""
    allowed, left = exceptions("words"), set()
    for path in sources():
        name = str(path.relative_to(root))
        found = [(number, word[0]) for number, _, _, text in comments(path) for word in NAMELESS.finditer(text)]
        most = int(allowed[name][0]) if name in allowed else 0
        if found:
            left.add(name)
        if len(found) > most:
            for number, word in found:
                report(path, number, f'"{word}" stands for a noun: write the noun'
                       + (f" (tests/house.txt allows {most} in this file)" if most else ""))
        elif found and len(found) < most:
            report(root / "tests/house.txt", allowed[name][1], f"[words] {name} needs {len(found)} only")
    unused(left, "words", "the file has no such word any more")


def broken_lines():
    """The formatter breaks a comment that is too long for its line and leaves a stump: fill the paragraph again."""
    for path in sources():
        lines = list(comments(path))
        for first, stump, last in zip(lines, lines[1:], lines[2:]):
            alone = not any(code.strip() for _, code, _, _ in (first, stump, last))
            if not alone or not first[0] + 1 == stump[0] == last[0] - 1:
                continue
            text, indents = stump[3].strip(), [len(line[3]) - len(line[3].lstrip()) for line in (first, stump, last)]
            length = len(first[1] + first[2] + first[3])
            if not text[:1].islower() or length <= 90 or "  " in text or re.search(r"[.:;!?,)`{}]$", text):
                continue
            in_prose = len(text) < 50 and last[3].strip() and indents[1] == indents[2] <= 4
            in_list = "  " in first[3].strip() and indents[0] == indents[1] == 3  # an entry goes on farther right
            if in_prose or in_list or text.isalpha() and indents[1] <= 4:
                report(path, stump[0], f'"{text}" is left over from the line before: fill the paragraph')


RULES = (header_lines, function_lines, expression_lines, design_lines, kernel_tests, named_files, nameless_words, broken_lines)


def main():
    global root
    root = Path(sys.argv[1]).resolve()
    for rule in RULES:
        if not sys.argv[2:] or rule.__name__ in sys.argv[2:]:
            rule()
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
