// SPDX-License-Identifier: BSD-3-Clause
#ifndef TESSERA_REDUCED_TYPES  // whole steps: the models are tested under sanitizers one by one
#include <cstddef>
#include <span>

#include <doctest/doctest.h>
#include <support/allocations.hpp>
#include <support/gradient_check.hpp>

#include <tessera/core/memory.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>

namespace allocation_test {

using namespace tessera;
using support::some_ids;

nn::transformer_config small(std::int64_t layers, double density, double dropout) {
  nn::transformer_config config;
  config.layers = layers;
  config.hidden = 48;
  config.heads = 3;
  config.context = 100;
  config.vocabulary = 50;
  config.density = density;
  config.dropout = dropout;
  return config;
}

/// ALBERT's: layers that are used several times, and a factorised embedding.
nn::transformer_config shared(nn::transformer_config of) {
  of.repeats = 2, of.embedding = 20;
  return of;
}

template <class Model> void check(auto&& input_of, nn::transformer_config const& of = small(3, 0.3, 0.1)) {
  const Model model(of, 1);
  auto gradients = nn::zeros_like(model);
  typename Model::saved saved;
  nn::workspace<float> room;
  context ctx(2, oversubscribe::allowed);
  const sequences batch({0, 64, 100});
  const auto ids = some_ids(100, 50, 1);
  auto targets = some_ids(100, 50, 2);
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

/// That saved values and room have as many bytes as a model's size foretells.
template <class Model>
void check_bytes(auto&& input_of, nn::transformer_config const& config = small(2, 1, 0)) {
  const Model m(config, 1);
  const nn::model_size size = Model::size(config);
  context ctx(1);
  const sequences batch({0, 70, 147});
  const auto ids = some_ids(147, 50, 1);
  auto gradients = nn::zeros_like(m);
  typename Model::saved saved;
  using T = typename Model::value_type;
  nn::workspace<T> room;
  const nn::pass<T> p{ctx, batch, room, nn::purpose::training, 0, 0};
  // The context's own scratch grows in the first step.
  for (int step = 0; step < 2; ++step) {
    saved = {};
    room = {};
    const std::size_t before = tensor_memory::live();
    static_cast<void>(m.forward(input_of(ids), ids, saved, p));
    const std::size_t kept = tensor_memory::live() - before;
    m.backward(input_of(ids), saved, gradients, p);
    if (step == 0) continue;
    CHECK(std::int64_t(kept) == size.saved_bytes(147));
    CHECK(std::int64_t(tensor_memory::live() - before - kept) == size.room_bytes(147));
  }
}

using gpt = nn::gpt<float, block_shape<16>>;
using encoder = nn::encoder<float, block_shape<16>>;

constexpr auto for_gpt = [](auto const& ids) { return std::span(ids); };
constexpr auto for_encoder = [](auto const& ids) { return encoder::input{ids}; };

TEST_CASE("allocation: the second step of a gpt allocates nothing" *
          doctest::skip(!support::counts_allocations)) {
  check<gpt>(for_gpt);
  check<gpt>(for_gpt, shared(small(3, 0.3, 0.1)));
}

TEST_CASE("allocation: the second step of an encoder allocates nothing" *
          doctest::skip(!support::counts_allocations)) {
  check<encoder>(for_encoder);
  check<encoder>(for_encoder, shared(small(3, 0.3, 0.1)));
}

TEST_CASE("allocation: bytes of a step are those that the model's size foretells") {
  check_bytes<gpt>(for_gpt);
  check_bytes<nn::gpt<bfloat16, block_shape<16>>>(for_gpt);
  check_bytes<encoder>(for_encoder);
  check_bytes<gpt>(for_gpt, shared(small(2, 1, 0)));
  check_bytes<encoder>(for_encoder, shared(small(2, 1, 0)));
}

}  // namespace allocation_test

#endif
