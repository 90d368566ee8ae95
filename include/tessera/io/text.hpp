// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// Bytes of the UTF-8 character that `text` begins with, or 0 if it begins with none (Unicode 15, table 3-7).
inline std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(i < text.size() ? text[i] : 0); };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned lead = byte(0);
  if (text.empty()) return 0;
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return follows(1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef)
    return follows(1, lead == 0xe0 ? 0xa0 : 0x80, lead == 0xed ? 0x9f : 0xbf) && follows(2) ? 3 : 0;
  if (lead >= 0xf0 && lead <= 0xf4)
    return follows(1, lead == 0xf0 ? 0x90 : 0x80, lead == 0xf4 ? 0x8f : 0xbf) && follows(2) && follows(3) ? 4
                                                                                                          : 0;
  return 0;
}

/// FNV-1a (Fowler, Noll, Vo) over the bytes of `text`, continuing from the hash `before` of the preceding
/// text.
constexpr std::uint64_t content_hash(std::string_view text, std::uint64_t before = 0xcbf29ce484222325u) {
  for (const char c : text) before = (before ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return before;
}

/// `, but "a", "b"`: some names of those that a map has, for an error.
inline std::string other_names(auto const& map) {
  std::string some;
  for (auto const& [name, value] : map)
    if (some.size() <= 200) some += (some.empty() ? ", but \"" : ", \"") + name + "\"";
  return some;
}

}}}  // namespace tessera::TESSERA_ISA::io
