// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string>
#include <string_view>

namespace programs {

using seconds = std::chrono::duration<double>;

/// `x` with `digits` digits after the point, 2.4519; or, before a power of ten, 9.8e-04; or with at most
/// `digits` significant ones, 0.1. No locale changes it.
inline std::string printed(double x, std::chars_format format, int digits) {
  std::array<char, 400> text;  // a double has up to 309 digits before the point
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), x, format, digits).ptr};
}
inline std::string fixed(double x, int digits) { return printed(x, std::chars_format::fixed, digits); }
inline std::string scientific(double x, int digits) {
  return printed(x, std::chars_format::scientific, digits);
}
inline std::string number(double x, int digits = 6) { return printed(x, std::chars_format::general, digits); }

/// `x` ≥ 0 with three significant digits and a unit prefix of thousands: 950, 12.3k, 4M.
inline std::string quantity(double x) {
  const char* prefix = "\0kMGTPE";
  for (; x >= 999.5 && *(prefix + 1) != '\0'; ++prefix) x /= 1000;
  return number(x, 3) + std::string(*prefix != '\0', *prefix);
}

/// A time ≥ 0: 42s, 3m05s, 2h07m.
inline std::string duration_text(seconds time) {
  const auto whole = std::llround(time.count());
  const auto two_digits = [](long long n) { return (n < 10 ? "0" : "") + std::to_string(n); };
  if (whole < 60) return std::to_string(whole) + "s";
  if (whole < 3600) return std::to_string(whole / 60) + "m" + two_digits(whole % 60) + "s";
  return std::to_string(whole / 3600) + "h" + two_digits(whole / 60 % 60) + "m";
}

/// Characters of a text.
inline std::size_t text_width(std::string_view text) {
  std::size_t characters = 0;
  for (const char c : text) characters += (c & 0xC0) != 0x80;
  return characters;
}

enum class padding { behind, before };

/// `text` with as many spaces as fill it up to a width in characters.
inline std::string padded(std::string const& text, std::size_t to, padding where = padding::behind) {
  const std::string spaces(to > text_width(text) ? to - text_width(text) : 0, ' ');
  return where == padding::behind ? text + spaces : spaces + text;
}

}  // namespace programs
