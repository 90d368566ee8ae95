// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include <tessera/core/config.hpp>

// What the tokenizers share: the numbers of their pieces, and the words of a text to learn pieces from.

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

using piece_numbers = std::unordered_map<std::string, std::int32_t>;

/// How often each word occurs; `for_each_word(visit)` shows them.
template <class ForEachWord> auto counted_words(ForEachWord&& for_each_word) {
  std::map<std::string, std::int64_t, std::less<>> words;
  for_each_word([&](std::string_view word) {
    if (const auto at = words.find(word); at != words.end())
      ++at->second;
    else
      words.emplace(word, 1);
  });
  return words;
}

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
