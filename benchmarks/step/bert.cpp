// SPDX-License-Identifier: BSD-3-Clause

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <harness/contestant.hpp>
#include <harness/operands.hpp>
#include <step/parts.hpp>
#include <step/step.hpp>

#include <tessera/nn/combinators.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/training.hpp>

// A training step of layers of BERT, without embeddings and head: their input and the gradient of their
// output are given.

namespace bench { namespace {

template <class T, class Block> struct bert_trainer {
  using transformer = nn::transformer_block<T, Block, nn::norm_order::post>;
  using model = nn::stack<T, transformer>;

  context ctx;
  sequences batch;
  panel_matrix<T> x, y, dx, dy;
  model m;
  train::training<model, train::adamw> training;
  nn::workspace<T> room;
  typename model::saved saved;
  std::unique_ptr<transformer_parts<T, transformer>> blocks;

  explicit bert_trainer(workload const& what)
      : ctx(what.threads),
        batch(sequences::of_equal_length(what.n / bert_shape(what).context, bert_shape(what).context)),
        x(activation<T>(what.m, what.n, 4)),
        y(what.m, what.n),
        dx(what.m, what.n),
        dy(activation<T>(what.m, what.n, 5)),
        m(untrained(what)),
        training(m, {}) {
    run(ctx, dy = dy * 1e-4);
  }
  static model untrained(workload const& what) {
    const bert_shape shape(what);
    nn::transformer_config config;
    config.layers = shape.layers;
    config.hidden = shape.hidden;
    config.heads = int(shape.heads);
    config.dropout = bert_shape::dropout;
    config.density = what.density;
    model layers;
    for (int i = 0; i < int(shape.layers); ++i)
      layers.layers.push_back(
          transformer::random(config, mask::bidirectional, 1, nn::parameter_name().child(i)));
    nn::initialise_transformer(layers, shape.layers, 1, nn::distribution::truncated_normal);
    return layers;
  }
  nn::pass<T> pass() { return training.pass(ctx, batch, room, 1); }

  void step() {
    train::train_step(ctx, training, {.rate = 1e-4}, [&](int) -> train::token_loss {
      m.forward(x, y, saved, pass());
      m.backward(x, saved, dy, &dx, training.gradients, pass());
      return {0, 1};  // dy is that of the mean already, and there is no loss
    });
  }
  void update() {
    static_cast<void>(train::measure(ctx, training.gradients));
    train::update_parameters(ctx, training.optimizer, m, training.gradients, training.state, 1e-4);
  }
  double mean_square() { return total(ctx, square(y)) / double(y.features() * y.tokens()); }

  std::vector<part> parts() {
    if (!blocks)
      blocks = std::make_unique<transformer_parts<T, transformer>>(m.layers, training.gradients.layers,
                                                                   saved.kept.layers, pass());
    std::vector<part> all = blocks->list();
    all.push_back({"optimizer", [this] { update(); }});
    all.push_back({"zero gradients", [this] { nn::set_zero(training.gradients); }});
    return all;
  }
};

const registered here({"tessera", "bert", [](workload const& what) {
                         return with_element_and_block(what, [&]<class T, class Block> {
                           const bert_shape shape(what);
                           auto t = std::make_shared<bert_trainer<T, Block>>(what);
                           return std::optional(
                               job{shape.useful_flops(what.density), [t] { t->step(); }, 1,
                                   [t, shape](std::int64_t) { return shape.untrained(t->mean_square()); }});
                         });
                       }});

template <class Block> using in_float = bert_trainer<float, Block>;
template <class Block> using in_bfloat16 = bert_trainer<bfloat16, Block>;
const std::vector<std::string> more = {"optimizer", "zero gradients"};
const registered_parts<in_float> parts("bert parts", "float", transformer_part_names, more);
const registered_parts<in_bfloat16> narrow_parts("bert parts", "bfloat16", transformer_part_names, more);

}}  // namespace bench
