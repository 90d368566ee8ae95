// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/file_parts.hpp>
#include <tessera/tokenizers/normalizer.hpp>
#include <tessera/tokenizers/piece_models.hpp>
#include <tessera/tokenizers/pieces.hpp>
#include <tessera/tokenizers/unicode.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

/// A token that stands in a text by name, beside the model.
struct added_token {
  std::string content;
  std::string matched;  // the text that it is found by: normalized if `is_normalized`
  std::int32_t number = 0;
  bool single_word = false;    // not where a letter stands beside it
  bool takes_left = false;     // with the white space before it
  bool takes_right = false;    // with the white space behind it
  bool is_normalized = false;  // is looked for in the normalized text
  bool is_special = false;
};

/// Texts to be found in another, as a tree of their bytes.
class text_tree {
 public:
  /// False if it has the text already.
  bool add(std::string_view text, std::uint32_t number);
  /// The number of the longest of the texts that `text` begins with, and its length; a length of 0 for none.
  std::pair<std::uint32_t, std::size_t> longest(std::string_view text) const;
  bool may_begin(char c) const { return begins_[static_cast<unsigned char>(c)]; }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t(0);
  static std::uint64_t key(std::uint32_t node, char c) {
    return std::uint64_t(node) << 8 | static_cast<unsigned char>(c);
  }

  std::unordered_map<std::uint64_t, std::uint32_t> next_;  // node and byte to node
  std::vector<std::uint32_t> numbers_{none};               // of each node
  std::array<bool, 256> begins_{};
};

/// The part "added_tokens" of a tokenizer.json, if it has one.
class added_tokens {
 public:
  /// Throws io_error for a token whose number is not the one that it has in the model or, behind it, in the
  /// order of the list: Hugging Face's library would number it otherwise. Adds new ones to `pieces`, not to
  /// the numbers that the model knows.
  added_tokens(io::json_place const& file, normalizer const& change, numbered_pieces& pieces);

  /// The token of a number, or null.
  added_token const* find(std::int32_t number) const {
    const auto at = by_number_.find(number);
    return at == by_number_.end() ? nullptr : &all_[at->second];
  }

  /// The number of an added token, or -1.
  std::int32_t number(std::string_view content) const { return number_of(numbers_, content); }

  /// Calls token(number) for tokens that are looked for in this kind of text, and part(text) for the text
  /// between them.
  template <class Token, class Part>
  void for_each_part(std::string_view text, bool is_normalized, Token&& token, Part&& part) const {
    text_tree const& tree = trees_[is_normalized];
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
      if (!tree.may_begin(text[at])) {
        ++at;
        continue;
      }
      const auto [index, length] = tree.longest(text.substr(at));
      const std::size_t begin = at;
      at += std::max<std::size_t>(1, length);
      if (length == 0 || !stands_alone(all_[index], text.substr(0, begin), text.substr(at))) continue;
      const std::size_t first = all_[index].takes_left ? without_blanks_behind(text.substr(0, begin)) : begin;
      if (first > done) part(text.substr(done, first - done));
      token(all_[index].number);
      done = at;
      while (all_[index].takes_right && done < text.size()) {
        std::string_view rest = text.substr(done);
        if (!is_white_space(take_character(rest))) break;
        done = text.size() - rest.size();
      }
    }
    if (done < text.size()) part(text.substr(done));
  }

 private:
  added_token read(io::json_place const& at, normalizer const& change) const;
  void add(io::json_place const& at, added_token token);
  bool stands_alone(added_token const& token, std::string_view before, std::string_view behind) const;
  static std::size_t without_blanks_behind(std::string_view text);

  std::vector<added_token> all_;
  std::unordered_map<std::int32_t, std::size_t> by_number_;
  piece_numbers numbers_;
  std::array<text_tree, 2> trees_;                // of texts as they are, and of normalized ones
  std::optional<character_set> word_characters_;  // where a token needs them
};

