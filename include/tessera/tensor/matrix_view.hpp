// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// A matrix in the user's memory: element (i, j) stands at data[i * row_stride + j * col_stride]. This is how
/// buffers of NumPy, Eigen or PyTorch go in and out; strides are in elements and may be negative.
template <class T> struct matrix_view {
  T* data;
  std::int64_t rows, cols;
  std::int64_t row_stride, col_stride;

  T& operator()(std::int64_t i, std::int64_t j) const { return data[i * row_stride + j * col_stride]; }
  matrix_view<T const> as_const() const { return {data, rows, cols, row_stride, col_stride}; }
};

/// Row after row.
template <class T> matrix_view<T> row_major(T* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols, cols, 1};
}

/// A view with rows and columns exchanged: (tokens, features) memory seen as (features, tokens).
template <class T> matrix_view<T> transposed(matrix_view<T> view) {
  return {view.data, view.cols, view.rows, view.col_stride, view.row_stride};
}

namespace detail {
inline void require_shape(const char* what, std::int64_t rows, std::int64_t cols, const char* other,
                          std::int64_t other_rows, std::int64_t other_cols, const char* operation = "copy") {
  if (rows != other_rows || cols != other_cols)
    throw shape_error(message("[", operation, "] the ", what, " is ", rows, " x ", cols, " but the ", other,
                              " is ", other_rows, " x ", other_cols));
}

/// Calls visit(feature, token, element) for each element of panels [first_panel, last_panel) of an
/// activation, a granule of a panel after the other, and of that feature by feature or token by token.
template <class Panels, class Visit>
void for_each_element(Panels& x, std::int64_t first_panel, std::int64_t last_panel, Visit&& visit,
                      bool token_by_token = false) {
  using T = typename Panels::value_type;
  for (std::int64_t p = first_panel; p < last_panel; ++p) {
    const std::int64_t first = p * panel_tokens,
                       count = std::min<std::int64_t>(panel_tokens, x.tokens() - first);
    const auto at = [&](std::int64_t f, std::int64_t t) {
      visit(f, first + t, x.panel(p)[place_in_panel<T>(f, t)]);
    };
    for (std::int64_t begin = 0; begin < x.features(); begin += granule) {
      const std::int64_t end = std::min<std::int64_t>(begin + granule, x.features());
      if (token_by_token) {
        for (std::int64_t t = 0; t < count; ++t)
          for (std::int64_t f = begin; f < end; ++f) at(f, t);
      } else {
        for (std::int64_t f = begin; f < end; ++f)
          for (std::int64_t t = 0; t < count; ++t) at(f, t);
      }
    }
  }
}
template <class Panels, class Visit>
void for_each_element(Panels& x, Visit&& visit, bool token_by_token = false) {
  for_each_element(x, 0, x.panels(), visit, token_by_token);
}

template <class T, element Element>
void copy_panels(matrix_view<T> from, panel_matrix<Element>& to, std::int64_t first, std::int64_t last) {
  for_each_element(
      to, first, last, [&](auto f, auto t, Element& value) { value = static_cast<Element>(from(f, t)); },
      std::abs(from.row_stride) < std::abs(from.col_stride));
}
template <class T, element Element>
void copy_panels(panel_matrix<Element> const& from, matrix_view<T> to, std::int64_t first,
                 std::int64_t last) {
  // The order follows the smaller stride of the view.
  for_each_element(
      from, first, last, [&](auto f, auto t, Element value) { to(f, t) = static_cast<T>(value); },
      std::abs(to.row_stride) < std::abs(to.col_stride));
}
template <class T, element Element>
void require_copy(panel_matrix<Element> const& x, matrix_view<T> const& view) {
  require_shape("panel_matrix", x.features(), x.tokens(), "view", view.rows, view.cols);
}
}  // namespace detail

/// Fills `to` (features, tokens) from a view (features, tokens).
template <class T, element Element> void copy(matrix_view<T> from, panel_matrix<Element>& to) {
  detail::require_copy(to, from);
  detail::copy_panels(from, to, 0, to.panels());
}

template <class T, tensor Vector>
  requires(Vector::laid_over == domain::features || Vector::laid_over == domain::tokens)
void copy(matrix_view<T>, Vector&) = delete;  // make it of a span: feature_vector<float> b(numbers)

/// Writes `from` (features, tokens) to a view (features, tokens).
template <class T, element Element> void copy(panel_matrix<Element> const& from, matrix_view<T> to) {
  detail::require_copy(from, to);
  detail::copy_panels(from, to, 0, from.panels());
}

/// Converts the values to another element.
template <element From, element To> void copy(panel_matrix<From> const& from, panel_matrix<To>& to) {
  detail::require_shape("panel_matrix", to.features(), to.tokens(), "source", from.features(), from.tokens());
  detail::for_each_element(to, [&](auto f, auto t, To& value) { value = static_cast<To>(from(f, t)); });
}

/// Fills the stored blocks of `to` from a view of the whole matrix; elements of absent blocks are left out.
template <class T, element Element, class Block>
void copy(matrix_view<T> from, block_sparse_matrix<Element, Block>& to) {
  detail::require_shape("block_sparse_matrix", to.rows(), to.cols(), "view", from.rows, from.cols);
  to.generate([&](std::int64_t i, std::int64_t j) { return from(i, j); });
}

/// Writes `from` to a view of the whole matrix, zeros where nothing is stored.
template <class T, element Element, class Block>
void copy(block_sparse_matrix<Element, Block> const& from, matrix_view<T> to) {
  detail::require_shape("block_sparse_matrix", from.rows(), from.cols(), "view", to.rows, to.cols);
  for (std::int64_t i = 0; i < to.rows; ++i)
    for (std::int64_t j = 0; j < to.cols; ++j) to(i, j) = T{};
  from.pattern().for_each([&](int i, int j, std::int64_t slot) {
    const std::int64_t row = std::int64_t(i) * Block::rows, col = std::int64_t(j) * Block::cols;
    const std::int64_t height = std::min<std::int64_t>(Block::rows, from.rows() - row);
    const std::int64_t width = std::min<std::int64_t>(Block::cols, from.cols() - col);
    for (std::int64_t r = 0; r < height; ++r)
      for (std::int64_t c = 0; c < width; ++c)
        to(row + r, col + c) = static_cast<T>(from.data()[slot * Block::elements + r * Block::cols + c]);
  });
}

}}  // namespace tessera::TESSERA_ISA
