// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <type_traits>

#include <doctest/doctest.h>

#include <tessera/core/random.hpp>
#include <tessera/nn/combinators.hpp>
#include <tessera/nn/edge_popup.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/nn/recurrent_model.hpp>
#include <tessera/nn/sequence_classifier.hpp>
#include <tessera/nn/slimmable.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/train/settings.hpp>

// The key of a random choice is the name of a parameter or of a dropout, as a model lists it.

namespace nn_random_keys_test { namespace {

using namespace tessera;
using block = block_shape<4>;

constexpr std::uint64_t seed = 3;

/// Checks that the pattern and the values of each matrix, and the masks of each dropout, have its name as
/// key.
template <class Model> void check_keys(Model const& model) {
  std::set<std::uint64_t> keys;
  const auto is_new = [&](random_key key) { return keys.insert(key.value).second; };
  nn::for_each_parameter(model, [&](nn::parameter_name const& name, auto const& parameter) {
    const std::string text = name.text();
    INFO("parameter ", text);
    CHECK(is_new(text));
    if constexpr (nn::is_matrix<decltype(parameter)>) {
      pattern const& stored = parameter.pattern();
      CHECK((stored.is_dense() ||
             stored == random_pattern(stored.block_rows(), stored.block_cols(), stored.density(),
                                      random_stream(seed, random_purpose::initial_pattern, text))));
      // A normal number that is not drawn again, or a uniform one, has the sign of the value.
      const random_stream draw(seed, random_purpose::initial_values, text);
      int normal = 0, uniform = 0, values = 0;
      for (std::int64_t i = 0; i < parameter.rows(); ++i)
        for (std::int64_t j = 0; j < parameter.cols(); ++j) {
          const auto at = std::uint64_t(i * parameter.cols() + j);
          if (parameter.find(i, j) < 0 || std::abs(draw.normal(at)) > 2) continue;
          const bool positive = double(parameter(i, j)) > 0;
          ++values, normal += positive == (draw.normal(at) > 0),
              uniform += positive == (draw.uniform(at) > 0.5);
        }
      CHECK((normal == values || uniform == values));
    }
  });
  train::setting_list(model).for_each([&](nn::parameter_name const& name, train::any_setting const& each) {
    if (!each.key) return;
    const std::string setting = name.text(), layer = setting.substr(0, setting.rfind('.'));
    INFO("dropout ", layer);
    CHECK(is_new(layer));
    CHECK(*each.key == random_key(layer));
  });
}

nn::transformer_config config() {
  nn::transformer_config of{.layers = 3, .hidden = 16, .heads = 2, .context = 8, .vocabulary = 20};
  of.dropout = 0.1;
  of.density = 0.4;
  return of;
}

TEST_CASE("random keys: each matrix and each dropout of a model has its own name as key") {
  using transformer = nn::transformer_block<float, block>;
  check_keys(nn::gpt<float, block>(config(), seed));
  check_keys(nn::gpt<float, block, nn::recomputed<float, transformer>>(config(), seed));
  check_keys(nn::gpt<float, block,
                     nn::transformer_block<float, block, nn::norm_order::pre, nn::rms_norm<float>,
                                           nn::gated_mlp<float, block>>>(config(), seed));
  check_keys(
      nn::gpt<float, block,
              nn::transformer_block<float, block, nn::norm_order::pre, nn::layer_norm<float>,
                                    nn::slimmable_mlp<float, block>, nn::slimmable_attention<float, block>>>(
          config(), seed));
  check_keys(
      nn::gpt<float, block, nn::transformer_block_of<nn::float8_linear<float, block>>>(config(), seed));
  auto next = config();
  next.segment_types = 2, next.next_sentence = true;
  check_keys(nn::encoder<float, block>(next, seed));
  check_keys(nn::sequence_classifier<float, block>(config(), 3, seed));
  const nn::recurrent_config recurrent{
      .layers = 3, .hidden = 16, .vocabulary = 20, .dropout = 0.1, .density = 0.4};
  check_keys(nn::recurrent_model<float, block>(recurrent, seed));
  check_keys(nn::recurrent_model<float, block, nn::gru<float, block>>(recurrent, seed));
}

TEST_CASE("random keys: scores of edge-popup have the name of the layer in its model") {
  const auto score = [](nn::parameter_name const& name) -> float {  // and no reference into the layer
    const nn::linear<float, block> inner(8, 8);
    return nn::edge_popup<float, nn::linear<float, block>>(inner, 0.5, seed, name).scores.weight(1, 2);
  };
  block_sparse_matrix<float, block> expected(8, 8);
  nn::initialise(expected, nn::distribution::he, seed, "first.scores.weight");
  CHECK(score("first") == expected(1, 2));
  nn::initialise(expected, nn::distribution::he, seed, "scores.weight");
  CHECK(score({}) == expected(1, 2));
}

}}  // namespace nn_random_keys_test
