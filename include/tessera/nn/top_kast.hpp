// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/visible_blocks.hpp>
#include <tessera/tensor/pruning.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Top-KAST (Jayakumar et al. 2020): a layer that stores and trains its weights on an update pattern B, while
/// forward and dx use the forward pattern A ⊂ B of the blocks of greatest L1 norm. dW is sampled at B, so
/// that no product is dense, and a block of B that grows large comes into A.
///   `top_kast<float, mlp<float, block>>(layer, 0.1)`: the patterns of `layer` are B, and 0.1 of the blocks
///   of each weight's grid are A. A is chosen by refresh, which training calls; see also
///   train::exploration_penalty.
/// Parameters have the names of `layer`. Where a network takes the parts of a layer into statements of its
/// own, it reads `visible` and adds to the gradients of `stored`.
template <element T, class Layer> struct top_kast {
  Layer stored;               // trained
  Layer visible;              // its blocks at A
  double density = 1;         // of A, in the blocks of the grid
  std::int64_t interval = 1;  // steps from one choice of A to the next; 0: the first one is kept

  using saved = typename Layer::saved;
  using gradients = top_kast<accumulator_t<T>, typename Layer::gradients>;

  top_kast() = default;
  /// Throws option_error unless the forward density is in (0, 1] and at most the density of each weight.
  top_kast(Layer layer, double forward_density, std::int64_t every = 100)
      : stored(std::move(layer)), visible(stored), density(forward_density), interval(every) {
    if (interval < 0)
      throw option_error(message("[top_kast] interval is ", interval,
                                 ": it must be a number of steps, or 0 to keep the first pattern"));
    context alone(1);
    refresh(alone, 0);
  }

  static void parts(auto& each, auto&... of) {
    each("", of.stored...);
    each.frozen("visible", of.visible...);
    each.setting("forward_density", of.density...);
    each.training_setting("interval", of.interval...);
  }
  std::int64_t outputs(std::int64_t features) const { return stored.outputs(features); }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
    detail::forward_of_visible(visible, stored, x, y, s, p);
  }
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const {
    visible.backward(x, s, dy, dx, g.stored, p);
  }

  /// Makes the visible layer follow the stored one after `step` steps: chooses A anew if that is due, and
  /// copies the values. Blocks that B has lost are lost to A, which is all of B where that has become
  /// smaller.
  void refresh(context& ctx, std::int64_t step) {
    const bool chooses = step == 0 || (interval > 0 && step % interval == 0);
    for_each_parameter(
        stored,
        [&](parameter_name const& name, auto const& from, auto& to) {
          if constexpr (is_matrix<decltype(from)>)
            if (detail::is_chosen<decltype(from)>(name)) {
              if (step > 0 && from.pattern().density() <= density)
                to.set_pattern(from.pattern());
              else if (chooses)
                detail::choose_blocks(
                    ctx, "top_kast", name, from, density, room_, [](auto block) { return l1_norm(block); },
                    to);
              return detail::copy_blocks(ctx, from, to);
            }
          detail::copy_all(ctx, from, to);
        },
        visible);
  }
  /// Drops the memory of the choice: gradients choose nothing.
  void drop_refreshed() { room_ = {}; }

 private:
  detail::choice_room<accumulator_t<T>> room_;
};

template <class Layer> inline constexpr bool is_top_kast = false;
template <class T, class Layer> inline constexpr bool is_top_kast<top_kast<T, Layer>> = true;

}}}  // namespace tessera::TESSERA_ISA::nn
