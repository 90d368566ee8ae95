// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/types.hpp>
#include <train/sparsity/small_mlp.hpp>

#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/policies/granet.hpp>
#include <tessera/train/training.hpp>

namespace granet_test {

using namespace tessera;
using train::granet;

constexpr granet policy{.interval = 5, .end = 30, .steps = 45, .initial = 0.6, .density = 0.1};

template <class T, class Block, class Optimizer>
train::step_report step(context& ctx, train::training<small_mlp::model<T, Block>, Optimizer, granet>& t,
                        double rate, std::uint64_t key) {
  return train::train_step(ctx, t, {.rate = rate}, [&](int) {
    return small_mlp::accumulate(ctx, t.model, t.gradients, t.weight_gradients(), key);
  });
}

TEST_CASE("granet: the density falls along the cubic, and updates go on until the end of the run") {
  std::vector<int> due;
  for (int done = 0; done <= 60; ++done)
    if (policy.due(done)) due.push_back(done);
  CHECK(due == std::vector<int>{5, 10, 15, 20, 25, 30, 35, 40});
  CHECK(granet{.interval = 7, .end = 20, .steps = 40}.due(20));  // where the density has fallen
  CHECK(!granet{.interval = 0, .end = 20, .steps = 40}.due(20));
  for (int done = 0; done <= 45; ++done)
    CHECK(std::abs(policy.density_after(done) - (0.1 + 0.5 * std::pow(1 - std::min(1.0, done / 30.0), 3))) <
          1e-12);
}

TEST_CASE("granet: more blocks are pruned than grow, by those beyond the density") {
  const pattern stored = random_pattern(40, 50, 0.6, 1);
  REQUIRE(stored.blocks() == 1200);
  const std::int64_t after = std::llround(2000 * (0.1 + 0.5 / 8));  // half-way
  const std::int64_t grown = policy.growth(stored, 15);
  CHECK(std::abs(double(grown) - 0.5 * double(after) * (1 + std::cos(std::acos(-1.0) / 3)) / 2) <= 1);
  CHECK(policy.count(stored, 15) == 1200 - after + grown);
  // A weight that stores fewer only replaces some; a dense one has none to grow.
  const pattern few = random_pattern(40, 50, 0.05, 1);
  CHECK(policy.growth(few, 30) > 0);
  CHECK(policy.count(few, 30) == policy.growth(few, 30));
  CHECK(policy.growth(pattern::dense(40, 50), 15) == 0);
  CHECK(policy.count(pattern::dense(40, 50), 15) == 2000 - after);
  granet none = policy;
  none.fraction = 0;
  CHECK(none.growth(stored, 15) == 0);
  CHECK(none.count(stored, 15) == 1200 - after);
}

TEST_CASE_TEMPLATE_DEFINE("granet: the blocks of an update are those of the whole gradient, sorted", Types,
                          oracle) {
  using T = typename Types::element;
  using block = typename Types::block;
  context ctx(1);
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const random_stream random(seed, random_purpose::test);
    auto m = small_mlp::make<T, block>(seed, 0.4 + 0.4 * random.uniform(0));
    train::training<small_mlp::model<T, block>, train::sgd, granet> t(m, {},
                                                                      {.interval = 1,
                                                                       .end = 3,
                                                                       .steps = 9,
                                                                       .initial = 0.4,
                                                                       .density = 0.1,
                                                                       .fraction = 0.6 * random.uniform(1)});
    const auto before = m;
    const auto gradients = small_mlp::dense_gradients(ctx, m, seed);
    const train::step_report report = step<T, block>(ctx, t, 0, seed);  // the weights stay

    std::int64_t pruned = 0, weight = 0;
    for (auto const* now : {&m.up.weight, &m.down.weight}) {
      auto const& old = weight == 0 ? before.up.weight : before.down.weight;
      const auto all = double(old.pattern().block_rows()) * old.pattern().block_cols();
      const std::int64_t left = std::max<std::int64_t>(1, std::llround(t.policy.density_after(1) * all));
      const std::int64_t grown = t.policy.growth(old.pattern(), 1);
      pruned += old.pattern().blocks() - left + grown;
      const auto prune =
          small_mlp::scores<block>(support::to_reference(old), old.pattern(), small_mlp::sum_of_magnitudes);
      const auto growth = small_mlp::scores<block>(gradients[std::size_t(weight)], old.pattern(),
                                                   small_mlp::sum_of_magnitudes);
      REQUIRE(now->pattern() == small_mlp::expected_pattern(old.pattern(),
                                                            old.pattern().blocks() - left + grown, prune,
                                                            growth, grown));
      REQUIRE(now->pattern().blocks() == left);
      now->pattern().for_each([&](int i, int j, std::int64_t slot) {
        const std::int64_t was = old.pattern().find(i, j);
        for (int e = 0; e < block::elements; ++e)
          REQUIRE(now->at_slot(slot)[std::size_t(e)] == (was < 0 ? T(0) : old.at_slot(was)[std::size_t(e)]));
      });
      ++weight;
    }
    REQUIRE(report.changed.replaced == pruned);
  }
}
TEST_CASE_TEMPLATE_INVOKE(oracle, support::types<float, block_shape<1>>,
                          support::types<double, block_shape<3, 5>>,
                          support::types<bfloat16, block_shape<4>>);

