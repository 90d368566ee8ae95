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
#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/unicode.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

/// The text of an expression, and the sets of characters that stand in it.
class expression_text {
 public:
  expression_text(std::string_view pattern, std::string const& source) : all_(pattern), source_(source) {}

  std::size_t size() const { return all_.size(); }
  bool at_end() const { return at_ == all_.size(); }
  bool is(char c) const { return !at_end() && all_[at_] == c; }
  bool take(char c) { return is(c) ? (++at_, true) : false; }
  bool take(std::string_view word) {
    const bool is_next = all_.substr(at_).starts_with(word);
    if (is_next) at_ += word.size();
    return is_next;
  }
  std::uint32_t number(std::uint32_t most);

  /// A character, an escape or a class in brackets.
  ///   folded   letters of ASCII stand for both cases
  character_set set(bool folded);
  /// The next character does not follow one that stands for itself.
  void begin_word() { before_ = 0; }

  [[noreturn]] void fail(std::string const& what) const;

 private:
  using ranges = std::vector<character_set::range>;

  char32_t character();
  /// Behind a backslash: one character, which is returned, or a class, which is added.
  char32_t escape(ranges& to);
  void property(ranges& to, bool others);
  character_set brackets(bool folded);
  character_set with_both_cases(ranges const& of) const;
  /// In some pairs of letters Oniguruma finds ligatures, too: "ﬁ" in (?i:fi).
  void refuse_ligature(ranges const& next);

  static void add(ranges& to, character_set const& set) {
    to.insert(to.end(), set.ranges().begin(), set.ranges().end());
  }
  static constexpr char32_t none = 0x110000;

