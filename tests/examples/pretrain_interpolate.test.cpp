// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <string>

#include <common/format.hpp>
#include <doctest/doctest.h>

#include <tessera/io/json_parser.hpp>

#include "pretrain_programs.hpp"

namespace pretrain_interpolate_test {

// Runs that branch off another, and the line between them.

#if defined(PRETRAIN) && defined(INTERPOLATE)

using namespace pretrain_programs;

/// The last checkpoint of runs of 60 steps.
std::string last(workplace const& here, std::string const& run, std::string const& variant = "sparse") {
  return here.in("runs/" + run + "/" + variant + "/step-00000060");
}

/// A run that goes on with another one at a step.
std::string branch(workplace const& here, std::string const& from, std::string const& run, int step,
                   std::string const& more = "") {
  return PRETRAIN " --quiet --out " + here.in("runs") + " --from " + here.in("runs/" + from) + " --name " +
         run + " --branch " + std::to_string(step) + " " + more;
}

void refused(std::string const& command, int code, std::string const& why) {
  const outcome result = shell(command);
  CHECK(result.code == code);
  CHECK(contains(result, why));
}

double number_in(std::string const& file, std::string const& of, std::string const& name) {
  const auto document = tessera::io::parse_json(contents(file), file);
  const tessera::io::json_place all(document, file);
  return (of.empty() ? all.at(name) : all.at(of).at(name)).as_number();
}

TEST_CASE("pretrain: a run branches off another, which it repeats but for the order of the data") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--checkpoint-every 20 --keep 9 --dropout 0.1")).code == 0);
  CHECK(shell(branch(here, "a", "same", 20)).code == 0);
  CHECK(shell(branch(here, "a", "seed", 20, "--data-seed 1")).code == 0);
  CHECK(shell(branch(here, "a", "other", 20, "--data-seed 2")).code == 0);
  for (const char* variant : {"dense", "sparse"}) {
    CHECK(same_tensors(last(here, "a", variant), last(here, "same", variant)));
    CHECK(same_tensors(last(here, "a", variant), last(here, "seed", variant)));
    CHECK(!same_tensors(last(here, "a", variant), last(here, "other", variant)));
  }
  // It is a run as any other: it ends earlier, is resumed, or is branched off, and has the same bits.
  CHECK(shell(branch(here, "a", "parts", 20, "--data-seed 2 --only sparse --until-tokens 2000")).code == 0);
  CHECK(!fs::exists(last(here, "parts")));
  CHECK(shell(here.resume("parts", "--until-tokens 0")).code == 0);
  CHECK(same_tensors(last(here, "parts"), last(here, "other")));
  CHECK(number_in(here.in("runs/parts/summary.json"), "sparse", "loss") ==
        number_in(here.in("runs/other/summary.json"), "sparse", "loss"));
  fs::remove_all(here.in("runs/parts/sparse"));
  CHECK(shell(here.resume("parts", "--until-tokens 0")).code == 0);
  CHECK(same_tensors(last(here, "parts"), last(here, "other")));
  CHECK(shell(branch(here, "other", "twig", 40, "--only dense")).code == 0);
  CHECK(same_tensors(last(here, "twig", "dense"), last(here, "other", "dense")));

  // Of a run that was made longer, a branch from before is as long as it was planned then; or as long as is
  // said.
  fs::copy(here.in("runs/a"), here.in("runs/longer"), fs::copy_options::recursive);
  CHECK(shell(here.resume("longer", "--steps 80 --keep 99")).code == 0);
  CHECK(shell(branch(here, "longer", "before", 20, "--only sparse")).code == 0);
  CHECK(same_tensors(last(here, "same"), last(here, "before")));
  CHECK(shell(branch(here, "longer", "shorter", 20, "--only sparse --steps 40")).code == 0);
  CHECK(fs::exists(here.in("runs/shorter/sparse/step-00000040")));
  refused(branch(here, "a", "no", 20, "--steps 20"), 2,
          "[--branch] 20 is the last step of the run of --from");
  refused(branch(here, "a", "no", 20, "--time 5s"), 2, "[--time] the run of --from was planned by --steps");

  refused(branch(here, "a", "no", 7), 2, "dense has no checkpoint of step 7, but of 20, 25, 30, ");
  refused(branch(here, "longer", "no", 80), 2, "[--branch] 80 is the last step of the run of --from");
  refused(branch(here, "longer", "no", 80, "--dry-run"), 2, "[--branch] 80 is the last step");
  refused(branch(here, "a", "no", 20, "--lr 1"), 2, "[--lr] is 0.001 in the run to be resumed, not 1.0");
  refused(branch(here, "a", "no", 20, "--seed 2"), 2, "[--seed] is 1 in the run to be resumed, not 2");
  refused(branch(here, "a", "no", 20, "--densify --only dense"), 2, "[--branch] goes on with a training, ");
  refused(here.pretrain("no", "--branch 20"), 2, "say --from, too");
  put(here.in("text2"), contents(here.in("text")) + "of 1 the square is 1.\n");
  refused(branch(here, "a", "no", 20, "--text " + here.in("text2")), 2, "was trained on another text");
  CHECK(!fs::exists(here.in("runs/no")));
}

