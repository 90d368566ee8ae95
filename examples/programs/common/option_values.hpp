// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/io/parse_number.hpp>

#include "format.hpp"

namespace programs {

/// Insertions, deletions and replacements that turn one word into another (Levenshtein 1966).
inline std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t replaced = diagonal + (from[i] != to[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// The table of options describes a value by an interval, "(0, 1]", by words to choose from, "char|byte", or,
// where any text will do, by the meaning of the text in capitals, "FILE".

inline bool is_interval(std::string_view values) { return values.find(',') != values.npos; }

inline bool inside(std::string_view interval, double x) {
  const auto bound = [&](std::size_t at) {
    double value = 0;
    tessera::io::parse_number(interval.substr(at), value);
    return value;
  };
  const double low = bound(1), high = bound(interval.find(',') + 2);
  return (x > low || (x == low && interval.front() == '[')) &&
         (x < high || (x == high && interval.back() == ']'));
}

inline bool among(std::string_view words, std::string_view word) {
  if (words.empty() || (words.front() >= 'A' && words.front() <= 'Z')) return true;
  for (std::size_t end = 0; end != words.npos; words.remove_prefix(end == words.npos ? 0 : end + 1)) {
    end = words.find('|');
    if (words.substr(0, end) == word) return true;
  }
  return false;
}

// Each reads all of a text as a value, and returns false if it is none.

inline bool read_value(std::string_view text, std::string& value) { return value = text, true; }

inline bool read_value(std::string_view text, bool& value) {
  value = text == "true";
  return value || text == "false";
}

template <class Number> bool read_value(std::string_view text, Number& value) {
  return tessera::io::is_number(text, value);
}

/// A number, or a fraction: 0.0625, 1/16.
inline bool read_value(std::string_view text, double& value) {
  const std::size_t bar = text.find('/');
  double divisor = 1;
  if (bar != text.npos && (!read_value<double>(text.substr(bar + 1), divisor) || !(divisor > 0)))
    return false;
  if (!read_value<double>(text.substr(0, bar), value)) return false;
  value /= divisor;
  return true;
}

/// Seconds, or parts with units: 90, 90s, 3m, 1h30m.
inline bool read_value(std::string_view text, seconds& value) {
  if (double plain = 0; read_value<double>(text, plain)) return value = seconds(plain), true;
  value = {};
  while (!text.empty()) {
    double part = 0;
    const std::size_t digits = tessera::io::parse_number(text, part);
    const char unit = digits < text.size() ? text[digits] : ' ';
    if (digits == 0 || part < 0 || (unit != 's' && unit != 'm' && unit != 'h')) return false;
    value += seconds(part * (unit == 's' ? 1 : unit == 'm' ? 60 : 3600));
    text.remove_prefix(digits + 1);
  }
  return true;
}

/// Reads a value that has to be one of `values`; returns "", or else the words for a right value.
template <class T> std::string read_value_of(std::string_view values, std::string_view text, T& value) {
  constexpr bool is_time = std::is_same_v<T, seconds>, is_number = std::is_arithmetic_v<T>;
  const auto allowed = [&] {
    if constexpr (is_time || is_number)
      if (is_interval(values)) return inside(values, seconds(value).count());
    return among(values, text);
  };
  if (read_value(text, value) && allowed()) return "";
  if (std::is_same_v<T, bool>) return "true or false";
  const char* kind = !is_interval(values)    ? "one of "
                     : is_time               ? "a time, such as 90s, 3m or 1h30m, in "
                     : std::is_integral_v<T> ? "a whole number in "
                                             : "a number in ";
  return kind + std::string(values);
}

}  // namespace programs
