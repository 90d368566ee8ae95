// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/added_tokens.hpp>
#include <tessera/tokenizers/decoder.hpp>
#include <tessera/tokenizers/file_parts.hpp>
#include <tessera/tokenizers/normalizer.hpp>
#include <tessera/tokenizers/piece_models.hpp>
#include <tessera/tokenizers/pre_tokenizer.hpp>
#include <tessera/tokenizers/special_template.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers {

/// Whether decoding gives the names of special tokens.
enum class specials { left_out, kept };

/// The tokens of a tokenizer.json of Hugging Face's tokenizers, as files of GPT-2, LLaMA 2 and 3, Mistral,
/// Qwen2 and BERT have it: the text between added tokens is normalized, cut into words by the pre-tokenizer,
/// and the model makes tokens of each word. Gives the tokens of that library.
class tokenizer {
 public:
  /// Throws io_error for a file that cannot be read or has another format, and for every part or setting that
  /// is not known, by its name: models but BPE and WordPiece, dropout, prefixes and suffixes of BPE, and
  /// "truncation" and "padding", since nothing is cut off or filled up here.
  static tokenizer read(std::string const& path);
  explicit tokenizer(io::json_place const& file);

  /// The largest number of a token and one more: at least as many rows an embedding needs.
  std::int32_t size() const { return std::int32_t(pieces_.pieces.size()); }
  /// By number, as the file writes them; an empty one is a number that no token has.
  std::vector<std::string> const& pieces() const { return pieces_.pieces; }
  /// The token of a piece or of an added token's name.
  std::optional<std::int32_t> token(std::string_view piece) const;
  bool is_special(std::int32_t token) const {
    auto const* added = added_.find(token);
    return added && added->is_special;
  }
  /// In ascending order.
  std::vector<std::int32_t> special_tokens() const;

  /// The tokens of a text, in which added tokens may stand by name; without the special ones that the file
  /// puts around it. Bytes that are not UTF-8 get the tokens of bytes, where there are any. Throws
  /// option_error for a character that no token stands for, and where an expression of the file takes too
  /// long.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// The tokens of a text with the special ones that the file puts around it: [CLS] and [SEP], or the
  /// beginning.
  std::vector<std::int32_t> with_special_tokens(std::span<std::int32_t const> text) const {
    return template_.around(text);
  }
  /// The tokens of two texts with the special ones around and between them.
  std::vector<std::int32_t> with_special_tokens(std::span<std::int32_t const> first,
                                                std::span<std::int32_t const> second) const {
    return template_.around(first, second);
  }

  /// The text of tokens. Where tokens end within a character, its bytes do, too. Throws option_error for a
  /// number that no token has.
  std::string decode(std::span<std::int32_t const> tokens, specials names = specials::left_out) const;

 private:
  using model = std::variant<detail::merging_model, detail::longest_piece_model>;

  static io::json_place checked(io::json_place const& file);
  static std::string model_type(io::json_place const& part);
  static model read_model(io::json_place const& part, detail::piece_numbers const& numbers);

  struct encoding {
    std::vector<std::int32_t> tokens;
    detail::cut_text words;
    detail::word_memory memory;
  };
  void append_part(std::string_view text, bool is_first, encoding& use) const;
  void append_words(std::string_view text, bool is_first, encoding& use) const;

  detail::normalizer normalizer_;
  detail::pre_tokenizer pre_tokenizer_;
  detail::numbered_pieces pieces_;
  model model_;
  detail::added_tokens added_;
  detail::special_template template_;
  detail::decoder decoder_;
  detail::byte_characters characters_;
};

#ifdef TESSERA_BODY

TESSERA_BODY tokenizer tokenizer::read(std::string const& path) {
  const io::json document = io::read_json(path);
  return tokenizer(io::json_place(document, path));
}

