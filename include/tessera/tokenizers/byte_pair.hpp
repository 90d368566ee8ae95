// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/file_format.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/byte_characters.hpp>
#include <tessera/tokenizers/merge_table.hpp>
#include <tessera/tokenizers/merges.hpp>
#include <tessera/tokenizers/pieces.hpp>
#include <tessera/tokenizers/unicode.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers {

/// The tokens of GPT-2 (Radford et al. 2019): text is cut into words with the blank before them, numbers and
/// punctuation; the bytes of each are merged in the order in which pairs were learned. Decoding tokens gives
/// the bytes of their text. Gives the tokens of GPT2Tokenizer of Hugging Face's transformers.
class byte_pair {
 public:
  static constexpr std::string_view end_name = "<|endoftext|>";

  /// Tokens from merges alone: the 256 bytes, a token for each merge that makes a new piece, and the end of a
  /// text; GPT-2's own vocabulary is of this kind.
  ///   merges   of pieces as merges.txt writes them
  explicit byte_pair(std::vector<std::pair<std::string, std::string>> const& merges);
  /// Token i is pieces[i]; an empty piece is a number that no token has. Where the pieces lack the end of a
  /// text, it gets the first number behind as many as there are pieces that is free.
  /// Throws option_error if a piece occurs twice, or one of a merge is missing.
  byte_pair(std::vector<std::string> pieces, std::vector<std::pair<std::string, std::string>> const& merges,
            std::string const& source = "vocabulary");

  /// From GPT-2's two files. Numbers may be left out, a few for each piece. Throws io_error if the files
  /// cannot be read, have another format or more than 1 GiB, or two pieces have one number, and as the
  /// constructor.
  static byte_pair read(std::string const& vocabulary_path, std::string const& merges_path);
  static byte_pair read(std::string const& merges_path) { return byte_pair(read_merges(merges_path)); }
  /// Writes vocab.json and merges.txt of GPT-2's form.
  void write(std::string const& vocabulary_path, std::string const& merges_path) const;

  /// A vocabulary of at most `size` tokens for a text. Throws option_error for fewer than 257.
  static byte_pair trained(std::string_view text, std::size_t size);

  std::int32_t size() const { return std::int32_t(pieces_.size()); }
  std::vector<std::string> const& pieces() const { return pieces_; }
  std::int32_t end_of_text() const { return end_; }
  /// As merges.txt has them.
  std::vector<std::pair<std::string, std::string>> merges() const;

  /// The tokens of a text. The end of a text may stand in it by name. Throws option_error for a byte that the
  /// vocabulary has no piece for.
  std::vector<std::int32_t> encode(std::string_view text) const;
  std::string decode(std::span<std::int32_t const> tokens) const;

 private:
  /// The pieces of single bytes, in the order of their characters.
  static std::vector<std::string> alphabet();
  static std::vector<std::pair<std::string, std::string>> read_merges(std::string const& path);

  void finish(std::vector<std::pair<std::string, std::string>> const& merges, std::string const& source);

  std::vector<std::int32_t> bytes_of(std::string_view word) const;

  enum class kind { letter, number, blank, other };
  kind kind_of(char32_t c) const {
    return is_white_space(c)      ? kind::blank
           : letters_.contains(c) ? kind::letter
           : digits_.contains(c)  ? kind::number
                                  : kind::other;
  }
  /// Calls visit(word) for the pieces into which GPT-2's pattern cuts a text:
  /// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  template <class Visit> void for_each_word(std::string_view text, Visit&& visit) const {
    constexpr std::array<std::string_view, 7> endings{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    while (!text.empty()) {
      std::size_t length = 0;
      for (std::string_view ending : endings)
        if (length == 0 && text.starts_with(ending)) length = ending.size();
      if (length == 0) {
        std::string_view rest = text;
        const bool blank_first = text.size() > 1 && text[0] == ' ';
        if (blank_first) rest.remove_prefix(1);
        std::string_view after = rest;
        const kind of = kind_of(take_character(after));
        if (of != kind::blank) {  // a word
          do rest = after;
          while (!after.empty() && kind_of(take_character(after)) == of);
          length = text.size() - rest.size();
        } else {  // blanks; the last of them belongs to the word behind
          after = text;
          std::size_t last = 0, end = 0;  // where the last blank begins, and where it ends
          for (; !after.empty() && kind_of(take_character(after)) == kind::blank;
               end = text.size() - after.size())
            last = end;
          length = end == text.size() || last == 0 ? end : last;
        }
      }
      visit(text.substr(0, length));
      text.remove_prefix(length);
    }
  }

