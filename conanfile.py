# SPDX-License-Identifier: BSD-3-Clause
import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir
from conan.tools.scm import Version

required_conan_version = ">=2.0"


class Tessera(ConanFile):
    """The headers of this checkout as a package: `conan create . --build=missing`. With `-o header_only=False` it has
    the target tessera::compiled, too, for the instruction set of the option march."""

    name = "tessera"
    description = "Block-sparse tensors in C++20, and sparse pre-training on ordinary CPUs"
    license = "BSD-3-Clause"
    topics = ("sparse", "block-sparse", "tensor", "simd", "transformer", "training", "header-only")
    implements = ["auto_header_only"]
    settings = "os", "arch", "compiler", "build_type"
    options = {"header_only": [True, False], "march": ["ANY"], "types": ["ANY"]}
    default_options = {"header_only": True, "march": "x86-64-v3", "types": "default"}
    exports_sources = ("include/*", "src/*", "cmake/*", "scripts/gdb/*", "packaging/address", "CMakeLists.txt",
                       "LICENSE")
    no_copy_source = True

    def set_version(self):
        """The version is written once, in core/config.hpp."""
        config = load(self, os.path.join(self.recipe_folder, "include", "tessera", "core", "config.hpp"))
        self.version = ".".join(re.findall(r"define TESSERA_VERSION_\w+ (\d+)", config))

    def requirements(self):
        self.requires("xsimd/[>=12.1 <15]", transitive_headers=True)

    def configure(self):
        self.package_type = "header-library" if self.options.header_only else "static-library"
        if self.options.header_only:  # these are of the compiled library
            self.options.rm_safe("march")
            self.options.rm_safe("types")

    def layout(self):
        cmake_layout(self)

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

    def generate(self):
        if self.options.header_only:
            return
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["TESSERA_BUILD_COMPILED"] = True
        toolchain.cache_variables["TESSERA_MARCH"] = str(self.options.march)
        if self.options.types != "default":
            toolchain.cache_variables["TESSERA_COMPILED_TYPES"] = str(self.options.types).replace(",", ";")
        toolchain.generate()

    def build(self):
        if not self.options.header_only:
            cmake = CMake(self)
            cmake.configure()
            cmake.build(target="tessera_compiled")

    def package(self):
        if not self.options.header_only:
            CMake(self).install(component="compiled")
            rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        copy(self, "*.hpp", os.path.join(self.source_folder, "include"), os.path.join(self.package_folder, "include"))
        copy(self, "tessera-*.cmake", os.path.join(self.source_folder, "cmake"), os.path.join(self.package_folder, "cmake"))
        # For other instruction sets.
        for source in ("bodies.cpp", "ipu_bodies.cpp", "once.cpp", "type.cpp.in", "tessera/compiled.hpp"):
            copy(self, source, os.path.join(self.source_folder, "src"), os.path.join(self.package_folder, "cmake", "src"))
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    @property
    def _cmake_modules(self):
        """What an installed CMake package has besides headers: tessera::native, and tessera_add_variants."""
        return [os.path.join("cmake", name) for name in ("tessera-native.cmake", "tessera-variants.cmake")]

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "tessera")
        self.cpp_info.set_property("cmake_build_modules", self._cmake_modules)
        self.cpp_info.set_property("pkg_config_name", "tessera")
        self.cpp_info.builddirs = ["cmake"]
        headers = self.cpp_info
        if not self.options.header_only:
            compiled = self.cpp_info.components["compiled"]
            compiled.set_property("cmake_target_name", "tessera::compiled")
            compiled.requires = ["headers"]
            compiled.includedirs = ["lib/tessera/include"]
            compiled.libs = ["tessera_compiled"]
            compiled.defines = ["TESSERA_COMPILED"]
            compiled.cxxflags = [f"-march={self.options.march}"]
            headers = self.cpp_info.components["headers"]
            headers.requires = ["xsimd::xsimd"]
        headers.set_property("cmake_target_name", "tessera::tessera")
        headers.bindirs = []
        headers.libdirs = []
        headers.system_libs = ["pthread"]
