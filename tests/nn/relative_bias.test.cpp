// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <support/allocations.hpp>
#include <support/gradient_check.hpp>
#include <support/types.hpp>

#include <tessera/core/element.hpp>
#include <tessera/nn/attention.hpp>
#include <tessera/nn/relative_bias.hpp>

namespace relative_bias_test {

using namespace tessera;
using support::some_blocks;
using support::trial;

template <class T>
using layer = nn::multi_head_attention<T, block_shape<4>, nn::relative_bias<accumulator_t<T>>>;
static_assert(learned_score_functor<nn::relative_bias<float>>);

template <class T> layer<T> some_layer(mask seen) {
  layer<T> l{{60, 20, some_blocks(60, 20, 0.5, 1)},
             {20, 20, some_blocks(20, 20, 0.5, 2)},
             2,
             seen,
             nn::relative_bias<accumulator_t<T>>(2, seen, 12, 40)};
  return l;
}

TEST_CASE("relative_bias: the buckets are those of T5") {
  const nn::relative_bias<float> both(1, mask::bidirectional), back(1, mask::causal);
  // The first distance of each bucket.
  const std::vector<int> first{0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91, 1000};
  for (int bucket = 0; bucket < 16; ++bucket)
    for (int distance = first[std::size_t(bucket)]; distance < first[std::size_t(bucket + 1)]; ++distance) {
      CHECK(both.bucket(distance) == bucket);
      if (distance > 0) CHECK(both.bucket(-distance) == bucket + 16);
    }
  for (int distance = 0; distance < 16; ++distance) CHECK(back.bucket(distance) == distance);
  CHECK(back.bucket(-1) == 0);
  CHECK(back.bucket(-1000) == 0);
  CHECK(back.bucket(16) == 16);
  CHECK(back.bucket(113) == 31);
  CHECK(back.bucket(112) == 30);
  CHECK(back.bucket(100000) == 31);
}

TEST_CASE("relative_bias: the logarithm of a sum is that of scores plus the numbers of their buckets") {
  trial t({0, 70, 83});
  panel_matrix<double> qkv(6, 83), y(2, 83), log_sums(2, 83);  // q is zero, and so is each plain score
  for (const mask seen : {mask::causal, mask::bidirectional}) {
    nn::relative_bias<double> score(2, seen, 12, 40);
    support::fill(score.table, 1);
    run(t.ctx, attention(qkv, t.batch, 2, seen, y, log_sums, score));
    double worst = 0;
    for (int h = 0; h < 2; ++h)
      for (std::int64_t q = 0; q < 83; ++q) {
        const std::int64_t s = t.batch.sequence_of(q);
        double sum = 0;
        for (std::int64_t k = t.batch.begin(s); k < t.batch.end(s); ++k)
          if (seen == mask::bidirectional || k <= q)
            sum += std::exp(score.table[h * 12 + score.bucket(q - k)]);
        worst = support::larger(worst, std::abs(log_sums(h, q) - std::log(sum)));
      }
    CHECK(worst <= 70 * 6 * unit_roundoff<double>);  // sums of up to 70 numbers, of logarithms below 6
  }
}

TEST_CASE("relative_bias: gradients of the layer and of the biases are right") {
  for (const mask seen : {mask::causal, mask::bidirectional}) {
    trial t({0, 70, 83, 90, 300}, {50, 13, 1, 200});
    auto l = some_layer<double>(seen);
    support::randomise(l);
    support::check_layer(l, 20, t.pass());
  }
}

TEST_CASE_TEMPLATE("relative_bias: the gradient has the same bits for any number of threads", T,
                   SUPPORT_ELEMENTS) {
  const sequences batch({0, 70, 83, 90, 128, 300, 448});
  nn::relative_bias<accumulator_t<T>> expected;
  for (const int threads : {1, 2, 8}) {
    context ctx(threads, oversubscribe::allowed);
    nn::workspace<T> room;
    const nn::pass<T> p{ctx, batch, room, nn::purpose::training, 5, 3};
    auto l = some_layer<T>(mask::causal);
    std::uint64_t seed = 0;
    nn::for_each_parameter(l, [&](nn::parameter_name const&, auto& x) { support::fill(x, ++seed); });
    panel_matrix<T> x(20, batch.tokens()), y = x, dy = x;
    support::fill(x, 1);
    support::fill(dy, 2);
    typename layer<T>::saved saved;
    auto g = nn::zeros_like(l);
    l.forward(x, y, saved, p);
    l.backward(x, saved, dy, nullptr, g, p);
    bool zero = false;
    for (const auto value : g.score.table) zero = zero || value == 0;
    CHECK(!zero);
    if (threads == 1)
      expected = g.score;
    else
      CHECK(std::equal(g.score.table.begin(), g.score.table.end(), expected.table.begin()));  // none is zero
  }
}

TEST_CASE("relative_bias: a layer with rotary positions too allocates nothing after the first step" *
          doctest::skip(!support::counts_allocations)) {
  trial t;
  auto l = some_layer<double>(mask::causal);
  l.positions = rotary_positions<double>(10, 70);
  support::randomise(l);
  auto g = nn::zeros_like(l);
  panel_matrix<double> x(20, 83), y = x;
  support::fill(x, 1);
  layer<double>::saved saved;
  const auto step = [&] {
    const long before = support::allocations();
    l.forward(x, y, saved, t.pass());
    l.backward(x, saved, y, nullptr, g, t.pass());
    return support::allocations() - before;
  };
  CHECK(step() > 0);
  CHECK(step() == 0);
}

TEST_CASE("relative_bias: checkpoints and optimizers meet the biases as a vector") {
  std::vector<std::string> names;
  auto l = some_layer<bfloat16>(mask::causal);
  nn::for_each_parameter(l, [&](nn::parameter_name const& name, auto& parameter) {
    if (name.role() == nn::parameter_role::vector && parameter.size() == 24) names.push_back(name.text());
  });
  CHECK(names == std::vector<std::string>{"score.bias"});
}

TEST_CASE("relative_bias: numbers that make no sense are refused") {
  using bias = nn::relative_bias<float>;
  CHECK_THROWS_WITH_AS(bias(0, mask::causal), "[relative_bias] 0 heads: there must be at least one",
                       option_error);
  CHECK_THROWS_WITH_AS(bias(2, mask::causal, 1), "[relative_bias] 1 buckets: there must be at least two",
                       option_error);
  CHECK_THROWS_WITH_AS(bias(2, mask::bidirectional, 5),
                       "[relative_bias] 5 buckets: there must be at least two for each direction, which both "
                       "have as many",
                       option_error);
  CHECK_THROWS_WITH_AS(
      bias(2, mask::causal, 32, 16),
      "[relative_bias] the farthest distance is 16 but 16 buckets hold one distance each: it "
      "must be at least 17",
      option_error);
  CHECK_NOTHROW(bias(2, mask::bidirectional, 4, 2));
  trial t;
  panel_matrix<double> qkv(24, 83), y(8, 83), log_sums(2, 83);
  const nn::relative_bias<double> four(4, mask::causal), none;
  const auto attend = [&](auto const& score) {
    [[maybe_unused]] const auto s = attention(qkv, t.batch, 2, mask::causal, y, log_sums, score);
  };
  CHECK_THROWS_WITH_AS(
      attend(four),
      "[relative_bias] there are 128 numbers in 32 buckets but attention has 2 heads: make it "
      "relative_bias(2, …)",
      option_error);
  CHECK_THROWS_AS(attend(none), option_error);
}

}  // namespace relative_bias_test
