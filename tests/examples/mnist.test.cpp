// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <examples/shell.hpp>
#include <io/scratch_folder.hpp>

#include <tessera/io/json_parser.hpp>

namespace mnist_test { namespace {

#ifdef MNIST

constexpr const char* quick =
    MNIST " --made-up --epochs 3 --examples 3000 --batch 50 --rate 0.05 --density 0.1 ";

TEST_CASE("mnist: with every policy a sparse network learns, and the result is a line of a file") {
  const scratch_folder here;
  const std::string file = here / "results.jsonl";
  for (std::string const policy :
       {"static", "magnitude", "set", "snfs", "rigl", "itop", "deep-r", "granet"}) {
    const std::string updates = policy == "static" ? "" : " --updates 4";
    const auto [code, text] = shell(quick + ("--policy " + policy + updates + " --json " + file));
    INFO(text);
    CHECK(code == 0);
    CHECK(text.find(policy + ": ") != std::string::npos);
  }
  std::ifstream lines(file);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto document = tessera::io::parse_json(line, file);
    const tessera::io::json_place result(document, file);
    const std::string policy = result.at("settings").at("policy").as_string();
    // Of ten classes; deep-r, a control, gets 21 to 58 % right by other seeds.
    CHECK(result.at("test_accuracy").as_number() > (policy == "deep-r" ? 0.3 : 0.5));
    CHECK(result.at("weights").as_integer() == 23520 + 3000 + 100);
    CHECK((result.at("explored").as_number() > 0.11) == (policy != "static"));
    CHECK(result.at("updates").as_integer() == (policy == "static" ? 0 : policy == "rigl" ? 8 : 11));
    CHECK((result.at("replaced").as_integer() > 0) == (policy != "static"));
    CHECK(result.at("settings").at("decay").as_string() ==
          (policy == "set" || policy == "deep-r" ? "constant" : "cosine"));
  }
  CHECK(count == 8);
}

TEST_CASE("mnist: with Top-KAST and edge-popup a network learns that computes with a part of its blocks") {
  const scratch_folder here;
  const std::string file = here / "results.jsonl";
  for (auto const& [policy, stored] : {std::pair<std::string, std::string>("top-kast --updates 9", "20"),
                                       {"top-kast --updates 9 --stored 0.5", "50"},
                                       {"edge-popup", "100"},
                                       {"edge-popup --stored 0.4", "40"}}) {
    const auto [code, text] = shell(quick + ("--policy " + policy + " --json " + file));
    INFO(text);
    CHECK(code == 0);
    CHECK(text.find("with 26620 weights; " + stored + " % of the blocks stored") != std::string::npos);
  }
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    const auto document = tessera::io::parse_json(line, file);
    CHECK(tessera::io::json_place(document, file).at("test_accuracy").as_number() > 0.5);
  }
}

TEST_CASE("mnist: patterns of the first weights, by magnitude, SNIP, GraSP and SynFlow") {
  for (std::string const initial : {"magnitude", "snip", "grasp", "synflow"}) {
    const auto [code, text] = shell(quick + ("--policy static --initial " + initial));
    INFO(text);
    CHECK(code == 0);
    CHECK(text.find("with 26620 weights; 10 % of the blocks tried") != std::string::npos);
  }
}

TEST_CASE("mnist: policies replace what there is to replace, whatever the first pattern") {
  const std::string short_run =
      MNIST " --made-up --epochs 2 --examples 100 --batch 50 --hidden 40 --fraction 1 ";
  for (std::string const options :
       {"--policy deep-r --density 0.9", "--policy set --density 0.9 --initial snip --block 4",
        "--policy rigl --densities erdos-renyi --density 0.3 --block 8",
        "--policy set --initial grasp --density 0.6 --block 16",
        "--policy snfs --density 0.97 --initial synflow"}) {
    const auto [code, text] = shell(short_run + options);
    INFO(options, ": ", text);
    CHECK(code == 0);
    CHECK(text.find("of the blocks tried in ") != std::string::npos);
  }
}

TEST_CASE("mnist: a run without an update, and tickets that cannot shrink, are told") {
  const std::string short_run = MNIST " --made-up --epochs 1 --examples 100 --hidden 20 ";
  const outcome none = shell(short_run + "--policy set");
  CHECK(none.code == 0);
  CHECK(none.output.find("note: no update of the pattern was due in these 1 steps") != std::string::npos);
  const outcome still = shell(short_run + "--tickets 9 --block 16 --ticket-share 0.001");
  CHECK(still.code == 0);
  CHECK(still.output.find("a share of 0.001 leaves nothing to prune") != std::string::npos);
  CHECK(still.output.find("ticket 1 ") == std::string::npos);
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
  CHECK(text.find("ticket 0 step ") != std::string::npos);
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
          "[--policy] 'best' is not one of "
          "dense|static|magnitude|set|snfs|rigl|itop|deep-r|gradual|granet|top-kast|"
          "edge-popup");
  refused("--policy top-kast --stored 0.05", "[--stored] must be greater than --density");
  refused("--policy edge-popup --density 0.3 --stored 0.3", "[--stored] must be greater than --density");
  refused("--block 3", "[--block] '3' is not one of 1|4|8|16");
  refused("--tickets 2 --policy rigl",
          "[--policy] has no meaning with --tickets, which begins dense and prunes after each round");
  refused("--rewind 4", "[--rewind] has a meaning with --tickets only");
  refused("--policy gradual --density 1e-9", "keeps none of the 235200 blocks of 300 x 784 weights");
  refused("--batch 3001",
          "[--batch] 3001 examples of a step are more than the 3000 to learn from; at most 3000");
  refused("--policy set --density 1", "[--density] 1 leaves no block to --policy set");
  refused("--policy granet --initial-density 0.05", "[--initial-density] must not be less than --density");
}

