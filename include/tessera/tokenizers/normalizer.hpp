// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/io/json.hpp>
#include <tessera/tokenizers/composition.hpp>
#include <tessera/tokenizers/file_parts.hpp>
#include <tessera/tokenizers/unicode.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

/// BERT's way to clean a text.
class bert_normalizer {
 public:
  explicit bert_normalizer(io::json_place const& part);
  std::string operator()(std::string_view text) const;

 private:
  bool cleans_, sets_chinese_apart_, folds_;
  character_set controls_{tables::controls};
  accent_folding folding_;
};

/// How a text is changed before it is cut: NFC, Prepend and Replace of SentencePiece, and BertNormalizer,
/// alone or one after another.
class normalizer {
 public:
  /// The part "normalizer" of a tokenizer.json, if it has one. Throws io_error for any other kind.
  explicit normalizer(io::json_place const& file);

  bool changes_nothing() const { return steps_.empty(); }
  std::string operator()(std::string_view text) const;

 private:
  struct prepend {
    std::string text;
  };
  struct replace {
    std::string from, to;
  };
  using step = std::variant<prepend, replace, canonical_composition, bert_normalizer>;

  static std::string applied(prepend const& s, std::string_view text) {
    return text.empty() ? std::string() : s.text + std::string(text);
  }
  static std::string applied(replace const& s, std::string_view text) { return replaced(text, s.from, s.to); }
  static std::string applied(auto const& s, std::string_view text) { return s(text); }

  void add(io::json_place const& part);

  std::vector<step> steps_;
  text_growth growth_;
};

#ifdef TESSERA_BODY

TESSERA_BODY bert_normalizer::bert_normalizer(io::json_place const& part)
    : cleans_(bool_or(part, "clean_text", true)),
      sets_chinese_apart_(bool_or(part, "handle_chinese_chars", true)),
      folds_(bool_or(part, "lowercase", true)) {
  allow_members(part, {"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  if (bool_or(part, "strip_accents", folds_) != folds_)
    part.at("strip_accents").fail("differs from \"lowercase\": only both or none are known");
}

TESSERA_BODY std::string bert_normalizer::operator()(std::string_view text) const {
  std::string result;
  std::u32string letters;
  while (!text.empty()) {
    char32_t c = take_character(text);
    if (cleans_ && controls_.contains(c)) continue;
    if (cleans_ && is_white_space(c)) c = ' ';
    const bool is_apart = sets_chinese_apart_ && is_chinese(c);
    letters.clear();
    folds_ ? folding_.append(letters, c) : letters.push_back(c);
    if (is_apart) result += ' ';
    for (const char32_t letter : letters) append_utf8(result, letter);
    if (is_apart) result += ' ';
  }
  return result;
}

TESSERA_BODY normalizer::normalizer(io::json_place const& file) {
  read_parts(file, "normalizer", "normalizers", [&](io::json_place const& one) { add(one); });
}

TESSERA_BODY void normalizer::add(io::json_place const& part) {
  std::string const& type = part.at("type").as_string();
  if (type == "Prepend") {
    allow_members(part, {"type", "prepend"});
    growth_.multiply(part, 1, part.at("prepend").as_string().size());
    steps_.push_back(prepend{part.at("prepend").as_string()});
  } else if (type == "Replace") {
    allow_members(part, {"type", "pattern", "content"});
    const replace added{string_pattern(part.at("pattern")), part.at("content").as_string()};
    growth_.multiply(part, added.from.size(), added.to.size());
    steps_.push_back(added);
  } else if (type == "NFC") {
    allow_members(part, {"type"});
    steps_.push_back(canonical_composition());
  } else if (type == "BertNormalizer") {
    steps_.push_back(bert_normalizer(part));
  } else {
    refuse_type(part, "Sequence, NFC, Prepend, Replace, BertNormalizer");
  }
}

TESSERA_BODY std::string normalizer::operator()(std::string_view text) const {
  std::string result(text);
  for (step const& s : steps_) result = std::visit([&](auto const& one) { return applied(one, result); }, s);
  return result;
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
