// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/recurrent_model.hpp>

namespace recurrent_model_test {

using namespace tessera;
using block = block_shape<4>;
using models = std::tuple<nn::recurrent_model<double, block>,
                          nn::recurrent_model<double, block, nn::gru<double, block>>>;

nn::recurrent_config small() { return {2, 12, 23, 0, 0.5}; }

TEST_CASE_TEMPLATE_DEFINE(
    "recurrent_model: gradients are right, for series of several lengths and with dropout", Model,
    gradients) {
  for (const double rate : {0.0, 0.3}) {
    support::trial t({0, 64, 128, 192, 256}, {5, 5, 3, 1});
    nn::recurrent_config config = small();
    config.dropout = rate;
    Model m(config, 7);
    support::randomise(m, 1, 0.3);
    const auto ids = support::some_ids(256, 23, 1);
    auto targets = support::some_ids(256, 23, 2);
    const std::int64_t live[] = {5, 5, 3, 1};
    for (std::int64_t i = 0; i < 256; ++i)
      if (i % 64 >= live[i / 64]) targets[std::size_t(i)] = nn::ignored;
    typename Model::saved saved;
    auto gradients = nn::zeros_like(m);
    const auto loss = [&] { return m.forward(ids, targets, saved, t.pass(), 14); };
    static_cast<void>(loss());
    m.backward(ids, saved, gradients, t.pass());
    support::check_parameter_gradients(m, gradients, loss);
  }
}
TEST_CASE_TEMPLATE_APPLY(gradients, models);

TEST_CASE_TEMPLATE_DEFINE(
    "recurrent_model: counts are those of its containers, and a state is carried through time", Model,
    counts) {
  nn::recurrent_config config = small();
  config.density = 1;
  const Model m(config, 1);
  std::int64_t parameters = 0;
  nn::for_each_parameter(m, [&](nn::parameter_name const&, auto const& p) {
    if constexpr (requires { p.pattern(); })
      parameters += p.rows() * p.cols();
    else
      parameters += p.size();
  });
  CHECK(Model::size(config).parameters == parameters);
  // Later tokens do not matter to a prediction, earlier ones do.
  support::trial t({0, 64, 128, 192}, {1, 1, 1});
  nn::pass<double> p = t.pass();
  p.purpose = nn::purpose::evaluation;
  typename Model::saved saved;
  panel_matrix<double> a, b, c;
  std::vector<std::int32_t> ids(192, 0);
  const std::vector<std::int32_t> at{64};
  ids[0] = 3, ids[64] = 5, ids[128] = 7;
  m.predict(ids, at, a, saved, p);
  ids[128] = 9;
  m.predict(ids, at, b, saved, p);
  ids[0] = 4;
  m.predict(ids, at, c, saved, p);
  CHECK(a(3, 0) == b(3, 0));
  CHECK(a(3, 0) != c(3, 0));
}
TEST_CASE_TEMPLATE_APPLY(counts, models);

TEST_CASE("recurrent_model: a shape that makes no sense is refused before anything is allocated") {
  const auto refused = [](auto change) {
    nn::recurrent_config config = small();
    change(config);
    CHECK_THROWS_AS((nn::recurrent_model<float, block>(config, 1)), option_error);
  };
  refused([](auto& c) { c.layers = 0; });
  refused([](auto& c) { c.hidden = -1; });
  refused([](auto& c) { c.layers = std::int64_t(1) << 31; });  // one more than names can number
  refused([](auto& c) { c.density = 0; });
  refused([](auto& c) { c.dropout = 1; });
}

}  // namespace recurrent_model_test
