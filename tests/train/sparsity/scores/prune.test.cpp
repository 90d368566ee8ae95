// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>

#include <doctest/doctest.h>
#include <support/reference.hpp>

#include <tessera/nn/parameter.hpp>
#include <tessera/train/sparsity/scores/prune.hpp>

namespace prune_test {

using namespace tessera;
using matrix = block_sparse_matrix<float, block_shape<4>>;

struct model {
  using gradients = model;
  matrix strong = support::random_matrix<float, block_shape<4>>(32, 40, 1, 1),
         weak = support::random_matrix<float, block_shape<4>>(16, 24, 1, 2),
         table = support::random_matrix<float, block_shape<4>>(8, 8, 1, 3);
  feature_vector<float> bias = feature_vector<float>(16);
  static void parts(auto& each, auto&... of) {
    each("strong", of.strong...);
    each("weak", of.weak...);
    each.dense("table", of.table...);
    each("bias", of.bias...);
  }
};
model scaled() {
  model m;
  for (float& v : m.strong) v *= 100;
  return m;
}

TEST_CASE("prune: every matrix keeps its share, and dense parts keep everything") {
  model m = scaled();
  const matrix before = m.weak;
  train::prune(m, 0.25);
  CHECK(m.strong.pattern().blocks() == 20);
  CHECK(m.weak.pattern().blocks() == 6);
  CHECK(m.table.pattern().is_dense());
  CHECK(m.weak.pattern() == pruned(before, 0.25).pattern());
}

TEST_CASE("prune: blocks of the whole model compete, and no matrix loses its last block") {
  model m = scaled();
  train::prune(m, 0.25, train::pruning_scope::whole_model);
  CHECK(m.strong.pattern().blocks() == 25);
  CHECK(m.weak.pattern().blocks() == 1);
  CHECK(m.table.pattern().is_dense());
  model same = scaled();
  train::prune(same, 1, train::pruning_scope::whole_model);
  CHECK(same.strong.pattern().is_dense());
}

struct no_weights {
  using gradients = no_weights;
  feature_vector<float> bias = feature_vector<float>(16);
  static void parts(auto& each, auto&... of) { each("bias", of.bias...); }
};

TEST_CASE("prune: a model without weights and an impossible density are refused, and nothing is changed") {
  no_weights none;
  CHECK_THROWS_AS(train::prune(none, 0.5), option_error);
  model m = scaled();
  for (const double density : {0.0, 1.5, std::nan("")})
    CHECK_THROWS_AS(train::prune(m, density), option_error);
  CHECK(m.weak.pattern().is_dense());
}

}  // namespace prune_test
