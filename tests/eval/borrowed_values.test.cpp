// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <support/guarded_values.hpp>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/nn/embedding.hpp>
#include <tessera/statements/outer_products.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/optimizers/adamw.hpp>

// Matrices over values that another owns. Behind these lies a page that nothing may touch, so that a kernel
// that reads beyond them ends the test.

namespace borrowed_values_test {

using namespace tessera;
using support::guarded_values;

template <class Tensor> bool same_values(Tensor const& a, Tensor const& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), std::size_t(a.size()) * sizeof(*a.data())) == 0;
}

template <class T, class Block>
block_sparse_matrix<T, Block> over(guarded_values<T> const& values,
                                   block_sparse_matrix<T, Block> const& like) {
  return block_sparse_matrix<T, Block>::over(values.span(), like.rows(), like.cols(), like.pattern());
}

TEST_CASE_TEMPLATE_DEFINE(
    "borrowed_values: no product reads or writes beyond the values, and bits are the same", Types, products) {
  using T = typename Types::element;
  using block = typename Types::block;
  using sum = accumulator_t<T>;
  for (const double density : {0.03, 0.4, 1.0})
    for (const std::int64_t tokens : {1, 3, 16, 17, 64, 130})
      for (auto const& [rows, cols] : {std::pair{37, 53}, {64, 96}, {5, 130}}) {
        context ctx(2, oversubscribe::allowed);
        const auto w = support::random_matrix<T, block>(rows, cols, density, 1);
        const auto lent = guarded_values<T>::of(w);
        const auto b = over(lent, w);
        REQUIRE(b.borrows());
        panel_matrix<T> x(cols, tokens), dy(rows, tokens), y(rows, tokens), same(rows, tokens),
            dx(cols, tokens), same_dx(cols, tokens);
        support::fill(x, 2);
        support::fill(dy, 3);
        run(ctx, y = w * x, dx = transposed(w) * dy);
        run(ctx, same = b * x, same_dx = transposed(b) * dy);
        CHECK(std::memcmp(y.data(), same.data(), y.size_bytes()) == 0);
        CHECK(std::memcmp(dx.data(), same_dx.data(), dx.size_bytes()) == 0);

        block_sparse_matrix<sum, block> g(rows, cols, w.pattern());
        support::fill(g, 4);
        const auto lent_gradient = guarded_values<sum>::of(g);
        auto borrowed_gradient = over(lent_gradient, g);
        run(ctx, g += sampled(dy * transposed(x)));
        run(ctx, borrowed_gradient += sampled(dy * transposed(x)));
        CHECK(same_values(g, borrowed_gradient));
        CHECK(borrowed_gradient.data() == lent_gradient.span().data());
        CHECK(total(ctx, square(stored_values(g))) == total(ctx, square(stored_values(borrowed_gradient))));

        block_sparse_matrix<T, block_shape<block::cols, block::rows>> t(cols, rows, transposed(w.pattern()));
        const auto lent_transpose = guarded_values<T>::of(t);
        auto borrowed_transpose = over(lent_transpose, t);
        run(ctx, t = transposed(w));
        run(ctx, borrowed_transpose = transposed(b));
        CHECK(same_values(t, borrowed_transpose));
      }
}
TEST_CASE_TEMPLATE_APPLY(products, support::few);
TEST_CASE_TEMPLATE_INVOKE(products, support::types<bfloat16, block_shape<1>>,
                          support::types<bfloat16, block_shape<16>>, support::types<float16, block_shape<4>>,
                          support::types<float, block_shape<4>>, support::types<float, block_shape<8>>);

struct one_bias {
  feature_vector<float> bias;
  using gradients = one_bias;
  static void parts(auto& each, auto&... of) { each("bias", of.bias...); }
};

TEST_CASE_TEMPLATE("borrowed_values: rows of a table and biases are borrowed as well, and updated", T, float,
                   bfloat16) {
  using sum = accumulator_t<T>;
  context ctx(2, oversubscribe::allowed);
  const std::vector<std::int32_t> ids{0, 6, 3, 6, 2};
  for (const std::int64_t features : {5, 32, 50}) {
    const auto table = support::random_matrix<T, block_shape<16>>(7, features, 1, 1);
    const auto lent = guarded_values<T>::of(table);
    const auto borrowed = over(lent, table);
    panel_matrix<T> y(features, 5), same(features, 5);
    run(ctx, gather_rows(y, table, ids));
    run(ctx, gather_rows(same, borrowed, ids));
    CHECK(std::memcmp(y.data(), same.data(), y.size_bytes()) == 0);

    dense_matrix<sum> g(7, features);
    const auto lent_gradient = guarded_values<sum>::of(g);
    auto borrowed_gradient = over(lent_gradient, g);
    run(ctx, scatter_rows(g, y, ids));
    run(ctx, scatter_rows(borrowed_gradient, y, ids));
    CHECK(same_values(g, borrowed_gradient));

    feature_vector<sum> bias(features), db(features);
    support::fill(bias, 2);
    support::fill(db, 3);
    const guarded_values<sum> lent_bias(std::size_t(round_up<std::int64_t>(features, granule)));
    std::copy(bias.begin(), bias.end(), lent_bias.span().begin());
    auto borrowed_bias = feature_vector<sum>::over(lent_bias.span(), features);
    REQUIRE(borrowed_bias.borrows());
    run(ctx, y = y + bias);
    run(ctx, same = same + borrowed_bias);
    CHECK(std::memcmp(y.data(), same.data(), y.size_bytes()) == 0);
    one_bias own{bias}, other{std::move(borrowed_bias)};
    const one_bias gradient{db};
    REQUIRE(other.bias.borrows());
    auto state = train::initial_state(train::adamw{}, own), same_state = state;
    train::update_parameters(ctx, train::adamw{}, own, gradient, state, 0.1);
    train::update_parameters(ctx, train::adamw{}, other, gradient, same_state, 0.1);
    CHECK(!std::equal(bias.begin(), bias.end(), own.bias.begin()));
    CHECK(std::equal(own.bias.begin(), own.bias.end(), other.bias.begin()));
  }
}

