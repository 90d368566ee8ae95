// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/file_parts.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

/// Which special tokens stand around the tokens of a text, and of two: TemplateProcessing and BertProcessing.
class special_template {
 public:
  /// The part "post_processor" of a tokenizer.json, if it has one. Throws io_error for any other kind, for
  /// several that add tokens, and for a token that is not below `tokens`.
  special_template(io::json_place const& file, std::int32_t tokens);

  std::vector<std::int32_t> around(std::span<std::int32_t const> text) const { return made(single_, {text}); }
  std::vector<std::int32_t> around(std::span<std::int32_t const> first,
                                   std::span<std::int32_t const> second) const {
    return made(pair_, {first, second});
  }

 private:
  /// A text, or special tokens.
  struct piece {
    std::size_t text = 2;
    std::vector<std::int32_t> tokens = {};
  };

  void add(io::json_place const& part);
  void add_bert(io::json_place const& part);
  std::vector<piece> read(io::json_place const& list, io::json_place const& specials,
                          std::size_t texts) const;
  std::int32_t token(io::json_place const& at) const;
  static std::vector<std::int32_t> made(std::vector<piece> const& pieces,
                                        std::array<std::span<std::int32_t const>, 2> texts);

  std::vector<piece> single_{{0}}, pair_{{0}, {1}};
  bool adds_ = false;
  std::int32_t tokens_;
};

#ifdef TESSERA_BODY

TESSERA_BODY special_template::special_template(io::json_place const& file, std::int32_t tokens)
    : tokens_(tokens) {
  read_parts(file, "post_processor", "processors", [&](io::json_place const& one) { add(one); });
}

TESSERA_BODY void special_template::add(io::json_place const& part) {
  std::string const& type = part.at("type").as_string();
  if (type == "ByteLevel")  // moves places in the text alone
    return allow_members(part, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (std::exchange(adds_, true)) part.fail("is the second that adds special tokens: one is known");
  if (type == "TemplateProcessing") {
    allow_members(part, {"type", "single", "pair", "special_tokens"});
    single_ = read(part.at("single"), part.at("special_tokens"), 1);
    pair_ = read(part.at("pair"), part.at("special_tokens"), 2);
  } else if (type == "BertProcessing") {
    allow_members(part, {"type", "sep", "cls"});
    const std::int32_t cls = token(part.at("cls").at(1)), sep = token(part.at("sep").at(1));
    single_ = {{2, {cls}}, {0}, {2, {sep}}};
    pair_ = {{2, {cls}}, {0}, {2, {sep}}, {1}, {2, {sep}}};
  } else {
    refuse_type(part, "Sequence, ByteLevel, TemplateProcessing, BertProcessing");
  }
}

TESSERA_BODY std::int32_t special_template::token(io::json_place const& at) const {
  const auto number = at.as_integer<std::int32_t>();
  if (number < 0 || number >= tokens_)
    at.fail(message("is ", number, ", but there are ", tokens_, " tokens"));
  return number;
}

TESSERA_BODY std::vector<special_template::piece> special_template::read(io::json_place const& list,
                                                                         io::json_place const& specials,
                                                                         std::size_t texts) const {
  std::vector<piece> pieces;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto at = list.at(i);
    allow_members(at, {"Sequence", "SpecialToken"});
    if (at.contains("Sequence")) {
      const auto id = at.at("Sequence").at("id");
      const std::size_t text = id.as_string() == "A" ? 0 : id.as_string() == "B" ? 1 : 2;
      if (text >= texts) id.fail("is " + io::in_quotes(id.as_string()) + ", which is no text here");
      if (std::any_of(pieces.begin(), pieces.end(), [&](piece const& p) { return p.text == text; }))
        id.fail("is " + io::in_quotes(id.as_string()) + " for the second time");
      pieces.push_back({text});
      continue;
    }
    const auto ids = specials.at(at.at("SpecialToken").at("id").as_string()).at("ids");
    pieces.emplace_back();
    for (std::size_t k = 0; k < ids.size(); ++k) pieces.back().tokens.push_back(token(ids.at(k)));
  }
  return pieces;
}

TESSERA_BODY std::vector<std::int32_t> special_template::made(
    std::vector<piece> const& pieces, std::array<std::span<std::int32_t const>, 2> texts) {
  std::vector<std::int32_t> tokens;
  for (piece const& p : pieces) {
    const std::span<std::int32_t const> next = p.text < 2 ? texts[p.text] : std::span(p.tokens);
    tokens.insert(tokens.end(), next.begin(), next.end());
  }
  return tokens;
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