  std::string_view all_;
  std::string const& source_;
  std::size_t at_ = 0;
  char32_t before_ = 0;  // the letter before, if it stands for itself
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void expression_text::fail(std::string const& what) const {
  throw io_error(message("[", source_, "] the expression ", io::in_quotes(all_), ", byte ", at_, ": ", what));
}

TESSERA_BODY std::uint32_t expression_text::number(std::uint32_t most) {
  std::uint32_t n = 0;
  const std::size_t begin = at_;
  for (; !at_end() && all_[at_] >= '0' && all_[at_] <= '9'; ++at_) {
    n = 10 * n + std::uint32_t(all_[at_] - '0');
    if (n > most) fail(message("a number above ", most));
  }
  if (at_ == begin) fail("a number is meant here");
  return n;
}

TESSERA_BODY char32_t expression_text::character() {
  std::string_view rest = all_.substr(at_);
  if (rest.empty()) fail("it ends too early");
  if (io::utf8_length(rest) == 0) fail("it is not UTF-8");
  const char32_t c = take_character(rest);
  at_ = all_.size() - rest.size();
  return c;
}

TESSERA_BODY char32_t expression_text::escape(ranges& to) {
  const std::size_t begin = at_;
  const char32_t c = character();
  constexpr std::u32string_view letters = U"nrtfv", stand_for = U"\n\r\t\f\v";
  if (const std::size_t i = letters.find(c); i != letters.npos) return stand_for[i];
  const character_set blanks(ranges(white_space.begin(), white_space.end()));
  if (c == 's') return add(to, blanks), none;
  if (c == 'S') return add(to, blanks.others()), none;
  if (c == 'p' || c == 'P') return property(to, c == 'P'), none;
  const bool is_mark =
      c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !((c | 32) >= 'a' && (c | 32) <= 'z');
  if (is_mark || c == ' ') return c;
  at_ = begin;
  fail(message("the escape ", io::in_quotes("\\" + std::string(all_.substr(begin, 1))), " is not known"));
}

TESSERA_BODY void expression_text::property(ranges& to, bool others) {
  constexpr std::array<std::pair<std::string_view, char const*>, 8> known{{{"{L}", tables::letters},
                                                                           {"{N}", tables::numbers},
                                                                           {"{Lu}", tables::category_lu},
                                                                           {"{Ll}", tables::category_ll},
                                                                           {"{Lt}", tables::category_lt},
                                                                           {"{Lm}", tables::category_lm},
                                                                           {"{Lo}", tables::category_lo},
                                                                           {"{M}", tables::category_m}}};
  for (auto const& [name, table] : known)
    if (take(name)) return add(to, others ? character_set(table).others() : character_set(table));
  const std::string_view rest = all_.substr(at_);
  fail(message("the property \\p", std::string(rest.substr(0, std::min(rest.find('}'), rest.size() - 1) + 1)),
               " is not known; it has \\p{L}, Lu, Ll, Lt, Lm, Lo, M and N"));
}

TESSERA_BODY character_set expression_text::with_both_cases(ranges const& of) const {
  const character_set set(of);
  ranges all = of;
  for (character_set::range const& r : set.ranges())
    if (r.end > 128) fail("behind (?i: only ASCII is known");
  for (char32_t c = 'a'; c <= 'z'; ++c)
    if (set.contains(c) || set.contains(c - 32)) all.insert(all.end(), {{c, c + 1}, {c - 32, c - 31}});
  // The other characters whose lower case is one of ASCII: long s, and the sign for kelvin.
  if (set.contains('s') || set.contains('S')) all.push_back({0x17F, 0x180});
  if (set.contains('k') || set.contains('K')) all.push_back({0x212A, 0x212B});
  return character_set(std::move(all));
}

TESSERA_BODY void expression_text::refuse_ligature(ranges const& next) {
  constexpr std::string_view pairs = "ss ff fi fl st";
  const character_set set(next);
  for (std::size_t i = 0; i + 1 < pairs.size(); i += 3)
    for (const int from_upper : {0, 32})
      if (before_ == char32_t(pairs[i]) && set.contains(char32_t(pairs[i + 1] - from_upper)))
        fail(message("behind (?i: the letters \"", std::string(pairs.substr(i, 2)), "\" are not known"));
}

TESSERA_BODY character_set expression_text::set(bool folded) {
  if (take('[')) return brackets(folded);
  constexpr std::string_view unknown = "^$*+?{";
  if (!at_end() && unknown.find(all_[at_]) != unknown.npos)
    fail(message("the sign ", io::in_quotes(all_.substr(at_, 1)), " is not known here"));
  ranges all;
  if (take('.')) return character_set(ranges{{'\n', '\n' + 1}}).others();
  const char32_t c = take('\\') ? escape(all) : character();
  if (c != none) all.push_back({c, c + 1});
  if (!folded) return character_set(std::move(all));
  refuse_ligature(all);
  before_ = c >= 'A' && c <= 'Z' ? c + 32 : c;
  return with_both_cases(all);
}

TESSERA_BODY character_set expression_text::brackets(bool folded) {
  const bool others = take('^');
  ranges all;
  if (is(']')) fail("an empty class");
  while (!take(']')) {
    if (is('[') || all_.substr(at_).starts_with("&&")) fail("classes within classes are not known");
    char32_t first = take('\\') ? escape(all) : character();
    if (first == none) {
      if (is('-') && !all_.substr(at_).starts_with("-]")) fail("a range that begins with a class");
      continue;
    }
    char32_t last = first;
    if (is('-') && !all_.substr(at_).starts_with("-]")) {
      take('-');
      if (is('[')) fail("classes within classes are not known");
      last = take('\\') ? escape(all) : character();
      if (last == none) fail("a range that ends with a class");
      if (last < first) fail("a range that ends before it begins");
    }
    all.push_back({first, last + 1});
  }
  if (folded && others) fail("behind (?i: a class of other characters is not known");
  if (folded) refuse_ligature(all);
  const char32_t one = all.size() == 1 ? all.front().first : 0;
  before_ = folded && one < 128 ? one : 0;
  character_set set = folded ? with_both_cases(all) : character_set(std::move(all));
  return others ? set.others() : set;
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
