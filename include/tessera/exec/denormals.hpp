// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// While it lives, this thread takes denormal numbers for zero, as operands and as results: arithmetic on
/// them can be a hundred times slower, and optimizer moments decay into them. Restores the earlier mode.
class flush_denormals {
 public:
  flush_denormals() : before_(read()) { write(before_ | flush_bits); }
  ~flush_denormals() { write(before_); }
  flush_denormals(flush_denormals const&) = delete;
  flush_denormals& operator=(flush_denormals const&) = delete;

 private:
#if defined(__SSE__)
  using control = unsigned;
  static constexpr control flush_bits = 0x8040;  // MXCSR: flush to zero (bit 15), denormals are zero (bit 6)
  static control read() { return __builtin_ia32_stmxcsr(); }
  static void write(control value) { __builtin_ia32_ldmxcsr(value); }
#elif defined(__aarch64__)
  using control = std::uint64_t;
  static constexpr control flush_bits = control{1} << 24;  // FPCR.FZ
  static control read() {
    control value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void write(control value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
  using control = unsigned;
  static constexpr control flush_bits = 0;
  static control read() { return 0; }
  static void write(control) {}
#endif

  control before_;
};

}}}  // namespace tessera::TESSERA_ISA::exec
