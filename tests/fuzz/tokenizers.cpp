// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <string>
#include <string_view>

#include <fuzz/memory_file.hpp>

#include <tessera/tokenizers/byte_pair.hpp>
#include <tessera/tokenizers/wordpiece.hpp>

using namespace tessera;

// A vocabulary, of the kind that the first byte names, and a text that its tokens must bring back.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  if (size == 0) return 0;
  static const memory_file no_merges;
  const std::string text = "an apple's  naïve 'été', 12.5 \xff<|endoftext|>[MASK]\n";
  return reading(bytes + 1, size - 1, [&](std::string const& path) {
    if (bytes[0] == 'w') {
      const auto pieces = tokenizers::wordpiece::read(path);
      static_cast<void>(pieces.decode(pieces.encode(text)));
    } else {
      const auto pairs = bytes[0] == 'm' ? tokenizers::byte_pair::read(path)
                                         : tokenizers::byte_pair::read(path, no_merges.path);
      if (pairs.decode(pairs.encode(text)) != text) std::abort();
    }
  });
}
