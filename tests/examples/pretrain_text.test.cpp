// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include <doctest/doctest.h>
#include <pretrain/labelled_text.hpp>
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
        "[encode] \"é\" at byte 2 is not among the 3 symbols this model knows; leave it out");
}

TEST_CASE("labels: a label that is quoted is cut, and shows no control characters") {
  const scratch_folder folder;
  put(folder / "a", "\x1b" + std::string(10'000, 'x') + "\ta text\n");
  const auto lines = read_labelled(folder / "a");
  const std::string error = error_of<option_error>(
      [&] { labelled_text(folder / "a", lines, {"y"}, tessera::tokenizers::wordpiece({"a"}), 8); });
  CHECK(error == "[labels] " + (folder / "a") + " line 1: \"\\x1b" + std::string(99, 'x') +
                     "…\" is in no line to train on");
}

TEST_CASE("text: a file with holes is refused before there is memory for it") {
  const scratch_folder folder;
  put(folder / "a", "text");
  std::error_code failure;  // of a file system without such files
  std::filesystem::resize_file(folder / "a", std::uintmax_t(1) << 43, failure);
  if (failure) {
    MESSAGE("skipped: no file of 8 TiB");
    return;
  }
  for (auto const& error : {error_of<io_error>([&] { read_files({folder / "a"}, text_level::byte); }),
                            error_of<io_error>([&] { read_labelled(folder / "a"); })})
    CHECK(error.find("8796093022208 bytes, but the memory_limit is ") != error.npos);
}

TEST_CASE("text: the last tenth of each file validates") {
  const scratch_folder folder;
  put(folder / "a", "0123456789");
  put(folder / "b", "abcdefghijklmnopqrstuvwxy");
  const corpus text = read_files({folder / "a", folder / "b"}, text_level::character);
  CHECK(text.training == "012345678abcdefghijklmnopqrstuv");
  CHECK(text.validation == "9wxy");
  CHECK(text.source == folder / "a" + ", " + folder / "b");
  const std::vector<std::string> five(5, folder / "a");
  CHECK(read_files(five, text_level::character).source ==
        folder / "a" + ", " + folder / "a" + ", " + folder / "a" + " and 2 more");
}

TEST_CASE("text: the byte order mark before a file is no part of it") {
  const scratch_folder folder;
  put(folder / "a", "\xEF\xBB\xBF" + std::string(10, 'a'));
  put(folder / "b", "\xEF\xBB\xBF" + std::string(10, 'b'));
  const corpus text = read_files({folder / "a", folder / "b"}, text_level::character);
  CHECK(text.training == "aaaaaaaaabbbbbbbbb");
  CHECK(text.validation == "ab");
  put(folder / "mark", "\xEF\xBB\xBF");
  CHECK(error_of<io_error>([&] {
          (void)read_files({folder / "mark"}, text_level::byte);
        }).ends_with("is empty"));
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
  const std::string here = folder / "";
  CHECK(error_of<io_error>([&] { (void)read_files({here}, text_level::byte); }) ==
        "[text] " + here + " is a folder; name the files in it, as the shell does for " + here + "*");
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
  const auto draw = [&](std::uint64_t seed, std::uint64_t step, int count) {
    batch drawn;
    window_text(text, context).sample(seed, step, count, drawn);
    CHECK(drawn.lengths == std::vector<std::int64_t>(std::size_t(count), context));
    CHECK(drawn.counted() == count * context);
    for (std::size_t i = 0; i < drawn.inputs.size(); ++i) {
      CHECK(drawn.targets[i] == drawn.inputs[i] + 1);
      if (i % context > 0) CHECK(drawn.inputs[i] == drawn.inputs[i - 1] + 1);
    }
    return drawn.inputs;
  };
  const std::vector<token> first = draw(1, 7, 8);
  CHECK(draw(1, 7, 8) == first);
  CHECK(draw(1, 8, 8) != first);
  CHECK(draw(2, 7, 8) != first);
  const std::vector<token> fewer = draw(1, 7, 3);
  CHECK(std::equal(fewer.begin(), fewer.end(), first.begin()));
}

TEST_CASE("windows: every place of the text is drawn sometimes") {
  const std::vector<token> text{0, 1, 2, 3, 4};
  std::set<token> first;
  batch drawn;
  for (std::uint64_t step = 0; step < 100; ++step) {
    window_text(text, 2).sample(1, step, 1, drawn);
    first.insert(drawn.inputs[0]);
  }
  CHECK(first == std::set<token>{0, 1, 2});
}

TEST_CASE("windows: those of the validation part predict every token but the first once") {
  for (const std::size_t size : {2u, 8u, 9u, 10u, 17u, 33u}) {
    std::vector<token> text(size), targets;
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<token>(i);
    const window_text shown(text, 8);
    for (std::size_t w = 0; w < shown.windows(); ++w) {
      batch part;
      shown.add_window(w, part);
      REQUIRE(part.inputs.size() == part.targets.size());
      CHECK(part.inputs.size() >= 1);
      CHECK(part.inputs.size() <= 8);
      for (std::size_t i = 0; i < part.inputs.size(); ++i) CHECK(part.targets[i] == part.inputs[i] + 1);
      targets.insert(targets.end(), part.targets.begin(), part.targets.end());
    }
    CHECK(targets == std::vector<token>(text.begin() + 1, text.end()));
  }
}

/// 300 tokens in three documents of 100, 1 and 199 tokens; tokens are 10 … 19, 1 and 2 enclose a window.
window_text masked_text(std::vector<token>& text) {
  for (std::size_t i = 0; i < 300; ++i) text.push_back(static_cast<token>(10 + i % 10));
  masked_task task{1, 2, {}};
  task.rule.mask = 3;
  task.rule.kinds.assign(20, tessera::train::token_kind::begins_word);
  for (std::size_t i = 0; i < 4; ++i) task.rule.kinds[i] = tessera::train::token_kind::special;
  const std::vector<std::size_t> ends{100, 101, 300};
  return {text, ends, 32, task};
}

TEST_CASE("windows: masked ones show the whole text, and none leaves its document") {
  std::vector<token> text, shown;
  const window_text windows = masked_text(text);
  CHECK(windows.windows() == 4 + 1 + 7);
  CHECK(windows.tokens() == 300 + 2 * 12);
  batch all;
  for (std::size_t w = 0; w < windows.windows(); ++w) windows.add_window(w, all);
  CHECK(all.lengths == std::vector<std::int64_t>{32, 32, 32, 12, 3, 32, 32, 32, 32, 32, 32, 21});
  std::int64_t predicted = 0;
  for (std::size_t i = 0; i < all.inputs.size(); ++i) {
    predicted += all.targets[i] >= 0;
    if (all.inputs[i] != 1 && all.inputs[i] != 2)
      shown.push_back(all.targets[i] >= 0 ? all.targets[i] : all.inputs[i]);
  }
  CHECK(shown == text);
  CHECK(predicted == all.counted());
  CHECK(double(predicted) / 300 == doctest::Approx(0.15).epsilon(0.1));
  batch again;
  for (std::size_t w = 0; w < windows.windows(); ++w) windows.add_window(w, again);
  CHECK(again.inputs == all.inputs);
}

TEST_CASE("windows: a masked batch is filled with whole windows, and differs by step and seed") {
  std::vector<token> text;
  const window_text windows = masked_text(text);
  batch drawn, same, next;
  std::set<std::int64_t> lengths;
  for (std::uint64_t step = 0; step < 200; ++step) {
    windows.sample(1, step, 4, drawn);
    CHECK(drawn.inputs.size() <= 128);
    CHECK(drawn.sequences().tokens() == std::ssize(drawn.inputs));
    CHECK(drawn.counted() > 0);
    lengths.insert(drawn.lengths.begin(), drawn.lengths.end());
  }
  CHECK(lengths == std::set<std::int64_t>{3, 32});  // short documents come whole, of others full windows
  windows.sample(1, 7, 4, drawn), windows.sample(1, 7, 4, same), windows.sample(1, 8, 4, next);
  CHECK(drawn.inputs == same.inputs);
  CHECK(drawn.inputs != next.inputs);
}

TEST_CASE("text: a blank line may hold spaces, and lines may end as in DOS") {
  std::string text;
  std::vector<std::size_t> ends;
  add_documents("one\r\nmore\r\n\r\n  two\n \t\n\n\nthree\nfour\n", documents::blank_lines, text, ends);
  CHECK(text == "one\r\nmore\r\n  two\nthree\nfour\n");
  CHECK(ends == std::vector<std::size_t>{11, 17, 28});
}

TEST_CASE("text: documents end where files end, or at blank lines") {
  const scratch_folder folder;
  put(folder / "a", "one\n\ntwo\n\n\n\nthree " + std::string(40, 'x'));
  put(folder / "b", std::string(30, 'y'));
  const auto read = [&](documents divided) {
    return read_files({folder / "a", folder / "b"}, text_level::byte, divided);
  };
  CHECK(read(documents::files).training_ends.size() == 2);
  const corpus text = read(documents::blank_lines);
  CHECK(text.training_ends.size() == 4);
  CHECK(text.training.substr(0, text.training_ends[0]) == "one\n");
  CHECK(text.training.substr(text.training_ends[0], text.training_ends[1] - text.training_ends[0]) ==
        "two\n");
  CHECK(text.training_ends.back() == text.training.size());
  CHECK(text.validation_ends.back() == text.validation.size());
}

TEST_CASE("vocabulary: pieces that are learned come back from a checkpoint") {
  const corpus text{"the cat sat on the mat, and the cat sat again", "the cat", "a.txt"};
  for (const text_level level : {text_level::wordpiece, text_level::byte_pair}) {
    const vocabulary learned = vocabulary_for(text, level, 300, "");
    CHECK(learned.level() == level);
    const tessera::io::json kept = learned.to_json();
    const vocabulary again = vocabulary::from_json(level, tessera::io::json_place(kept));
    CHECK(again == learned);
    CHECK(again.encode("the cat sat") == learned.encode("the cat sat"));
  }
  const vocabulary words = vocabulary_for(text, text_level::wordpiece, 60, "");
  CHECK(words.text_after_others(words.encode("cat").front()) == " cat");
  const auto greek = [&] {
    (void)tokenize({"ΑΒΓ ΔΕΖ ΗΘΙ", "ΑΒΓ ΔΕΖ", "greek.txt"}, words, 1, objective::masked_token);
  };
  CHECK(error_of<option_error>(greek).starts_with(
      "[text] 100 % of the tokens of greek.txt are unknown to the vocabulary"));
}

TEST_CASE("vocabulary: a tokenizer.json comes back from a checkpoint, and blanks before its words do") {
  const scratch_folder folder;
  put(folder / "tokenizer.json",
      R"({"added_tokens": [{"id": 0, "content": "<s>", "single_word": false, "lstrip": false,
    "rstrip": false, "normalized": false, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "vocab": {"<s>": 0, "▁": 1, "a": 2, "b": 3, "ab": 4, "▁ab": 5}, "merges": ["a b", "▁ ab"]}})");
  const corpus text{"ab a", "ab", "a.txt"};
  const vocabulary read = vocabulary_for(text, text_level::byte_pair, 300, folder / "tokenizer.json");
  CHECK(read.level() == text_level::byte_pair);
  CHECK(read.size() == 6);
  CHECK(read.encode("ab ab") == std::vector<token>{5, 5});
  CHECK(read.decode(std::vector<token>{5, 5}) == "ab ab");
  CHECK(read.text_after_others(5) == " ab");
  CHECK(read.text_after_others(4) == "ab");
  CHECK(read.text_after_others(0) == "<s>");
  CHECK(read.beginning() == std::vector<token>{0});
  CHECK(read.between_documents() == std::vector<token>{0});
  const tessera::io::json kept = read.to_json();
  const vocabulary again = vocabulary::from_json(text_level::byte_pair, tessera::io::json_place(kept));
  CHECK(again == read);
  CHECK(again.encode("ab a") == read.encode("ab a"));
  CHECK(tokenize(text, read, 1).training == std::vector<token>{5, 1, 2, 0});
  put(folder / "tokenizer.json", R"({"added_tokens": [], "model": {"type": "Unigram", "vocab": {"a": 0}}})");
  CHECK(error_of<io_error>([&] {
          vocabulary_for(text, text_level::byte_pair, 300, folder / "tokenizer.json");
        }).find("tokenizer.json] model is of type \"Unigram\"") != std::string::npos);
}

}  // namespace pretrain_text_test
