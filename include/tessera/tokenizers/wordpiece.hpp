// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
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
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/merges.hpp>
#include <tessera/tokenizers/pieces.hpp>
#include <tessera/tokenizers/unicode.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers {

/// Whether letters keep their case and accents, which an uncased vocabulary has none of.
enum class letter_case { lower, kept };

/// The tokens of BERT (Devlin et al. 2019; Wu et al. 2016, "Google's Neural Machine Translation System"):
/// text is cut into words and punctuation, a word into the longest pieces that the vocabulary has, from the
/// left; a piece that goes on with a word begins with "##". Gives the tokens of BertTokenizer of Hugging
/// Face's transformers.
class wordpiece {
 public:
  static constexpr std::array<std::string_view, 5> special_names{"[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                                                 "[MASK]"};
  static constexpr std::size_t longest_word = 100;  // characters; a longer one is unknown

  /// Token i is piece i; of equal pieces the last counts. Special tokens that the pieces lack get the numbers
  /// behind them, in the order in which BertTokenizer adds them.
  explicit wordpiece(std::vector<std::string> pieces, letter_case letters = letter_case::lower);

  /// From a vocab.txt: one piece in each line, without the blanks behind it. Throws io_error if it cannot be
  /// read, has another format or is empty, and for more than 1 GiB.
  static wordpiece read(std::string const& path, letter_case letters = letter_case::lower);
  /// Writes a vocab.txt.
  void write(std::string const& path) const;

  /// A vocabulary of at most `size` tokens for a text: special tokens, its most frequent characters, at most
  /// 1000, and the pieces that merging makes of them. Throws option_error if not even the special tokens fit.
  static wordpiece trained(std::string_view text, std::size_t size, letter_case letters = letter_case::lower);

  std::int32_t size() const { return std::int32_t(pieces_.size()); }
  std::vector<std::string> const& pieces() const { return pieces_; }
  letter_case letters() const { return letters_; }
  std::int32_t padding() const { return specials_[0]; }
  std::int32_t unknown() const { return specials_[1]; }
  std::int32_t classification() const { return specials_[2]; }  // [CLS]
  std::int32_t separator() const { return specials_[3]; }
  std::int32_t mask() const { return specials_[4]; }
  bool is_special(std::int32_t token) const {
    return std::find(specials_.begin(), specials_.end(), token) != specials_.end();
  }
  /// Whether a token goes on with the word of the token before it.
  bool continues_word(std::int32_t token) const { return pieces_.at(std::size_t(token)).starts_with("##"); }

  /// The tokens of a text, without [CLS] and [SEP]. Special tokens may stand in it by name. Throws
  /// option_error for a word that is unknown to a vocabulary without [UNK].
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Words with blanks between them, as BERT writes them: punctuation stands apart.
  std::string decode(std::span<std::int32_t const> tokens) const;

 private:
  /// Where the first special token stands in a text by name, and which it is.
  static std::pair<std::size_t, std::size_t> first_special(std::string_view text);

  /// Calls visit(word) for each word and each mark of punctuation.
  template <class Visit> void for_each_word(std::string_view text, Visit&& visit) const {
    std::string word;
    std::u32string letters;
    const auto end_word = [&] {
      if (!word.empty()) visit(std::string_view(word));
      word.clear();
    };
    while (!text.empty()) {
      const char32_t c = take_character(text);
      if (controls_.contains(c)) continue;
      if (is_white_space(c)) {
        end_word();
        continue;
      }
      letters.clear();
      letters_ == letter_case::lower ? folding_.append(letters, c) : letters.push_back(c);
      for (const char32_t letter : letters) {
        const bool apart = punctuation_.contains(letter) || is_chinese(c);
        if (apart) end_word();
        append_utf8(word, letter);
        if (apart) end_word();
      }
    }
    end_word();
  }
  /// Calls visit(character, is_first) for each character of a word.
  template <class Visit> static void for_each_character(std::string_view word, Visit&& visit) {
    for (bool is_first = true; !word.empty(); is_first = false) {
      const std::size_t length = std::max<std::size_t>(1, io::utf8_length(word));
      visit(std::string(word.substr(0, length)), is_first);
      word.remove_prefix(length);
    }
  }

  std::vector<std::int32_t> unknown_word(std::string_view word) const;

  std::vector<std::int32_t> pieces_of(std::string_view word) const;

  std::vector<std::string> pieces_;
  letter_case letters_;
  detail::piece_numbers numbers_;
  detail::longest_pieces cutter_{"##", longest_word};
  bool has_unknown_ = false;
  std::array<std::int32_t, special_names.size()> specials_{};
  character_set punctuation_{tables::punctuation}, controls_{tables::controls};
  accent_folding folding_;
};

#ifdef TESSERA_BODY

TESSERA_BODY wordpiece::wordpiece(std::vector<std::string> pieces, letter_case letters)
    : pieces_(std::move(pieces)), letters_(letters) {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    numbers_[pieces_[i]] = std::int32_t(i);
    cutter_.know(pieces_[i]);
  }
  has_unknown_ = numbers_.contains(std::string(special_names[1]));
  for (const std::size_t i : {1u, 3u, 0u, 2u, 4u}) {
    const auto [at, is_new] = numbers_.emplace(special_names[i], size());
    if (is_new) pieces_.emplace_back(special_names[i]);
    specials_[i] = at->second;
  }
}

