// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/transformer_block.hpp>

namespace transformer_block_test {

using namespace tessera;
using support::trial;

using block = block_shape<4>;

template <class Layer> void check(mask seen, double dropout) {
  trial t({0, 70, 83}, {60, 13});
  nn::transformer_config config;
  config.hidden = 20;
  config.heads = 2;
  config.feed_forward = 2;
  config.density = 0.5;
  config.dropout = dropout;
  auto layer = Layer::random(config, seen, 1, "");
  support::randomise(layer);
  support::check_layer(layer, config.hidden, t.pass());
}

TEST_CASE("transformer_block: gradients of a pre-norm block are right, with and without dropout") {
  using layer = nn::transformer_block<double, block, nn::norm_order::pre>;
  check<layer>(mask::causal, 0);
  check<layer>(mask::causal, 0.2);
}

TEST_CASE("transformer_block: gradients of one with RMS norms and a gated MLP are right") {
  using layer = nn::transformer_block<double, block, nn::norm_order::pre, nn::rms_norm<double>,
                                      nn::gated_mlp<double, block>>;
  check<layer>(mask::causal, 0);
}

TEST_CASE("transformer_block: gradients of a post-norm block are right, with and without dropout") {
  using layer = nn::transformer_block<double, block, nn::norm_order::post>;
  check<layer>(mask::bidirectional, 0);
  check<layer>(mask::bidirectional, 0.2);
}

}  // namespace transformer_block_test
