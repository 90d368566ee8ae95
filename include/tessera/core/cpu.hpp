// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The maker of the CPU, on which the costs of instructions depend: for choices between equivalent kernels.
enum class cpu_family { amd, intel, other };

TESSERA_COLD inline cpu_family this_cpu_family() {
#if defined(__x86_64__) || defined(__i386__)
  if (__builtin_cpu_is("amd")) return cpu_family::amd;
  if (__builtin_cpu_is("intel")) return cpu_family::intel;
#endif
  return cpu_family::other;
}

/// The first feature this code was compiled for that this CPU lacks, or "" if it has them all.
TESSERA_COLD inline const char* missing_cpu_feature() {
#if defined(__x86_64__) || defined(__i386__)
#define TESSERA_NEEDS(feature) \
  if (!__builtin_cpu_supports(feature)) return feature
#ifdef __AVX__
  TESSERA_NEEDS("avx");
#endif
#ifdef __AVX2__
  TESSERA_NEEDS("avx2");
#endif
#ifdef __FMA__
  TESSERA_NEEDS("fma");
#endif
#ifdef __AVX512F__
  TESSERA_NEEDS("avx512f");
#endif
#ifdef __AVX512BW__
  TESSERA_NEEDS("avx512bw");
#endif
#ifdef __AVX512DQ__
  TESSERA_NEEDS("avx512dq");
#endif
#ifdef __AVX512VL__
  TESSERA_NEEDS("avx512vl");
#endif
#ifdef __AVX512VBMI__
  TESSERA_NEEDS("avx512vbmi");
#endif
#ifdef __AVX512VBMI2__
  TESSERA_NEEDS("avx512vbmi2");
#endif
#ifdef __AVX512VNNI__
  TESSERA_NEEDS("avx512vnni");
#endif
#ifdef __AVXVNNI__
  TESSERA_NEEDS("avxvnni");
#endif
#ifdef __AVX512BF16__
  TESSERA_NEEDS("avx512bf16");
#endif
#undef TESSERA_NEEDS
#endif
  return "";
}

/// Throws machine_error if this code would end in an illegal instruction on this CPU. Its own code has no
/// strings, which might be copied by just these instructions.
TESSERA_COLD inline void require_compiled_instruction_set() {
  const char* const feature = missing_cpu_feature();
  if (*feature == '\0') return;
  char text[256];
  std::snprintf(
      text, sizeof text,
      "[context] this program was compiled for %s with %s, which this CPU lacks; compile it for this machine "
      "(-march=native) or for a common subset (-march=x86-64-v3)",
      TESSERA_ISA_NAME, feature);
  throw machine_error(text);
}

}}  // namespace tessera::TESSERA_ISA
