// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <numbers>

#include <doctest/doctest.h>
#include <train/toy_model.hpp>

#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/sparsity/evolve.hpp>
#include <tessera/train/sparsity/policies/evolving_pattern.hpp>

namespace evolving_pattern_test {

using namespace tessera;
using train::evolving_pattern;

/// A training whose moments and gradients are not zero anywhere.
template <class Model>
train::training<Model, train::adamw> busy(Model& model, evolving_pattern const& policy) {
  train::training<Model, train::adamw> t(model, {}, policy);
  for (auto& v : t.gradients.up) v = 3;
  for (char const* moment : {"first_moment", "second_moment"})
    train::set_elements(t.state, moment, t.gradients);
  return t;
}

template <class Model>
train::pattern_change evolve(train::training<Model, train::adamw>& t, std::int64_t done) {
  return train::evolve(t.policy, done, t.explored, t.model, t.gradients, t.state);
}

TEST_CASE("evolving pattern: updates come every so many steps and never at the ends") {
  const evolving_pattern policy{.interval = 10, .steps = 45};
  std::vector<int> due;
  for (int done = 0; done <= 60; ++done)
    if (policy.due(done)) due.push_back(done);
  CHECK(due == std::vector<int>{10, 20, 30, 40});
  for (int done = 0; done <= 60; ++done) CHECK(!evolving_pattern{.interval = 0, .steps = 45}.due(done));
}

TEST_CASE("evolving pattern: the decay is half a cosine") {
  for (int done = 0; done <= 100; done += 10)
    CHECK(std::abs(train::decay_after(done, 100) - std::pow(std::cos(std::numbers::pi * done / 200), 2)) <=
          1e-12);
}

TEST_CASE("evolving pattern: the share falls along a line, or not at all, if that is asked for") {
  const pattern tenth = random_pattern(64, 64, 0.1, random_stream(1, random_purpose::test));
  const auto shares = [&](train::fraction_decay falls) {
    const evolving_pattern policy{.interval = 1, .steps = 100, .fraction = 0.5, .falls = falls};
    std::vector<double> all;
    for (const int done : {1, 25, 50, 99}) all.push_back(double(policy.count(tenth, done)) / 205);
    return all;
  };
  const auto near = [](std::vector<double> const& found, std::vector<double> const& wanted) {
    return std::ranges::equal(found, wanted, [](double a, double b) { return std::abs(a - b) < 1.0 / 205; });
  };
  CHECK(near(shares(train::fraction_decay::constant), {1, 1, 1, 1}));
  CHECK(near(shares(train::fraction_decay::linear), {0.99, 0.75, 0.5, 0.01}));
}

TEST_CASE("evolving pattern: the norm decides which blocks are pruned") {
  // Blocks of 4 x 4: one of sixteen 1, one of a single 6, one of four 3.
  block_sparse_matrix<float, block_shape<4>> w(
      4, 16, pattern_from_bsr(4, 16, {4, 4}, std::vector{0, 3}, std::vector{0, 1, 2}));
  for (float& v : w.at_slot(0)) v = 1;
  w.at_slot(1)[5] = 6;
  for (std::size_t i = 0; i < 4; ++i) w.at_slot(2)[i] = 3;
  const auto pruned = [&](block_norm norm) {
    const evolving_pattern policy{.interval = 1, .steps = 10, .norm = norm};
    return policy.prune(train::matrix_at_update{w, w, 1, 0}, 1);
  };
  CHECK(pruned(block_norm::l1) == std::vector<char>{0, 1, 0});   // 16, 6, 12
  CHECK(pruned(block_norm::l2) == std::vector<char>{1, 0, 0});   // 4, 6, 6
  CHECK(pruned(block_norm::max) == std::vector<char>{1, 0, 0});  // 1, 6, 3
}

TEST_CASE("evolving pattern: what rounding leaves over is carried to the next update") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const random_stream random(seed, random_purpose::test);
    const auto interval = std::int64_t(1 + random.below(0, 9)), steps = interval + 200;
    const auto falls = train::fraction_decay(random.below(1, 3));
    const pattern stored = random_pattern(8, 8, 0.05 + 0.4 * random.uniform(2), random);
    const evolving_pattern policy{
        .interval = interval, .steps = steps, .fraction = random.uniform(3), .falls = falls};
    double wanted = 0;  // by the shares of all updates so far
    std::int64_t replaced = 0;
    for (std::int64_t done = interval; done <= steps; done += interval) {
      const double share =
          policy.fraction * train::decay_after(done, double(steps), falls) * double(stored.blocks());
      const std::int64_t count = policy.count(stored, done);
      REQUIRE(std::abs(double(count) - share) < 1 + 1e-9);
      wanted += share;
      replaced += count;
      REQUIRE(std::abs(double(replaced) - wanted) < 0.5 + 1e-9);
    }
  }
  const pattern six = random_pattern(8, 8, 6.0 / 64, 1);
  REQUIRE(six.blocks() == 6);
  const evolving_pattern tenth{
      .interval = 10, .steps = 100, .fraction = 0.1, .falls = train::fraction_decay::constant};
  std::vector<std::int64_t> counts;
  for (int done = 10; done <= 50; done += 10) counts.push_back(tenth.count(six, done));
  CHECK(counts == std::vector<std::int64_t>{1, 0, 1, 0, 1});
}