  std::vector<std::string> pieces_;
  detail::piece_numbers numbers_;
  detail::merge_table merges_;
  detail::byte_characters characters_;
  std::array<std::int32_t, 256> token_of_byte_{};
  std::int32_t end_ = 0;
  character_set letters_{tables::letters}, digits_{tables::numbers};
};

#ifdef TESSERA_BODY

TESSERA_BODY byte_pair::byte_pair(std::vector<std::pair<std::string, std::string>> const& merges) {
  pieces_ = alphabet();
  for (std::size_t i = 0; i < pieces_.size(); ++i) numbers_.emplace(pieces_[i], std::int32_t(i));
  for (auto const& [left, right] : merges)
    if (numbers_.emplace(left + right, size()).second) pieces_.push_back(left + right);
  if (numbers_.emplace(end_name, size()).second) pieces_.emplace_back(end_name);
  finish(merges, "merges");
}

TESSERA_BODY byte_pair::byte_pair(std::vector<std::string> pieces,
                                  std::vector<std::pair<std::string, std::string>> const& merges,
                                  std::string const& source)
    : pieces_(std::move(pieces)) {
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    if (const auto [place, is_new] = numbers_.emplace(pieces_[i], std::int32_t(i));
        !is_new && !pieces_[i].empty())
      throw option_error(message("[byte_pair] ", source, ": ", io::in_quotes(pieces_[i]), " is token ",
                                 place->second, " and token ", i, "; each piece must occur once"));
  numbers_.erase("");
  if (!numbers_.contains(std::string(end_name))) {
    std::size_t end = numbers_.size();
    while (end < pieces_.size() && !pieces_[end].empty()) ++end;
    pieces_.resize(std::max(pieces_.size(), end + 1));
    pieces_[end] = end_name;
    numbers_.emplace(pieces_[end], std::int32_t(end));
  }
  finish(merges, source);
}

TESSERA_BODY byte_pair byte_pair::read(std::string const& vocabulary_path, std::string const& merges_path) {
  const io::json document = io::read_json(vocabulary_path);
  return byte_pair(detail::read_pieces(io::json_place(document, vocabulary_path)), read_merges(merges_path),
                   vocabulary_path);
}

TESSERA_BODY void byte_pair::write(std::string const& vocabulary_path, std::string const& merges_path) const {
  io::json::object object;
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    if (!pieces_[i].empty()) object.push_back({pieces_[i], i});
  std::string text = "#version: 0.2\n";
  for (auto const& [left, right] : merges()) text += left + ' ' + right + '\n';
  io::write_atomically(vocabulary_path, io::to_text(io::json(std::move(object))));
  io::write_atomically(merges_path, text);
}

TESSERA_BODY byte_pair byte_pair::trained(std::string_view text, std::size_t size) {
  std::vector<std::string> pieces = alphabet();
  if (size < pieces.size() + 1)
    throw option_error(message("[byte_pair] a vocabulary of ", size,
                               " tokens: there are 256 bytes and the end "
                               "of a text, make it 257 or more"));
  const byte_pair cutter({});
  const auto words = detail::counted_words([&](auto const& visit) { cutter.for_each_word(text, visit); });
  std::vector<counted_word> counted;
  constexpr std::size_t longest_word = 1000;  // each merge in a word goes through all of it
  for (auto const& [word, count] : words)
    if (word.size() <= longest_word) counted.push_back({cutter.bytes_of(word), count});
  std::vector<std::pair<std::string, std::string>> named;
  for (merge const &m : learn_merges(std::move(counted), pieces, size - 1,
                                     [](std::string const& a, std::string const& b) { return a + b; }))
    named.push_back({pieces[std::size_t(m.left)], pieces[std::size_t(m.right)]});
  return byte_pair(named);
}

