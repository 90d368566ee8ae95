// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>
#include <support/conflicts.hpp>
#include <support/counting.hpp>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/tessera.hpp>

// A statement on rows of tokens gives the bits of the statement on panels, and touches nothing between the
// rows.

namespace token_rows_test {

using namespace tessera;

/// An activation in panels, and a copy in rows with a guard number behind each.
template <class T> struct both {
  static constexpr float guard = 77;
  std::int64_t stride;
  panel_matrix<T> panels;
  std::vector<T> memory;

  both(std::int64_t features, std::int64_t tokens, std::int64_t gap, std::uint64_t seed)
      : stride(features + gap), panels(features, tokens), memory(std::size_t(stride * tokens), T(guard)) {
    support::fill(panels, seed);
    copy(panels, matrix_view<T>{memory.data(), features, tokens, 1, stride});
  }
  token_rows<T> rows() { return {memory.data(), panels.tokens(), panels.features(), stride}; }
  token_rows<T const> constant() const { return {memory.data(), panels.tokens(), panels.features(), stride}; }
  int different() const {
    int count = 0;
    for (std::int64_t t = 0; t < panels.tokens(); ++t)
      for (std::int64_t f = 0; f < stride; ++f) {
        const double is = double(memory[std::size_t(t * stride + f)]);
        count += is != (f < panels.features() ? double(panels(f, t)) : double(guard));
      }
    return count;
  }
};

template <class T, class Block>
void check(std::int64_t in, std::int64_t out, std::int64_t tokens, std::int64_t gap, double density) {
  INFO(in, " to ", out, " features, ", tokens, " tokens, gap ", gap);
  using sum = accumulator_t<T>;
  const auto w = support::random_matrix<T, Block>(out, in, density, 1);
  feature_vector<sum> b(out);
  support::fill(b, 2);
  for (int threads : {1, 3}) {
    context ctx(threads, oversubscribe::allowed);
    both<T> x(in, tokens, gap, 3), y(out, tokens, gap, 4), dx(in, tokens, gap, 5);
    run(ctx, y.panels = relu(w * x.panels + b) + y.panels);
    run(ctx, y.rows() = relu(w * x.constant() + b) + y.rows());
    CHECK(y.different() == 0);
    run(ctx, dx.panels = transposed(w) * y.panels);
    run(ctx, dx.rows() = transposed(w) * y.rows());
    CHECK(dx.different() == 0);
    run(ctx, dx.panels += x.panels * 0.5);
    run(ctx, dx.rows() += x.constant() * 0.5);
    CHECK(dx.different() == 0);
    run(ctx, y.panels = w * x.panels);
    run(ctx, y.rows() = w * x.panels);  // panels in, rows out
    CHECK(y.different() == 0);
    block_sparse_matrix<sum, Block> g(out, in, w.pattern()), h = g;
    feature_vector<sum> s(in), r(in);
    run(ctx, g = sampled(y.panels * transposed(x.panels)), s = sum_tokens(x.panels));
    run(ctx, h = sampled(y.rows() * transposed(x.constant())), r = sum_tokens(x.constant()));
    CHECK(std::ranges::equal(g, h));
    CHECK(std::ranges::equal(s, r));
    CHECK(total(ctx, x.panels) == total(ctx, x.rows()));
    CHECK(support::conflict(machine{4}, y.rows() = relu(w * x.constant() + b),
                            dx.rows() = transposed(w) * y.rows(),
                            h = sampled(y.rows() * transposed(x.constant()))) == "");
  }
}

TEST_CASE_TEMPLATE_DEFINE("token rows: statements on them have the bits of panels", Types, bits) {
  using T = typename Types::element;
  using Block = typename Types::block;
  check<T, Block>(70, 90, 130, 0, 0.4);
  check<T, Block>(71, 33, 64, 5, 0.3);
  check<T, Block>(16, 200, 1, 0, 0.5);
  check<T, Block>(9, 3, 75, 1, 1);
}
#ifdef TESSERA_REDUCED_TYPES
using some_types = std::tuple<support::types<bfloat16, block_shape<8>>>;
#else
using some_types = std::tuple<support::types<double, block_shape<4>>, support::types<float, block_shape<1>>,
                              support::types<bfloat16, block_shape<16>>>;
#endif
TEST_CASE_TEMPLATE_APPLY(bits, some_types);

TEST_CASE("token rows: a deep product, and one of many features, have the bits of panels") {
  check<float, block_shape<8>>(1700, 80, 70, 0, 0.1);
  check<float, block_shape<8>>(160, 1100, 70, 3, 0.1);
#ifndef TESSERA_REDUCED_TYPES
  check<float, block_shape<1>>(160, 1100, 300, 0, 0.1);
#endif
}

TEST_CASE("token rows: a product into rows does the work of one into panels, and says so") {
  const auto w = support::random_matrix<float, block_shape<8>>(2100, 160, 0.2, 1);  // in two pieces
  feature_vector<float> b(2100);
  const both<float> x(160, 70, 0, 2);
  both<float> y(2100, 70, 3, 3);
  support::counting to_panels, to_rows;
  context panels(to_panels), rows(to_rows);
  run(panels, y.panels = gelu(w * x.panels + b));
  run(rows, y.rows() = gelu(w * x.panels + b));
  CHECK(y.different() == 0);
  CHECK(to_panels.operations > 2100 * 70);
  CHECK(to_rows.operations == to_panels.operations);
  CHECK(to_rows.multiplies == to_panels.multiplies);
  CHECK(to_rows.blocks == to_panels.blocks);
}

TEST_CASE("token rows: a copy between rows, panels and other elements is a statement") {
  context ctx(2, oversubscribe::allowed);
  both<float> x(50, 100, 3, 1);
  both<bfloat16> y(50, 100, 1, 2);
  panel_matrix<bfloat16> narrow(50, 100);
  panel_matrix<float> wide(50, 100);
  run(ctx, narrow = x.rows());
  int wrong = 0;
  for (std::int64_t t = 0; t < 100; ++t)
    for (std::int64_t f = 0; f < 50; ++f) wrong += float(narrow(f, t)) != float(bfloat16(x.panels(f, t)));
  CHECK(wrong == 0);
  run(ctx, y.panels = converted(x.panels));
  run(ctx, y.rows() = x.rows());
  CHECK(y.different() == 0);
  run(ctx, wide = x.rows(), x.rows() = 2, x.panels = 2);
  CHECK(x.different() == 0);
  CHECK(wide(49, 99) != 2);
}

TEST_CASE_TEMPLATE("token rows: what is larger than the caches is copied past them, lines at any place", T,
                   float, bfloat16) {
  context ctx(2, oversubscribe::allowed);
  const std::int64_t features = 1037, tokens = 8 * 1024 + 40;
  panel_matrix<T> x(features, tokens), y(features, tokens);
  support::fill(x, 1);
  for (std::int64_t gap : {0, 51, 52})  // 51: rows begin at lines, if the first does
    for (std::int64_t shift : {0, 16, 1}) {
      const std::int64_t stride = features + gap, elements = stride * tokens;
      std::vector<T> memory(std::size_t(elements) + 128, T(77));
      T* const line = reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64);
      const token_rows<T> rows(line + shift, tokens, features, stride);
      run(ctx, y = 0.0f);
      run(ctx, rows = x);
      run(ctx, y = rows);
      CHECK(std::equal(x.data(), x.data() + x.panels() * x.panel_stride(), y.data()));
      std::int64_t wrong = 0;
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t f = 0; f < stride; ++f)
          wrong += float(line[shift + t * stride + f]) != (f < features ? float(x(f, t)) : 77);
      CHECK(wrong == 0);
    }
}

