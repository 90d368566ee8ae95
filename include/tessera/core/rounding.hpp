// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// One of the two neighbours of a value among elements E, which are narrower than a float, by the lower 16 of
/// some random bits: the one above it in absolute value as often as the value is nearer to it, so that the
/// mean is the value itself. Exact values, infinities and not-a-numbers stay.
template <class E> constexpr E round_stochastically(float value, std::uint32_t random) = delete;

namespace detail {

/// A float on the same side as the double of every number that has at least two bits less than a float, and
/// of every middle between two of them: inexact ones end in a one (Boldo, Melquiond 2008, "round to odd").
constexpr float float_to_odd(double value) {
  const auto rounded = static_cast<float>(value);
  const double back = static_cast<double>(rounded);
  if (back == value || value != value) return rounded;
  const bool away_from_zero = value < 0 ? back < value : back > value;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(rounded) - away_from_zero) | 1);
}

}  // namespace detail
}}  // namespace tessera::TESSERA_ISA
