// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <pretrain/text.hpp>
#include <pretrain/windows.hpp>

#include "../io/scratch_folder.hpp"

namespace pretrain_text_test {

using namespace pretrain;
using tessera::io_error;
using tessera::option_error;

TEST_CASE("vocabulary: characters are the sorted set of those that occur") {
  const vocabulary v(text_level::character, "hello, wörld → 𝄞");
  CHECK(v.symbols() == " ,dehlorwö→𝄞");
  CHECK(v.size() == 12);
  CHECK(v.encode("ö h") == std::vector<token>{9, 0, 4});
  CHECK(v.decode(v.encode("wörld → 𝄞")) == "wörld → 𝄞");
  CHECK(vocabulary(text_level::character, v.symbols()) == v);
}

TEST_CASE("vocabulary: bytes stand for themselves whatever the text") {
  const vocabulary v(text_level::byte, "");
  CHECK(v.size() == 256);
  const std::string text("a\xff\0ö", 5);
  CHECK(v.encode(text) == std::vector<token>{'a', 0xff, 0, 0xc3, 0xb6});
  CHECK(v.decode(v.encode(text)) == text);
  CHECK(vocabulary(text_level::byte, v.symbols()) == v);
}

TEST_CASE("vocabulary: an unknown character is refused with its place") {
  const vocabulary v(text_level::character, "abc");
  CHECK(error_of<option_error>([&] { (void)v.encode("abéc"); }) ==
        "[encode] 'é' at byte 2 is not among the 3 symbols this model knows; leave it out");
}

TEST_CASE("text: the last tenth of each file validates") {
  const scratch_folder folder;
  put(folder / "a", "0123456789");
  put(folder / "b", "abcdefghijklmnopqrstuvwxy");
  const corpus text = read_files({folder / "a", folder / "b"}, text_level::character);
  CHECK(text.training == "012345678abcdefghijklmnopqrstuv");
  CHECK(text.validation == "9wxy");
  CHECK(text.source == folder / "a" + ", " + folder / "b");
}

TEST_CASE("text: a character is never cut in two") {
  const scratch_folder folder;
  put(folder / "a", "aaaaaaa→→→");  // the last tenth of 16 bytes begins inside an arrow
  const corpus text = read_files({folder / "a"}, text_level::character);
  CHECK(text.training == "aaaaaaa→→");
  CHECK(text.validation == "→");
}

TEST_CASE("text: missing and empty and binary files are refused by name") {
  const scratch_folder folder;
  const std::string file = folder / "a";
  const auto fault = [&](text_level level) {
    return error_of<io_error>([&] { (void)read_files({file}, level); });
  };
  CHECK(fault(text_level::byte).find("[read " + file + "]") == 0);
  put(file, "");
  CHECK(fault(text_level::byte) == "[text] " + file + " is empty");
  put(file, std::string_view("abc\0def", 7));
  CHECK(fault(text_level::byte) == "[text] " + file + " is binary: byte 3 is zero");
  put(file, "na\xefve na\xefve");
  CHECK(fault(text_level::byte) == "[text] " + file + " is binary: 2 of its 11 bytes are not UTF-8");
  put(file, "a na\xefve latin-1 text");
  CHECK(fault(text_level::byte) == "");
  CHECK(fault(text_level::character) ==
        "[text] " + file + " is not UTF-8 at byte 4; convert it, or use --level byte");
  CHECK(error_of<io_error>([&] { (void)read_files({folder / ""}, text_level::byte); }) != "");
}

TEST_CASE("text: a part shorter than a window is refused with both numbers") {
  const corpus text{std::string(100, 'a'), "aaaaaaaa", "a.txt"};
  CHECK(tokenize(text, text_level::character, 7).validation.size() == 8);
  CHECK(error_of<option_error>([&] { (void)tokenize(text, text_level::character, 8); }) ==
        "[text] the validation part of a.txt has 8 tokens, but --context 8 needs at least 9; choose a longer "
        "text or a smaller context");
  CHECK(error_of<option_error>([&] {
          (void)tokenize(text, text_level::character, 100);
        }).find("training part") != std::string::npos);
}

TEST_CASE("text: the hash is of the content and of where it is divided") {
  const auto hash = [](const char* training, const char* validation) {
    return tokenize({training, validation, ""}, text_level::character, 1).hash;
  };
  CHECK(hash("abcd", "efgh") == hash("abcd", "efgh"));
  CHECK(hash("abcd", "efgh") != hash("abcd", "efgi"));
  CHECK(hash("abcd", "efgh") != hash("abcde", "fgh"));
}

TEST_CASE("text: bytes per token turn a loss of characters into one of bytes") {
  CHECK(tokenize({"ab→ö", "a→ö", ""}, text_level::character, 2).bytes_per_token == 2);
  CHECK(tokenize({"ab→ö", "a→ö", ""}, text_level::byte, 2).bytes_per_token == 1);
}

TEST_CASE("text: a folder without git gives its sources and documents in sorted order") {
  const scratch_folder folder;
  for (const char* name : {"include/b", "docs", "runs"}) std::filesystem::create_directories(folder / name);
  put(folder / "include/b/x.hpp", "1");
  put(folder / "include/a.hpp", "2");
  put(folder / "docs/z.md", "3");
  put(folder / "docs/plot.svg", "4");
  put(folder / "runs/sample.md", "5");
  CHECK(repository_files(folder / "") ==
        std::vector<std::string>{"docs/z.md", "include/a.hpp", "include/b/x.hpp"});
  CHECK(error_of<io_error>([&] { (void)read_repository(folder / "runs"); }).find("--text FILE") !=
        std::string::npos);
}

TEST_CASE("text: of a checkout what git tracks counts" *
          doctest::skip(std::system("git --version > /dev/null 2>&1") != 0)) {
  const scratch_folder folder;
  const std::string root = folder / "it's a checkout";
  std::filesystem::create_directories(root + "/src");
  put(root + "/src/ö.cpp", "1");
  put(root + "/a.md", "2");
  put(root + "/untracked.md", "3");
  const std::string commands =
      "cd \"" + root + "\" && git init -q . > /dev/null 2>&1 && git add src a.md > /dev/null 2>&1";
  REQUIRE(std::system(commands.c_str()) == 0);
  CHECK(repository_files(root) == std::vector<std::string>{"a.md", "src/ö.cpp"});
}

TEST_CASE("text: the chunks of a repository are shared out whole and once") {
  const scratch_folder folder;
  std::filesystem::create_directories(folder / "docs");
  std::string file;
  for (int line = 0; file.size() < 1'000'000; ++line) file += "line " + std::to_string(line) + " → next\n";
  put(folder / "docs/a.md", file);
  put(folder / "docs/b.md", "a small file is one chunk\n");
  put(folder / "docs/binary.md", "\xff\xfe");
  const corpus text = read_repository(folder / "");
  CHECK(text.training.size() + text.validation.size() == file.size() + 26);
  const double share = static_cast<double>(text.validation.size()) / static_cast<double>(file.size());
  CHECK(share > 0.04);  // 245 chunks: 0.1 give or take three standard deviations
  CHECK(share < 0.16);
  CHECK(text_fault(text.training + text.validation, text_level::character) == "");

  put(folder / "docs/a0.md", "another file moves no chunk to the other side\n");
  const corpus longer = read_repository(folder / "");
  const bool validates = longer.validation.size() > text.validation.size();
  CHECK((validates ? longer.training == text.training : longer.validation == text.validation));
}

TEST_CASE("text: this project is a text to train on") {
  const corpus text = read_repository(TESSERA_SOURCE_DIR);
  CHECK(text.training.size() > 2 * text.validation.size());
  CHECK(text.training.find("SPDX-License-Identifier") != std::string::npos);
  CHECK(tokenize(text, text_level::character, 128).symbols.size() < 400);
}

TEST_CASE("windows: a batch depends on the seed and the step alone") {
  std::vector<token> text(1000);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<token>(i);
  constexpr int context = 16;
  const auto draw = [&](std::uint64_t seed, std::uint64_t step, std::size_t count) {
    std::vector<token> inputs(count * context), targets(inputs.size());
    sample_batch(text, context, seed, step, inputs, targets);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      CHECK(targets[i] == inputs[i] + 1);
      if (i % context > 0) CHECK(inputs[i] == inputs[i - 1] + 1);
    }
    return inputs;
  };
  const std::vector<token> batch = draw(1, 7, 8);
  CHECK(draw(1, 7, 8) == batch);
  CHECK(draw(1, 8, 8) != batch);
  CHECK(draw(2, 7, 8) != batch);
  const std::vector<token> fewer = draw(1, 7, 3);
  CHECK(std::equal(fewer.begin(), fewer.end(), batch.begin()));
}

