// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/text.hpp>

// What the tokenizers share: the numbers of their pieces, and the words of a text to learn pieces from.

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

/// Of a text, whoever owns it.
struct text_hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <class Value> using text_map = std::unordered_map<std::string, Value, text_hash, std::equal_to<>>;

using piece_numbers = text_map<std::int32_t>;

/// The number of a piece, or -1.
inline std::int32_t number_of(piece_numbers const& numbers, std::string_view piece) {
  const auto at = numbers.find(piece);
  return at == numbers.end() ? -1 : at->second;
}

/// The pieces of a JSON object of their numbers, by number: an empty one is a number that none has. Throws
/// io_error where two have one number, or numbers are much larger than there are pieces.
std::vector<std::string> read_pieces(io::json_place const& object);

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

#ifdef TESSERA_BODY

TESSERA_BODY std::vector<std::string> read_pieces(io::json_place const& object) {
  if (object.members().empty()) object.fail("has no pieces");
  const std::size_t most = 4 * object.members().size() + 1000;
  std::vector<std::string> pieces;
  for (io::json_member const& member : object.members()) {
    const auto token = object.at(member).as_integer<std::uint32_t>();
    if (token >= most)
      object.at(member).fail(message("is ", token, ", but the numbers of ", object.members().size(),
                                     " pieces should be below ", most));
    if (token >= pieces.size()) pieces.resize(token + 1);
    if (!pieces[token].empty())
      object.at(member).fail(message("is ", token, ", and so is ", io::in_quotes(pieces[token])));
    pieces[token] = member.key;
  }
  return pieces;
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
