// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/core/random.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/tokenizers/byte_pair.hpp>
#include <tessera/tokenizers/wordpiece.hpp>

namespace tokenizers_test {

using namespace tessera;
using tokenizers::byte_pair;
using tokenizers::letter_case;
using tokenizers::wordpiece;
using tokens = std::vector<std::int32_t>;

// Recorded by tests/golden/record_tokenizers.py.
io::json const& golden() {
  static const io::json all =
      io::parse_json(io::read_file(TESSERA_SOURCE_DIR "/tests/golden/tokenizers.json"), "tokenizers.json");
  return all;
}
std::vector<std::string> strings(io::json_place const& list) {
  std::vector<std::string> all;
  for (io::json const& one : list.elements()) all.push_back(*one.get_if<std::string>());
  return all;
}
tokens numbers(io::json_place const& list) {
  tokens all;
  for (std::size_t i = 0; i < list.size(); ++i) all.push_back(list.at(i).as_integer<std::int32_t>());
  return all;
}
std::vector<std::pair<std::string, std::string>> pairs(io::json_place const& list) {
  std::vector<std::pair<std::string, std::string>> all;
  for (std::size_t i = 0; i < list.size(); ++i)
    all.emplace_back(list.at(i).at(0).as_string(), list.at(i).at(1).as_string());
  return all;
}
template <class Tokenizer> void check_texts(Tokenizer const& tokenizer, io::json_place const& expected) {
  const auto texts = strings(golden().at("texts"));
  REQUIRE(texts.size() == expected.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    INFO(texts[i]);
    CHECK(tokenizer.encode(texts[i]) == numbers(expected.at(i)));
  }
}
/// The folder of the data, or "" after a message.
std::string data_folder() {
  const char* data = std::getenv("TESSERA_DATA");
  if (!data) MESSAGE("skipped: TESSERA_DATA is not set");
  return data ? data : "";
}
std::string hash_of(tokens const& all) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const std::int32_t t : all)
    for (int shift = 0; shift < 32; shift += 8) h = (h ^ (std::uint32_t(t) >> shift & 255)) * 0x100000001b3u;
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h));
  return text;
}
template <class Tokenizer>
void check_books(Tokenizer const& tokenizer, std::string const& data, io::json_place const& of) {
  check_texts(tokenizer, of.at("tokens"));
  for (io::json_member const& book : of.at("books").members()) {
    INFO(book.key);
    CHECK(hash_of(tokenizer.encode(io::read_file(data + "/" + book.key))) ==
          of.at("books").at(book).as_string());
  }
}

}  // namespace tokenizers_test

using namespace tokenizers_test;

TEST_CASE("wordpiece: the tokens of BertTokenizer, uncased and cased") {
  const auto pieces = strings(golden().at("wordpiece").at("pieces"));
  check_texts(wordpiece(pieces), golden().at("wordpiece").at("lower"));
  check_texts(wordpiece(pieces, letter_case::kept), golden().at("wordpiece").at("kept"));
}

TEST_CASE("byte_pair: the tokens of GPT2Tokenizer, and decoding gives the text") {
  const byte_pair tokenizer(pairs(golden().at("byte_pair").at("merges")));
  CHECK(tokenizer.size() == 601);
  check_texts(tokenizer, golden().at("byte_pair").at("tokens"));
  for (std::string const& text : strings(golden().at("texts")))
    CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
  std::string bytes;
  for (int b = 255; b >= 0; --b) bytes += static_cast<char>(b);
  CHECK(tokenizer.decode(tokenizer.encode(bytes)) == bytes);
}

TEST_CASE("tokenizers: the vocabularies of BERT and GPT-2 give the recorded tokens of whole books") {
  const std::string data = data_folder();
  if (data.empty()) return;
  check_books(wordpiece::read(data + "/bert/vocab.txt"), data, golden().at("bert"));
  const byte_pair gpt2 = byte_pair::read(data + "/gpt2/vocab.json", data + "/gpt2/merges.txt");
  CHECK(gpt2.size() == 50257);
  CHECK(gpt2.end_of_text() == 50256);
  check_books(gpt2, data, golden().at("gpt2"));
  CHECK(byte_pair::read(data + "/gpt2/merges.txt").pieces() == gpt2.pieces());
}

TEST_CASE("byte_pair: training learns the merges that Hugging Face's trainer learns") {
  const std::string data = data_folder();
  if (data.empty()) return;
  std::string text = io::read_file(data + "/wikipedia.txt");
  std::size_t characters = std::size_t(golden().at("trained").at("characters").as_integer()), end = 0;
  for (; characters > 0; --characters) end += io::utf8_length(std::string_view(text).substr(end));
  text.resize(end);
  std::replace(text.begin(), text.end(), '\n', ' ');
  const byte_pair tokenizer = byte_pair::trained(text, 601);
  CHECK(tokenizer.size() == 601);
  CHECK(tokenizer.merges() == pairs(golden().at("trained").at("merges")));
}

