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
#include <utility>
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

/// Cuts a word into the longest pieces that there are, from the left. A piece that goes on with a word begins
/// with a prefix.
class longest_pieces {
 public:
  longest_pieces(std::string prefix, std::size_t longest_word)
      : prefix_(std::move(prefix)), longest_word_(longest_word), longest_piece_(prefix_.size()) {}

  void know(std::string_view piece) { longest_piece_ = std::max(longest_piece_, piece.size()); }
  /// Adds the pieces of a word; false if it is not made of pieces, or has too many characters.
  bool append(std::string_view word, piece_numbers const& numbers, std::vector<std::int32_t>& tokens) const;

 private:
  std::string prefix_;
  std::size_t longest_word_;   // characters
  std::size_t longest_piece_;  // bytes
};

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

TESSERA_BODY bool longest_pieces::append(std::string_view word, piece_numbers const& numbers,
                                         std::vector<std::int32_t>& tokens) const {
  std::vector<std::size_t> ends;  // of its characters
  for (std::string_view rest = word; !rest.empty(); ends.push_back(word.size() - rest.size()))
    rest.remove_prefix(std::max<std::size_t>(1, io::utf8_length(rest)));
  if (ends.size() > longest_word_) return false;
  const std::size_t before = tokens.size();
  std::string piece;
  for (std::size_t first = 0, begin = 0; first < ends.size();) {
    const std::size_t longest = begin + longest_piece_ - (begin == 0 ? 0 : prefix_.size());
    auto last = std::size_t(std::upper_bound(ends.begin(), ends.end(), longest) - ends.begin());
    std::int32_t found = -1;
    for (; last > first && found < 0; --last) {
      piece.assign(begin == 0 ? "" : prefix_).append(word.substr(begin, ends[last - 1] - begin));
      found = number_of(numbers, piece);
    }
    if (found < 0) return tokens.resize(before), false;
    tokens.push_back(found);
    begin = ends[last], first = last + 1;
  }
  return true;
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
