#include "losses.hpp"

#include <cstdint>
#include <vector>

#include <tessera/compiled.hpp>
#include <tessera/tessera.hpp>

using namespace tessera;

double TESSERA_VARIANT(loss_after)(int steps) {
  using model = nn::gpt<float, block_shape<16>>;
  context ctx(2);
  nn::transformer_config shape;
  shape.layers = 2, shape.hidden = 64, shape.heads = 4, shape.vocabulary = 50, shape.context = 32;
  model m(shape, 1);
  model::saved saved;
  nn::workspace<float> room;
  const std::vector<std::int64_t> lengths{20};
  const auto batch = sequences::from_lengths(lengths);
  const std::vector<std::int32_t> ids(20, 3);
  train::training t(m, train::adamw{});
  double loss = 0;
  for (int i = 0; i < steps; ++i) {
    const auto report = train::train_step(ctx, t, {.rate = 1e-3}, [&](int) {
      const auto pass = t.pass(ctx, batch, room);
      const double of_batch = m.forward(ids, ids, saved, pass);
      m.backward(ids, saved, t.gradients, pass);
      return train::token_loss{of_batch, 20, pass};
    });
    loss = report.loss;
  }
  return loss;
}
