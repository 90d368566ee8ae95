// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/io/json.hpp>
#include <tessera/tokenizers/expression.hpp>
#include <tessera/tokenizers/file_parts.hpp>
#include <tessera/tokenizers/unicode.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

/// The words of a text, with the memory that they need.
struct cut_text {
  std::vector<std::string_view> words, next;
  std::deque<std::string> changed;  // texts that words are parts of

  std::string_view keep(std::string text) { return changed.emplace_back(std::move(text)); }
  void add(std::string_view word) {
    if (!word.empty()) next.push_back(word);
  }
};

/// How the places of a text that a pattern matches become words.
enum class split_behaviour { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Adds the parts of a text between and at some places.
///   find   calls visit(begin, end) for each place, in their order
template <class Find>
void split(std::string_view text, split_behaviour how, bool inverted, Find&& find, cut_text& to) {
  std::size_t done = 0, begin = 0;  // end of the last part, begin of the text that is not added yet
  bool before = false;              // whether the part before was a match
  const auto add_part = [&](std::size_t end, bool is_match) {
    if (end == done) return;
    using enum split_behaviour;
    const bool joins = how == contiguous             ? done > 0 && is_match == before
                       : how == merged_with_previous ? is_match && !before && done > 0
                       : how == merged_with_next     ? before && !is_match
                                                     : false;
    if (!joins) to.add(text.substr(begin, done - begin)), begin = done;
    if (how == removed && is_match) begin = end;
    done = end, before = is_match;
  };
  find(text, [&](std::size_t first, std::size_t last) {
    add_part(first, inverted);
    add_part(last, !inverted);
  });
  add_part(text.size(), inverted);
  to.add(text.substr(begin));
}

/// How a text is cut into words: ByteLevel, Metaspace, Split and BertPreTokenizer, alone or one after
/// another.
class pre_tokenizer {
 public:
  /// The part "pre_tokenizer" of a tokenizer.json, if it has one. Throws io_error for any other kind, and
  /// where anything stands behind ByteLevel.
  explicit pre_tokenizer(io::json_place const& file);

  /// Whether the vocabulary has words as the characters of their bytes.
  bool to_bytes() const { return to_bytes_; }
  /// Cuts a text into `words`, which refer to it or to `changed`.
  ///   is_first   whether the text is the beginning of all
  void cut(std::string_view text, bool is_first, cut_text& use) const;

 private:
  struct split_by_expression {
    expression pattern;
    split_behaviour how;
    bool inverted;
  };
  struct split_by_text {
    std::string pattern;
    split_behaviour how;
    bool inverted;
  };
  struct byte_level {
    bool adds_blank;
    std::optional<expression> pattern;
  };
  struct metaspace {
    enum class scheme { first, never, always };
    std::string replacement;
    scheme prepended;
    bool splits;
  };
  struct bert {
    character_set punctuation{tables::punctuation};
  };
  using step = std::variant<split_by_expression, split_by_text, byte_level, metaspace, bert>;

  static void apply(split_by_expression const& s, std::string_view text, bool is_first, cut_text& use);
  static void apply(split_by_text const& s, std::string_view text, bool is_first, cut_text& use);
  static void apply(byte_level const& s, std::string_view text, bool is_first, cut_text& use);
  static void apply(metaspace const& s, std::string_view text, bool is_first, cut_text& use);
  static void apply(bert const& s, std::string_view text, bool is_first, cut_text& use);
  /// Calls visit(begin, end) for each place where a text has another.
  static auto places_of(std::string const& other) {
    return [&other](std::string_view text, auto&& visit) {
      for (std::size_t at = text.find(other); at != text.npos; at = text.find(other, at + other.size()))
        visit(at, at + other.size());
    };
  }

  void add(io::json_place const& part);
  void add_split(io::json_place const& part);
  void add_byte_level(io::json_place const& part);
  void add_metaspace(io::json_place const& part);

