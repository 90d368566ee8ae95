// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/cpu.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The instruction that multiplies and adds in the register loop of a product.
enum class engine : std::uint8_t {
  fma,    // a number of the accumulator in each lane; narrower elements are widened before
  pairs,  // two neighbours of a narrow element in each lane, by one instruction
};

constexpr char const* name_of(engine which) { return which == engine::pairs ? "pairs" : "fma"; }

/// The engines that may be used. `fma` always may.
class engine_set {
 public:
  constexpr bool allows(engine which) const { return which == engine::fma || allows_pairs_; }
  /// Takes one out. Forbidding `fma` changes nothing: `fma` is left when all others are forbidden.
  constexpr void forbid(engine which) {
    if (which == engine::pairs) allows_pairs_ = false;
  }

 private:
  bool allows_pairs_ = true;
};
inline constexpr engine_set all_engines;

/// Multiply-adds of a narrow element in the time of one of float.
///   fma     1: widening is hidden behind the multiplications (Zen 4)
///   pairs   2 where the instruction is issued as often as an FMA: measured on Zen 4 and Zen 5, assumed of
///           families that were not measured. On Intel 0.5: Sapphire and Granite Rapids issue it a quarter
///           as often (117 of 237 GFLOP/s a core), and widened products are 1.2 to 1.35 times as fast
constexpr double rate_of(engine which, cpu_family family) {
  if (which == engine::fma) return 1;
  return family == cpu_family::intel ? 0.5 : 2;
}

/// The engine for products whose operands are of one narrow element, where both are compiled in.
constexpr engine faster_engine(cpu_family family, engine_set allowed) {
  return allowed.allows(engine::pairs) && rate_of(engine::pairs, family) > rate_of(engine::fma, family)
             ? engine::pairs
             : engine::fma;
}

}}  // namespace tessera::TESSERA_ISA
