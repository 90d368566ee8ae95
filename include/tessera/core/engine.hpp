// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <initializer_list>

#include <tessera/core/config.hpp>
#include <tessera/core/cpu.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The instruction that multiplies and adds in the register loop of a product.
enum class engine : std::uint8_t {
  fma,    // a number of the accumulator in each lane; narrower elements are widened before
  pairs,  // two neighbours of a narrow element in each lane, by one instruction
  quads,  // four neighbours of int8 in each lane, summed in integers of 32 bits, by one instruction (VNNI)
  amx,    // blocks of bfloat16, float16 or int8, by the matrix unit of Intel CPUs
};

constexpr char const* name_of(engine which) {
  constexpr char const* names[] = {"fma", "pairs", "quads", "amx"};
  return names[int(which)];
}

/// Some engines, of which `fma` always is one.
class engine_set {
 public:
  constexpr engine_set() = default;
  constexpr engine_set(std::initializer_list<engine> those) {
    for (const engine which : those) allow(which);
  }
  constexpr bool allows(engine which) const { return (allowed_ & bit(which)) != 0; }
  friend constexpr bool operator==(engine_set, engine_set) = default;
  constexpr void allow(engine which) { allowed_ |= bit(which); }
  /// Takes one out, but for `fma`.
  constexpr void forbid(engine which) {
    if (which != engine::fma) allowed_ &= ~bit(which);
  }

 private:
  static constexpr unsigned bit(engine which) { return 1u << int(which); }

  unsigned allowed_ = bit(engine::fma);
};

/// Multiply-adds of a narrow element in the time of one of float.
///   fma     1: widening is hidden behind the multiplications (Zen 4)
///   pairs   2 where the instruction is issued as often as an FMA: measured on Zen 4 and Zen 5, assumed of
///           families that were not measured. On Intel 0.5: Sapphire and Granite Rapids issue it a quarter
///           as often (117 of 237 GFLOP/s a core), and widened products are 1.2 to 1.35 times as fast
///   quads   4: four multiply-adds in each lane, issued as often as an FMA
///   amx     13, of which a product of blocks of 16x16 sees 5, one of 8x8 2.6, one of 4x4 1.4: measured on
///           Granite Rapids
constexpr double rate_of(engine which, cpu_family family) {
  if (which == engine::fma) return 1;
  if (which == engine::amx) return 13;
  if (which == engine::quads) return 4;
  return family == cpu_family::intel ? 0.5 : 2;
}

/// The fastest engine that is allowed, for products whose operands are of one narrow element.
///   compiled   engines for which there is code
constexpr engine fastest_engine(cpu_family family, engine_set allowed, engine_set compiled) {
  engine fastest = engine::fma;
  for (const engine which : {engine::pairs, engine::quads, engine::amx})
    if (allowed.allows(which) && compiled.allows(which) && rate_of(which, family) > rate_of(fastest, family))
      fastest = which;
  return fastest;
}

/// The maker of a CPU and the engines that the CPU has: both decide which engine multiplies.
struct cpu_model {
  char const* name;  // as in -march
  cpu_family family;
  engine_set engines;
};

inline constexpr cpu_model cpu_models[] = {
    {"znver3", cpu_family::amd, {}},
    {"znver4", cpu_family::amd, {engine::pairs, engine::quads}},
    {"skylake-avx512", cpu_family::intel, {}},
    {"icelake-server", cpu_family::intel, {engine::quads}},
    {"cooperlake", cpu_family::intel, {engine::pairs, engine::quads}},
    {"sapphirerapids", cpu_family::intel, {engine::pairs, engine::quads, engine::amx}},
};

}}  // namespace tessera::TESSERA_ISA
