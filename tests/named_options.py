#!/usr/bin/env python3
"""Every option that a page, a message or a script gives to a program is one that the program has, and so is its value
where the program lists the words it takes. usage: named_options.py SOURCE_DIR

Options are read where the programs declare them, which is also where --help comes from: rows {"name", &s::member, "values".
"""

import re
import sys
from pathlib import Path

# A program's table: the file under examples/programs, and the function in it.
TABLES = {
    "pretrain": ("pretrain/settings.hpp", "settings_table"), "generate": ("pretrain/reader_settings.hpp", "sampling_table"),
    "fill_mask": ("pretrain/reader_settings.hpp", "filling_table"),
    "freeze": ("pretrain/reader_settings.hpp", "freezing_table"),
    "interpolate": ("pretrain/reader_settings.hpp", "interpolation_table"),
    "finetune": ("pretrain/reader_settings.hpp", "finetune_table"),
    "classify": ("pretrain/reader_settings.hpp", "classifying_table"), "mnist": ("mnist/settings.hpp", "table"),
    "ipu": ("ipu/settings.hpp", "table"), "advise": ("advise/advise.cpp", "options"),
}
OPTION = r"(?<![\w([-])--([a-z][a-z-]*)(?![a-z-]*:)"  # a variable of CSS is --ink: or var(--ink)
COMMAND = re.compile(rf"(?:^|[\s`/(])({'|'.join(TABLES)})((?:\s(?!\||&&)[^`;|&#]*)?)")

root = Path(sys.argv[1]).resolve()
problems = []


def read(path):
    return (root / path).read_text(encoding="utf-8")


def declared(file, function):
    """{option: the words it takes, or none} of a table."""
    text = re.sub(r'"\s*\n\s*"', "", read(f"examples/programs/{file}"))
    body = text[re.search(rf"\b{function}\(\) \{{", text).end():]
    body = body[:body.index("\n}\n")]
    rows = re.findall(r'\{"([a-z-]+)", &s::\w+,\s*(?:"([^"]*)"|[\w:]+)', body)
    return {name: set(values.split("|")) if "|" in values else set() for name, values in rows}


def other_options():
    """Options of ./dev, of benchmarks and of scripts, which pages name without the command."""
    names = set(re.findall(OPTION, read("dev"))) | {"help"}
    for path in [*root.glob("benchmarks/**/*.cpp"), *root.glob("benchmarks/**/*.py"), *root.glob("experiments/*.py"),
                 *root.glob("scripts/*.py")]:
        names |= set(re.findall(rf'"{OPTION}"', path.read_text(encoding="utf-8")))
    return names


def check_command(where, program, options, words):
    for at, word in enumerate(words):
        if not (found := re.match(OPTION + r"(?:=(\S+))?", word)):
            continue
        name, value = found[1], found[2] or (words[at + 1] if at + 1 < len(words) else "")
        if name not in options:
            problems.append(f"{where}: {program} has no option --{name}")
        elif options[name] and value[:1].isalpha() and value.rstrip(".,:)") not in options[name]:
            problems.append(f"{where}: {program} --{name} takes {'|'.join(sorted(options[name]))}, not {value}")


def main():
    tables = {program: declared(*table) for program, table in TABLES.items()}
    everywhere = set().union(*tables.values()) | other_options()

    # Commands of pages, over all their lines; and options that a sentence names without the program.
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    for path in pages:
        text = re.sub(r"\\\n\s*", lambda gap: " " * len(gap[0]), path.read_text(encoding="utf-8"))
        begin = 0
        for line in text.split("\n"):
            where = f"{path.relative_to(root)}:{path.read_text(encoding='utf-8')[:begin].count(chr(10)) + 1}"
            begin += len(line) + 1
            for found in COMMAND.finditer(line):
                check_command(where, found[1], tables[found[1]], found[2].split())
            for code in re.findall(rf"`{OPTION}", line):
                if code not in everywhere:
                    problems.append(f"{where}: no program has an option --{code}")

    # Messages of a program: its strings name options of the programs of its folder (--target is CMake's).
    for folder in sorted({file.split("/")[0] for file, _ in TABLES.values()}):
        own = {"help", "target"}.union(*(tables[program] for program, (file, _) in TABLES.items() if file.startswith(folder)))
        for path in sorted((root / "examples/programs" / folder).glob("*.[hc]pp")):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                for text in re.findall(r'"((?:[^"\\]|\\.)*)"', line):
                    for name in set(re.findall(OPTION, text)) - own:
                        problems.append(f"{path.relative_to(root)}:{number}: no program of {folder}/ has an option --{name}")

    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
