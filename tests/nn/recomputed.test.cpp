// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/core/memory.hpp>
#include <tessera/nn/gpt.hpp>

namespace recomputed_test {

using namespace tessera;
using support::some_ids;

using block = block_shape<8>;
using model = nn::gpt<float, block>;
using all_recomputed =
    nn::gpt<float, block, nn::recomputed<float, nn::transformer_block<float, block, nn::norm_order::pre>>>;

nn::transformer_config config(std::int64_t layers) {
  nn::transformer_config of;
  of.layers = layers;
  of.hidden = 48;
  of.heads = 3;
  of.context = 100;
  of.vocabulary = 20;
  of.density = 0.5;
  of.dropout = 0.1;
  return of;
}

/// A step of a model: the bits of its loss and gradients, and the bytes of its activations, saved and lent.
struct step {
  std::vector<float> bits;
  std::int64_t bytes;
};
template <class Model> step step_of(Model const& m, int threads = 1) {
  context ctx(threads, oversubscribe::allowed);
  const sequences batch({0, 70, 147});
  const auto ids = some_ids(147, 20, 1);
  auto gradients = nn::zeros_like(m);
  step made{};
  typename Model::saved saved;
  nn::workspace<float> room;
  const nn::pass<float> p{ctx, batch, room, nn::purpose::training, 1, 5};
  for (int i = 0; i < 2; ++i) {  // the context's own memory grows in the first step
    nn::set_zero(gradients);
    saved = {};
    room = {};
    const std::size_t before = tensor_memory::live();
    made.bits = {float(m.forward(ids, ids, saved, p))};
    m.backward(ids, saved, gradients, p);
    made.bytes = std::int64_t(tensor_memory::live() - before);
  }
  nn::for_each_parameter(gradients, [&](nn::parameter_name const&, auto const& g) {
    made.bits.insert(made.bits.end(), g.begin(), g.end());
  });
  return made;
}

TEST_CASE("recomputed: losses and gradients have the bits of layers that keep all, for any segments") {
  model m(config(5), 3);
  const step kept = step_of(m);
  for (const int segments : {1, 2, 3, 5}) {
    INFO(segments, " segments");
    m.blocks.segments = segments;
    for (const int threads : {1, 2, 8}) CHECK(step_of(m, threads).bits == kept.bits);
  }
  CHECK(step_of(all_recomputed(config(5), 3)).bits == kept.bits);
}

TEST_CASE("recomputed: so have layers that are used several times, in segments of these uses") {
  auto of = config(2);
  of.repeats = 3, of.embedding = 20;
  model m(of, 3);
  const step kept = step_of(m);
  for (const int segments : {1, 2, 4, 5, 6}) {
    INFO(segments, " segments");
    m.blocks.segments = segments;
    const step again = step_of(m);
    CHECK(again.bits == kept.bits);
    const nn::model_size size = model::size(of, segments);
    const std::int64_t foretold = size.saved_bytes(147) + size.room_bytes(147);
    CHECK(again.bytes <= foretold);
    CHECK(double(again.bytes) >= 0.95 * double(foretold));
  }
  const nn::model_size size = model::size(of);
  CHECK(kept.bytes <= size.saved_bytes(147) + size.room_bytes(147));
  CHECK(double(kept.bytes) >= 0.95 * double(size.saved_bytes(147) + size.room_bytes(147)));
  m.blocks.segments = 7;
  CHECK_THROWS_AS(step_of(m), option_error);
}

TEST_CASE("recomputed: so have layers without norms whose branches are scaled") {
  auto of = config(3);
  of.residual = nn::residual_form::rezero, of.norms = nn::norm_layers::absent;
  model m(of, 3);
  for (auto& each : m.blocks.layers) each.attention_scale.lambda[0] = 0.5f;
  const step kept = step_of(m);
  m.blocks.segments = 2;
  CHECK(step_of(m, 2).bits == kept.bits);
}

TEST_CASE("recomputed: eight layers that keep their inputs take less than half of the activations") {
  const auto of = config(8);
  model m(of, 3);
  const step kept = step_of(m);
  for (const int segments : {3, 8}) {
    m.blocks.segments = segments;
    const step again = step_of(m);
    INFO(segments, " segments: ", kept.bytes, " and ", again.bytes, " bytes");
    CHECK(double(again.bytes) < (segments == 8 ? 0.5 : 0.6) * double(kept.bytes));
    const nn::model_size size = model::size(of, segments);
    const std::int64_t foretold = size.saved_bytes(147) + size.room_bytes(147);
    CHECK(again.bytes <= foretold);
    CHECK(double(again.bytes) >= 0.95 * double(foretold));
  }
}

TEST_CASE("recomputed: more segments than layers, or fewer than none, are refused") {
  model m(config(2), 3);
  for (const int segments : {3, -1}) {
    m.blocks.segments = segments;
    std::string said;
    try {
      static_cast<void>(step_of(m));
    } catch (option_error const& e) {
      said = e.what();
    }
    CHECK(said == message("[stack] ", segments, " segments of 2 layers: 0 … 2 are possible"));
    CHECK_THROWS_AS(model::size(config(2), segments), option_error);
  }
}

TEST_CASE("recomputed: backward in other segments than forward is refused") {
  context ctx(1);
  model m(config(3), 3);
  const sequences batch({0, 70, 147});
  const auto ids = some_ids(147, 20, 1);
  auto gradients = nn::zeros_like(m);
  model::saved saved;
  nn::workspace<float> room;
  const nn::pass<float> p{ctx, batch, room};
  for (const int at_first : {0, 2}) {
    m.blocks.segments = at_first;
    static_cast<void>(m.forward(ids, ids, saved, p));
    m.blocks.segments = 3;
    CHECK_THROWS_WITH_AS(m.backward(ids, saved, gradients, p),
                         message("[stack] backward in 3 segments, but forward had ", at_first,
                                 ": set `segments` before forward")
                             .c_str(),
                         error);
  }
}

}  // namespace recomputed_test
