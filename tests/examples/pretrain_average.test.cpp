// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <string>

#include <doctest/doctest.h>

#include <tessera/io/json_parser.hpp>

#include "pretrain_programs.hpp"

namespace pretrain_average_test {

// Runs that average their weights.

#if defined(PRETRAIN) && defined(GENERATE) && defined(FREEZE)

using namespace pretrain_programs;

double end_of(workplace const& here, std::string const& run, std::string const& name) {
  const std::string file = here.in("runs/" + run + "/summary.json");
  const auto document = tessera::io::parse_json(contents(file), file);
  return tessera::io::json_place(document, file).at("sparse").at(name).as_number();
}
std::string last(workplace const& here, std::string const& run) {
  return here.in("runs/" + run + "/sparse/step-00000060");
}

TEST_CASE("pretrain: the average of the weights is evaluated and saved, and the training is as without") {
  const workplace here;
  CHECK(shell(here.pretrain("plain", "--only sparse")).code == 0);
  for (const std::string how : {"ema --average-decay 0.9", "lawa --average-every 5 --average-keep 4"}) {
    const std::string asked = "--only sparse --updates 4 --average " + how, run = how.substr(0, 3);
    const outcome result = shell(here.pretrain(run, asked));
    CHECK(result.code == 0);
    CHECK(contains(result, "validation loss at the end, of the average"));
    const double loss = end_of(here, run, "loss"), average = end_of(here, run, "average_loss");
    CHECK(std::isfinite(average));
    CHECK(average != loss);
    CHECK(std::abs(average - loss) < 0.5);
    CHECK(contents(here.in("runs/" + run + "/sparse/log.csv")).find(",average_loss\n") != std::string::npos);

    // Interrupted in the middle, it goes on with the same bits.
    CHECK(shell(here.pretrain(run + "-parts", asked + " --until-tokens 1900")).code == 0);
    CHECK(!fs::exists(last(here, run + "-parts")));
    CHECK(shell(here.resume(run + "-parts", "--until-tokens 0")).code == 0);
    CHECK(same_tensors(last(here, run), last(here, run + "-parts")));
    CHECK(end_of(here, run + "-parts", "average_loss") == average);

    // Both may be shown.
    const outcome text = shell(here.generate(run, "--weights average"));
    CHECK(text.code == 0);
    CHECK(contains(text, ", the average of its weights"));
    CHECK(shell(FREEZE " --checkpoint " + last(here, run) + " --weights average --out " +
                here.in(run + "-mean"))
              .code == 0);
    CHECK(shell(FREEZE " --checkpoint " + last(here, run) + " --out " + here.in(run + "-last")).code == 0);
    CHECK(!same_tensors(here.in(run + "-mean"), here.in(run + "-last")));
  }
  // It ends with the same weights as a run without an average.
  CHECK(shell(here.pretrain("alone", "--only sparse --updates 4")).code == 0);
  CHECK(shell(FREEZE " --checkpoint " + last(here, "alone") + " --out " + here.in("alone-last")).code == 0);
  CHECK(same_tensors(here.in("ema-last"), here.in("alone-last")));

  const auto refused = [](std::string const& command, std::string const& why) {
    const outcome result = shell(command);
    CHECK(result.code == 2);
    CHECK(contains(result, why));
  };
  refused(here.generate("plain", "--weights average"), "pretrain --average makes one");
  refused(here.pretrain("no", "--average-keep 3"), "[--average-keep] has no meaning with --average none");
  refused(here.pretrain("no", "--average ema --average-keep 3"), "has no meaning with --average ema");
  refused(here.pretrain("no", "--average ema --average-patterns union --static"),
          "[--average-patterns] has no meaning with patterns that stay");
  refused(here.pretrain("no", "--average lawa --average-decay 0.5"), "has no meaning with --average lawa");
}

TEST_CASE(
    "pretrain: a schedule-free run is evaluated, kept and read at its average, and goes on with the same "
    "bits") {
  const workplace here;
  const std::string asked = "--only sparse --updates 4 --optimizer schedule-free";
  CHECK(shell(here.pretrain("whole", asked)).code == 0);
  CHECK(shell(here.pretrain("parts", asked + " --until-tokens 1900")).code == 0);
  CHECK(!fs::exists(last(here, "parts")));
  CHECK(shell(here.resume("parts", "--until-tokens 0")).code == 0);
  CHECK(same_tensors(last(here, "whole"), last(here, "parts")));

  // The kept model has the loss that was evaluated: a run that begins with it and a rate of about 0 ends
  // there.
  CHECK(shell(FREEZE " --checkpoint " + last(here, "whole") + " --out " + here.in("frozen")).code == 0);
  const outcome text = shell(here.generate("whole", "--weights average"));
  CHECK(text.code == 0);
  CHECK(contains(text, ", the average of its weights"));
  CHECK(shell(here.pretrain("more", "--from " + here.in("runs/whole") +
                                        " --optimizer sgd --lr 1e-30 --sparse-lr 1e-30 --steps 1"))
            .code == 0);
  CHECK(end_of(here, "more", "loss") == doctest::Approx(end_of(here, "whole", "loss")).epsilon(1e-6));

  const outcome twice = shell(here.pretrain("no", asked + " --average ema"));
  CHECK(twice.code == 2);
  CHECK(contains(twice, "[--average] ema has no meaning with --optimizer schedule-free"));
}

#endif

}  // namespace pretrain_average_test
