// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/file_parts.hpp>
#include <tessera/tokenizers/merge_table.hpp>
#include <tessera/tokenizers/merges.hpp>
#include <tessera/tokenizers/pieces.hpp>
#include <tessera/tokenizers/unicode.hpp>

// The part "model" of a tokenizer.json, which makes tokens of a word.

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

/// The pieces of a model, by number and by text.
struct numbered_pieces {
  std::vector<std::string> pieces;  // an empty one is a number that none has
  piece_numbers numbers;
  std::size_t count = 0;

  explicit numbered_pieces(io::json_place const& object);
};

/// Memory of a text's words, used again for the next one.
struct word_memory {
  static constexpr std::size_t longest_kept = 256;  // bytes; longer words do not come again

  text_map<std::pair<std::size_t, std::size_t>> known;  // where its tokens begin, and how many there are
  std::vector<std::int32_t> tokens, word;
  merge_table::memory merging;

  /// Adds the tokens of a word: cut(word, tokens) finds them if it is new.
  template <class Cut> void append(std::string_view text, std::vector<std::int32_t>& to, Cut&& cut) {
    if (const auto at = known.find(text); at != known.end()) {
      const auto first = tokens.begin() + std::ptrdiff_t(at->second.first);
      to.insert(to.end(), first, first + std::ptrdiff_t(at->second.second));
      return;
    }
    word.clear();
    cut(text, word);
    to.insert(to.end(), word.begin(), word.end());
    if (text.size() >= longest_kept) return;
    known.emplace(text, std::pair{tokens.size(), word.size()});
    tokens.insert(tokens.end(), word.begin(), word.end());
  }
};

/// Byte pair encoding (Sennrich et al. 2016): the characters of a word are merged in the order in which pairs
/// were learned. A character that is no piece becomes the pieces of its bytes, as `<0xE2>`, or the unknown
/// token.
class merging_model {
 public:
  merging_model(io::json_place const& part, piece_numbers const& numbers);

  /// Makes the tokens of a word. Throws option_error for a character that nothing stands for.
  void cut(std::string_view word, piece_numbers const& numbers, std::vector<std::int32_t>& tokens,
           merge_table::memory& use) const;
  /// Adds the tokens of a text of any length, in pieces that the memory may know.
  void append(std::string_view text, piece_numbers const& numbers, std::vector<std::int32_t>& tokens,
              word_memory& use) const;

 private:
  static constexpr char32_t no_character = 0x110000;
  static std::uint64_t pair_of(char32_t left, char32_t right) { return std::uint64_t(left) << 32 | right; }

  void read_merges(io::json_place const& list, piece_numbers const& numbers);
  void add_merge(io::json_place const& at, std::string const& left, std::string const& right,
                 std::size_t rank, piece_numbers const& numbers);
  /// Whether both are pieces, and no merge joins one that ends with `left` and one that begins with `right`.
  /// The tokens before such a place and behind it have nothing to do with each other.
  bool is_border(char32_t left, char32_t right) const;
  void merge_word(std::string_view word, piece_numbers const& numbers, std::vector<std::int32_t>& tokens,
                  merge_table::memory& use) const;
  bool append_bytes(std::string_view character, std::vector<std::int32_t>& tokens) const;

  merge_table merges_;
  std::array<std::int32_t, 256> bytes_;  // `<0x00>` …, or -1
  std::string unknown_name_;
  std::int32_t unknown_ = -1;
  bool has_unknown_ = false, fuses_unknown_ = false, falls_back_ = false, keeps_pieces_ = false;
  std::unordered_set<char32_t> characters_;   // that are pieces
  std::unordered_set<std::uint64_t> joined_;  // pairs that are no border
  std::vector<bool> ascii_borders_;
};

/// WordPiece: a word becomes the longest pieces that there are, from the left, or the unknown token.
class longest_piece_model {
 public:
  longest_piece_model(io::json_place const& part, piece_numbers const& numbers);
  /// Makes the tokens of a word. Throws option_error if it is unknown and there is no token for that.
  void cut(std::string_view word, piece_numbers const& numbers, std::vector<std::int32_t>& tokens,
           merge_table::memory&) const;
  void append(std::string_view word, piece_numbers const& numbers, std::vector<std::int32_t>& tokens,
              word_memory& use) const;

 private:
  static longest_pieces cutter_of(io::json_place const& part);

  longest_pieces cutter_;
  std::string unknown_name_;
  std::int32_t unknown_;
};

