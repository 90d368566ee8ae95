// SPDX-License-Identifier: BSD-3-Clause
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <unistd.h>

#include <tessera/core/random.hpp>
#include <tessera/io/folder_lock.hpp>

#include "../io/scratch_folder.hpp"
#include "pretrain_programs.hpp"

namespace pretrain_resumed_test {

// Runs that are ended, killed, moved or changed, and go on.

#if defined(PRETRAIN) && defined(GENERATE) && defined(FILL_MASK) && defined(FREEZE) && defined(FINETUNE)

using namespace pretrain_programs;

TEST_CASE("pretrain: a run goes on beyond its end as the rest of a longer one") {
  const workplace here;
  const auto rates = [&](std::string const& run) {  // by step
    std::map<int, double> all;
    std::istringstream lines(contents(here.in("runs/" + run + "/sparse/log.csv")));
    std::string line;
    for (std::getline(lines, line); std::getline(lines, line);) {
      std::vector<std::string> cells;
      std::istringstream row(line);
      for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
      all[std::stoi(cells.at(1))] = std::stod(cells.at(6));
    }
    return all;
  };
  const std::string asked = "--only sparse --eval-every 1 --updates 4";
  CHECK(shell(here.pretrain("a", asked)).code == 0);
  const std::map<int, double> first = rates("a");
  fs::copy(here.in("runs/a"), here.in("runs/b"), fs::copy_options::recursive);
  CHECK(shell(here.resume("a", "--steps 100")).code == 0);
  CHECK(contents(here.in("runs/a/settings.json")).find("\"steps\": 100") != std::string::npos);
  CHECK(fs::exists(here.in("runs/a/sparse/step-00000100")));
  const std::map<int, double> longer = rates("a");
  REQUIRE(longer.size() == 100);
  CHECK(longer.at(60) == first.at(60));
  for (int step = 61; step <= 65; ++step) CHECK(longer.at(step) > longer.at(step - 1));
  CHECK(longer.at(70) < longer.at(66));

  // In parts, on another number of threads, it ends with the same bits.
  CHECK(shell(here.resume("b", "--steps 100 --threads 1 --until-tokens 5120")).code == 0);
  CHECK(!fs::exists(here.in("runs/b/sparse/step-00000100")));
  CHECK(shell(here.resume("b", "--until-tokens 0")).code == 0);
  CHECK(same_tensors(here.in("runs/a/sparse/step-00000100"), here.in("runs/b/sparse/step-00000100")));
  CHECK(rates("b") == longer);

  const outcome shorter = shell(here.resume("a", "--steps 90"));
  CHECK(shorter.code == 2);
  CHECK(contains(shorter, "[--steps] is 100 in the run to be resumed, and may only be more"));
}

TEST_CASE("pretrain: two processes do not write to one run, and what a killed one left is cleared away") {
  const workplace here;
  REQUIRE(shell(here.pretrain("a", "--only sparse --steps 2")).code == 0);
  const std::string unfinished = here.in("runs/a/sparse/step-00000007.partial-1-0");
  fs::create_directory(unfinished);
  {
    const tessera::io::folder_lock other(here.in("runs/a"));
    const outcome refused = shell(here.resume("a"));
    CHECK(refused.code != 0);
    CHECK(contains(refused, "pretrain: [lock " + here.in("runs/a") + "] process " + std::to_string(getpid()) +
                                " writes to this folder"));
    CHECK(fs::exists(unfinished));
  }
  const std::string log = here.in("runs/a/table.txt.partial-1-0"), mine = here.in("runs/a/notes.partial");
  put(log, "half");
  put(mine, "mine");
  CHECK(shell(here.resume("a")).code == 0);
  CHECK(!fs::exists(unfinished));
  CHECK(!fs::exists(log));
  CHECK(fs::exists(mine));
}

TEST_CASE("pretrain: a run that was ended and resumed has the same bits on any number of threads") {
  const workplace here;
  CHECK(shell(here.pretrain("whole")).code == 0);
  const std::string often = "--checkpoint-every 1";  // there is an update of the patterns in every step
  const outcome first = terminate(here.pretrain("parts", often), here.in("runs/parts/dense/step-*"));
  CHECK(first.code == 128 + SIGTERM);
  CHECK(contains(first, "go on with\n  " PRETRAIN " --resume " + here.in("runs/parts")));
  CHECK(!here.files("parts").contains("dense/step-00000060"));
  const outcome second = terminate(here.resume("parts", "--threads 1"), here.in("runs/parts/sparse/step-*"));
  CHECK(second.code == 128 + SIGTERM);
  CHECK(!here.files("parts").contains("sparse/step-00000060"));
  CHECK(shell(here.resume("parts")).code == 0);
  for (const char* last : {"/dense/step-00000060", "/sparse/step-00000060"})
    CHECK(same_tensors(here.in("runs/whole") + last, here.in("runs/parts") + last));

  const std::set<std::string> files = here.files("parts");
  CHECK(shell(here.resume("parts")).code == 0);  // there is nothing left to do
  CHECK(here.files("parts") == files);
}

TEST_CASE(
    "pretrain: a run whose folder is moved stops at the next save, says where it is, and is resumed there") {
  const workplace here;
  const std::string run = here.in("runs/a"), moved = here.in("moved");
  const outcome stopped = shell(
      here.pretrain("a", "--only sparse --steps 1000000 --checkpoint-every 200") + " & pid=$!; until ls " +
      run + "/sparse/step-* >/dev/null 2>&1 || ! kill -0 $pid; do sleep 0.005; done; mv " + run + " " +
      moved + "; wait $pid");
  CHECK(stopped.code == 1);
  CHECK(contains(stopped, "[write " + run + "] the folder was moved to " + fs::canonical(moved).string() +
                              " while this process wrote to it; nothing more is written"));
  CHECK(!fs::exists(run));
  CHECK(shell(PRETRAIN " --resume " + moved + " --until-tokens 64").code == 0);
}

TEST_CASE("pretrain: with every policy and optimizer a run that was ended and resumed has the same bits") {
  const workplace here;
  for (const std::string policy : {"set", "rigl", "itop", "snfs", "deep-r", "gradual", "granet"}) {
    const std::string options = "--only sparse --policy " + policy +
                                (policy == "set"       ? " --optimizer sgd --momentum 0.8 --grace 1"
                                 : policy == "rigl"    ? " --optimizer lion"
                                 : policy == "gradual" ? " --optimizer lamb --bias-correction off"
                                 : policy == "itop"    ? " --newborn smet --grace 2 --newborn-values 0.3"
                                 : policy == "snfs"    ? " --newborn mean --prune-score momentum"
                                 : policy == "deep-r"  ? " --newborn age"
                                 : policy == "granet"  ? " --parameterisation supar --base-hidden 16"
                                                       : "");
    CHECK(shell(here.pretrain(policy, options)).code == 0);
    const outcome first = terminate(here.pretrain(policy + "-parts", options + " --checkpoint-every 1"),
                                    here.in("runs/" + policy + "-parts/sparse/step-*"));
    CHECK(first.code == 128 + SIGTERM);
    const outcome other = shell(here.resume(policy + "-parts", "--policy magnitude"));
    CHECK(other.code == 2);
    CHECK(contains(other, "[--policy] is \"" + policy + "\" in the run to be resumed"));
    if (policy == "set")
      CHECK(contains(shell(here.resume("set-parts", "--optimizer adamw")),
                     "[--optimizer] is \"sgd\" in the run"));
    CHECK(shell(here.resume(policy + "-parts", "--threads 1")).code == 0);
    const std::string last = "/sparse/step-00000060";
    CHECK(same_tensors(here.in("runs/" + policy) + last, here.in("runs/" + policy + "-parts") + last));
  }
  CHECK(!same_tensors(here.in("runs/set/sparse/step-00000060"), here.in("runs/rigl/sparse/step-00000060")));
}

TEST_CASE("pretrain: a model that is pruned first is trained before the dense one, and both are compared") {
  const workplace here;
  const outcome first = terminate(
      here.pretrain("a", "--steps 9000 --updates 5 --block 4 --initial-pattern snip --checkpoint-every 1"),
      here.in("runs/a/sparse/step-*"));
  CHECK(first.code == 128 + SIGTERM);
  CHECK(contains(first, "sparse   interrupted"));
  CHECK(!fs::exists(here.in("runs/a/dense")));
  CHECK(shell(here.resume("a", "--until-tokens 1")).code == 0);
  const std::string table = contents(here.in("runs/a/table.txt"));
  CHECK(table.find("dense") < table.find("sparse"));
}

TEST_CASE("pretrain: a run that goes on looks for room on the disk first, and so does freeze") {
  const workplace here;
  REQUIRE(shell(here.pretrain("a", "--only sparse --steps 4 --updates 0")).code == 0);
  const std::string disk = here.in("disk"), last = disk + "/a/sparse/step-00000004";
  const auto refused = with_full_disk(disk, "cp -r " + here.in("runs/a") + " " + disk + " && rm -r " + last,
                                      PRETRAIN " --resume " + disk + "/a");
  if (!refused) return;
  CHECK(refused->code == 1);
  CHECK(contains(*refused, "[" + disk + "/a] the checkpoints of this run need "));
  CHECK(contains(*refused, "B, but 0B are free; make room, or --keep fewer"));
  const auto frozen =
      with_full_disk(disk, "true", FREEZE " --checkpoint " + here.in("runs/a") + " --out " + disk + "/f");
  CHECK(frozen->code == 1);
  CHECK(contains(*frozen, "[" + disk + "/f] the weights need "));
}

TEST_CASE("pretrain: settings and checkpoints that were changed from outside are refused by their names") {
  const workplace here;
  REQUIRE(shell(here.pretrain("a", "--only sparse --steps 2 --updates 0")).code == 0);
  const std::string path = here.in("runs/a/settings.json"), settings = contents(path);
  const auto refused = [&](std::string const& name, std::string const& before, std::string const& after) {
    const std::string setting = "\"" + name + "\": ";
    std::string changed = settings;
    const std::size_t at = changed.find(setting + before);
    REQUIRE(at != changed.npos);
    put(path, changed.replace(at, setting.size() + before.size(), setting + after));
    const outcome result = shell(here.resume("a"));
    CHECK(result.code == 2);
    CHECK(contains(result, "[--" + name + "] is " + before + " in the run to be resumed, not " + after));
  };
  refused("only", "\"sparse\"", "\"dense\"");
  refused("clip", "1.0", "2.0");
  refused("seed", "1", "2");
  REQUIRE(shell(here.pretrain("b", "--steps 2 --updates 0")).code == 0);
  const std::string last = "/step-00000002", run = here.in("runs/b/");
  REQUIRE(shell("rm -r " + run + "dense" + last + " && cp -r " + run + "sparse" + last + " " + run + "dense")
              .code == 0);
  const outcome result = shell(here.resume("b"));
  CHECK(result.code == 1);
  CHECK(contains(result, "state.program.record.variant should be \"dense\""));
}

TEST_CASE("pretrain: a run that is older than --newborn goes on with moments of zero, and says so") {
  const workplace here;
  REQUIRE(shell(here.pretrain("whole", "--only sparse --newborn zero")).code == 0);
  REQUIRE(shell(here.pretrain("a", "--only sparse --newborn zero --until-tokens 640")).code == 0);
  const std::string path = here.in("runs/a/settings.json"), newborn = "\"newborn\": \"zero\",";
  std::string settings = contents(path);
  const std::size_t at = settings.find(newborn);
  REQUIRE(at != settings.npos);
  put(path, settings.erase(at, newborn.size()));
  const outcome resumed = shell(here.resume("a", "--until-tokens 0"));
  CHECK(resumed.code == 0);
  CHECK(contains(resumed, "The run is older than --newborn, and goes on as with --newborn zero."));
  const std::string last = "/sparse/step-00000060";
  CHECK(same_tensors(here.in("runs/whole") + last, here.in("runs/a") + last));
}

TEST_CASE("pretrain: only the same run on the same text is resumed") {
  const workplace here, elsewhere("cube");
  const std::string stop = "--until-tokens 640";  // after ten of the steps
  CHECK(shell(here.pretrain("a", stop)).code == 0);
  CHECK(shell(elsewhere.pretrain("a", stop)).code == 0);
  const std::set<std::string> files = here.files("a");
  const auto refused = [&](std::string const& command, int code, std::string const& message) {
    const outcome result = shell(command);
    CHECK(result.code == code);
    CHECK(contains(result, message));
    CHECK(here.files("a") == files);
  };
  refused(here.resume("a", "--lr 0.5"), 2, "in the run to be resumed, not 0.5");
  refused(here.resume("a", "--text " + elsewhere.in("text")), 2, "was trained on another text");
  refused(here.resume("nothing"), 2, "is not the folder of a run");

  const std::string tensors = "runs/a/dense/step-00000010/tensors.safetensors";
  const std::string state = "runs/a/dense/step-00000010/state.json";
  const std::string good = contents(here.in(tensors)), good_state = contents(here.in(state));
  put(here.in(tensors), good.substr(0, good.size() / 2));
  refused(here.resume("a"), 1, here.in(tensors));
  put(here.in(tensors), contents(elsewhere.in(tensors)));
  refused(here.resume("a"), 1, "one of them was changed or replaced");
  put(here.in(tensors), good);
  put(here.in(state), "{\"format\": \"tessera.checkpoint\", \"version\": 99}");
  refused(here.resume("a"), 1, "one of them was changed or replaced");
  put(here.in(state), good_state);
  CHECK(shell(here.resume("a", "--until-tokens 0")).code == 0);
  CHECK(here.files("a").contains("dense/step-00000060/state.json"));
  // Its losses are of this end, not of the first one.
  CHECK(shell(here.pretrain("b")).code == 0);
  const auto losses = [&](std::string const& run) {
    const std::string table = contents(here.in("runs/" + run + "/table.txt"));
    const std::size_t at = table.find("validation loss at the end");
    std::istringstream words(table.substr(at, table.find('\n', at) - at));
    return std::vector<std::string>(std::istream_iterator<std::string>(words), {});
  };
  CHECK(losses("a") == losses("b"));
}

TEST_CASE("pretrain: a full disk ends in code 1 and leaves earlier checkpoints alone") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--only sparse --checkpoint-every 30")).code == 0);
  fs::remove_all(here.in("runs/a/sparse/step-00000060"));
  const std::set<std::string> files = here.files("a");
  const outcome full = shell("trap '' XFSZ; ulimit -f 40; " + here.resume("a"));
  CHECK(full.code == 1);
  CHECK(contains(full, "tensors.safetensors] byte "));
  CHECK(contains(full, "File too large"));
  CHECK(here.files("a") == files);
  CHECK(shell(here.resume("a")).code == 0);
}

