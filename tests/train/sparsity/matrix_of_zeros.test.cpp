// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <string>

#include <common/chosen_policy.hpp>
#include <doctest/doctest.h>

#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/training.hpp>

#include "small_mlp.hpp"

namespace matrix_of_zeros_test {

using namespace tessera;
using programs::chosen_policy;

using block = block_shape<4>;
using model = small_mlp::model<float, block>;
using training = train::training<model, train::sgd, chosen_policy>;

/// One step of a model whose second matrix is zero, with an update of its patterns.
struct updated {
  std::int64_t blocks_before, blocks_of_first, blocks_of_second;
  bool first_changed, second_changed;
  train::step_report report;
};
updated update_of(chosen_policy const& policy, double rate) {
  model m = small_mlp::make<float, block>(1, policy.prunes_dense() ? 1 : 0.4);
  std::fill(m.down.weight.begin(), m.down.weight.end(), 0.0f);
  const pattern first = m.up.weight.pattern(), second = m.down.weight.pattern();
  training t(m, {}, policy);
  context ctx(1);
  const train::step_report report = train::train_step(ctx, t, {.rate = rate}, [&](int) {
    return small_mlp::accumulate(ctx, m, t.gradients, t.weight_gradients(), 1);
  });
  return {first.blocks() + second.blocks(),     m.up.weight.pattern().blocks(),
          m.down.weight.pattern().blocks(),     !(m.up.weight.pattern() == first),
          !(m.down.weight.pattern() == second), report};
}

TEST_CASE("evolve: a matrix of zeros keeps its pattern under every policy and the others change theirs") {
  const auto check = [](char const* name, chosen_policy const& policy) {
    INFO(std::string(name));
    const updated still = update_of(policy, 0);
    CHECK(still.first_changed);
    CHECK(!still.second_changed);
    CHECK(still.report.changed.replaced > 0);
    CHECK(still.report.changed.stored == still.blocks_of_first + still.blocks_of_second);
    if (!policy.prunes_dense()) CHECK(still.report.changed.stored == still.blocks_before);
  };
  check("magnitude", {train::evolving_pattern{.interval = 1, .steps = 9, .fraction = 0.3}});
  check("set", {train::sparse_evolutionary_training{.interval = 1, .steps = 9, .fraction = 0.3}});
  check("rigl", {train::rigl{.interval = 1, .steps = 9, .fraction = 0.3}});
  check("snfs", {train::sparse_momentum{.interval = 1, .steps = 9, .fraction = 0.3}});
  check("deep-r", {train::deep_rewiring{.interval = 1, .steps = 9, .fraction = 0.3}});
  check("gradual", {train::gradual_pruning{.interval = 1, .end = 9, .density = 0.3}});
}

TEST_CASE("evolve: a matrix that the step has moved from zero changes, but for averages of its zeros") {
  const updated rigl = update_of({train::rigl{.interval = 1, .steps = 9, .fraction = 0.3}}, 0.01);
  CHECK(rigl.second_changed);
  const updated averaging =
      update_of({train::sparse_momentum{.interval = 1, .steps = 9, .fraction = 0.3}}, 0.01);
  CHECK(!averaging.second_changed);
  CHECK(averaging.first_changed);
  CHECK(averaging.report.changed.stored == averaging.blocks_before);
}

}  // namespace matrix_of_zeros_test
