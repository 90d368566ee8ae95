// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

// What the tokenizers share: the numbers of their pieces, and the words of a text to learn pieces from.

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

using piece_numbers = std::unordered_map<std::string, std::int32_t>;

/// Token i is pieces[i]. Throws option_error if a piece occurs twice.
///   tokenizer, source   who asks, and where the pieces come from
inline piece_numbers numbers_of(std::vector<std::string> const& pieces, char const* tokenizer,
                                std::string const& source) {
  piece_numbers numbers;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (const auto [place, is_new] = numbers.emplace(pieces[i], std::int32_t(i)); !is_new)
      throw option_error(message("[", tokenizer, "] ", source, ": \"", pieces[i], "\" is token ",
                                 place->second, " and token ", i, "; each piece must occur once"));
  return numbers;
}

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
