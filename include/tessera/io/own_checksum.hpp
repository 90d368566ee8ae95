// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include <tessera/core/config.hpp>
#include <tessera/io/checksum.hpp>

// A JSON text that holds a checksum of itself, in 16 digits that count as zeros. Whatever else is wrong with
// the text, whether it was changed can be asked before it is parsed.

namespace tessera { inline namespace TESSERA_ISA { namespace io { namespace detail {

/// A checksum as text, which is always as long.
std::string checksum_text(std::uint64_t value);

/// The member that has the checksum, and the text before its digits; in a string the quotes would be escaped.
inline constexpr std::string_view own_checksum_key = "tessera.header",
                                  before_own_checksum = "\"tessera.header\":\"";

/// Where the digits stand, or npos if there are none.
std::size_t own_checksum_at(std::string_view text);

/// What the digits at `at` should be.
std::string own_checksum(std::string text, std::size_t at);

#ifdef TESSERA_BODY

TESSERA_BODY std::string checksum_text(std::uint64_t value) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
  return digits;
}

TESSERA_BODY std::size_t own_checksum_at(std::string_view text) {
  const std::size_t found = text.find(before_own_checksum), at = found + before_own_checksum.size();
  return found == text.npos || text.size() - at < checksum_text(0).size() ? text.npos : at;
}

TESSERA_BODY std::string own_checksum(std::string text, std::size_t at) {
  const std::string zeros = checksum_text(0);
  text.replace(at, zeros.size(), zeros);
  checksum sum;
  sum.add(std::as_bytes(std::span(text)));
  return checksum_text(sum.value());
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::io::detail
