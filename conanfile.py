# SPDX-License-Identifier: BSD-3-Clause
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.files import copy, load
from conan.tools.scm import Version

required_conan_version = ">=2.0"


class Tessera(ConanFile):
    """The headers of this checkout as a package: `conan create . --build=missing`."""

    name = "tessera"
    description = "Block-sparse tensors in C++20, and sparse pre-training on ordinary CPUs"
    license = "BSD-3-Clause"
    topics = ("sparse", "block-sparse", "tensor", "simd", "transformer", "training", "header-only")
    package_type = "header-library"
    implements = ["auto_header_only"]
    settings = "os", "arch", "compiler", "build_type"
    exports_sources = "include/*", "cmake/*.cmake", "LICENSE"
    no_copy_source = True

    def set_version(self):
        """The version is written once, in core/config.hpp."""
        config = load(self, os.path.join(self.recipe_folder, "include", "tessera", "core", "config.hpp"))
        self.version = ".".join(re.findall(r"define TESSERA_VERSION_\w+ (\d+)", config))

    def requirements(self):
        self.requires("xsimd/[>=12.1 <15]", transitive_headers=True)

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch != "x86_64":
            raise ConanInvalidConfiguration(
                f"tessera runs on Linux, x86_64, not on {self.settings.os}, {self.settings.arch}")
        compiler = self.settings.compiler
        oldest = {"gcc": "12", "clang": "16"}.get(str(compiler))
        if oldest is None or Version(compiler.version) < oldest:
            raise ConanInvalidConfiguration(
                f"tessera needs gcc >= 12 or clang >= 16, but the profile has {compiler} {compiler.version}: "
                "give another one, -s compiler=gcc -s compiler.version=12")
        standard = compiler.get_safe("cppstd")
        if standard and int(str(standard).removeprefix("gnu")) not in (20, 23, 26):
            raise ConanInvalidConfiguration(
                f"tessera needs C++20, but the profile has compiler.cppstd={standard}: give -s compiler.cppstd=20")

    def package(self):
        copy(self, "*.hpp", os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))
        for module in self._cmake_modules:
            copy(self, module, self.source_folder, self.package_folder)
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    @property
    def _cmake_modules(self):
        """What an installed CMake package has besides headers: tessera::native, and tessera_add_variants."""
        return [os.path.join("cmake", name) for name in ("tessera-native.cmake", "tessera-variants.cmake")]

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "tessera")
        self.cpp_info.set_property("cmake_target_name", "tessera::tessera")
        self.cpp_info.set_property("cmake_build_modules", self._cmake_modules)
        self.cpp_info.set_property("pkg_config_name", "tessera")
        self.cpp_info.builddirs = ["cmake"]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        self.cpp_info.system_libs = ["pthread"]
