// SPDX-License-Identifier: BSD-3-Clause

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <harness/contestant.hpp>
#include <step/parts.hpp>
#include <step/step.hpp>

#include <tessera/nn/gpt.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/training.hpp>

// A training step of our GPT: forward, backward, AdamW. Dense is the model in blocks of 16 that stores them
// all.

namespace bench { namespace {

nn::transformer_config config_of(workload const& what) {
  const gpt_shape shape(what);
  nn::transformer_config config;
  config.layers = shape.layers;
  config.hidden = shape.hidden;
  config.heads = int(shape.heads);
  config.context = shape.context;
  config.vocabulary = shape.vocabulary;
  config.density = what.density;
  return config;
}

template <class Block> struct gpt_trainer {
  using model = nn::gpt<float, Block>;

  context ctx;
  sequences batch;
  std::vector<std::int32_t> ids, targets;
  model m;
  train::training<model, train::adamw> training;
  nn::workspace<float> room;
  typename model::saved saved;
  double loss = 0;
  std::unique_ptr<transformer_parts<float, typename model::layer>> blocks;

  explicit gpt_trainer(workload const& what)
      : ctx(what.threads),
        batch(sequences::of_equal_length(what.n / gpt_shape(what).context, gpt_shape(what).context)),
        m(config_of(what), 1),
        training(m, {.beta2 = 0.95, .weight_decay = 0.1}) {
    const random_stream random(4, random_purpose::test);
    for (std::uint64_t t = 0; t < std::uint64_t(batch.tokens()); ++t) {
      ids.push_back(std::int32_t(random.below(2 * t, gpt_shape::vocabulary)));
      targets.push_back(std::int32_t(random.below(2 * t + 1, gpt_shape::vocabulary)));
    }
  }
  nn::pass<float> pass() { return training.pass(ctx, batch, room); }

  void step() {
    const auto accumulate = [&](int) -> train::token_loss {
      const double sum = m.forward(ids, targets, saved, pass());
      m.backward(ids, saved, training.gradients, pass());
      return {sum, batch.tokens()};
    };
    loss = train::train_step(ctx, training, {.rate = 1e-4}, accumulate).loss;
  }
  void update() {
    static_cast<void>(train::measure(ctx, training.gradients));
    train::update_parameters(ctx, training.optimizer, m, training.gradients, training.state, 1e-4);
  }

  std::vector<part> parts() {
    if (!blocks)
      blocks = std::make_unique<transformer_parts<float, typename model::layer>>(
          m.blocks.layers, training.gradients.blocks.layers, saved.blocks.kept.layers, pass());
    std::vector<part> all = blocks->list();
    all.push_back({"optimizer", [this] { update(); }});
    all.push_back({"zero gradients", [this] { nn::set_zero(training.gradients); }});
    all.push_back({"embeddings, output, loss", [this] { ends(); }});
    return all;
  }

  /// The layers before and behind the blocks.
  void ends() {
    dense_matrix<float> const& table = m.token_embedding.table;
    run(ctx, gather_rows(saved.embedded, table, ids),
        add_rows(saved.embedded, m.position_embedding.table, saved.positions));
    run(ctx, m.final_norm.prepare(saved.top, saved.final_norm, pass()),
        saved.logits = table * m.final_norm.value(saved.top, saved.final_norm));
    static_cast<void>(nn::cross_entropy<float>().forward(saved.logits, targets, double(targets.size()),
                                                         &saved.logits, saved.loss, pass()));
    auto& gradients = training.gradients;
    const auto n = pass().borrow(m.config.hidden), dn = pass().borrow(m.config.hidden);
    run(ctx, *n = m.final_norm.value(saved.top, saved.final_norm), *dn = transposed(table) * saved.logits,
        gradients.token_embedding.table += sampled(saved.logits * transposed(*n)));
    m.final_norm.backward(saved.top, saved.final_norm, *dn, *n, gradients.final_norm, pass());
    run(ctx, scatter_rows(gradients.token_embedding.table, *n, ids),
        scatter_rows(gradients.position_embedding.table, *n, saved.positions));
  }
};

const registered here({"tessera", "gpt", [](workload const& what) {
                         return with_block(what.block, [&]<class Block> {
                           const gpt_shape shape(what);
                           auto t = std::make_shared<gpt_trainer<Block>>(what);
                           return std::optional(
                               job{shape.useful_flops(what.density), [t] { t->step(); }, 1,
                                   [t, shape](std::int64_t) { return shape.untrained(t->loss); }});
                         });
                       }});

const registered_parts<gpt_trainer> parts("gpt parts", "float", transformer_part_names,
                                          {"optimizer", "zero gradients", "embeddings, output, loss"});

}}  // namespace bench
