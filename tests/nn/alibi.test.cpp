// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/core/element.hpp>
#include <tessera/nn/alibi.hpp>
#include <tessera/nn/attention.hpp>

namespace alibi_test {

using namespace tessera;
using support::some_blocks;
using support::trial;

using layer = nn::multi_head_attention<double, block_shape<4>, nn::alibi>;
static_assert(score_functor<nn::alibi> && !learned_score_functor<nn::alibi>);

std::vector<double> slopes(int heads) {
  const nn::alibi score(heads);
  std::vector<double> all;
  for (int h = 0; h < score.heads(); ++h) all.push_back(score.slope(h));
  return all;
}

TEST_CASE("alibi: the slopes are those of the paper") {
  CHECK(slopes(8) ==
        std::vector<double>{1. / 2, 1. / 4, 1. / 8, 1. / 16, 1. / 32, 1. / 64, 1. / 128, 1. / 256});
  CHECK(slopes(1) == std::vector<double>{1. / 256});
  // Six heads have the slopes of four, and every second one of eight.
  CHECK(slopes(6) == std::vector<double>{1. / 4, 1. / 16, 1. / 64, 1. / 256, 1. / 2, 1. / 8});
  const std::vector<double> twelve = slopes(12);
  CHECK(twelve.size() == 12);
  CHECK(twelve[7] == 1. / 256);
  CHECK(twelve[8] == doctest::Approx(std::sqrt(0.5)));
  CHECK(twelve[11] == doctest::Approx(std::sqrt(0.5) / 8));
}

TEST_CASE("alibi: a number of heads that it is not made for is refused") {
  CHECK_THROWS_WITH_AS(nn::alibi(0), "[alibi] 0 heads: there must be at least one", option_error);
  trial t;
  panel_matrix<double> qkv(24, 83), y(8, 83), log_sums(2, 83);
  const nn::alibi score(4);
  CHECK_THROWS_WITH_AS(static_cast<void>(attention(qkv, t.batch, 2, mask::causal, y, log_sums, score)),
                       "[alibi] the slopes are those of 4 heads but attention has 2: make it alibi(2)",
                       option_error);
}

TEST_CASE("alibi: the logarithm of a sum is that of scores less the slope times the distance") {
  trial t({0, 70, 83});
  panel_matrix<double> qkv(6, 83), y(2, 83), log_sums(2, 83);  // q is zero, and so is each plain score
  const nn::alibi score(2);
  for (const mask seen : {mask::causal, mask::bidirectional}) {
    run(t.ctx, attention(qkv, t.batch, 2, seen, y, log_sums, score));
    double worst = 0;
    for (int h = 0; h < 2; ++h)
      for (std::int64_t q = 0; q < 83; ++q) {
        const std::int64_t s = t.batch.sequence_of(q);
        double sum = 0;
        for (std::int64_t k = t.batch.begin(s); k < t.batch.end(s); ++k)
          if (seen == mask::bidirectional || k <= q)
            sum += std::exp(-score.slope(h) * std::abs(double(q - k)));
        worst = support::larger(worst, std::abs(log_sums(h, q) - std::log(sum)));
      }
    CHECK(worst <= 70 * 5 * unit_roundoff<double>);  // sums of up to 70 numbers, of logarithms below 5
  }
}

TEST_CASE("alibi: gradients of the layer are right") {
  for (const mask seen : {mask::causal, mask::bidirectional}) {
    trial t({0, 70, 83, 90}, {50, 13, 1});
    layer l{
        {60, 20, some_blocks(60, 20, 0.5, 1)}, {20, 20, some_blocks(20, 20, 0.5, 2)}, 2, seen, nn::alibi(2)};
    support::randomise(l);
    support::check_layer(l, 20, t.pass());
  }
}

}  // namespace alibi_test
