// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/byte_pair.hpp>
#include <tessera/tokenizers/tokenizer.hpp>
#include <tessera/tokenizers/wordpiece.hpp>
#include <tessera/train/masking.hpp>

namespace pretrain {

using token = std::int32_t;

/// What one token stands for: a character (a Unicode code point), a byte, or a piece of a word.
enum class text_level { character, byte, wordpiece, byte_pair };

/// Characters or bytes in ascending order: token i is the i-th symbol.
class symbol_list {
 public:
  /// Character level: the characters that occur in `text`. Byte level: all 256 bytes, whatever the text.
  symbol_list(text_level level, std::string_view text) : level_(level) {
    std::string all_bytes(256, '\0');
    for (std::size_t i = 0; i < all_bytes.size(); ++i) all_bytes[i] = static_cast<char>(i);
    std::set<std::string_view> occurring;
    for_each_symbol(level == text_level::byte ? std::string_view(all_bytes) : text,
                    [&](std::string_view symbol) { occurring.insert(symbol); });
    pieces_.assign(occurring.begin(), occurring.end());
  }

  text_level level() const { return level_; }
  token size() const { return static_cast<token>(pieces_.size()); }
  std::vector<std::string> const& pieces() const { return pieces_; }

  /// Throws option_error at a symbol that the list lacks.
  std::vector<token> encode(std::string_view text) const {
    std::vector<token> tokens;
    tokens.reserve(text.size());
    for_each_symbol(text, [&](std::string_view symbol) {
      const auto found = std::lower_bound(pieces_.begin(), pieces_.end(), symbol);
      if (found == pieces_.end() || *found != symbol)
        throw tessera::option_error(tessera::message("[encode] ", tessera::io::in_quotes(symbol), " at byte ",
                                                     symbol.data() - text.data(), " is not among the ",
                                                     size(), " symbols this model knows; leave it out"));
      tokens.push_back(static_cast<token>(found - pieces_.begin()));
    });
    return tokens;
  }
  std::string decode(std::span<token const> tokens) const {
    std::string text;
    for (const token t : tokens) text += pieces_.at(static_cast<std::size_t>(t));
    return text;
  }

 private:
  template <class Visit> void for_each_symbol(std::string_view text, Visit visit) const {
    for (std::size_t length = 0; !text.empty(); text.remove_prefix(length)) {
      length = level_ == text_level::byte ? 1 : std::max<std::size_t>(1, tessera::io::utf8_length(text));
      visit(text.substr(0, length));
    }
  }

  text_level level_;
  std::vector<std::string> pieces_;
};

/// The tokens of a tokenizer.json, with the file, which a checkpoint keeps.
class tokenizer_file {
 public:
  /// Throws io_error, with the name of the file, for a part that is not known.
  tokenizer_file(tessera::io::json file, std::string const& name)
      : file_(std::move(file)), tokens_(tessera::io::json_place(file_, name)) {}

  tessera::io::json const& file() const { return file_; }
  token size() const { return tokens_.size(); }
  std::vector<std::string> const& pieces() const { return tokens_.pieces(); }
  std::vector<token> encode(std::string_view text) const { return tokens_.encode(text); }
  std::string decode(std::span<token const> tokens) const {
    return tokens_.decode(tokens, tessera::tokenizers::specials::kept);
  }
  /// What a token adds to a text that others come before, where a blank before it is none that was put there.
  std::string text_after_others(token t) const {
    std::vector<token> both = tokens_.encode("a");
    const std::size_t before = decode(both).size();
    both.push_back(t);
    const std::string text = decode(both);
    return text.substr(std::min(before, text.size()));
  }
  /// The token that the file puts before a text, or else the first special one.
  std::vector<token> beginning() const {
    std::vector<token> all = tokens_.with_special_tokens({});
    if (all.empty()) all = tokens_.special_tokens();
    all.resize(std::min<std::size_t>(1, all.size()));
    return all;
  }

 private:
  tessera::io::json file_;
  tessera::tokenizers::tokenizer tokens_;
};

/// What the tokens of a model stand for.
class vocabulary {
 public:
  /// Of characters or bytes: see symbol_list.
  vocabulary(text_level level, std::string_view text) : kind_(symbol_list(level, text)) {}
  explicit vocabulary(tessera::tokenizers::wordpiece pieces) : kind_(std::move(pieces)) {}
  explicit vocabulary(tessera::tokenizers::byte_pair pieces) : kind_(std::move(pieces)) {}
  explicit vocabulary(tokenizer_file file) : kind_(std::move(file)) {}

