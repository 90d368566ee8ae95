// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>
#include <train/sparsity/small_mlp.hpp>

#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/training.hpp>

// A policy that the library does not have, as a user would write it: all of it stands in this file.

namespace own_policy_test {

using namespace tessera;

/// Prunes the blocks whose loss would change least, by Σ |w dw| (SNIP: Lee et al. 2019), and grows the blocks
/// that hold the steepest single element.
struct by_sensitivity {
  std::int64_t interval = 0;
  double fraction = 0.25;

  bool due(std::int64_t done) const { return done > 0 && done % interval == 0; }
  std::int64_t count(pattern const& stored, std::int64_t) const {
    return std::int64_t(fraction * double(stored.blocks()));
  }
  std::vector<char> prune(train::matrix_at_update const& at, std::int64_t count) const {
    const std::vector<double> w = at.weight.values(), dw = at.gradient.values();
    std::vector<double> change(std::size_t(at.stored().blocks()));
    for (std::size_t e = 0; e < w.size(); ++e)
      change[e / std::size_t(at.weight.block_elements())] += std::abs(w[e] * dw[e]);
    return weakest(std::span<double const>(change), count);
  }
  template <class T> T growth_score(std::span<T const> gradient) const {
    T most = 0;
    for (const T g : gradient) most = std::max(most, std::abs(g));
    return most;
  }
  std::vector<std::int64_t> grow(train::matrix_at_update const& at, std::int64_t) const {
    return {at.candidates.begin(), at.candidates.end()};
  }
};
static_assert(train::gradient_policy<by_sensitivity>);

TEST_CASE("own policy: train_step prunes and grows the blocks that it would choose of the whole gradient") {
  using block = block_shape<4>;
  using model = small_mlp::model<double, block>;
  context ctx(1);
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    model m = small_mlp::make<double, block>(seed, 0.3);
    const model before = m;
    const auto gradients = small_mlp::dense_gradients(ctx, m, seed);
    train::training<model, train::sgd, by_sensitivity> t(m, {}, {.interval = 1});
    train::train_step(ctx, t, {.rate = 0}, [&](int) {
      return small_mlp::accumulate(ctx, m, t.gradients, t.weight_gradients(), seed);
    });

    const auto check = [](auto const& old, pattern const& now, support::reference const& gradient) {
      support::reference product = support::to_reference(old);
      for (std::size_t i = 0; i < product.values.size(); ++i) product.values[i] *= gradient.values[i];
      const auto prune = small_mlp::scores<block>(product, now, small_mlp::sum_of_magnitudes);
      const auto growth = small_mlp::scores<block>(gradient, now, [](std::span<double const> values) {
        double most = 0;
        for (const double v : values) most = std::max(most, std::abs(v));
        return most;
      });
      const auto count = std::int64_t(0.25 * double(now.blocks()));
      REQUIRE(count > 0);
      REQUIRE(now == small_mlp::expected_pattern(old.pattern(), count, prune, growth));
    };
    check(before.up.weight, m.up.weight.pattern(), gradients[0]);
    check(before.down.weight, m.down.weight.pattern(), gradients[1]);
  }
}

TEST_CASE("own policy: a model learns with it") {
  using block = block_shape<4>;
  using model = small_mlp::model<float, block>;
  context ctx(1);
  model m = small_mlp::make<float, block>(1, 0.2);
  train::training<model, train::sgd, by_sensitivity> t(m, {}, {.interval = 4});
  std::vector<double> losses;
  for (int i = 0; i < 40; ++i)
    losses.push_back(train::train_step(ctx, t, {.rate = 0.05, .clip = 1}, [&](int) {
                       return small_mlp::accumulate(ctx, m, t.gradients, t.weight_gradients(), 1);
                     }).loss);
  CHECK(losses.back() < 0.8 * losses.front());
  CHECK(t.explored.fraction() > 0.25);
}

}  // namespace own_policy_test
