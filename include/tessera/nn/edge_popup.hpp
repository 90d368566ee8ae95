// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/visible_blocks.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/pruning.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

namespace detail {

/// Makes a layer the zeros of another one's shape, without the tensors that are not wanted of a third; it may
/// have had any shape, and allocates only for a new one.
struct make_zeros : widen {
  template <class From, class To>
  void parameter(parameter_name const&, From const& from, To& to, auto const& wanted) {
    if (!is_wanted(wanted))
      to = To();
    else if constexpr (is_matrix<From>) {
      if (from.rows() != to.rows() || from.cols() != to.cols() || !(from.pattern() == to.pattern()))
        to = To(from.rows(), from.cols(), from.pattern());
    } else if (from.size() != to.size()) {
      to = To(from.size());
    }
    std::fill(to.begin(), to.end(), typename To::value_type{});
  }
  template <class From, class To>
  void optional(parameter_name const& name, From const& from, To& to, auto const& wanted) {
    parameter(name, from.vector, to.vector, wanted.vector);
    to.term = from.term;
  }
  void lists(auto const& from, auto& to, auto const&) { widen::lists(from, to); }
  void setting(parameter_name const& name, auto const& from, auto& to, auto const&) {
    widen::setting(name, from, to);
  }
  using widen::setting;
  void hyperparameter(auto const& from, auto& to, auto const&) { widen::hyperparameter(from, to); }
};

}  // namespace detail

/// Edge-popup (Ramanujan et al. 2020, "What's hidden in a randomly weighted neural network?", §3.2): random
/// weights stay as they are; each has a score, which is trained, and the blocks of greatest score are
/// visible. The gradient of a score goes straight through the choice: ds = dw ∘ w at all stored blocks.
///   `edge_popup<float, mlp<float, block>>(layer, 0.5, seed)`: of the weights of `layer`, dense or sparse,
///   0.5 of the blocks of each grid are visible.
/// The score of a block is the sum of its elements' scores; the authors' code ranks magnitudes of scores, the
/// paper scores. Biases and gains have no scores, they are trained as ever; freeze them by their names if all
/// shall be random. Visible blocks are chosen in refresh, which training calls.
template <element T, class Layer> struct edge_popup {
  Layer scores;        // trained: a score in the place of each weight, and all other parameters
  Layer weights;       // of which only the weights are used
  Layer visible;       // the weights at the chosen blocks
  double density = 1;  // visible blocks ÷ blocks of the grid

  using saved = typename Layer::saved;
  using gradients = edge_popup<accumulator_t<T>, typename Layer::gradients>;

  edge_popup() = default;
  /// Scores are drawn as weights would be (He et al. 2015). Throws option_error unless the density is in
  /// (0, 1] and at most the density of each weight.
  ///   name   of this layer in the model; the keys of the scores are their own names
  edge_popup(Layer layer, double visible_density, std::uint64_t seed, parameter_name const& name = {})
      : scores(std::move(layer)), weights(scores), visible(scores), density(visible_density) {
    for_each_parameter(scores, [&](parameter_name const& its, auto& score) {
      if constexpr (is_matrix<decltype(score)>)
        if (detail::is_chosen<decltype(score)>(its))
          initialise(score, distribution::he, seed, name.child("scores").text() + '.' + its.text());
    });
    context alone(1);
    refresh(alone, 0);
  }

  static void parts(auto& each, auto&... of) {
    each("scores", of.scores...);
    each.frozen("weights", of.weights...);
    each.frozen("visible", of.visible...);
    each.setting("visible_density", of.density...);
  }
  std::int64_t outputs(std::int64_t features) const { return scores.outputs(features); }

  /// Observers of inputs see x of visible weights, under the numbers of the scores.
  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
    detail::forward_of_visible(visible, scores, x, y, s, p);
  }
  /// Observers of weight gradients do not see this backward: weights have no gradients.
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const {
    const auto of_weights = p.template borrow_saved<typename Layer::gradients>();
    detail::make_zeros action;
    detail::walk(parameter_name(), action, weights, *of_weights, std::as_const(g.scores));
    visible.backward(x, s, dy, dx, *of_weights, p.unobserved());
    for_each_parameter(
        weights,
        [&](parameter_name const& name, auto const& w, auto const& dw, auto& ds) {
          if (!is_wanted(ds)) return;
          if constexpr (is_matrix<decltype(w)>)
            if (detail::is_chosen<decltype(w)>(name))
              return run(p.ctx, ds = stored_values(ds) + stored_values(dw) * stored_values(w));
          run(p.ctx, ds = stored_values(ds) + stored_values(dw));
        },
        *of_weights, g.scores);
  }

  /// Makes the visible layer follow the scores. Throws error if scores and weights are no longer stored at
  /// the same blocks: their patterns must not evolve.
  void refresh(context& ctx, std::int64_t) {
    for_each_parameter(
        scores,
        [&](parameter_name const& name, auto const& score, auto const& weight, auto& to) {
          if constexpr (is_matrix<decltype(score)>)
            if (detail::is_chosen<decltype(score)>(name)) {
              if (!(score.pattern() == weight.pattern()))
                throw error(message("[edge_popup] the scores of ", name.text(),
                                    " have another pattern than the weights, which never change: keep their "
                                    "patterns from evolving, by a parameter group"));
              const auto sum_of = [](auto block) {
                double sum = 0;
                for (const auto value : block) sum += double(value);
                return sum;
              };
              detail::choose_blocks(ctx, "edge_popup", name, score, density, room_, sum_of, to);
              return detail::copy_blocks(ctx, weight, to);
            }
          detail::copy_all(ctx, score, to);
        },
        weights, visible);
  }
  /// Drops the memory of the choice: gradients choose nothing.
  void drop_refreshed() { room_ = {}; }

 private:
  detail::choice_room<double> room_;
};

}}}  // namespace tessera::TESSERA_ISA::nn
