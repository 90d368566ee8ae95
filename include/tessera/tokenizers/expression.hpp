// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/expression_parser.hpp>
#include <tessera/tokenizers/unicode.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers {

/// A regular expression as they split a text in files of Hugging Face's tokenizers, with the meaning
/// that Oniguruma gives to it: alternatives, groups, (?i:…), (?>…), lookahead, classes of characters, greedy
/// and possessive repetition. Bytes that are not UTF-8 are taken for U+FFFD.
class expression {
 public:
  /// Throws io_error, `[source] the expression …, byte N: …`, for anything else, and for an expression that
  /// an empty text matches.
  explicit expression(std::string_view pattern, std::string const& source = "expression");

  /// Calls visit(begin, end) for each match, from the left: places in the text, where matches do not overlap.
  /// Throws option_error where that takes more than 1000 steps a byte, as no expression that is meant to
  /// split a text does.
  template <class Visit> void for_each_match(std::string_view text, Visit&& visit) const {
    matching use{{}, 10'000 + 1000 * std::uint64_t(text.size())};
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = match(text, at, 0, use);
      if (end != none) visit(at, end);
      at = end != none ? end : after(text, at);
    }
  }

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  /// A place to go back to: `at`, or a character less, down to `least`.
  struct place {
    std::uint32_t step;
    std::size_t at, least;
  };
  struct matching {
    std::vector<place> places;
    std::uint64_t steps;  // that are left
  };

  /// Where the match of the program from `step` on ends that begins at `at`, or `none`.
  std::size_t match(std::string_view text, std::size_t at, std::uint32_t step, matching& use) const;
  /// Goes on at the last place that was left: false if there is none.
  bool go_back(std::string_view text, std::size_t bottom, matching& use, std::uint32_t& step,
               std::size_t& at) const;
  /// Takes `most` characters or as many as there are; false if they are fewer than `least`.
  bool take_many(std::string_view text, detail::expression_step const& step, std::size_t& at,
                 std::size_t& least, matching& use) const;

  char32_t character(std::string_view text, std::size_t at) const {
    text.remove_prefix(at);
    return take_character(text);
  }
  /// Where the character at a place ends.
  static std::size_t after(std::string_view text, std::size_t at) {
    if (static_cast<unsigned char>(text[at]) < 0x80) return at + 1;
    const std::size_t length = io::utf8_length(text.substr(at));
    return at + (length == 0 ? 1 : length);
  }
  bool holds(std::uint32_t set, std::string_view text, std::size_t at) const {
    const auto byte = static_cast<unsigned char>(text[at]);
    return program_.sets[set].contains(byte < 0x80 ? byte : character(text, at));
  }

  detail::expression_program program_;
  std::string source_;
};

#ifdef TESSERA_BODY

TESSERA_BODY expression::expression(std::string_view pattern, std::string const& source)
    : program_(detail::parse_expression(pattern, source)), source_(source) {}

TESSERA_BODY bool expression::take_many(std::string_view text, detail::expression_step const& step,
                                        std::size_t& at, std::size_t& least, matching& use) const {
  std::uint32_t taken = 0;
  const std::size_t begin = at;
  least = at;
  while (taken < step.most && at < text.size() && holds(step.set, text, at)) {
    at = after(text, at);
    if (++taken <= step.least) least = at;
  }
  const std::uint64_t steps = at - begin;
  use.steps -= steps < use.steps ? steps : use.steps;
  return taken >= step.least;
}

TESSERA_BODY bool expression::go_back(std::string_view text, std::size_t bottom, matching& use,
                                      std::uint32_t& step, std::size_t& at) const {
  if (use.places.size() == bottom) return false;
  place& last = use.places.back();
  step = last.step, at = last.at;
  if (last.at > last.least)
    last.at = last.at - last_character_length(text.substr(0, last.at));
  else
    use.places.pop_back();
  return true;
}

TESSERA_BODY std::size_t expression::match(std::string_view text, std::size_t at, std::uint32_t step,
                                           matching& use) const {
  using enum detail::expression_step::kind;
  const std::size_t bottom = use.places.size();
  for (;;) {
    if (use.steps-- == 0) {
      use.steps = 0;
      throw option_error(message("[", source_,
                                 "] the expression takes more than 1000 steps a byte on a text of ",
                                 text.size(), " bytes: it goes back too often"));
    }
    detail::expression_step const& now = program_.steps[step];
    bool fits = true;
    std::size_t least = at;
    switch (now.is) {
      case one:
        fits = at < text.size() && holds(now.set, text, at);
        if (fits) at = after(text, at);
        break;
      case many:
        fits = take_many(text, now, at, least, use);
        if (fits && !now.is_possessive && least < at)
          use.places.push_back({step + 1, at - last_character_length(text.substr(0, at)), least});
        break;
      case either:
        if (now.begins_elsewhere(text, at)) {
          step = now.to;
          continue;
        }
        use.places.push_back({now.to, at, at});
        break;
      case jump:
        step = now.to;
        continue;
      case ahead:
      case not_ahead:
        fits = (match(text, at, step + 1, use) != none) == (now.is == ahead);
        if (fits) step = now.to - 1;
        break;
      case atomic:
        least = match(text, at, step + 1, use);
        fits = least != none;
        if (fits) at = least, step = now.to - 1;
        break;
      case end:
        use.places.resize(bottom);
        return at;
    }
    ++step;
    if (!fits && !go_back(text, bottom, use, step, at)) return none;
  }
}

#endif

}}}  // namespace tessera::TESSERA_ISA::tokenizers
