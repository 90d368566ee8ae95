// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/sequence_classifier.hpp>

namespace sequence_classifier_test {

using namespace tessera;
using model = nn::sequence_classifier<double, block_shape<4>>;

nn::transformer_config small(double dropout) {
  nn::transformer_config config;
  config.layers = 1;
  config.hidden = 20;
  config.heads = 2;
  config.context = 50;
  config.vocabulary = 37;
  config.feed_forward = 2;
  config.density = 0.5;
  config.segment_types = 2;
  config.dropout = dropout;
  return config;
}

TEST_CASE(
    "sequence_classifier: gradients are right, with and without dropout and a sequence without a label") {
  for (const double dropout : {0.0, 0.2}) {
    support::trial t({0, 41, 46, 87}, {30, 5, 41});
    model m(small(dropout), 3, 7);
    support::randomise(m, 1, 0.3);
    const auto ids = support::some_ids(87, 37, 1), segments = support::some_ids(87, 2, 3);
    const model::input in{ids, segments};
    const std::vector<std::int32_t> labels{2, nn::ignored, 0};
    model::saved saved;
    auto gradients = nn::zeros_like(m);
    const auto loss = [&] { return m.forward(in, labels, saved, t.pass(), 2); };
    static_cast<void>(loss());
    m.backward(in, saved, gradients, t.pass());
    support::check_parameter_gradients(m, gradients, loss);
  }
}

TEST_CASE("sequence_classifier: it is made of a trained encoder, whose body it keeps") {
  const nn::encoder<double, block_shape<4>> trained(small(0), 5);
  const model m(trained, 3, 7);
  support::trial t({0, 41, 46, 87});
  nn::pass<double> p = t.pass();
  p.purpose = nn::purpose::evaluation;
  const auto ids = support::some_ids(87, 37, 1), segments = support::some_ids(87, 2, 3);
  nn::encoder<double, block_shape<4>>::saved of_encoder;
  model::saved saved;
  panel_matrix<double> logits;
  trained.encode({ids, segments}, of_encoder, p);
  m.predict({ids, segments}, logits, saved, p);
  CHECK(logits.features() == 3);
  CHECK(logits.tokens() == 3);
  for (std::int64_t f = 0; f < 20; ++f) CHECK(saved.head.first(f, 1) == of_encoder.top(f, 41));
  const std::vector<std::int32_t> labels{0, 1, 2};
  const double whole = m.forward({ids, segments}, labels, saved, p);
  CHECK(whole > 0);
  CHECK_THROWS_WITH_AS(model(trained, 1, 7), "[sequence_classifier] 1 classes: there must be two or more",
                       option_error);
  CHECK_THROWS_WITH_AS(m.forward({ids, segments}, std::vector<std::int32_t>{1}, saved, p),
                       "[sequence_head] 1 labels for 3 sequences", shape_error);
}

}  // namespace sequence_classifier_test
