// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/train/token_loss.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The two places of a training step where something can be added. A hook derives from this and hides one
/// function or both; where it hides none, nothing is done and nothing costs. train_step takes any number of
/// hooks and calls them in order.
struct step_hook {
  /// After the last micro-batch, before the gradients are measured, checked and clipped. Whatever adds to
  /// t.gradients here, such as a sum over processes, adds its losses and tokens to `loss`.
  template <class Training> void accumulated(context&, Training& /*t*/, token_loss& /*loss*/) {}

  /// Around the optimizer, which `update()` runs, once: averages of the weights, moments that are stored
  /// elsewhere meanwhile. The first hook is the outermost. A step that is skipped does not come here.
  template <class Training, class Update>
  void around_update(context&, Training& /*t*/, Update const& update) {
    update();
  }
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
