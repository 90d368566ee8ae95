// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <cstdlib>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>

#include <tessera/statements/account.hpp>

namespace stages_test {

// How statements of one run are cut into stages: whichever tensors they read and write, a run gives the bits
// of its statements one by one.

using namespace tessera;
using support::filled;
using support::random_matrix;
using support::same_bits;

using block = block_shape<8>;

/// A small network with everything its statements touch.
template <class Block> struct network_of {
  std::int64_t tokens;
  block_sparse_matrix<float, Block> w1 = random_matrix<float, Block>(40, 33, 0.5, 1),
                                    w2 = random_matrix<float, Block>(33, 40, 0.5, 2), g1 = w1, g2 = w2;
  feature_vector<float> b = filled(feature_vector<float>(40), 3), gb = b;
  token_vector<float> r = filled(token_vector<float>(tokens), 4);
  panel_matrix<float> x = filled(panel_matrix<float>(33, tokens), 5), z = panel_matrix<float>(40, tokens),
                      h = z, y = x;

  bool operator==(network_of const& o) const {
    return same_bits(w1, o.w1) && same_bits(w2, o.w2) && same_bits(g1, o.g1) && same_bits(g2, o.g2) &&
           same_bits(b, o.b) && same_bits(gb, o.gb) && same_bits(r, o.r) && same_bits(x, o.x) &&
           same_bits(z, o.z) && same_bits(h, o.h) && same_bits(y, o.y);
  }
};

using network = network_of<block>;

/// Statements of one run, given together or one by one.
template <class... Statement> void run_both(context& ctx, bool together, Statement const&... statement) {
  if (together)
    run(ctx, statement...);
  else
    (run(ctx, statement), ...);
}

template <class Network = network, class Statements> void check_together(Statements statements) {
  for (const int threads : {1, 2, 3})
    for (const std::int64_t tokens : {1, 64, 70, 300}) {
      INFO(threads, " threads, ", tokens, " tokens");
      context ctx(threads, oversubscribe::allowed);
      Network one_by_one{tokens}, together{tokens};
      statements(ctx, one_by_one, false);
      statements(ctx, together, true);
      CHECK(one_by_one == together);
    }
}

/// Also for single elements, whose matrices are brought into another order before their products.
template <class Statements> void check_all_together(Statements statements) {
  check_together(statements);
  check_together<network_of<block_shape<1>>>(statements);
}

int stages(workload const& w) { return w.tasks.empty() ? 0 : w.tasks.back().stage + 1; }

TEST_CASE("stages: a chain of layers in one run equals one run for each statement") {
  check_all_together([](context& ctx, auto& n, bool together) {
    run_both(ctx, together, n.z = n.w1 * n.x + n.b, n.h = gelu(n.z), n.y = n.w2 * n.h + n.x,
             n.z = n.w1 * n.y);
  });
}

TEST_CASE("stages: a backward pass in one run equals one run for each statement") {
  check_all_together([](context& ctx, auto& n, bool together) {
    run_both(ctx, together, n.h = transposed(n.w2) * n.x, n.z = n.h * derivative<ops::gelu>(n.z),
             n.g1 += sampled(n.z * transposed(n.x)), n.g2 += sampled(n.x * transposed(n.h)),
             n.gb += sum_tokens(n.z), n.y = transposed(n.w1) * n.z, n.r = sum_features(n.y));
  });
}

TEST_CASE("stages: sums over tokens in one run with what makes and changes their operands") {
  check_all_together([](context& ctx, auto& n, bool together) {
    run_both(ctx, together, n.z = n.w1 * n.x, n.gb = sum_tokens(n.z), n.b += sum_tokens(n.z * n.h),
             n.x = transposed(n.w1) * n.z, n.h = n.h + n.gb, n.gb += sum_tokens(gelu(n.w1 * n.x) - n.z),
             n.z = n.z * 2, n.b += sum_tokens(n.z * sum_features(n.x)), n.h = n.h * n.b);
  });
}

TEST_CASE("stages: write after read and read after write are kept apart") {
  check_all_together([](context& ctx, auto& n, bool together) {
    run_both(ctx, together, n.z = n.w1 * n.x, n.x = relu(n.x) * n.r, n.r = mean_features(n.x),
             n.x = n.x - n.r, n.b = n.b * 2, n.z = n.z + n.b, n.b += sum_tokens(n.z), n.z = n.z * n.b,
             n.w1 = n.w1 * 0.5, n.h = n.w1 * n.x, n.w1 = n.w1 - 0.1 * n.w1);
  });
}

TEST_CASE("stages: a statement computed by several steps stays together behind a barrier") {
  // Only the last step of the second statement reads what the first one sums over tokens.
  check_together([](context& ctx, network& n, bool together) {
    run_both(ctx, together, n.gb += sum_tokens(n.z), n.h = n.w1 * gelu(n.w2 * n.z) + n.gb,
             n.r = mean_features(n.h * n.h), n.z = (n.h - n.r) * n.gb);
  });
}

TEST_CASE("stages: several sampled products may stand in one run") {
  check_together([](context& ctx, network& n, bool together) {
    run_both(ctx, together, n.g1 = sampled(n.z * transposed(n.x)), n.g2 += sampled(n.x * transposed(n.z)),
             n.z = relu(n.z + 1), n.g1 += sampled(n.z * transposed(n.y)));
  });
}

TEST_CASE("stages: sampled products in several ranges of columns may stand between other statements") {
  const std::int64_t tokens = 64 * 3 + 5, rows = 1100, cols = 2100;  // two panels of 1024 features fit the L2
  const auto a = filled(panel_matrix<float>(rows, tokens), 1),
             b = filled(panel_matrix<float>(cols, tokens), 2);
  // With few blocks c is computed transposed, in two ranges of its rows, with more in three of its columns.
  for (auto const& [density, ranges] : {std::pair(0.01, 2), std::pair(0.05, 3)}) {
    auto c = random_matrix<float, block>(rows, cols, density, 3), c2 = c, d = c, d2 = c;
    panel_matrix<float> y = a, y2 = a;
    context one(1), three(3, oversubscribe::allowed);
    REQUIRE(account(one, c = sampled(a * transposed(b))).tasks.size() == std::size_t(ranges));
    run(three, y = y * 2, c = sampled(a * transposed(b)), d += sampled(y * transposed(b)), y += a);
    run(one, y2 = y2 * 2);
    run(one, c2 = sampled(a * transposed(b)));
    run(one, d2 += sampled(y2 * transposed(b)));
    run(one, y2 += a);
    CHECK(same_bits(c, c2));
    CHECK(same_bits(d, d2));
    CHECK(same_bits(y, y2));
  }
}

TEST_CASE("stages: what treats tokens alike is one stage, gradients stand side by side") {
  context ctx(1);
  network n{200};
  CHECK(stages(account(ctx, n.z = n.w1 * n.x + n.b, n.h = gelu(n.z), n.y = n.w2 * n.h)) == 1);
  CHECK(stages(account(ctx, n.g1 = sampled(n.z * transposed(n.x)), n.b = n.b * 2)) ==
        stages(account(ctx, n.g1 = sampled(n.z * transposed(n.x)))));
}

TEST_CASE("stages: sums over tokens travel with their panels, and one barrier stands before what adds them") {
  context ctx(1);
  network n{200};
  const workload w = account(ctx, n.z = relu(n.h), n.gb += sum_tokens(n.z), n.y = transposed(n.w1) * n.z,
                             n.b = sum_tokens(n.h * n.z), n.z = n.z * n.r);
  CHECK(stages(w) == 3);
  for (task const& t : w.tasks) {
    CHECK((t.kind == "order") == (t.stage == 0));  // the blocks of w1 in the order of its transpose
    CHECK((t.kind == "sum of rows") == (t.stage == 2));
  }
  // A statement that needs the sums comes behind them, and one that they need before.
  CHECK(stages(account(ctx, n.gb += sum_tokens(n.z), n.h = n.z + n.gb)) == 3);
  CHECK(stages(account(ctx, n.h = n.z + n.gb, n.gb += sum_tokens(n.h), n.x = relu(n.x))) == 2);
  CHECK(stages(account(ctx, n.gb = n.gb * 2, n.h = n.z + n.gb, n.gb += sum_tokens(n.h))) == 3);
}

TEST_CASE("stages: sums over tokens of few panels are cut into tiles for all threads") {
  network n{64};
  context eight(8, oversubscribe::allowed);
  CHECK(account(eight, n.gb += sum_tokens(n.z)).tasks.size() == 3 + 1);  // 40 features in granules of 16
}

TEST_CASE("stages: matrices of single elements are ordered before statements that are carried together") {
  context one(1), three(3, oversubscribe::allowed);
  network_of<block_shape<1>> n{4 * 64};
  const workload w = account(one, n.z = relu(n.h), n.y = n.w2 * gelu(n.w1 * n.x) + transposed(n.w1) * n.z,
                             n.r = sum_features(n.y));
  CHECK(stages(w) == 2);
  for (task const& t : w.tasks) CHECK((t.kind == "order") == (t.stage == 0));
  CHECK(w.total.multiplies ==
        account(three, n.y = n.w2 * gelu(n.w1 * n.x) + transposed(n.w1) * n.z).total.multiplies);
  // What the same run changes is ordered behind that.
  CHECK(stages(account(one, n.w1 = n.w1 * 2, n.z = n.w1 * n.x)) == 3);
  // Few panels are not worth it.
  n = {3 * 64};
  CHECK(stages(account(one, n.z = n.w1 * n.x, n.y = n.w2 * n.z)) == 1);
}

TEST_CASE("stages: few panels are cut into tiles for all threads") {
  network n{64};
  context one(1), eight(8, oversubscribe::allowed);
  CHECK(account(one, n.z = n.w1 * n.x).tasks.size() == 1);
  CHECK(account(eight, n.z = n.w1 * n.x).tasks.size() == 5);  // its block rows
  CHECK(account(eight, n.z = n.w1 * n.x).total.multiplies == account(one, n.z = n.w1 * n.x).total.multiplies);
}

TEST_CASE("stages: a panel is cut into tiles although the operand of its product is computed before") {
  network n{64};
  context one(1), eight(8, oversubscribe::allowed);
  CHECK(stages(account(one, n.y = n.w2 * gelu(n.z))) == 1);
  const workload w = account(eight, n.y = n.w2 * gelu(n.z));
  CHECK(stages(w) == 2);
  CHECK(w.tasks.size() == 3 + 5);  // 40 features in granules of 16, and block rows
}

TEST_CASE("stages: panels of a product alone are cut finer, so that threads of unequal speed end together") {
  context two(2, oversubscribe::allowed);
  const auto tasks = [&]<class Block>(Block, int size, int panels) {
    const auto w = random_matrix<float, Block>(size, size, 0.5, 1);
    panel_matrix<float> x(size, panels * 64), y = x;
    return account(two, y = w * x + x).tasks.size();
  };
  CHECK(tasks(block{}, 192, 16) == 16 * 4);
  CHECK(tasks(block{}, 192, 40) == 40 * 2);
  CHECK(tasks(block{}, 192, 64) == 64);
  CHECK(tasks(block{}, 40, 16) == 16);                       // too small
  CHECK(tasks(block{}, 1032, 16) == 16);                     // too deep: walked in chunks
  CHECK(tasks(block_shape<1>{}, 192, 16) == 16 + 192 / 64);  // ordered for whole panels
  // Whole ones are carried on.
  const auto w = random_matrix<float, block>(192, 192, 0.5, 1);
  panel_matrix<float> x(192, 16 * 64), y = x, z = x;
  CHECK(stages(account(two, y = w * x, z = relu(y))) == 1);
}

TEST_CASE_TEMPLATE("stages: tiles of lines have about the same number of blocks", Block, block_shape<8>,
                   block_shape<1>) {
  // Row i stores i + 1 of 64 blocks; the second half of the rows has three quarters of all.
  const int size = 64 * Block::rows;
  const pattern lower = band_pattern(64, 64, 63, 0);
  block_sparse_matrix<float, Block> g(size, size, lower);
  const auto a = filled(panel_matrix<float>(size, 64), 1), b = filled(panel_matrix<float>(size, 64), 2);
  context two(2, oversubscribe::allowed);
  const workload w = account(two, g = sampled(a * transposed(b)));
  REQUIRE(w.tasks.size() == 2);
  for (task const& t : w.tasks)
    CHECK(std::abs(2 * t.multiplies - w.total.multiplies) <= 64 * Block::elements * 64);
}

TEST_CASE_TEMPLATE("stages: any number of threads gives the same bits where one line has most blocks", Block,
                   block_shape<16>, block_shape<8>, block_shape<1>) {
  constexpr int lines = 40, size = lines * Block::rows;
  std::vector<char> mask;
  for (int row = 0; row < lines; ++row)
    for (int col = 0; col < lines; ++col)
      mask.push_back(row == 7 || col == 9 || (row == col && row % 3 == 0));
  const pattern arrow = pattern_from_mask(lines, lines, mask);
  block_sparse_matrix<float, Block> w(size, size, arrow);
  w.generate([](auto row, auto col) { return float(row % 7) - float(col % 5) * 0.25f; });
  const auto x = filled(panel_matrix<float>(size, 300), 1), dy = filled(panel_matrix<float>(size, 300), 2);
  const auto results = [&](int threads) {
    context ctx(threads, oversubscribe::allowed);
    panel_matrix<float> y(size, 300), dx = y;
    block_sparse_matrix<float, Block> g(size, size, arrow), ww(size, size, product_pattern(arrow, arrow));
    run(ctx, y = w * x, dx = transposed(w) * dy, g = sampled(dy * transposed(x)), ww = w * w);
    return std::tuple(y, dx, g, ww);
  };
  const auto [y, dx, g, ww] = results(1);
  for (const int threads : {2, 3, 8, 60}) {
    INFO(threads, " threads");
    const auto [y2, dx2, g2, ww2] = results(threads);
    CHECK(same_bits(y, y2));
    CHECK(same_bits(dx, dx2));
    CHECK(same_bits(g, g2));
    CHECK(same_bits(ww, ww2));
  }
}

TEST_CASE("stages: a local value used behind a statement that mixes tokens is refused") {
  context ctx(1);
  network n{100};
  const auto h = local(gelu(n.w1 * n.x));
  const auto before = n.z;
  CHECK_THROWS_AS(run(ctx, n.z = h * 2, n.gb += sum_tokens(n.z), n.h = h + n.gb), error);
  CHECK(same_bits(n.z, before));
  const auto again = local(gelu(n.w1 * n.x));
  CHECK_THROWS_AS(run(ctx, n.z = again * 2, n.g1 = sampled(n.z * transposed(n.x)), n.h = again * 3), error);
  CHECK(same_bits(n.z, before));
}

TEST_CASE("stages: a local value is computed where it is used first") {
  check_together([](context& ctx, network& n, bool together) {
    const auto h = local(gelu(n.w1 * n.x));
    run_both(ctx, together, n.gb += sum_tokens(n.z), n.h = h + n.gb, n.z = h * 2);
  });
}

TEST_CASE("stages: statements of another size behind a local value are computed whole, or refused") {
  for (const int threads : {1, 2, 3}) {
    context ctx(threads, oversubscribe::allowed);
    const auto x = filled(panel_matrix<float>(16, 64), 1), z = filled(panel_matrix<float>(16, 640), 2);
    panel_matrix<float> y(16, 64), u(16, 640), exact(16, 640);
    feature_vector<float> b(5000);
    run(ctx, exact = relu(z));
    const auto m = local(max_features(x));
    run(ctx, in_one_pass(m), u = relu(z), b = 3);
    CHECK(same_bits(u, exact));
    CHECK(b[4999] == 3);
    const auto again = local(max_features(x));
    CHECK_THROWS_AS(run(ctx, in_one_pass(again), u = relu(z), y = x - again), error);
  }
}

}  // namespace stages_test
