// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/expr/map.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

template <class Parameter>
inline constexpr bool is_matrix = std::remove_cvref_t<Parameter>::laid_over == domain::blocks;

/// The stored values of a parameter, as an expression whose ops need not keep zeros.
template <class Parameter> auto values(Parameter& parameter) {
  if constexpr (is_matrix<Parameter>)
    return stored_values(parameter);
  else
    return expr::hold(parameter);
}

}}}  // namespace tessera::TESSERA_ISA::train
