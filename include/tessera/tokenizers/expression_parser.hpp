// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/expression_sets.hpp>
#include <tessera/tokenizers/unicode.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

/// Characters that a text may begin with, bit 128 for all beyond ASCII.
using first_characters = std::bitset<129>;

/// A step of the program that finds an expression in a text.
struct expression_step {
  enum class kind {
    one,        // a character of the set
    many,       // `least` to `most` characters of the set
    either,     // goes on with the next step, and if that fails at `to`
    jump,       // to `to`
    ahead,      // goes on at `to` if the steps from the next one to an end fit, and takes nothing
    not_ahead,  // if they do not
    atomic,     // goes on at `to` behind them, and does not try them otherwise
    end
  };
  kind is = kind::end;
  bool is_possessive = false;
  std::uint32_t set = 0, least = 0, most = 0, to = 0;
  first_characters begins = {};  // of either: characters that its next steps need

  /// Whether the next steps cannot fit at a place.
  bool begins_elsewhere(std::string_view text, std::size_t at) const {
    if (at >= text.size()) return !begins.all();
    const auto byte = static_cast<unsigned char>(text[at]);
    return !begins[byte < 128 ? byte : 128];
  }
};

struct expression_program {
  std::vector<expression_step> steps;
  std::vector<character_set> sets;
};

/// Throws io_error, `[source] the expression …, byte N: …`, for a part that it does not know.
expression_program parse_expression(std::string_view pattern, std::string const& source);

/// A part of an expression.
struct expression_node {
  enum class kind { set, sequence, alternatives, repeat, ahead, not_ahead, atomic };
  kind is;
  std::uint32_t set = 0, least = 0, most = 0;
  bool is_possessive = false;
  std::vector<expression_node> parts = {};
};

/// Recursive descent: alternatives of sequences of characters and groups that may be repeated.
class expression_parser {
 public:
  static constexpr std::size_t longest_pattern = 2000, most_steps = 10'000, deepest = 50;
  static constexpr std::uint32_t no_end = std::numeric_limits<std::uint32_t>::max();

  expression_parser(std::string_view pattern, std::string const& source) : text_(pattern, source) {}

  expression_program run();

 private:
  struct beginning {
    first_characters first;
    bool may_be_empty;
  };

  expression_node alternatives(std::size_t depth, bool folded);
  expression_node sequence(std::size_t depth, bool folded);
  expression_node part(std::size_t depth, bool folded);
  expression_node group(std::size_t depth, bool folded);
  expression_node repeated(expression_node of);
  std::pair<std::uint32_t, std::uint32_t> interval();
  expression_node set_node(character_set set);

  beginning beginning_of(expression_node const& node) const;
  void emit_node(expression_node const& node);
  void emit_repeat(expression_node const& node);
  void emit_enclosed(expression_step::kind is, expression_node const& node);
  std::uint32_t add(expression_step step);

  expression_text text_;
  expression_program program_;
};

#ifdef TESSERA_BODY

TESSERA_BODY expression_program parse_expression(std::string_view pattern, std::string const& source) {
  return expression_parser(pattern, source).run();
}

TESSERA_BODY expression_program expression_parser::run() {
  if (text_.size() > longest_pattern) text_.fail(message("at most ", longest_pattern, " bytes are read"));
  const expression_node all = alternatives(0, false);
  if (!text_.at_end()) text_.fail("a ) without its (");
  if (beginning_of(all).may_be_empty) text_.fail("an empty text matches it: no text can be split there");
  emit_node(all);
  add({});
  return std::move(program_);
}

TESSERA_BODY expression_node expression_parser::alternatives(std::size_t depth, bool folded) {
  if (depth > deepest) text_.fail(message("groups are nested more than ", deepest, " deep"));
  expression_node all{expression_node::kind::alternatives};
  do all.parts.push_back(sequence(depth, folded));
  while (text_.take('|'));
  return all.parts.size() == 1 ? std::move(all.parts.front()) : std::move(all);
}

TESSERA_BODY expression_node expression_parser::sequence(std::size_t depth, bool folded) {
  expression_node all{expression_node::kind::sequence};
  text_.begin_word();
  while (!text_.at_end() && !text_.is('|') && !text_.is(')'))
    all.parts.push_back(repeated(part(depth, folded)));
  return all.parts.size() == 1 ? std::move(all.parts.front()) : std::move(all);
}

TESSERA_BODY expression_node expression_parser::part(std::size_t depth, bool folded) {
  if (text_.take('(')) return group(depth + 1, folded);
  return set_node(text_.set(folded));
}

TESSERA_BODY expression_node expression_parser::group(std::size_t depth, bool folded) {
  using kind = expression_node::kind;
  auto is = kind::sequence;
  text_.begin_word();
  if (text_.take('?')) {
    if (text_.take("i:"))
      folded = true;
    else if (text_.take('='))
      is = kind::ahead;
    else if (text_.take('!'))
      is = kind::not_ahead;
    else if (text_.take('>'))
      is = kind::atomic;
    else if (!text_.take(':'))
      text_.fail("of groups (?:…), (?i:…), (?=…), (?!…) and (?>…) are known");
  }
  expression_node inside = alternatives(depth, folded);
  if (!text_.take(')')) text_.fail("a ( without its )");
  text_.begin_word();
  if (is == kind::sequence) return inside;
  expression_node all{is};
  all.parts.push_back(std::move(inside));
  return all;
}

