// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA {

namespace detail {
/// "major.minor.patch", of numbers below 100.
struct version_text {
  char text[9] = {};
  unsigned size = 0;

  constexpr version_text() {
    add(TESSERA_VERSION_MAJOR, '.');
    add(TESSERA_VERSION_MINOR, '.');
    add(TESSERA_VERSION_PATCH, '\0');
    --size;
  }

 private:
  constexpr void add(int number, char end) {
    if (number >= 10) text[size++] = char('0' + number / 10);
    text[size++] = char('0' + number % 10);
    text[size++] = end;
  }
};
inline constexpr version_text version_of_library{};
}  // namespace detail

/// The version of the library, by semantic versioning: "0.1.0". Its numbers are TESSERA_VERSION_MAJOR, _MINOR
/// and _PATCH.
inline constexpr std::string_view version{detail::version_of_library.text, detail::version_of_library.size};

}}  // namespace tessera::TESSERA_ISA
