// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/byte_pair_merges.hpp>
#include <tokenizers/tokenizer_golden.hpp>

#include <tessera/core/random.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/tokenizers/tokenizer.hpp>

namespace tokenizer_test {

using namespace tessera;
using tokenizers::specials;
using tokenizers::tokenizer;
using tokens = std::vector<std::int32_t>;

tokens numbers(io::json_place const& list) {
  tokens all;
  for (std::size_t i = 0; i < list.size(); ++i) all.push_back(list.at(i).as_integer<std::int32_t>());
  return all;
}
std::string hash_of(tokens const& all) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const std::int32_t t : all)
    for (int shift = 0; shift < 32; shift += 8) h = (h ^ (std::uint32_t(t) >> shift & 255)) * 0x100000001b3u;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h));
  return text;
}
/// As Hugging Face's library decodes: bytes that are not UTF-8 are U+FFFD.
std::string as_utf8(std::string_view text) {
  std::string all;
  while (!text.empty()) tokenizers::append_utf8(all, tokenizers::take_character(text));
  return all;
}
void check_texts(tokenizer const& made, io::json_place const& expected) {
  const auto texts = tokenizer_golden().at("texts");
  CHECK(made.size() == expected.at("size").as_integer());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::string const& text = texts.at(i).as_string();
    INFO(text);
    const tokens encoded = made.encode(text);
    CHECK(encoded == numbers(expected.at("tokens").at(i)));
    CHECK(as_utf8(made.decode(encoded)) == expected.at("decoded").at(i).as_string());
    CHECK(as_utf8(made.decode(encoded, specials::kept)) ==
          expected.at("decoded with special").at(i).as_string());
  }
  const tokens first = made.encode(texts.at(2).as_string()), second = made.encode(texts.at(4).as_string());
  CHECK(made.with_special_tokens(first) == numbers(expected.at("enclosed")));
  CHECK(made.with_special_tokens(first, second) == numbers(expected.at("enclosed pair")));
}
/// Gives an object the members of another; null takes one away.
void change(io::json& object, io::json const& members) {
  for (io::json_member const& member : *members.get_if<io::json::object>()) {
    auto& all = *object.get_if<io::json::object>();
    std::erase_if(all, [&](io::json_member const& m) { return m.key == member.key && m.key != "model"; });
    if (member.key == "model")
      change(object["model"], member.value);
    else if (!member.value.is_null())
      object[member.key] = member.value;
  }
}
io::json file_of(std::string const& family) {
  return tokenizer_golden().at("families").at(family).at("file").value();
}
tokenizer made_of(io::json const& file) { return tokenizer(io::json_place(file, "tokenizer.json")); }

/// A file with a model of characters and merges, and other members, which stand in JSON.
io::json small_file(std::string const& members = "", std::string const& of_model = "") {
  return io::parse_json(
      R"({"added_tokens": [], "model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2,
    "c": 3, " ": 4, "ab": 5, "▁": 6}, "merges": ["a b"])" +
      of_model + "}" + members + "}");
}
std::string refusal(io::json const& file) {
  return error_of<io_error>([&] { made_of(file); });
}

TEST_CASE("tokenizer: files of GPT-2, LLaMA 2 and 3, Mistral, Qwen2 and BERT give the recorded tokens") {
  const scratch_folder folder;
  const auto families = tokenizer_golden().at("families");
  CHECK(families.members().size() == 6);
  for (io::json_member const& family : families.members()) {
    INFO(family.key);
    const auto expected = families.at(family);
    io::write_atomically(folder / "tokenizer.json", io::to_text(expected.at("file").value(), 2));
    check_texts(tokenizer::read(folder / "tokenizer.json"), expected);
  }
}

TEST_CASE("tokenizer: other settings, old files and tokens with every flag give the recorded tokens") {
  const auto variants = tokenizer_golden().at("variants");
  for (io::json_member const& variant : variants.members()) {
    INFO(variant.key);
    const auto expected = variants.at(variant);
    io::json file = file_of(expected.at("of").as_string());
    change(file, expected.at("changes").value());
    check_texts(made_of(file), expected);
  }
}

