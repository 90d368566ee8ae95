// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <type_traits>
#include <variant>

#include <tessera/core/element.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/train/optimizers/adam_mini.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/adamw_8_bits.hpp>
#include <tessera/train/optimizers/lamb.hpp>
#include <tessera/train/optimizers/lars.hpp>
#include <tessera/train/optimizers/lion.hpp>
#include <tessera/train/optimizers/optimizer.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>
#include <tessera/train/optimizers/schedule_free_adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/settings.hpp>

namespace programs {

namespace train = tessera::train;

/// The optimizer that a run has chosen, as one: a training is compiled for this type alone.
struct chosen_optimizer {
  std::variant<train::adamw, train::sgd, train::lion, train::lars, train::lamb, train::adamw_8_bits,
               train::adam_mini, train::schedule_free_adamw>
      chosen;

  /// In a checkpoint it is the optimizer itself.
  std::string setting_name() const {
    return std::visit([]<class Of>(Of const&) { return train::detail::name_of_type<Of>(); }, chosen);
  }
  static void parts(auto& each, auto const& of) {
    std::visit([&](auto const& o) { each("", o); }, of.chosen);
  }
  void check() const {
    std::visit([](auto const& o) { o.check(); }, chosen);
  }
  void state(train::state_list& each, tessera::any_tensor const& parameter) const {
    std::visit([&](auto const& o) { o.state(each, parameter); }, chosen);
  }
  template <tessera::element T>
  void step(tessera::context& ctx, train::update const& now, train::parameter_values<T>& of) const {
    std::visit([&](auto const& o) { o.step(ctx, now, of); }, chosen);
  }
};

}  // namespace programs
