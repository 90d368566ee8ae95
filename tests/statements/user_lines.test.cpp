// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/tessera.hpp>

// Lines that newcomers write first, and their meaning. Lines without a meaning are programs in
// tests/compile_fail.

namespace user_lines_test {

using namespace tessera;

struct tensors {
  context ctx{1};
  block_sparse_matrix<float, block_shape<4>> w{
      8, 8, random_pattern(2, 2, 0.75, random_stream(1, random_purpose::test))};
  panel_matrix<float> x{8, 10}, y{8, 10};
  tensors() {
    w.fill(2);
    for (auto& value : x) value = 3;
  }
};

TEST_CASE("user_lines: statements of one operator") {
  tensors t;
  run(t.ctx, t.y = 1, t.x *= 2);
  CHECK(t.x(0, 0) == 6);
  run(t.ctx, t.y -= t.x);
  CHECK(t.y(0, 0) == -5);
  run(t.ctx, t.x += 1, t.y /= 5);
  CHECK(t.x(7, 9) == 7);
  CHECK(t.y(7, 9) == -1);
  run(t.ctx, t.w = 0);
  CHECK(total(t.ctx, t.w) == 0);
}

TEST_CASE("user_lines: choices and functions") {
  tensors t;
  run(t.ctx, t.x = sin(t.x) * sin(t.x) + cos(t.x) * cos(t.x));
  CHECK(t.x(1, 1) == doctest::Approx(1));
  run(t.ctx, t.x = pow(t.x * 3, 2.0), t.y = max(t.x - 10, 0.0));
  CHECK(t.x(0, 0) == doctest::Approx(9));
  CHECK(t.y(0, 0) == 0);
  run(t.ctx, t.y = where(t.x > 0, t.x, 0.1 * t.x), t.x = clamp(min(t.x, 5.0), -1.0, 1.0));
  CHECK(t.y(0, 0) == doctest::Approx(9));
  CHECK(t.x(0, 0) == 1);
  run(t.ctx, t.y = softmax_features(t.x));
  CHECK(t.y(3, 3) == doctest::Approx(1. / 8));
}

TEST_CASE("user_lines: elements of matrices, transposes and products of them") {
  tensors t;
  std::int64_t stored = 0;
  t.w.pattern().for_each([&](int i, int j, std::int64_t) {
    t.w(4 * i, 4 * j) = 7;
    CHECK(t.w(4 * i, 4 * j) == 7);
    ++stored;
  });
  CHECK(stored == 3);
  block_sparse_matrix<float, block_shape<4>> c(8, 8, transposed(t.w.pattern())), square(8, 8);
  run(t.ctx, c = transposed(t.w));
  CHECK(c(4, 0) == std::as_const(t.w)(0, 4));
  run(t.ctx, square = transposed(t.w) * t.w);
  double sum = 0;
  for (int k = 0; k < 8; ++k) sum += double(std::as_const(t.w)(k, 1)) * double(std::as_const(t.w)(k, 2));
  CHECK(square(1, 2) == sum);
}

TEST_CASE("user_lines: vectors of lists and arrays, masks of bits, printing") {
  tensors t;
  const feature_vector<float> b{1, 2, 3}, c(std::vector<float>{1, 2, 3});
  CHECK(std::equal(b.begin(), b.end(), c.begin(), c.end()));
  const std::vector<bool> mask{true, false, false, true};
  CHECK(pattern_from_mask(2, 2, mask).blocks() == 2);
  std::ostringstream out;
  out << t.w << t.x << b << t.w.pattern();
  CHECK(out.str().size() > 40);
  token_vector<float> m(10);
  feature_vector<float> mean(8);
  run(t.ctx, m = mean_features(t.x), mean = mean_tokens(t.x));
  CHECK(m[9] == 3);
  CHECK(mean[7] == doctest::Approx(3));
}

}  // namespace user_lines_test
