// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// Bytes of the UTF-8 character that `text` begins with, or 0 if it begins with none (Unicode 15, table 3-7).
std::size_t utf8_length(std::string_view text);

/// A letter A … Z as a … z, and any other byte as it is, in every locale; std::tolower may have another i
/// (Turkish).
constexpr char lower_case(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

namespace detail {
/// Moves the first character of a text to the end of `out`: control characters (U+0000 … U+001F, U+007F …
/// U+009F) and bytes that are not UTF-8 as \x1b and the like.
void move_printable(std::string_view& text, std::string& out);
}  // namespace detail

/// Text of a file for an error: at most 100 characters of it and then an ellipsis. Control characters and
/// bytes that are not UTF-8 are escaped, so that a screen shows them and does not obey them.
std::string excerpt(std::string_view text);
/// The same between quotation marks.
std::string in_quotes(std::string_view text);

/// The first of some names, `"a", "b", …`, for an error: as many as a line has room for.
///   text_of   the text of one
TESSERA_COLD inline std::string some_of(auto const& all, auto&& text_of) {
  std::string some;
  for (auto const& one : all) {
    if (some.size() > 100) return some + ", …";
    some += (some.empty() ? "" : ", ") + text_of(one);
  }
  return some;
}
/// `, but "a", "b"`: some of the names that a map has, for an error.
inline std::string other_names(auto const& map) {
  const std::string some = some_of(map, [](auto const& member) { return in_quotes(member.first); });
  return some.empty() ? some : ", but " + some;
}

#ifdef TESSERA_BODY

TESSERA_BODY std::size_t utf8_length(std::string_view text) {
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

namespace detail {

TESSERA_COLD TESSERA_BODY void move_printable(std::string_view& text, std::string& out) {
  constexpr std::string_view hex = "0123456789abcdef";
  const std::size_t length = utf8_length(text);
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const bool escaped =
      length == 0 || byte(0) < 0x20 || byte(0) == 0x7f || (length == 2 && byte(0) == 0xc2 && byte(1) < 0xa0);
  const std::size_t bytes = std::max<std::size_t>(length, 1);
  if (!escaped) out += text.substr(0, bytes);
  for (std::size_t i = 0; escaped && i < bytes; ++i)
    ((out += "\\x") += hex[byte(i) / 16]) += hex[byte(i) % 16];
  text.remove_prefix(bytes);
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY std::string excerpt(std::string_view text) {
  std::string out;
  for (int shown = 0; !text.empty(); ++shown) {
    if (shown == 100) return out + "…";
    detail::move_printable(text, out);
  }
  return out;
}

TESSERA_COLD TESSERA_BODY std::string in_quotes(std::string_view text) { return "\"" + excerpt(text) + "\""; }

#endif

}}}  // namespace tessera::TESSERA_ISA::io
