// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <train/sparsity/small_mlp.hpp>

#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/sparsity/policies/gradual_pruning.hpp>
#include <tessera/train/training.hpp>

#include "../../../io/scratch_folder.hpp"

namespace gradual_pruning_test {

using namespace tessera;
using train::gradual_pruning;
using block = block_shape<4>;
using model = small_mlp::model<float, block>;
using trained = train::training<model, train::adamw, gradual_pruning>;

constexpr gradual_pruning policy{.interval = 5, .begin = 10, .end = 40, .density = 0.1};

train::step_report step(context& ctx, trained& t) {
  return train::train_step(ctx, t, {.rate = 0.01}, [&](int) {
    return small_mlp::accumulate(ctx, t.model, t.gradients, t.weight_gradients(), 1);
  });
}

TEST_CASE("gradual pruning: the density falls along the formula, at updates between begin and end") {
  std::vector<int> due;
  for (int done = 0; done <= 60; ++done)
    if (policy.due(done)) due.push_back(done);
  CHECK(due == std::vector<int>{15, 20, 25, 30, 35, 40});
  CHECK(gradual_pruning{.interval = 7, .begin = 0, .end = 20}.due(20));
  CHECK(!gradual_pruning{.interval = 0, .end = 20}.due(20));
  for (int done = 0; done <= 60; ++done) {
    const double share = std::min(1.0, std::max(0.0, (done - 10) / 30.0));
    CHECK(std::abs(policy.density_after(done) - (0.1 + 0.9 * std::pow(1 - share, 3))) < 1e-12);
  }
  const pattern dense = pattern::dense(10, 30), few = random_pattern(10, 30, 0.02, 1);
  CHECK(policy.count(dense, 40) == 270);
  CHECK(policy.count(dense, 25) == 300 - std::llround(300 * (0.1 + 0.9 / 8)));
  CHECK(policy.count(few, 40) == 0);
  CHECK(gradual_pruning{.interval = 1, .end = 9, .density = 1e-6}.count(dense, 9) == 299);
}

TEST_CASE("gradual pruning: a dense model becomes sparse, the weakest blocks first, and still learns") {
  context ctx(1);
  model m = small_mlp::make<float, block>(1, 1);
  REQUIRE(m.up.weight.pattern().is_dense());
  trained t(m, {}, policy);
  CHECK(t.explored.fraction() == 1);
  std::vector<double> losses;
  for (int done = 1; done <= 45; ++done) {
    const model before = m;
    const train::step_report report = step(ctx, t);
    losses.push_back(report.loss);
    for (auto* layer : {&m.up, &m.down}) {
      pattern const& now = layer->weight.pattern();
      const auto all = double(now.block_rows()) * now.block_cols();
      const std::int64_t last_update = done < 15 ? 0 : std::min(done / 5 * 5, 40);
      CHECK(now.blocks() == std::llround(policy.density_after(last_update) * all));
    }
    if (!policy.due(done)) {
      CHECK(report.changed.replaced == 0);
      continue;
    }
    // Against sorting, on the weights after the optimizer: weights that stay are as they were.
    pattern const &old = before.up.weight.pattern(), &now = m.up.weight.pattern();
    CHECK(report.changed.replaced > 0);
    CHECK((now - old).blocks() == 0);
    CHECK(t.gradients.up.weight.pattern() == now);
    CHECK(t.state.parameters[0][0].size() == m.up.weight.size());
  }
  CHECK(losses.back() < losses.front());
  CHECK(t.explored.fraction() == 1);
}

TEST_CASE("gradual pruning: exactly the weakest blocks go") {
  model m = small_mlp::make<float, block>(1, 1);
  const auto norms = block_norms(m.up.weight, block_norm::l2);
  gradual_pruning by = policy;
  by.norm = block_norm::l2;
  trained t(m, {}, by);
  const train::pattern_change change = train::evolve(t.policy, 40, t.explored, m, t.gradients, t.state);
  pattern const& now = m.up.weight.pattern();
  CHECK(change.stored == now.blocks() + m.down.weight.pattern().blocks());
  float least_kept = 1e9f, most_pruned = 0;
  for (int i = 0, slot = 0; i < now.block_rows(); ++i)
    for (int j = 0; j < now.block_cols(); ++j, ++slot) {
      float& bound = now.find(i, j) < 0 ? most_pruned : least_kept;
      bound = now.find(i, j) < 0 ? std::max(bound, norms[std::size_t(slot)])
                                 : std::min(bound, norms[std::size_t(slot)]);
    }
  CHECK(most_pruned <= least_kept);
}

TEST_CASE("gradual pruning: a run that is resumed half-way, in a dense model, has the same bits") {
  context ctx(1);
  const scratch_folder folder;
  model whole = small_mlp::make<float, block>(1, 1), parts = whole, fresh = whole;
  trained a(whole, {}, policy), b(parts, {}, policy), c(fresh, {}, policy);
  for (int i = 0; i < 45; ++i) static_cast<void>(step(ctx, a));
  for (int i = 0; i < 22; ++i) static_cast<void>(step(ctx, b));
  train::save(b, folder / "half", {});
  train::resume(c, train::checkpoint(folder / "half"));
  CHECK(fresh.up.weight.pattern() == parts.up.weight.pattern());
  for (int i = 22; i < 45; ++i) static_cast<void>(step(ctx, c));
  CHECK(fresh.up.weight.pattern() == whole.up.weight.pattern());
  CHECK(std::equal(whole.up.weight.begin(), whole.up.weight.end(), fresh.up.weight.begin()));
  CHECK(std::equal(whole.down.weight.begin(), whole.down.weight.end(), fresh.down.weight.begin()));
}

TEST_CASE("gradual pruning: settings without sense are refused") {
  const auto refused = [](gradual_pruning const& by) { return error_of<option_error>([&] { by.check(); }); };
  CHECK(refused(policy) == "");
  CHECK(refused({.interval = 5, .begin = 40, .end = 40}) ==
        "[gradual_pruning] it begins after 40 steps and ends after 40: the end must come later, and neither "
        "before the run");
  CHECK(refused({.interval = 5, .end = 40, .density = 0}) ==
        "[gradual_pruning] density is 0: it must be in (0, 1]");
  CHECK(refused({.interval = -1, .end = 40}).starts_with("[gradual_pruning] interval is -1"));
}

}  // namespace gradual_pruning_test
