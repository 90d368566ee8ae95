// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/embedding.hpp>
#include <tessera/statements/run.hpp>

namespace embedding_test {

using namespace tessera;
using support::trial;

TEST_CASE("embedding: gradients of the table are right, also of rows that no token has") {
  trial t;
  nn::embedding<double> layer(60, 21);
  support::randomise(layer);
  const auto ids = support::some_ids(t.batch.tokens(), 50, 1);
  panel_matrix<double> y(21, t.batch.tokens()), c(21, t.batch.tokens());
  support::fill(c, 2);
  auto gradients = nn::zeros_like(layer);
  const auto loss = [&] {
    layer.forward(ids, y, t.pass());
    return total(t.ctx, c * y);
  };
  layer.backward(ids, c, gradients, t.pass());
  support::check_parameter_gradients(layer, gradients, loss);
  for (std::int64_t f = 0; f < 21; ++f) CHECK(gradients.table(55, f) == 0);
}

TEST_CASE("embedding: positions count from the start of each sequence") {
  std::vector<std::int32_t> positions;
  nn::list_positions(sequences({0, 3, 3, 5}), 3, positions);
  CHECK(positions == std::vector<std::int32_t>{0, 1, 2, 0, 1});
  CHECK_THROWS_WITH_AS(nn::list_positions(sequences({0, 3, 7}), 3, positions),
                       "[position embedding] sequence 1 has 4 tokens but the context is 3", shape_error);
}

}  // namespace embedding_test
