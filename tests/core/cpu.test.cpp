// SPDX-License-Identifier: BSD-3-Clause
#include <string_view>

#include <doctest/doctest.h>

#include <tessera/core/cpu.hpp>

namespace cpu_test {

using namespace tessera;

// That an instruction set is refused cannot be seen where these tests run, since the CPU has it. An emulated
// CPU shows it in tests/consume/older_cpu.cpp.
TEST_CASE("require_compiled_instruction_set: a machine that runs this code is accepted") {
  CHECK(std::string_view(missing_cpu_feature()) == "");
  CHECK_NOTHROW(require_compiled_instruction_set());
}

TEST_CASE("instruction set: its name says which registers the compiler may use") {
#if defined(TESSERA_EMULATED_AMX)
  CHECK(std::string_view(TESSERA_ISA_NAME) == "with_emulated_amx");
#elif defined(__AVX512BF16__) && defined(__AMX_BF16__) && defined(__AMX_FP16__)
  CHECK(std::string_view(TESSERA_ISA_NAME) == "avx512_amx_fp16");
#elif defined(__AVX512BF16__) && defined(__AMX_BF16__)
  CHECK(std::string_view(TESSERA_ISA_NAME) == "avx512_amx");
#elif defined(__AVX512F__) && defined(__AVX512BF16__)
  CHECK(std::string_view(TESSERA_ISA_NAME) == "avx512_bf16");
#elif defined(__AVX512F__)
  CHECK(std::string_view(TESSERA_ISA_NAME) == "avx512");
#elif defined(__AVX2__)
  CHECK(std::string_view(TESSERA_ISA_NAME) == "avx2");
#elif defined(__aarch64__)
  CHECK(std::string_view(TESSERA_ISA_NAME) == "neon");
#else
  CHECK(std::string_view(TESSERA_ISA_NAME) == "baseline");
#endif
}

}  // namespace cpu_test
