# SPDX-License-Identifier: BSD-3-Clause
"""The reference of the site: a page for each header, and a list of all names, from the XML that Doxygen writes."""
import collections
import html
import pathlib
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

root = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = {"tensor": "Tensors", "expr": "Expressions", "eval": "Statements and runs", "core": "Elements and errors",
           "ops": "Functions of a number", "exec": "Threads", "io": "Files", "tokenizers": "Tokenizers", "nn": "Layers",
           "train": "Training", "ipu": "Emulated machine"}
TYPES = ("class", "struct", "union", "concept")
TAGS = {"para": "p", "itemizedlist": "ul", "orderedlist": "ol", "listitem": "li", "computeroutput": "code", "bold": "b",
        "emphasis": "em", "verbatim": "pre", "preformatted": "pre", "superscript": "sup", "subscript": "sub"}
SIGNS = {"emsp": "\u2003", "ndash": "–", "mdash": "—", "nbsp": "\u00a0", "linebreak": "\n", "sp": " "}


# ---- what Doxygen knows of a name ----

def code(node):
    """A type, a list of arguments or an initial value, spaced as the headers are."""
    text = re.sub(r"\s+", " ", "".join(node.itertext())).strip() if node is not None else ""
    text = re.sub(r"(?<!operator)(?<=\w)< ", "<", text)
    text = re.sub(r" >(?=[>,&)\s:]|$)", ">", text)
    text = re.sub(r" (&&|&|\*)(?=[\w.)])", r"\1 ", text.replace(")=default", ") = default"))
    return text.replace(" &", "&").replace("& )", "&)").replace(" *", "*").replace("& ...", "&...")


def parameters(node):
    return [" ".join(filter(None, [code(p.find("type")), code(p.find("declname")) or code(p.find("defname")),
                                   "= " + code(p.find("defval")) if p.find("defval") is not None else ""]))
            for p in node.findall("param")]


def declaration(node):
    kind, name = node.get("kind"), (node.findtext("name") or node.findtext("compoundname")).split("::")[-1]
    lines = []
    template = node.find("templateparamlist")
    if template is not None:
        lines.append(f"template <{', '.join(parameters(template))}>")
    if node.find("requiresclause") is not None:
        lines.append("  requires " + code(node.find("requiresclause")))
    words = [w for w in ("static", "explicit") if node.get(w) == "yes"]
    type_of = code(node.find("type"))
    if kind == "concept":
        text = code(node.find("initializer")).replace("template<", "template <").replace("tessera::", "")
        lines = text.replace("> concept", ">\nconcept").splitlines()
    elif kind in TYPES:
        bases = ", ".join(code(b) for b in node.findall("basecompoundref"))
        lines.append(f"{kind} {name}" + (f" : {bases}" if bases else ""))
    elif kind == "function":
        arguments = code(node.find("argsstring"))
        line = " ".join([*words, *filter(None, [type_of]), name + arguments])
        if len(line) > 100:
            line = line.replace(name + "(", name + "(\n    ", 1)
        lines.append(line)
    elif kind == "enum":
        lines.append(f"enum class {name} {{ {', '.join(v.findtext('name') for v in node.findall('enumvalue'))} }}")
    elif kind == "typedef":
        lines.append(f"using {name} = {type_of}")
    else:
        lines.append(" ".join([*words, type_of, name + code(node.find("argsstring")), code(node.find("initializer"))]))
    lines[-1] = lines[-1].rstrip() + ";"
    return "\n".join(lines)


