// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <harness/contestant.hpp>
#include <step/parts.hpp>
#include <step/step.hpp>

#include <tessera/nn/cross_entropy.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/optimizers/sgd.hpp>

#include "../../examples/tutorials/support/digits.hpp"

// An epoch of an MLP on digits: MNIST, or made-up ones. Its three layers are written out as statements.

namespace bench { namespace {

template <class Block> struct digit_network {
  nn::linear<float, Block> first, second;
  nn::linear<float, block_shape<granule>> third;

  struct saved {
    panel_matrix<float> h1, h2, y, dh1, dh2;
    nn::cross_entropy<float>::saved loss;
  };
  using gradients = digit_network;

  explicit digit_network(workload const& what)
      : first(of(what.m, mlp_shape::pixels, what, "first")),
        second(of(what.k, what.m, what, "second")),
        third(mlp_shape::classes, what.k) {
    nn::initialise(first.weight, nn::distribution::he, 1, "first.weight");
    nn::initialise(second.weight, nn::distribution::he, 1, "second.weight");
    for (auto* weight : {&first.weight, &second.weight})
      for (float& value : *weight) value /= float(std::sqrt(weight->pattern().density()));
    nn::initialise(third.weight, nn::distribution::xavier, 1, "third.weight");
  }
  static nn::linear<float, Block> of(std::int64_t out, std::int64_t in, workload const& what,
                                     nn::parameter_name const& name) {
    return nn::linear<float, Block>::random(out, in, what.density, nn::bias_term::present, 1, name);
  }

  /// The mean loss.
  double forward(panel_matrix<float> const& x, std::span<std::int32_t const> labels, saved& s,
                 nn::pass<float> const& p) const {
    nn::fit(s.h1, first.weight.rows(), x.tokens());
    nn::fit(s.h2, second.weight.rows(), x.tokens());
    nn::fit(s.y, third.weight.rows(), x.tokens());
    run(p.ctx, s.h1 = relu(first.value(x)), s.h2 = relu(second.value(s.h1)), s.y = third.value(s.h2));
    return nn::cross_entropy<float>().forward(s.y, labels, double(x.tokens()), &s.y, s.loss, p);
  }
  /// A number that is 0 behind a relu was not positive before.
  void backward(panel_matrix<float> const& x, saved& s, gradients& g, nn::pass<float> const& p) const {
    nn::fit(s.dh1, s.h1.features(), x.tokens());
    nn::fit(s.dh2, s.h2.features(), x.tokens());
    run(p.ctx, g.third.bias = sum_tokens(s.y),
        s.dh2 = (transposed(third.weight) * s.y) * derivative<ops::relu>(s.h2),
        g.second.bias = sum_tokens(s.dh2),
        s.dh1 = (transposed(second.weight) * s.dh2) * derivative<ops::relu>(s.h1),
        g.first.bias = sum_tokens(s.dh1));
    run(p.ctx, g.third.weight = sampled(s.y * transposed(s.h2)),
        g.second.weight = sampled(s.dh2 * transposed(s.h1)), g.first.weight = sampled(s.dh1 * transposed(x)));
  }

  static void parts(auto& each, auto&... of) {
    each("first", of.first...);
    each("second", of.second...);
    each("third", of.third...);
  }
};

/// The images as rows of a table, from 0 to 1, from which a batch is gathered.
struct digit_table {
  dense_matrix<float> pixels;
  std::vector<std::int32_t> labels;

