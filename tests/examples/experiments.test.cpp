// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include <doctest/doctest.h>
#include <examples/shell.hpp>
#include <fcntl.h>
#include <io/scratch_folder.hpp>
#include <sys/file.h>
#include <unistd.h>

namespace experiments_test { namespace {

#if defined(MNIST) && defined(PRETRAIN)

/// The outcome of experiments/run.py in a folder of its own.
outcome run_experiment(scratch_folder const& here, std::string const& arguments) {
  const auto programs = std::filesystem::path(MNIST).parent_path().parent_path();
  return shell("cd " + (here / "") + " && python3 " TESSERA_SOURCE_DIR "/experiments/run.py --programs " +
               programs.string() + " " + arguments);
}
std::string content(std::string const& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// The option after which each run of `mnist` is over at once.
std::string fake_programs(scratch_folder const& here) {
  std::filesystem::create_directories(here / "fake/mnist");
  const std::string program = here / "fake/mnist/mnist";
  put(program, "#!/bin/sh\nfor last; do :; done\necho '{\"test_accuracy\": 0.9}' > \"$last\"\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  return " --programs " + (here / "fake");
}
bool has(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

TEST_CASE("experiments: each makes its runs, and a page of them") {
  for (const auto& [name, runs] :
       {std::pair("lenet", 14), std::pair("mnist_blocks", 4), std::pair("tickets", 1), std::pair("gpt", 2),
        std::pair("bert", 2), std::pair("rates", 1), std::pair("interpolate", 4), std::pair("newborn", 1),
        std::pair("tuning", 2)}) {
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

TEST_CASE("experiments: one has runs that depend on the results of others") {
  const scratch_folder here;
  const auto [code, text] = run_experiment(here, "toolbox --quick");
  INFO(text);
  CHECK(code == 0);
  CHECK(has(text, "0 of 2 runs are in"));
  CHECK(has(content(here / "build/experiments/toolbox.md"), "4 of 4 runs have been made"));
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
  const outcome other = run_experiment(here, "mnist_blocks");
  CHECK(other.code == 1);
  CHECK(other.output.find("was made with other arguments, ") != std::string::npos);
}

TEST_CASE("experiments: a run made after lines that are no results has a line of its own") {
  const scratch_folder here;
  std::filesystem::create_directories(here / "docs/experiments");
  const std::string file = here / "docs/experiments/mnist_blocks.jsonl";
  const std::string name = R"({"run": "4x4, rows, seed 1")";
  put(file, "null\n5\n[]\n\"x\"\n{\"run\": [\"a\"]}\n\xff\n" + name + "}\n" + name + ", \"result\": 5}\n" +
                name);  // the last one is cut off
  const auto [code, text] = run_experiment(here, "mnist_blocks" + fake_programs(here));
  INFO(text);
  CHECK(code == 0);
  for (int line = 1; line <= 9; ++line)
    CHECK(has(text, "mnist_blocks.jsonl:" + std::to_string(line) + " is no result and is left out"));
  CHECK(run_experiment(here, "mnist_blocks --page").code == 0);
  CHECK(has(content(here / "docs/experiments/mnist_blocks.md"), "50 of 50 runs have been made"));
}

TEST_CASE("experiments: a page is written from quick runs, and without runs there is none") {
  const scratch_folder here;
  const auto [code, text] = run_experiment(here, "mnist_blocks --quick --page");
  CHECK(code == 1);
  CHECK(has(text, "mnist_blocks.jsonl has no runs yet"));
  CHECK(run_experiment(here, "mnist_blocks --quick" + fake_programs(here)).code == 0);
  const std::string lines = content(here / "build/experiments/mnist_blocks.jsonl");
  CHECK(run_experiment(here, "mnist_blocks --quick --page").code == 0);
  CHECK(content(here / "build/experiments/mnist_blocks.jsonl") == lines);
}

TEST_CASE("experiments: two do not make the same runs") {
  const scratch_folder here;
  std::filesystem::create_directories(here / "docs/experiments");
  const int held = ::open((here / "docs/experiments/mnist_blocks.jsonl").c_str(), O_CREAT | O_RDWR, 0600);
  REQUIRE(::flock(held, LOCK_EX) == 0);
  const auto [code, text] = run_experiment(here, "mnist_blocks" + fake_programs(here));
  ::close(held);
  CHECK(code == 1);
  CHECK(has(text, "another process is making the runs of"));
}

TEST_CASE("experiments: a run that fails is told by its name") {
  const scratch_folder here;
  const std::string option = fake_programs(here);
  put(here / "fake/mnist/mnist", "#!/bin/sh\n");  // no longer executable
  const auto [code, text] = run_experiment(here, "mnist_blocks --quick" + option);
  CHECK(code == 1);
  CHECK(has(text, "16x16, rows, seed 1: PermissionError"));
  CHECK(!has(text, "Traceback"));
}

TEST_CASE("experiments: a name that is none, and a program that is not built, are told") {
  const scratch_folder here;
  CHECK(run_experiment(here, "mnust").code == 2);
  std::ofstream(here / "x") << "";
  const auto [code, text] = run_experiment(here, "lenet --quick --programs nowhere --jobs 0");
  CHECK(code == 2);
  CHECK(text.find("--jobs must be at least 1") != std::string::npos);
  for (const std::string minutes : {"-1", "nan"})
    CHECK(has(run_experiment(here, "lenet --minutes " + minutes).output, "--minutes must be at least 0"));
}

#endif

}}  // namespace experiments_test
