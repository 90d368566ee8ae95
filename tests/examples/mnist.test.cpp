// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <examples/shell.hpp>
#include <io/scratch_folder.hpp>

#include <tessera/io/json_parser.hpp>

namespace mnist_test { namespace {

#ifdef MNIST

constexpr const char* quick =
    MNIST " --made-up --epochs 3 --examples 3000 --batch 50 --rate 0.05 --updates 4 --density 0.1 ";

TEST_CASE("mnist: with every policy a sparse network learns, and the result is a line of a file") {
  const scratch_folder here;
  const std::string file = here / "results.jsonl";
  for (std::string const policy : {"static", "magnitude", "set", "snfs", "rigl", "deep-r"}) {
    const auto [code, text] = shell(quick + ("--policy " + policy + " --json " + file));
    INFO(text);
    CHECK(code == 0);
    CHECK(text.find(policy + ": ") != std::string::npos);
  }
  std::ifstream lines(file);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto document = tessera::io::parse_json(line, file);
    const tessera::io::json_place result(document, file);
    CHECK(result.at("test_accuracy").as_number() > 0.5);
    CHECK(result.at("weights").as_integer() == 23520 + 3000 + 100);
    CHECK((result.at("explored").as_number() > 0.11) ==
          (result.at("settings").at("policy").as_string() != "static"));
  }
  CHECK(count == 6);
}

TEST_CASE("mnist: patterns of the first weights, by magnitude, SNIP, GraSP and SynFlow") {
  for (std::string const initial : {"magnitude", "snip", "grasp", "synflow"}) {
    const auto [code, text] = shell(quick + ("--policy static --initial " + initial));
    INFO(text);
    CHECK(code == 0);
    CHECK(text.find("with 26620 weights; 10 % of the blocks tried") != std::string::npos);
  }
}

TEST_CASE("mnist: lottery tickets, beside new weights on the same patterns") {
  const scratch_folder here;
  const std::string file = here / "tickets.jsonl";
  const auto [code, text] =
      shell(MNIST
            " --made-up --epochs 2 --examples 1000 --hidden 40 --optimizer adam --rate 0.005 "
            "--batch 20 --tickets 2 --rewind 5 --reinitialise --json " +
            file);
  INFO(text);
  CHECK(code == 0);
  CHECK(text.find("   100.00     31760") != std::string::npos);
  CHECK(text.find("    64.00     20326") != std::string::npos);
  std::ostringstream line;
  line << std::ifstream(file).rdbuf();
  const auto document = tessera::io::parse_json(line.str(), file);
  const auto rounds = tessera::io::json_place(document, file).at("rounds");
  REQUIRE(rounds.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(rounds.at(i).at("test_accuracy").as_number() > 0.5);
  CHECK(!rounds.at(0).contains("reinitialised"));
  CHECK(rounds.at(2).at("reinitialised").at("weights").as_integer() == 20326);
}

TEST_CASE("mnist: settings that make no sense are refused") {
  const auto refused = [](std::string const& options, std::string const& why) {
    const auto [code, text] = shell(quick + options);
    CHECK(code == 2);
    INFO(text);
    CHECK(text.find(why) != std::string::npos);
  };
  refused("--hidden 300 many", "[--hidden] 'many' is not");
  refused("--density 0.00001 --hidden 30", "keeps none of the 23520 blocks of 30 x 784 weights");
  refused("--policy dense --density 0.2", "[--density] has no meaning with --policy dense");
  refused("--policy best",
          "[--policy] 'best' is not one of dense|static|magnitude|set|snfs|rigl|deep-r|gradual");
  refused("--block 3", "3");
  refused("--tickets 2 --policy rigl",
          "[--tickets] begins dense and prunes after each round: leave out --policy");
  refused("--rewind 4", "[--rewind] has a meaning with --tickets only");
}

#endif

}}  // namespace mnist_test
