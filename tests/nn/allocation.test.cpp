// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <span>

#include <doctest/doctest.h>
#include <support/allocations.hpp>
#include <support/gradient_check.hpp>

#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>

using namespace tessera;
using support::some_ids;

namespace {

template <class Model> void check(auto&& input_of) {
  nn::transformer_config config;
  config.layers = 3;
  config.hidden = 32;
  config.context = 64;
  config.density = 0.3;
  config.dropout = 0.1;
  const Model model(config, 1);
  auto gradients = nn::zeros_like(model);
  typename Model::saved saved;
  nn::workspace<float> room;
  context ctx(2, oversubscribe::allowed);
  const sequences batch({0, 64, 100});
  const auto ids = some_ids(100, 256, 1);
  auto targets = some_ids(100, 256, 2);
  for (const bool ignores : {false, true}) {
    if (ignores) targets[3] = targets[70] = nn::ignored;
    long before = 0;
    for (std::uint64_t step = 0; step < 2; ++step) {
      before = support::allocations();
      const nn::pass<float> p{ctx, batch, room, nn::purpose::training, 1, step};
      static_cast<void>(model.forward(input_of(ids), targets, saved, p));
      model.backward(input_of(ids), saved, gradients, p);
      float sum = 0;
      nn::for_each_parameter(
          model,
          [&](nn::parameter_name const&, auto const& value, auto const& g) {
            sum += *value.begin() * *g.begin();
          },
          gradients);
      CHECK(sum == sum);
      if (step == 0) CHECK(support::allocations() > before);
    }
    CHECK(support::allocations() == before);
  }
}

}  // namespace

TEST_CASE("allocation: the second step of a gpt allocates nothing" *
          doctest::skip(!support::counts_allocations)) {
  check<nn::gpt<float, block_shape<16>>>([](auto const& ids) { return std::span(ids); });
}

TEST_CASE("allocation: the second step of an encoder allocates nothing" *
          doctest::skip(!support::counts_allocations)) {
  using encoder = nn::encoder<float, block_shape<16>>;
  check<encoder>([](auto const& ids) { return encoder::input{ids}; });
}
