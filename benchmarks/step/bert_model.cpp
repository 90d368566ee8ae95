// SPDX-License-Identifier: BSD-3-Clause

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <harness/contestant.hpp>
#include <harness/operands.hpp>
#include <step/step.hpp>

#include <tessera/nn/encoder.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/training.hpp>

// A training step of a whole BERT: embeddings, layers, head and loss.

namespace bench { namespace {

template <class Block> struct bert_model_trainer {
  using model = nn::encoder<float, Block>;

  context ctx;
  sequences batch;
  std::vector<std::int32_t> ids, targets;
  std::int64_t predicted;
  model m;
  train::training<model, train::adamw> training;
  nn::workspace<float> room;
  typename model::saved saved;
  double loss = 0;

  explicit bert_model_trainer(workload const& what)
      : ctx(what.threads),
        batch(sequences::of_equal_length(what.n / bert_shape(what).context, bert_shape(what).context)),
        predicted(bert_model_shape(what).predicted),
        m(config_of(what), 1),
        training(m, {}) {
    const random_stream random(4, random_purpose::test);
    const std::int64_t tokens = batch.tokens();
    for (std::uint64_t t = 0; t < std::uint64_t(tokens); ++t)
      ids.push_back(std::int32_t(random.below(t, bert_model_shape::vocabulary)));
    targets.assign(ids.size(), nn::ignored);
    for (std::int64_t i = 0; i < predicted; ++i) {
      const auto place = std::size_t(i * tokens / predicted);
      targets[place] = ids[std::size_t(tokens) - 1 - place];
    }
  }
  static nn::transformer_config config_of(workload const& what) {
    const bert_model_shape shape(what);
    nn::transformer_config config;
    config.layers = shape.layers;
    config.hidden = shape.hidden;
    config.heads = shape.heads;
    config.context = bert_model_shape::positions;
    config.vocabulary = bert_model_shape::vocabulary;
    config.segment_types = bert_model_shape::segments;
    config.dropout = bert_shape::dropout;
    config.density = what.density;
    return config;
  }

  void step() {
    const auto accumulate = [&](int) -> train::token_loss {
      const nn::pass<float> pass = training.pass(ctx, batch, room, 1);
      const double sum = m.forward({ids}, targets, saved, pass);
      m.backward({ids}, saved, training.gradients, pass);
      return {sum, predicted, pass};
    };
    loss = train::train_step(ctx, training, {.rate = 1e-4}, accumulate).loss;
  }
};

const registered here({"tessera", "bert model", [](workload const& what) {
                         return with_block(what.block, [&]<class Block> {
                           const bert_model_shape shape(what);
                           auto t = std::make_shared<bert_model_trainer<Block>>(what);
                           return std::optional(
                               job{shape.useful_flops(what.density), [t] { t->step(); }, 1,
                                   [t, shape](std::int64_t) { return shape.untrained(t->loss); }});
                         });
                       }});

}}  // namespace bench
