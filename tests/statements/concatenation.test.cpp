// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/conflicts.hpp>
#include <support/evaluation.hpp>

namespace concatenation_test {

// A statement on a concatenation gives the bits of the statement on one tensor with the features of all.

using namespace tessera;
using support::filled;
using support::random_matrix;
using support::same_bits;

template <class T> panel_matrix<T> joined(panel_matrix<T> const& a, panel_matrix<T> const& b) {
  panel_matrix<T> all(a.features() + b.features(), a.tokens());
  for (std::int64_t t = 0; t < all.tokens(); ++t)
    for (std::int64_t f = 0; f < all.features(); ++f)
      all(f, t) = f < a.features() ? a(f, t) : b(f - a.features(), t);
  return all;
}

TEST_CASE_TEMPLATE("concatenation: as an operand", T, float, double, bfloat16) {
  for (const auto& [first, second] :
       {std::pair{32, 16}, {10, 17}, {16, 15}, {18, 31}, {2, 1}, {0, 5}, {16, 0}, {0, 0}})
    for (const int threads : {1, 3}) {
      INFO(first, " and ", second, " features");
      context ctx(threads, oversubscribe::allowed);
      const auto a = filled(panel_matrix<T>(first, 150), 1), b = filled(panel_matrix<T>(second, 150), 2);
      const auto both = joined(a, b);
      const auto w = random_matrix<T, block_shape<4>>(24, first + second, .5, 3);
      const auto v = random_matrix<T, block_shape<8>>(first + second, 30, .5, 4);
      panel_matrix<T> y(24, 150), expected_y(24, 150), z(both.features(), 150), expected_z = z, u = z;
      run(ctx, y = relu(w * concat_features(a, b)), z = concat_features(a, b) + both,
          u = concat_features(a, b));
      run(ctx, expected_y = relu(w * both), expected_z = both + both);
      CHECK(same_bits(y, expected_y));
      CHECK(same_bits(z, expected_z));
      CHECK(same_bits(u, both));
      // Parts that are expressions, and a local.
      const auto c = filled(panel_matrix<T>(30, 150), 5);
      panel_matrix<T> p(first + second, 150);
      run(ctx, p = v * c);
      const auto of_expressions = joined(p, a);
      const auto m = random_matrix<T, block_shape<1>>(20, p.features() + first, .3, 6);
      if ((first + second) % element_traits<T>::features_a_lane != 0) continue;
      panel_matrix<T> q(20, 150), expected_q(20, 150);
      auto h = local(concat_features(v * c, a));
      run(ctx, q = m * h);
      run(ctx, expected_q = m * of_expressions);
      if constexpr (!std::is_same_v<T, bfloat16>) CHECK(same_bits(q, expected_q));
    }
}

/// A machine of more workers than panels, with 512 KiB each.
struct little_memory : exec::thread_pool {
  using thread_pool::thread_pool;
  machine stands_for() const { return {.workers = 60, .worker_bytes = 1 << 19}; }
};

TEST_CASE("concatenation: where workers have little memory, local values are the same") {
  little_memory workers(2);
  context ctx(workers);
  for (const auto& [first, second] : {std::pair{32, 16}, {10, 17}, {2, 1}}) {
    const auto a = filled(panel_matrix<float>(first, 150), 1),
               b = filled(panel_matrix<float>(second, 150), 2);
    const auto both = joined(a, b);
    const auto w = random_matrix<float, block_shape<4>>(24, first + second, .5, 3);
    panel_matrix<float> y(24, 150), expected = y, u(both.features(), 150);
    run(ctx, y = w * concat_features(a, b), u = concat_features(a, b));
    run(ctx, expected = w * both);
    CHECK(same_bits(y, expected));
    CHECK(same_bits(u, both));
  }
}

TEST_CASE_TEMPLATE("concatenation: as a destination, of tensors and slices", T, float, bfloat16) {
  for (const auto& [first, second] : {std::pair{32, 16}, {10, 17}, {16, 15}, {2, 1}, {0, 20}, {32, 0}})
    for (const int threads : {1, 3}) {
      INFO(first, " and ", second, " features");
      context ctx(threads, oversubscribe::allowed);
      const auto w = random_matrix<T, block_shape<8>>(first + second, 40, .4, 1);
      const auto x = filled(panel_matrix<T>(40, 150), 2);
      panel_matrix<T> whole(first + second, 150), a(first, 150), b(second, 150);
      auto wide = filled(panel_matrix<T>(16 + second + (second % 2 == 0 ? 16 : 0), 150), 3);
      const auto before = wide;
      run(ctx, whole = w * x, concat_features(a, slice_features(wide, 16, 16 + second)) = w * x);
      run(ctx, b = slice_features(wide, 16, 16 + second));
      CHECK(same_bits(joined(a, b), whole));
      CHECK(support::padding_is_zero(a));
      for (std::int64_t f = 0; f < wide.features(); ++f)
        if (f < 16 || f >= 16 + second)
          for (std::int64_t t = 0; t < 150; ++t) REQUIRE(wide(f, t) == before(f, t));
    }
}

TEST_CASE("concatenation: its value may read its parts, as in an exchange of two tensors") {
  context ctx(2, oversubscribe::allowed);
  auto a = filled(panel_matrix<float>(20, 100), 1), b = filled(panel_matrix<float>(20, 100), 2);
  const auto old_a = a, old_b = b;
  run(ctx, concat_features(a, b) = concat_features(b, a));
  CHECK(same_bits(a, old_b));
  CHECK(same_bits(b, old_a));
  run(ctx, concat_features(a, b) += concat_features(b, a));
  CHECK(same_bits(a, b));
  run(ctx, concat_features(a, b) = 0);
  CHECK(total(ctx, square(a)) + total(ctx, square(b)) == 0);
  // Two slices of one tensor change places.
  auto c = filled(panel_matrix<float>(40, 100), 3);
  const auto old_c = c;
  run(ctx, c = concat_features(slice_features(c, 20, 40), slice_features(c, 0, 20)));
  for (std::int64_t f = 0; f < 40; ++f)
    for (std::int64_t t = 0; t < 100; ++t) REQUIRE(c(f, t) == old_c((f + 20) % 40, t));
}

TEST_CASE("concatenation: parts that do not fit are refused") {
  context ctx(1);
  panel_matrix<float> a(20, 100), b(16, 90), c(16, 100), x(36, 100);
  panel_matrix<bfloat16> d(3, 100), e(4, 100);
  CHECK(error_of<shape_error>([&] { (void)concat_features(a, b); }) ==
        "[concat_features] part 1 has 90 tokens but part 0 has 100");
  CHECK(error_of<shape_error>([&] { (void)concat_features(d, e); }).find("would begin at feature 3") !=
        std::string::npos);
  CHECK_NOTHROW((void)concat_features(e, d));
  CHECK(error_of<shape_error>([&] { (void)(concat_features(a, c) = a); }) ==
        "[=] the destination has 36 features but the expression 20");
  CHECK(error_of<shape_error>([&] { run(ctx, concat_features(a, slice_features(a, 4, 20)) = x); }) ==
        "[concat_features(…) = …] parts 0 and 1 share memory");
}

}  // namespace concatenation_test
