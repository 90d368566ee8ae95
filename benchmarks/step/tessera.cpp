// SPDX-License-Identifier: BSD-3-Clause

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <harness/contestant.hpp>
#include <step/step.hpp>

#include <tessera/nn/gpt.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/optimizers/adamw.hpp>

// A training step of our GPT: forward, backward, AdamW. Dense is the model in blocks of 16 that stores them
// all.

namespace bench {
namespace {

nn::transformer_config config_of(workload const& what) {
  const step_shape shape(what);
  nn::transformer_config config;
  config.layers = shape.layers;
  config.hidden = shape.hidden;
  config.heads = int(shape.heads);
  config.context = shape.context;
  config.vocabulary = shape.vocabulary;
  config.density = what.density;
  return config;
}

template <class Block> struct trainer {
  using model = nn::gpt<float, Block>;

  context ctx;
  sequences batch;
  std::vector<std::int32_t> ids, targets;
  model m;
  typename model::gradients gradients;
  train::adamw optimizer{.beta2 = 0.95, .weight_decay = 0.1};
  train::optimizer_state<train::adamw, model> state;
  nn::workspace<float> room;
  typename model::saved saved;
  double loss = 0;

  explicit trainer(workload const& what)
      : ctx(what.threads),
        batch(sequences::of_equal_length(what.n / step_shape(what).context, step_shape(what).context)),
        m(config_of(what), 1),
        gradients(nn::zeros_like(m)),
        state{{nn::zeros_like(m), nn::zeros_like(m)}} {
    const random_stream random(4, random_purpose::test);
    for (std::uint64_t t = 0; t < std::uint64_t(batch.tokens()); ++t) {
      ids.push_back(std::int32_t(random.below(2 * t, step_shape::vocabulary)));
      targets.push_back(std::int32_t(random.below(2 * t + 1, step_shape::vocabulary)));
    }
  }

  void step() {
    const nn::pass<float> pass{ctx, batch, room};
    nn::set_zero(gradients);
    loss = m.forward(ids, targets, saved, pass);
    m.backward(ids, saved, gradients, pass);
    train::update_parameters(ctx, optimizer, m, gradients, state, 1e-4);
  }
};

const registered here({"tessera", "step", [](workload const& what) {
                         return with_block(what.block, [&]<class Block> {
                           const step_shape shape(what);
                           auto t = std::make_shared<trainer<Block>>(what);
                           return std::optional(
                               job{shape.useful_flops(what.density), [t] { t->step(); }, 1,
                                   [t, shape](std::int64_t) { return shape.untrained(t->loss); }});
                         });
                       }});

}  // namespace
}  // namespace bench
