// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/penalties.hpp>
#include <tessera/train/sparsity/policies/deep_rewiring.hpp>
#include <tessera/train/training.hpp>

namespace deep_rewiring_test { namespace {

using namespace tessera;
using policy = train::deep_rewiring;

/// The slots that are pruned, by sorting all scores.
template <class Matrix>
std::vector<char> oracle(policy const& p, Matrix const& w, random_key key, std::int64_t count) {
  std::vector<std::pair<double, std::int64_t>> scores;
  w.pattern().for_each([&](int i, int j, std::int64_t slot) {
    double sum = 0;
    for (const auto v : w.at_slot(slot)) sum += double(v);
    scores.emplace_back(sum * p.sign(key, i * w.pattern().block_cols() + j), slot);
  });
  std::ranges::sort(scores);
  std::vector<char> pruned(scores.size());
  for (std::int64_t k = 0; k < count; ++k) pruned[std::size_t(scores[std::size_t(k)].second)] = 1;
  return pruned;
}

TEST_CASE("deep rewiring: about half of the places have either sign, others in another matrix or seed") {
  const policy p{.seed = 3}, other{.seed = 4};
  int plus = 0, equal_matrix = 0, equal_seed = 0;
  for (std::int64_t place = 0; place < 10000; ++place) {
    const int sign = p.sign(0, place);
    REQUIRE(std::abs(sign) == 1);
    REQUIRE(sign == p.sign(0, place));
    plus += sign == 1;
    equal_matrix += sign == p.sign(1, place);
    equal_seed += sign == other.sign(0, place);
  }
  for (const int n : {plus, equal_matrix, equal_seed}) CHECK(std::abs(n - 5000) < 250);  // five deviations
}

TEST_CASE_TEMPLATE("deep rewiring: the blocks that sorting puts first are pruned", Block, block_shape<1>,
                   block_shape<4>, block_shape<3, 5>) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const random_stream random(seed, random_purpose::test, 4);
    auto w = support::random_matrix<double, Block>(40, 37, 0.1 + 0.3 * random.uniform(0), seed);
    for (std::int64_t slot = 0; slot < w.pattern().blocks(); slot += 5)  // blocks just grown
      std::ranges::fill(w.at_slot(slot), 0.0);
    const policy p{.interval = 1, .steps = 20, .fraction = random.uniform(2), .seed = seed};
    const std::int64_t count = p.count(w.pattern(), 10);
    REQUIRE(std::abs(double(count) - p.fraction * double(w.pattern().blocks())) < 1);
    const train::matrix_at_update at{w, w, 10, seed % 3};
    REQUIRE(p.prune(at, count) == oracle(p, w, seed % 3, count));
  }
}

TEST_CASE("deep rewiring: not-a-number stays, and all blocks may be pruned") {
  using matrix = block_sparse_matrix<float, block_shape<1>>;
  matrix w(6, 6);
  w.fill(1);
  w(2, 2) = std::numeric_limits<float>::quiet_NaN();
  const train::matrix_at_update at{w, w, 10, 0};
  const auto pruned = policy{}.prune(at, 35);
  CHECK(std::ranges::count(pruned, 1) == 35);
  CHECK(pruned[14] == 0);
  CHECK(std::ranges::count(policy{}.prune(at, 36), 1) == 36);
}

TEST_CASE("deep rewiring: as many blocks grow as are pruned, none of them just pruned, and they are zero") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    using model = toy::model<float, block_shape<1>>;
    model m(seed, 0.3);
    const model before = m;
    train::training<model, train::adamw, policy> t(
        m, {}, {.interval = 5, .steps = 100, .fraction = 0.3, .seed = seed});
    const auto pruned = oracle(t.policy, before.up, "up", 43);
    const auto change = train::evolve(t.policy, 10, t.explored, t.model, t.gradients, t.state);
    pattern const &old = before.up.pattern(), &now = m.up.pattern();
    REQUIRE(change.replaced == 43);  // of 144, 43.2
    REQUIRE((now - old).blocks() == 43);
    old.for_each([&](int i, int j, std::int64_t slot) {
      REQUIRE((now.find(i, j) < 0) == bool(pruned[std::size_t(slot)]));
    });
    (now - old).for_each([&](int i, int j, std::int64_t) { REQUIRE(m.up(i, j) == 0); });
  }
}

template <class Training, class... Hooks>
void steps(context& ctx, Training& t, std::int64_t until, Hooks&&... hooks) {
  while (t.progress.step < until)
    train::train_step(
        ctx, t, {.rate = 0.01},
        [&](int) {
          return toy::accumulate(ctx, t.model, t.gradients, std::uint64_t(t.progress.step), 30,
                                 t.scaling.scale);
        },
        hooks...);
}

TEST_CASE_TEMPLATE("deep rewiring: with noise and L1, a resumed run has equal bits, with other threads", T,
                   float, bfloat16) {
  using model = toy::model<T>;
  using training = train::training<model, train::adamw, policy>;
  const policy p{.interval = 3, .steps = 100, .seed = 3};
  train::weight_noise noise(1e-3, train::constant{0.01}, 7);
  train::l1_penalty l1(1e-4);
  context ctx(1), three(3, oversubscribe::allowed);
  const scratch_folder folder;
  model a(3), b(4);
  training whole(a, {}, p), resumed(b, {}, p);
  steps(ctx, whole, 5, noise, l1);
  train::save(whole, folder / "run", {});
  steps(ctx, whole, 10, noise, l1);
  train::resume(resumed, train::checkpoint(folder / "run"));
  steps(three, resumed, 10, noise, l1);
  CHECK(toy::same_bits(whole, resumed));
}

TEST_CASE("weight noise: it has the deviation of its temperature and rate, and keeps padding zero") {
  using model = toy::model<float, block_shape<3, 5>>;
  context ctx(1);
  model m(3, 1);
  const model before = m;
  train::training t(m, train::sgd{.momentum = 0});
  t.group_parameters({{.names = "down", .rate = 0}});
  double sum = 0, squares = 0;
  std::int64_t count = 0;
  train::weight_noise noise(0.02, train::constant{0.25}, 7);
  const auto nothing = [](int) { return train::token_loss{1, 1}; };
  for (int i = 0; i < 20; ++i) {
    m.up = before.up;
    train::train_step(ctx, t, {.rate = 0.25}, nothing, noise);
    for (std::int64_t row = 0; row < m.hidden; ++row)
      for (std::int64_t col = 0; col < m.inputs; ++col) {
        const double added = double(m.up(row, col)) - double(before.up(row, col));
        sum += added;
        squares += added * added;
        ++count;
      }
  }
  CHECK(count == 20 * 24 * 20);
  CHECK(std::abs(sum / double(count)) < 0.005);  // five deviations of the mean
  CHECK(std::sqrt(squares / double(count)) == doctest::Approx(0.1).epsilon(0.04));
  CHECK(std::ranges::count(m.up, 0.0f) == m.up.size() - m.up.live());
  CHECK(toy::same_bits(m.bias, before.bias));
  CHECK(toy::same_bits(m.down, before.down));
}

TEST_CASE("deep rewiring: settings that make no sense are refused") {
  CHECK(error_of<option_error>([] { policy{.interval = 5, .steps = 0}.check(); }) ==
        "[deep_rewiring] interval is 5 but steps is 0, so that no update is due: set steps to those of the "
        "whole run");
  CHECK(error_of<option_error>([] { train::weight_noise(-1, train::constant{1}, 0); }) ==
        "[weight_noise] temperature is -1: it must be a number, at least 0");
}

}}  // namespace deep_rewiring_test
