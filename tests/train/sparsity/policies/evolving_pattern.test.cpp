// SPDX-License-Identifier: BSD-3-Clause
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
  const evolving_pattern policy{.interval = 1, .steps = 100};
  for (int done = 0; done <= 100; done += 10)
    CHECK(std::abs(policy.decay(done) - std::pow(std::cos(std::numbers::pi * done / 200), 2)) <= 1e-12);
}

TEST_CASE("evolving pattern: the share falls along a line, or not at all, if that is asked for") {
  const pattern tenth = random_pattern(64, 64, 0.1, random_stream(1, random_purpose::test));
  const auto counts = [&](train::fraction_decay falls) {
    const evolving_pattern policy{.interval = 1, .steps = 100, .fraction = 0.5, .falls = falls};
    std::vector<std::int64_t> all;
    for (const int done : {0, 25, 50, 99, 100, 120}) all.push_back(policy.count(tenth, done));
    return all;
  };
  CHECK(counts(train::fraction_decay::constant) == std::vector<std::int64_t>(6, 205));
  CHECK(counts(train::fraction_decay::linear) == std::vector<std::int64_t>{205, 154, 103, 3, 0, 0});
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

TEST_CASE("evolving pattern: the count is rounded up twice and bounded by the absent blocks") {
  const random_stream random(1, random_purpose::test);
  const pattern tenth = random_pattern(64, 64, 0.1, random), most = random_pattern(10, 10, 0.9, random);
  REQUIRE(tenth.blocks() == 410);
  const evolving_pattern policy{.interval = 1, .steps = 100, .fraction = 0.3};
  CHECK(policy.count(tenth, 0) == 123);
  CHECK(policy.count(tenth, 50) == 62);  // ceil(61.5)
  CHECK(policy.count(tenth, 75) == 19);  // ceil(123 * .1464…)
  CHECK(policy.count(tenth, 100) == 0);
  CHECK(evolving_pattern{.interval = 1, .steps = 100, .fraction = 0.101}.count(tenth, 0) ==
        42);  // ceil(41.41)
  CHECK(evolving_pattern{.interval = 1, .steps = 100, .fraction = 1}.count(most, 0) == 10);
  CHECK(policy.count(pattern::dense(5, 5), 1) == 0);
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
