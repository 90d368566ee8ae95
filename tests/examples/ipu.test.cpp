// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <common/options_help.hpp>
#include <doctest/doctest.h>
#include <examples/shell.hpp>
#include <io/scratch_folder.hpp>
#include <ipu/settings.hpp>

#include <tessera/io/json_parser.hpp>

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
  CHECK(run_ipu("emulate --m 256 --k 192 --n 20 --mode dense --type float").code == 0);
  CHECK(run_ipu("emulate --m 30 --k 50 --n 7 --groups 2 --mode dense").code == 0);
  for (char const* mode : {"static", "dynamic"}) {
    const std::string page = here / "report.html", json = (here / "report.json");
    told = run_ipu(std::string("emulate --m 256 --k 192 --n 20 --block 4 --density 0.2 --pass all --mode ") +
                   mode + " --html " + page + " --json " + json);
    CHECK(told.code == 0);
    CHECK(contains(told.output, "checked against sums in double"));
    CHECK(contains(told.output, "times as fast as dense, planned"));
    CHECK(contains(content(page), "</html>"));
    CHECK(contains(content(json), "\"cycles\""));
  }
}

TEST_CASE("ipu: a plan is written as a page, JSON and CSV, with the same cycles") {
  const scratch_folder here;
  const outcome told = run_ipu("plan --m 512 --k 512 --n 64 --density 1/8 --html " + (here / "p.html") +
                               " --json " + (here / "p.json") + " --csv " + (here / "p.csv"));
  CHECK(told.code == 0);
  CHECK(contains(told.output, "density 0.125"));
  const auto document = tessera::io::parse_json(content(here / "p.json"), "p.json");
  const auto products = document.at("products");
  REQUIRE(products.size() == 3);
  const std::string csv = content(here / "p.csv"), page = content(here / "p.html");
  for (std::size_t i = 0; i < products.size(); ++i) {
    const std::string name = products.at(i).at("name").as_string();
    const auto cycles = products.at(i).at("cycles").as_integer();
    CHECK(contains(csv, "\n" + name + "," + std::to_string(cycles) + ","));
    CHECK(contains(page, "<h2>" + name + "</h2>"));
    std::int64_t sum = 0;
    for (auto const& phase : products.at(i).at("phases").elements()) sum += phase.at("cycles").as_integer();
    CHECK(sum == cycles);
  }
  CHECK(contains(page, "times dense"));
  CHECK(contains(page, "</html>"));
}

TEST_CASE(
    "ipu: a plan shows all products, or the one that is asked for, to screens without control characters") {
  const scratch_folder here;
  const std::string product = "plan --m 512 --k 512 --n 64 --density 1/8";
  const char* const modes[] = {"dense", "static", "dynamic"};
  for (const std::string asked : modes) {
    const std::string csv = here / "a\x1b[31m.csv";
    const outcome told = run_ipu(product + " --mode " + asked + " --csv '" + csv + "'");
    CHECK(told.code == 0);
    for (const std::string mode : modes) {
      CHECK(contains(told.output, "\n" + mode + ": ") == (mode == asked));
      CHECK(contains(content(csv), "\n" + mode + ",") == (mode == asked));
    }
    CHECK(contains(told.output, "times dense") == (asked != "dense"));
    CHECK(contains(told.output, "written: " + (here / "a\\x1b[31m.csv")));
  }
  CHECK(contains(run_ipu(product + " --groups 2 --mode static").output,
                 "2 groups: the static product has one"));
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
  for (char const* block : {"1", "4", "8", "16"}) {
    told = run_ipu(std::string("host --m 256 --k 256 --n 64 --threads 1 --density 1/4 --block ") + block);
    CHECK(told.code == 0);
    CHECK(contains(told.output, "1 threads"));
  }
}

