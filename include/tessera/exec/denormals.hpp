// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// While it lives, this thread takes denormal numbers for zero, as operands and as results: arithmetic on
/// them can be a hundred times slower, and optimizer moments decay into them. All else of its arithmetic is
/// as a program finds it at its start, so that a run gives the same bits on every thread: results are rounded
/// to nearest (whatever fesetround said before), and none raises a signal (feenableexcept). Restores the
/// earlier mode.
class flush_denormals {
 public:
  flush_denormals() : before_(read()) { write(flushing); }
  ~flush_denormals() { write(before_); }
  flush_denormals(flush_denormals const&) = delete;
  flush_denormals& operator=(flush_denormals const&) = delete;

 private:
#if defined(__SSE__)
  using control = unsigned;
  // MXCSR: flush to zero (bit 15), denormals are zero (bit 6), all exceptions masked (bits 7 to 12)
  static constexpr control flushing = 0x9fc0;
  static control read() { return __builtin_ia32_stmxcsr(); }
  static void write(control value) { __builtin_ia32_ldmxcsr(value); }
#elif defined(__aarch64__)
  using control = std::uint64_t;
  static constexpr control flushing = control{1} << 24;  // FPCR.FZ alone
  static control read() {
    control value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void write(control value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
  using control = unsigned;
  static constexpr control flushing = 0;
  static control read() { return 0; }
  static void write(control) {}
#endif

  control before_;
};

}}}  // namespace tessera::TESSERA_ISA::exec
