// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>

#include <tessera/statements/account.hpp>

namespace account_test {

// Totals and tiles of the account against closed forms. 150 tokens are two panels and a part of a third.

using namespace tessera;
using support::random_matrix;

constexpr std::int64_t tokens = 150;

cost sum_of_tasks(workload const& w) {
  cost sum;
  for (task const& t : w.tasks) sum += t;
  return sum;
}

/// Each tile of each step is listed once, and their sum is the total.
bool complete(workload const& w) {
  std::set<std::pair<int, int>> seen;
  for (task const& t : w.tasks) seen.insert({t.step, t.tile});
  return seen.size() == w.tasks.size() && sum_of_tasks(w) == w.total;
}

/// Distinct block rows that a pattern's blocks lie in.
std::int64_t used_columns(pattern const& p) {
  std::int64_t used = 0;
  for (int j = 0; j < p.block_cols(); ++j) used += p.col_count(j) > 0;
  return used;
}

/// Features that the blocks of lines [first, last) of a pattern are multiplied by, of `features` in blocks of
/// `side`.
std::int64_t features_read(pattern const& p, std::int64_t features, int side, int first, int last) {
  std::vector<char> used(std::size_t(p.block_cols()), 0);
  for (int i = first; i < last; ++i)
    for (const int j : p.row(i)) used[std::size_t(j)] = 1;
  std::int64_t sum = 0;
  for (int j = 0; j < p.block_cols(); ++j)
    if (used[std::size_t(j)]) sum += std::min<std::int64_t>(features, (j + 1) * side) - j * side;
  return sum;
}
std::int64_t features_read(pattern const& p, std::int64_t features, int side) {
  return features_read(p, features, side, 0, p.block_rows());
}

TEST_CASE_TEMPLATE_DEFINE("account: products read weights and what they are multiplied by, panel by panel",
                          Types, products) {
  using T = typename Types::element;
  constexpr std::int64_t size = sizeof(T);
  for (const double density : {0.0, 0.4, 1.0}) {
    const auto w = random_matrix<T, typename Types::block>(70, 33, density, 1);
    panel_matrix<T> x(33, tokens), y(70, tokens);
    feature_vector<T> b(70);
    token_vector<T> r(tokens);
    context one(1);
    const std::int64_t of_x = features_read(w.pattern(), 33, Types::block::cols),
                       of_y = features_read(transposed(w.pattern()), 70, Types::block::rows);

    workload all = account(one, y = w * x);
    CHECK(complete(all));
    CHECK(all.tasks.size() == 3);
    CHECK(all.total == cost{(3 * w.size() + of_x * tokens) * size, 70 * tokens * size, w.size() * tokens});
    CHECK(all.tasks[2].bytes_written == 70 * (tokens - 128) * size);
    CHECK(all.tasks[2].multiplies == w.size() * (tokens - 128));
    CHECK(all.tasks[2].kind == "product");

    all = account(one, x = transposed(w) * y);
    CHECK(complete(all));
    // Blocks are copied once into the order of their transpose; of a few panels single elements are not.
    const std::int64_t copied = Types::block::elements == 1 && !w.pattern().is_dense() ? 0 : w.size();
    CHECK(all.total == cost{(3 * w.size() + copied + of_y * tokens) * size, (copied + 33 * tokens) * size,
                            w.size() * tokens});

    panel_matrix<T> one_x(33, 1), one_y(70, 1);  // weights are read once, where they stand
    all = account(one, one_x = transposed(w) * one_y);
    CHECK(complete(all));
    if (Types::block::elements == 64) CHECK(all.total == cost{(w.size() + of_y) * size, 33 * size, w.size()});

    all = account(one, y += relu(w * x + b) * r + y);
    CHECK(all.total == cost{(3 * w.size() + of_x * tokens + 3 * 70 + tokens + 70 * tokens) * size,
                            70 * tokens * size, w.size() * tokens});
  }
}
TEST_CASE_TEMPLATE_APPLY(products, support::fewer);

TEST_CASE("account: a matrix of single elements is copied once where many panels follow") {
  const auto w = random_matrix<float, block_shape<1>>(140, 33, 0.4, 1);
  panel_matrix<float> x(33, 300), y(140, 300);
  for (const int threads : {1, 4}) {
    context ctx(threads, oversubscribe::allowed);
    const workload all = account(ctx, y = w * x);
    CHECK(complete(all));
    const std::int64_t parts = threads == 1 ? 1 : 3;  // groups of 64 rows
    CHECK(all.tasks.size() == std::size_t(3 + 5 * parts));
    CHECK(all.total ==
          cost{(6 * w.size() + parts * 33 * 300) * 4, (w.size() + 140 * 300) * 4, w.size() * 300});
  }
}

TEST_CASE("account: tiles of part of a panel share its weights and results") {
  const auto w = random_matrix<float, block_shape<8>>(70, 33, 0.4, 1);
  panel_matrix<float> x(33, 50), y(70, 50);
  context four(4, oversubscribe::allowed);
  const workload all = account(four, y = w * x);
  CHECK(complete(all));
  CHECK(all.tasks.size() == 8);
  std::int64_t of_x = 0;
  for (int part = 0; part < 8; ++part) {
    const range lines = eval::index_of(w.pattern()).lines_of_part(part, 8);
    of_x += features_read(w.pattern(), 33, 8, lines.first, lines.last);
  }
  CHECK(all.total == cost{(w.size() + of_x * 50) * 4, 70 * 50 * 4, w.size() * 50});
}

TEST_CASE_TEMPLATE_DEFINE("account: a sampled product reads both activations and writes the stored blocks",
                          Types, sampled_products) {
  using T = typename Types::element;
  using Block = typename Types::block;
  constexpr std::int64_t size = sizeof(T);
  auto g = random_matrix<T, Block>(70, 33, 0.4, 1);
  panel_matrix<T> a(70, tokens), b(33, tokens);
  context one(1);
  const workload set = account(one, g = sampled(a * transposed(b)));
  const workload added = account(one, g += sampled(a * transposed(b)));
  CHECK(complete(set));
  CHECK(set.total == cost{(70 + 33) * tokens * size, g.size() * size, g.size() * tokens});
  CHECK(added.total ==
        cost{set.total.bytes_read + g.size() * size, set.total.bytes_written, set.total.multiplies});
}
TEST_CASE_TEMPLATE_APPLY(sampled_products, support::fewer);

TEST_CASE("account: ranges of columns read the first operand once each, ranges of lines the second") {
  auto g = random_matrix<float, block_shape<8>>(600, 2100, 0.1, 1);
  panel_matrix<float> a(600, tokens), b(2100, tokens);
  for (const int threads : {1, 2, 8}) {
    context ctx(threads, oversubscribe::allowed);
    const workload all = account(ctx, g = sampled(a * transposed(b)));
    CHECK(complete(all));
    const std::int64_t lines = threads == 1 ? 1 : 2, columns = threads == 8 ? 4 : 3;  // of 256 rows at least
    CHECK(all.tasks.size() == std::size_t(lines * columns));
    CHECK(all.total == cost{(columns * 600 + lines * 2100) * tokens * 4, g.size() * 4, g.size() * tokens});
  }
}

TEST_CASE("account: elementwise statements count each operand once") {
  panel_matrix<double> x(33, tokens), y(33, tokens);
  feature_vector<double> b(33);
  token_vector<double> r(tokens);
  context one(1);
  workload all = account(one, y = x * x + gelu(x) * r + b * y);
  CHECK(complete(all));
  CHECK(all.total == cost{(2 * 33 * tokens + tokens + 3 * 33) * 8, 33 * tokens * 8, 0});
  all = account(one, y = uniform(1) * feature_number());
  CHECK(all.total == cost{0, 33 * tokens * 8, 0});

  block_sparse_matrix<double, block_shape<8>> m(100, 60), n(100, 60);
  all = account(one, m = m * 2 + n);
  CHECK(complete(all));
  CHECK(std::int64_t(all.tasks.size()) == ceil_div(m.size(), eval::values_a_tile));
  CHECK(all.total == cost{2 * m.size() * 8, m.size() * 8, 0});
}

TEST_CASE("account: reductions read their operands and write their sums") {
  panel_matrix<float> x(130, tokens), y(130, tokens);
  token_vector<float> r(tokens);
  feature_vector<float> b(130);
  context one(1);
  workload all = account(one, r = sum_features(x * y));
  CHECK(complete(all));
  CHECK(all.total == cost{2 * 130 * tokens * 4, tokens * 4, 0});
  all = account(one, b = sum_tokens(x * r));
  CHECK(complete(all));
  // Each of 3 panels leaves a row of sums, which a last tile adds.
  CHECK(all.tasks.size() == 4);
  CHECK(all.total == cost{(130 * tokens + tokens + 3 * 130) * 4, (3 * 130 + 130) * 4, 0});
  CHECK(account(one, b += sum_tokens(x * r)).total.bytes_read == all.total.bytes_read + 130 * 4);
  // The sum is a step of its own, in the worker's memory.
  all = account(one, y = x - sum_features(x));
  CHECK(all.total == cost{(2 * 130 * tokens + tokens) * 4, (130 * tokens + tokens) * 4, 0});
}

TEST_CASE("account: a product of matrices counts the pairs of blocks that meet") {
  const auto a = random_matrix<float, block_shape<4, 8>>(40, 64, 0.3, 1);
  const auto b = random_matrix<float, block_shape<8, 4>>(64, 48, 0.3, 2);
  block_sparse_matrix<float, block_shape<4>> c(40, 48);
  std::int64_t pairs = 0;
  a.pattern().for_each([&](int, int k, std::int64_t) { pairs += b.pattern().row_count(k); });
  std::int64_t read = 0;
  for (int k = 0; k < 8; ++k)
    if (a.pattern().col_count(k) > 0) read += b.pattern().row_count(k);
  context one(1);
  const workload all = account(one, c = a * b);
  CHECK(complete(all));
  CHECK(all.total.multiplies == pairs * 4 * 8 * 4);
  CHECK(all.total.bytes_written == c.size() * 4);
  REQUIRE(used_columns(a.pattern()) == 8);
  // A block of b is read once by each tile that needs it: with one block row to a tile, once for each pair.
  CHECK(all.tasks.size() == 8);
  CHECK(all.total.bytes_read >= (a.size() + read * 32) * 4);
  CHECK(all.total.bytes_read <= (a.size() + pairs * 32) * 4);
  auto d = c;
  d.set_pattern(band_pattern(10, 12, 0, 0));
  std::int64_t sampled_pairs = 0;
  a.pattern().for_each([&](int i, int k, std::int64_t) { sampled_pairs += b.pattern().find(k, i) >= 0; });
  CHECK(account(one, d = sampled(a * b)).total.multiplies == sampled_pairs * 4 * 8 * 4);
}

TEST_CASE("account: what run refuses is refused") {
  {
    panel_matrix<float> x(20, 70);
    for (const int workers : {-1, 0, 600'000'000})
      CHECK_THROWS_AS(static_cast<void>(account(machine{workers}, x = x + 1)), option_error);
  }
  context one(1);
  block_sparse_matrix<float, block_shape<8>> w(16, 16);
  panel_matrix<float> x(16, 10);
  CHECK_THROWS_AS(account(one, x = w * x), shape_error);
}

}  // namespace account_test