TESSERA_BODY std::vector<std::pair<std::string, std::string>> byte_pair::merges() const {
  std::vector<std::pair<std::string, std::string>> named;
  for (merge const& m : merges_.in_order())
    named.emplace_back(pieces_[std::size_t(m.left)], pieces_[std::size_t(m.right)]);
  return named;
}

TESSERA_BODY std::vector<std::int32_t> byte_pair::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  std::unordered_map<std::string, std::vector<std::int32_t>> known;  // words that were met
  detail::merge_table::memory use;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(end_name), text.size());
    for_each_word(text.substr(0, end), [&](std::string_view word) {
      auto [at, is_new] = known.try_emplace(std::string(word));
      if (is_new) merges_.apply(at->second = bytes_of(word), use);
      tokens.insert(tokens.end(), at->second.begin(), at->second.end());
    });
    if (end == text.size()) break;
    tokens.push_back(end_);
    text.remove_prefix(end + end_name.size());
  }
  return tokens;
}

TESSERA_BODY std::string byte_pair::decode(std::span<std::int32_t const> tokens) const {
  std::string text;
  for (const std::int32_t t : tokens) {
    std::string const& piece = pieces_.at(std::size_t(t));
    if (t == end_) {
      text += piece;
      continue;
    }
    for (std::string_view rest = piece; !rest.empty();) {
      const int byte = characters_.byte_of(take_character(rest));
      text += byte < 0 ? '?' : static_cast<char>(byte);
    }
  }
  return text;
}

TESSERA_BODY std::vector<std::string> byte_pair::alphabet() {
  const detail::byte_characters all;
  std::vector<char32_t> characters;
  for (int b = 0; b < 256; ++b) characters.push_back(all.of(static_cast<unsigned char>(b)));
  std::sort(characters.begin(), characters.end());
  std::vector<std::string> pieces(256);
  for (std::size_t i = 0; i < 256; ++i) append_utf8(pieces[i], characters[i]);
  return pieces;
}

TESSERA_BODY std::vector<std::pair<std::string, std::string>> byte_pair::read_merges(
    std::string const& path) {
  const std::string text = io::read_file(path);
  io::refuse_other_format(path, text, "byte_pair");
  std::vector<std::pair<std::string, std::string>> merges;
  int line_number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (++line_number == 1 && line.starts_with("#version")) continue;
    if (line.empty()) continue;
    const std::size_t blank = line.find(' ');
    if (blank == 0 || blank == line.npos || blank + 1 == line.size() ||
        line.find(' ', blank + 1) != line.npos)
      throw io_error(message("[read_merges] ", path, " line ", line_number, " is ", io::in_quotes(line),
                             ": two pieces with a blank between them are meant"));
    merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
  }
  return merges;
}

TESSERA_BODY void byte_pair::finish(std::vector<std::pair<std::string, std::string>> const& merges,
                                    std::string const& source) {
  const auto number_of = [&](std::string_view piece) { return detail::number_of(numbers_, piece); };
  for (int b = 0; b < 256; ++b) {
    std::string piece;
    append_utf8(piece, characters_.of(static_cast<unsigned char>(b)));
    token_of_byte_[std::size_t(b)] = number_of(piece);
  }
  end_ = number_of(end_name);
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {  // of equal ones the last counts
    auto const& [left, right] = merges[rank];
    for (std::string const& piece : {left, right, left + right})
      if (number_of(piece) < 0)
        throw option_error(message("[byte_pair] ", source, " has no ", io::in_quotes(piece),
                                   ", of the merge of ", io::in_quotes(left), " and ", io::in_quotes(right)));
    merges_.add({number_of(left), number_of(right), number_of(left + right)}, rank);
  }
}

TESSERA_BODY std::vector<std::int32_t> byte_pair::bytes_of(std::string_view word) const {
  std::vector<std::int32_t> tokens;
  tokens.reserve(word.size());
  for (const char c : word) {
    tokens.push_back(token_of_byte_[static_cast<unsigned char>(c)]);
    if (tokens.back() < 0)
      throw option_error(message("[byte_pair] the vocabulary has no piece for byte ",
                                 static_cast<unsigned char>(c), ", which is in the text"));
  }
  return tokens;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::tokenizers