TEST_CASE("windows: every place of the text is drawn sometimes") {
  const std::vector<token> text{0, 1, 2, 3, 4};
  std::set<token> first;
  std::vector<token> inputs(2), targets(2);
  for (std::uint64_t step = 0; step < 100; ++step) {
    sample_batch(text, 2, 1, step, inputs, targets);
    first.insert(inputs[0]);
  }
  CHECK(first == std::set<token>{0, 1, 2});
}

TEST_CASE("windows: those of the validation part predict every token but the first once") {
  for (const std::size_t size : {2u, 8u, 9u, 10u, 17u, 33u}) {
    std::vector<token> text(size), targets;
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<token>(i);
    for (std::size_t w = 0; w < window_count(text, 8); ++w) {
      const window part = window_at(text, 8, w);
      REQUIRE(part.inputs.size() == part.targets.size());
      CHECK(part.inputs.size() >= 1);
      CHECK(part.inputs.size() <= 8);
      for (std::size_t i = 0; i < part.inputs.size(); ++i) CHECK(part.targets[i] == part.inputs[i] + 1);
      targets.insert(targets.end(), part.targets.begin(), part.targets.end());
    }
    CHECK(targets == std::vector<token>(text.begin() + 1, text.end()));
  }
}

}  // namespace pretrain_text_test
