// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/panel_slice.hpp>
#include <tessera/tensor/vectors.hpp>

// activation = expression, or token_vector = expression. Argument-dependent lookup of lower_to(plan,
// destination, expression) finds the kind of step that computes the expression, in eval/ or in a user's
// namespace.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

template <class T, class Value> void lower(plan& p, expr::statement<panel_matrix<T>, Value, false> const& s) {
  panel_matrix<T>& y = s.destination();
  lower_to(p, panels_to<T>{by_panel(y), y.features(), y.tokens()}, s.value);
}
template <class T, class Value> void lower(plan& p, expr::statement<panel_slice<T>, Value, false> const& s) {
  panel_slice<T> const& y = s.destination();
  lower_to(p, panels_to<T>{by_panel(y), y.features(), y.tokens()}, s.value);
}
template <class T, class Value> void lower(plan& p, expr::statement<token_vector<T>, Value, false> const& s) {
  token_vector<T>& y = s.destination();
  lower_to(p, tokens_to<T>{by_panel(y), y.tokens()}, s.value);
}

}}}  // namespace tessera::TESSERA_ISA::eval
