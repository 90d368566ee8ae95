#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the recipe for the public index of Conan (conan-io/conan-center-index), recipes/tessera, out of conanfile.py.

    packaging/conan_center.py FOLDER [--homepage URL --archive FILE_OR_URL]

The address is that of packaging/address: a line with the homepage, and a line with the link to a release's archive, in
which {version} stands for its number. The archive is downloaded to compute its checksum."""
import argparse
import hashlib
import pathlib
import re
import shutil
import sys
import urllib.request

root = pathlib.Path(__file__).resolve().parent.parent


def replaced(text, *pairs):
    for old, new in pairs:
        if text.count(old) != 1:
            sys.exit(f"conanfile.py has no longer once: {old}")
        text = text.replace(old, new)
    return text


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=pathlib.Path, help="where recipes/tessera is made")
    options.add_argument("--homepage")
    options.add_argument("--archive")
    given = options.parse_args()
    address = (root / "packaging/address").read_text().split()
    config = (root / "include/tessera/core/config.hpp").read_text()
    version = ".".join(re.findall(r"define TESSERA_VERSION_\w+ (\d+)", config))
    homepage = given.homepage or (address[0] if address else None)
    archive = given.archive or (address[1].replace("{version}", version) if len(address) > 1 else None)
    if not homepage or not archive:
        sys.exit("packaging/address is empty: there is no public address yet, so give --homepage and --archive")

    link = archive if "://" in archive else pathlib.Path(archive).resolve().as_uri()
    checksum = hashlib.sha256(urllib.request.urlopen(link).read()).hexdigest()

    recipe = (root / "conanfile.py").read_text()
    docstring = recipe[recipe.index('    """The headers'):recipe.index("    name =")]
    exports = recipe[recipe.index("    exports_sources"):recipe.index("    no_copy_source")]
    set_version = recipe[recipe.index("    def set_version"):recipe.index("    def requirements")]
    recipe = replaced(
        recipe,
        ("# SPDX-License-Identifier: BSD-3-Clause\n", ""),
        ("import os\nimport re\n", "import os\n"),
        ("import copy, load, rmdir\n", "import copy, get, rmdir\n"),
        (docstring, ""),
        ('    license = "BSD-3-Clause"\n',
         f'    license = "BSD-3-Clause"\n    homepage = "{homepage}"\n'
         '    url = "https://github.com/conan-io/conan-center-index"\n'),
        (exports, ""),
        (set_version, ""),
        ("        cmake_layout(self)\n", '        cmake_layout(self, src_folder="src")\n'),
        ("    def package(self):",
         "    def source(self):\n"
         '        get(self, **self.conan_data["sources"][self.version], strip_root=True)\n\n'
         "    def package(self):"),
    )
    to = given.folder / "recipes/tessera"
    (to / "all").mkdir(parents=True, exist_ok=True)
    (to / "config.yml").write_text(f'versions:\n  "{version}":\n    folder: all\n')
    (to / "all/conandata.yml").write_text(
        f'sources:\n  "{version}":\n    url: "{link}"\n    sha256: "{checksum}"\n')
    (to / "all/conanfile.py").write_text(recipe)
    shutil.copytree(root / "test_package", to / "all/test_package", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("build", "CMakeUserPresets.json"))
    print(f"{to} is the recipe of tessera {version}")


main()
