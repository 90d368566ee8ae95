// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/core/memory.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/presets.hpp>

namespace model_size_test {

using namespace tessera;
using support::some_ids;

using block = block_shape<4>;

nn::transformer_config small() {
  nn::transformer_config config;
  config.layers = 2;
  config.hidden = 48;
  config.heads = 3;
  config.context = 100;
  config.vocabulary = 50;
  return config;
}

/// What a model holds, counted in its containers.
template <class Model> nn::model_size held_by(Model const& m) {
  nn::model_size size;
  nn::for_each_parameter(m, [&](nn::parameter_name const&, auto const& parameter) {
    if constexpr (requires { parameter.pattern(); }) {
      size.parameters += parameter.rows() * parameter.cols();
      size.live_parameters += parameter.live();
    } else {
      size.parameters += parameter.size();
      size.live_parameters += parameter.size();
    }
    size.stored_elements += std::int64_t(parameter.size_bytes() / sizeof(double));
  });
  return size;
}

template <class Model> void check_parameters(Model const& m, nn::model_size const& size) {
  const nn::model_size held = held_by(m);
  CHECK(size.parameters == held.parameters);
  CHECK(size.live_parameters == held.live_parameters);
  CHECK(size.stored_elements == held.stored_elements);
}

TEST_CASE("model_size: counts of a gpt are those of its containers") {
  for (const double density : {1.0, 0.3})
    for (const auto bias : {nn::bias_term::present, nn::bias_term::absent}) {
      auto config = small();
      config.density = density;
      config.bias = bias;
      check_parameters(nn::gpt<double, block>(config, 1), nn::gpt<double, block>::size(config));
    }
}

TEST_CASE("model_size: counts follow the positions, the heads of keys and the kind of blocks") {
  using T = double;
  using other =
      nn::transformer_block<T, block, nn::norm_order::pre, nn::rms_norm<T>, nn::gated_mlp<T, block>>;
  auto config = small();
  config.density = 0.3;
  config.key_heads = 1;
  for (const auto positions : {nn::position_coding::rotary, nn::position_coding::none}) {
    config.positions = positions;
    check_parameters(nn::gpt<T, block>(config, 1), nn::gpt<T, block>::size(config));
    check_parameters(nn::gpt<T, block, other>(config, 1), nn::gpt<T, block, other>::size(config));
    check_parameters(nn::encoder<T, block>(config, 1), nn::encoder<T, block>::size(config));
  }
}

TEST_CASE("model_size: counts follow an output weight, inner features and biases of attention") {
  using llama = nn::llama<double, block>;
  auto config = nn::as_llama(small());
  config.density = 0.3, config.mlp_features = 80;
  for (const auto biases : {nn::attention_bias::none, nn::attention_bias::inputs, nn::attention_bias::all}) {
    config.biases_of_attention = biases;
    check_parameters(llama(config, 1), llama::size(config));
  }
  // TinyLlama-1.1B by LlamaForCausalLM of transformers.
  CHECK(nn::llama<float, block_shape<16>>::size(nn::llama_config("1b")).parameters == 1100048384);
}

TEST_CASE("model_size: counts of an encoder are those of its containers") {
  for (const std::int64_t segments : {0, 2}) {
    auto config = small();
    config.density = 0.3;
    config.segment_types = segments;
    check_parameters(nn::encoder<double, block>(config, 1), nn::encoder<double, block>::size(config));
  }
}

TEST_CASE("model_size: layers that are used several times have their parameters once, and work each time") {
  auto config = small();
  config.density = 0.3;
  const auto once = nn::encoder<double, block>::size(config);
  config.repeats = 3;
  const auto size = nn::encoder<double, block>::size(config);
  CHECK(size.parameters == once.parameters);
  CHECK(size.stored_elements == once.stored_elements);
  CHECK(size.stored_blocks == once.stored_blocks);
  config.repeats = 1, config.layers = 6;
  const auto copies = nn::encoder<double, block>::size(config);
  CHECK(size.multiply_adds == copies.multiply_adds);
  CHECK(size.attention_multiply_adds == copies.attention_multiply_adds);
  CHECK(size.saved_values == copies.saved_values);
  CHECK(size.room_bytes(100) == copies.room_bytes(100));
  const auto in_segments = nn::encoder<double, block>::size(config, 3);
  config.repeats = 2, config.layers = 3;
  const auto shared_in_segments = nn::encoder<double, block>::size(config, 3);
  CHECK(shared_in_segments.room_bytes(100) == in_segments.room_bytes(100));
  CHECK(shared_in_segments.saved_values == in_segments.saved_values);
  CHECK(shared_in_segments.multiply_adds == in_segments.multiply_adds);
}

TEST_CASE("model_size: counts follow a factorised embedding") {
  auto config = small();
  config.embedding = 20, config.repeats = 2, config.segment_types = 2;
  check_parameters(nn::encoder<double, block>(config, 1), nn::encoder<double, block>::size(config));
  config.segment_types = 0;
  check_parameters(nn::gpt<double, block>(config, 1), nn::gpt<double, block>::size(config));
  config.embedding = 48;  // as hidden: projections, still
  const std::int64_t factorised = nn::gpt<double, block>::size(config).parameters;
  config.embedding = 0;
  CHECK(factorised == nn::gpt<double, block>::size(config).parameters + 2 * 48 * 48);
}

TEST_CASE("model_size: ALBERT-Base has the parameters of AlbertForMaskedLM of transformers") {
  nn::transformer_config config;
  config.layers = 1, config.repeats = 12, config.hidden = 768, config.embedding = 128, config.heads = 12;
  config.context = 512, config.vocabulary = 30000, config.segment_types = 2;
  const std::int64_t e = 128, h = 768, v = 30000, block_of = 12 * h * h + 13 * h;
  using model = nn::encoder<float, block_shape<16>>;
  const auto size = model::size(config);
  CHECK(size.parameters == v * e + (512 + 2 + 2) * e + e * h + h + block_of + (h * e + e) + 2 * e + v);
  CHECK(size.parameters == 11221680);
  CHECK(size.multiply_adds == 12 * 12 * h * h + 2 * e * h + v * e);
  config.next_sentence = true;  // with a pooler, AlbertModel has 11683584: 12M in Lan et al. 2020, table 1
  CHECK(model::size(config).parameters - (h * e + e) - 2 * e - v - (2 * h + 2) == 11683584);
}

TEST_CASE("model_size: counts follow densities that differ, and weights share the density of a block") {
  auto config = small();
  config.hidden = 64;
  config.heads = 4;
  config.density = 0.2;
  config.densities = density_distribution::erdos_renyi;
  check_parameters(nn::gpt<double, block>(config, 1), nn::gpt<double, block>::size(config));
  const nn::gpt<double, block> model(config, 1);
  auto const& layer = model.blocks.layers[0];
  const auto stored = [](auto const& linear) { return linear.weight.pattern().blocks(); };
  // (rows + cols) ÷ (rows · cols) is 4, 6, 5 and 5 to one another, of 3, 1, 4 and 4 parts of 256 blocks.
  const double scale = 0.2 * 12 * 256 / (4 + 2 + 5 + 5);
  CHECK(double(stored(layer.attention.qkv)) == doctest::Approx(4 * scale).epsilon(0.01));
  CHECK(double(stored(layer.attention.out)) == doctest::Approx(2 * scale).epsilon(0.01));
  CHECK(double(stored(layer.mlp.up)) == doctest::Approx(5 * scale).epsilon(0.01));
  CHECK(double(stored(layer.mlp.down)) == doctest::Approx(5 * scale).epsilon(0.01));
}

TEST_CASE("model_size: counts of a dense model equal the closed form") {
  const auto config = small();
  const auto size = nn::gpt<float, block_shape<16>>::size(config);
  const std::int64_t h = 48, matrices = 2 * 12 * h * h;
  CHECK(size.parameters == 50 * h + 100 * h + matrices + 2 * (4 * h + 9 * h) + 2 * h);
  CHECK(size.multiply_adds == matrices + 64 * h);  // the token table's last block overhangs
  CHECK(size.training_multiply_adds() == 3 * size.multiply_adds);
  CHECK(size.attention_multiply_adds_of(100, mask::bidirectional) == 2 * (2 * h) * 100 * 100);
  CHECK(size.attention_multiply_adds_of(100, mask::causal) == 2 * (2 * h) * 5050);
}

TEST_CASE("model_size: senseless and absurd shapes are refused before anything is allocated") {
  const auto refused = [](auto change) {
    auto config = small();
    change(config);
    const std::size_t before = tensor_memory::live();
    CHECK_THROWS_AS((nn::gpt<double, block>(config, 1)), option_error);
    CHECK(tensor_memory::live() == before);
  };
  refused([](auto& c) { c.layers = 0; });
  refused([](auto& c) { c.heads = 5; });
  refused([](auto& c) { c.repeats = 0; });
  refused([](auto& c) { c.repeats = std::int64_t(1) << 30; });  // layers in all, as above
  refused([](auto& c) { c.embedding = -1; });
  refused([](auto& c) { c.vocabulary = -1; });
  refused([](auto& c) { c.density = 0; });
  refused([](auto& c) { c.density = 1.5; });
  refused([](auto& c) { c.dropout = 1; });
  refused([](auto& c) { c.hidden = std::int64_t(3) << 29; });
  refused([](auto& c) { c.layers = std::int64_t(1) << 50; });
  refused([](auto& c) { c.layers = std::int64_t(1) << 31; });  // one more than names can number
  refused([](auto& c) { c.mlp_features = -1; });
  refused([](auto& c) { c.scaling = {rotary_scaling_form::linear, 0.5}; });
  refused([](auto& c) { c.scaling = {rotary_scaling_form::llama3, 8, 4, 4}; });
  refused([](auto& c) { c.scaling = {rotary_scaling_form::llama3, 8, 1, 4, 0}; });
  auto config = small();
  config.output = nn::output_weight::own;
  CHECK_THROWS_AS((nn::encoder<double, block>(config, 1)), option_error);
}

TEST_CASE("presets: BERT's family has the published parameters, and the FLOPs of Dietrich et al. 2021") {
  // Turc et al. 2019, with the pooler (hidden² + hidden) in place of the head's dense part; appendix A.2.
  struct published {
    char const* name;
    std::int64_t parameters;
    double flops;  // 10^9, of a sequence of 128 tokens
  };
  for (const auto& [name, parameters, flops] :
       {published{"tiny", 4385920, .352}, published{"mini", 11170560, 2.617},
        published{"small", 28763648, 10.066}, published{"medium", 41373184, 20.13},
        published{"base", 109482240, 67.04}}) {
    INFO(name);
    nn::transformer_config config = nn::bert_config(name);
    using model = nn::encoder<float, block_shape<16>>;
    const nn::model_size size = model::size(config);
    CHECK(size.parameters == parameters + 2 * config.hidden + config.vocabulary);
    CHECK(nn::training_flops(config, 128) / 1e9 == doctest::Approx(flops).epsilon(1e-3));
    // What the layers themselves count.
    const auto layer = model::layer::size(config);
    CHECK(nn::training_flops(config, 128) ==
          6.0 * double(config.layers) *
              double(layer.multiply_adds * 128 + layer.attention_multiply_adds_of(128, mask::bidirectional)));
  }
  nn::transformer_config base = nn::bert_config("base"), medium = nn::bert_config("medium");
  base.density = medium.density = 0.1;
  CHECK(nn::training_flops(base, 128) / 1e9 == doctest::Approx(8.335).epsilon(1e-3));
  CHECK(nn::training_flops(medium, 128) / 1e9 == doctest::Approx(2.738).epsilon(1e-3));
  CHECK(nn::gpt<float, block_shape<16>>::size(nn::gpt2_config("small")).parameters == 124439808);
  CHECK_THROWS_WITH_AS(nn::bert_config("huge"),
                       "[bert_config] \"huge\": there are tiny, mini, small, medium, base", option_error);
}

TEST_CASE("presets: the critical cost of a sparse FLOP is that of Dietrich et al. 2021") {
  CHECK(nn::flop_cost(3, 2e9, 10, 10e9) == doctest::Approx(1.5));
  // FLOPs of the dense family to the loss of BERT-Base at density 0.1, by log-log interpolation (tables 1,
  // A.11).
  const auto dense_to = [](double loss, double flops, double its_loss, double more, double its_less) {
    const double share = std::log(loss / its_loss) / std::log(its_less / its_loss);
    return flops * std::pow(more / flops, share);
  };
  const double single = dense_to(2.160, 10.066, 2.310, 20.13, 2.115),
               large = dense_to(2.311, 2.617, 2.606, 10.066, 2.310);
  CHECK(nn::critical_flop_cost(single, 8.335) == doctest::Approx(2.05).epsilon(0.005));
  CHECK(nn::critical_flop_cost(large, 8.335) == doctest::Approx(1.202).epsilon(0.005));
}

}  // namespace model_size_test
