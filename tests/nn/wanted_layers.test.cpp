// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <nn/lora.hpp>
#include <nn/wanted.hpp>
#include <support/counting.hpp>
#include <support/gradient_check.hpp>

#include <tessera/nn/combinators.hpp>
#include <tessera/nn/edge_popup.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/nm_linear.hpp>
#include <tessera/nn/norm.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/nn/recurrent.hpp>
#include <tessera/nn/recurrent_model.hpp>
#include <tessera/nn/relative_bias.hpp>
#include <tessera/nn/sequence_classifier.hpp>
#include <tessera/nn/slimmable.hpp>
#include <tessera/nn/top_kast.hpp>
#include <tessera/nn/transformer_block.hpp>

// Gradients that are not wanted, in the layers and models beside gpt: wanted.test.cpp says more.

namespace wanted_layers_test {

using namespace tessera;
using block = block_shape<4>;

nn::transformer_config small() {
  nn::transformer_config config;
  config.layers = 2;
  config.hidden = 24;
  config.heads = 3;
  config.context = 50;
  config.vocabulary = 37;
  config.feed_forward = 2;
  config.density = 0.6;
  config.segment_types = 2;
  return config;
}
/// Random numbers in all parameters and frozen parts.
template <class Layer> Layer filled(Layer l) {
  std::uint64_t seed = 20;
  const auto fill = [&](nn::parameter_name const&, auto& tensor) { support::fill(tensor, ++seed); };
  nn::for_each_parameter(l, fill);
  nn::for_each_frozen(l, fill);
  return l;
}

struct trial {
  support::counting work;
  context ctx{work};
  sequences batch{{0, 33, 70}};
  nn::workspace<float> room;
  nn::pass<float> pass() { return {ctx, batch, room, nn::purpose::training, 5, 3}; }
  template <class Layer> void check(Layer const& l) { support::check_layer_wanted(l, 24, pass()); }
};

TEST_CASE("wanted: gradients of combinators have the bits of all, whatever else is wanted") {
  trial t;
  using linear = nn::linear<float, block>;
  const auto some = [](std::uint64_t seed) {
    return linear(24, 24, support::some_blocks(24, 24, 0.5, seed));
  };
  using two = nn::sequence<float, nn::rms_norm<float>, nn::dropout<float>, linear>;
  using layers = nn::stack<float, nn::residual<float, nn::recomputed<float, two>>>;
  layers all;
  for (std::uint64_t i = 0; i < 3; ++i)
    all.layers.push_back({{two{nn::rms_norm<float>(24), nn::dropout<float>(0.1, "drop"), some(i)}}});
  all = filled(all);
  for (all.segments = 0; all.segments <= 2; all.segments += 2) t.check(all);
}

TEST_CASE("wanted: gradients of transformer blocks have the bits of all, whatever else is wanted") {
  trial t;
  using attention = nn::multi_head_attention<float, block, nn::relative_bias<float>>;
  using pre = nn::transformer_block<float, block, nn::norm_order::pre, nn::rms_norm<float>,
                                    nn::gated_mlp<float, block>, attention>;
  t.check(filled(pre::random(small(), mask::causal, 1, "block")));
  using post = nn::transformer_block<float, block, nn::norm_order::post, nn::layer_norm<float>,
                                     nn::slimmable_mlp<float, block>, nn::slimmable_attention<float, block>>;
  t.check(filled(post::random(small(), mask::bidirectional, 1, "block")));
  using adapted = nn::mlp<float, block, ops::gelu, lora_layer::lora<float, block, 8>>;
  t.check(filled(adapted::random(small(), 1, "mlp")));
}

TEST_CASE("wanted: gradients of layers with visible weights have the bits of all, whatever else is wanted") {
  trial t;
  using mlp = nn::mlp<float, block>;
  const mlp dense = filled(mlp::random(small(), 1, "mlp"));
  t.check(nn::top_kast<float, mlp>(dense, 0.3));
  t.check(nn::edge_popup<float, mlp>(dense, 0.3, 1));
  auto config = small();
  config.density = 1;
  using of_nm = nn::mlp<float, block, ops::gelu, nn::nm_linear<float, nm_shape<2, 4>, block>>;
  auto m = filled(of_nm::random(config, 1, "mlp"));
  nn::refresh(m, 0);
  t.check(m);
}

TEST_CASE("wanted: a layer of 8 bits measures, although its weights are frozen") {
  trial t;
  using layer = nn::float8_linear<float, block>;
  using two = nn::sequence<float, layer, layer>;
  const auto plain = filled(nn::linear<float, block>(24, 24));
  two m{layer(plain), layer(plain)};
  nn::refresh(m, 0);
  t.check(m);
  panel_matrix<float> x(24, 70), y(24, 70);
  support::fill(x, 1);
  two::saved saved;
  m.forward(x, y, saved, t.pass());
  auto all = nn::zeros_like(m), some = support::wanted_gradients(m, [](std::string_view) { return false; });
  m.backward(x, saved, x, nullptr, all, t.pass());
  t.work.counted();
  m.backward(x, saved, x, nullptr, some, t.pass());
  CHECK(t.work.counted() == 24 * 24 * 70);  // dy of the lower one
  std::vector<float> measured, expected;
  nn::for_each_frozen(all, [&](auto const&, auto& amax) { expected.push_back(amax[0]); });
  nn::for_each_frozen(some, [&](auto const&, auto& amax) { measured.push_back(amax[0]); });
  CHECK(measured == expected);
  CHECK(measured.size() == 4);
  CHECK(measured[0] > 0);
  CHECK(measured[1] > 0);
}

TEST_CASE(
    "wanted: gradients of an encoder and of a classifier have the bits of all, whatever else is wanted") {
  trial t;
  const auto ids = support::some_ids(70, 37, 1);
  auto targets = support::some_ids(70, 37, 2);
  std::vector<std::int32_t> segments(70, 0);
  for (std::size_t i = 20; i < 50; ++i) segments[i] = 1;
  auto config = small();
  config.dropout = 0.1;
  for (const std::int64_t embedding : {12, 0}) {
    config.next_sentence = true, config.embedding = embedding;
    using encoder = nn::encoder<float, block>;
    const encoder m(config, 7);
    encoder::saved saved;
    const std::vector<std::int32_t> labels{encoder::is_next, encoder::is_not_next};
    for (const bool ignores : {false, true}) {
      if (ignores) targets[3] = targets[60] = nn::ignored;
      static_cast<void>(m.forward({ids, segments}, targets, labels, saved, t.pass()));
      support::check_each_wanted(m, [&](auto& g) { m.backward({ids, segments}, saved, g, t.pass()); });
    }
  }
  config.next_sentence = false;
  using classifier = nn::sequence_classifier<float, block>;
  const classifier m(config, 3, 7);
  classifier::saved saved;
  const std::vector<std::int32_t> labels{2, 0};
  static_cast<void>(m.forward({ids, segments}, labels, saved, t.pass()));
  const auto backward = [&](auto& g) { m.backward({ids, segments}, saved, g, t.pass()); };
  support::check_each_wanted(m, backward);
  // All but the head are frozen: its product by dy, and its weight gradients.
  auto of_head = support::wanted_gradients(
      m, [](std::string_view name) { return name.starts_with("pooler") || name.starts_with("classifier"); });
  t.work.counted();
  backward(of_head);
  CHECK(t.work.counted() == 2 * (2 * 16 * 32 + 32 * 32));
  CHECK(t.work.kinds.count("unseen") == 0);
}

TEST_CASE_TEMPLATE("wanted: gradients of a recurrent model have the bits of all, whatever else is wanted",
                   Cell, nn::gru<float, block>, nn::lstm<float, block>) {
  trial t;
  t.batch = sequences::of_equal_length(2, 64);
  nn::recurrent_config config;
  config.layers = 2;
  config.hidden = 24;
  config.vocabulary = 37;
  using model = nn::recurrent_model<float, block, Cell>;
  const model m(config, 7);
  const auto ids = support::some_ids(128, 37, 1), targets = support::some_ids(128, 37, 2);
  typename model::saved saved;
  static_cast<void>(m.forward(ids, targets, saved, t.pass()));
  support::check_each_wanted(m, [&](auto& g) { m.backward(ids, saved, g, t.pass()); });
}

}  // namespace wanted_layers_test