TEST_CASE("granet: a run ends with the blocks of its density, dense at first or sparse, and learns") {
  using block = block_shape<4>;
  context ctx(1);
  for (const double initial : {1.0, 0.6}) {
    auto m = small_mlp::make<float, block>(1, initial);
    granet by = policy;
    by.initial = initial;
    train::training<small_mlp::model<float, block>, train::adamw, granet> t(m, {}, by);
    double first = 0, last = 0;
    std::int64_t pruned = 0, before = 0, grown = 0;
    for (auto const* each : {&m.up.weight, &m.down.weight}) before += each->pattern().blocks();
    for (int done = 1; done <= 45; ++done) {
      const train::step_report report = step<float, block>(ctx, t, 0.01, 1);
      (done == 1 ? first : last) = report.loss;
      pruned += report.changed.replaced;
      if (report.changed.stored > 0) {
        grown += report.changed.stored - before + report.changed.replaced;
        before = report.changed.stored;
      }
      for (auto const* each : {&m.up.weight, &m.down.weight}) {
        pattern const& now = each->pattern();
        const auto all = double(now.block_rows()) * now.block_cols();
        if (done >= 5) CHECK(now.blocks() == std::llround(by.density_after(done / 5 * 5) * all));
        CHECK(t.state.parameters[each == &m.up.weight ? 0 : 2][0].size() == each->size());
      }
    }
    CHECK(pruned > grown);
    CHECK(grown > 0);
    CHECK(last < first);
  }
}

TEST_CASE("granet: the bits are the same for 1 and 2 threads, and after a resumption") {
  using block = block_shape<4>;
  using training = train::training<small_mlp::model<float, block>, train::adamw, granet>;
  const scratch_folder scratch;
  const auto go_on = [](training& t, int threads, std::int64_t until) {
    context ctx(threads, oversubscribe::allowed);
    while (t.progress.step < until)
      static_cast<void>(step<float, block>(ctx, t, 0.01, std::uint64_t(t.progress.step)));
  };
  auto m = small_mlp::make<float, block>(1, 1);
  training whole(m, {}, policy);
  for (const int i : {4, 12, 32}) {  // dense, while the density falls, and afterwards
    go_on(whole, 1, i);
    train::save(whole, scratch / std::to_string(i), io::json());
  }
  go_on(whole, 1, 45);
  for (const int i : {4, 12, 32}) {
    auto other = small_mlp::make<float, block>(7, 1);
    training t(other, {}, policy);
    train::resume(t, train::checkpoint(scratch / std::to_string(i)));
    go_on(t, 2, 45);
    CHECK(other.up.weight.pattern() == m.up.weight.pattern());
    CHECK(other.down.weight.pattern() == m.down.weight.pattern());
    CHECK(std::equal(other.up.weight.begin(), other.up.weight.end(), m.up.weight.begin()));
    CHECK(std::equal(other.down.weight.begin(), other.down.weight.end(), m.down.weight.begin()));
    CHECK(t.state == whole.state);
    CHECK(t.explored == whole.explored);
  }
}

TEST_CASE("granet: settings without sense are refused") {
  const auto refused = [](granet const& by) { return error_of<option_error>([&] { by.check(); }); };
  CHECK(refused(policy) == "");
  CHECK(refused({.interval = 5, .end = 40, .steps = 30}) ==
        "[granet] the density falls from step 0 to step 40 of 30: the second must come later, and both be of "
        "the run");
  CHECK(refused({.interval = 5, .begin = 20, .end = 20, .steps = 30}).starts_with("[granet] the density"));
  CHECK(refused({.interval = 5, .end = 20, .steps = 30, .initial = 0.05}) ==
        "[granet] the density falls from 0.05 to 0.1: both must be in (0, 1], and the second not above the "
        "first");
  CHECK(
      refused({.interval = 5, .end = 20, .steps = 30, .fraction = 2}).starts_with("[granet] fraction is 2"));
}

}  // namespace granet_test