TEST_CASE("tokenizer: every character of Unicode gives the recorded tokens") {
  const auto families = tokenizer_golden().at("families");
  const auto chunks = tokenizer_golden().at("chunks");
  for (io::json_member const& family : families.members()) {
    INFO(family.key);
    const tokenizer made = made_of(file_of(family.key));
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const tokens chunk = numbers(chunks.at(i));  // from, to, step
      INFO(chunk[0]);
      std::string text;
      for (std::int32_t c = chunk[0]; c < chunk[1]; c += chunk[2]) {
        if (c >= 0xD800 && c <= 0xDFFF) continue;  // surrogates
        std::string one;
        tokenizers::append_utf8(one, char32_t(c));
        text += "a" + one + "1" + one + " " + one;
      }
      CHECK(hash_of(made.encode(text)) == families.at(family).at("characters").at(i).as_string());
    }
  }
}

TEST_CASE("tokenizer: whole books give the recorded tokens") {
  char const* const data = std::getenv("TESSERA_DATA");
  if (!data) {
    MESSAGE("skipped: TESSERA_DATA is not set");
    return;
  }
  const auto families = tokenizer_golden().at("families");
  for (io::json_member const& family : families.members()) {
    INFO(family.key);
    const tokenizer made = made_of(file_of(family.key));
    const auto books = families.at(family).at("books");
    for (io::json_member const& book : books.members()) {
      INFO(book.key);
      CHECK(hash_of(made.encode(io::read_file(std::string(data) + "/" + book.key))) ==
            books.at(book).as_string());
    }
  }
}

TEST_CASE("tokenizer: a part or a setting that is not known is refused by name") {
  const auto part = [](std::string const& text) { return refusal(small_file(", " + text)); };
  CHECK(made_of(small_file()).encode("abcab x") == tokens{5, 3, 5, 4, 0});
  CHECK(part(R"("normalizer": {"type": "NFKC"})") ==
        "[tokenizer.json] normalizer is of type \"NFKC\", which is not known; types that are: Sequence, NFC, "
        "Prepend, "
        "Replace, BertNormalizer");
  CHECK(part(R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits"}]})")
            .starts_with("[tokenizer.json] pre_tokenizer.pretokenizers[0] is of type \"Digits\""));
  CHECK(part(R"("pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\w+"}, "behavior": "Isolated"})") ==
        "[tokenizer.json: pre_tokenizer.pattern.Regex] the expression \"\\w+\", byte 1: the escape \"\\w\" "
        "is not known");
  CHECK(part(R"("pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "Joined"})") ==
        "[tokenizer.json] pre_tokenizer.behavior is \"Joined\", which is not known");
  CHECK(part(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "ab"})")
            .ends_with("pre_tokenizer.replacement is \"ab\" but should be one character"));
  CHECK(part(R"("decoder": {"type": "CTC"})").starts_with("[tokenizer.json] decoder is of type \"CTC\""));
  CHECK(part(R"("post_processor": {"type": "BertProcessing", "sep": ["?", 0], "cls": ["x", 7]})") ==
        "[tokenizer.json] post_processor.cls[1] is 7, but there are 7 tokens");
  CHECK(part(R"("truncation": {"max_length": 5})").find("truncation is set, but nothing is cut off") !=
        std::string::npos);
  CHECK(part(R"("padding": {})").find("padding is set") != std::string::npos);
  CHECK(part(R"("version": "2.0")").find("version is \"2.0\"") != std::string::npos);
  CHECK(part(R"("chat": 1)") == "[tokenizer.json] the document has a member \"chat\", which is not known");
  CHECK(part(R"("normalizer": {"type": "NFC", "form": 1})") ==
        "[tokenizer.json] normalizer has a member \"form\", which is not known");
  CHECK(part(R"("normalizer": {"type": "BertNormalizer", "lowercase": true, "strip_accents": false})")
            .find("normalizer.strip_accents differs from \"lowercase\"") != std::string::npos);
}

