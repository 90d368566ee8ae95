// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fuzz/memory_file.hpp>

#include <tessera/tokenizers/byte_pair.hpp>
#include <tessera/tokenizers/wordpiece.hpp>

using namespace tessera;

// A vocabulary, of the kind that the first byte names, and a text that its tokens must bring back, unless it
// has a byte or a word that the vocabulary does not know.
template <class Tokenizer> std::string there_and_back(Tokenizer const& tokenizer, std::string const& text) {
  const auto tokens = tokenizer.encode(text);
  for (const std::int32_t t : tokens)
    if (t < 0 || t >= tokenizer.size() || tokenizer.pieces()[std::size_t(t)].empty()) std::abort();
  return tokenizer.decode(tokens);
}

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  if (size == 0) return 0;
  static const memory_file no_merges;
  const std::string text = "an apple's  naïve 'été', 12.5 \xff<|endoftext|>[MASK]\n";
  return reading(bytes + 1, size - 1, [&](std::string const& path) {
    if (bytes[0] == 'w') {
      const auto pieces = tokenizers::wordpiece::read(path);
      for (const std::int32_t special :
           {pieces.padding(), pieces.unknown(), pieces.classification(), pieces.separator(), pieces.mask()})
        if (!pieces.is_special(special) || !pieces.pieces()[std::size_t(special)].starts_with('['))
          std::abort();
      static_cast<void>(there_and_back(pieces, text));
    } else {
      const auto pairs = bytes[0] == 'm' ? tokenizers::byte_pair::read(path)
                                         : tokenizers::byte_pair::read(path, no_merges.path);
      if (pairs.pieces()[std::size_t(pairs.end_of_text())] != pairs.end_name) std::abort();
      if (there_and_back(pairs, text) != text || there_and_back(pairs, "abab, a a") != "abab, a a")
        std::abort();
    }
  });
}
