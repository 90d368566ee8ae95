// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/tensor/vectors.hpp>

namespace vectors_test {

using namespace tessera;

TEST_CASE("vectors: features are stored in multiples of 16, tokens of 64") {
  feature_vector<float> b(17);
  token_vector<float> r(65);
  CHECK(b.size() == 17);
  CHECK(b.features() == 17);
  CHECK(b.size_bytes() == 32 * sizeof(float));
  CHECK(r.size() == 65);
  CHECK(r.tokens() == 65);
  CHECK(r.size_bytes() == 128 * sizeof(float));
  CHECK(std::all_of(b.begin(), b.end(), [](float v) { return v == 0; }));
  CHECK(b.end() - b.begin() == 17);
  static_assert(!std::is_same_v<feature_vector<float>, token_vector<float>>);
}

TEST_CASE("vectors: numbers come from lists, vectors, arrays and spans, and are converted") {
  const feature_vector<float> list{1, 2, 3};
  const std::vector<double> numbers{4, 5};
  const feature_vector<float> of_vector(numbers), of_span(std::span<double const>(numbers).first(1));
  const token_vector<bfloat16> of_array(std::array{0.5f, 1.5f});
  CHECK(std::ranges::equal(list, std::array{1, 2, 3}));
  CHECK(std::ranges::equal(of_vector, numbers));
  CHECK(of_span.size() == 1);
  CHECK(of_span[0] == 4);
  CHECK(float(of_array[1]) == 1.5f);
  CHECK(std::all_of(list.end(), list.data() + 16, [](float v) { return v == 0; }));
  CHECK(feature_vector<float>(std::vector<float>()).size() == 0);
}

TEST_CASE("vectors: another size keeps memory and clears it") {
  token_vector<double> r(130);
  for (double& v : r) v = 1;
  double const* const memory = r.data();
  for (const std::int64_t size : {70, 1, 130}) {
    r.resize(size);
    CHECK(r.size() == size);
    CHECK(r.data() == memory);
    CHECK(std::all_of(r.data(), r.data() + 192, [](double v) { return v == 0; }));
    for (double& v : r) v = 1;
  }
  r.resize(300);
  CHECK(r[299] == 0);
}

TEST_CASE("vectors: a move leaves the source without elements") {
  feature_vector<float> a(17), c;
  a[16] = 1;
  feature_vector<float> b = std::move(a);
  // NOLINTBEGIN(bugprone-use-after-move): what a move leaves is the subject
  CHECK(b[16] == 1);
  CHECK(a.size() == 0);
  CHECK(a.begin() == a.end());
  c = std::move(b);
  CHECK(c[16] == 1);
  CHECK(b.size() == 0);
  CHECK(b.begin() == b.end());
  b.resize(17);
  CHECK(b[16] == 0);
  // NOLINTEND(bugprone-use-after-move)
  static_assert(std::is_nothrow_move_constructible_v<feature_vector<float>>);
  static_assert(std::is_nothrow_move_assignable_v<feature_vector<float>>);
}

TEST_CASE("vectors: negative and absurd sizes are refused") {
  CHECK_THROWS_AS(feature_vector<float>(-1), shape_error);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_AS(token_vector<float>(most + 0), shape_error);
}

}  // namespace vectors_test
