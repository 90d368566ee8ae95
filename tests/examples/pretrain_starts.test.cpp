// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include <tessera/io/json_parser.hpp>

#include "pretrain_programs.hpp"

namespace pretrain_starts_test {

// Runs of models without norms, with scaled residual connections, with other first values, and of shared
// layers.

#if defined(PRETRAIN) && defined(GENERATE) && defined(FREEZE)

using namespace pretrain_programs;

TEST_CASE("pretrain: models without norms and with scaled branches are trained, resumed, frozen and used") {
  const workplace here;
  const std::string last = "/sparse/step-00000060";
  for (const auto& [run, how] :
       {std::pair<std::string, std::string>{"rezero", "--residual rezero --recompute 2"},
        {"layerscale", "--residual layerscale"},
        {"fixup", "--init fixup"},
        {"albert", "--repeats 3 --embedding 16 --dropout 0.02 --policy rigl --period 1"}}) {
    const std::string asked = "--only sparse --lr 3e-3 " + how;
    INFO(how);
    CHECK(shell(here.pretrain(run, asked)).code == 0);
    const std::string file = here.in("runs/" + run + "/summary.json");
    const auto document = tessera::io::parse_json(contents(file), file);
    CHECK(tessera::io::json_place(document, file).at("sparse").at("loss").as_number() < 3.0);

    CHECK(shell(here.pretrain(run + "-parts", asked + " --until-tokens 1900")).code == 0);
    CHECK(shell(here.resume(run + "-parts", "--until-tokens 0")).code == 0);
    CHECK(same_tensors(here.in("runs/" + run + last), here.in("runs/" + run + "-parts" + last)));

    const outcome text = shell(here.generate(run));
    CHECK(text.code == 0);
    CHECK(shell(FREEZE " --checkpoint " + here.in("runs/" + run + last) + " --out " + here.in(run)).code ==
          0);
    const outcome frozen = shell(GENERATE " --checkpoint " + here.in(run) + " --tokens 40");
    CHECK(frozen.code == 0);
    CHECK(frozen.output.substr(frozen.output.find('\n')) == text.output.substr(text.output.find('\n')));
  }
  CHECK(shell(here.pretrain("bert", "--only sparse --model bert --vocabulary 99 --residual skipinit")).code ==
        0);
  // A run goes on with the connections of its model.
  const outcome refused = shell(PRETRAIN " --from " + here.in("runs/fixup") + " --residual rezero");
  CHECK(refused.code == 2);
  CHECK(contains(refused, "[--residual] is \"plain\" in the run of --from"));
}

#endif

}  // namespace pretrain_starts_test
