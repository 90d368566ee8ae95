// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>

#include <tessera/core/config.hpp>
#include <tessera/tokenizers/unicode.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

/// The characters by which the vocabulary of GPT-2 writes bytes: a byte that is printable in Latin-1 as
/// itself, any other as one from U+0100 on.
class byte_characters {
 public:
  byte_characters();

  char32_t of(unsigned char byte) const { return characters_[byte]; }
  /// Or -1.
  int byte_of(char32_t character) const {
    const auto at = bytes_.find(character);
    return at == bytes_.end() ? -1 : at->second;
  }
  /// Each byte of a text as its character.
  std::string written(std::string_view text) const {
    std::string all;
    for (const char c : text) append_utf8(all, of(static_cast<unsigned char>(c)));
    return all;
  }

 private:
  std::array<char32_t, 256> characters_{};
  std::unordered_map<char32_t, int> bytes_;
};

#ifdef TESSERA_BODY

TESSERA_BODY byte_characters::byte_characters() {
  char32_t other = 256;
  for (int b = 0; b < 256; ++b) {
    const bool is_printable = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
    characters_[std::size_t(b)] = is_printable ? char32_t(b) : other++;
    bytes_.emplace(characters_[std::size_t(b)], b);
  }
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
