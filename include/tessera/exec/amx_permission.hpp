// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>

#if defined(TESSERA_HARDWARE_AMX) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// Whether this process may use the CPU's matrix unit, for which it asks the system, once: Linux grants it to
/// all threads of a process until it executes another program, and from then on refuses signal stacks too
/// small for the unit's registers (8 KB more). False where the code was not compiled for one; true for one in
/// plain C++.
bool amx_permitted();

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY bool amx_permitted() {
#if defined(TESSERA_EMULATED_AMX)
  return true;
#elif defined(TESSERA_HARDWARE_AMX) && defined(__linux__)
  static const bool permitted = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned int8_bit = 1u << 25, tile_bit = 1u << 24, bfloat16_bit = 1u << 22,
                       needed = int8_bit | tile_bit | bfloat16_bit;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & needed) != needed) return false;
#ifdef TESSERA_HARDWARE_AMX_FP16
    constexpr unsigned float16_bit = 1u << 21;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & float16_bit)) return false;
#endif
    // Some virtual machines announce AMX without a palette.
    if (!__get_cpuid_count(0x1d, 0, &a, &b, &c, &d) || a < 1) return false;
    unsigned low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    constexpr unsigned states = 3u << 17;  // their configuration, their data
    if ((low & states) != states) return false;
    constexpr long ask_permission = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, ask_permission, tile_data) == 0;
  }();
  return permitted;
#else
  return false;
#endif
}

#endif

}}}  // namespace tessera::TESSERA_ISA::exec
