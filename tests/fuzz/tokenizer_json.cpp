// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fuzz/memory_file.hpp>

#include <tessera/tokenizers/tokenizer.hpp>

using namespace tessera;

// A tokenizer.json and, behind a zero, a text: its tokens are tokens of the file, and can be decoded.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  const std::string_view all(reinterpret_cast<char const*>(bytes), size);
  const std::size_t end = std::min(all.find('\0'), size);
  const std::string text(end < size ? all.substr(end + 1)
                                    : "It's 12.5 <s>naïve</s>\r\n  \xff[MASK] e\u0301x");
  return reading(bytes, end, [&](std::string const& path) {
    const auto made = tokenizers::tokenizer::read(path);
    const auto check = [&](std::vector<std::int32_t> const& tokens) {
      for (const std::int32_t t : tokens)
        if (t < 0 || t >= made.size()) std::abort();
    };
    for (const std::int32_t t : made.special_tokens())
      if (made.token(made.pieces()[std::size_t(t)]) != t || !made.is_special(t)) std::abort();
    const auto tokens = made.encode(text);
    check(tokens);
    check(made.with_special_tokens(tokens));
    check(made.with_special_tokens(tokens, tokens));
    static_cast<void>(made.decode(tokens));
    static_cast<void>(made.decode(tokens, tokenizers::specials::kept));
  });
}
