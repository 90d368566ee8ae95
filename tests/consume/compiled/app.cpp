// Trains a small GPT, saves and resumes it, and prints its losses, to the bit.
#include <cstdint>
#include <cstdio>
#include <vector>

#ifdef TESSERA_COMPILED
#include <tessera/compiled.hpp>
#endif
#include <tessera/nn/gpt.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/training.hpp>

using namespace tessera;
using model = nn::gpt<float, block_shape<16>>;

int main(int count, char** arguments) {
  if (count != 2) return 2;
  context ctx(2);
  nn::transformer_config shape;
  shape.layers = 2, shape.hidden = 64, shape.heads = 4, shape.vocabulary = 50, shape.context = 32;
  shape.density = 0.5;
  const std::vector<std::int64_t> lengths{32, 20};
  const auto batch = sequences::from_lengths(lengths);
  std::vector<std::int32_t> ids, targets;
  for (std::int32_t i = 0; i < batch.tokens(); ++i)
    ids.push_back(i * 7 % 50), targets.push_back((i + 1) * 7 % 50);

  model m(shape, 1);
  model::saved saved;
  nn::workspace<float> room;
  train::training t(m, train::adamw{}, train::evolving_pattern{.interval = 2, .steps = 6, .fraction = 0.3});
  const auto step = [&] {
    const auto report = train::train_step(ctx, t, {.rate = 1e-3, .clip = 1}, [&](int) {
      const auto pass = t.pass(ctx, batch, room);
      const double loss = m.forward(ids, targets, saved, pass);
      m.backward(ids, saved, t.gradients, pass);
      return train::token_loss{loss, batch.tokens(), pass};
    });
    std::printf("%a\n", report.loss);
  };
  for (int i = 0; i < 3; ++i) step();
  train::save(t, arguments[1], {});
  step();
  train::resume(t, train::checkpoint(arguments[1]));
  for (int i = 0; i < 3; ++i) step();
}
