// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <tuple>

#include <doctest/doctest.h>
#include <support/allocations.hpp>
#include <support/reference.hpp>

#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/policies/rigl.hpp>
#include <tessera/train/training.hpp>

namespace train_allocation_test {

using namespace tessera;
using block = block_shape<4>;

template <element T, class Model, class Optimizer> struct trained {
  using value_type = T;
  using model = Model;
  using optimizer = Optimizer;
};
using all =
    std::tuple<trained<float, nn::mlp<float, block>, train::adamw>,
               trained<bfloat16, nn::mlp<bfloat16, block>, train::sgd>,
               trained<float, nn::mlp<float, block, ops::gelu_polynomial, nn::float8_linear<float, block>>,
                       train::adamw>>;

nn::transformer_config small() {
  nn::transformer_config config;
  config.hidden = 48;
  config.feed_forward = 2;
  config.density = 0.5;
  return config;
}

TEST_CASE_TEMPLATE_DEFINE("training: a step that changes no pattern allocates nothing after the first ones",
                          Of, steps) {
  using model = typename Of::model;
  using T = typename Of::value_type;
  model m = model::random(small(), 1, "mlp");
  nn::initialise_transformer(m, 1, 1);
  train::training<model, typename Of::optimizer, train::rigl> t(m, {}, {.interval = 4, .steps = 6});
  t.group_parameters({{.names = "up.bias", .rate = 0}, {.names = "*.bias", .rate = 0.5}});
  context ctx(2, oversubscribe::allowed);
  const sequences batch({0, 70, 130});
  nn::workspace<T> room;
  typename model::saved saved;
  panel_matrix<T> x(48, 130), y(48, 130);
  support::fill(x, 1);
  for (int step = 0; step < 12; ++step) {
    const long before = support::allocations();
    const train::step_report report =
        train::train_step(ctx, t, {.rate = 0.01, .clip = 1, .micro_batches = 2}, [&](int) {
          const auto p = t.pass(ctx, batch, room);
          m.forward(x, y, saved, p);
          m.backward(x, saved, y, nullptr, t.gradients, p);
          return train::token_loss{1, 130, p};
        });
    const long allocated = support::allocations() - before;
    INFO(step, ": ", allocated);
    if (step == 1 || step > 4) CHECK(allocated == 0);
    CHECK((report.changed.replaced > 0) == (step == 3));
  }
}

TEST_CASE_TEMPLATE_APPLY(steps, all);

}  // namespace train_allocation_test