TEST_CASE("interpolate: the line between two runs ends with their losses, and says how far it rises") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--checkpoint-every 30 --keep 9 --static")).code == 0);
  CHECK(shell(branch(here, "a", "b", 30, "--data-seed 2")).code == 0);
  for (std::string const variant : {"dense", "sparse"}) {
    const std::string out = here.in("line-" + variant), a = last(here, "a", variant),
                      b = last(here, "b", variant);
    const outcome found = shell(INTERPOLATE " " + a + " " + b + " --points 5 --out " + out);
    CHECK(found.code == 0);
    CHECK(contains(found, "   alpha  loss\n       0  "));
    CHECK(contains(found, "\nbarrier  "));
    const auto document = tessera::io::parse_json(contents(out + "/summary.json"), out);
    const tessera::io::json_place summary(document, out);
    const auto loss = [&](std::size_t i) { return summary.at("loss").at(i).as_number(); };
    CHECK(loss(0) == number_in(here.in("runs/a/summary.json"), variant, "loss"));
    CHECK(loss(4) == number_in(here.in("runs/b/summary.json"), variant, "loss"));
    CHECK(loss(2) != loss(0));
    CHECK(summary.at("alpha").at(3).as_number() == 0.75);
    double most = loss(0);
    for (std::size_t i = 1; i < 5; ++i) most = std::max(most, loss(i));
    CHECK(summary.at("barrier").as_number() == most - (loss(0) + loss(4)) / 2);
    CHECK(contents(out + "/loss.csv").starts_with("alpha,loss\n0,"));
    CHECK(contents(out + "/loss.svg").starts_with("<svg "));
    refused(INTERPOLATE " " + a + " " + b + " --out " + out, 2, "exists already");
    // The other way round it is the same line.
    const outcome back = shell(INTERPOLATE " --points 2 --checkpoint " + b + " " + a);
    CHECK(contains(back, "       1  " + programs::fixed(loss(0), 4)));
  }
  CHECK(contains(shell(INTERPOLATE " " + here.in("runs/a") + " " + here.in("runs/a") + " --points 3"),
                 "\nbarrier  0.0000, "));
  // Frozen models have no less to say.
  CHECK(shell(FREEZE " --checkpoint " + last(here, "b") + " --out " + here.in("frozen")).code == 0);
  CHECK(shell(INTERPOLATE " " + here.in("frozen") + " " + last(here, "b")).code == 0);
}

TEST_CASE("interpolate: masters of 16 bits are mixed and rounded, and 8-bit products take mixed scales") {
  const workplace here;
  for (std::string const precision : {"bfloat16", "int8"}) {
    CHECK(
        shell(here.pretrain(precision,
                            "--only sparse --checkpoint-every 30 --keep 9 --static --precision " + precision))
            .code == 0);
    CHECK(shell(branch(here, precision, precision + "-b", 30, "--data-seed 2")).code == 0);
    const outcome found = shell(INTERPOLATE " --points 3 --out " + here.in(precision) + " " +
                                "--checkpoint " + last(here, precision) + " " + last(here, precision + "-b"));
    CHECK(found.code == 0);
    CHECK((found.output.find("masters are mixed, and then rounded") != found.output.npos) ==
          (precision == "bfloat16"));
    for (const auto& [end, run] : {std::pair(0, precision), std::pair(2, precision + "-b")}) {
      const std::string file = here.in(precision + "/summary.json");
      const auto document = tessera::io::parse_json(contents(file), file);
      CHECK(tessera::io::json_place(document, file).at("loss").at(std::size_t(end)).as_number() ==
            number_in(here.in("runs/" + run + "/summary.json"), "sparse", "loss"));
    }
  }
}

TEST_CASE("interpolate: models that have no line between them are refused, by their first difference") {
  const workplace here;
  const std::string few = "--steps 2 --updates 1 ";
  const auto made = [&](std::string const& run, std::string const& more) {
    CHECK(shell(here.pretrain(run, few + more)).code == 0);
  };
  made("a", "");
  const auto refuse = [&](std::string const& other, int code, std::string const& why) {
    refused(INTERPOLATE " " + here.in("runs/a") + " " + here.in("runs/" + other), code, why);
  };
  made("seed", "--seed 2");
  refuse("seed", 1, "weight stores other blocks in the first model than in the second, ");
  refuse("a/dense", 1,
         "in blocks of 16 x 16, of which 3 are stored in the first model, and F32, 96 x 32 in ");
  made("hidden", "--hidden 64");
  refuse("hidden", 1, "[interpolate] token_embedding is F32, ");
  made("layers", "--layers 3");
  refuse("layers", 1, "the first model has final_norm.weight where the second has block.2.");
  made("heads", "--heads 4");
  refuse("heads", 1, "heads");
  made("shorter", "--context 8 --positions 16");
  refuse("shorter", 2, "was shown the text by another --context than ");
  refused(INTERPOLATE " " + here.in("runs/a") + " " + here.in("runs/a") + " --out " + here.in("text/x"), 1,
          "Not a directory");
  made("words", "--level bpe --vocabulary 300");
  refuse("words", 2, "[--checkpoint] ");
  put(here.in("text"), contents(here.in("text")) + "of 1 the square is 1.\n");
  refuse("a", 2, "[--text] " + here.in("text") + " is not the text of ");
  made("text", "");
  refuse("text", 2, "was trained on another text than ");
  refused(INTERPOLATE " " + here.in("runs/a"), 2, "[--checkpoint] takes two, the ends of a line, not 1");
  refused(INTERPOLATE, 2, "[--checkpoint] takes two");
  refused(INTERPOLATE " a b --points 1", 2, "[--points] '1' is not");
  refused(INTERPOLATE " a b", 1, "[checkpoint] a does not exist");
  CHECK(contains(shell(INTERPOLATE " a b --help"), "usage: interpolate DIR DIR"));
}

#endif

}  // namespace pretrain_interpolate_test
