// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/kernels/embedding.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/row_quantised_matrix.hpp>
#include <tessera/tensor/vectors.hpp>

// Statements that move whole tokens: rows of a table to tokens and back, chosen tokens to a smaller
// activation and back. Every result has one writer and a fixed order of sums. Indices are held by reference
// and must live until the end of the run.

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

/// The bytes of a row of a table in some of its block columns.
template <class Value, class Block>
touched_bytes table_row(operand const& table, int block_cols, range some, std::int64_t id) {
  const std::int64_t at =
      (id / Block::rows * block_cols + some.first) * Block::elements + id % Block::rows * Block::cols;
  touched_bytes row = elements_of<Value>(table, 0, at, Block::cols);
  row.count = some.size(), row.stride = Block::elements * std::int64_t(sizeof(Value));
  return row;
}

/// y(:, t) = or += a row of a table. A tile is a panel of y, or a range of its block columns in the table.
template <class T, class Value, class Block> struct row_gathering_body {
  panels_to<T> y;
  operand table;
  std::int32_t const* ids;
  int block_cols;  // of the table
  bool accumulates;
  operand scale = {};      // of rows in 8 bits
  bool has_scale = false;  // then it does not accumulate

  panels_to<T> const& destination() const { return y; }
  range columns_of(tile const& t) const { return part_of(block_cols, t.part, t.parts); }
  range features_of(tile const& t) const {
    const auto [first, last] = columns_of(t);
    return {first * Block::cols, int(std::min<std::int64_t>(y.features, last * Block::cols))};
  }
  void compute_at(tile const& t, T* panel) const noexcept {
    const range l = columns_of(t);
    kernels::embedding<simd::native, T, Block>::gather(
        t.address<Value const>(table), block_cols, ids + t.index * panel_tokens, tokens_of(t.index, y.tokens),
        accumulates, panel, y.features, l.first, l.last);
    if constexpr (sizeof(Value) == 1)
      if (has_scale)
        kernels::scale_tokens(t.address<float const>(scale), ids + t.index * panel_tokens,
                              tokens_of(t.index, y.tokens), panel, features_of(t));
  }
  void describe(tile const& t, task_description& d) const {
    for (int i = 0; i < tokens_of(t.index, y.tokens); ++i) {
      const std::int64_t id = ids[t.index * panel_tokens + i];
      read_once(d, table_row<Value, Block>(table, block_cols, columns_of(t), id));
      if (has_scale) read_once(d, elements_of<float>(scale, 0, id, 1));
    }
    if (accumulates) d.read(y.part(t, features_of(t)));
  }
};

/// Rows of a table += tokens of y. A tile owns a block column of the whole table.
template <class T, class Value, class Block> struct row_scattering_body {
  operand table, y;
  std::int64_t features, tokens;
  std::int32_t const* ids;
  int block_cols;

  void compute(tile const& t) const noexcept {
    for (std::int64_t panel = 0; panel * panel_tokens < tokens; ++panel)
      kernels::embedding<simd::native, T, Block>::scatter(
          t.address<Value>(table), block_cols, ids + panel * panel_tokens, tokens_of(panel, tokens),
          t.address<T const>(y, panel), features, t.index);
  }
  void describe(tile const& t, task_description& d) const {
    const auto column = int(t.index);
    std::vector<std::int32_t> rows(ids, ids + tokens);
    std::ranges::sort(rows);
    const auto repeated = std::ranges::unique(rows);
    rows.erase(repeated.begin(), repeated.end());
    for (const std::int32_t id : rows) {
      d.write(table_row<Value, Block>(table, block_cols, {column, column + 1}, id));
      d.read(d.writes.back());
    }
    for (std::int64_t panel = 0; panel * panel_tokens < tokens; ++panel)
      d.read(part_of_panel<T>(y, panel, column * Block::cols,
                              std::min<std::int64_t>(features, (column + 1) * Block::cols),
                              tokens_of(panel, tokens)));
  }
};

/// The direction in which chosen tokens move.
enum class token_move : std::uint8_t {
  gather,   // tokens at some positions become the tokens 0, 1, … of the result
  scatter,  // the tokens 0, 1, … go to some positions of the result; its other tokens become zero
};