TEST_CASE("byte_pair: merges are learned by frequency, and equal ones by number") {
  // low × 5, lower × 2, newest × 6, widest × 3 (Sennrich et al. 2016, section 3.2), without blanks
  std::string text;
  for (auto const& [word, count] : {std::pair{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}})
    for (int i = 0; i < count; ++i) text += std::string(word) + "\n";
  const auto merges = byte_pair::trained(text, 256 + 1 + 5).merges();
  using merge = std::pair<std::string, std::string>;
  CHECK(merges == std::vector<merge>{{"e", "s"}, {"es", "t"}, {"l", "o"}, {"lo", "w"}, {"e", "w"}});
  CHECK(byte_pair::trained("", 300).size() == 257);
}

TEST_CASE(
    "wordpiece: a trained vocabulary cuts its text without unknown words, and is its own again from a file") {
  const std::string text =
      "The lowest of the low: newest, widest – the Café's lowest naïveté. 中文 low lower slow";
  for (const letter_case letters : {letter_case::lower, letter_case::kept}) {
    const wordpiece trained = wordpiece::trained(text, 90, letters);
    CHECK(trained.size() <= 90);
    const tokens all = trained.encode(text);
    CHECK(std::find(all.begin(), all.end(), trained.unknown()) == all.end());
    CHECK(trained.encode("low").size() == 1);  // a frequent word is one piece
    CHECK(trained.encode("Ω") == tokens{trained.unknown()});
    scratch_folder folder;
    const std::string path = folder / "vocab.txt";
    trained.write(path);
    CHECK(wordpiece::read(path, letters).pieces() == trained.pieces());
  }
  const wordpiece lower = wordpiece::trained(text, 90);
  CHECK(lower.decode(lower.encode("The LOWEST café!")) == "the lowest cafe [UNK]");
  CHECK(lower.continues_word(lower.encode("slowness").back()));
}

TEST_CASE("tokenizers: two files of GPT-2's form hold a vocabulary") {
  scratch_folder folder;
  const byte_pair trained = byte_pair::trained("to be or not to be, that is the question; to be", 280);
  trained.write(folder / "vocab.json", folder / "merges.txt");
  const byte_pair again = byte_pair::read(folder / "vocab.json", folder / "merges.txt");
  CHECK(again.pieces() == trained.pieces());
  CHECK(again.merges() == trained.merges());
}

TEST_CASE("tokenizers: a word too long for a tokenizer teaches it nothing, and takes no time") {
  std::string text = "some words, some words, ";
  const random_stream random(1, random_purpose::test);
  std::string word;
  for (std::uint64_t i = 0; i < 1'000'000; ++i) word += char('a' + random.below(i, 8));
  const wordpiece pieces = wordpiece::trained(text + word, 3000);
  CHECK(pieces.size() < 70);
  CHECK(std::ranges::count(pieces.pieces(), "words") == 1);
  CHECK(byte_pair::trained(text + word, 3000).pieces() == byte_pair::trained(text, 3000).pieces());
}

TEST_CASE("tokenizers: a vocabulary that is not text is refused with the line") {
  const scratch_folder folder;
  put(folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nab\xff\n");
  CHECK(error_of<io_error>([&] { wordpiece::read(folder / "vocab.txt"); }) ==
        "[wordpiece] " + (folder / "vocab.txt") + " line 6 is not UTF-8");
}

TEST_CASE("tokenizers: what a vocabulary lacks is named") {
  using strings_list = std::vector<std::string>;
  const auto wordpiece_error = [](strings_list pieces) {
    return error_of<option_error>([&] { wordpiece(std::move(pieces), letter_case::lower, "vocab.txt"); });
  };
  CHECK(wordpiece_error({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"}) ==
        "[wordpiece] vocab.txt has no \"[MASK]\"; a vocabulary of BERT has [PAD], [UNK], [CLS], [SEP] and "
        "[MASK]");
  CHECK(wordpiece_error({"[PAD]", "a", "b", "a"}) ==
        "[wordpiece] vocab.txt: \"a\" is token 1 and token 3; each piece must occur once");
  scratch_folder folder;
  const auto merges = [&](std::string const& text) {
    const std::string path = folder / "merges.txt";
    io::write_atomically(path, text);
    return path;
  };
  const auto read_error = [&](std::string const& text) {
    const std::string path = merges(text);
    const std::string all = error_of<io_error>([&] { byte_pair::read(path); });
    return all.substr(all.find("merges.txt"));
  };
  CHECK(read_error("#version: 0.2\na b\nab\n") ==
        "merges.txt line 3 is \"ab\": two pieces with a blank between them are meant");
  CHECK(read_error("a b c\n").starts_with("merges.txt line 1 is \"a b c\""));
  CHECK(error_of<option_error>([&] { byte_pair::read(merges("a b\nab zz\n")); }) ==
        "[byte_pair] merges has no \"zz\", of the merge of \"ab\" and \"zz\"");
  CHECK(error_of<option_error>([] { byte_pair::trained("text", 256); }).find("make it 257 or more") !=
        std::string::npos);
  CHECK(error_of<option_error>([] { wordpiece::trained("text", 5); }).find("5 are special") !=
        std::string::npos);
}