TESSERA_BODY wordpiece wordpiece::read(std::string const& path, letter_case letters) {
  const std::string text = io::read_file(path);
  io::refuse_other_format(path, text, "wordpiece");
  if (text.empty()) throw io_error(message("[wordpiece] ", path, " is empty"));
  std::vector<std::string> pieces;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, std::min(rest.find('\n'), rest.size()));
    std::size_t end = 0;  // of the last character that is not blank
    for (std::string_view left = line; !left.empty();) {
      if (io::utf8_length(left) == 0)
        throw io_error(message("[wordpiece] ", path, " line ", pieces.size() + 1, " is not UTF-8"));
      if (!is_white_space(take_character(left))) end = line.size() - left.size();
    }
    pieces.emplace_back(line.substr(0, end));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return wordpiece(std::move(pieces), letters);
}

TESSERA_BODY void wordpiece::write(std::string const& path) const {
  std::string text;
  for (std::string const& piece : pieces_) text += piece + '\n';
  io::write_atomically(path, text);
}

TESSERA_BODY wordpiece wordpiece::trained(std::string_view text, std::size_t size, letter_case letters) {
  std::vector<std::string> pieces(special_names.begin(), special_names.end());
  if (size <= pieces.size())
    throw option_error(message("[wordpiece] a vocabulary of ", size, " tokens: ", pieces.size(),
                               " are special, and there must be some for text"));
  const wordpiece cutter(pieces, letters);
  const auto words = detail::counted_words([&](auto const& visit) { cutter.for_each_word(text, visit); });
  constexpr std::size_t most_characters = 1000;
  std::map<std::string, std::int64_t> characters;
  for (auto const& [word, count] : words)
    for_each_character(word, [&](std::string&& c, bool) { characters[c] += count; });
  std::vector<std::pair<std::int64_t, std::string>> by_count;
  for (auto const& [c, count] : characters) by_count.push_back({-count, c});
  std::sort(by_count.begin(), by_count.end());
  by_count.resize(std::min({by_count.size(), most_characters, (size - pieces.size() + 1) / 2}));
  std::sort(by_count.begin(), by_count.end(), [](auto& a, auto& b) { return a.second < b.second; });
  for (const char* prefix : {"", "##"})
    for (auto const& [count, c] : by_count)
      if (pieces.size() < size) pieces.push_back(prefix + c);
  const wordpiece alphabet(pieces, letters);
  std::vector<counted_word> counted;
  for (auto const& [word, count] : words) {
    counted_word of{{}, count};
    for_each_character(word, [&](std::string&& c, bool is_first) {
      const auto at = alphabet.numbers_.find(is_first ? c : "##" + c);
      of.pieces.push_back(at == alphabet.numbers_.end() ? -1 : at->second);
    });
    // A word with a rare character is unknown anyway, and so is one that is too long.
    if (of.pieces.size() <= longest_word &&
        std::find(of.pieces.begin(), of.pieces.end(), -1) == of.pieces.end())
      counted.push_back(std::move(of));
  }
  learn_merges(std::move(counted), pieces, size,
               [](std::string const& left, std::string const& right) { return left + right.substr(2); });
  return wordpiece(std::move(pieces), letters);
}

TESSERA_BODY std::vector<std::int32_t> wordpiece::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  std::unordered_map<std::string, std::vector<std::int32_t>> known;  // words that were met
  while (!text.empty()) {
    const auto [begin, special] = first_special(text);
    for_each_word(text.substr(0, begin), [&](std::string_view word) {
      auto [at, is_new] = known.try_emplace(std::string(word));
      if (is_new) at->second = pieces_of(word);
      tokens.insert(tokens.end(), at->second.begin(), at->second.end());
    });
    if (special == special_names.size()) break;
    tokens.push_back(specials_[special]);
    text.remove_prefix(begin + special_names[special].size());
  }
  return tokens;
}

TESSERA_BODY std::string wordpiece::decode(std::span<std::int32_t const> tokens) const {
  std::string text;
  for (const std::int32_t t : tokens) {
    std::string const& piece = pieces_.at(std::size_t(t));
    if (piece.starts_with("##"))
      text += piece.substr(2);
    else
      text += (text.empty() ? "" : " ") + piece;
  }
  return text;
}

TESSERA_BODY std::pair<std::size_t, std::size_t> wordpiece::first_special(std::string_view text) {
  for (std::size_t at = text.find('['); at != text.npos; at = text.find('[', at + 1))
    for (std::size_t i = 0; i < special_names.size(); ++i)
      if (text.substr(at).starts_with(special_names[i])) return {at, i};
  return {text.size(), special_names.size()};
}

TESSERA_BODY std::vector<std::int32_t> wordpiece::unknown_word(std::string_view word) const {
  if (!has_unknown_)
    throw option_error(message("[wordpiece] the vocabulary has no \"[UNK]\" for ", io::in_quotes(word),
                               ", which is not made of its pieces"));
  return {unknown()};
}

TESSERA_BODY std::vector<std::int32_t> wordpiece::pieces_of(std::string_view word) const {
  std::vector<std::int32_t> tokens;
  return cutter_.append(word, numbers_, tokens) ? tokens : unknown_word(word);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::tokenizers
