// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <tessera/core/error.hpp>
#include <tessera/tokenizers/expression.hpp>

using namespace tessera;

// An expression and, behind a zero, a text: its matches are parts of the text, one behind the other.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  const std::string_view all(reinterpret_cast<char const*>(bytes), size);
  const std::string_view pattern = all.substr(0, all.find('\0'));
  const std::string_view text = all.substr(std::min(pattern.size() + 1, size));
  try {
    std::size_t last = 0;
    tokenizers::expression(pattern).for_each_match(text, [&](std::size_t begin, std::size_t end) {
      if (begin < last || end <= begin || end > text.size()) std::abort();
      last = end;
    });
  } catch (error const&) {
  }
  return 0;
}
