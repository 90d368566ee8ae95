// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include <doctest/doctest.h>
#include <examples/shell.hpp>
#include <io/scratch_folder.hpp>

namespace ipu_test { namespace {

#ifdef IPU

outcome run_ipu(std::string const& arguments) { return shell(IPU " " + arguments); }
bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}
std::string content(std::string const& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_CASE("ipu: products are planned, emulated in both modes, and checked") {
  const scratch_folder here;
  outcome told = run_ipu("plan --m 1024 --k 1024 --n 64");
  CHECK(told.code == 0);
  for (char const* part : {"dense: ", "static: ", "dynamic: ", "times dense"})
    CHECK(contains(told.output, part));
  for (char const* mode : {"static", "dynamic"}) {
    const std::string page = here / "report.html", json = (here / "report.json");
    told = run_ipu(std::string("emulate --m 256 --k 192 --n 20 --block 4 --density 0.2 --pass all --mode ") +
                   mode + " --html " + page + " --json " + json);
    CHECK(told.code == 0);
    CHECK(contains(told.output, "checked against sums in double"));
    CHECK(contains(content(page), "</html>"));
    CHECK(contains(content(json), "\"cycles\""));
  }
}

TEST_CASE("ipu: a pattern comes from a file, and its size counts") {
  const scratch_folder here;
  std::ofstream(here / "w.smtx") << "4, 8, 5\n0 2 3 4 5\n0 4 1 7 2\n";
  outcome told = run_ipu("plan --block 4 --n 8 --pattern " + (here / "w.smtx"));
  CHECK(told.code == 0);
  CHECK(contains(told.output, "W 4 x 8, 2 blocks of 4"));
  told = run_ipu("plan --block 16 --pattern " + (here / "w.smtx"));
  CHECK(told.code == 2);
  CHECK(contains(told.output, "both must be multiples of --block 16"));
}

TEST_CASE("ipu: sweeps are CSV, maps are text and pages") {
  const scratch_folder here;
  outcome told = run_ipu("sweep --sizes 512 --columns 16 64 --blocks 16 --densities 1/16");
  CHECK(told.code == 0);
  CHECK(contains(told.output,
                 "mode,type,block,density,m,k,n,dense_cycles,sparse_cycles,speed_up,note\nstatic,half,16,0."
                 "0625,512,512,16,"));
  told = run_ipu("map --sizes 512 --columns 16 --blocks 1 16 --densities 1/4 1/16 --html " +
                 (here / "map.html"));
  CHECK(told.code == 0);
  CHECK(contains(told.output, "blocks of 16, density 1/16"));
  CHECK(contains(content((here / "map.html")), "<svg"));
}

TEST_CASE("ipu: training steps run on the machine, one that does not fit says how many tokens would") {
  outcome told = run_ipu("train --hidden 128 --tokens 256 --density 0.2");
  CHECK(told.code == 0);
  CHECK(contains(told.output,
                 "a layer of BERT, 128 features, 256 tokens, forward and backward on Bow: 1472 tiles"));
  told = run_ipu("train --model gpt --hidden 64 --layers 1 --tokens 256");
  CHECK(told.code == 0);
  CHECK(contains(told.output, "attention backward *"));
  told = run_ipu("train --hidden 128 --tokens 4096 --memory 40");
  CHECK(told.code == 1);
  CHECK(contains(told.output, "tokens would fit"));
  told = run_ipu("train --hidden 128 --tokens 4096 --memory 40 --charge");
  CHECK(told.code == 0);
  CHECK(contains(told.output, "! does not fit: tile "));
  told = run_ipu("host --m 256 --k 256 --n 64 --threads 1");
  CHECK(told.code == 0);
  CHECK(contains(told.output, "1 threads"));
}

TEST_CASE("ipu: commands and options that there are not are refused") {
  for (auto const& [arguments, why] :
       {std::pair{"fly", "there is no such command: plan, emulate, sweep, map, train, host are"},
        std::pair{"plan --blok 4", "did you mean --block?"},
        std::pair{"plan --block 5", "1, 4, 8 and 16 are possible"},
        std::pair{"emulate --mode dense", "planned (ipu plan), and not emulated"},
        std::pair{"plan --option nSplits=2", "there is no option nSplits"},
        std::pair{"sweep --densities 1/0", "is not a positive number"},
        std::pair{"sweep --blocks 0.5", "'0.5' is not a whole number"},
        std::pair{"map --blocks 5", "1, 4, 8 and 16 are possible"}}) {
    const outcome told = run_ipu(arguments);
    CAPTURE(std::string(arguments));
    CHECK(told.code == 2);
    CHECK(contains(told.output, why));
  }
}

#endif

}}  // namespace ipu_test