  std::vector<step> steps_;
  bool to_bytes_ = false;
};

#ifdef TESSERA_BODY

TESSERA_BODY pre_tokenizer::pre_tokenizer(io::json_place const& file) {
  read_parts(file, "pre_tokenizer", "pretokenizers", [&](io::json_place const& one) {
    if (to_bytes_) one.fail("stands behind a ByteLevel, which must be the last");
    add(one);
  });
}

TESSERA_BODY void pre_tokenizer::add(io::json_place const& part) {
  std::string const& type = part.at("type").as_string();
  if (type == "Split")
    add_split(part);
  else if (type == "ByteLevel")
    add_byte_level(part);
  else if (type == "Metaspace")
    add_metaspace(part);
  else if (type == "BertPreTokenizer")
    allow_members(part, {"type"}), steps_.push_back(bert());
  else
    refuse_type(part, "Sequence, Split, ByteLevel, Metaspace, BertPreTokenizer");
}

TESSERA_BODY void pre_tokenizer::add_split(io::json_place const& part) {
  allow_members(part, {"type", "pattern", "behavior", "invert"});
  constexpr std::array<std::string_view, 5> names{"Removed", "Isolated", "MergedWithPrevious",
                                                  "MergedWithNext", "Contiguous"};
  const auto behaviour = part.at("behavior");
  const auto at = std::find(names.begin(), names.end(), behaviour.as_string());
  if (at == names.end())
    behaviour.fail("is " + io::in_quotes(behaviour.as_string()) + ", which is not known");
  const auto how = split_behaviour(at - names.begin());
  const auto pattern = part.at("pattern");
  const bool inverted = bool_or(part, "invert", false);
  if (!pattern.contains("Regex")) {
    steps_.push_back(split_by_text{string_pattern(pattern), how, inverted});
    return;
  }
  allow_members(pattern, {"Regex"});
  steps_.push_back(split_by_expression{
      expression(pattern.at("Regex").as_string(), pattern.at("Regex").name()), how, inverted});
}

TESSERA_BODY void pre_tokenizer::add_byte_level(io::json_place const& part) {
  allow_members(part, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  to_bytes_ = true;
  byte_level added{bool_or(part, "add_prefix_space", true), std::nullopt};
  if (bool_or(part, "use_regex", true))
    added.pattern.emplace(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)");
  steps_.push_back(std::move(added));
}

TESSERA_BODY void pre_tokenizer::add_metaspace(io::json_place const& part) {
  allow_members(part, {"type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
  std::string const& replacement = part.at("replacement").as_string();
  if (replacement.empty() || io::utf8_length(replacement) != replacement.size())
    part.at("replacement").fail("is " + io::in_quotes(replacement) + " but should be one character");
  constexpr std::array<std::string_view, 3> names{"first", "never", "always"};
  const std::string scheme = has(part, "prepend_scheme") ? part.at("prepend_scheme").as_string() : "always";
  const auto at = std::find(names.begin(), names.end(), scheme);
  if (at == names.end())
    part.at("prepend_scheme").fail("is " + io::in_quotes(scheme) + ", which is not known");
  auto prepended = metaspace::scheme(at - names.begin());
  if (!bool_or(part, "add_prefix_space", true)) {
    if (has(part, "prepend_scheme") && prepended != metaspace::scheme::never)
      part.at("add_prefix_space").fail("is false, but \"prepend_scheme\" is " + io::in_quotes(scheme));
    prepended = metaspace::scheme::never;
  }
  steps_.push_back(metaspace{replacement, prepended, bool_or(part, "split", true)});
}

TESSERA_BODY void pre_tokenizer::cut(std::string_view text, bool is_first, cut_text& use) const {
  use.words.assign(1, text);
  for (step const& s : steps_) {
    use.next.clear();
    for (std::string_view const& word : use.words)
      std::visit([&](auto const& one) { apply(one, word, is_first && &word == use.words.data(), use); }, s);
    is_first = is_first && !use.next.empty() && use.next.front().data() == use.words.front().data();
    use.words.swap(use.next);
  }
}

TESSERA_BODY void pre_tokenizer::apply(split_by_expression const& s, std::string_view text, bool,
                                       cut_text& use) {
  const auto find = [&](std::string_view in, auto&& visit) { s.pattern.for_each_match(in, visit); };
  split(text, s.how, s.inverted, find, use);
}

TESSERA_BODY void pre_tokenizer::apply(split_by_text const& s, std::string_view text, bool, cut_text& use) {
  split(text, s.how, s.inverted, places_of(s.pattern), use);
}

TESSERA_BODY void pre_tokenizer::apply(byte_level const& s, std::string_view text, bool, cut_text& use) {
  if (s.adds_blank && !text.starts_with(' ')) text = use.keep(" " + std::string(text));
  if (!s.pattern) return use.add(text);
  const auto find = [&](std::string_view in, auto&& visit) { s.pattern->for_each_match(in, visit); };
  split(text, split_behaviour::isolated, false, find, use);
}

TESSERA_BODY void pre_tokenizer::apply(metaspace const& s, std::string_view text, bool is_first,
                                       cut_text& use) {
  std::string changed = replaced(text, " ", s.replacement);
  const bool wanted =
      s.prepended == metaspace::scheme::always || (s.prepended == metaspace::scheme::first && is_first);
  if (wanted && !changed.starts_with(s.replacement)) changed.insert(0, s.replacement);
  const std::string_view kept = use.keep(std::move(changed));
  if (!s.splits) return use.add(kept);
  split(kept, split_behaviour::merged_with_next, false, places_of(s.replacement), use);
}

TESSERA_BODY void pre_tokenizer::apply(bert const& s, std::string_view text, bool, cut_text& use) {
  std::size_t begin = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t at = text.size() - rest.size();
    const char32_t c = take_character(rest);
    const std::size_t end = text.size() - rest.size();
    const bool is_blank = is_white_space(c);
    if (!is_blank && !s.punctuation.contains(c)) continue;
    use.add(text.substr(begin, at - begin));
    if (!is_blank) use.add(text.substr(at, end - at));
    begin = end;
  }
  use.add(text.substr(begin));
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