  text_level level() const {
    if (auto const* symbols = std::get_if<symbol_list>(&kind_)) return symbols->level();
    return words() ? text_level::wordpiece : text_level::byte_pair;
  }
  int size() const {
    return std::visit([](auto const& k) { return k.size(); }, kind_);
  }
  std::vector<token> encode(std::string_view text) const {
    return std::visit([&](auto const& k) { return k.encode(text); }, kind_);
  }
  std::string decode(std::span<token const> tokens) const {
    return std::visit([&](auto const& k) { return k.decode(tokens); }, kind_);
  }
  /// What a token adds to a text that others come before.
  std::string text_after_others(token t) const {
    if (file()) return file()->text_after_others(t);
    const std::string text = decode(std::span(&t, 1));
    return words() && !words()->continues_word(t) ? " " + text : text;
  }

  /// All symbols in a row.
  std::string symbols() const {
    auto const& all = pieces();
    return std::accumulate(all.begin(), all.end(), std::string());
  }
  /// Where a text without a prompt begins: the end of another text, a line break, or the first symbol.
  std::vector<token> beginning() const {
    if (pairs()) return {pairs()->end_of_text()};
    if (words()) return {words()->separator()};
    if (file() && !file()->beginning().empty()) return file()->beginning();
    return symbols().find('\n') == std::string::npos ? std::vector<token>{0} : encode("\n");
  }
  /// The tokens between two documents of a text.
  std::vector<token> between_documents() const {
    return std::holds_alternative<symbol_list>(kind_) ? std::vector<token>{} : beginning();
  }
  /// Null unless tokens are pieces of words with BERT's special tokens.
  tessera::tokenizers::wordpiece const* words() const {
    return std::get_if<tessera::tokenizers::wordpiece>(&kind_);
  }
  /// Null unless tokens are GPT-2's, from pieces and merges.
  tessera::tokenizers::byte_pair const* pairs() const {
    return std::get_if<tessera::tokenizers::byte_pair>(&kind_);
  }
  /// Null unless tokens are of a tokenizer.json.
  tokenizer_file const* file() const { return std::get_if<tokenizer_file>(&kind_); }
  /// How BERT masks these tokens, of which there must be words().
  tessera::train::masking masking() const {
    using enum tessera::train::token_kind;
    tessera::train::masking rule;
    rule.mask = words()->mask();
    for (token t = 0; t < size(); ++t)
      rule.kinds.push_back(words()->is_special(t)       ? special
                           : words()->continues_word(t) ? continues_word
                                                        : begins_word);
    return rule;
  }

  /// What a checkpoint holds of it, and back; the level is that of the settings.
  tessera::io::json to_json() const {
    using tessera::io::json;
    if (level() == text_level::byte) return "";
    if (level() == text_level::character) return symbols();
    json kept;
    if (file()) {
      kept["tokenizer"] = file()->file();
      return kept;
    }
    json::array all;
    for (std::string const& piece : pieces()) all.push_back(piece);
    kept["pieces"] = std::move(all);
    if (words()) {
      kept["lower_case"] = words()->letters() == tessera::tokenizers::letter_case::lower;
    } else {
      json::array merges;
      for (auto const& [left, right] : pairs()->merges()) merges.push_back(json::array{left, right});
      kept["merges"] = std::move(merges);
    }
    return kept;
  }
  static vocabulary from_json(text_level level, tessera::io::json_place const& at) {
    if (level == text_level::byte || level == text_level::character) return {level, at.as_string()};
    if (at.contains("tokenizer"))
      return vocabulary(tokenizer_file(at.at("tokenizer").value(), at.at("tokenizer").name()));
    const auto listed = at.at("pieces");
    std::vector<std::string> pieces;
    for (std::size_t i = 0; i < listed.size(); ++i) pieces.push_back(listed.at(i).as_string());
    using tessera::tokenizers::letter_case;
    if (level == text_level::wordpiece)
      return vocabulary(tessera::tokenizers::wordpiece(
          std::move(pieces), at.at("lower_case").as_bool() ? letter_case::lower : letter_case::kept));
    std::vector<std::pair<std::string, std::string>> merges;
    const auto pairs = at.at("merges");
    for (std::size_t i = 0; i < pairs.size(); ++i)
      merges.emplace_back(pairs.at(i).at(0).as_string(), pairs.at(i).at(1).as_string());
    return vocabulary(tessera::tokenizers::byte_pair(std::move(pieces), merges));
  }

  friend bool operator==(vocabulary const& a, vocabulary const& b) {
    return a.level() == b.level() && a.to_json() == b.to_json();
  }

 private:
  std::vector<std::string> const& pieces() const {
    return std::visit([](auto const& k) -> auto const& { return k.pieces(); }, kind_);
  }

  std::variant<symbol_list, tessera::tokenizers::wordpiece, tessera::tokenizers::byte_pair, tokenizer_file>
      kind_;
};

}  // namespace pretrain