TEST_CASE("ipu: commands and options that there are not are refused") {
  for (auto const& [arguments, why] :
       {std::pair{"fly", "there is no such command: plan, emulate, sweep, map, train, host are"},
        std::pair{"plan --blok 4", "did you mean --block?"},
        std::pair{"plan --block 5", "1, 4, 8 and 16 are possible"},
        std::pair{"plan --option nSplits=2", "there is no option nSplits"},
        std::pair{"sweep --densities 1/0", "'1/0' is not a number in (0, 1]"},
        std::pair{"sweep --densities 1/1e400", "'1/1e400' is not a number in (0, 1]"},
        std::pair{"sweep --blocks 0.5", "'0.5' is not a whole number"},
        std::pair{"map --blocks 5", "1, 4, 8 and 16 are possible"},
        std::pair{"plan --density 17/16", "[--density] '17/16' is not a number in (0, 1]"},
        std::pair{"plan --density 1/16/2", "'1/16/2' is not a number in (0, 1]"},
        std::pair{"map --m 512", "[--m] is not used by map, but by plan, emulate, host; leave it out"},
        std::pair{"train --csv a.csv", "[--csv] is not used by train, but by plan, sweep"},
        std::pair{"host --type half", "[--type] is not used by host"},
        std::pair{"sweep --mode dense", "[--mode] dense is what sweep compares with; say static or dynamic"},
        std::pair{"plan --mode dense --option nSplit=2", "[--option] has no meaning with --mode dense"},
        std::pair{"emulate --mode dense --block 4", "[--block] has no meaning with --mode dense"},
        std::pair{"plan --pattern a.mtx --density 1/2", "[--density] has no meaning with --pattern"},
        std::pair{"train --layers 2", "[--layers] has no meaning with --model bert"}}) {
    const outcome told = run_ipu(arguments);
    CAPTURE(std::string(arguments));
    CHECK(told.code == 2);
    CHECK(contains(told.output, why));
  }
}

TEST_CASE("ipu: files that cannot be written, and sizes that do not fit, are refused before the work") {
  const scratch_folder here;
  const std::string product = " --m 128 --k 128 --n 16", many = " --sizes 64 --columns 4 --blocks 16",
                    none = here / "none/file", same = here / "file";
  for (std::string const& arguments :
       {"plan" + product + " --csv " + none, "emulate" + product + " --json " + none,
        "train --hidden 64 --tokens 16 --html " + none, "host" + product + " --html " + none,
        "sweep" + many + " --csv " + none, "map" + many + " --html " + none}) {
    const outcome told = run_ipu(arguments);
    CAPTURE(arguments);
    CHECK(told.code == 1);
    CHECK(told.output == "ipu: [write " + none + "] No such file or directory\n");
  }
  outcome told = run_ipu("plan" + product + " --json " + same + " --csv " + same);
  CHECK(told.code == 2);
  CHECK(told.output ==
        "ipu: [--csv] " + same + " is the file of --json, too; each needs a file of its own\n");
  told = run_ipu("plan --csv ''" + product);
  CHECK(told.code == 2);
  CHECK(told.output == "ipu: [--csv] is empty; give the name of a file, or leave it out\n");
  CHECK(here.files() == 0);
  told = run_ipu("sweep --sizes 60 --columns 4 --blocks 1 16 2>&1 >" + same);
  CHECK(told.output == "ipu: [--sizes] 60 is no multiple of a block of 16\n");
}

TEST_CASE("ipu: every option is used by a command, which lists it, and the others refuse it") {
  const std::string names[] = {"plan", "emulate", "sweep", "map", "train", "host"};
  for (auto const& group : ipu_program::table())
    for (auto const& row : group.options) {
      if (row.role == programs::option_role::command) continue;
      CAPTURE(std::string(row.name));
      std::size_t used = 0;
      for (std::string const& command : names) {
        const bool uses = programs::among(row.commands, command);
        const std::vector<programs::given_option> given{{std::string(row.name), {"x"}, "--x"}};
        if (uses)
          CHECK_NOTHROW(programs::require_used(ipu_program::table(), given, command));
        else
          CHECK_THROWS_AS(programs::require_used(ipu_program::table(), given, command),
                          tessera::option_error);
        CHECK(contains(programs::help_text(ipu_program::table(), command),
                       "  --" + std::string(row.name) + " ") == uses);
        used += uses;
      }
      CHECK(!row.commands.empty());
      CHECK(used > 0);
    }
}

#endif

}}  // namespace ipu_test