/// Kills a run without warning, at moments that have nothing to do with its steps, the first time once there
/// is something to resume; then lets it end, and compares it with one that was left alone.
void check_killed_run(workplace const& here, std::string const& options, std::string const& last, int most) {
  CHECK(shell(here.pretrain("whole", options)).code == 0);
  terminate(here.pretrain("parts", options + " --checkpoint-every 1"), here.in("runs/parts/dense/step-*"),
            "KILL");
  int kills = 1;
  const tessera::random_stream random(5, tessera::random_purpose::test);
  for (bool ended = false; !ended && kills < most; ++kills) {
    const double seconds = 0.02 + 0.4 * random.uniform(std::uint64_t(kills));
    shell("timeout --signal KILL " + std::to_string(seconds) + " " + here.resume("parts"));
    ended = here.files("parts").contains("sparse/" + last + "/state.json");
  }
  MESSAGE(kills << " kills");
  CHECK(kills > 1);
  CHECK(shell(here.resume("parts")).code == 0);
  for (std::string const variant : {"/dense/", "/sparse/"})
    CHECK(same_tensors(here.in("runs/whole") + variant + last, here.in("runs/parts") + variant + last));
}

TEST_CASE("pretrain: a masked model that is killed five times ends with the same bits") {
  const workplace here;
  check_killed_run(here, "--model bert --vocabulary 300 --steps 500 --updates 50", "step-00000500", 5);
}

TEST_SUITE_BEGIN("slow");

TEST_CASE("pretrain: a run that is killed again and again ends with the same bits") {
  const workplace here;
  check_killed_run(here, "--steps 2000 --updates 400", "step-00002000", 1000);
}

TEST_SUITE_END();

#endif

}  // namespace pretrain_resumed_test
