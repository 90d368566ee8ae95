// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/io/file.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tokenizers/byte_pair.hpp>
#include <tessera/tokenizers/wordpiece.hpp>
#include <tessera/train/save_pretrained.hpp>

#include "vocabulary.hpp"

// The files by which transformers encodes and decodes as a vocabulary of pretrain does.

namespace pretrain {

namespace train = tessera::train;

/// tokenizer.json of a vocabulary of single characters or bytes.
inline tessera::io::json symbol_tokenizer(vocabulary const& of) {
  using tessera::io::json;
  const bool bytes = of.level() == text_level::byte;
  const tessera::tokenizers::byte_pair alphabet({});  // GPT-2's characters for bytes
  json::object numbers;
  for (token t = 0; t < of.size(); ++t) {
    const std::string symbol = of.decode(std::span(&t, 1));
    if (!bytes && tessera::io::utf8_length(symbol) != symbol.size())
      refuse("--format", "hf: the model knows " + tessera::io::in_quotes(symbol) +
                             ", which is no character, and tokenizer.json has characters only");
    numbers.push_back(
        {bytes ? alphabet.pieces().at(std::size_t(alphabet.encode(symbol).at(0))) : symbol, std::int64_t(t)});
  }
  json file = json::object{{"version", "1.0"}, {"added_tokens", json::array()}};
  if (bytes) {
    file["pre_tokenizer"] = json::object{
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
    file["decoder"] = *file.find("pre_tokenizer");
    file["model"] = json::object{{"type", "BPE"}, {"vocab", std::move(numbers)}, {"merges", json::array()}};
  } else {
    file["pre_tokenizer"] = json::object{{"type", "Split"},
                                         {"pattern", json::object{{"Regex", "[\\s\\S]"}}},
                                         {"behavior", "Isolated"},
                                         {"invert", false}};
    file["decoder"] = json::object{{"type", "Fuse"}};
    file["model"] = json::object{{"type", "WordLevel"}, {"vocab", std::move(numbers)}, {"unk_token", ""}};
  }
  return file;
}

/// tokenizer.json of BERT's pieces for a decoder: as BertTokenizer, but nothing stands before and behind a
/// text.
inline tessera::io::json decoder_tokenizer(tessera::tokenizers::wordpiece const& words) {
  using tessera::io::json;
  json::object numbers;
  json::array specials;
  for (token t = 0; t < words.size(); ++t) {
    std::string const& piece = words.pieces()[std::size_t(t)];
    numbers.push_back({piece, std::int64_t(t)});
    if (words.is_special(t))
      specials.push_back(json::object{{"id", std::int64_t(t)},
                                      {"content", piece},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}});
  }
  return json::object{
      {"version", "1.0"},
      {"added_tokens", std::move(specials)},
      {"normalizer", json::object{{"type", "BertNormalizer"},
                                  {"clean_text", true},
                                  {"handle_chinese_chars", true},
                                  {"strip_accents", json()},
                                  {"lowercase", words.letters() == tessera::tokenizers::letter_case::lower}}},
      {"pre_tokenizer", json::object{{"type", "BertPreTokenizer"}}},
      {"decoder", json::object{{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}}},
      {"model",
       json::object{{"type", "WordPiece"},
                    {"unk_token", "[UNK]"},
                    {"continuing_subword_prefix", "##"},
                    {"max_input_chars_per_word", std::int64_t(tessera::tokenizers::wordpiece::longest_word)},
                    {"vocab", std::move(numbers)}}}};
}

/// The tokenizer of a vocabulary, and its members of config.json.
///   longest      tokens of a sequence
///   is_decoder   whether the model goes on with a text: then no tokens stand around it
inline train::pretrained_folder tokenizer_files(vocabulary const& of, std::int64_t longest, bool is_decoder) {
  using tessera::io::json;
  train::pretrained_folder folder;
  json::object settings{{"model_max_length", longest}, {"clean_up_tokenization_spaces", false}};
  const auto add = [&](std::string name, auto write) { folder.files.push_back({std::move(name), write}); };
  const auto add_json = [&](std::string name, json value) {
    add(std::move(name), [text = tessera::io::to_text(value, 2) + "\n"](std::string const& path) {
      tessera::io::write_atomically(path, text);
    });
  };
  auto const* const words = of.words();
  if (words && is_decoder) {
    settings.push_back({"tokenizer_class", "PreTrainedTokenizerFast"});
    settings.push_back({"model_input_names", json::array{"input_ids", "attention_mask"}});
    settings.push_back({"unk_token", "[UNK]"});
    settings.push_back({"pad_token", "[PAD]"});
    settings.push_back({"eos_token", "[SEP]"});
    add_json("tokenizer.json", decoder_tokenizer(*words));
    folder.configuration = {{"pad_token_id", words->padding()},
                            {"bos_token_id", words->separator()},
                            {"eos_token_id", words->separator()}};
  } else if (words) {
    settings.push_back({"tokenizer_class", "BertTokenizer"});
    settings.push_back({"do_lower_case", words->letters() == tessera::tokenizers::letter_case::lower});
    add("vocab.txt", [words](std::string const& path) { words->write(path); });
    folder.configuration = {{"pad_token_id", words->padding()}};
  } else if (auto const* const pairs = of.pairs()) {
    settings.push_back({"tokenizer_class", "GPT2Tokenizer"});
    // Both files at once: the one for merges stands beside.
    add("vocab.json", [pairs](std::string const& path) {
      pairs->write(path, path.substr(0, path.rfind('/')) + "/merges.txt");
    });
    add("merges.txt", [](std::string const&) {});
    folder.configuration = {{"bos_token_id", pairs->end_of_text()}, {"eos_token_id", pairs->end_of_text()}};
  } else if (auto const* const file = of.file()) {
    const std::vector<token> first = file->beginning();
    const json begins = first.empty() ? json() : json(first.front());
    settings.push_back({"tokenizer_class", "PreTrainedTokenizerFast"});
    add_json("tokenizer.json", file->file());
    folder.configuration = {{"bos_token_id", begins}, {"eos_token_id", begins}};
  } else {
    settings.push_back({"tokenizer_class", "PreTrainedTokenizerFast"});
    add_json("tokenizer.json", symbol_tokenizer(of));
    folder.configuration = {{"bos_token_id", json()}, {"eos_token_id", json()}};
  }
  add_json("tokenizer_config.json", std::move(settings));
  return folder;
}

}  // namespace pretrain
