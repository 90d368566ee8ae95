// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/eval/lower.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/steps.hpp>
#include <tessera/kernels/embedding.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>

// Statements that move whole tokens: rows of a table to tokens and back, chosen tokens to a smaller
// activation and back. Every result has one writer and a fixed order of sums. Indices are kept by reference:
// they must live until the run is over.

namespace tessera::inline TESSERA_ISA {
namespace eval {

/// What a tile of a token-moving step does; the indices are the step's `extra`.
template <class T, class Block> struct embedding_step {
  using kernel = kernels::embedding<simd::native, T, Block>;

  template <class Value> static void gather(step const& s, tile const& t) noexcept {
    const std::int64_t panel = t.index / s.parts;
    const share lines(s.lines, t.index % s.parts, s.parts);
    const bound b(s, panel, t.scratch);
    kernel::gather(static_cast<Value const*>(b.address[1]), s.lines,
                   static_cast<std::int32_t const*>(s.extra) + panel * panel_tokens, s.tokens_of(panel),
                   s.accumulates, b.to<T>(), s.features, lines.first, lines.last);
  }

  static void scatter(step const& s, tile const& t) noexcept {
    for (std::int64_t panel = 0; panel < s.panels(); ++panel) {
      const bound b(s, panel, t.scratch);
      kernel::scatter(b.to<accumulator_t<T>>(), s.lines,
                      static_cast<std::int32_t const*>(s.extra) + panel * panel_tokens, s.tokens_of(panel),
                      static_cast<T const*>(b.address[1]), s.features, t.index);
    }
  }
};

template <class T> struct token_choice_step {
  static void gather(step const& s, tile const& t) noexcept {
    const std::int64_t panel = t.index / s.parts;
    const share lines(s.lines, t.index % s.parts, s.parts);
    const bound b(s, panel, t.scratch);
    kernels::gather_tokens(static_cast<T const*>(b.address[1]), s.stored_features * panel_tokens,
                           static_cast<std::int32_t const*>(s.extra) + panel * panel_tokens,
                           s.tokens_of(panel), b.to<T>(), std::int64_t(lines.first) * granule,
                           std::min<std::int64_t>(s.features, std::int64_t(lines.last) * granule));
  }

  static void scatter(step const& s, tile const& t) noexcept {
    const std::int64_t panel = t.index / s.parts;
    const share lines(s.lines, t.index % s.parts, s.parts);
    const bound b(s, panel, t.scratch);
    kernels::scatter_tokens(static_cast<T const*>(b.address[1]), s.stored_features * panel_tokens,
                            static_cast<std::int32_t const*>(s.extra), s.depth, panel * panel_tokens,
                            s.tokens_of(panel), b.to<T>(), std::int64_t(lines.first) * granule,
                            std::min<std::int64_t>(s.features, std::int64_t(lines.last) * granule));
  }
};

/// A step over the panels of y.
template <class T> step token_step(panel_matrix<T> const& y, int lines, std::span<std::int32_t const> index) {
  step s;
  s.kind = cut::panels;
  s.features = y.features();
  s.stored_features = y.stored_features();
  s.tokens = y.tokens();
  s.tiles = int(s.panels());
  s.lines = lines;
  s.extra = index.data();
  s.add(operand_of<over::panels>(y));
  return s;
}

/// Throws shape_error, with the place, unless every index is in 0 … end - 1.
inline void require_indices(const char* operation, const char* what, std::span<std::int32_t const> index,
                            std::int64_t end) {
  for (std::size_t i = 0; i < index.size(); ++i)
    if (index[i] < 0 || index[i] >= end)
      throw shape_error(message("[", operation, "] index ", i, " is ", index[i], " but there are ", end, " ",
                                what, ": 0 … ", end - 1, " are possible"));
}

template <class T, class Value, class Block>
void require_table(const char* operation, block_sparse_matrix<Value, Block> const& table,
                   panel_matrix<T> const& y, std::span<std::int32_t const> ids) {
  if (!table.stored().is_dense())
    throw shape_error(
        message("[", operation, "] the table stores ", table.stored().stored(), " blocks: it must be dense"));
  if (table.cols() != y.features() || std::int64_t(ids.size()) != y.tokens())
    throw shape_error(message("[", operation, "] the table has ", table.cols(), " columns and there are ",
                              ids.size(), " ids, but the activation has ", y.features(), " features and ",
                              y.tokens(), " tokens"));
  require_indices(operation, "rows in the table", ids, table.rows());
}

template <class T, class Value, class Block>
struct [[nodiscard("a statement computes nothing until it is given to run(context, …)")]] gathered_rows {
  static_assert(std::is_same_v<accumulator_t<T>, accumulator_t<Value>>,
                "the table and the activation have different element types: bring them to one");
  using statement_tag = void;
  panel_matrix<T>* y;
  block_sparse_matrix<Value, Block> const* table;
  std::span<std::int32_t const> ids;
  bool adds;
  void lower(plan& p) const {
    step s = token_step(*y, table->stored().block_cols(), ids);
    s.accumulates = adds;
    s.add(operand_of<over::all_panels>(*table));
    s.compute = embedding_step<T, Block>::template gather<Value>;
    p.add(s);
  }
};

template <class T, class Value, class Block>
struct [[nodiscard("a statement computes nothing until it is given to run(context, …)")]] scattered_rows {
  static_assert(std::is_same_v<Value, accumulator_t<T>>,
                "the table that tokens are summed into has the accumulator type: float for bfloat16");
  using statement_tag = void;
  block_sparse_matrix<Value, Block>* table;
  panel_matrix<T> const* y;
  std::span<std::int32_t const> ids;
  void lower(plan& p) const {
    step s;
    s.kind = cut::lines;  // a tile owns some columns of the whole table
    s.features = y->features();
    s.tokens = y->tokens();
    s.lines = s.tiles = table->stored().block_cols();
    s.extra = ids.data();
    s.add(operand_of<over::all_panels>(*table));
    s.add(operand_of<over::all_panels>(*y));
    s.compute = embedding_step<T, Block>::scatter;
    p.add(s);
  }
};

template <class T>
struct [[nodiscard("a statement computes nothing until it is given to run(context, …)")]] chosen_tokens {
  using statement_tag = void;
  panel_matrix<T>* y;
  panel_matrix<T> const* x;
  std::span<std::int32_t const> positions;
  bool back;
  void lower(plan& p) const {
    step s = token_step(*y, int(ceil_div<std::int64_t>(y->features(), granule)), positions);
    s.depth = std::int64_t(positions.size());
    operand from = operand_of<over::all_panels>(*x);
    from.stride = 0;
    s.add(from);
    s.compute = back ? token_choice_step<T>::scatter : token_choice_step<T>::gather;
    p.add(s);
  }
};

}  // namespace eval

/// y(:, t) = row ids[t] of a dense table (rows, features).
template <element T, element Value, class Block>
auto gather_rows(panel_matrix<T>& y, block_sparse_matrix<Value, Block> const& table,
                 std::span<std::int32_t const> ids) {
  eval::require_table("gather_rows", table, y, ids);
  return eval::gathered_rows<T, Value, Block>{&y, &table, ids, false};
}

/// y(:, t) += row ids[t] of a dense table (rows, features), rounded once.
template <element T, element Value, class Block>
auto add_rows(panel_matrix<T>& y, block_sparse_matrix<Value, Block> const& table,
              std::span<std::int32_t const> ids) {
  eval::require_table("add_rows", table, y, ids);
  return eval::gathered_rows<T, Value, Block>{&y, &table, ids, true};
}

/// Row ids[t] of a dense table += y(:, t): the gradient of gather_rows. A row's tokens are added in their
/// order, in the accumulator type, which the table has.
template <element T, element Value, class Block>
auto scatter_rows(block_sparse_matrix<Value, Block>& table, panel_matrix<T> const& y,
                  std::span<std::int32_t const> ids) {
  eval::require_table("scatter_rows", table, y, ids);
  return eval::scattered_rows<T, Value, Block>{&table, &y, ids};
}

/// y(:, i) = x(:, positions[i]).
template <element T>
auto gather_tokens(panel_matrix<T>& y, panel_matrix<T> const& x, std::span<std::int32_t const> positions) {
  if (y.features() != x.features() || y.tokens() != std::int64_t(positions.size()))
    throw shape_error(message("[gather_tokens] ", positions.size(), " tokens of ", x.features(),
                              " features are wanted, but the destination has ", y.tokens(), " of ",
                              y.features()));
  if (&x == &y)
    throw shape_error("[gather_tokens] the destination is also the source: tokens cannot move in place");
  eval::require_indices("gather_tokens", "tokens", positions, x.tokens());
  return eval::chosen_tokens<T>{&y, &x, positions, false};
}

/// x(:, positions[i]) = y(:, i), and zero at all other tokens. Positions must ascend.
template <element T>
auto scatter_tokens(panel_matrix<T>& x, panel_matrix<T> const& y, std::span<std::int32_t const> positions) {
  if (y.features() != x.features() || y.tokens() != std::int64_t(positions.size()))
    throw shape_error(message("[scatter_tokens] ", y.tokens(), " tokens of ", y.features(),
                              " features cannot go to ", positions.size(), " positions of ", x.features(),
                              " features"));
  if (&x == &y)
    throw shape_error("[scatter_tokens] the destination is also the source: tokens cannot move in place");
  eval::require_indices("scatter_tokens", "tokens", positions, x.tokens());
  for (std::size_t i = 1; i < positions.size(); ++i)
    if (positions[i - 1] >= positions[i])
      throw shape_error(message("[scatter_tokens] position ", positions[i], " follows ", positions[i - 1],
                                ": positions must ascend"));
  return eval::chosen_tokens<T>{&x, &y, positions, true};
}

}  // namespace tessera::inline TESSERA_ISA