TEST_CASE("tokenizer: a small file that would make large texts is refused") {
  const auto part = [](std::string const& text) { return refusal(small_file(", " + text)); };
  const auto replace = [](std::size_t length) {
    return R"({"type": "Replace", "pattern": {"String": "a"}, "content": ")" + std::string(length, 'a') +
           "\"}";
  };
  const auto sequence = [](std::string const& one, int times) {
    std::string all = one;
    for (int i = 1; i < times; ++i) all += ", " + one;
    return R"("normalizer": {"type": "Sequence", "normalizers": [)" + all + "]}";
  };
  CHECK(made_of(small_file(", " + sequence(replace(4), 3))).encode("ab").size() == 64);
  CHECK(part(sequence(replace(4), 4)) ==
        "[tokenizer.json] normalizer.normalizers[3] makes a text more than 100 times as long");
  CHECK(part(R"("decoder": )" + replace(101)) ==
        "[tokenizer.json] decoder makes a text more than 100 times as long");
  CHECK(part(R"("normalizer": {"type": "Prepend", "prepend": ")" + std::string(101, 'a') + "\"}")
            .find("more than 100 times") != std::string::npos);
  CHECK(part(sequence(R"({"type": "NFC"})", 21)) ==
        "[tokenizer.json] normalizer.normalizers[20] is one part too many: a text would take too long");
  const std::string text = R"({"Sequence": {"id": "A", "type_id": 0}})";
  CHECK(
      part(
          R"("post_processor": {"type": "TemplateProcessing", "special_tokens": {}, "pair": [], "single": [)" +
          text + ", " + text + "]}") ==
      "[tokenizer.json] post_processor.single[1].Sequence.id is \"A\" for the second time");
}

TEST_CASE("tokenizer: a model that is not known, or lacks a piece, is refused") {
  const auto setting = [](std::string const& text) { return refusal(small_file("", ", " + text)); };
  CHECK(setting(R"("dropout": 0.1)") ==
        "[tokenizer.json] model.dropout is not 0: pieces that are drawn are not known");
  CHECK(setting(R"("end_of_word_suffix": "</w>")").find("model.end_of_word_suffix is not empty") !=
        std::string::npos);
  CHECK(setting(R"("continuing_subword_prefix": "##")").find("is not empty") != std::string::npos);
  const auto model = [](std::string const& text) {
    return refusal(io::parse_json(R"({"added_tokens": [], "model": )" + text + "}"));
  };
  CHECK(model(R"({"type": "Unigram", "vocab": {"a": 0}})") ==
        "[tokenizer.json] model is of type \"Unigram\", which is not known; types that are: BPE, WordPiece");
  CHECK(model(R"({"type": "Unigram", "unk_id": 0, "vocab": [["a", -1.5]]})")
            .find("\"Unigram\", which is not known") != std::string::npos);
  CHECK(model(R"({"vocab": {"a": 0}})").find("has no member \"type\"") != std::string::npos);
  CHECK(model(R"({"type": "WordLevel", "vocab": {"a": 0}})").find("\"WordLevel\"") != std::string::npos);
  CHECK(model(R"({"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]})") ==
        "[tokenizer.json] model.merges[0] needs the piece \"ab\", which the vocabulary lacks");
  CHECK(model(R"({"type": "BPE", "vocab": {"a": 0, "aa": 1}, "merges": [["a", "a", "a"]]})") ==
        "[tokenizer.json] model.merges[0] has 3 pieces: two are meant");
  CHECK(model(R"({"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []})")
            .ends_with("b is 0, and so is \"a\""));
  CHECK(model(R"({"type": "WordPiece", "vocab": {"a": 0}, "max_input_chars_per_word": 100000})")
            .ends_with("is 100000, at most 1000 are read"));
  const io::json none =
      io::parse_json(R"({"added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})");
  CHECK(error_of<option_error>([&] { made_of(none).encode("aé"); }) ==
        "[tokenizer] the vocabulary has no piece for \"é\", and no unknown token");
  CHECK(error_of<option_error>([&] { made_of(none).decode(tokens{1}); }) ==
        "[tokenizer] 1 is no token of this vocabulary of 1");
}

