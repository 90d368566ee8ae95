// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/types.hpp>
#include <train/sparsity/small_mlp.hpp>

#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/policies/sparse_momentum.hpp>

namespace sparse_momentum_test { namespace {

using namespace tessera;
using train::growth_share, train::sparse_momentum;

template <class Model> using training_of = train::training<Model, train::sgd, sparse_momentum>;

template <class T, class Block>
train::step_report step(context& ctx, training_of<small_mlp::model<T, Block>>& t, double rate,
                        std::uint64_t key) {
  return train::train_step(ctx, t, {.rate = rate}, [&](int) {
    return small_mlp::accumulate(ctx, t.model, t.gradients, t.weight_gradients(), key);
  });
}

TEST_CASE("sparse momentum: the steps before an update are averaged, each window from zero") {
  const sparse_momentum policy{.interval = 10, .steps = 35, .averaged = 3};
  std::vector<int> counted;
  for (int done = 0; done <= 40; ++done)
    if (policy.average_share(done)) counted.push_back(done);
  CHECK(counted == std::vector<int>{8, 9, 10, 18, 19, 20, 28, 29, 30});
  CHECK(policy.average_share(9) == 0.9);
  CHECK(!sparse_momentum{.interval = 0, .steps = 35}.average_share(10));
}

TEST_CASE("sparse momentum: growth is shared out by the averages, and what has no room goes to the others") {
  const sparse_momentum policy;
  const auto shares = [&](std::vector<growth_share> all) { return policy.share_out(all); };
  using numbers = std::vector<std::int64_t>;
  CHECK(shares({{10, 100, 5, 3.0}, {10, 100, 5, 1.0}}) ==
        numbers{8, 2});  // of 7.5 and 2.5: the first of equals
  CHECK(shares({{10, 100, 6, 3.0}, {10, 100, 6, 1.0}}) == numbers{9, 3});
  CHECK(shares({{10, 4, 6, 3.0}, {10, 100, 6, 1.0}}) == numbers{4, 8});
  CHECK(shares({{10, 4, 6, 3.0}, {10, 5, 6, 1.0}, {9, 50, 0, 0.5}}) == numbers{4, 5, 3});
  CHECK(shares({{10, 100, 5, 0.0}, {10, 100, 7, 0.0}}) == numbers{5, 7});
  CHECK(shares({{10, 100, 0, 1.0}}) == numbers{0});
  CHECK(shares({{10, 2, 0, 9.0}, {10, 100, 6, 1.0}}) == numbers{1, 5});  // none becomes dense
  CHECK(shares({{10, 1, 0, 9.0}, {10, 2, 2, 1.0}}) == numbers{0, 2});
}

TEST_CASE("sparse momentum: a matrix that is nearly dense loses no more blocks than it can grow") {
  const sparse_momentum policy{.interval = 1, .steps = 100};
  CHECK(policy.count(random_pattern(10, 10, 0.9, 1), 0) == 10);
  CHECK(policy.count(random_pattern(10, 10, 0.4, 1), 0) == 20);
  CHECK(policy.count(random_pattern(10, 10, 0.4, 1), 50) == 10);
}

TEST_CASE_TEMPLATE_DEFINE("sparse momentum: an update is that of the averages of whole gradients, sorted",
                          Types, oracle) {
  using T = typename Types::element;
  using block = typename Types::block;
  context ctx(1);
  auto m = small_mlp::make<T, block>(3, 0.3);
  training_of<small_mlp::model<T, block>> t(m, {},
                                            {.interval = 4, .steps = 9, .fraction = 0.5, .averaged = 3});
  const auto before = m;
  const auto signed_norm = [](std::span<double const> values) {
    const double norm = small_mlp::sum_of_magnitudes(values);
    return std::accumulate(values.begin(), values.end(), 0.0) < 0 ? -norm : norm;
  };
  std::vector<double> average[2];
  std::int64_t replaced = 0;
  for (std::uint64_t key = 1; key <= 4; ++key) {
    const auto whole = small_mlp::dense_gradients(ctx, m, key);
    for (int w = 0; w < 2; ++w) {
      pattern const& grid = w == 0 ? m.up.weight.pattern() : m.down.weight.pattern();
      const auto now = small_mlp::scores<block>(whole[std::size_t(w)], grid, signed_norm);
      average[w].resize(now.size());
      if (key >= 2)  // the first step is not averaged
        for (std::size_t i = 0; i < now.size(); ++i) average[w][i] = 0.9 * average[w][i] + 0.1 * now[i];
    }
    const auto report = step<T, block>(ctx, t, 0, key);  // the weights stay
    replaced += report.changed.replaced;
    CHECK(report.changed.stored ==
          (key == 4 ? before.up.weight.pattern().blocks() + before.down.weight.pattern().blocks() : 0));
  }
  std::vector<growth_share> shares;
  std::vector<std::vector<double>> growth(2);
  pattern const* const old[] = {&before.up.weight.pattern(), &before.down.weight.pattern()};
  pattern const* const now[] = {&m.up.weight.pattern(), &m.down.weight.pattern()};
  for (int w = 0; w < 2; ++w) {
    double sum = 0;
    for (std::size_t i = 0; i < average[w].size(); ++i) {
      growth[std::size_t(w)].push_back(std::abs(average[w][i]));
      const auto width = std::size_t(old[w]->block_cols());
      if (old[w]->find(int(i / width), int(i % width)) >= 0) sum += std::abs(average[w][i]);
    }
    const std::int64_t blocks = old[w]->blocks();
    shares.push_back(
        {blocks, std::ssize(average[w]) - blocks, t.policy.count(*old[w], 4), sum / double(blocks)});
  }
  const auto grown = t.policy.share_out(shares);
  CHECK(grown[0] + grown[1] == replaced);
  CHECK(grown[0] != shares[0].pruned);  // something moved from one matrix to the other
  for (int w = 0; w < 2; ++w) {
    CHECK((*now[w] - *old[w]).blocks() == grown[std::size_t(w)]);
    CHECK((*old[w] - *now[w]).blocks() == shares[std::size_t(w)].pruned);
    double least = 1e300, most = 0;  // of blocks that grew, and of blocks that are still absent
    for (std::size_t i = 0; i < average[w].size(); ++i) {
      const int row = int(i) / old[w]->block_cols(), col = int(i) % old[w]->block_cols();
      const double score = growth[std::size_t(w)][i];
      if (old[w]->find(row, col) >= 0) continue;
      if (now[w]->find(row, col) >= 0)
        least = std::min(least, score);
      else
        most = std::max(most, score);
    }
    CHECK(least >= most * (1 - 1e-5));
  }
}
TEST_CASE_TEMPLATE_INVOKE(oracle, support::types<float, block_shape<1>>,
                          support::types<double, block_shape<4>>);

TEST_CASE("sparse momentum: the bits are the same for any number of threads, and after a resumption") {
  using block = block_shape<4>;
  using training = training_of<small_mlp::model<float, block>>;
  const scratch_folder scratch;
  const sparse_momentum policy{.interval = 4, .steps = 12, .averaged = 3};
  const auto final_model = [&](int threads, int resumed_after) {
    context ctx(threads, oversubscribe::allowed);
    auto m = small_mlp::make<float, block>(resumed_after < 0 ? 1 : 7, 0.2);
    training t(m, {}, policy);
    if (resumed_after >= 0) train::resume(t, train::checkpoint(scratch / std::to_string(resumed_after)));
    while (t.progress.step < 12) {
      if (resumed_after < 0) train::save(t, scratch / std::to_string(t.progress.step), io::json());
      step<float, block>(ctx, t, 0.01, std::uint64_t(t.progress.step));
    }
    return m;
  };
  const auto want = final_model(1, -1);
  for (const auto& [threads, after] : {std::pair(3, -1), {1, 3}, {2, 6}, {1, 8}}) {
    const auto got = final_model(threads, after);
    CHECK(got.up.weight.pattern() == want.up.weight.pattern());
    CHECK(std::equal(got.up.weight.begin(), got.up.weight.end(), want.up.weight.begin()));
    CHECK(std::equal(got.down.weight.begin(), got.down.weight.end(), want.down.weight.begin()));
  }
}

TEST_CASE("sparse momentum: settings that make no sense are refused") {
  const auto said = [](sparse_momentum policy) { return error_of<option_error>([&] { policy.check(); }); };
  CHECK(said({.interval = 2, .steps = 10, .momentum = 1}) ==
        "[sparse_momentum] momentum is 1: it must be in [0, 1)");
  CHECK(said({.interval = 2, .steps = 10, .averaged = 0}) ==
        "[sparse_momentum] averaged is 0: it must be a number of steps, at least the one of the update");
  CHECK(said({.interval = 2}) ==
        "[sparse_momentum] interval is 2 but steps is 0, so that no update is due: set "
        "steps to those of the whole run");
}

}}  // namespace sparse_momentum_test