class reference:
    def __init__(self):
        shutil.rmtree(root / "build/doxygen", ignore_errors=True)
        (root / "build/doxygen").mkdir(parents=True)
        subprocess.run(["doxygen", "scripts/Doxyfile"], cwd=root, check=True)
        self.pages = collections.defaultdict(list)  # header: (line, heading, node), of what stands in a namespace
        self.address = {}                           # Doxygen's name of a thing: its page and place
        for path in sorted((root / "build/doxygen/xml").glob("*tessera*.xml")):
            compound = ET.parse(path).getroot().find("compounddef")
            kind = compound.get("kind")
            inside = compound.findtext("compoundname")
            if kind in TYPES and "<" not in inside and compound.get("prot") != "private":
                self.place(compound, inside)
                for member in compound.iter("memberdef"):  # those that have a heading: see `names`
                    own = member.get("kind") != "variable" and member.findtext("briefdescription/para")
                    self.address[member.get("id")] = self.address[compound.get("id")] + (
                        "." + slug(member.findtext("name")) if own else "")
            elif kind == "namespace":
                for member in compound.iter("memberdef"):
                    if "<" not in member.findtext("name"):
                        self.place(member, inside + "::" + member.findtext("name"))

    def place(self, node, name):
        where = node.find("location")
        header = where.get("file").removeprefix("tessera/").removesuffix(".hpp")
        self.pages[header].append((int(where.get("line")), name.removeprefix("tessera::"), node))
        self.address[node.get("id")] = f"{header}.html#{slug(name.removeprefix('tessera::'))}"

    # ---- prose ----

    def prose(self, node, depth):
        """A comment, as HTML."""
        if node is None:
            return ""
        inner = html.escape(node.text or "") + "".join(
            self.prose(child, depth) + html.escape(child.tail or "") for child in node)
        if node.tag == "ref" and node.get("refid") in self.address:
            return f'<a href="{"../" * depth}{self.address[node.get("refid")]}">{inner}</a>'
        if node.tag in SIGNS:
            return SIGNS[node.tag]
        return f"<{TAGS[node.tag]}>{inner}</{TAGS[node.tag]}>" if node.tag in TAGS else inner

    def about(self, node, depth):
        both = "\n".join(self.prose(node.find(part), depth) for part in ("briefdescription", "detaileddescription"))
        # Doxygen ends a brief description behind any full stop, such as that of `et al.`.
        return re.sub(r"\s+", " ", re.sub(r"^\s*(<p>.*?) ?</p>\s*<p>(?!<ul)", r"\1 ", both, count=1, flags=re.S)).strip()

    def purpose(self, node):
        """The first sentence of a comment, up to a colon if it has one."""
        text = re.sub(r"<(?!/?code)[^>]*>", "", self.about(node, 0).split("<ul>")[0]).strip()
        ends = (m.start() for m in re.finditer(r"(?<!et al)(?<!pp)[.:;](?= |$)", text)
                if text.count("(", 0, m.start()) == text.count(")", 0, m.start()))
        return text[:next(ends, None)]

    # ---- pages ----

    def page(self, header):
        text = (root / f"include/tessera/{header}.hpp").read_text()
        depth = header.count("/")
        intro = re.search(r"\n\n((?://(?!/).*\n)+)\nnamespace", text)
        out = [f"# {header.split('/')[-1]}\n", f"```cpp\n#include <tessera/{header}.hpp>\n```\n"]
        if intro:
            out.append(re.sub(r"^// ?", "", intro.group(1), flags=re.M))
        in_order = sorted(self.pages[header], key=lambda entry: entry[:2])
        out += self.names([(name, node) for _, name, node in in_order], depth, "##")
        return "\n".join(out) + "\n"

    def names(self, all_names, depth, level, within=""):
        """Names with a comment have a heading each, shared by overloads; the others stand in one list."""
        by_name = {}
        for name, node in all_names:
            by_name.setdefault(name, []).append(node)
        out, rest = [], []
        for name, nodes in by_name.items():
            if not any(self.about(n, depth) or n.get("kind") in TYPES for n in nodes):
                rest += nodes
                continue
            out.append(f"{level} {name.replace('*', chr(92) + '*')} {{ #{slug(within + name)} }}\n")
            for node in nodes:
                out += [f"```cpp\n{declaration(node)}\n```\n", self.about(node, depth) + "\n"]
                values = [(v.findtext("name"), self.about(v, depth)) for v in node.findall("enumvalue")]
                if any(about for _, about in values):
                    out.append(table(values))
                if node.get("kind") in TYPES:
                    out += self.members(node, name, depth, level + "#")
        if rest:
            out.append("```cpp\n" + "\n".join(map(declaration, rest)) + "\n```\n")
        return out

    def members(self, node, name, depth, level):
        public = [m for m in node.iter("memberdef") if m.get("prot") == "public" and m.get("kind") != "friend"
                  and "=delete" not in m.findtext("argsstring", "")]
        data = [(declaration(m).rstrip(";"), self.about(m, depth)) for m in public if m.get("kind") == "variable"]
        with_purposes = any(about for _, about in data)
        return ([table(data)] if with_purposes else []) + self.names(
            [(m.findtext("name"), m) for m in public if not with_purposes or m.get("kind") != "variable"], depth, level,
            name + ".")

    def index(self):
        """All names that have a comment, by namespace, with the first sentence of it."""
        spaces = collections.defaultdict(dict)
        for header, names in self.pages.items():
            for _, name, node in names:
                purpose = self.purpose(node)
                space, _, own = name.rpartition("::")
                if purpose and "::" not in space and not own.startswith("operator"):
                    spaces[space].setdefault(own, (self.address[node.get("id")], purpose))
        out = ["# Reference\n\nEvery public name with its purpose; shapes, errors and sources are on its page. "
               "`<tessera/tessera.hpp>` includes tensors, expressions and `run`.\n"]
        for space, names in sorted(spaces.items()):
            out.append(f"## {'tessera' + ('::' + space if space else '')}\n")
            out.append(table([(f'<a href="{address}"><code>{name}</code></a>', purpose)
                              for name, (address, purpose) in sorted(names.items())], is_code=False))
        return "\n".join(out)

    def navigation(self):
        sections = {}
        for header in sorted(self.pages):
            folder = header.split("/")[0]
            sections.setdefault(folder, []).append({header.split("/")[-1]: f"reference/{header}.md"})
        return [{"All names": "reference/index.md"},
                *({title: sections[folder]} for folder, title in FOLDERS.items() if folder in sections)]


def slug(name):
    return re.sub(r"[^\w.:-]+", lambda found: "-".join(f"{ord(c):x}" for c in found.group()), name)


def table(rows, is_code=True):
    """Two columns: names, which are code unless they are links, and purposes."""
    lines = (f"<tr><td>{f'<code>{html.escape(name)}</code>' if is_code else name}</td>"
             f"<td>{re.sub('</?p>', ' ', about).strip()}</td></tr>" for name, about in rows)
    return "\n".join(["<table class=names>", *lines, "</table>\n"])
