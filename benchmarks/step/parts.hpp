// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <harness/contestant.hpp>
#include <harness/operands.hpp>

#include <tessera/nn/transformer_block.hpp>
#include <tessera/tessera.hpp>

// Pieces of a step of ours, each timed apart: the statements of the layers on the same shapes. In the step
// itself some are fused with others, so that the pieces are a little more than the whole.

namespace bench {

struct part {
  std::string name;
  std::function<void()> run;
};

/// One trainer for all parts of a workload: each contestant of it gets the same one, after a step.
template <class Trainer> std::shared_ptr<Trainer> shared_trainer(workload const& what) {
  static std::vector<std::pair<workload, std::weak_ptr<Trainer>>> all;
  for (auto const& [of, trainer] : all)
    if (of == what)
      if (auto t = trainer.lock()) return t;
  auto t = std::make_shared<Trainer>(what);
  t->step();
  all.emplace_back(what, t);
  return t;
}

/// Enters each part as a contestant of `operation`. Results of parts are checked with the whole step.
///   Trainer   a template over the block shape, with step() and parts()
template <template <class> class Trainer> struct registered_parts {
  registered_parts(std::string const& operation, std::string const& element, std::vector<std::string> names,
                   std::vector<std::string> const& more = {}) {
    names.insert(names.end(), more.begin(), more.end());
    for (std::string const& name : names)
      contestants().push_back({"tessera " + name, operation, [name, element](workload const& what) {
                                 if (what.element != element) return std::optional<job>();
                                 return with_block(what.block, [&]<class Block>() -> std::optional<job> {
                                   auto t = shared_trainer<Trainer<Block>>(what);
                                   for (part& piece : t->parts())
                                     if (piece.name == name)
                                       return job{0, [t, run = std::move(piece.run)] { run(); }, 0, {}};
                                   return std::nullopt;
                                 });
                               }});
  }
};

inline const std::vector<std::string> transformer_part_names = {
    "products forward",   "products dX",   "products dW",    "bias gradients", "attention forward",
    "attention backward", "norms forward", "norms backward", "activation",     "dropout"};

/// The parts of some blocks. All layers have one input and one output: values do not matter.
template <element T, class Transformer> class transformer_parts {
 public:
  transformer_parts(std::vector<Transformer> const& layers,
                    std::vector<typename Transformer::gradients>& gradients,
                    std::vector<typename Transformer::saved> const& saved, nn::pass<T> const& pass)
      : layers_(layers), gradients_(gradients), saved_(saved), pass_(pass) {
    const std::int64_t n = pass.tokens(), hidden = layers[0].attention.out.weight.rows(),
                       inner = layers[0].mlp.up.weight.rows();
    x_ = activation<T>(hidden, n, 1);
    y_ = activation<T>(hidden, n, 2);
    z_ = activation<T>(inner, n, 3);
    qkv_ = activation<T>(3 * hidden, n, 4);
    panel_ = activation<T>(hidden, panel_tokens, 5);
    inner_panel_ = activation<T>(inner, panel_tokens, 6);
    inner_result_ = activation<T>(inner, panel_tokens, 7);
    nn::fit(norm_, layers[0].norm1.unfilled(), n);
    run(ctx(), layers[0].norm1.prepare(x_, norm_, pass));
    nn::fit(log_sums_, layers[0].attention.heads.queries, n);
  }

  /// They refer to this.
  std::vector<part> list() {
    const auto each = [this](auto member) {
      return [this, member] {
        for (std::size_t i = 0; i < layers_.size(); ++i) (this->*member)(i);
      };
    };
    using me = transformer_parts;
    return {{"products forward", each(&me::forward)}, {"products dX", each(&me::inputs)},
            {"products dW", each(&me::weights)},      {"bias gradients", each(&me::biases)},
            {"attention forward", each(&me::attend)}, {"attention backward", each(&me::attend_back)},
            {"norms forward", each(&me::measure)},    {"norms backward", each(&me::norm_back)},
            {"activation", each(&me::activate)},      {"dropout", each(&me::drop)}};
  }

 private:
  context& ctx() const { return pass_.ctx; }

  void forward(std::size_t i) {
    Transformer const& b = layers_[i];
    run(ctx(), qkv_ = b.attention.qkv.value(x_));
    run(ctx(), y_ = b.attention.out.value(x_));
    run(ctx(), z_ = b.mlp.up.value(x_), y_ = b.mlp.down.value(z_));
  }
  void inputs(std::size_t i) {
    Transformer const& b = layers_[i];
    run(ctx(), z_ = transposed(b.mlp.down.weight) * y_, x_ = transposed(b.mlp.up.weight) * z_);
    run(ctx(), x_ = transposed(b.attention.out.weight) * y_);
    run(ctx(), x_ = transposed(b.attention.qkv.weight) * qkv_);
  }
  void weights(std::size_t i) {
    auto& g = gradients_[i];
    run(ctx(), g.mlp.down.weight += sampled(y_ * transposed(z_)));
    run(ctx(), g.mlp.up.weight += sampled(z_ * transposed(x_)));
    run(ctx(), g.attention.out.weight += sampled(y_ * transposed(x_)));
    run(ctx(), g.attention.qkv.weight += sampled(qkv_ * transposed(x_)));
  }
  void biases(std::size_t i) {
    auto& g = gradients_[i];
    run(ctx(), g.mlp.down.bias += sum_tokens(y_));
    run(ctx(), g.mlp.up.bias += sum_tokens(z_));
    run(ctx(), g.attention.out.bias += sum_tokens(y_));
    run(ctx(), g.attention.qkv.bias += sum_tokens(qkv_));
  }
  void attend(std::size_t i) {
    auto const& a = layers_[i].attention;
    run(ctx(), attention(saved_[i].attention.qkv, pass_.sequences, a.heads, a.seen, y_, log_sums_));
  }
  void attend_back(std::size_t i) {
    auto const& a = layers_[i].attention;
    auto const& s = saved_[i].attention;
    run(ctx(), attention_backward(s.qkv, s.mixed, s.log_sums, x_, pass_.sequences, a.heads, a.seen, qkv_));
  }
  void measure(std::size_t i) {
    run(ctx(), layers_[i].norm1.prepare(x_, norm_, pass_));
    run(ctx(), layers_[i].norm2.prepare(y_, norm_, pass_));
    if (Transformer::order == nn::norm_order::post) run(ctx(), y_ = layers_[i].norm2.value(x_, norm_));
  }
  /// Besides the gradients the values that a block computes again: one norm's, or both.
  void norm_back(std::size_t i) {
    Transformer const& b = layers_[i];
    auto& g = gradients_[i];
    run(ctx(), y_ = b.norm1.value(x_, norm_));
    if (Transformer::order == nn::norm_order::pre) run(ctx(), y_ = b.norm2.value(x_, norm_));
    b.norm1.backward(x_, norm_, y_, y_, g.norm1, pass_);
    b.norm2.backward(x_, norm_, y_, y_, g.norm2, pass_);
  }
  /// The activation, again the activation, and its derivative, as in a step on panels that are in the cache.
  void activate(std::size_t) {
    using op = typename decltype(Transformer::mlp)::activation;
    for (std::int64_t panel = 0; panel < ceil_div<std::int64_t>(pass_.tokens(), panel_tokens); ++panel) {
      run(ctx(), inner_result_ = apply<op>(inner_panel_));
      run(ctx(), inner_result_ = apply<op>(inner_panel_));
      run(ctx(), inner_result_ = inner_result_ * derivative<op>(inner_panel_));
    }
  }
  void drop(std::size_t i) {
    for (auto const* each : {&layers_[i].attention_dropout, &layers_[i].mlp_dropout})
      if (each->drops(pass_)) {
        for (std::int64_t panel = 0; panel < ceil_div<std::int64_t>(pass_.tokens(), panel_tokens); ++panel)
          run(ctx(), panel_ = each->masked(panel_, pass_));  // forward: fused with the residual sum
        run(ctx(), y_ = each->masked(x_, pass_));            // backward
      }
  }

  std::vector<Transformer> const& layers_;
  std::vector<typename Transformer::gradients>& gradients_;
  std::vector<typename Transformer::saved> const& saved_;
  nn::pass<T> pass_;
  panel_matrix<T> x_, y_, z_, qkv_, panel_, inner_panel_, inner_result_;
  panel_matrix<accumulator_t<T>> log_sums_;
  typename decltype(Transformer::norm1)::saved norm_;
};

}  // namespace bench
