// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <support/evaluation.hpp>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/statements/embedding.hpp>
#include <tessera/statements/run.hpp>

namespace embedding_test {

using namespace tessera;

std::vector<std::int32_t> some_ids(std::int64_t count, std::uint64_t end) {
  const random_stream random(1, random_purpose::test);
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(std::int32_t(random.below(std::uint64_t(i), end)));
  return ids;
}

TEST_CASE_TEMPLATE_DEFINE("embedding: gathered rows are the table's, and rows can be added", Types, gather) {
  using T = typename Types::element;
  context ctx(2, oversubscribe::allowed);
  for (const std::int64_t tokens : {1, 64, 150}) {
    block_sparse_matrix<T, typename Types::block> table(45, 37);
    support::fill(table, 1);
    const auto ids = some_ids(tokens, 45);
    panel_matrix<T> y(37, tokens);
    support::fill(y, 2);
    run(ctx, gather_rows(y, table, ids));
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t f = 0; f < 37; ++f) REQUIRE(y(f, t) == table(ids[std::size_t(t)], f));
    run(ctx, add_rows(y, table, ids));
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t f = 0; f < 37; ++f) REQUIRE(y(f, t) == 2 * table(ids[std::size_t(t)], f));
  }
}
TEST_CASE_TEMPLATE_APPLY(gather, support::few);

TEST_CASE_TEMPLATE_DEFINE("embedding: scattered tokens are summed into their rows in order", Types, scatter) {
  using T = typename Types::element;
  context ctx(2, oversubscribe::allowed);
  block_sparse_matrix<T, typename Types::block> table(9, 37);
  support::fill(table, 1);
  const auto before = support::to_reference(table);
  const auto ids = some_ids(150, 9);
  panel_matrix<T> y(37, 150);
  support::fill(y, 2);
  run(ctx, scatter_rows(table, y, ids));
  for (std::int64_t f = 0; f < 37; ++f)
    for (std::int64_t row = 0; row < 9; ++row) {
      T sum = T(before(row, f));
      for (std::int64_t t = 0; t < 150; ++t)
        if (ids[std::size_t(t)] == row) sum += y(f, t);
      REQUIRE(table(row, f) == sum);
    }
}
TEST_CASE_TEMPLATE_APPLY(scatter, support::few);

template <class E, class Value, class Block> void check_narrow_rows(std::int64_t tokens, context& ctx) {
  const auto table = support::filled(block_sparse_matrix<Value, Block>(45, 37), 1);
  const auto before = support::filled(panel_matrix<E>(37, tokens), 2);
  const auto ids = some_ids(tokens, 45);
  auto gathered = before, added = before;
  run(ctx, gather_rows(gathered, table, ids), add_rows(added, table, ids));
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t f = 0; f < 37; ++f) {
      const float row = table(ids[std::size_t(t)], f);
      REQUIRE(gathered(f, t) == E(row));
      REQUIRE(added(f, t) == E(before(f, t) + row));
    }
  CHECK(support::padding_is_zero(gathered));
  CHECK(support::padding_is_zero(added));
}

TEST_CASE_TEMPLATE("embedding: rows go to tokens of narrow elements rounded once, and back as sums in float",
                   Block, block_shape<16>, block_shape<5, 3>) {
  for (const int threads : {1, 3}) {
    context ctx(threads, oversubscribe::allowed);
    for (const std::int64_t tokens : {1, 64, 150}) {
      check_narrow_rows<bfloat16, bfloat16, Block>(tokens, ctx);
      check_narrow_rows<bfloat16, float, Block>(tokens, ctx);
      check_narrow_rows<float16, float16, Block>(tokens, ctx);
    }
    auto table = support::filled(block_sparse_matrix<float, Block>(9, 37), 1);
    auto expected = table;
    const auto y = support::filled(panel_matrix<bfloat16>(37, 150), 2);
    const auto ids = some_ids(150, 9);
    run(ctx, scatter_rows(table, y, ids));
    for (std::int64_t t = 0; t < 150; ++t)
      for (std::int64_t f = 0; f < 37; ++f) expected.data()[expected.find(ids[std::size_t(t)], f)] += y(f, t);
    CHECK(support::same_bits(table, expected));
  }
}

TEST_CASE_TEMPLATE("embedding: chosen tokens are gathered, and scattered back between zeros", T, float,
                   bfloat16, float16) {
  context ctx(2, oversubscribe::allowed);
  panel_matrix<T> x(37, 200), back(37, 200);
  support::fill(x, 1);
  support::fill(back, 2);
  std::vector<std::int32_t> positions;
  for (std::int32_t t = 3; t < 200; t += t % 5 + 1) positions.push_back(t);
  panel_matrix<T> chosen(37, std::int64_t(positions.size()));
  run(ctx, gather_tokens(chosen, x, positions));
  for (std::int64_t i = 0; i < chosen.tokens(); ++i)
    for (std::int64_t f = 0; f < 37; ++f) REQUIRE(chosen(f, i) == x(f, positions[std::size_t(i)]));
  run(ctx, scatter_tokens(back, chosen, positions));
  std::size_t next = 0;
  for (std::int32_t t = 0; t < 200; ++t) {
    const bool is_chosen = next < positions.size() && positions[next] == t;
    for (std::int64_t f = 0; f < 37; ++f) REQUIRE(back(f, t) == (is_chosen ? x(f, t) : T(0)));
    next += is_chosen;
  }
  CHECK(support::padding_is_zero(chosen));
  CHECK(support::padding_is_zero(back));
}

TEST_CASE("embedding: wrong ids, positions and shapes are refused") {
  block_sparse_matrix<float, block_shape<4>> table(9, 8);
  panel_matrix<float> y(8, 2), x(8, 5), other(7, 2);
  using ids = std::vector<std::int32_t>;
  CHECK_THROWS_WITH_AS(static_cast<void>(gather_rows(y, table, ids{3, 9})),
                       "[gather_rows] index 1 is 9 but there are 9 rows in the table: 0 … 8 are possible",
                       shape_error);
  CHECK_THROWS_AS(static_cast<void>(gather_rows(y, table, ids{-1, 3})), shape_error);
  CHECK_THROWS_AS(static_cast<void>(add_rows(y, table, ids{1})), shape_error);
  CHECK_THROWS_AS(static_cast<void>(scatter_rows(table, other, ids{1, 2})), shape_error);
  CHECK_THROWS_AS(static_cast<void>(gather_tokens(y, x, ids{1, 5})), shape_error);
  CHECK_THROWS_AS(static_cast<void>(gather_tokens(x, x, ids{1, 0, 2, 3, 4})), shape_error);
  CHECK_THROWS_AS(static_cast<void>(scatter_tokens(x, x, ids{0, 1, 2, 3, 4})), shape_error);
  CHECK_THROWS_AS(static_cast<void>(scatter_tokens(x, y, ids{2, 1})), shape_error);
  table.set_pattern(pattern::from_rows(3, 2, {0, 1, 1, 1}, {0}));
  CHECK_THROWS_AS(static_cast<void>(gather_rows(y, table, ids{1, 2})), shape_error);
}

}  // namespace embedding_test
