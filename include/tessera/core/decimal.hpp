// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

#include <tessera/core/config.hpp>

// Numbers as text, whatever the locale. std::to_chars would do, but its header takes long to compile, and
// every header includes this one.

namespace tessera { inline namespace TESSERA_ISA {

/// `number` with at most `digits` significant digits, as "%g" of printf writes it.
std::string general_text(double number, int digits);
/// `number` with `digits` digits after the point, as "%f" of printf writes it.
std::string fixed_text(double number, int digits);

#ifdef TESSERA_BODY

namespace detail {

/// The text that printf wrote, with a point where the locale has another character, of one byte or several.
/// In place: a string that grows by characters takes long to compile.
TESSERA_COLD TESSERA_BODY std::string with_point(char* printed) {
  char* end = printed;
  for (char const* next = printed; *next; ++next) {
    const char c = *next;
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+')
      *end++ = c;
    else if (end == printed || end[-1] != '.')
      *end++ = '.';
  }
  return std::string(printed, std::size_t(end - printed));
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY std::string general_text(double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*g", digits, number);
  return detail::with_point(text);
}

TESSERA_COLD TESSERA_BODY std::string fixed_text(double number, int digits) {
  char text[400];  // a double has up to 309 digits before the point
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return detail::with_point(text);
}

#endif

}}  // namespace tessera::TESSERA_ISA
