// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/unicode_tables.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers {

/// Takes the first character off UTF-8 text that is not empty; a byte that begins none is U+FFFD.
char32_t take_character(std::string_view& from);

/// Bytes of the last character of UTF-8 text that is not empty, as take_character would come to it.
std::size_t last_character_length(std::string_view text);

void append_utf8(std::string& to, char32_t code);

/// A set of characters, kept as ranges.
class character_set {
 public:
  struct range {
    char32_t first, end;
  };

  /// From a table of unicode_tables.hpp.
  explicit character_set(std::string_view table);
  /// From ranges in any order, which may overlap.
  explicit character_set(std::vector<range> ranges);
  bool contains(char32_t c) const { return c < ascii_.size() ? ascii_[c] : search(c); }
  /// In ascending order, apart.
  std::vector<range> const& ranges() const { return ranges_; }
  /// The characters that are not in this set.
  character_set others() const;

  /// Takes a number off a table.
  static std::uint32_t number(std::string_view& table);
  /// Takes a distance off a table, which is negative where its number is odd, and adds it to `from`.
  static char32_t moved(char32_t from, std::string_view& table) {
    const std::uint32_t z = number(table);
    return static_cast<char32_t>(static_cast<std::int64_t>(from) +
                                 (z % 2 ? -std::int64_t(z / 2) - 1 : std::int64_t(z / 2)));
  }

 private:
  static constexpr char32_t end_of_unicode = 0x110000;
  bool search(char32_t c) const;
  void finish();

  std::vector<range> ranges_;
  std::array<bool, 128> ascii_{};
};

/// Unicode's White_Space, in ascending order.
inline constexpr std::array<character_set::range, 10> white_space{{{9, 14},
                                                                   {' ', ' ' + 1},
                                                                   {0x85, 0x86},
                                                                   {0xA0, 0xA1},
                                                                   {0x1680, 0x1681},
                                                                   {0x2000, 0x200B},
                                                                   {0x2028, 0x202A},
                                                                   {0x202F, 0x2030},
                                                                   {0x205F, 0x2060},
                                                                   {0x3000, 0x3001}}};
bool is_white_space(char32_t c);

/// As BertTokenizer has it: without the first 256 of extension E, U+2B820 on, which BERT's own code has.
bool is_chinese(char32_t c);

/// Lower case without accents, of a character at a time: canonical decomposition, whose nonspacing marks are
/// left out, in lower case.
class accent_folding {
 public:
  accent_folding();
  void append(std::u32string& to, char32_t c) const;

 private:
  struct folding {
    char32_t of;
    std::uint32_t first, count;
  };
  std::vector<folding> all_;
  std::u32string results_;
};

#ifdef TESSERA_BODY

TESSERA_BODY char32_t take_character(std::string_view& from) {
  const std::size_t length = io::utf8_length(from);
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(from[i]); };
  char32_t code = length == 0 ? 0xFFFD : length == 1 ? byte(0) : byte(0) & (0xFFu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (byte(i) & 0x3F);
  from.remove_prefix(std::max<std::size_t>(1, length));
  return code;
}

TESSERA_BODY std::size_t last_character_length(std::string_view text) {
  for (std::size_t length = 2; length <= 4 && length <= text.size(); ++length)
    if (io::utf8_length(text.substr(text.size() - length)) == length) return length;
  return 1;
}

TESSERA_BODY void append_utf8(std::string& to, char32_t code) {
  const auto put = [&](char32_t byte) { to += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xC0 | code >> 6), put(0x80 | (code & 0x3F));
  if (code < 0x10000)
    put(0xE0 | code >> 12);
  else
    put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 0x3F));
  put(0x80 | (code >> 6 & 0x3F)), put(0x80 | (code & 0x3F));
}

TESSERA_BODY character_set::character_set(std::string_view table) {
  char32_t at = 0;
  while (!table.empty()) {
    at += number(table);
    const char32_t first = at;
    at += number(table) + 1;
    ranges_.push_back({first, at});
  }
  finish();
}

TESSERA_BODY character_set::character_set(std::vector<range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](range const& a, range const& b) { return a.first < b.first; });
  for (range const& r : ranges) {
    if (ranges_.empty() || ranges_.back().end < r.first)
      ranges_.push_back(r);
    else
      ranges_.back().end = std::max(ranges_.back().end, r.end);
  }
  finish();
}

TESSERA_BODY void character_set::finish() {
  for (char32_t c = 0; c < ascii_.size(); ++c) ascii_[c] = search(c);
}

TESSERA_BODY character_set character_set::others() const {
  std::vector<range> between;
  char32_t at = 0;
  for (range const& r : ranges_) {
    if (at < r.first) between.push_back({at, r.first});
    at = r.end;
  }
  if (at < end_of_unicode) between.push_back({at, end_of_unicode});
  return character_set(std::move(between));
}

TESSERA_BODY std::uint32_t character_set::number(std::string_view& table) {
  constexpr auto values = [] {
    constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::array<std::uint8_t, 128> all{};
    for (std::size_t i = 0; i < digits.size(); ++i) all[std::size_t(digits[i])] = std::uint8_t(i);
    return all;
  }();
  std::uint32_t n = 0;
  for (int shift = 0;; shift += 5) {
    const std::uint32_t digit = values[std::size_t(table.front())];
    table.remove_prefix(1);
    n |= (digit & 31) << shift;
    if (digit < 32) return n;
  }
}

TESSERA_BODY bool character_set::search(char32_t c) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), c,
                                      [](char32_t code, range const& r) { return code < r.first; });
  return after != ranges_.begin() && c < (after - 1)->end;
}

TESSERA_BODY bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return std::any_of(white_space.begin(), white_space.end(),
                     [c](character_set::range const& r) { return c >= r.first && c < r.end; });
}

TESSERA_BODY bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

TESSERA_BODY accent_folding::accent_folding() {
  std::string_view table = tables::foldings;
  for (char32_t c = 0; !table.empty();) {
    c += character_set::number(table);
    folding f{c, static_cast<std::uint32_t>(results_.size()), character_set::number(table)};
    for (std::uint32_t i = 0; i < f.count; ++i) results_ += character_set::moved(c, table);
    all_.push_back(f);
  }
}

TESSERA_BODY void accent_folding::append(std::u32string& to, char32_t c) const {
  if (c < 0x80) {
    to += c >= 'A' && c <= 'Z' ? c + 32 : c;
  } else if (c >= 0xAC00 && c <= 0xD7A3) {  // a syllable of Hangul: two or three letters (Unicode 3.12)
    const char32_t s = c - 0xAC00;
    to += 0x1100 + s / 588;
    to += 0x1161 + s % 588 / 28;
    if (s % 28 != 0) to += 0x11A7 + s % 28;
  } else {
    const auto at = std::lower_bound(all_.begin(), all_.end(), c,
                                     [](folding const& f, char32_t code) { return f.of < code; });
    if (at == all_.end() || at->of != c)
      to += c;
    else
      to.append(results_, at->first, at->count);
  }
}

#endif

}}}  // namespace tessera::TESSERA_ISA::tokenizers
