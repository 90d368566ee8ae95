// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/byte_characters.hpp>
#include <tessera/tokenizers/file_parts.hpp>
#include <tessera/tokenizers/unicode.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

/// How the texts of tokens become one: ByteLevel, WordPiece, Metaspace, and Replace, ByteFallback, Fuse and
/// Strip of SentencePiece, alone or one after another. Without any, blanks stand between them.
class decoder {
 public:
  /// The part "decoder" of a tokenizer.json, if it has one. Throws io_error for any other kind.
  explicit decoder(io::json_place const& file);

  /// Bytes that are no UTF-8 stay as they are.
  std::string operator()(std::vector<std::string> tokens) const;

 private:
  using texts = std::vector<std::string>;
  struct byte_level {
    byte_characters characters;
    void operator()(texts& tokens) const;
  };
  struct word_piece {
    std::string prefix;
    bool cleans;
    void operator()(texts& tokens) const;
  };
  struct metaspace {
    std::string replacement;
    bool drops_first;
    void operator()(texts& tokens) const;
  };
  struct replace {
    std::string from, to;
    void operator()(texts& tokens) const;
  };
  struct byte_fallback {
    void operator()(texts& tokens) const;
  };
  struct fuse {
    void operator()(texts& tokens) const;
  };
  struct strip {
    std::string character;
    std::size_t before, behind;
    void operator()(texts& tokens) const;
  };
  using step = std::variant<byte_level, word_piece, metaspace, replace, byte_fallback, fuse, strip>;

  void add(io::json_place const& part);
  static std::string character_of(io::json_place const& at);

  std::vector<step> steps_;
  text_growth growth_;
};

#ifdef TESSERA_BODY

TESSERA_BODY decoder::decoder(io::json_place const& file) {
  read_parts(file, "decoder", "decoders", [&](io::json_place const& one) { add(one); });
}

TESSERA_BODY std::string decoder::character_of(io::json_place const& at) {
  std::string const& text = at.as_string();
  if (text.empty() || io::utf8_length(text) != text.size())
    at.fail("is " + io::in_quotes(text) + " but should be one character");
  return text;
}

TESSERA_BODY void decoder::add(io::json_place const& part) {
  std::string const& type = part.at("type").as_string();
  if (type == "ByteLevel") {
    allow_members(part, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
    steps_.push_back(byte_level());
  } else if (type == "WordPiece") {
    allow_members(part, {"type", "prefix", "cleanup"});
    steps_.push_back(word_piece{part.at("prefix").as_string(), part.at("cleanup").as_bool()});
  } else if (type == "Metaspace") {
    allow_members(part, {"type", "replacement", "prepend_scheme", "add_prefix_space", "split", "str_rep"});
    const bool never = has(part, "prepend_scheme") && part.at("prepend_scheme").as_string() == "never";
    steps_.push_back(
        metaspace{character_of(part.at("replacement")), !never && bool_or(part, "add_prefix_space", true)});
  } else if (type == "Replace") {
    allow_members(part, {"type", "pattern", "content"});
    const replace added{string_pattern(part.at("pattern")), part.at("content").as_string()};
    growth_.multiply(part, added.from.size(), added.to.size());
    steps_.push_back(added);
  } else if (type == "ByteFallback") {
    allow_members(part, {"type"});
    steps_.push_back(byte_fallback());
  } else if (type == "Fuse") {
    allow_members(part, {"type"});
    steps_.push_back(fuse());
  } else if (type == "Strip") {
    allow_members(part, {"type", "content", "start", "stop"});
    steps_.push_back(strip{character_of(part.at("content")), part.at("start").as_integer<std::size_t>(),
                           part.at("stop").as_integer<std::size_t>()});
  } else {
    refuse_type(part, "Sequence, ByteLevel, WordPiece, Metaspace, Replace, ByteFallback, Fuse, Strip");
  }
}

TESSERA_BODY std::string decoder::operator()(texts tokens) const {
  for (step const& s : steps_) std::visit([&](auto const& one) { one(tokens); }, s);
  std::string all;
  for (std::string const& token : tokens) {
    if (steps_.empty() && &token != tokens.data()) all += ' ';
    all += token;
  }
  return all;
}

TESSERA_BODY void decoder::byte_level::operator()(texts& tokens) const {
  for (std::string& token : tokens) {
    std::string bytes;
    bool are_bytes = true;  // else the token is none of the vocabulary's
    for (std::string_view rest = token; are_bytes && !rest.empty();) {
      const int byte = characters.byte_of(take_character(rest));
      are_bytes = byte >= 0;
      bytes += static_cast<char>(byte);
    }
    if (are_bytes) token = std::move(bytes);
  }
}

TESSERA_BODY void decoder::word_piece::operator()(texts& tokens) const {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> cleanup{{{" .", "."},
                                                                                   {" ?", "?"},
                                                                                   {" !", "!"},
                                                                                   {" ,", ","},
                                                                                   {" ' ", "'"},
                                                                                   {" n't", "n't"},
                                                                                   {" 'm", "'m"},
                                                                                   {" do not", " don't"},
                                                                                   {" 's", "'s"},
                                                                                   {" 've", "'ve"},
                                                                                   {" 're", "'re"}}};
  for (std::string& token : tokens) {
    const bool goes_on = token.starts_with(prefix);
    if (&token != tokens.data()) token = goes_on ? token.substr(prefix.size()) : " " + token;
    if (cleans)
      for (auto const& [from, to] : cleanup) token = replaced(token, from, to);
  }
}

TESSERA_BODY void decoder::metaspace::operator()(texts& tokens) const {
  for (std::string& token : tokens)
    token = replaced(token, replacement, drops_first && &token == tokens.data() ? "" : " ");
}

TESSERA_BODY void decoder::replace::operator()(texts& tokens) const {
  for (std::string& token : tokens) token = replaced(token, from, to);
}

TESSERA_BODY void decoder::byte_fallback::operator()(texts& tokens) const {
  constexpr std::string_view hex = "0123456789ABCDEFabcdef";
  const auto digit = [&](char c) {
    const std::size_t at = hex.find(c);
    return at < 16 ? int(at) : at < hex.size() ? int(at) - 6 : -1;
  };
  for (std::string& token : tokens) {
    if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) continue;
    const int high = digit(token[3]), low = digit(token[4]);
    if (high >= 0 && low >= 0) token.assign(1, static_cast<char>(16 * high + low));
  }
}

TESSERA_BODY void decoder::fuse::operator()(texts& tokens) const {
  std::string all;
  for (std::string const& token : tokens) all += token;
  tokens.assign(1, std::move(all));
}

TESSERA_BODY void decoder::strip::operator()(texts& tokens) const {
  for (std::string& token : tokens) {
    std::string_view rest = token;
    for (std::size_t i = 0; i < before && rest.starts_with(character); ++i)
      rest.remove_prefix(character.size());
    for (std::size_t i = 0; i < behind && rest.ends_with(character); ++i)
      rest.remove_suffix(character.size());
    token = std::string(rest);
  }
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
