// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <nn/lora.hpp>
#include <support/gradient_check.hpp>

#include <tessera/nn/edge_popup.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/nm_linear.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/nn/recurrent.hpp>
#include <tessera/nn/recurrent_model.hpp>
#include <tessera/nn/sequence_classifier.hpp>
#include <tessera/nn/slimmable.hpp>
#include <tessera/nn/top_kast.hpp>

namespace layer_inputs_test {

using namespace tessera;
using block = block_shape<8>;

/// A toy of a user: the norm of each input feature of each weight, as for Wanda (Sun et al. 2024, eq. 1).
struct input_norms {
  std::map<std::size_t, std::vector<double>> of = {};  // by the number of the weight
  std::map<std::size_t, int> times = {};

  template <element T> void operator()(context&, std::size_t number, panel_matrix<T> const& x) {
    std::vector<double>& norms = of[number];
    norms.assign(std::size_t(x.features()), 0);
    for (std::int64_t f = 0; f < x.features(); ++f) {
      double squares = 0;
      for (std::int64_t i = 0; i < x.tokens(); ++i) squares += double(x(f, i)) * double(x(f, i));
      norms[std::size_t(f)] = std::sqrt(squares);
    }
    ++times[number];
  }
  /// Of the x that a backward shows.
  template <element T>
  void operator()(context& ctx, std::size_t number, panel_matrix<T> const&, panel_matrix<T> const& x) {
    (*this)(ctx, number, x);
  }
};

/// Checks that each weight of a model was seen once.
///   looked_up   tables of which tokens take rows, and no more
void check_all_seen_once(nn::parameter_list const& model, input_norms const& seen,
                         std::set<std::string> const& looked_up) {
  const std::vector<std::string> names = model.names();
  for (std::size_t i = 0; i < model.size(); ++i) {
    INFO(names[i]);
    REQUIRE(seen.times.contains(i) == (model[i].tensor.is_matrix() && !looked_up.contains(names[i])));
    if (!seen.times.contains(i)) continue;
    CHECK(seen.times.at(i) == 1);
    CHECK(std::int64_t(seen.of.at(i).size()) == model[i].tensor.cols());
  }
}

nn::transformer_config shape() {
  nn::transformer_config of;
  of.layers = 2;
  of.hidden = 32;
  of.heads = 2;
  of.context = 80;
  of.vocabulary = 20;
  of.feed_forward = 2;
  of.density = 0.5;
  return of;
}

template <class Model> struct trial {
  using value = typename Model::value_type;
  context ctx{1};
  sequences batch{{0, 70, 99}};
  std::vector<std::int32_t> ids = support::some_ids(99, 20, 1), targets = support::some_ids(99, 20, 2);
  nn::workspace<value> room;
  typename Model::saved saved;
};

template <class T> std::vector<double> values_of(panel_matrix<T> const& x) {
  std::vector<double> all;
  for (std::int64_t f = 0; f < x.features(); ++f)
    for (std::int64_t i = 0; i < x.tokens(); ++i) all.push_back(double(x(f, i)));
  return all;
}

template <class Model> void check_decoder(Model const& m) {
  using T = typename Model::value_type;
  trial<Model> t;
  const nn::parameter_list list(m);

  // In an evaluation.
  nn::pass<T> plain{t.ctx, t.batch, t.room, nn::purpose::evaluation};
  input_norms norms;
  nn::any_pass any{t.ctx, nn::purpose::evaluation};
  any.layer_inputs = {norms, list};
  const nn::pass<T> observed = any.template over<T>(t.batch, t.room);
  const double loss = m.forward(t.ids, t.targets, t.saved, plain);
  CHECK(norms.times.empty());
  CHECK(m.forward(t.ids, t.targets, t.saved, observed) == loss);
  check_all_seen_once(list, norms, {"position_embedding"});

  // The gradients of a step: the same x, but for the table, whose gradient no observer sees.
  auto gradients = nn::zeros_like(m);
  const nn::parameter_list gradient_list(gradients);
  input_norms again, of_gradients;
  nn::pass<T> training{t.ctx, t.batch, t.room};
  training.layer_inputs = {again, list};
  training.weight_gradients = {of_gradients, gradient_list};
  CHECK(m.forward(t.ids, t.targets, t.saved, training) == loss);
  m.backward(t.ids, t.saved, gradients, training);
  check_all_seen_once(list, again, {"position_embedding"});
  CHECK(again.of == norms.of);
  const std::size_t projections = m.config.is_factorised() ? 2 : 0;
  CHECK(of_gradients.of.size() == 8 + projections);
  CHECK(norms.of.size() == 9 + projections);
  for (auto const& [number, of] : of_gradients.of) {
    INFO(list.name(number));
    CHECK(norms.of.at(number) == of);
  }

  // A prediction, whose logits are products of the table with the x that it shows.
  const std::vector<std::int32_t> positions{69, 98};
  panel_matrix<T> logits, logits_observed, top;
  m.predict(t.ids, positions, logits, t.saved, plain);
  input_norms of_prediction;
  const auto observer = [&](context& ctx, std::size_t number, panel_matrix<T> const& x) {
    of_prediction(ctx, number, x);
    if (list[number].tensor.address() == &m.token_embedding.table) top = x;
  };
  nn::pass<T> predicting = plain;
  predicting.layer_inputs = {observer, list};
  m.predict(t.ids, positions, logits_observed, t.saved, predicting);
  check_all_seen_once(list, of_prediction, {"position_embedding"});
  CHECK(values_of(logits_observed) == values_of(logits));
  REQUIRE(top.tokens() == 2);
  run(t.ctx, logits_observed = m.token_embedding.table * top);
  CHECK(values_of(logits_observed) == values_of(logits));
}

TEST_CASE("layer inputs: a decoder shows the x of each weight once, and its results keep their bits") {
  check_decoder(nn::gpt<float, block>(shape(), 3));
  check_decoder(nn::gpt<bfloat16, block>(shape(), 3));
  nn::transformer_config factorised = shape();
  factorised.embedding = 12;
  check_decoder(nn::gpt<float, block>(factorised, 3));
}

TEST_CASE("layer inputs: layers that are computed again show none of their inputs again") {
  nn::gpt<float, block> in_segments(shape(), 3);
  in_segments.blocks.segments = 1;
  check_decoder(in_segments);
  using layer = nn::transformer_block<float, block, nn::norm_order::pre>;
  check_decoder(nn::gpt<float, block, nn::recomputed<float, layer>>(shape(), 3));
}

TEST_CASE("layer inputs: an encoder shows those of its heads, and a classifier, too") {
  nn::transformer_config of = shape();
  of.segment_types = 2;
  of.next_sentence = true;
  of.embedding = 12;
  using encoder = nn::encoder<float, block>;
  const encoder m(of, 3);
  trial<encoder> t;
  const nn::parameter_list list(m);
  input_norms norms;
  nn::pass<float> p{t.ctx, t.batch, t.room, nn::purpose::evaluation};
  p.layer_inputs = {norms, list};
  const std::vector<std::int32_t> labels{encoder::is_next, encoder::is_not_next};
  static_cast<void>(m.forward({t.ids}, t.targets, labels, t.saved, p));
  check_all_seen_once(list, norms, {"position_embedding", "segment_embedding"});

  const nn::sequence_classifier<float, block> c(m, 3, 1);
  const nn::parameter_list of_classifier(c);
  input_norms of_classes;
  p.layer_inputs = {of_classes, of_classifier};
  nn::sequence_classifier<float, block>::saved saved;
  panel_matrix<float> logits;
  c.predict({t.ids}, logits, saved, p);
  check_all_seen_once(of_classifier, of_classes,
                      {"token_embedding", "position_embedding", "segment_embedding"});
}

/// Checks that the x of a layer's forward is the x of its backward, and of how many matrices.
template <class Layer>
void check_layer(Layer const& layer, sequences const& batch, std::size_t matrices,
                 bool backward_shows = true) {
  context ctx(1);
  nn::workspace<double> room;
  panel_matrix<double> x(32, batch.tokens()), y(layer.outputs(32), batch.tokens()), y2 = y, dx = x;
  support::fill(x, 1);
  typename Layer::saved saved;
  auto gradients = nn::zeros_like(layer);
  const nn::parameter_list list(layer), gradient_list(gradients);
  input_norms norms, of_gradients;
  nn::pass<double> p{ctx, batch, room};
  layer.forward(x, y, saved, p);
  p.layer_inputs = {norms, list};
  layer.forward(x, y2, saved, p);
  CHECK(values_of(y2) == values_of(y));
  CHECK(norms.of.size() == matrices);
  for (auto const& [number, times] : norms.times) CHECK(times == 1);
  p.weight_gradients = {of_gradients, gradient_list};
  layer.backward(x, saved, y, dx, gradients, p);
  if (backward_shows) CHECK(of_gradients.of == norms.of);
}

TEST_CASE("layer inputs: every layer shows in its forward the x of its backward") {
  const sequences batch({0, 70, 99});
  const nn::transformer_config of = shape();
  const auto randomised = [](auto layer) {
    support::randomise(layer);
    return layer;
  };
  using mlp = nn::mlp<double, block>;
  const mlp some = randomised(mlp::random(of, 1, "mlp"));
  check_layer(some, batch, 2);
  check_layer(nn::top_kast<double, mlp>(some, 0.25), batch, 2);
  check_layer(nn::edge_popup<double, mlp>(some, 0.25, 1), batch, 2, /*backward_shows*/ false);
  check_layer(randomised(nn::slimmable_mlp<double, block>(some)), batch, 2);
  check_layer(randomised(nn::gated_mlp<double, block>::random(of, 1, "mlp")), batch, 3);
  check_layer(randomised(nn::slimmable_attention<double, block>::random(of, mask::causal, 1, "attention")),
              batch, 2);
  check_layer(randomised(nn::gru<double, block>::random(32, 0.5, 1, "cell")), nn::time_steps({70, 66, 3}), 2);
}

TEST_CASE("layer inputs: a layer of a user in the place of linear shows the inputs of its own weights") {
  using adapted = nn::mlp<double, block, ops::gelu_polynomial, lora_layer::lora<double, block, 3>>;
  adapted layer = adapted::random(shape(), 1, "mlp");
  support::randomise(layer);
  check_layer(layer, sequences({0, 70, 99}), 4);
}

/// Checks that a layer in the place of linear shows x, an expression, as it is given.
template <class Layer> void check_shows_x(Layer layer) {
  context ctx(1);
  const sequences batch({0, 70});
  nn::workspace<float> room;
  nn::refresh(layer, 0);
  panel_matrix<float> x(32, 70), twice = x, y(32, 70);
  support::fill(x, 1);
  run(ctx, twice = 2.0 * x);
  const nn::parameter_list list(layer);
  input_norms norms, expected;
  nn::pass<float> p{ctx, batch, room};
  p.layer_inputs = {norms, list};
  typename Layer::saved saved;
  layer.forward(2.0 * x, y, saved, p);
  expected(ctx, 0, twice);
  CHECK(norms.of == expected.of);
}

TEST_CASE("layer inputs: N:M and 8-bit layers show x, which is not rounded") {
  const nn::linear<float, block> dense(32, 32);
  check_shows_x(dense);
  check_shows_x(nn::nm_linear<float, nm_shape<2, 4>, block>(dense));
  check_shows_x(nn::int8_linear<float, block>(dense));
}

TEST_CASE("layer inputs: a recurrent model shows the hidden states, and the input of its logits") {
  using model = nn::recurrent_model<float, block, nn::lstm<float, block>>;
  nn::recurrent_config of;
  of.layers = 2;
  of.hidden = 32;
  of.vocabulary = 20;
  const model m(of, 3);
  trial<model> t;
  t.batch = nn::time_steps({2, 1});
  const std::vector<std::int32_t> ids(128, 1);
  const nn::parameter_list list(m);
  input_norms norms;
  nn::pass<float> p{t.ctx, t.batch, t.room, nn::purpose::evaluation};
  p.layer_inputs = {norms, list};
  static_cast<void>(m.forward(ids, ids, t.saved, p));
  check_all_seen_once(list, norms, {});
}

TEST_CASE("layer inputs: a result over x, which the observer would see, is refused") {
  context ctx(1);
  const sequences batch({0, 64});
  nn::workspace<float> room;
  const nn::mlp<float, block> layer = nn::mlp<float, block>::random(shape(), 1, "mlp");
  const nn::parameter_list list(layer);
  input_norms norms;
  nn::pass<float> p{ctx, batch, room};
  p.layer_inputs = {norms, list};
  panel_matrix<float> x(32, 64);
  nn::mlp<float, block>::saved saved;
  CHECK_THROWS_AS(layer.forward(x, x, saved, p), shape_error);
}

}  // namespace layer_inputs_test
