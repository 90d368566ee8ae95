# SPDX-License-Identifier: BSD-3-Clause
"""A hook of MkDocs. Makes pages of what lies outside docs/: the README, the tutorials, the reference, and each file that
a page links to; and turns such links to these pages."""
import pathlib
import posixpath
import re
import sys

from mkdocs.structure.files import File

root = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(root / "scripts"))
from reference import reference

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
    if path.removeprefix("include/tessera/").removesuffix(".hpp") in headers.pages:
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


def on_files(files, config):
    def add(page, text):
        existing = files.get_file_from_path(page)
        if existing is None:
            files.append(File.generated(config, page, content=text))

    pages = {}
    sources = [("README.md", "start.md"), ("examples/tutorials/README.md", "tutorials/index.md")]
    for source, page in sources:
        pages[page] = with_links_turned((root / source).read_text(), source, page)
    tutorials = sorted((root / "examples/tutorials").glob("[0-9]*.cpp"), key=lambda path: int(path.stem.split("_")[0]))
    for path in tutorials:
        pages[f"tutorials/{path.stem}.md"] = tutorial(path)

    pages["reference/index.md"] = headers.index()
    for header in headers.pages:
        pages[f"reference/{header}.md"] = headers.page(header)
    for entry in config.nav:
        if "Reference" in entry:
            entry["Reference"] = headers.navigation()
        if "Tutorials" in entry:
            entry["Tutorials"] = ["tutorials/index.md", *(f"tutorials/{path.stem}.md" for path in tutorials)]
        if "Results" in entry:
            attempts = sorted(f"experiments/{path.name}" for path in (root / "docs/experiments").glob("[a-z]*.md"))
            entry["Results"] = ["results.md", {"Attempts": ["experiments/README.md", *attempts]}]

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
            text, language = path.read_text(errors="replace"), languages.get(path.suffix, "")
            pages[page] = f"---\nsearch: {{exclude: true}}\n---\n# {target}\n\n````{language}\n{text}\n````\n"
    for page, text in pages.items():
        add(page, text)
    return files


def on_page_markdown(markdown, page, config, files):
    source = "docs/" + page.file.src_uri
    return with_links_turned(markdown, source, page.file.src_uri) if (root / source).exists() else markdown


# ---- what stays on one line, and bars in tables ----

# Options, and numbers with hyphens or dashes, behind which browsers break lines, or with a percent sign.
unbreakable = re.compile(r"(?<![\w-])(--?[A-Za-z][\w=.+-]*|(?=[\w.–-]*\d)[\w.]+(?:[–-][\w.]+)+|[\d.]+ %)")
figures = re.compile(r"<td([^>]*)>((?:[\d\s.,/±%*×x()–−+-]+(?: \w{1,4})?)?)</td>")  # and cells without text
text_or_not = re.compile(r"(<pre.*?</pre>|<svg.*?</svg>|<[^>]*>)|([^<]+)", re.S)


def on_page_content(html, page, config, files):
    def marked(found):
        return found[1] or unbreakable.sub(r'<span class="whole">\1</span>', found[2])

    html = figures.sub(r'<td class="whole"\1>\2</td>', text_or_not.sub(marked, html))
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace(r"\|", "|"), html, flags=re.S)  # code keeps the escape


wanted = set()
headers = reference()
