# SPDX-License-Identifier: BSD-3-Clause
from spack.package import *


class Tessera(CMakePackage):
    """Block-sparse tensors in C++20, and sparse pre-training on ordinary CPUs."""

    license("BSD-3-Clause")

    version("0.1.0")  # of a checkout: `spack dev-build tessera@0.1.0`, until there is a public address

    depends_on("cxx", type="build")
    depends_on("cmake@3.23:", type="build")
    depends_on("xsimd@12.1:14")

    conflicts("%gcc@:11", msg="tessera needs GCC 12 or later")
    conflicts("%clang@:15", msg="tessera needs Clang 16 or later")
    requires("platform=linux target=x86_64:", msg="tessera runs on Linux, x86-64")