/// Moves tokens. A tile is a panel of the result, or a range of its granules.
template <class T> struct token_choice_body {
  panels_to<T> to;
  operand from;
  std::int32_t const* positions;
  std::int64_t count;
  token_move move;

  panels_to<T> const& destination() const { return to; }
  range features_of(tile const& t) const { return granules_of(to.features, t.part, t.parts); }
  std::int64_t stride() const { return round_up<std::int64_t>(to.features, granule) * panel_tokens; }

  void compute_at(tile const& t, T* panel) const noexcept {
    const range f = features_of(t);
    const int live = tokens_of(t.index, to.tokens);
    T const* const source = t.address<T const>(from, 0);
    if (move == token_move::scatter)
      kernels::scatter_tokens(source, stride(), positions, count, t.index * panel_tokens, live, panel,
                              f.first, f.last);
    else
      kernels::gather_tokens(source, stride(), positions + t.index * panel_tokens, live, panel, f.first,
                             f.last);
  }
  void describe(tile const& t, task_description& d) const {
    constexpr int group = element_traits<T>::features_a_lane;
    const range f = features_of(t);
    const int live = tokens_of(t.index, to.tokens);
    const std::int64_t first = t.index * panel_tokens;
    const auto read = [&](std::int64_t token) {
      const std::int64_t at =
          token / panel_tokens * stride() + place_in_panel<T>(f.first, token % panel_tokens);
      d.read({from.owner, from.at + std::uintptr_t(at) * sizeof(T), group * std::int64_t(sizeof(T)),
              ceil_div<std::int64_t>(f.size(), group), group * panel_tokens * std::int64_t(sizeof(T))});
    };
    if (move == token_move::scatter) {
      const auto* at = std::lower_bound(positions, positions + count, first);
      for (; at < positions + count && *at < first + live; ++at) read(at - positions);
    } else {
      for (int i = 0; i < live; ++i) read(positions[first + i]);
    }
  }
};

/// Throws shape_error, with the place, unless every index is in 0 … end - 1.
void require_indices(const char* operation, const char* what, std::span<std::int32_t const> index,
                     std::int64_t end, const char* hint = "");

template <class T, class Value, class Block>
void require_table(const char* operation, block_sparse_matrix<Value, Block> const& table,
                   panel_matrix<T> const& y, std::span<std::int32_t const> ids) {
  if (!table.pattern().is_dense())
    throw shape_error(message("[", operation, "] the table stores ", table.pattern().blocks(),
                              " blocks: it must be dense"));
  if (table.cols() != y.features() || std::int64_t(ids.size()) != y.tokens())
    throw shape_error(message("[", operation, "] the table has ", table.cols(), " columns and there are ",
                              ids.size(), " ids, but the activation has ", y.features(), " features and ",
                              y.tokens(), " tokens"));
  require_indices(operation, "rows in the table", ids, table.rows());
}

template <class T, class Value, class Block> struct TESSERA_STATEMENT gathered_rows {
  static_assert(std::is_same_v<accumulator_t<T>, accumulator_t<Value>>,
                "the table and the activation have different element types: " TESSERA_ONE_ACCUMULATOR);
  using statement_tag = void;
  char const* operation;
  panel_matrix<T>* y;
  block_sparse_matrix<Value, Block> const* table;
  std::span<std::int32_t const> ids;
  bool accumulates;
  feature_vector<float> const* scale = nullptr;  // of the rows, or none

  /// Throws shape_error.
  void check() const {
    require_table(operation, *table, *y, ids);
    if (scale && scale->size() != table->rows())
      throw shape_error(message("[", operation, "] there are ", scale->size(), " scales of ", table->rows(),
                                " rows of the table"));
  }

  void lower(plan& p) const {
    check();
    step_draft s("gather", cut::panels);
    s.tiles = int(y->panels());
    s.most_parts = table->pattern().block_cols();
    const panels_to<T> to{s.writes(by_panel(*y)), y->features(), y->tokens()};
    const operand from = s.reads(all_of(*table));
    row_gathering_body<T, Value, Block> body{to, from, ids.data(), s.most_parts, accumulates};
    if (scale) body.scale = s.reads(all_of(*scale)), body.has_scale = true;
    p.add(s, body);
  }
};

template <class T, class Value, class Block> struct TESSERA_STATEMENT scattered_rows {
  static_assert(
      std::is_same_v<Value, accumulator_t<T>>,
      "the table that tokens are summed into has the accumulator type: float for those of two bytes");
  using statement_tag = void;
  block_sparse_matrix<Value, Block>* table;
  panel_matrix<T> const* y;
  std::span<std::int32_t const> ids;

  /// Throws shape_error.
  void check() const { require_table("scatter_rows", *table, *y, ids); }

  void lower(plan& p) const {
    check();
    step_draft s("scatter", cut::lines);
    s.tiles = table->pattern().block_cols();
    const operand to = s.writes(all_of(*table));
    operand from = s.reads(all_of(*y));
    from.stride = by_panel(*y).stride;
    p.add(s, row_scattering_body<T, Value, Block>{to, from, y->features(), y->tokens(), ids.data(), s.tiles});
  }
};

