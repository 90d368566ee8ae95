// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include <doctest/doctest.h>
#include <examples/shell.hpp>
#include <io/scratch_folder.hpp>

namespace experiments_test { namespace {

#if defined(MNIST) && defined(PRETRAIN)

/// What experiments/run.py does in a folder of its own.
outcome run_experiment(scratch_folder const& here, std::string const& arguments) {
  const auto programs = std::filesystem::path(MNIST).parent_path().parent_path();
  return shell("cd " + (here / "") + " && python3 " TESSERA_SOURCE_DIR "/experiments/run.py " + arguments +
               " --programs " + programs.string());
}
std::string content(std::string const& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_CASE("experiments: each makes its runs, and a page of them") {
  for (const auto& [name, runs] :
       {std::pair("lenet", 12), std::pair("mnist_blocks", 4), std::pair("tickets", 1), std::pair("gpt", 2),
        std::pair("bert", 2), std::pair("rates", 2)}) {
    const scratch_folder here;
    const auto [code, text] = run_experiment(here, std::string(name) + " --quick");
    INFO(text);
    CHECK(code == 0);
    const std::string all = std::to_string(runs);
    CHECK(text.find("0 of " + all + " runs are in") != std::string::npos);
    const std::string page = content(here / ("build/experiments/" + std::string(name) + ".md"));
    CHECK(page.find("| --- |") != std::string::npos);
    CHECK(page.find(all + " of " + all + " runs have been made") != std::string::npos);
  }
}

TEST_CASE("experiments: lines that are there are not made again, and one that was cut off is") {
  const scratch_folder here;
  CHECK(run_experiment(here, "mnist_blocks --quick").code == 0);
  std::filesystem::create_directories(here / "docs/experiments");
  const std::string lines = content(here / "build/experiments/mnist_blocks.jsonl");
  std::ofstream(here / "docs/experiments/mnist_blocks.jsonl") << lines.substr(0, lines.size() - 9);
  const auto [code, text] = run_experiment(here, "mnist_blocks --page");
  INFO(text);
  CHECK(code == 0);
  CHECK(text.find("mnist_blocks.jsonl:4 is no result and is left out") != std::string::npos);
  CHECK(content(here / "docs/experiments/mnist_blocks.md").find("3 of 50 runs have been made") !=
        std::string::npos);
}

TEST_CASE("experiments: a name that is none, and a program that is not built, are told") {
  const scratch_folder here;
  CHECK(run_experiment(here, "mnust").code == 2);
  std::ofstream(here / "x") << "";
  const auto [code, text] = run_experiment(here, "lenet --quick --programs nowhere --jobs 0");
  CHECK(code == 2);
  CHECK(text.find("--jobs must be at least 1") != std::string::npos);
}

#endif

}}  // namespace experiments_test
