// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>
#include <cstdlib>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// Says to standard error, once a process, that this program was compiled without optimisation, or for any
/// x86-64 CPU where this one has AVX2: mistakes that cost a thousand times the time, and five times the time,
/// and that nothing else shows. Says nothing where the macro or the environment variable TESSERA_QUIET is
/// defined.
TESSERA_COLD inline void warn_of_slow_build() {
#ifndef TESSERA_QUIET
  static const bool said = [] {
    if (std::getenv("TESSERA_QUIET")) return false;
#if !defined(__OPTIMIZE__) && !defined(TESSERA_COMPILED)  // the library's own code is optimised
    std::fputs(
        "tessera: this program was compiled without optimisation, which makes it a thousand times "
        "slower: add -O3 (TESSERA_QUIET=1 silences this)\n",
        stderr);
#endif
#if defined(__x86_64__) && !defined(__AVX2__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      std::fputs(
          "tessera: this program was compiled for any x86-64 CPU, which makes it several times slower "
          "than for this one: add -march=native (TESSERA_QUIET=1 silences this)\n",
          stderr);
#endif
    return true;
  }();
  static_cast<void>(said);
#endif
}

}}}  // namespace tessera::TESSERA_ISA::exec
