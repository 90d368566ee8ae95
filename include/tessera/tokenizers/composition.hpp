// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/composition_tables.hpp>
#include <tessera/tokenizers/unicode.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers {

/// Text in Normalization Form C (Unicode Standard Annex 15): letters and the marks behind them are one
/// character where there is one, and marks stand in one order.
class canonical_composition {
 public:
  canonical_composition();

  /// Bytes that are not UTF-8 stay as they are.
  std::string operator()(std::string_view text) const;

 private:
  struct decomposition {
    char32_t of;
    std::size_t first, count;
  };
  struct marks {
    char32_t first, end;
    std::uint32_t order;
  };
  static constexpr char32_t first_that_changes = 0x300;  // before it every character stays as it is

  /// Canonical_Combining_Class: 0, or the place of a mark among others.
  std::uint32_t order_of(char32_t c) const;
  void decompose(char32_t c, std::u32string& to) const;
  /// The character that two compose to, or 0.
  char32_t composed(char32_t first, char32_t second) const;
  void sort_marks(std::u32string& text) const;
  void compose(std::u32string& text) const;

  std::vector<decomposition> decompositions_;
  std::u32string parts_;
  std::vector<marks> marks_;
  std::unordered_map<std::uint64_t, char32_t> composites_;
};

#ifdef TESSERA_BODY

TESSERA_BODY canonical_composition::canonical_composition() {
  std::string_view table = tables::decompositions;
  for (char32_t c = 0; !table.empty();) {
    c += character_set::number(table);
    const std::uint32_t kind = character_set::number(table);
    decompositions_.push_back({c, parts_.size(), kind == 0 ? 2 : kind});
    for (std::size_t i = 0; i < decompositions_.back().count; ++i) parts_ += character_set::moved(c, table);
    if (kind == 0) composites_.emplace(std::uint64_t(parts_[parts_.size() - 2]) << 32 | parts_.back(), c);
  }
  table = tables::combining_classes;
  for (char32_t at = 0; !table.empty();) {
    const char32_t first = at + character_set::number(table);
    at = first + character_set::number(table) + 1;
    marks_.push_back({first, at, character_set::number(table)});
  }
}

TESSERA_BODY std::string canonical_composition::operator()(std::string_view text) const {
  std::string result;
  std::u32string part;  // characters that may change, and the one before them
  const auto end_part = [&] {
    if (part.size() > 1 || (!part.empty() && part.front() >= first_that_changes)) {
      std::u32string letters;
      for (const char32_t c : part) decompose(c, letters);
      sort_marks(letters);
      compose(letters);
      part.swap(letters);
    }
    for (const char32_t c : part) append_utf8(result, c);
    part.clear();
  };
  while (!text.empty()) {
    const std::size_t length = io::utf8_length(text);
    if (length == 0) {
      end_part();
      result += text.front();
      text.remove_prefix(1);
      continue;
    }
    const char32_t c = take_character(text);
    if (c < first_that_changes) end_part();
    part += c;
  }
  end_part();
  return result;
}

TESSERA_BODY std::uint32_t canonical_composition::order_of(char32_t c) const {
  const auto after = std::upper_bound(marks_.begin(), marks_.end(), c,
                                      [](char32_t code, marks const& run) { return code < run.first; });
  return after != marks_.begin() && c < (after - 1)->end ? (after - 1)->order : 0;
}

TESSERA_BODY void canonical_composition::decompose(char32_t c, std::u32string& to) const {
  const auto at = std::lower_bound(decompositions_.begin(), decompositions_.end(), c,
                                   [](decomposition const& d, char32_t code) { return d.of < code; });
  if (at == decompositions_.end() || at->of != c) {
    to += c;  // also a syllable of Hangul: its letters would make the same one
  } else if (at->count == 2 && composed(parts_[at->first], parts_[at->first + 1]) == c) {
    decompose(parts_[at->first], to);  // four deep at most
    decompose(parts_[at->first + 1], to);
  } else {
    to.append(parts_, at->first, at->count);
  }
}

TESSERA_BODY char32_t canonical_composition::composed(char32_t first, char32_t second) const {
  // Hangul (The Unicode Standard, 3.12): a leading consonant and a vowel, or their syllable and a
  // trailing consonant.
  if (first >= 0x1100 && first < 0x1113 && second >= 0x1161 && second < 0x1176)
    return 0xAC00 + ((first - 0x1100) * 21 + (second - 0x1161)) * 28;
  if (first >= 0xAC00 && first < 0xD7A4 && (first - 0xAC00) % 28 == 0 && second > 0x11A7 && second < 0x11C3)
    return first + (second - 0x11A7);
  const auto at = composites_.find(std::uint64_t(first) << 32 | second);
  return at == composites_.end() ? 0 : at->second;
}

TESSERA_BODY void canonical_composition::sort_marks(std::u32string& text) const {
  const auto is_mark = [&](char32_t c) { return order_of(c) != 0; };
  std::vector<std::tuple<std::uint32_t, std::size_t, char32_t>> by_order;
  for (auto at = text.begin(); at != text.end();) {
    const auto first = std::find_if(at, text.end(), is_mark);
    at = std::find_if_not(first, text.end(), is_mark);
    if (at - first < 2) continue;
    by_order.clear();  // of equal order the first stays the first
    for (auto mark = first; mark != at; ++mark) by_order.push_back({order_of(*mark), by_order.size(), *mark});
    std::sort(by_order.begin(), by_order.end());
    std::transform(by_order.begin(), by_order.end(), first,
                   [](auto const& mark) { return std::get<2>(mark); });
  }
}

TESSERA_BODY void canonical_composition::compose(std::u32string& text) const {
  constexpr std::size_t none = ~std::size_t(0);
  std::size_t to = 0, starter = none;
  std::uint32_t last = 0;  // the order of the character before, if it stays
  for (const char32_t c : text) {
    const std::uint32_t order = order_of(c);
    // A mark is blocked by one of its own order, anything else by every character in between.
    const bool reaches =
        starter != none && (to == starter + 1 || last < order) && (to == starter + 1 || last != 0);
    if (const char32_t whole = reaches ? composed(text[starter], c) : 0) {
      text[starter] = whole;
      continue;
    }
    if (order == 0) starter = to;
    last = order;
    text[to++] = c;
  }
  text.resize(to);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::tokenizers
