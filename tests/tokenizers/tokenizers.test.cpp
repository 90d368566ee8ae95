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
#include <support/byte_pair_merges.hpp>

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

TEST_CASE("tokenizers: every character is what Hugging Face's tokenizers take it for") {
  const auto recorded = golden().at("characters");
  std::vector<std::string> pieces{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
                                  "a",     "b",     "##b",   "ab",    "##ab"};
  for (std::string_view rest = recorded.at("results").as_string(); !rest.empty();) {
    const std::string one(rest.substr(0, io::utf8_length(rest)));
    rest.remove_prefix(one.size());
    if (one != "a" && one != "b") pieces.insert(pieces.end(), {one, "##" + one});
  }
  const std::vector<std::string> all = byte_pair({}).pieces();
  std::vector<std::pair<std::string, std::string>> merges;
  for (const char* left : {"a", "1", "!"})
    for (std::size_t i = 0; i < 256; ++i) merges.emplace_back(left, all[i]);
  const wordpiece lower(pieces), kept(pieces, letter_case::kept);
  const byte_pair words(merges);
  const auto blocks = recorded.at("blocks");
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const tokens block = numbers(blocks.at(i));  // from, to, step
    INFO(block[0]);
    std::string between, behind;
    for (std::int32_t c = block[0]; c < block[1]; c += block[2]) {
      if (c >= 0xD800 && c <= 0xDFFF) continue;  // surrogates
      std::string one;
      tokenizers::append_utf8(one, char32_t(c));
      between += (between.empty() ? "a" : " a") + one + "b";
      behind += "a" + one + "1" + one + "!" + one;
    }
    CHECK(hash_of(lower.encode(between)) == recorded.at("lower").at(i).as_string());
    CHECK(hash_of(kept.encode(between)) == recorded.at("kept").at(i).as_string());
    CHECK(hash_of(words.encode(behind)) == recorded.at("pairs").at(i).as_string());
  }
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

/// The tokens are Hugging Face's, which refuses a text whose tokens are null.
template <class Tokenizer>
void check_or_refuse(Tokenizer const& tokenizer, std::vector<std::string> const& texts,
                     io::json_place const& expected) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    INFO(texts[i]);
    if (expected.at(i).value().is_null())
      CHECK_THROWS_AS(tokenizer.encode(texts[i]), option_error);
    else
      CHECK(tokenizer.encode(texts[i]) == numbers(expected.at(i)));
  }
}

TEST_CASE("wordpiece: a vocab.txt is read as BertTokenizer reads it") {
  const auto files = golden().at("files");
  const auto texts = strings(files.at("word_texts"));
  const scratch_folder folder;
  for (std::size_t i = 0; i < files.at("words").size(); ++i) {
    const auto file = files.at("words").at(i);
    INFO(file.at("name").as_string());
    put(folder / "vocab.txt", file.at("text").as_string());
    const auto words = wordpiece::read(folder / "vocab.txt");
    check_or_refuse(words, texts, file.at("tokens"));
    CHECK(tokens{words.padding(), words.unknown(), words.classification(), words.separator(), words.mask()} ==
          numbers(file.at("specials")));
    words.write(folder / "again.txt");
    CHECK(wordpiece::read(folder / "again.txt").pieces() == words.pieces());
  }
  // A number that the reference gives to two pieces, in a vocabulary with a piece twice and without [MASK].
  put(folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\ncat\nthe\ncat\n##s\n");
  CHECK(wordpiece::read(folder / "vocab.txt").encode("the cats [MASK]") == tokens{5, 6, 7, 8});
  put(folder / "vocab.txt", "");
  CHECK(error_of<io_error>([&] { wordpiece::read(folder / "vocab.txt"); }).find("is empty") !=
        std::string::npos);
}

TEST_CASE("byte_pair: vocab.json and merges.txt are read as GPT2Tokenizer reads them") {
  const auto files = golden().at("files");
  const auto texts = strings(files.at("pair_texts"));
  const scratch_folder folder;
  const auto read = [&](std::string const& vocabulary, std::string const& merges) {
    put(folder / "vocab.json", vocabulary);
    put(folder / "merges.txt", merges);
    return byte_pair::read(folder / "vocab.json", folder / "merges.txt");
  };
  for (std::size_t i = 0; i < files.at("pairs").size(); ++i) {
    const auto file = files.at("pairs").at(i);
    INFO(file.at("name").as_string());
    const auto tokenizer = read(file.at("vocabulary").as_string(), file.at("merges").as_string());
    check_or_refuse(tokenizer, texts, file.at("tokens"));
    CHECK(tokenizer.end_of_text() == file.at("end").as_integer());
    for (std::string const& text : texts) CHECK(tokenizer.decode(tokenizer.encode(text)) == text);
    tokenizer.write(folder / "again.json", folder / "again.txt");
    const auto again = byte_pair::read(folder / "again.json", folder / "again.txt");
    CHECK(again.pieces() == tokenizer.pieces());
    CHECK(again.merges() == tokenizer.merges());
    check_or_refuse(again, texts, file.at("tokens"));
  }
  // A byte without a piece is not dropped, numbers that two tokens would have are not given.
  CHECK(error_of<option_error>([&] { read(R"({"a": 0, "b": 1})", "").encode("abc"); }) ==
        "[byte_pair] the vocabulary has no piece for byte 99, which is in the text");
  CHECK(read(R"({"a": 2, "b": 1})", "").end_of_text() == 3);
  const auto error = [&](std::string const& vocabulary) {
    return error_of<io_error>([&] { read(vocabulary, ""); });
  };
  CHECK(error(R"({"a": 0, "b": 0})").ends_with("b is 0, and so is \"a\""));
  CHECK(error(R"({"a": 0, "b": 4000000000})")
            .ends_with("b is 4000000000, but the numbers of 2 pieces should be below 1008"));
  CHECK(error(R"({"a": 0, "b": -1})").find("b is -1 but should be an integer") != std::string::npos);
  CHECK(error("{}").ends_with("has no pieces"));
}

TEST_CASE("byte_pair: words are merged in the order of the merges, whatever that order is") {
  const random_stream random(2, random_purpose::test);
  std::uint64_t drawn = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> parts{"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    for (int i = 0; i < 12; ++i) {
      const auto draw = [&] { return parts[random.below(drawn++, parts.size())]; };
      const std::string left = draw(), right = draw();
      if (left.size() + right.size() > 8) continue;
      merges.emplace_back(left, right);
      if (std::ranges::count(parts, left + right) == 0) parts.push_back(left + right);
    }
    for (std::size_t i = merges.size(); i > 1; --i)  // not only orders that were learned
      if (round % 2 == 1) std::swap(merges[i - 1], merges[random.below(drawn++, i)]);
    parts = byte_pair({}).pieces();
    for (auto const& [left, right] : merges)
      if (std::ranges::count(parts, left + right) == 0) parts.push_back(left + right);
    const byte_pair tokenizer(parts, merges);
    std::string word;
    for (int i = 0; i < round % 61; ++i) word += char('a' + random.below(drawn++, 3));
    tokens expected;
    for (std::string const& part : support::merged_naively(tokenizer.merges(), word))
      expected.push_back(
          std::int32_t(std::ranges::find(tokenizer.pieces(), part) - tokenizer.pieces().begin()));
    CHECK(tokenizer.encode(word) == expected);
  }
}