TEST_CASE("tokenizer: with ignore_merges a word that is a piece is found whole") {
  io::json file = small_file();
  file["model"]["vocab"]["cab"] = 7;
  CHECK(made_of(file).encode("cab") == tokens{3, 5});
  file["model"]["ignore_merges"] = true;
  CHECK(made_of(file).encode("cab") == tokens{7});
  CHECK(made_of(file).encode("cab ") == tokens{3, 5, 4});
}

TEST_CASE("tokenizer: an added token must have the number that it would get") {
  const auto with = [](std::string const& content, int id, std::string const& normalized = "false") {
    io::json file = small_file();
    file["added_tokens"] = io::parse_json(
        R"([{"id": 7, "content": "<x>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": true}, {"id": )" +
        std::to_string(id) + R"(, "content": ")" + content +
        R"(", "single_word": false, "lstrip": false, "rstrip": false, "normalized": )" + normalized +
        R"(, "special": false}])");
    return file;
  };
  const tokenizer made = made_of(with("b", 2));
  CHECK(made.size() == 8);
  CHECK(made.token("<x>") == 7);
  CHECK(made.token("ab") == 5);
  CHECK(!made.token("x"));
  CHECK(made.special_tokens() == tokens{7});
  CHECK(made.encode("ab<x>a") == tokens{1, 2, 7, 1});  // b is found before the model sees it
  CHECK(refusal(with("<y>", 9)) == "[tokenizer.json] added_tokens[1].id is 9, but \"<y>\" is token 8");
  CHECK(refusal(with("b", 8)) == "[tokenizer.json] added_tokens[1].id is 8, but \"b\" is token 2");
  CHECK(refusal(with("<x>", 8)) == "[tokenizer.json] added_tokens[1] is the second of \"<x>\"");
  CHECK(refusal(with("", 8)).find("added_tokens[1].content is empty") != std::string::npos);
}

TEST_CASE("tokenizer: bytes that are no UTF-8 come back where bytes have tokens") {
  std::string bytes;
  for (int b = 255; b >= 0; --b) bytes += static_cast<char>(b);
  for (char const* family : {"gpt2", "llama3", "qwen2", "llama2"}) {
    INFO(family);
    const tokenizer made = made_of(file_of(family));
    CHECK(made.decode(made.encode(bytes)) == bytes);
  }
}

TEST_CASE("tokenizer: a text without words is merged as a whole, wherever it may be cut") {
  const random_stream random(4, random_purpose::test);
  std::uint64_t drawn = 0;
  const auto below = [&](std::size_t n) { return random.below(drawn++, n); };
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> parts{"a", "b", "c", " "};
    std::vector<std::pair<std::string, std::string>> merges;
    for (std::size_t i = 0, most = below(14); i < most; ++i) {
      const std::string left = parts[below(parts.size())], right = parts[below(parts.size())];
      if (left.size() + right.size() > 8 || std::ranges::count(merges, std::pair(left, right))) continue;
      merges.emplace_back(left, right);
      if (std::ranges::count(parts, left + right) == 0) parts.push_back(left + right);
    }
    io::json file = small_file();
    io::json& model = file["model"];
    model["vocab"] = io::json();
    model["merges"] = io::json::array();
    for (std::size_t i = 0; i < parts.size(); ++i) model["vocab"][parts[i]] = i;
    for (auto const& [left, right] : merges)
      model["merges"].get_if<io::json::array>()->push_back(io::json::array{left, right});
    std::string text;
    for (std::size_t i = 0, most = below(60); i < most; ++i) text += "abc "[below(4)];
    const tokenizer made = made_of(file);
    std::vector<std::string> pieces;
    for (const std::int32_t t : made.encode(text)) pieces.push_back(made.pieces()[std::size_t(t)]);
    CHECK(pieces == support::merged_naively(merges, text));
  }
}

TEST_CASE("tokenizer: a word of 300 000 letters is merged") {
  const random_stream random(5, random_purpose::test);
  std::string word;
  for (std::uint64_t i = 0; i < 300'000; ++i) word += "etaoin"[random.below(i, 6)];
  for (char const* family : {"gpt2", "llama2"}) {
    const tokenizer made = made_of(file_of(family));
    CHECK(made.decode(made.encode(word)) == word);
  }
}

}  // namespace tokenizer_test