TESSERA_BODY expression_node expression_parser::set_node(character_set set) {
  if (program_.sets.size() >= most_steps) text_.fail("it is too long");
  program_.sets.push_back(std::move(set));
  return {expression_node::kind::set, std::uint32_t(program_.sets.size() - 1)};
}

TESSERA_BODY expression_node expression_parser::repeated(expression_node of) {
  const bool is_interval = text_.is('{');
  std::pair<std::uint32_t, std::uint32_t> times{1, 1};
  if (is_interval)
    times = interval();
  else if (text_.take('?'))
    times = {0, 1};
  else if (text_.take('*'))
    times = {0, no_end};
  else if (text_.take('+'))
    times = {1, no_end};
  else
    return of;
  text_.begin_word();
  expression_node all{expression_node::kind::repeat, 0, times.first, times.second};
  if (text_.is('?')) text_.fail("a repetition that takes as few as it can is not known");
  all.is_possessive = !is_interval && text_.take('+');  // behind {…} Oniguruma has another meaning for it
  if (text_.is('+') || text_.is('*') || text_.is('{'))
    text_.fail("a repetition of a repetition is not known");
  if (of.is != expression_node::kind::set && beginning_of(of).may_be_empty)
    text_.fail("a part that may be empty is repeated");
  all.parts.push_back(std::move(of));
  return all;
}

TESSERA_BODY std::pair<std::uint32_t, std::uint32_t> expression_parser::interval() {
  text_.take('{');
  const std::uint32_t least = text_.number(1000);
  std::uint32_t most = least;
  if (text_.take(',')) most = text_.is('}') ? no_end : text_.number(1000);
  if (!text_.take('}')) text_.fail("{n}, {n,} or {n,m} is meant");
  if (most < least || most == 0) text_.fail("a repetition of no times");
  return {least, most};
}

TESSERA_BODY expression_parser::beginning expression_parser::beginning_of(expression_node const& node) const {
  using enum expression_node::kind;
  if (node.is == ahead || node.is == not_ahead) return {{}, true};
  if (node.is == set) {
    beginning all{{}, false};
    for (char32_t c = 0; c < 128; ++c) all.first[c] = program_.sets[node.set].contains(c);
    auto const& ranges = program_.sets[node.set].ranges();
    all.first[128] = !ranges.empty() && ranges.back().end > 128;
    return all;
  }
  beginning all{{}, node.is != alternatives};
  for (expression_node const& part : node.parts) {
    const beginning next = beginning_of(part);
    all.first |= next.first;
    if (node.is == alternatives) {
      all.may_be_empty |= next.may_be_empty;
    } else if (!next.may_be_empty) {
      all.may_be_empty = false;
      break;
    }
  }
  if (node.is == repeat && node.least == 0) all.may_be_empty = true;
  return all;
}

TESSERA_BODY std::uint32_t expression_parser::add(expression_step step) {
  if (program_.steps.size() >= most_steps) text_.fail("its repetitions make it too long");
  program_.steps.push_back(step);
  return std::uint32_t(program_.steps.size() - 1);
}

TESSERA_BODY void expression_parser::emit_node(expression_node const& node) {
  using enum expression_node::kind;
  using step = expression_step::kind;
  auto& steps = program_.steps;
  if (node.is == set) {
    add({step::one, false, node.set});
  } else if (node.is == sequence) {
    for (expression_node const& part : node.parts) emit_node(part);
  } else if (node.is == repeat) {
    emit_repeat(node);
  } else if (node.is == alternatives) {
    std::vector<std::uint32_t> ends;
    for (expression_node const& part : node.parts) {
      const bool is_last = &part == &node.parts.back();
      const beginning first = beginning_of(part);
      const std::uint32_t either = is_last ? 0 : add({step::either});
      emit_node(part);
      if (is_last) break;
      ends.push_back(add({step::jump}));
      steps[either].to = std::uint32_t(steps.size());
      steps[either].begins = first.may_be_empty ? first_characters().set() : first.first;
    }
    for (const std::uint32_t jump : ends) steps[jump].to = std::uint32_t(steps.size());
  } else {
    emit_enclosed(node.is == ahead       ? step::ahead
                  : node.is == not_ahead ? step::not_ahead
                                         : step::atomic,
                  node.parts.front());
  }
}

TESSERA_BODY void expression_parser::emit_enclosed(expression_step::kind is, expression_node const& node) {
  const std::uint32_t begin = add({is});
  emit_node(node);
  add({});
  program_.steps[begin].to = std::uint32_t(program_.steps.size());
}

TESSERA_BODY void expression_parser::emit_repeat(expression_node const& node) {
  using step = expression_step::kind;
  auto& steps = program_.steps;
  expression_node const& part = node.parts.front();
  if (part.is == expression_node::kind::set) {
    add({step::many, node.is_possessive, part.set, node.least, node.most});
    return;
  }
  if (node.is_possessive) {
    expression_node greedy = node;
    greedy.is_possessive = false;
    return emit_enclosed(step::atomic, greedy);
  }
  for (std::uint32_t i = 0; i < node.least; ++i) emit_node(part);
  std::vector<std::uint32_t> exits;
  const std::uint32_t optional = node.most == no_end ? 1 : node.most - node.least;
  const std::uint32_t loop = std::uint32_t(steps.size());
  for (std::uint32_t i = 0; i < optional; ++i) {
    exits.push_back(add({step::either}));
    steps[exits.back()].begins = beginning_of(part).first;
    emit_node(part);
  }
  if (node.most == no_end) steps[add({step::jump})].to = loop;
  for (const std::uint32_t either : exits) steps[either].to = std::uint32_t(steps.size());
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
