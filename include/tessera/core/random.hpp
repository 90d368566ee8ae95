// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <string_view>

#include <tessera/core/config.hpp>
#include <tessera/core/hash.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The use of a random number: keeps streams with equal seeds, keys and steps apart.
enum class random_purpose : std::uint32_t {
  initial_values,
  initial_pattern,
  regrowth,
  dropout,
  batches,
  sampling,
  test,
  rounding,
  masking,
  signs,
  noise,
  new_blocks,
  repeated_layers
};

/// A number that tells random choices of one purpose apart: of a parameter the content_hash of its name in
/// the model, such as "block.3.mlp.up.weight".
struct random_key {
  std::uint64_t value = 0;

  constexpr random_key() = default;
  constexpr random_key(std::uint64_t number) : value(number) {}
  template <std::convertible_to<std::string_view> Text>
  constexpr random_key(Text const& name) : value(content_hash(name)) {}

  friend constexpr bool operator==(random_key, random_key) = default;
};

/// A stream of random numbers addressed by a counter: the i-th number is a function of the key and i alone,
/// so a run can be resumed, replayed, or spread over threads and machines without its bits changing. The
/// generator is SplitMix64 (Steele, Lea, Flood 2014, fig. 15) read at position i.
class random_stream {
 public:
  constexpr random_stream(std::uint64_t seed, random_purpose purpose, random_key of = {},
                          std::uint64_t step = 0)
      : key_(mix(mix(mix(mix(seed) ^ static_cast<std::uint64_t>(purpose)) ^ of.value) ^ step)) {}

  /// The key itself, for kernels that derive their own numbers from it.
  constexpr std::uint64_t key() const { return key_; }

  /// 64 random bits.
  constexpr std::uint64_t bits(std::uint64_t i) const { return mix(key_ + i * 0x9e3779b97f4a7c15u); }

  /// Uniform in [0, 1), in steps of 2^-53.
  constexpr double uniform(std::uint64_t i) const { return static_cast<double>(bits(i) >> 11) * 0x1p-53; }

  /// Uniform in 0 … n-1, n ≥ 1. The bias of the multiplication is below n / 2^64.
  constexpr std::uint64_t below(std::uint64_t i, std::uint64_t n) const {
    return static_cast<std::uint64_t>((static_cast<wide>(bits(i)) * n) >> 64);
  }

  /// Standard normal (Box and Muller 1958).
  double normal(std::uint64_t i) const {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(2 * i)));
    return radius * std::cos(6.283185307179586 * uniform(2 * i + 1));
  }

 private:
  __extension__ using wide = unsigned __int128;

  static constexpr std::uint64_t mix(std::uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t key_;
};

}}  // namespace tessera::TESSERA_ISA
