// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/matrix_view.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/token_rows.hpp>

// Copies of activations from and to the user's memory by the threads of a context.

namespace tessera { inline namespace TESSERA_ISA {

namespace detail {
/// Whether a view is rows of tokens, of elements that a statement can convert.
template <class T> bool is_token_rows(matrix_view<T> const& view) {
  return view.row_stride == 1 && view.col_stride >= view.rows;
}
template <class Element, class T> constexpr bool may_be_token_rows() {
  if constexpr (element<std::remove_const_t<T>>)
    return std::is_same_v<accumulator_t<std::remove_const_t<T>>, accumulator_t<Element>>;
  else
    return false;
}
}  // namespace detail

/// As copy without a context, by its threads. Throws shape_error if the sizes differ.
template <class T, element Element> void copy(context& ctx, matrix_view<T> from, panel_matrix<Element>& to) {
  detail::require_copy(to, from);
  if constexpr (detail::may_be_token_rows<Element, T>())
    if (detail::is_token_rows(from))
      return run(ctx, to = token_rows<T const>(from.data, from.cols, from.rows, from.col_stride));
  ctx.run(int(to.panels()), [&](int p, std::byte*) { detail::copy_panels(from, to, p, p + 1); });
}
template <class T, element Element>
void copy(context& ctx, panel_matrix<Element> const& from, matrix_view<T> to) {
  detail::require_copy(from, to);
  if constexpr (detail::may_be_token_rows<Element, T>())
    if (detail::is_token_rows(to))
      return run(ctx, token_rows<T>(to.data, to.cols, to.rows, to.col_stride) = converted(from));
  ctx.run(int(from.panels()), [&](int p, std::byte*) { detail::copy_panels(from, to, p, p + 1); });
}

}}  // namespace tessera::TESSERA_ISA