TEST_CASE("copy: with a context a view of any strides and numbers goes in and out in parallel") {
  for (int threads : {1, 3}) {
    context ctx(threads, oversubscribe::allowed);
    const std::int64_t features = 37, tokens = 200;
    std::vector<double> in(std::size_t(features * tokens)), out(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = double(i % 101) - 50;
    panel_matrix<float> x(features, tokens), serial(features, tokens);
    const auto by_token = transposed(row_major(in.data(), tokens, features)),
               by_feature = row_major(in.data(), features, tokens);
    for (auto const& view : {by_token, by_feature}) {
      copy(view.as_const(), serial);
      copy(ctx, view.as_const(), x);
      CHECK(std::equal(x.data(), x.data() + x.panels() * x.panel_stride(), serial.data()));
      copy(ctx, x, matrix_view<double>{out.data(), features, tokens, view.row_stride, view.col_stride});
      CHECK(out == in);
    }
    std::vector<float> rows(in.begin(), in.end()), again(rows.size());
    copy(by_token.as_const(), serial);
    copy(ctx, transposed(row_major<float const>(rows.data(), tokens, features)), x);
    CHECK(std::equal(x.data(), x.data() + x.panels() * x.panel_stride(), serial.data()));
    copy(ctx, x, transposed(row_major(again.data(), tokens, features)));
    CHECK(again == rows);
    CHECK_THROWS_AS(copy(ctx, row_major(rows.data(), tokens, features), x), shape_error);
  }
}

TEST_CASE(
    "token rows: statements on rows of one memory, some tokens apart, are computed one after the other") {
  constexpr std::int64_t tokens = 319, features = 16;
  for (const int threads : {1, 3})
    for (const std::int64_t by : {1, 10, 64, 70}) {
      INFO(threads, " threads, ", by, " tokens apart");
      context ctx(threads, oversubscribe::allowed);
      std::vector<float> memory(std::size_t(features * tokens), -1.0f);
      const token_rows<float> all(memory.data(), tokens, features),
          next(memory.data() + by * features, tokens - by, features);
      panel_matrix<float> x(features, tokens), z(features, tokens - by), expected = z;
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t f = 0; f < features; ++f) {
          x(f, t) = float(t * features + f);
          if (t >= by) expected(f, t - by) = 2 * x(f, t);
        }
      run(ctx, all = 2 * x, z = 1 * next);
      CHECK(std::equal(z.begin(), z.end(), expected.begin()));
      CHECK_THROWS_AS(run(ctx, next = relu(token_rows<float>(memory.data(), tokens - by, features))),
                      shape_error);
      run(ctx, all = relu(all));
    }
}