  explicit digit_table(std::int64_t count) : pixels(count, mlp_shape::pixels) {
    digits::images all = digits::mnist("train");
    if (all.count() < count) all = digits::made_up(count, 1);
    std::vector<float> from_0_to_1(all.pixel.begin(), all.pixel.begin() + count * mlp_shape::pixels);
    for (float& value : from_0_to_1) value /= 255;
    copy(row_major(from_0_to_1.data(), count, mlp_shape::pixels), pixels);
    labels.assign(all.label.begin(), all.label.begin() + count);
  }
  static std::shared_ptr<digit_table const> of(std::int64_t count) {
    static std::weak_ptr<digit_table const> last;
    auto table = last.lock();
    if (!table || std::int64_t(table->labels.size()) != count)
      last = table = std::make_shared<digit_table const>(count);
    return table;
  }
};

template <class Block> struct mlp_trainer {
  using model = digit_network<Block>;

  mlp_shape shape;
  context ctx;
  sequences batch = sequences::of_equal_length(mlp_shape::batch, 1);
  std::shared_ptr<digit_table const> data;
  std::vector<std::int32_t> order, labels;
  panel_matrix<float> x{mlp_shape::pixels, mlp_shape::batch};
  model m;
  typename model::gradients gradients;
  train::sgd optimizer;
  train::optimizer_state state;
  nn::workspace<float> room;
  typename model::saved saved;
  std::uint64_t epochs = 0;
  double loss = 0;

  explicit mlp_trainer(workload const& what)
      : shape(what),
        ctx(what.threads),
        data(digit_table::of(what.n)),
        order(std::size_t(what.n)),
        m(what),
        gradients(nn::zeros_like(m)),
        state(train::initial_state(train::sgd{}, m)) {
    std::iota(order.begin(), order.end(), 0);
  }
  nn::pass<float> pass() { return {ctx, batch, room}; }

  void step() {
    const random_stream random(4, random_purpose::batches, 0, epochs++);
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[std::size_t(random.below(i, i))]);
    double sum = 0;
    for (std::int64_t i = 0; i < shape.steps(); ++i) {
      load(i);
      sum += m.forward(x, labels, saved, pass());
      m.backward(x, saved, gradients, pass());
      update();
    }
    loss = sum / double(shape.steps());
  }
  void load(std::int64_t i) {
    const std::span<std::int32_t const> ids(order.data() + i * mlp_shape::batch, mlp_shape::batch);
    labels.clear();
    for (const std::int32_t id : ids) labels.push_back(data->labels[std::size_t(id)]);
    run(ctx, gather_rows(x, data->pixels, ids));
  }
  void update() { train::update_parameters(ctx, optimizer, m, gradients, state, mlp_shape::rate); }

  std::vector<part> parts() {
    const auto epoch = [this](auto body) {
      return [this, body] {
        for (std::int64_t i = 0; i < shape.steps(); ++i) body(i);
      };
    };
    using nn::cross_entropy;
    return {{"images", epoch([this](std::int64_t i) { load(i); })},
            {"products forward", epoch([this](std::int64_t) {
               run(ctx, saved.h1 = relu(m.first.value(x)), saved.h2 = relu(m.second.value(saved.h1)),
                   saved.y = m.third.value(saved.h2));
             })},
            {"products dX", epoch([this](std::int64_t) {
               run(ctx, saved.dh2 = (transposed(m.third.weight) * saved.y) * derivative<ops::relu>(saved.h2),
                   saved.dh1 = (transposed(m.second.weight) * saved.dh2) * derivative<ops::relu>(saved.h1));
             })},
            {"products dW", epoch([this](std::int64_t) {
               run(ctx, gradients.third.weight = sampled(saved.y * transposed(saved.h2)),
                   gradients.second.weight = sampled(saved.dh2 * transposed(saved.h1)),
                   gradients.first.weight = sampled(saved.dh1 * transposed(x)));
             })},
            {"bias gradients", epoch([this](std::int64_t) {
               run(ctx, gradients.third.bias = sum_tokens(saved.y),
                   gradients.second.bias = sum_tokens(saved.dh2),
                   gradients.first.bias = sum_tokens(saved.dh1));
             })},
            {"loss", epoch([this](std::int64_t) {
               static_cast<void>(cross_entropy<float>().forward(saved.y, labels, mlp_shape::batch, &saved.y,
                                                                saved.loss, pass()));
             })},
            {"optimizer", epoch([this](std::int64_t) { update(); })}};
  }
};

const registered here({"tessera", "mlp", [](workload const& what) {
                         return with_block(what.block, [&]<class Block> {
                           const mlp_shape shape(what);
                           auto t = std::make_shared<mlp_trainer<Block>>(what);
                           return std::optional(
                               job{shape.useful_flops(what.density), [t] { t->step(); }, 1,
                                   [t, shape](std::int64_t) { return shape.learnt(t->loss); }});
                         });
                       }});

const registered_parts<mlp_trainer> parts("mlp parts", "float",
                                          {"images", "products forward", "products dX", "products dW",
                                           "bias gradients", "loss", "optimizer"});

}}  // namespace bench
