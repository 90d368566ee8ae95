# SPDX-License-Identifier: BSD-3-Clause
import os

from conan import ConanFile
from conan.tools.files import copy


class Xsimd(ConanFile):
    """The system's xsimd as a package, for a machine without network. XSIMD_INCLUDE is where its headers are."""

    name = "xsimd"
    package_type = "header-library"
    implements = ["auto_header_only"]
    settings = "os", "arch", "compiler", "build_type"

    def package(self):
        headers = os.environ.get("XSIMD_INCLUDE", "/usr/include")
        copy(self, "xsimd/*.hpp", headers, os.path.join(self.package_folder, "include"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "xsimd")
        self.cpp_info.set_property("cmake_target_name", "xsimd")
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