TEST_CASE("token rows: the padding of an odd number of features is zero, whatever memory held before") {
  constexpr std::int64_t tokens = 20, odd = 39;
  context ctx(1);
  const std::vector<bfloat16> nan(std::size_t(40 * tokens),
                                  bfloat16(std::numeric_limits<float>::quiet_NaN())),
      ones(std::size_t(odd * tokens), bfloat16(1.0f));
  block_sparse_matrix<bfloat16, block_shape<16>> even_w(16, 40), odd_w(16, odd);
  even_w.fill(bfloat16(1.0f)), odd_w.fill(bfloat16(1.0f));
  panel_matrix<float> y(16, tokens);
  run(ctx, y = even_w * token_rows<bfloat16 const>(nan.data(), tokens, 40));
  run(ctx, y = odd_w * token_rows<bfloat16 const>(ones.data(), tokens, odd));
  CHECK(y(0, 0) == odd);
}

TEST_CASE("token rows: sizes that are impossible or do not fit are refused") {
  std::vector<float> data(100);
  panel_matrix<float> y(10, 10);
  context ctx(1);
  CHECK_THROWS_AS(token_rows<float>(nullptr, 1, 10), shape_error);
  CHECK_THROWS_AS(token_rows<float>(data.data(), -1, 10), shape_error);
  CHECK_THROWS_AS(token_rows<float>(data.data(), 10, 10, 9), shape_error);
  CHECK_THROWS_AS(run(ctx, y = token_rows<float>(data.data(), 10, 9)), shape_error);
  CHECK_THROWS_AS(run(ctx, token_rows<float>(data.data(), 9, 10) = y + 1), shape_error);
}

}  // namespace token_rows_test