TEST_CASE("evolving pattern: the count is bounded by the absent blocks") {
  const pattern most = random_pattern(10, 10, 0.9, random_stream(1, random_purpose::test));
  CHECK(evolving_pattern{.interval = 1, .steps = 100, .fraction = 1}.count(most, 1) == 10);
  CHECK(evolving_pattern{.interval = 1, .steps = 100}.count(pattern::dense(5, 5), 1) == 0);
}

TEST_CASE("evolving pattern: exact counts and everything moves together in many random cases") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const random_stream random(seed, random_purpose::test);
    toy::model<float> model(seed, 0.05 + 0.9 * random.uniform(0));
    const evolving_pattern policy{.interval = 5, .steps = 100, .fraction = random.uniform(1), .seed = seed};
    auto t = busy(model, policy);
    const auto before = model;
    const std::int64_t done = 5 * (1 + std::int64_t(random.below(2, 19)));
    const auto norms = block_norms(before.up);
    const std::int64_t count = policy.count(before.up.pattern(), done);

    const train::pattern_change change = evolve(t, done);
    pattern const &old = before.up.pattern(), &now = model.up.pattern();
    REQUIRE(change.replaced == (old.is_dense() ? 0 : count));
    REQUIRE(now.blocks() == old.blocks());
    REQUIRE((old - now).blocks() == count);
    REQUIRE((now - old).blocks() == count);
    REQUIRE(t.gradients.up.pattern().serial() == now.serial());
    const auto first = train::elements_of(t.state, model, "first_moment"),
               second = train::elements_of(t.state, model, "second_moment");
    REQUIRE(toy::same_bits(model.down, before.down));

    float largest_pruned = 0, least_kept = 1e9f;
    old.for_each([&](int i, int j, std::int64_t slot) {
      const std::int64_t kept = now.find(i, j);
      float& bound = kept < 0 ? largest_pruned : least_kept;
      bound =
          kept < 0 ? std::max(bound, norms[std::size_t(slot)]) : std::min(bound, norms[std::size_t(slot)]);
      if (kept < 0) return;
      REQUIRE(std::ranges::equal(before.up.at_slot(slot), model.up.at_slot(kept)));
      REQUIRE(first.up.at_slot(kept)[0] == 3);
    });
    REQUIRE(largest_pruned <= least_kept);
    (now - old).for_each([&](int i, int j, std::int64_t) {
      const std::int64_t slot = now.find(i, j);
      for (int e = 0; e < 16; ++e) {
        REQUIRE(model.up.at_slot(slot)[std::size_t(e)] == 0);
        REQUIRE(first.up.at_slot(slot)[std::size_t(e)] == 0);
        REQUIRE(second.up.at_slot(slot)[std::size_t(e)] == 0);
      }
    });
  }
}

TEST_CASE("evolving pattern: the choice depends on seed and update only") {
  const auto after = [](std::uint64_t seed, std::int64_t done) {
    toy::model<float, block_shape<1>> model(1);
    auto t = busy(model, {.interval = 5, .steps = 1000, .fraction = 0.3, .seed = seed});
    evolve(t, done);
    return model.up.pattern();
  };
  CHECK(after(1, 5) == after(1, 5));
  CHECK(!(after(1, 5) == after(2, 5)));
  CHECK(!(after(1, 5) == after(1, 10)));
}

TEST_CASE("evolving pattern: random growth explores as much as chance predicts") {
  toy::model<float, block_shape<1>> model(1, 0.2);
  auto t = busy(model, {.interval = 1, .steps = 20, .fraction = 0.5, .seed = 3});
  const double all = 24 * 20;
  const double live = double(model.up.pattern().blocks());
  CHECK(t.explored.fraction() == doctest::Approx(live / all));
  double never = 1 - live / all;
  for (int done = 1; done < 20; ++done) {
    const train::pattern_change change = evolve(t, done);
    never *= 1 - double(change.replaced) / (all - live);
  }
  CHECK(std::abs(t.explored.fraction() - (1 - never)) < 0.05);
}

}  // namespace evolving_pattern_test
