// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>

namespace pretrain {

using token = std::int32_t;

/// What one token stands for: a character (a Unicode code point), or a byte.
enum class text_level { character, byte };

/// The symbols that tokens stand for, in ascending order: token i is the i-th symbol.
class vocabulary {
 public:
  /// Character level: the characters that occur in `text`. Byte level: all 256 bytes, whatever the text.
  vocabulary(text_level level, std::string_view text) : level_(level) {
    std::string all_bytes(256, '\0');
    for (std::size_t i = 0; i < all_bytes.size(); ++i) all_bytes[i] = static_cast<char>(i);
    std::set<std::string_view> occurring;
    for_each_symbol(level == text_level::byte ? std::string_view(all_bytes) : text,
                    [&](std::string_view symbol) { occurring.insert(symbol); });
    symbols_.assign(occurring.begin(), occurring.end());
  }

  text_level level() const { return level_; }
  int size() const { return static_cast<int>(symbols_.size()); }

  /// All symbols in a row: vocabulary(level(), symbols()) equals this one.
  std::string symbols() const { return std::accumulate(symbols_.begin(), symbols_.end(), std::string()); }

  /// Throws option_error at a symbol that the vocabulary lacks.
  std::vector<token> encode(std::string_view text) const {
    std::vector<token> tokens;
    tokens.reserve(text.size());
    for_each_symbol(text, [&](std::string_view symbol) {
      const auto found = std::lower_bound(symbols_.begin(), symbols_.end(), symbol);
      if (found == symbols_.end() || *found != symbol)
        throw tessera::option_error(tessera::message("[encode] '", std::string(symbol), "' at byte ",
                                                     symbol.data() - text.data(), " is not among the ",
                                                     size(), " symbols this model knows; leave it out"));
      tokens.push_back(static_cast<token>(found - symbols_.begin()));
    });
    return tokens;
  }

  std::string decode(std::span<token const> tokens) const {
    std::string text;
    for (const token t : tokens) text += symbols_.at(static_cast<std::size_t>(t));
    return text;
  }

  friend bool operator==(vocabulary const&, vocabulary const&) = default;

 private:
  template <class Visit> void for_each_symbol(std::string_view text, Visit visit) const {
    for (std::size_t length = 0; !text.empty(); text.remove_prefix(length)) {
      length = level_ == text_level::byte ? 1 : std::max<std::size_t>(1, tessera::io::utf8_length(text));
      visit(text.substr(0, length));
    }
  }

  text_level level_;
  std::vector<std::string> symbols_;
};

}  // namespace pretrain
