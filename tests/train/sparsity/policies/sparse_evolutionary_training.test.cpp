// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <train/toy_model.hpp>

#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/sparsity/policies/sparse_evolutionary_training.hpp>
#include <tessera/train/training.hpp>

namespace sparse_evolutionary_training_test {

using namespace tessera;
using policy = train::sparse_evolutionary_training;

/// The slots that are pruned, by sorting: of the negative blocks and of the others each its part.
template <class Matrix> std::vector<char> oracle(Matrix const& w, std::int64_t count) {
  std::vector<std::pair<double, std::int64_t>> signs[2];
  for (std::int64_t slot = 0; slot < w.pattern().blocks(); ++slot) {
    double sum = 0, norm = 0;
    for (const auto v : w.at_slot(slot)) {
      sum += double(v);
      norm += std::abs(double(v));
    }
    signs[sum < 0].emplace_back(norm, slot);
  }
  const std::int64_t negative = count * std::ssize(signs[1]) / w.pattern().blocks();
  std::vector<char> pruned(std::size_t(w.pattern().blocks()));
  const auto mark = [&](auto& blocks, std::int64_t how_many) {
    std::ranges::sort(blocks);
    for (std::int64_t i = 0; i < how_many; ++i) pruned[std::size_t(blocks[std::size_t(i)].second)] = 1;
  };
  mark(signs[0], count - negative);
  mark(signs[1], negative);
  return pruned;
}

TEST_CASE("set: updates come every so many steps and the count is a fixed fraction") {
  const policy p{.interval = 10, .steps = 45};
  std::vector<int> due;
  for (int done = 0; done <= 60; ++done)
    if (p.due(done)) due.push_back(done);
  CHECK(due == std::vector<int>{10, 20, 30, 40});
  CHECK(!policy{.interval = 0, .steps = 45}.due(10));
  const pattern stored = random_pattern(64, 64, 0.1, random_stream(1, random_purpose::test));
  REQUIRE(stored.blocks() == 410);
  for (const int done : {0, 10, 40}) CHECK(p.count(stored, done) == 123);
  CHECK(policy{.interval = 10, .steps = 45, .fraction = 0}.count(stored, 10) == 0);
}

TEST_CASE_TEMPLATE("set: the blocks of either sign that sorting puts first are pruned", Block, block_shape<1>,
                   block_shape<4>, block_shape<3, 5>) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const random_stream random(seed, random_purpose::test, 4);
    auto w = support::random_matrix<double, Block>(40, 37, 0.1 + 0.3 * random.uniform(0), seed);
    // From hardly a negative block to hardly any other.
    for (double& v : w) v += v == 0 ? 0 : 2 * random.uniform(1) - 1;
    const std::int64_t count = policy{.fraction = random.uniform(2)}.count(w.pattern(), 0);
    const train::matrix_at_update at{w, w, 10, 0};
    REQUIRE(policy{}.prune(at, count) == oracle(w, count));
  }
}

TEST_CASE("set: as many blocks grow as are pruned, none of them just pruned, and they are zero") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    toy::model<float, block_shape<1>> model(seed, 0.3);
    const auto before = model;
    train::training<toy::model<float, block_shape<1>>, train::adamw, policy> t(
        model, {}, {.interval = 5, .steps = 100, .fraction = 0.3, .seed = seed});
    const auto pruned = oracle(before.up, 43);
    const train::pattern_change change =
        train::evolve(t.policy, 10, t.explored, t.model, t.gradients, t.state);
    pattern const &old = before.up.pattern(), &now = model.up.pattern();
    REQUIRE(old.blocks() == 144);
    REQUIRE(change.replaced == 43);  // of 43.2
    REQUIRE(now.blocks() == 144);
    REQUIRE((now - old).blocks() == 43);
    old.for_each([&](int i, int j, std::int64_t slot) {
      REQUIRE((now.find(i, j) < 0) == bool(pruned[std::size_t(slot)]));
    });
    (now - old).for_each([&](int i, int j, std::int64_t) { REQUIRE(model.up(i, j) == 0); });
  }
}

}  // namespace sparse_evolutionary_training_test
