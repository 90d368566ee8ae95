// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/cpu.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/version.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/lane.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The compiler and the instruction set of a program, and an instruction of it that this CPU lacks:
/// `std::cout << build_info().text()`.
struct build_information {
  std::string version, instruction_set, missing_feature, compiler, xsimd;
  int register_bytes;
  bool multiplies_pairs;  // bfloat16 by an instruction of its own

  std::string text() const {
    return message("tessera ", version, ", compiled by ", compiler, " with xsimd ", xsimd, "\nfor ",
                   instruction_set, ", registers of ", register_bytes, " bytes, bfloat16 ",
                   multiplies_pairs ? "in pairs" : "widened", "\n",
                   missing_feature.empty()
                       ? "this CPU has all of it"
                       : message("this CPU lacks ", missing_feature, ": compile it with -march=native"),
                   "\n");
  }
};

TESSERA_COLD inline build_information build_info() {
#ifdef __clang__
  const char* const compiler = "clang " __clang_version__;
#else
  const char* const compiler = "g++ " __VERSION__;
#endif
  return {std::string(version),
          TESSERA_ISA_NAME,
          missing_cpu_feature(),
          compiler,
          message(XSIMD_VERSION_MAJOR, ".", XSIMD_VERSION_MINOR, ".", XSIMD_VERSION_PATCH),
          int(sizeof(simd::reg<float>)),
          simd::multiplies<simd::pair<bfloat16>, simd::native>};
}

}}  // namespace tessera::TESSERA_ISA