TESSERA_BODY io::json_place tokenizer::checked(io::json_place const& file) {
  detail::allow_members(file, {"version", "truncation", "padding", "added_tokens", "normalizer",
                               "pre_tokenizer", "post_processor", "decoder", "model"});
  for (char const* name : {"truncation", "padding"})
    if (detail::has(file, name))
      file.at(name).fail("is set, but nothing is cut off or filled up here: make it null");
  if (detail::has(file, "version") && file.at("version").as_string() != "1.0")
    file.at("version").fail("is " + io::in_quotes(file.at("version").as_string()) + ", \"1.0\" is known");
  const std::string type = model_type(file.at("model"));
  if (type != "BPE" && type != "WordPiece") detail::refuse_type(file.at("model"), "BPE, WordPiece");
  return file;
}

TESSERA_BODY std::string tokenizer::model_type(io::json_place const& part) {
  // Old files do not name the type: it follows from the members.
  if (part.contains("type")) return part.at("type").as_string();
  return part.contains("merges") ? "BPE" : part.contains("max_input_chars_per_word") ? "WordPiece" : "";
}

TESSERA_BODY tokenizer::model tokenizer::read_model(io::json_place const& part,
                                                    detail::piece_numbers const& numbers) {
  if (model_type(part) == "BPE") return detail::merging_model(part, numbers);
  return detail::longest_piece_model(part, numbers);
}

TESSERA_BODY tokenizer::tokenizer(io::json_place const& file)
    : normalizer_(checked(file)),
      pre_tokenizer_(file),
      pieces_(file.at("model").at("vocab")),
      model_(read_model(file.at("model"), pieces_.numbers)),
      added_(file, normalizer_, pieces_),
      template_(file, size()),
      decoder_(file) {}

TESSERA_BODY std::optional<std::int32_t> tokenizer::token(std::string_view piece) const {
  const std::int32_t added = added_.number(piece);
  const std::int32_t number = added >= 0 ? added : detail::number_of(pieces_.numbers, piece);
  return number < 0 ? std::nullopt : std::optional(number);
}

TESSERA_BODY std::vector<std::int32_t> tokenizer::special_tokens() const {
  std::vector<std::int32_t> all;
  for (std::int32_t t = 0; t < size(); ++t)
    if (is_special(t)) all.push_back(t);
  return all;
}

TESSERA_BODY std::vector<std::int32_t> tokenizer::encode(std::string_view text) const {
  encoding use;
  added_.for_each_part(
      text, false, [&](std::int32_t token) { use.tokens.push_back(token); },
      [&](std::string_view part) { append_part(part, part.data() == text.data(), use); });
  return std::move(use.tokens);
}

TESSERA_BODY void tokenizer::append_part(std::string_view text, bool is_first, encoding& use) const {
  std::string normalized;
  if (!normalizer_.changes_nothing()) normalized = normalizer_(text), text = normalized;
  added_.for_each_part(
      text, true, [&](std::int32_t token) { use.tokens.push_back(token); },
      [&](std::string_view part) { append_words(part, is_first && part.data() == text.data(), use); });
}

TESSERA_BODY void tokenizer::append_words(std::string_view text, bool is_first, encoding& use) const {
  use.words.changed.clear();
  pre_tokenizer_.cut(text, is_first, use.words);
  std::visit(
      [&](auto const& m) {
        const auto cut_bytes = [&](std::string_view word, std::vector<std::int32_t>& to) {
          m.cut(characters_.written(word), pieces_.numbers, to, use.memory.merging);
        };
        for (const std::string_view word : use.words.words) {
          if (pre_tokenizer_.to_bytes())
            use.memory.append(word, use.tokens, cut_bytes);
          else
            m.append(word, pieces_.numbers, use.tokens, use.memory);
        }
      },
      model_);
}

TESSERA_BODY std::string tokenizer::decode(std::span<std::int32_t const> tokens, specials names) const {
  std::vector<std::string> texts;
  for (const std::int32_t t : tokens) {
    if (t < 0 || t >= size() || pieces_.pieces[std::size_t(t)].empty())
      throw option_error(message("[tokenizer] ", t, " is no token of this vocabulary of ", size()));
    auto const* added = added_.find(t);
    if (added && added->is_special && names == specials::left_out) continue;
    texts.push_back(added ? added->matched : pieces_.pieces[std::size_t(t)]);
  }
  return decoder_(std::move(texts));
}

#endif

}}}  // namespace tessera::TESSERA_ISA::tokenizers