#ifdef TESSERA_BODY

TESSERA_BODY bool text_tree::add(std::string_view text, std::uint32_t number) {
  std::uint32_t node = 0;
  for (const char c : text) {
    const auto [at, is_new] = next_.try_emplace(key(node, c), std::uint32_t(numbers_.size()));
    if (is_new) numbers_.push_back(none);
    node = at->second;
  }
  begins_[static_cast<unsigned char>(text.front())] = true;
  return std::exchange(numbers_[node], number) == none;
}

TESSERA_BODY std::pair<std::uint32_t, std::size_t> text_tree::longest(std::string_view text) const {
  std::pair<std::uint32_t, std::size_t> found{none, 0};
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto at = next_.find(key(node, text[i]));
    if (at == next_.end()) break;
    node = at->second;
    if (numbers_[node] != none) found = {numbers_[node], i + 1};
  }
  return found;
}

TESSERA_BODY added_tokens::added_tokens(io::json_place const& file, normalizer const& change,
                                        numbered_pieces& pieces) {
  if (!has(file, "added_tokens")) return;
  const auto list = file.at("added_tokens");
  std::size_t next = pieces.count;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto at = list.at(i);
    added_token token = read(at, change);
    std::int32_t number = number_of(pieces.numbers, token.content);
    if (number_of(numbers_, token.content) >= 0) at.fail("is the second of " + io::in_quotes(token.content));
    if (number < 0) {
      number = std::int32_t(next++);
      if (pieces.pieces.size() < next) pieces.pieces.resize(next);
      if (!pieces.pieces[next - 1].empty())
        at.fail(message("would be token ", number, ", and so is ", io::in_quotes(pieces.pieces[next - 1])));
      pieces.pieces[next - 1] = token.content;
    }
    if (number != token.number)
      at.at("id").fail(
          message("is ", token.number, ", but ", io::in_quotes(token.content), " is token ", number));
    add(at, std::move(token));
  }
}

TESSERA_BODY added_token added_tokens::read(io::json_place const& at, normalizer const& change) const {
  allow_members(at, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  added_token token;
  token.content = at.at("content").as_string();
  token.number = at.at("id").as_integer<std::int32_t>();
  token.single_word = at.at("single_word").as_bool();
  token.takes_left = at.at("lstrip").as_bool();
  token.takes_right = at.at("rstrip").as_bool();
  token.is_normalized = at.at("normalized").as_bool();
  token.is_special = at.at("special").as_bool();
  token.matched = token.is_normalized ? change(token.content) : token.content;
  if (token.matched.empty()) at.at("content").fail("is empty, or nothing is left of it");
  return token;
}

TESSERA_BODY void added_tokens::add(io::json_place const& at, added_token token) {
  if (token.single_word && !word_characters_) word_characters_.emplace(tables::word_characters);
  by_number_.emplace(token.number, all_.size());
  numbers_.emplace(token.content, token.number);
  if (!trees_[token.is_normalized].add(token.matched, std::uint32_t(all_.size())))
    at.fail(io::in_quotes(token.content) + " is found by the text of another one");
  all_.push_back(std::move(token));
}

TESSERA_BODY bool added_tokens::stands_alone(added_token const& token, std::string_view before,
                                             std::string_view behind) const {
  if (!token.single_word) return true;
  if (!before.empty()) {
    before.remove_prefix(before.size() - last_character_length(before));
    if (word_characters_->contains(take_character(before))) return false;
  }
  return behind.empty() || !word_characters_->contains(take_character(behind));
}

TESSERA_BODY std::size_t added_tokens::without_blanks_behind(std::string_view text) {
  while (!text.empty()) {
    const std::string_view rest = text.substr(0, text.size() - last_character_length(text));
    std::string_view last = text.substr(rest.size());
    if (!is_white_space(take_character(last))) break;
    text = rest;
  }
  return text.size();
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