TEST_CASE("mnist: options that would change nothing are refused, even if they say the default") {
  for (std::string const options : {"last sparse --policy gradual",
                                    "last sparse --policy granet",
                                    "initial-density 0.5 --policy rigl",
                                    "densities uniform --policy gradual",
                                    "initial random --policy gradual",
                                    "fraction 0.5 --policy gradual",
                                    "decay cosine --policy gradual",
                                    "decay cosine --policy deep-r",
                                    "updates 1 --policy static",
                                    "updates 1 --policy edge-popup",
                                    "stored 0 --policy rigl",
                                    "initial random --policy top-kast",
                                    "densities uniform --policy edge-popup",
                                    "decay cosine --policy top-kast",
                                    "block 1 --policy dense",
                                    "density 0.1 --policy dense",
                                    "pixels rows --policy dense",
                                    "densities uniform --initial snip",
                                    "last dense --initial snip",
                                    "policy snfs --tickets 1",
                                    "density 0.1 --tickets 1",
                                    "last dense --tickets 1",
                                    "decay cosine --tickets 1",
                                    "rewind 0",
                                    "ticket-share 0.2",
                                    "ticket-scope matrix",
                                    "pixels tiles"}) {
    const auto [code, text] = shell(MNIST " --made-up --examples 100 --epochs 1 --" + options);
    INFO(options, ": ", text);
    CHECK(code == 2);
    CHECK(text.find("[--" + options.substr(0, options.find(' ')) + "] ") != std::string::npos);
  }
}

TEST_CASE("mnist: gradual pruning in a single step; more made-up examples than usual") {
  const auto [code, text] = shell(
      MNIST " --made-up --epochs 1 --hidden 160 --block 16 --examples 7000 --batch 7000 --policy gradual");
  INFO(text);
  CHECK(code == 0);
  CHECK(text.find("gradual step 1/1 ") != std::string::npos);
}

TEST_CASE("mnist: a result that cannot be written is an error before the run, which leaves no file behind") {
  const scratch_folder here;
  const auto [code, text] = shell(MNIST " --made-up --json " + (here / "none/result.jsonl"));
  CHECK(code == 1);
  CHECK(text == "mnist: [" + (here / "none/result.jsonl") +
                    "] the result cannot be written: No such file or directory\n");
  put(here / "full.jsonl", std::string(499, 'x') + "\n");
  CHECK(shell(std::string("ulimit -f 1; ") + quick + "--json " + (here / "full.jsonl")).code == 1);
  CHECK(std::filesystem::file_size(here / "full.jsonl") == 500);  // no half of a line
  CHECK(shell(quick + ("--batch 3001 --json " + (here / "result.jsonl"))).code == 2);
  CHECK(!std::ifstream(here / "result.jsonl"));
}

TEST_CASE("mnist: images that cannot be read are named, and why") {
  const scratch_folder here;
  const std::string data = here / "it's", images = data + "/mnist/train-images-idx3-ubyte.gz";
  const auto told = [&](std::string const& variable, std::string const& what) {
    const auto [code, text] = shell("cd " + (here / ".") + " && " + variable + " " MNIST);
    INFO(text);
    CHECK(code == 1);
    CHECK(text.find("mnist: [mnist] " + what) != std::string::npos);
  };
  const std::string in_data = "TESSERA_DATA=\"" + data + "\"";
  told("env -u TESSERA_DATA",
       "data/mnist/train-images-idx3-ubyte.gz: No such file or directory (TESSERA_DATA is not set)");
  told(in_data, images + ": No such file or directory; --made-up takes other images");
  const std::string pack = "cd \"" + data + "/mnist\" && gzip -c >train-";
  shell("mkdir -p \"" + data + "/mnist\"; head -c 800 /dev/zero | (" + pack + "images-idx3-ubyte.gz)");
  told(in_data, data + "/mnist/train-labels-idx1-ubyte.gz: No such file");
  shell("head -c 9 /dev/zero | (" + pack + "labels-idx1-ubyte.gz)");
  told(in_data, "train: of 1 images none is left beside 6000 for validation");
  shell("head -c 10 /dev/zero | (" + pack + "labels-idx1-ubyte.gz)");
  told(in_data, "train: there are not as many images as labels");
  shell("cd \"" + data + "/mnist\" && truncate -s -8 train-images-idx3-ubyte.gz");
  told(in_data, images + ": gzip could not unpack it");
}

#endif

}}  // namespace mnist_test
