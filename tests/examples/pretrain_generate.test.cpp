// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <string>

#include <doctest/doctest.h>

#include <tessera/io/json.hpp>
#include <tessera/io/read_json.hpp>

#include "../io/scratch_folder.hpp"
#include "pretrain_programs.hpp"

namespace pretrain_generate_test {

#if defined(PRETRAIN) && defined(GENERATE)

using namespace pretrain_programs;

TEST_CASE("generate: texts of several prompts come in their order, whatever the batch and the threads") {
  const workplace here;
  REQUIRE(shell(here.pretrain("a")).code == 0);
  put(here.in("prompts"), "of 12\nthe square is\r\n\nof 3");
  const auto texts = [&](std::string const& more) {
    const outcome all = shell(here.generate("a", "--prompts " + here.in("prompts") + " 2>/dev/null " + more));
    CHECK(all.code == 0);
    return all.output;
  };
  const std::string all = texts("--batch 4 --json " + here.in("texts.json"));
  CHECK(texts("--batch 1") == all);
  CHECK(texts("--batch 3 --threads 1") == all);
  CHECK(texts("--seed 2") != all);
  CHECK(all.starts_with("of 12"));
  const auto document = tessera::io::read_json(here.in("texts.json"));
  const tessera::io::json_place written(document, "texts.json");
  REQUIRE(written.size() == 4);
  std::string again;
  for (std::size_t i = 0; i < 4; ++i)
    again += (i > 0 ? "---\n" : "") + written.at(i).at("prompt").as_string() +
             written.at(i).at("text").as_string() + "\n";
  CHECK(again == all);
  CHECK(written.at(1).at("prompt").as_string() == "the square is");
  CHECK(written.at(3).at("text").as_string().size() == 40);  // more than the context
}

TEST_CASE("generate: a text ends before a string, and --stats says how fast it came") {
  const workplace here;
  REQUIRE(shell(here.pretrain("a", "--only sparse --window 5")).code == 0);
  const std::string likeliest = "--prompt 'of 12' --temperature 0 ";
  const std::string whole = shell(here.generate("a", likeliest + "2>/dev/null")).output;
  const std::string stop = whole.substr(9, 2);
  const outcome cut = shell(here.generate("a", likeliest + "--stop nowhere '" + stop + "' 2>/dev/null"));
  CHECK(cut.output == whole.substr(0, whole.find(stop, 5)) + "\n");
  const outcome said = shell(here.generate("a", likeliest + "--cache bfloat16 --stats"));
  CHECK(said.code == 0);
  for (char const* part : {"prompts ", "decode ", "memory ", "keys and values", " % of the "})
    CHECK(contains(said, part));
}

TEST_CASE("generate: a signal ends the texts that are being written, and keeps those that are complete") {
  const workplace here;
  REQUIRE(shell(here.pretrain("a", "--only dense")).code == 0);
  const std::string endless = GENERATE " --checkpoint " + here.in("runs/a") + " --tokens 2000000000 --json " +
                              here.in("texts.json") + " >" + here.in("out");
  const outcome ended = shell(endless + " & pid=$!; until [ -s " + here.in("out") +
                              " ] || ! kill -0 $pid; do sleep 0.005; done; kill -TERM $pid; wait $pid");
  CHECK(ended.code == 143);
  const auto document = tessera::io::read_json(here.in("texts.json"));
  CHECK(tessera::io::json_place(document, "texts.json").size() == 0);
}

TEST_CASE("generate: what cannot be is refused in a line") {
  const workplace here;
  REQUIRE(shell(here.pretrain("a", "--only dense --steps 1")).code == 0);
  const auto refused = [&](std::string const& more, std::string const& message) {
    const outcome result = shell(here.generate("a", more));
    CHECK(result.code == 2);
    CHECK(contains(result, message));
  };
  put(here.in("empty"), "");
  put(here.in("unknown"), "of\n\xc3\xa4\n");
  refused("--prompts " + here.in("empty"), "is empty: give a prompt in each line");
  refused("--prompts " + here.in("unknown"), "unknown line 2: ");
  refused("--prompts " + here.in("empty") + " --prompt of", "[--prompts] stands in place of a --prompt");
  refused("--stop ''", "[--stop] is an empty text");
  refused("--top-p 0", "is not a number in (0, 1]");
  CHECK(shell(here.generate("a", "--prompts " + here.in("nowhere"))).code == 1);
}

#endif

}  // namespace pretrain_generate_test
