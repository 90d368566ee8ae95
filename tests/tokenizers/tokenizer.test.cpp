// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/core/random.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/gunzip.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/tokenizers/tokenizer.hpp>

namespace tokenizer_test {

using namespace tessera;
using tokenizers::special_names;
using tokenizers::tokenizer;
using tokens = std::vector<std::int32_t>;

// Recorded by tests/golden/record_tokenizer_files.py.
io::json const& golden() {
  static const io::json all = [] {
    const std::string name = "tokenizer_files.json.gz";
    const std::string packed = io::read_file(TESSERA_SOURCE_DIR "/tests/golden/" + name);
    const auto bytes = io::gunzip(std::as_bytes(std::span(packed)), name);
    return io::parse_json({reinterpret_cast<char const*>(bytes.data()), bytes.size()}, name);
  }();
  return all;
}
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
  const auto texts = golden().at("texts");
  CHECK(made.size() == expected.at("size").as_integer());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::string const& text = texts.at(i).as_string();
    INFO(text);
    const tokens encoded = made.encode(text);
    CHECK(encoded == numbers(expected.at("tokens").at(i)));
    CHECK(as_utf8(made.decode(encoded)) == expected.at("decoded").at(i).as_string());
    CHECK(as_utf8(made.decode(encoded, special_names::kept)) ==
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
io::json file_of(std::string const& family) { return golden().at("families").at(family).at("file").value(); }
tokenizer made_of(io::json const& file) { return tokenizer(io::json_place(file, "tokenizer.json")); }

}  // namespace tokenizer_test

using namespace tokenizer_test;

TEST_CASE("tokenizer: files of GPT-2, LLaMA 2 and 3, Mistral, Qwen2 and BERT give the recorded tokens") {
  const scratch_folder folder;
  const auto families = golden().at("families");
  CHECK(families.members().size() == 6);
  for (io::json_member const& family : families.members()) {
    INFO(family.key);
    const auto expected = families.at(family);
    io::write_atomically(folder / "tokenizer.json", io::to_text(expected.at("file").value(), 2));
    check_texts(tokenizer::read(folder / "tokenizer.json"), expected);
  }
}

TEST_CASE("tokenizer: other settings, old files and tokens with every flag give the recorded tokens") {
  const auto variants = golden().at("variants");
  for (io::json_member const& variant : variants.members()) {
    INFO(variant.key);
    const auto expected = variants.at(variant);
    io::json file = file_of(expected.at("of").as_string());
    change(file, expected.at("changes").value());
    check_texts(made_of(file), expected);
  }
}

TEST_CASE("tokenizer: every character of Unicode gives the recorded tokens") {
  const auto families = golden().at("families");
  const auto chunks = golden().at("chunks");
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
  const auto families = golden().at("families");
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
