// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <string>

#include <doctest/doctest.h>

#include <tessera/io/printable.hpp>

#include "../io/scratch_folder.hpp"
#include "pretrain_programs.hpp"

namespace pretrain_program_test {

#if defined(PRETRAIN) && defined(GENERATE) && defined(FILL_MASK) && defined(FREEZE) && defined(FINETUNE)

using namespace pretrain_programs;

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

TEST_CASE("pretrain: a loss that is no number ends the run and names the step") {
  const workplace here;
  const outcome run = shell(here.pretrain("a", "--lr 1e30 --clip 0 --warmup 0 --only dense"));
  CHECK(run.code == 1);
  CHECK(contains(run, "[train] step "));
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

#endif

}  // namespace pretrain_program_test