TEST_CASE("byte_pair: a word of 300 000 letters is merged") {
  const random_stream random(3, random_purpose::test);
  std::string word;
  for (std::uint64_t i = 0; i < 300'000; ++i) word += char('a' + random.below(i, 4));
  const byte_pair tokenizer = byte_pair::trained(word.substr(0, 900), 400);  // merges of four letters
  CHECK(tokenizer.decode(tokenizer.encode(word)) == word);
}

TEST_CASE("tokenizers: a vocabulary that is not text is refused with the line") {
  const scratch_folder folder;
  put(folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nab\xff\n");
  CHECK(error_of<io_error>([&] { wordpiece::read(folder / "vocab.txt"); }) ==
        "[wordpiece] " + (folder / "vocab.txt") + " line 6 is not UTF-8");
}

TEST_CASE("tokenizers: an error is short whatever a vocabulary holds, and names another format") {
  const scratch_folder folder;
  const std::string piece(10'000, 'x'), vocabulary = folder / "vocab.json", merges = folder / "merges.txt";
  const auto check_short = [&](std::string const& pieces, std::string const& of_merges) {
    put(vocabulary, pieces);
    put(merges, of_merges);
    const std::string error = error_of<tessera::error>([&] { byte_pair::read(vocabulary, merges); });
    INFO(error);
    CHECK((error.size() > 0 && error.size() < 450));
  };
  check_short("{\"" + piece + "\": [1]}", "");
  check_short("{\"" + piece + "\": 0, \"b\": 0}", "");
  check_short("{\"" + piece + "\": 4000000000}", "");
  check_short("{\"a\": 0}", piece);
  check_short("{\"a\": 0}", piece + " " + piece);
  const wordpiece none({"a"});
  CHECK(error_of<option_error>([&] { none.encode(piece); }).size() < 450);

  const std::string packed("\x1f\x8b\x08\0", 4);
  put(vocabulary, packed), put(merges, packed);
  for (auto const& error : {error_of<io_error>([&] { byte_pair::read(vocabulary, merges); }),
                            error_of<io_error>([&] { byte_pair::read(merges); }),
                            error_of<io_error>([&] { wordpiece::read(merges); })})
    CHECK(error.find("] is compressed by gzip: unpack it first") != std::string::npos);
  put(merges, "{\"a\": 0}");
  CHECK(error_of<io_error>([&] { wordpiece::read(merges); }).find("] is of JSON") != std::string::npos);
}

TEST_CASE("tokenizers: what a vocabulary lacks is named") {
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
  CHECK(read_error("a\x1b[2J\n").starts_with("merges.txt line 1 is \"a\\x1b[2J\": two pieces"));
  CHECK(read_error("a b c\n").starts_with("merges.txt line 1 is \"a b c\""));
  CHECK(error_of<option_error>([&] { byte_pair::read(merges("a b\nab zz\n")); }) ==
        "[byte_pair] merges has no \"zz\", of the merge of \"ab\" and \"zz\"");
  CHECK(error_of<option_error>([] { byte_pair::trained("text", 256); }).find("make it 257 or more") !=
        std::string::npos);
  CHECK(error_of<option_error>([] { wordpiece::trained("text", 5); }).find("5 are special") !=
        std::string::npos);
}
