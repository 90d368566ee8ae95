// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>

#include <tessera/statements/account.hpp>

namespace phase_test {

// An executor that takes whole phases: it sees what each task reads, writes and multiplies before it runs
// any.

using namespace tessera;
using support::filled;
using support::random_matrix;
using support::same_bits;

/// Runs the dearest tasks first, each as another of three workers.
struct dearest_first {
  std::vector<std::vector<std::int64_t>> multiplies;  // of each phase, in the order of the runs

  int concurrency() const { return 3; }
  void run(int count, exec::body_ref body) {
    for (int i = 0; i < count; ++i) body(i);
  }
  void run(array_ref<exec::phase> phases) {
    for (exec::phase const& tasks : phases) run_one(tasks);
  }
  void run_one(exec::phase const& tasks) {
    auto& costs = multiplies.emplace_back();
    std::vector<int> order;
    std::vector<std::int64_t> all;
    for (int task = 0; task < tasks.tasks(); ++task) {
      all.push_back(cost_of(tasks.describe(task)).multiplies);
      order.push_back(task);
    }
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return std::pair(-all[std::size_t(a)], a) < std::pair(-all[std::size_t(b)], b);
    });
    for (const int task : order) {
      tasks.compute(task, task % 3);
      costs.push_back(all[std::size_t(task)]);
    }
  }
};
static_assert(exec::executor<dearest_first> && exec::phase_executor<dearest_first>);
static_assert(!exec::phase_executor<exec::thread_pool>);

TEST_CASE("phase: an executor sees the cost of tasks before it runs them, and the bits are the same") {
  using block = block_shape<8>;
  const auto w = random_matrix<float, block>(70, 33, 0.4, 1);
  const auto x = filled(panel_matrix<float>(33, 150), 2);
  const auto compute = [&](context& ctx) {
    panel_matrix<float> y(70, 150);
    feature_vector<float> b(70);
    run(ctx, y = gelu(w * x) - 1, b = sum_tokens(y));
    return std::pair(y, b);
  };
  dearest_first mine;
  context ctx(mine), one(1);
  const auto [y, b] = compute(ctx);
  const auto [y1, b1] = compute(one);
  CHECK(same_bits(y, y1));
  CHECK(same_bits(b, b1));
  REQUIRE(mine.multiplies.size() == 2);
  REQUIRE(mine.multiplies[0].size() == 3);  // panels of 64, 64 and 22 tokens
  CHECK(mine.multiplies[0].front() == w.size() * 64);
  CHECK(mine.multiplies[0].back() == w.size() * 22);
}

}  // namespace phase_test