template <class T> struct TESSERA_STATEMENT chosen_tokens {
  using statement_tag = void;
  panel_matrix<T>* to;
  panel_matrix<T> const* from;
  std::span<std::int32_t const> positions;  // in the activation that has more tokens
  token_move move;

  /// Throws shape_error.
  void check() const {
    const bool scatters = move == token_move::scatter;
    char const* const operation = scatters ? "scatter_tokens" : "gather_tokens";
    auto const& few = scatters ? *from : *to;
    auto const& many = scatters ? *to : *from;
    if (to->features() != from->features() || few.tokens() != std::int64_t(positions.size()))
      throw shape_error(message("[", operation, "] there are ", positions.size(),
                                " positions in an activation of ", many.features(),
                                " features, but the chosen tokens are ", few.tokens(), " of ", few.features(),
                                " features"));
    if (to == from)
      throw shape_error(
          message("[", operation, "] the destination is also the source: tokens cannot move in place"));
    require_indices(operation, "tokens", positions, many.tokens());
    for (std::size_t i = 1; scatters && i < positions.size(); ++i)
      if (positions[i - 1] >= positions[i])
        throw shape_error(message("[scatter_tokens] position ", positions[i], " follows ", positions[i - 1],
                                  ": positions must ascend"));
  }

  void lower(plan& p) const {
    check();
    step_draft s("move tokens", cut::panels);
    s.tiles = int(to->panels());
    s.most_parts = int(ceil_div<std::int64_t>(to->features(), granule));
    const panels_to<T> written{s.writes(by_panel(*to)), to->features(), to->tokens()};
    const operand read = s.reads(all_of(*from));
    p.add(s, token_choice_body<T>{written, read, positions.data(), std::int64_t(positions.size()), move});
  }
};

}  // namespace eval

/// y(:, t) = row ids[t] of a dense table (rows, features).
template <element T, element Value, class Block>
auto gather_rows(panel_matrix<T>& y, block_sparse_matrix<Value, Block> const& table,
                 std::span<std::int32_t const> ids) {
  const eval::gathered_rows<T, Value, Block> statement{"gather_rows", &y, &table, ids, false};
  statement.check();
  return statement;
}

/// Of a table in 8 bits, whose rows have scales.
template <element T, element E, class Block>
auto gather_rows(panel_matrix<T>& y, row_quantised_matrix<E, Block> const& table,
                 std::span<std::int32_t const> ids) {
  const eval::gathered_rows<T, E, Block> statement{"gather_rows", &y,    &table.values,
                                                   ids,           false, &table.scale};
  statement.check();
  return statement;
}

/// y(:, t) += row ids[t] of a dense table (rows, features), rounded once.
template <element T, element Value, class Block>
auto add_rows(panel_matrix<T>& y, block_sparse_matrix<Value, Block> const& table,
              std::span<std::int32_t const> ids) {
  const eval::gathered_rows<T, Value, Block> statement{"add_rows", &y, &table, ids, true};
  statement.check();
  return statement;
}

/// Row ids[t] of a dense table += y(:, t): the gradient of gather_rows. The tokens of a row are added in
/// ascending order, in the accumulator type, which is the element of the table.
template <element T, element Value, class Block>
auto scatter_rows(block_sparse_matrix<Value, Block>& table, panel_matrix<T> const& y,
                  std::span<std::int32_t const> ids) {
  const eval::scattered_rows<T, Value, Block> statement{&table, &y, ids};
  statement.check();
  return statement;
}

/// y(:, i) = x(:, positions[i]).
template <element T>
auto gather_tokens(panel_matrix<T>& y, panel_matrix<T> const& x, std::span<std::int32_t const> positions) {
  const eval::chosen_tokens<T> statement{&y, &x, positions, eval::token_move::gather};
  statement.check();
  return statement;
}

/// x(:, positions[i]) = y(:, i), and zero at all other tokens. Positions must ascend.
template <element T>
auto scatter_tokens(panel_matrix<T>& x, panel_matrix<T> const& y, std::span<std::int32_t const> positions) {
  const eval::chosen_tokens<T> statement{&x, &y, positions, eval::token_move::scatter};
  statement.check();
  return statement;
}

#ifdef TESSERA_BODY

namespace eval {

TESSERA_BODY void require_indices(const char* operation, const char* what,
                                  std::span<std::int32_t const> index, std::int64_t end, const char* hint) {
  for (std::size_t i = 0; i < index.size(); ++i)
    if (index[i] < 0 || index[i] >= end)
      throw shape_error(message("[", operation, "] index ", i, " is ", index[i], " but there are ", end, " ",
                                what, ": 0 … ", end - 1, " are possible", hint));
}

}  // namespace eval

#endif

}}  // namespace tessera::TESSERA_ISA
