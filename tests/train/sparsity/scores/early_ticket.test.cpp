// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/gradient_check.hpp>
#include <support/reference.hpp>

#include <tessera/nn/combinators.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/slimmable.hpp>
#include <tessera/nn/transformer_block.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/sparsity/scores/early_ticket.hpp>
#include <tessera/train/training.hpp>

namespace early_ticket_test { namespace {

using namespace tessera;
using support::some_blocks;
using support::trial;
using block = block_shape<4>;
using layer_type = nn::slimmable_mlp<double, block>;

layer_type some_layer(std::uint64_t seed = 1) {
  layer_type layer(nn::mlp<double, block>{{45, 21, some_blocks(45, 21, 0.4, seed)},
                                          {18, 45, some_blocks(18, 45, 0.4, seed + 1)}});
  support::randomise(layer);
  return layer;
}

TEST_CASE("slimmable_mlp: gradients are right, of coefficients, too") {
  trial t;
  layer_type layer = some_layer();
  support::check_layer(layer, 21, t.pass());
}

TEST_CASE("slimmed: the smaller MLP computes what the masked one does") {
  trial t;
  const auto p = t.pass();
  layer_type layer = some_layer();
  std::vector<char> keep(45);
  for (std::size_t k = 0; k < keep.size(); ++k) {
    keep[k] = k % 3 != 1;
    if (!keep[k]) layer.coefficients[std::int64_t(k)] = 0;
  }
  const pattern kept = pattern_from_mask(1, 45, keep);
  const auto slim = nn::slimmed(layer, kept);
  CHECK(slim.up.weight.rows() == 30);
  CHECK(slim.down.weight.cols() == 30);
  panel_matrix<double> x(21, p.tokens()), y(18, p.tokens()), z(18, p.tokens());
  support::fill(x, 3);
  layer_type::saved saved;
  layer.forward(x, y, saved, p);
  slim.forward(x, z, saved, p);
  CHECK(std::sqrt(total(p.ctx, square(y - z))) <= 1e-12 * std::sqrt(total(p.ctx, square(y))));
  CHECK(total(p.ctx, square(y)) > 1);
  CHECK(error_of<shape_error>([&] { nn::slimmed(layer, pattern_from_mask(1, 45, std::vector<char>(45))); }) ==
        "[slimmed] a pattern of 1 x 45 with 0 units: it must be 1 x 45, with at least one");
}

using attention_type = nn::slimmable_attention<double, block>;

attention_type some_attention(std::uint64_t seed = 1) {
  attention_type layer(nn::multi_head_attention<double, block>{
      {3 * 24, 21, some_blocks(3 * 24, 21, 0.4, seed)}, {18, 24, some_blocks(18, 24, 0.5, seed + 1)}, 4});
  support::randomise(layer);
  return layer;
}

TEST_CASE("slimmable_attention: gradients are right, of coefficients, too; ones change nothing") {
  trial t;
  const auto p = t.pass();
  attention_type layer = some_attention();
  support::check_layer(layer, 21, p);
  std::ranges::fill(layer.coefficients, 1.0);
  panel_matrix<double> x(21, p.tokens()), y(18, p.tokens()), z(18, p.tokens());
  support::fill(x, 3);
  attention_type::saved saved;
  layer.forward(x, y, saved, p);
  layer.whole.forward(x, z, saved, p);
  CHECK(std::equal(y.begin(), y.end(), z.begin(), z.end()));
}

TEST_CASE("slimmed: the attention of the heads that are kept computes what the masked one does") {
  trial t;
  const auto p = t.pass();
  attention_type layer = some_attention();
  layer.coefficients[1] = 0;
  const auto slim = nn::slimmed(layer, pattern_from_mask(1, 4, std::vector<char>{1, 0, 1, 1}));
  CHECK(slim.heads.queries == 3);
  CHECK(slim.qkv.weight.rows() == 3 * 18);
  panel_matrix<double> x(21, p.tokens()), y(18, p.tokens()), z(18, p.tokens());
  support::fill(x, 3);
  attention_type::saved saved;
  layer.forward(x, y, saved, p);
  slim.forward(x, z, saved, p);
  CHECK(std::sqrt(total(p.ctx, square(y - z))) <= 1e-12 * std::sqrt(total(p.ctx, square(y))));
  CHECK(total(p.ctx, square(y)) > 1);
  layer.coefficients = feature_vector<double>(3);
  CHECK(error_of<shape_error>([&] { layer.forward(x, y, saved, p); }) ==
        "[slimmable_attention] there are 3 coefficients for 4 units: each must have one");
  CHECK_THROWS_AS(nn::slimmed(layer, pattern_from_mask(1, 3, std::vector<char>(3, 1))), shape_error);
  layer.coefficients = feature_vector<double>(4);
  layer.whole.heads.keys = 2;
  CHECK(error_of<option_error>([&] {
          nn::slimmed(layer, pattern_from_mask(1, 4, std::vector<char>(4, 1)));
        }) == "[slimmed] 4 heads share the keys of 2: each must have its own");
}

struct two_layers {
  using gradients = two_layers;
  layer_type first = some_layer(1), second = some_layer(3);
  static void parts(auto& each, auto&... of) {
    each("first", of.first...);
    each("second", of.second...);
  }
};

TEST_CASE("neuron_masks: the least coefficients of all layers go, and each layer keeps one") {
  two_layers m;
  for (std::int64_t k = 0; k < 45; ++k) {
    m.first.coefficients[k] = double(k + 1) * (k % 2 ? 1 : -1);
    m.second.coefficients[k] = 30.5 + double(k);
  }
  const auto masks = train::neuron_masks(m, 0.4);  // 36 of 90
  CHECK(masks[0].stored.blocks() == 45 - 33);
  CHECK(masks[1].stored.blocks() == 45 - 3);
  CHECK(masks[0].stored.find(0, 32) < 0);
  CHECK(masks[0].stored.find(0, 33) >= 0);
  for (std::int64_t k = 0; k < 45; ++k) m.second.coefficients[k] = 100;
  CHECK(train::neuron_masks(m, 0.9)[0].stored.blocks() == 1);
  CHECK(train::neuron_masks(m, 0.99)[1].stored.blocks() == 1);
  two_layers one_is_empty;
  one_is_empty.second = layer_type();
  CHECK(train::neuron_masks(one_is_empty, 0.999)[0].stored.blocks() == 1);
  m.first.coefficients[3] = INFINITY;
  CHECK(error_of<error>([&] { train::neuron_masks(m, 0.5); }) ==
        "[neuron_masks] coefficient 3 of a layer is inf: coefficients must be finite");
  CHECK(error_of<option_error>([&] { train::neuron_masks(m, 1); }) ==
        "[neuron_masks] the share to prune is 1: it must be in [0, 1)");
}

TEST_CASE(
    "slimming_penalty: adds the gradient of strength times the sum of magnitudes, to coefficients alone") {
  context ctx(1);
  two_layers m;
  double sum = 0;
  for (auto const* layer : {&m.first, &m.second})
    for (const double c : layer->coefficients) sum += std::abs(c);
  train::training t(m, train::adamw{});
  train::slimming_penalty penalty(0.01);
  penalty.accumulated(ctx, t, {0, 7});
  CHECK(penalty.value == doctest::Approx(0.01 * sum));
  for (std::int64_t k = 0; k < 45; ++k)
    CHECK(t.gradients.first.coefficients[k] == doctest::Approx(std::copysign(0.07, m.first.coefficients[k])));
  CHECK(std::ranges::all_of(t.gradients.first.whole.up.weight, [](double g) { return g == 0; }));
  CHECK_THROWS_AS(train::slimming_penalty(-1), option_error);
}

TEST_CASE("early_ticket: found when as many distances as the window holds are small") {
  const auto without = [](int different) {
    std::vector<char> keep(100, 1);
    std::fill_n(keep.begin(), different, 0);
    return train::model_patterns{{"w", pattern_from_mask(10, 10, keep)}};
  };
  train::early_ticket search(0.1, 3);
  std::vector<bool> found;
  for (const int different : {0, 50, 55, 60, 75, 80, 84, 87})
    found.push_back(search.observe(without(different)));
  CHECK(found == std::vector<bool>{false, false, false, false, false, false, false, true});
  CHECK(search.distances() == std::vector<double>{0.5, 0.05, 0.05, 0.15, 0.05, 0.04, 0.03});
  CHECK(search.ticket()[0].stored.blocks() == 13);

  two_layers m;
  train::early_ticket still(0.1, 2);
  CHECK(!still.observe(m, 0.2));
  CHECK(!still.observe(m, 0.2));
  CHECK(still.observe(m, 0.2));
  CHECK(m.first.whole.up.weight.pattern() == some_layer(1).whole.up.weight.pattern());
  CHECK_THROWS_AS(still.observe(without(0)), shape_error);
  CHECK_THROWS_AS(train::early_ticket(0), option_error);
}

using slimmable_block = nn::transformer_block<double, block, nn::norm_order::pre, nn::layer_norm<double>,
                                              layer_type, attention_type>;

slimmable_block some_transformer_block() {
  nn::transformer_config config;
  config.hidden = 24, config.heads = 6;
  return slimmable_block::random(config, mask::causal, 1, "");
}

TEST_CASE("slimmable layers: a transformer block takes them in the place of its own") {
  trial t;
  slimmable_block one = some_transformer_block();
  support::randomise(one);
  support::check_layer(one, 24, t.pass());
}

TEST_CASE("slimmed: a transformer block keeps the scales of its branches") {
  nn::transformer_config config;
  config.hidden = 24, config.heads = 6, config.residual = nn::residual_form::multiplier;
  slimmable_block one = slimmable_block::random(config, mask::causal, 1, "");
  one.mlp_scale.lambda[0] = 0.25;
  const auto slim = nn::slimmed(one, pattern_from_mask(1, 6, std::vector<char>{1, 0, 1, 1, 0, 1}),
                                pattern_from_mask(1, 96, std::vector<char>(96, 1)));
  CHECK(slim.attention_scale.lambda[0] == 1);
  CHECK(slim.mlp_scale.lambda[0] == 0.25);
}

TEST_CASE("slimmable layers: a new model begins with coefficients of 1") {
  nn::transformer_config config;
  config.hidden = 24, config.heads = 6, config.layers = 2, config.vocabulary = 5, config.context = 4;
  const nn::gpt<double, block, slimmable_block> model(config, 1);
  int layers = 0;
  train::detail::for_each_slimmable(model, [&](auto const& layer) {
    ++layers;
    CHECK(std::ranges::all_of(layer.coefficients, [](double c) { return c == 1; }));
  });
  CHECK(layers == 4);
}

TEST_CASE("head_masks: each layer loses the heads of least coefficients") {
  slimmable_block one = some_transformer_block();
  const std::vector<double> coefficients{0.5, -0.1, 2, -3, 0.2, 1};
  std::ranges::copy(coefficients, one.attention.coefficients.begin());
  const auto masks = train::head_masks(one, 1.0 / 3);
  CHECK(masks.size() == 1);
  CHECK(masks[0].stored == pattern_from_mask(1, 6, std::vector<char>{1, 0, 1, 1, 0, 1}));
  CHECK(train::head_masks(one, 0.99)[0].stored.blocks() == 1);
  CHECK_THROWS_AS(train::head_masks(one, 1), option_error);
  one.attention.coefficients[2] = std::nan("");
  CHECK(error_of<error>([&] { train::head_masks(one, 0.5); }) ==
        "[head_masks] coefficient 2 of a layer is nan: coefficients must be finite");
  one.attention.coefficients[2] = 2;
  attention_type empty;
  CHECK(train::head_masks(empty, 0.5)[0].stored.blocks() == 0);
  two_layers without;
  CHECK(error_of<option_error>([&] { train::head_masks(without, 0.5); }) ==
        "[head_masks] the model has no nn::slimmable_attention");
  CHECK(train::neuron_masks(one, 0.4)[0].stored.block_cols() == 96);
  context ctx(1);
  train::training t(one, train::adamw{});
  train::slimming_penalty penalty(0.01);
  penalty.accumulated(ctx, t, {0, 1});
  CHECK(t.gradients.attention.coefficients[1] == doctest::Approx(-0.01));
  CHECK(penalty.value == doctest::Approx(0.01 * (6.8 + 96)));
}

}}  // namespace early_ticket_test
