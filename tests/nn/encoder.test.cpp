// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/encoder.hpp>

namespace encoder_test {

using namespace tessera;
using support::some_ids;
using support::trial;

using model = nn::encoder<double, block_shape<4>>;

nn::transformer_config small() {
  nn::transformer_config config;
  config.layers = 2;
  config.hidden = 20;
  config.heads = 2;
  config.context = 50;
  config.vocabulary = 37;
  config.feed_forward = 2;
  return config;
}

void check(nn::transformer_config const& config, int all_but_every) {
  trial t({0, 41, 46, 87}, {30, 5, 41});  // the first sequence is padded
  model m(config, 7);
  support::randomise(m, 1, 0.3);
  const auto ids = some_ids(87, 37, 1), segments = some_ids(87, 2, 3);
  auto targets = some_ids(87, 37, 2);
  for (std::size_t i = 0; i < targets.size(); ++i)
    if (i % std::size_t(all_but_every) != 0) targets[i] = nn::ignored;
  const model::input in{ids, segments};
  model::saved saved;
  auto gradients = nn::zeros_like(m);
  const std::vector<std::int32_t> labels{model::is_not_next, nn::ignored, model::is_next};
  const auto loss = [&] {
    return config.next_sentence ? m.forward(in, targets, labels, saved, t.pass(), 87)
                                : m.forward(in, targets, saved, t.pass(), 87);
  };
  static_cast<void>(loss());
  m.backward(in, saved, gradients, t.pass());
  support::check_parameter_gradients(m, gradients, loss);
}

TEST_CASE("encoder: gradients of a dense model are right") { check(small(), 1); }

TEST_CASE("encoder: gradients of a sparse model with dropout, segments and few targets are right") {
  auto config = small();
  config.density = 0.4;
  config.dropout = 0.2;
  config.segment_types = 2;
  check(config, 7);
}

TEST_CASE("encoder: gradients are right with layers that are used thrice and a factorised embedding") {
  auto config = small();
  config.layers = 1, config.repeats = 3, config.embedding = 7;
  config.segment_types = 2;
  check(config, 7);
  config.density = 0.4;
  config.dropout = 0.2;
  config.layers = 2;
  check(config, 1);
}

TEST_CASE("encoder: gradients of a model that predicts next sentences are right, with and without dropout") {
  auto config = small();
  config.density = 0.4;
  config.segment_types = 2;
  config.next_sentence = true;
  check(config, 7);
  config.dropout = 0.2;
  check(config, 1);
}

TEST_CASE("encoder: the losses of tokens and of next sentences weigh the same, as means") {
  auto config = small();
  config.segment_types = 2;
  config.next_sentence = true;
  const model m(config, 7);
  trial t({0, 41, 46, 87});
  nn::pass<double> p = t.pass();
  p.purpose = nn::purpose::evaluation;
  const auto ids = some_ids(87, 37, 1), segments = some_ids(87, 2, 3);
  std::vector<std::int32_t> targets(87, nn::ignored);
  for (std::size_t i = 0; i < 87; i += 9) targets[i] = ids[i];
  const std::vector<std::int32_t> labels{1, 0, nn::ignored};
  model::saved saved;
  const double masked = m.forward({ids, segments}, targets, saved, p),
               both = m.forward({ids, segments}, targets, labels, saved, p);
  panel_matrix<double> logits;
  m.predict_next({ids, segments}, logits, saved, p);
  REQUIRE(logits.features() == 2);
  REQUIRE(logits.tokens() == 3);
  double next = 0;
  for (std::int64_t i = 0; i < 2; ++i) {
    const double wrong = logits(1 - labels[std::size_t(i)], i) - logits(labels[std::size_t(i)], i);
    next += std::log1p(std::exp(wrong)) / 2;
  }
  CHECK(both / 10 == doctest::Approx(masked / 10 + next).epsilon(1e-12));
  const std::vector<std::int32_t> unlabelled(3, nn::ignored);
  CHECK(m.forward({ids, segments}, targets, unlabelled, saved, p) == masked);
  config.next_sentence = false;
  CHECK_THROWS_WITH_AS(model(config, 7).forward({ids, segments}, targets, labels, saved, p),
                       "[encoder] labels of sequences, but the configuration has no next_sentence",
                       option_error);
}

TEST_CASE("encoder: tokens without segments are in the first one") {
  auto config = small();
  config.segment_types = 2;
  model m(config, 7);
  trial t({0, 41});
  const auto ids = some_ids(41, 37, 1);
  const std::vector<std::int32_t> first(41, 0);
  model::saved saved;
  auto said = nn::zeros_like(m), unsaid = nn::zeros_like(m);
  const double loss = m.forward({ids, first}, ids, saved, t.pass());
  m.backward({ids, first}, saved, said, t.pass());
  CHECK(m.forward({ids}, ids, saved, t.pass()) == loss);
  m.backward({ids}, saved, unsaid, t.pass());
  for (std::int64_t f = 0; f < 20; ++f)
    CHECK(said.segment_embedding.table(0, f) == unsaid.segment_embedding.table(0, f));
}

TEST_CASE("encoder: only tokens with a target meet the vocabulary") {
  trial t({0, 41});
  const model m(small(), 7);
  const auto ids = some_ids(41, 37, 1);
  std::vector<std::int32_t> targets(41, nn::ignored);
  targets[5] = 3;
  targets[17] = 8;
  model::saved saved;
  m.forward({ids}, targets, saved, t.pass());
  CHECK(saved.logits.tokens() == 2);
}

TEST_CASE("encoder: predictions are the logits of the loss at these positions") {
  trial t({0, 41, 46, 87});
  const model m(small(), 7);
  const auto ids = some_ids(87, 37, 1), targets = some_ids(87, 37, 2);
  model::saved all, some;
  nn::pass<double> p = t.pass();
  p.purpose = nn::purpose::evaluation;
  m.forward({ids}, targets, all, p);
  panel_matrix<double> logits;
  const std::vector<std::int32_t> positions{40, 3, 86};
  m.predict({ids}, positions, logits, some, p);
  for (std::size_t i = 0; i < positions.size(); ++i)
    for (std::int64_t f = 0; f < 37; ++f)
      CHECK(logits(f, std::int64_t(i)) == doctest::Approx(all.logits(f, positions[i])).epsilon(1e-12));
}

TEST_CASE("encoder: the head is dense and never pruned") {
  auto config = small();
  config.density = 0.3;
  const model m(config, 7);
  int sparse = 0;
  nn::for_each_parameter(m, [&](nn::parameter_name const& name, auto const& parameter) {
    if constexpr (requires { parameter.pattern(); }) {
      CHECK(parameter.pattern().is_dense() == (name.role() == nn::parameter_role::dense_weight));
      sparse += !parameter.pattern().is_dense();
    }
  });
  CHECK(sparse == 8);
}

}  // namespace encoder_test
