// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/float16.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The properties of an element; its place in registers is simd::lane's.
///   accumulator      the type its sums are kept in
///   features_a_lane  consecutive features that share one lane of a SIMD register (a lane holds four bytes,
///                    or one double)
///   name             as in a safetensors file
template <class T> struct element_traits;

template <> struct element_traits<float> {
  using accumulator = float;
  static constexpr int features_a_lane = 1;
  static constexpr const char* name = "F32";
};

template <> struct element_traits<double> {
  using accumulator = double;
  static constexpr int features_a_lane = 1;
  static constexpr const char* name = "F64";
};

// Of 8 bits, declared so that the compiler's message names their header to a program without it.
class int8;
template <int ExponentBits> class float8;
using float8_e4m3 = float8<4>;
using float8_e5m2 = float8<5>;

/// A number that tensors can hold.
template <class T>
concept element = requires {
  element_traits<T>();  // float, double, bfloat16, float16; int8: #include <tessera/statements/quantised.hpp>
};

template <element T> using accumulator_t = typename element_traits<T>::accumulator;

static_assert(element<float> && element<double> && element<bfloat16> && element<float16> &&
              !element<std::int32_t>);

/// The largest relative error of a number rounded to T.
template <element T>
inline constexpr double unit_roundoff = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;

/// Where a feature of a token stands in its panel, in elements: feature by feature, but for the features that
/// share a lane, which stand together.
template <element T> constexpr std::int64_t place_in_panel(std::int64_t feature, std::int64_t token) {
  constexpr int group = element_traits<T>::features_a_lane;
  if constexpr (group == 1) return feature * panel_tokens + token;
  return feature / group * (group * panel_tokens) + token * group + feature % group;
}

}}  // namespace tessera::TESSERA_ISA
