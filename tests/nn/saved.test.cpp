// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/nn/combinators.hpp>
#include <tessera/nn/edge_popup.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/nm_linear.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/nn/recurrent_model.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/nn/sequence_classifier.hpp>
#include <tessera/nn/slimmable.hpp>
#include <tessera/nn/top_kast.hpp>

// The tensors that a `saved` lists are all that a forward allocates, and all that a size forecasts.

namespace saved_test { namespace {

using namespace tessera;
using support::some_ids;

using block = block_shape<4>;
constexpr std::int64_t tokens = 147;

nn::transformer_config config() {
  nn::transformer_config of;
  of.layers = 3;
  of.hidden = 40;
  of.heads = 5;
  of.key_heads = 1;
  of.context = 100;
  of.vocabulary = 50;
  of.feed_forward = 2;
  of.density = 0.5;
  return of;
}

/// The bytes of the tensors that a `saved` lists, and of the tensors whose name begins with `less`.
struct bytes {
  std::int64_t all = 0, some = 0;
};
template <class Saved> bytes bytes_of(Saved const& s, std::string const& less = "-") {
  bytes count;
  nn::for_each_saved(s, [&](nn::parameter_name const& name, auto const& tensor) {
    const auto its = std::int64_t(tensor.size_bytes());
    count.all += its;
    if (name.text().rfind(less, 0) == 0) count.some += its;
  });
  return count;
}

/// Runs a forward, and checks that it allocates the tensors that it lists.
///   forward   forward(saved, pass)
template <class Saved, element T> Saved filled(sequences const& batch, auto const& forward) {
  context ctx(1);
  nn::workspace<T> room;
  const nn::pass<T> p{ctx, batch, room, nn::purpose::training, 1, 2};
  Saved first, s;
  forward(first, p);  // context and workspace grow in the first forward
  const std::size_t before = tensor_memory::live();
  forward(s, p);
  CHECK(bytes_of(s).all == std::int64_t(tensor_memory::live() - before));
  return s;
}

template <element T, class Layer>
typename Layer::saved filled(Layer const& layer, std::int64_t features,
                             sequences const& batch = sequences({0, 70, tokens})) {
  panel_matrix<T> x(features, batch.tokens()), y(layer.outputs(features), batch.tokens());
  for (std::int64_t t = 0; t < x.tokens(); ++t)
    for (std::int64_t f = 0; f < features; ++f) x(f, t) = T(float((f * 7 + t * 3) % 11) / 11);
  return filled<typename Layer::saved, T>(batch,
                                          [&](auto& s, nn::pass<T> const& p) { layer.forward(x, y, s, p); });
}

/// Checks the list, and that `size` forecasts the bytes.
template <element T, class Layer>
void check(Layer const& layer, std::int64_t features, nn::model_size const& size) {
  const auto s = filled<T>(layer, features);
  CHECK(bytes_of(s, "factors").all - bytes_of(s, "factors").some == size.saved_bytes(tokens));
}

template <element T, class Layer> Layer random_layer() {
  if constexpr (requires { Layer::random(config(), mask::causal, 1, nn::parameter_name("")); })
    return Layer::random(config(), mask::causal, 1, "");
  else
    return Layer::random(config(), 1, "");
}
template <element T, class Layer> void check() {
  auto layer = random_layer<T, Layer>();
  nn::refresh(layer, 0);
  check<T>(layer, config().hidden, Layer::size(config()));
}

template <element T> void check_layers() {
  check<T, nn::mlp<T, block>>();
  check<T, nn::mlp<T, block, ops::relu, nn::nm_linear<T, nm_shape<2, 4>, block>>>();
  check<T, nn::gated_mlp<T, block>>();
  check<T, nn::multi_head_attention<T, block>>();
  check<T, nn::slimmable_mlp<T, block>>();
  check<T, nn::slimmable_attention<T, block>>();
  check<T, nn::transformer_block<T, block>>();
  check<T, nn::transformer_block<T, block, nn::norm_order::post>>();
  check<T, nn::transformer_block<T, block, nn::norm_order::pre, nn::rms_norm<T>, nn::gated_mlp<T, block>>>();
  check<T, nn::recomputed<T, nn::transformer_block<T, block>>>();
  check<T>(nn::linear<T, block>(30, 20), 20, nn::linear<T, block>::size(30, 20, 1, nn::bias_term::present));
  check<T>(nn::layer_norm<T>(20), 20, nn::layer_norm<T>::size(20));
  check<T>(nn::rms_norm<T>(20), 20, nn::rms_norm<T>::size(20));
}

TEST_CASE("saved: a layer allocates the tensors that it lists and those of its forecast") {
  check_layers<float>();
  check_layers<bfloat16>();
  check<float, nn::mlp<float, block, ops::relu, nn::float8_linear<float, block>>>();
  filled<float>(nn::dropout<float>(0.1, "drop"), 20);
}

TEST_CASE("saved: branches that are scaled and norms that are absent are listed and forecast, too") {
  for (const auto residual : {nn::residual_form::rezero, nn::residual_form::layer_scale}) {
    auto of = config();
    of.residual = residual, of.norms = nn::norm_layers::absent;
    using pre = nn::transformer_block<float, block>;
    check<float>(pre::random(of, mask::causal, 1, ""), of.hidden, pre::size(of));
    using post = nn::transformer_block<float, block, nn::norm_order::post>;
    check<float>(post::random(of, mask::causal, 1, ""), of.hidden, post::size(of));
  }
  const nn::scaled_residual<float, nn::mlp<float, block>> scaled{random_layer<float, nn::mlp<float, block>>(),
                                                                 {1, 0.5}};
  filled<float>(scaled, config().hidden);
}

TEST_CASE("saved: combinators list what stands between layers, too") {
  using T = float;
  using mlp = nn::mlp<T, block>;
  using attention = nn::multi_head_attention<T, block>;
  const mlp some = random_layer<T, mlp>();
  const std::int64_t hidden = config().hidden;

  const nn::sequence<T, nn::layer_norm<T>, mlp, nn::linear<T, block>> chain(nn::layer_norm<T>(hidden), some,
                                                                            nn::linear<T, block>(30, hidden));
  const auto of_chain = filled<T>(chain, hidden);
  const auto panels = [](std::int64_t features) {
    return round_up<std::int64_t>(features, granule) * round_up<std::int64_t>(tokens, panel_tokens) *
           std::int64_t(sizeof(T));
  };
  CHECK(bytes_of(of_chain, "between").some == 2 * panels(hidden));
  CHECK(bytes_of(of_chain, "1.").some == panels(2 * hidden));

  filled<T>(nn::residual<T, mlp>{some}, hidden);
  filled<T>(nn::top_kast<T, mlp>(some, 0.25), hidden);
  filled<T>(nn::edge_popup<T, mlp>(some, 0.25, 1), hidden);

  nn::stack<T, attention> all;
  for (int i = 0; i < 5; ++i) all.layers.push_back(random_layer<T, attention>());
  for (const int segments : {0, 1, 2, 5}) {
    INFO(segments, " segments");
    all.segments = segments;
    check<T>(all, hidden, nn::stack<T, attention>::size(attention::size(config()), 5, hidden, segments));
  }
}

TEST_CASE("saved: what a recomputed layer borrows is what the layer would save") {
  using layer = nn::transformer_block<float, block>;
  const nn::recomputed<float, layer> again{random_layer<float, layer>()};
  context ctx(1);
  const sequences batch({0, 70, tokens});
  nn::workspace<float> room;
  const nn::pass<float> p{ctx, batch, room};
  panel_matrix<float> x(40, tokens), y(40, tokens), dx(40, tokens);
  nn::recomputed<float, layer>::saved nothing;
  again.forward(x, y, nothing, p);
  CHECK(bytes_of(*p.borrow_saved<layer::saved>()).all == layer::size(config()).saved_bytes(tokens));
  auto g = nn::zeros_like(again);
  again.backward(x, nothing, y, dx, g, p);
  CHECK(bytes_of(*p.borrow_saved<layer::saved>()).all == layer::size(config()).saved_bytes(tokens));
}

TEST_CASE_TEMPLATE_DEFINE(
    "saved: recurrent cells list the state before the first step, which no forecast counts", Cell, cells) {
  const Cell cell = Cell::random(40, 0.5, 1, "cell");
  const sequences batch = nn::time_steps(3, 70);
  const auto s = filled<float>(cell, 40, batch);
  const bytes count = bytes_of(s, "initial");
  CHECK(count.some % (48 * 128 * 4) == 0);
  CHECK(count.some > 0);
  CHECK(count.all - count.some == Cell::size(40, 0.5).saved_bytes(batch.tokens()));
}
TEST_CASE_TEMPLATE_APPLY(cells, std::tuple<nn::gru<float, block>, nn::lstm<float, block>>);

TEST_CASE_TEMPLATE_DEFINE("saved: models allocate the tensors that they list and those of their forecasts", T,
                          models) {
  const auto ids = some_ids(tokens, 50, 1), targets = some_ids(tokens, 50, 2);
  const sequences batch({0, 70, tokens});
  const std::vector<std::int32_t> labels{1, 0};
  const auto forecast = [](auto const& model, std::int64_t segments) {
    return std::remove_cvref_t<decltype(model)>::size(model.config, segments).saved_bytes(tokens);
  };
  for (const int segments : {0, 2}) {
    INFO(segments, " segments");
    using gpt = nn::gpt<T, block>;
    gpt decoder(config(), 1);
    decoder.blocks.segments = segments;
    const auto of_gpt = filled<typename gpt::saved, T>(
        batch, [&](auto& s, auto const& p) { static_cast<void>(decoder.forward(ids, targets, s, p)); });
    CHECK(bytes_of(of_gpt).all == forecast(decoder, segments));

    using encoder = nn::encoder<T, block>;
    auto of = config();
    of.next_sentence = true;
    encoder both(of, 1);
    both.blocks.segments = segments;
    const auto of_encoder = filled<typename encoder::saved, T>(batch, [&](auto& s, auto const& p) {
      static_cast<void>(both.forward({ids, {}}, targets, labels, s, p));
    });
    const bytes count = bytes_of(of_encoder, "next_sentence");  // of two sequences
    CHECK(count.some > 0);
    CHECK(count.all - count.some == forecast(both, segments));

    nn::sequence_classifier<T, block> classifier(both, 3, 1);
    filled<typename nn::sequence_classifier<T, block>::saved, T>(batch, [&](auto& s, auto const& p) {
      static_cast<void>(classifier.forward({ids, {}}, labels, s, p));
    });

    auto some_targets = targets;
    some_targets[3] = some_targets[70] = nn::ignored;
    filled<typename gpt::saved, T>(
        batch, [&](auto& s, auto const& p) { static_cast<void>(decoder.forward(ids, some_targets, s, p)); });
  }
}
TEST_CASE_TEMPLATE_APPLY(models, std::tuple<float, bfloat16>);

TEST_CASE(
    "saved: a recurrent model and a loss allocate the tensors that they list and those of their forecasts") {
  using model = nn::recurrent_model<float, block>;
  const model m({2, 24, 50}, 1);
  const sequences batch = nn::time_steps(2, 64);
  const auto ids = some_ids(batch.tokens(), 50, 1);
  const auto s = filled<model::saved, float>(
      batch, [&](auto& saved, auto const& p) { static_cast<void>(m.forward(ids, ids, saved, p)); });
  std::int64_t initial = 0;
  for (auto const& cell : s.cells.kept.layers) initial += bytes_of(cell, "initial").some;
  CHECK(bytes_of(s).all - initial == model::size(m.config).saved_bytes(batch.tokens()));

  using loss = nn::cross_entropy<float>;
  panel_matrix<float> logits(50, batch.tokens());
  const auto of_loss = filled<loss::saved, float>(batch, [&](auto& saved, auto const& p) {
    static_cast<void>(loss().forward(logits, ids, 1, nullptr, saved, p));
  });
  CHECK(bytes_of(of_loss).all + std::int64_t(logits.size_bytes()) ==
        loss::size(50).saved_bytes(batch.tokens()));
}

struct made {
  panel_matrix<float> z, other;
  token_vector<double> sums;
  feature_vector<float> factors;
  static void parts(auto& each, auto&... of) {
    each("z", of.z...), each("sums", of.sums...), each("factors", of.factors...);
    each.apart("other", of.other...);
  }
};

TEST_CASE("saved: fit gives the parts of all tokens their sizes, and leaves the others") {
  made s, form{{20, 0}, {30, 0}, {}, feature_vector<float>({1, 2})};
  CHECK(bytes_of(form).all == bytes_of(form, "factors").some);
  nn::fit(s.other, 10, 50);
  nn::fit(s, form, 100);
  CHECK(s.z.features() == 20);
  CHECK(s.z.tokens() == 100);
  CHECK(s.sums.size() == 100);
  CHECK(s.factors.size() == 2);
  CHECK(s.other.features() == 10);
  CHECK(s.other.tokens() == 50);
  float const* const memory = s.z.data();
  nn::fit(s, form, 60);
  CHECK(s.z.tokens() == 60);
  CHECK(s.z.data() == memory);
  std::string names;
  nn::for_each_saved(s, [&](nn::parameter_name const& name, auto const&) { names += name.text() + ' '; });
  CHECK(names == "z sums factors other ");
}

}}  // namespace saved_test
