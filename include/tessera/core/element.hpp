// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>

#include <tessera/core/config.hpp>

namespace tessera::inline TESSERA_ISA {

/// What the library needs to know about a number it stores.
///   accumulator      the type its sums are kept in
///   features_a_lane  consecutive features that share one lane of a SIMD register (a lane holds four bytes,
///   or
///                    one double)
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

/// A number that tensors can hold.
template <class T>
concept element = requires { typename element_traits<T>::accumulator; };

template <element T> using accumulator_t = typename element_traits<T>::accumulator;

static_assert(element<float> && element<double> && !element<std::int32_t>);

}  // namespace tessera::inline TESSERA_ISA
