// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

#include <tessera/core/config.hpp>
#include <tessera/io/text.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// A text as a screen and a log may show it, whoever wrote it: control characters (U+0000 … U+001F, U+007F …
/// U+009F) and bytes that are not UTF-8 become \x1b and the like; line breaks, tabs and all other characters
/// stay. A terminal obeys none of it, and no program takes a log for binary data.
std::string printable(std::string_view text);

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    if (text[0] == '\n' || text[0] == '\t') {
      shown += text[0];
      text.remove_prefix(1);
    } else {
      detail::move_printable(text, shown);
    }
  }
  return shown;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::io
