// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/train/token_loss.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The places of a training step where a program can add work. A hook derives from this and hides some of its
/// functions; a function that is not hidden costs nothing. train_step takes any number of hooks and calls
/// them in order. What a hook keeps from step to step, in t.state, is told to t.keep: arrays for each
/// parameter, which it declares as an optimizer does, and t.state.numbers.
struct step_hook {
  /// After the last micro-batch, before the gradients are measured, checked and clipped. A hook that adds to
  /// t.gradients, such as a sum over processes, also adds the losses and tokens to `loss`.
  template <class Training> void accumulated(context&, Training& /*t*/, token_loss& /*loss*/) const {}

  /// Around the optimizer: must call `update()` once, which runs it. For averages of weights, or moments that
  /// are stored elsewhere between steps. The first hook is the outermost. A skipped step does not call this.
  template <class Training, class Update>
  void around_update(context&, Training& /*t*/, Update const& update) const {
    update();
  }

  /// After an update of the pattern; t.state has moved with it.
  template <class Training> void evolved(context&, Training& /*t*/) const {}
};

namespace detail {

/// Runs `update` inside the hooks.
template <class Training, class Update> void update_inside(context&, Training&, Update const& update) {
  update();
}
template <class Training, class Update, class First, class... Others>
void update_inside(context& ctx, Training& t, Update const& update, First& first, Others&... others) {
  first.around_update(ctx, t, [&] { update_inside(ctx, t, update, others...); });
}

}  // namespace detail

}}}  // namespace tessera::TESSERA_ISA::train
