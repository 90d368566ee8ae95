# SPDX-License-Identifier: BSD-3-Clause
"""A hook of MkDocs. Makes pages of what lies outside docs/: the README, the tutorials, the comments of the headers,
and each file that a page links to; and turns such links to these pages."""
import pathlib
import posixpath
import re

from mkdocs.structure.files import File

root = pathlib.Path(__file__).resolve().parent.parent
languages = {".cpp": "cpp", ".hpp": "cpp", ".py": "python", ".sh": "bash", ".cmake": "cmake", ".json": "json",
             ".yml": "yaml"}
link = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+:|#)([^)#\s]*)(#[^)\s]*)?\)")


# ---- what a page of the repository is called on the site ----

def page_of(path):
    """The page that shows a file or folder of the repository."""
    if path.startswith("docs/"):
        return path[5:]
    if path == "README.md":
        return "start.md"
    if path.startswith("examples/tutorials"):
        rest = path[len("examples/tutorials"):].strip("/")
        return "tutorials/index.md" if rest in ("", "README.md") else f"tutorials/{rest.removesuffix('.cpp')}.md"
    if path.startswith("include/tessera/") and path.endswith(".hpp"):
        return "reference/" + path[len("include/tessera/"):-4] + ".md"
    if path.endswith(".md"):
        return "source/" + path
    return "source/" + (path or "repository") + ".md"


def with_links_turned(text, source, page):
    """The links of a file of the repository, as those of a page of the site."""
    def turned(found):
        words, path, anchor = found.group(1), found.group(2), found.group(3) or ""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if not (root / target).exists():
            return found.group(0)
        wanted.add(target)
        return f"[{words}]({posixpath.relpath(page_of(target), posixpath.dirname(page))}{anchor})"

    text = re.sub(r"(!\[[^\]]*\]\()docs/", r"\1", text) if source == "README.md" else text
    return link.sub(turned, re.sub(r"^```cpp global$", "```cpp", text, flags=re.M))


# ---- pages ----

def tutorial(path):
    """A program: its first comment, its code, and what it prints."""
    text = path.read_text()
    text, _, prints = text.partition("\n// Prints\n")
    head, _, code = text.partition("\n\n#include")
    words = [line[3:] if line.startswith("// ") else line.strip("/") for line in head.splitlines()[2:]]
    title, _, rest = "\n".join(words).partition(": ")
    rest = rest.replace("\n  g++", "\n    g++")
    printed = "\n".join(line.removeprefix("//   ") for line in prints.splitlines())
    return (f"# {path.stem}\n\n{rest[:1].upper()}{rest[1:]}\n\n```cpp\n#include{code}\n```\n\nIt prints\n\n"
            f"```\n{printed}\n```\n")


def without_text(code):
    return re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'|//.*', "", code)


def reference(path):
    """A header: the declarations that have a comment, and the comments."""
    lines = path.read_text().splitlines()
    parts = [f"# {path.relative_to(root / 'include')}\n"]
    about = re.search(r"\n\n((?://(?!/).*\n)+)\nnamespace", path.read_text())
    if about:
        parts.append(re.sub(r"^// ?", "", about.group(1), flags=re.M))
    hidden, depth, doc, k = None, 0, [], 0
    while k < len(lines):
        line = lines[k]
        code = without_text(line)
        stripped = line.strip()
        if hidden is None and (re.match(r"namespace detail|\s*private:", line)):
            hidden = depth - (1 if "private" in line else 0)
        if stripped.startswith("///"):
            doc.append(stripped[3:].removeprefix(" "))
        elif doc:
            declaration = []
            while k < len(lines):  # up to the body, or the end
                declaration.append(re.sub(r"TESSERA_(COLD|INLINE)\w* ?", "", lines[k]))
                if re.search(r"[{;]\s*(//.*)?$|\{.*\}$", lines[k]):
                    break
                k += 1
            if hidden is None:
                indent = min(len(l) - len(l.lstrip()) for l in declaration if l.strip())
                text = "\n".join(l[indent:] for l in declaration)
                text = re.sub(r"\s*(:\s[^;{]*)?\{[^{}]*(\}.*)?$|\s*\{$", ";", text) if "{" in text else text
                kind = re.search(r"^(?:class|struct|enum class|concept) (\w+)", text, re.M)
                if kind and not indent:
                    parts.append(f"## {kind.group(1)}\n")
                parts.append("```cpp\n" + text + "\n```\n\n" + paragraphs(doc) + "\n")
            doc = []
            code = without_text("\n".join(declaration))
        depth += code.count("{") - code.count("}")
        if hidden is not None and depth <= hidden:
            hidden = None
        k += 1
    return "\n".join(parts) if len(parts) > 1 else None


def paragraphs(doc):
    """Indented lines of a comment whose words stand in columns are tables of operands: they keep their form."""
    text, inside = [], False
    for line in doc:
        row = line.startswith("  ") and (inside or re.search(r"\S {2,}\S", line))
        if bool(row) != inside:
            text.append("```" if inside else "\n```text")
            inside = not inside
        text.append(line if inside else line.replace("<", "&lt;"))
    return "\n".join(text + ["```"] * inside) + "\n"


def on_files(files, config):
    def add(page, text):
        existing = files.get_file_from_path(page)
        if existing is None:
            files.append(File.generated(config, page, content=text))

    pages = {}
    sources = [("README.md", "start.md"), ("examples/tutorials/README.md", "tutorials/index.md")]
    for source, page in sources:
        pages[page] = with_links_turned((root / source).read_text(), source, page)
    for path in sorted((root / "examples/tutorials").glob("[0-9]*.cpp")):
        pages[f"tutorials/{path.stem}.md"] = tutorial(path)

    index = {}
    for path in sorted((root / "include/tessera").rglob("*.hpp")):
        name = path.relative_to(root / "include/tessera").with_suffix("").as_posix()
        text = reference(path)
        if text:
            pages[f"reference/{name}.md"] = text
            index.setdefault(posixpath.dirname(name) or "tessera", []).append(name)
    pages["reference/index.md"] = ("# Reference\n\nThe headers, by folder, with what they declare: shapes, errors, "
                                   "sources. `<tessera/tessera.hpp>` includes tensors, expressions and `run`.\n\n"
                                   + "\n".join(f"## {folder}\n\n" + ", ".join(
                                       f"[{posixpath.basename(n)}]({n}.md)" for n in names) + "\n"
                                       for folder, names in index.items()))

    for path in (root / "docs").rglob("*.md"):  # what they link to is known only now
        with_links_turned(path.read_text(), path.relative_to(root).as_posix(), page_of(path.relative_to(root).as_posix()))
    done = set()
    while wanted - done:
        target = (wanted - done).pop()
        done.add(target)
        page, path = page_of(target), root / target
        if page in pages or target.startswith("docs/"):
            continue
        if path.is_dir():
            lines = "\n".join(f"- [{p.name}]({p.name})" for p in sorted(path.iterdir())
                              if p.suffix in {".md", *languages} or p.name == "CMakeLists.txt")
            pages[page] = with_links_turned(f"# {target}\n\n{lines}\n", target + "/README.md", page)
        elif path.suffix == ".md":
            pages[page] = with_links_turned(path.read_text(), target, page)
        else:
            pages[page] = f"# {target}\n\n````{languages.get(path.suffix, '')}\n{path.read_text(errors='replace')}\n````\n"
    for page, text in pages.items():
        add(page, text)
    return files


def on_page_markdown(markdown, page, config, files):
    source = "docs/" + page.file.src_uri
    return with_links_turned(markdown, source, page.file.src_uri) if (root / source).exists() else markdown


wanted = set()
