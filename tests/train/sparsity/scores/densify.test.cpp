// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>

#include <doctest/doctest.h>
#include <train/sparsity/small_mlp.hpp>

#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/sparsity/scores/densify.hpp>
#include <tessera/train/sparsity/scores/prune.hpp>

namespace densify_test { namespace {

using namespace tessera;
using block = block_shape<4>;
using model = small_mlp::model<float, block>;

panel_matrix<float> outputs_of(context& ctx, model const& m) {
  panel_matrix<float> x(small_mlp::inputs, 90), y(small_mlp::outputs, 90);
  support::fill(x, 5);
  const sequences batch = sequences::of_equal_length(1, 90);
  nn::workspace<float> room;
  model::saved saved;
  m.forward(x, y, saved, {ctx, batch, room});
  return y;
}

/// The number of blocks of `m` that `before` does not store and that are not zero.
std::int64_t grown(model const& m, model const& before) {
  std::int64_t count = 0;
  m.up.weight.pattern().for_each([&](int i, int j, std::int64_t slot) {
    if (before.up.weight.pattern().find(i, j) < 0)
      count += std::ranges::any_of(m.up.weight.at_slot(slot), [](float v) { return v != 0; });
  });
  return count;
}

TEST_CASE("densify: the outputs stay, and training goes on in all blocks") {
  context ctx(1);
  model m = small_mlp::make<float, block>(1, 0.25);
  const model sparse = m;
  const panel_matrix<float> before = outputs_of(ctx, m);
  train::densify(m);
  CHECK(m.up.weight.pattern().is_dense());
  CHECK(m.down.weight.pattern().is_dense());
  CHECK(grown(m, sparse) == 0);
  sparse.up.weight.pattern().for_each([&](int i, int j, std::int64_t slot) {
    CHECK(std::ranges::equal(m.up.weight.at_slot(m.up.weight.pattern().find(i, j)),
                             sparse.up.weight.at_slot(slot)));
  });
  const panel_matrix<float> after = outputs_of(ctx, m);
  CHECK(total(ctx, square(after - before)) <= 1e-12 * total(ctx, square(before)));

  train::training t(m, train::adamw{});
  const auto step = [&] {
    return train::train_step(ctx, t, {.rate = 1e-3},
                             [&](int) { return small_mlp::accumulate(ctx, m, t.gradients, {}, 1); });
  };
  const double first = step().loss;
  for (int i = 0; i < 10; ++i) step();
  CHECK(step().loss < first);
  CHECK(grown(m, sparse) == m.up.weight.pattern().blocks() - sparse.up.weight.pattern().blocks());
  train::prune(m, 0.25);  // sparse again
  train::densify(m);      // and dense
  CHECK(m.up.weight.pattern().is_dense());
}

}}  // namespace densify_test