#ifdef TESSERA_BODY

TESSERA_BODY numbered_pieces::numbered_pieces(io::json_place const& object) : pieces(read_pieces(object)) {
  for (io::json_member const& member : object.members())
    if (member.key.empty()) object.fail("has a piece without a character");
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (!pieces[i].empty()) numbers.emplace(pieces[i], std::int32_t(i));
  count = numbers.size();
}

TESSERA_BODY merging_model::merging_model(io::json_place const& part, piece_numbers const& numbers)
    : fuses_unknown_(bool_or(part, "fuse_unk", false)),
      falls_back_(bool_or(part, "byte_fallback", false)),
      keeps_pieces_(bool_or(part, "ignore_merges", false)) {
  allow_members(part, {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                       "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
  for (char const* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (has(part, key) && !part.at(key).as_string().empty())
      part.at(key).fail("is not empty: that is not known");
  if (has(part, "dropout") && part.at("dropout").as_number() != 0)
    part.at("dropout").fail("is not 0: pieces that are drawn are not known");
  if (has(part, "unk_token")) {
    has_unknown_ = true;
    unknown_name_ = part.at("unk_token").as_string();
    unknown_ = number_of(numbers, unknown_name_);
  }
  constexpr std::string_view hex = "0123456789ABCDEF";
  for (std::size_t b = 0; b < 256; ++b)
    bytes_[b] = number_of(numbers, std::string("<0x") + hex[b / 16] + hex[b % 16] + '>');
  for (auto const& [piece, number] : numbers)
    if (io::utf8_length(piece) == piece.size()) {
      std::string_view rest = piece;
      characters_.insert(take_character(rest));
    }
  read_merges(part.at("merges"), numbers);
  ascii_borders_.resize(128 * 128);
  std::u32string ascii;
  std::copy_if(characters_.begin(), characters_.end(), std::back_inserter(ascii),
               [](char32_t c) { return c < 128; });
  for (const char32_t left : ascii)
    for (const char32_t right : ascii)
      ascii_borders_[128 * left + right] = !joined_.contains(pair_of(left, right));
}

TESSERA_BODY void merging_model::read_merges(io::json_place const& list, piece_numbers const& numbers) {
  std::size_t rank = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto at = list.at(i);
    if (auto const* line = at.value().get_if<std::string>()) {
      if (line->starts_with("#version")) continue;
      const std::size_t blank = line->find(' ');
      if (blank == line->npos || line->find(' ', blank + 1) != line->npos)
        at.fail("is " + io::in_quotes(*line) + ": two pieces with a blank between them are meant");
      add_merge(at, line->substr(0, blank), line->substr(blank + 1), rank++, numbers);
    } else {
      if (at.size() != 2) at.fail(message("has ", at.size(), " pieces: two are meant"));
      add_merge(at, at.at(0).as_string(), at.at(1).as_string(), rank++, numbers);
    }
  }
}

TESSERA_BODY void merging_model::add_merge(io::json_place const& at, std::string const& left,
                                           std::string const& right, std::size_t rank,
                                           piece_numbers const& numbers) {
  const std::string merged = left + right;
  for (std::string const* piece : {&left, &right, &merged})
    if (number_of(numbers, *piece) < 0)
      at.fail("needs the piece " + io::in_quotes(*piece) + ", which the vocabulary lacks");
  merges_.add({number_of(numbers, left), number_of(numbers, right), number_of(numbers, merged)}, rank);
  std::string_view begin = right, end = left;
  end.remove_prefix(end.size() - last_character_length(end));
  joined_.insert(pair_of(take_character(end), take_character(begin)));
}

TESSERA_BODY bool merging_model::is_border(char32_t left, char32_t right) const {
  if (left < 128 && right < 128) return ascii_borders_[128 * left + right];
  return characters_.contains(left) && characters_.contains(right) && !joined_.contains(pair_of(left, right));
}

TESSERA_BODY void merging_model::cut(std::string_view word, piece_numbers const& numbers,
                                     std::vector<std::int32_t>& tokens, merge_table::memory& use) const {
  if (keeps_pieces_)
    if (const std::int32_t whole = number_of(numbers, word); whole >= 0) return tokens.push_back(whole);
  merge_word(word, numbers, tokens, use);
}

TESSERA_BODY void merging_model::append(std::string_view word, piece_numbers const& numbers,
                                        std::vector<std::int32_t>& tokens, word_memory& use) const {
  if (keeps_pieces_)
    if (const std::int32_t whole = number_of(numbers, word); whole >= 0) return tokens.push_back(whole);
  const auto merge_part = [&](std::string_view part, std::vector<std::int32_t>& to) {
    merge_word(part, numbers, to, use.merging);
  };
  std::size_t begin = 0;
  char32_t before = no_character;
  for (std::string_view rest = word; !rest.empty();) {
    const std::size_t at = word.size() - rest.size();
    char32_t c = static_cast<unsigned char>(rest.front());
    if (c < 128)
      rest.remove_prefix(1);
    else if (const bool is_utf8 = io::utf8_length(rest) != 0; c = take_character(rest), !is_utf8)
      c = no_character;
    if (at > begin && is_border(before, c)) {
      use.append(word.substr(begin, at - begin), tokens, merge_part);
      begin = at;
    }
    before = c;
  }
  use.append(word.substr(begin), tokens, merge_part);
}

TESSERA_BODY bool merging_model::append_bytes(std::string_view character,
                                              std::vector<std::int32_t>& tokens) const {
  const auto number = [&](char c) { return bytes_[static_cast<unsigned char>(c)]; };
  for (const char c : character)
    if (number(c) < 0) return false;
  for (const char c : character) tokens.push_back(number(c));
  return true;
}

TESSERA_BODY void merging_model::merge_word(std::string_view word, piece_numbers const& numbers,
                                            std::vector<std::int32_t>& tokens,
                                            merge_table::memory& use) const {
  std::int32_t pending =
      -1;  // an unknown token; with fuse_unk it stands for all up to the next character that is known
  const auto end_unknown = [&] {
    if (pending >= 0) tokens.push_back(pending);
    pending = -1;
  };
  for (std::string_view rest = word; !rest.empty();) {
    const std::string_view character = rest.substr(0, std::max<std::size_t>(1, io::utf8_length(rest)));
    rest.remove_prefix(character.size());
    if (const std::int32_t number = number_of(numbers, character); number >= 0) {
      end_unknown();
      tokens.push_back(number);
    } else if (falls_back_ && append_bytes(character, tokens)) {
      continue;  // as Hugging Face's: an unknown token before it comes behind it
    } else if (unknown_ >= 0) {
      if (!fuses_unknown_) end_unknown();
      pending = unknown_;
    } else {
      throw option_error(message("[tokenizer] the vocabulary has no piece for ", io::in_quotes(character),
                                 has_unknown_ ? ", nor its unknown token " + io::in_quotes(unknown_name_)
                                              : std::string(", and no unknown token")));
    }
  }
  end_unknown();
  merges_.apply(tokens, use);
}

TESSERA_BODY longest_pieces longest_piece_model::cutter_of(io::json_place const& part) {
  allow_members(part,
                {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  constexpr std::size_t longest = 1000;  // a word takes time of its square
  const auto characters = has(part, "max_input_chars_per_word")
                              ? part.at("max_input_chars_per_word").as_integer<std::size_t>()
                              : 100;
  if (characters > longest)
    part.at("max_input_chars_per_word").fail(message("is ", characters, ", at most ", longest, " are read"));
  return longest_pieces(
      has(part, "continuing_subword_prefix") ? part.at("continuing_subword_prefix").as_string() : "##",
      characters);
}

TESSERA_BODY longest_piece_model::longest_piece_model(io::json_place const& part,
                                                      piece_numbers const& numbers)
    : cutter_(cutter_of(part)),
      unknown_name_(has(part, "unk_token") ? part.at("unk_token").as_string() : "[UNK]"),
      unknown_(number_of(numbers, unknown_name_)) {
  for (auto const& [piece, number] : numbers) cutter_.know(piece);
}

TESSERA_BODY void longest_piece_model::cut(std::string_view word, piece_numbers const& numbers,
                                           std::vector<std::int32_t>& tokens, merge_table::memory&) const {
  if (cutter_.append(word, numbers, tokens)) return;
  if (unknown_ < 0)
    throw option_error(message("[tokenizer] the vocabulary has no ", io::in_quotes(unknown_name_), " for ",
                               io::in_quotes(word), ", which is not made of its pieces"));
  tokens.push_back(unknown_);
}

TESSERA_BODY void longest_piece_model::append(std::string_view word, piece_numbers const& numbers,
                                              std::vector<std::int32_t>& tokens, word_memory& use) const {
  use.append(word, tokens, [&](std::string_view text, std::vector<std::int32_t>& to) {
    cut(text, numbers, to, use.merging);
  });
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
