// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/core/random.hpp>
#include <tessera/io/folder_lock.hpp>
#include <tessera/io/printable.hpp>
#include <tessera/io/safetensors.hpp>

#include "../io/scratch_folder.hpp"
#include "pretrain_programs.hpp"

namespace pretrain_program_test {

#if defined(PRETRAIN) && defined(GENERATE) && defined(FILL_MASK) && defined(FREEZE) && defined(FINETUNE)

using namespace pretrain_programs;

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

TEST_CASE("pretrain: a run leaves a table and curves and checkpoints and samples") {
  const workplace here;
  const outcome run = shell(here.pretrain("a"));
  CHECK(run.code == 0);
  for (const char* part : {"live parameters", "multiply-adds per token", "peak memory of tensors",
                           "tokens per second", "bits per byte", "4-gram"})
    CHECK(contains(run, part));
  const std::set<std::string> files = here.files("a");
  for (const char* file : {"settings.json", "table.txt", "summary.json", "loss.csv", "loss_by_time.svg",
                           "loss_by_tokens.svg", "dense/sample.txt", "sparse/sample.txt",
                           "dense/step-00000060/tensors.safetensors", "sparse/step-00000060/state.json"})
    CHECK_MESSAGE(files.contains(file), file);
  CHECK(contains(run, contents(here.in("runs/a/table.txt"))));

  const outcome again = shell(here.pretrain("a"));
  CHECK(again.code == 2);
  CHECK(contains(again, "exists already"));
  CHECK(here.files("a") == files);
  fs::create_directory(here.in("runs/b"));  // as a run leaves it that is killed before it writes its settings
  put(here.in("runs/b/.lock"), "1");
  put(here.in("runs/b/settings.json.partial-1-0"), "half");
  CHECK(shell(here.pretrain("b", "--config " + here.in("runs/a/settings.json"))).code == 0);
  CHECK(same_tensors(here.in("runs/a/sparse/step-00000060"), here.in("runs/b/sparse/step-00000060")));
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

TEST_CASE("pretrain: its programs say of a checkpoint of another program that it is one") {
  const workplace here;
  const std::string
      folder = here.in("other"),
      state = R"({"format": "tessera.checkpoint", "version": 4, "arithmetic": "", "architecture": {},)"
              R"( "updates": 0, "state": {"step": 1, "best_step": -1, "program": null}})";
  fs::create_directory(folder);
  put(folder + "/state.json", state);
  auto metadata = tessera::io::format_metadata("tessera.checkpoint", 4);
  metadata["tessera.state"] = std::to_string(tessera::io::content_hash(state));
  const float number = 1;
  tessera::io::write_safetensors(
      folder + "/tensors.safetensors",
      std::vector{tessera::io::make_safetensor("w", {1}, std::span<float const>(&number, 1))}, metadata,
      tessera::io::checksums::in_metadata);
  for (std::string const& command :
       {GENERATE " --checkpoint " + folder, FREEZE " --checkpoint " + folder + " --out " + here.in("f"),
        FILL_MASK " --text [MASK] --checkpoint " + folder}) {
    const outcome refused = shell(command);
    CHECK(refused.code == 1);
    CHECK(contains(refused, "[checkpoint] " + folder + " was not written by pretrain"));
  }
}

TEST_CASE("pretrain: with every policy and optimizer a run that was ended and resumed has the same bits") {
  const workplace here;
  for (const std::string policy : {"set", "rigl", "snfs", "deep-r", "gradual"}) {
    const std::string options =
        "--only sparse --policy " + policy + (policy == "set" ? " --optimizer sgd --momentum 0.8" : "");
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

TEST_CASE("pretrain: a model may begin with the blocks of a dense one that score highest") {
  const workplace here;
  const auto options = [](std::string const& by) {
    return "--only sparse --static --steps 2 --block 4 --initial-pattern " + by;
  };
  const auto last = [&](std::string const& run) { return here.in("runs/" + run) + "/sparse/step-00000002"; };
  for (const std::string by : {"random", "magnitude", "snip", "grasp"})
    CHECK(shell(here.pretrain(by, options(by))).code == 0);
  CHECK(shell(here.pretrain("again", options("grasp") + " --threads 1")).code == 0);
  CHECK(same_tensors(last("grasp"), last("again")));
  CHECK(!same_tensors(last("grasp"), last("snip")));
  CHECK(contains(shell(here.resume("snip", "--initial-pattern grasp")),
                 "[--initial-pattern] is \"snip\" in the run to be resumed"));
  CHECK(shell(here.generate("snip")).code == 0);
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

TEST_CASE("pretrain: another block size trains") {
  const workplace here;  // 16 everywhere else; 1 and 8 are not in builds for tests
  CHECK(shell(here.pretrain("a", "--only sparse --steps 3 --block 4")).code == 0);
  CHECK(here.files("a").contains("sparse/step-00000003/state.json"));
}

TEST_CASE("pretrain: what makes no sense is refused with code 2 before anything is written") {
  const workplace here;
  const struct {
    std::string options, message;
  } wrong[] = {
      {"--densty 0.5", "did you mean --density?"},
      {"--density 0", "'0' is not a number in (0, 1]"},
      {"--block 5", "one of 1|4|8|16"},
      {"--hidden 40", "32 and 48 are"},
      {"--threads 4000", "is more than the"},
      {"--context 20000", "needs at least 20001"},
      {"--hidden 65536 --heads 1 --layers 1000", "this machine has"},
      {"--hidden", "needs a value"},
      {"--policy rigl --static", "has no meaning with --static"},
      {"--name a/b", "is not the name of one folder"},
  };
  for (auto const& [options, message] : wrong)
    for (const char* const dry : {"", " --dry-run"}) {
      const outcome refused = shell(here.pretrain("a", options + dry));
      CHECK(refused.code == 2);
      CHECK(contains(refused, message));
    }
  put(here.in("settings.json"), "{\"layers\": 0}");
  const outcome refused = shell(here.pretrain("a", "--config " + here.in("settings.json")));
  CHECK(refused.code == 2);
  CHECK(contains(refused, "settings.json: layers] '0' is not a whole number in [1, 1000]"));
  CHECK(!fs::exists(here.in("runs")));
}

TEST_CASE("pretrain: policies replace what there is to replace, whatever the first pattern") {
  const workplace here;
  for (const std::string policy : {"set", "rigl", "deep-r"})
    for (const std::string first : {"--initial-pattern snip", "--densities erdos-renyi"}) {
      const outcome run = shell(here.pretrain(
          policy + first.substr(2, 9),
          "--only sparse --steps 3 --updates 2 --block 4 --density 0.6 --policy " + policy + " " + first));
      CHECK_MESSAGE(run.code == 0, run.output);
    }
  CHECK(shell(here.pretrain("a", "--policy set --density 0.9 --steps 3 --updates 2")).code == 0);
}

TEST_CASE("pretrain: screens show no control characters, and samples keep them") {
  const workplace here;
  std::string text;
  const std::string unit = "\033[31m\a\b\x7f\r";
  while (text.size() < 3000) text += unit;
  for (int i = 0; i < 100; ++i) text.insert(text.begin() + 29 * i, '\xef');
  put(here.in("text"), text);
  const auto is_plain = [](std::string const& shown) { return tessera::io::printable(shown) == shown; };
  const outcome run = shell(here.pretrain("a", "--level byte --only dense --steps 1 --updates 0"));
  CHECK(run.code == 0);
  CHECK(is_plain(run.output));
  CHECK(contains(run, "\\x"));
  CHECK(!is_plain(contents(here.in("runs/a/dense/sample.txt"))));
  const std::string raw = here.generate("a", "--temperature 3 2>/dev/null");
  CHECK(!is_plain(shell(raw).output));
  CHECK(shown_in_terminal(raw) == tessera::io::printable(shell(raw).output));
  for (std::string const& command :
       {here.pretrain("b", "--policy $'\\e[31m\\a'"), here.pretrain("b", "--text $'no\\e]0;file\\a'"),
        here.pretrain("$'\\e[31m\\xff'", "--steps 1 --only dense"), here.generate("$'a\\e'")})
    CHECK(is_plain(shell("bash -c \"" + command + "\"").output));
}

TEST_CASE("pretrain: a text that cannot be used ends in code 1") {
  const workplace here;
  put(here.in("empty"), "");
  put(here.in("binary"), std::string("a\0b", 3));
  put(here.in("latin"), "a text as na\xefve as this");
  const auto refused = [&](std::string const& file, std::string const& message) {
    const outcome result = shell(PRETRAIN " --out " + here.in("runs") + " --text " + here.in(file));
    CHECK(result.code == 1);
    CHECK(contains(result, message));
  };
  refused("empty", "is empty");
  refused("binary", "is binary");
  refused("latin", "use --level byte");
  refused("missing", "No such file");
  refused("../" + fs::path(here.in("")).parent_path().filename().string(),
          " is a folder; name the files in it");
  CHECK(!fs::exists(here.in("runs")));
}

TEST_CASE("pretrain: a dry run prints sizes and writes nothing") {
  const workplace here;
  const outcome dry = shell(here.pretrain("a", "--dry-run"));
  CHECK(dry.code == 0);
  CHECK(contains(dry, "FLOPs of a step"));
  CHECK(contains(dry, "expected time"));
  CHECK(!fs::exists(here.in("runs")));

  // It refuses what a run would refuse.
  const auto refused = [&](std::string const& command, int code, std::string const& message) {
    const outcome result = shell(command + " --dry-run");
    CHECK(result.code == code);
    CHECK(contains(result, message));
  };
  refused(here.pretrain("a", "--out " + here.in("text")), 1, here.in("text") + " is no folder");
  CHECK(shell(here.pretrain("a", "--steps 1")).code == 0);
  const std::set<std::string> files = here.files("a");
  refused(here.pretrain("a"), 2, "runs/a exists already");
  put(here.in("other"), std::string(9000, 'x') + "y");
  refused(here.resume("a", "--text " + here.in("other")), 2, "another");
  CHECK(shell(here.resume("a", "--dry-run")).code == 0);
  CHECK(here.files("a") == files);

  // The sparse model is the second one to be trained.
  const std::string tensors = here.in("runs/a/sparse/step-00000001/tensors.safetensors"),
                    good = contents(tensors), others = " --steps 1 --name b --quiet --out " + here.in("runs");
  std::string changed = good;
  for (char& bit : changed) bit ^= &bit >= &changed[changed.size() / 2];
  put(tensors, changed);
  for (std::string const& command : {here.resume("a"), PRETRAIN " --from " + here.in("runs/a") + others})
    for (char const* more : {"", " --dry-run"}) {
      const outcome result = shell(command + more);
      CHECK(result.code == 1);
      CHECK(contains(result, "some were changed"));
    }
  CHECK(here.files("a") == files);
  CHECK(!fs::exists(here.in("runs/b")));
}

TEST_CASE("pretrain: a step of more tokens than the text has is told") {
  const workplace here;
  const outcome run = shell(here.pretrain("a", "--batch 2000 --dry-run"));
  CHECK(run.code == 0);
  CHECK(contains(run, "note     a step shows 32k tokens, more than there are"));
  CHECK(shell(here.pretrain("a", "--dry-run")).output.find("note ") == std::string::npos);
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

TEST_CASE("pretrain: a loss that is no number ends the run and names the step") {
  const workplace here;
  const outcome run = shell(here.pretrain("a", "--lr 1e30 --clip 0 --warmup 0 --only dense"));
  CHECK(run.code == 1);
  CHECK(contains(run, "[train] step "));
}

TEST_CASE("generate: a sample depends on the seed alone") {
  const workplace here;
  CHECK(shell(here.pretrain("a")).code == 0);
  const outcome sparse = shell(here.generate("a", "--prompt 'of 12'"));
  CHECK(sparse.code == 0);
  CHECK(contains(sparse, "of 12"));
  CHECK(contains(sparse, "runs/a/sparse/step-"));
  CHECK(shell(here.generate("a", "--prompt 'of 12' --threads 1")).output == sparse.output);
  CHECK(shell(here.generate("a", "--prompt 'of 12' --seed 2")).output != sparse.output);
  const outcome likeliest = shell(here.generate("a/dense", "--temperature 0"));
  CHECK(contains(likeliest, "runs/a/dense/step-"));
  CHECK(shell(here.generate("a/dense", "--top-k 1 --seed 3")).output == likeliest.output);
}

TEST_CASE("generate: mistakes of use end in code 2 and failures in 1") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--only dense --steps 1")).code == 0);
  const auto refused = [&](std::string const& command, int code, std::string const& message) {
    const outcome result = shell(command);
    CHECK(result.code == code);
    CHECK(contains(result, message));
  };
  refused(GENERATE, 2, "[--checkpoint] is missing");
  refused(here.generate("a", "--prompt 'ä'"), 2, "is not among the");
  refused(here.generate("a", "--temperature -1"), 2, "is not a number in [0, inf)");
  refused(here.generate("b"), 1, "holds no checkpoint");
  put(here.in("runs/a/dense/step-00000001/tensors.safetensors"), "12345678");
  refused(here.generate("a"), 1, "tensors.safetensors");
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

TEST_CASE("pretrain: BERT learns masked tokens, dense and sparse, and fill_mask guesses") {
  const workplace here;
  const std::string options = "--model bert --vocabulary 300 --documents blank-lines ";
  const outcome run = shell(here.pretrain("a", options));
  CHECK(run.code == 0);
  for (const char* part : {"masked tokens trained on", "Losses in nats per masked token", "unigram", "[MASK]",
                           "; the text has "})
    CHECK(contains(run, part));
  const std::string fill = FILL_MASK " --checkpoint " + here.in("runs/a");
  const outcome filled = shell(fill + " --text 'of [MASK] the square is [MASK].' --top 3");
  CHECK(filled.code == 0);
  CHECK(std::count(filled.output.begin(), filled.output.end(), '%') == 6);
  const auto refused = [&](std::string const& command, int code, std::string const& message) {
    const outcome result = shell(command);
    CHECK(result.code == code);
    CHECK(contains(result, message));
  };
  refused(fill, 2, "[--text] is missing");
  refused(fill + " --text 'no mask'", 2, "'no mask' has no [MASK]");
  refused(fill + " --text '" + std::string(200, '.') + "[MASK]'", 2, "this model takes 16");
  refused(here.generate("a"), 2, "fill_mask says what it expects");
  refused(here.pretrain("b", "--model bert --level char"), 2, "--model bert needs --level wordpiece");
  refused(here.pretrain("b", "--model bert --preset huge"), 2,
          "[--preset] 'huge' is not one of tiny|mini|small|medium|base");
  refused(here.pretrain("b", "--vocabulary-file x"), 2, "has no meaning with --level char");
  put(here.in("vocab.txt"), "[PAD]\n[CLS]\n[SEP]\n[MASK]\nof\n");
  refused(here.pretrain("b", "--model bert --vocabulary-file " + here.in("vocab.txt")), 2,
          "has no \"[UNK]\"");
  put(here.in("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nxyz\n");
  refused(here.pretrain("b", "--model bert --vocabulary-file " + here.in("vocab.txt")), 2,
          "are unknown to the vocabulary");
  CHECK(!fs::exists(here.in("runs/b")));
}

TEST_CASE("pretrain: a recurrent model learns, is resumed with the same bits, and logs as it goes") {
  const workplace here;
  const std::string options = "--model rnn --layers 1 --eval-every 20 --tensorboard --frames 4 ";
  CHECK(shell(here.pretrain("whole", options)).code == 0);
  const outcome first = terminate(here.pretrain("parts", options + "--checkpoint-every 1"),
                                  here.in("runs/parts/sparse/step-*"));
  CHECK(first.code == 128 + SIGTERM);
  CHECK(shell(here.resume("parts", "--threads 1")).code == 0);
  CHECK(same_tensors(here.in("runs/whole/sparse/step-00000060"), here.in("runs/parts/sparse/step-00000060")));
  CHECK(contains(shell(here.generate("whole", "--prompt 'of 12'")), "of 12"));
  for (const char* log : {"/sparse/log.csv", "/sparse/log.jsonl"}) {
    const std::string text = contents(here.in("runs/parts") + log);
    CHECK(std::count(text.begin(), text.end(), '\n') == (std::string(log).ends_with("csv") ? 4 : 3));
  }
  // The patterns, too, are followed as if nothing had been interrupted.
  for (const char* file : {"updates.csv", "updates.jsonl", "layers.csv", "frames/frame-0001.svg",
                           "frames/frame-0002.svg", "frames/frame-0003.svg", "frames/frame-0004.svg"}) {
    const std::string path = std::string("/sparse/") + file, text = contents(here.in("runs/parts") + path);
    CHECK_MESSAGE(!text.empty(), file);
    CHECK_MESSAGE(text == contents(here.in("runs/whole") + path), file);
  }
  CHECK(!fs::exists(here.in("runs/parts/dense/frames")));
  CHECK(fs::exists(here.in("runs/parts/dense/events.out.tfevents.0.dense")));
  const outcome narrow = shell(here.pretrain("b", "--model rnn --precision bfloat16"));
  CHECK(narrow.code == 2);
  CHECK(contains(narrow, "--model rnn computes in float"));
}

TEST_CASE("freeze: a model for inference writes and guesses the same, in a fraction of the bytes") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--block 4 --hidden 64")).code == 0);
  CHECK(shell(here.pretrain("b", "--model bert --vocabulary 300")).code == 0);
  const auto frozen = [&](std::string const& run) {
    return shell(FREEZE " --checkpoint " + here.in("runs/" + run) + " --out " + here.in("frozen-" + run));
  };
  const outcome a = frozen("a");
  CHECK(a.code == 0);
  CHECK(contains(a, "of a checkpoint of"));
  const auto output = [](std::string const& command) { return shell(command + " 2>/dev/null").output; };
  CHECK(output(GENERATE " --prompt 'of 12' --checkpoint " + here.in("frozen-a")) ==
        output(GENERATE " --prompt 'of 12' --checkpoint " + here.in("runs/a")));
  CHECK(frozen("b").code == 0);
  CHECK(output(FILL_MASK " --text 'of [MASK]' --checkpoint " + here.in("frozen-b")) ==
        output(FILL_MASK " --text 'of [MASK]' --checkpoint " + here.in("runs/b")));
  const outcome again = frozen("a");
  CHECK(again.code == 2);
  CHECK(contains(again, "exists already"));
  CHECK(shell(FREEZE " --out x").code == 2);
}

TEST_CASE("finetune: a sparse BERT learns classes, keeps its blocks, and mistakes are named") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--model bert --vocabulary 300 --only sparse --static")).code == 0);
  std::string lines, others;
  for (int i = 0; i < 200; ++i) {
    const std::string even = "even\tof " + std::to_string(i) + " the square is here\n",
                      odd = "odd\tthe " + std::to_string(i) + " is of the square\n";
    (i % 5 == 0 ? others : lines) += even + odd;
  }
  put(here.in("train.tsv"), lines);
  put(here.in("test.tsv"), others);
  const std::string finetune = FINETUNE " --checkpoint " + here.in("runs/a") + " --train " +
                               here.in("train.tsv") + " --validation " + here.in("test.tsv") +
                               " --lr 3e-3 --epochs 10 ";
  const outcome learned = shell(finetune + "--out " + here.in("tuned"));
  CHECK(learned.code == 0);
  CHECK(contains(learned, "320 texts of 2 classes to learn, 80 to validate"));
  CHECK(contains(learned, "epoch 10"));
  CHECK(contains(learned, "accuracy 100.0 %"));
  CHECK(shell(finetune).output + "in " + here.in("tuned") + "\n" == learned.output);  // the same bits
  CHECK(shell(finetune + "--random-weights").output != shell(finetune).output);
  if (const auto full =
          with_full_disk(here.in("disk"), "true", finetune + "--out " + here.in("disk/tuned"))) {
    CHECK(full->code == 1);
    CHECK(contains(*full, "[" + here.in("disk/tuned") + "] the weights need "));
    CHECK(full->output.find("epoch") == std::string::npos);
  }
  const tessera::io::safetensors_file before(here.in("runs/a/sparse/step-00000060/tensors.safetensors")),
      after(here.in("tuned/tensors.safetensors"));
  for (auto const& [name, tensor] : after.tensors())
    if (name.ends_with(".weight") && before.contains(name)) CHECK(tensor.shape == before.at(name).shape);
  CHECK(after.at("classifier.weight").shape == std::vector<std::int64_t>{2, 32});

  const auto refused = [&](std::string const& command, int code, std::string const& message) {
    const outcome result = shell(command);
    CHECK(result.code == code);
    CHECK(contains(result, message));
  };
  refused(finetune + "--out " + here.in("tuned"), 2, "exists already");
  put(here.in("test.tsv"),
      "\xEF\xBB\xBF"
      "even\tof 1\nneither\tof 2\n");
  refused(finetune, 2, "test.tsv line 2: \"neither\" is in no line to train on");
  put(here.in("train.tsv"), "even\tof 1\nno tab\n");
  refused(finetune, 1, "train.tsv line 2: a label, a tab and a text are meant");
  put(here.in("train.tsv"), "even\tof 1\n");
  refused(finetune, 2, "has the one label \"even\"");
  CHECK(shell(here.pretrain("b", "--steps 2 --only dense")).code == 0);
  refused(FINETUNE " --checkpoint " + here.in("runs/b") + " --train x --validation x", 2,
          "finetune takes a BERT");
}

TEST_CASE("pretrain: a GPT on the pieces of words writes text again") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--level bpe --vocabulary 300 --preset tiny --hidden 32 --only sparse"))
            .code == 0);
  CHECK(contains(shell(here.generate("a", "--prompt 'of 12'")), "of 12"));
}

TEST_SUITE_BEGIN("slow");

TEST_CASE("pretrain: a run that is killed again and again ends with the same bits") {
  const workplace here;
  check_killed_run(here, "--steps 2000 --updates 400", "step-00002000", 1000);
}

TEST_SUITE_END();

#endif

}  // namespace pretrain_program_test
