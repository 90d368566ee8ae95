// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

namespace detail {

/// Whether a decimal number, none of whose neighbours a type has, is too large and not too small: the place
/// of its first digit that is no zero, and its exponent together, are positive.
bool is_large(std::string_view decimal);

}  // namespace detail

/// Reads the number that a text begins with, in the notation of C without hexadecimal digits, in any locale.
/// Returns how many characters it has: 0 if there is none, or if it is an integer that Number does not hold;
/// `value` is changed only if there is one.
///   A floating-point number is the nearest one to the decimal number. Where that is beyond all numbers of
///   the type, it is infinite, and where it is nearer to zero than all of them, it is zero, with its sign:
///   the size of the decimal number decides, not the sign of its exponent (IEEE 754, 7.4 and 7.5).
template <class Number> std::size_t parse_number(std::string_view text, Number& value) {
  const bool plus = text.size() > 1 && text[0] == '+' && text[1] != '-';  // which std::from_chars refuses
  char const* const first = text.data() + plus;
  const auto [stop, failure] = std::from_chars(first, text.data() + text.size(), value);
  if constexpr (std::floating_point<Number>) {
    if (failure == std::errc::result_out_of_range) {
      value = detail::is_large({first, std::size_t(stop - first)}) ? std::numeric_limits<Number>::infinity()
                                                                   : Number(0);
      if (*first == '-') value = -value;
      return std::size_t(stop - text.data());
    }
  }
  return failure == std::errc{} ? std::size_t(stop - text.data()) : 0;
}

/// Whether all of a text is one number.
template <class Number> bool is_number(std::string_view text, Number& value) {
  return !text.empty() && parse_number(text, value) == text.size();
}

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY bool is_large(std::string_view decimal) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 4;
  std::int64_t place = 0;  // of the first digit: 0.1 has 0, 1 has 1, 0.01 has -1
  bool found = false, fraction = false;
  std::size_t i = 0;
  for (; i < decimal.size() && decimal[i] != 'e' && decimal[i] != 'E'; ++i) {
    if (decimal[i] == '.') {
      fraction = true;
    } else if (decimal[i] >= '0' && decimal[i] <= '9') {
      found |= decimal[i] != '0';
      place += fraction ? -std::int64_t(!found) : std::int64_t(found);
    }
  }
  std::int64_t exponent = 0;
  const bool negative = i + 1 < decimal.size() && decimal[i + 1] == '-';
  for (; i < decimal.size(); ++i)
    if (decimal[i] >= '0' && decimal[i] <= '9')
      exponent = std::min(most, exponent < most / 10 ? 10 * exponent + (decimal[i] - '0') : most);
  return place + (negative ? -exponent : exponent) > 0;
}

}  // namespace detail

#endif

}}}  // namespace tessera::TESSERA_ISA::io
