// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <charconv>
#include <string>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA {

namespace detail {
TESSERA_COLD inline std::string decimal_text(double number, std::chars_format format, int digits) {
  char text[400];  // a double has up to 309 digits before the point
  return {text, std::to_chars(text, text + sizeof text, number, format, digits).ptr};
}
}  // namespace detail

/// `number` with at most so many digits that count, as "%g" of printf writes it; with a point in every
/// locale.
TESSERA_COLD inline std::string general_text(double number, int digits) {
  return detail::decimal_text(number, std::chars_format::general, digits);
}
/// `number` with so many digits after the point, as "%f" of printf writes it; with a point in every locale.
TESSERA_COLD inline std::string fixed_text(double number, int digits) {
  return detail::decimal_text(number, std::chars_format::fixed, digits);
}

}}  // namespace tessera::TESSERA_ISA