std::string refusal(auto&& make) {
  try {
    make();
  } catch (error const& fault) {
    return fault.what();
  }
  return "none";
}

TEST_CASE("borrowed_values: what cannot be borrowed is refused, or copied and counted") {
  using matrix = block_sparse_matrix<float, block_shape<4>>;
  alignas(64) float values[6 * 16 + 16] = {};
  for (int i = 0; i < 6 * 16; ++i) values[i] = float(i + 1);
  const pattern stored = pattern::dense(2, 3);
  const auto make = [&](std::span<float> lent, std::int64_t rows, std::int64_t cols,
                        borrowing how = borrowing::strict) {
    return matrix::over(lent, rows, cols, stored, how);
  };
  CHECK(make({values, 96}, 8, 12).data() == values);
  CHECK(refusal([&] { make({values, 95}, 8, 12); }) == "[borrow] 95 values, but 96 are needed");
  CHECK(refusal([&] { make({values, 97}, 8, 12); }) == "[borrow] 97 values, but 96 are needed");
  CHECK(refusal([&] { make({values, 96}, 7, 12); }) ==
        "[borrow] value 12 of block (1, 0) overhangs the matrix of 7 x 12: it must be zero");
  CHECK(refusal([&] {
          make({values, 96}, 12, 12);
        }).starts_with("[block_sparse_matrix] 12 x 12 in blocks of 4"));
  CHECK(refusal([&] { make({values + 1, 96}, 8, 12); }) ==
        "[borrow] the values begin 4 bytes behind a multiple of 64, and kernels read whole registers: "
        "borrowing::or_copied copies such values");
  using single = block_sparse_matrix<float, block_shape<1>>;
  CHECK(
      refusal([&] { single::over({values, 9}, 3, 3); }) ==
      "[borrow] 7 zeros behind 9 values are missing, and kernels read whole registers: borrowing::or_copied "
      "copies such values");
  CHECK(refusal([&] { single::over({values, 16}, 3, 3); }) ==
        "[borrow] value 9, behind the last one of 9, must be zero");

  const std::size_t before = tensor_memory::copied(), live = tensor_memory::live();
  const matrix copy = make({values + 1, 96}, 8, 12, borrowing::or_copied);
  CHECK(!copy.borrows());
  CHECK(tensor_memory::copied() == before + 96 * sizeof(float));
  CHECK(std::equal(copy.begin(), copy.end(), values + 1));
  matrix borrowed = make({values, 96}, 8, 12, borrowing::or_copied);
  CHECK(tensor_memory::copied() == before + 96 * sizeof(float));
  CHECK(tensor_memory::live() == live + 96 * sizeof(float));  // of the copy alone

  matrix own = borrowed;
  CHECK(!own.borrows());
  borrowed(0, 0) = 100;
  CHECK(values[0] == 100);
  CHECK(own(0, 0) == 1);
  const matrix moved = std::move(borrowed);
  CHECK(moved.data() == values);
  CHECK(borrowed.rows() == 0);
  matrix assigned = make({values, 96}, 8, 12);
  assigned = own;
  CHECK(!assigned.borrows());
  CHECK(values[0] == 100);
  CHECK(
      refusal([&] { feature_vector<float>::over({values, 8}, 8); }) ==
      "[borrow] 8 zeros behind 8 values are missing, and kernels read whole registers: borrowing::or_copied "
      "copies such values");
}

TEST_CASE("borrowed_values: statements notice that borrowed values overlap") {
  using matrix = block_sparse_matrix<float, block_shape<4>>;
  alignas(64) float values[80] = {};
  context ctx(1);
  matrix a = matrix::over({values, 64}, 8, 8), b = matrix::over({values + 16, 64}, 8, 8);
  CHECK(refusal([&] { run(ctx, a = stored_values(b) * 2); }).find("overlap") != std::string::npos);
  CHECK(refusal([&] { run(ctx, a = transposed(b)); }).find("overlap") != std::string::npos);

  // Rows of tokens in the memory of a weight, and of a vector.
  const panel_matrix<float> x(8, 3);
  const token_rows<float> rows(values + 8, 3, 8), input(values + 48, 3, 8);
  const auto v = feature_vector<float>::over({values + 16, 16}, 8);
  CHECK(refusal([&] { run(ctx, rows = a * x); }).find("overlaps an operand") != std::string::npos);
  CHECK(refusal([&] { run(ctx, rows = x + v); }).find("overlaps an operand") != std::string::npos);
  CHECK(refusal([&] { run(ctx, input = rows + x); }) == "none");
}

}  // namespace borrowed_values_test
