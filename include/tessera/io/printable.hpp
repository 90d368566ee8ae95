// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <tessera/core/config.hpp>
#include <tessera/io/text.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// A text as a screen and a log may show it, whoever wrote it: control characters (U+0000 … U+001F, U+007F …
/// U+009F) and bytes that are not UTF-8 become \x1b and the like; line breaks, tabs and all other characters
/// stay. A terminal obeys none of it, and no program takes a log for binary data.
TESSERA_COLD inline std::string printable(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string shown;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const bool escaped = length == 0 || byte(0) == 0x7f ||
                         (byte(0) < 0x20 && text[0] != '\n' && text[0] != '\t') ||
                         (length == 2 && byte(0) == 0xc2 && byte(1) < 0xa0);
    const std::string_view character = text.substr(0, length == 0 ? 1 : length);
    text.remove_prefix(character.size());
    for (const char c : character) {
      if (!escaped) {
        shown += c;
        continue;
      }
      const auto value = static_cast<unsigned char>(c);
      shown += {'\\', 'x', digits[value / 16], digits[value % 16]};
    }
  }
  return shown;
}

}}}  // namespace tessera::TESSERA_ISA::io
