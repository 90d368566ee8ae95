// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/elementwise.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/product.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/kernels/token_rows.hpp>
#include <tessera/simd/simd.hpp>
#include <tessera/tensor/token_rows.hpp>

// Rows of tokens in the user's memory as operands and destinations. An operand is brought into a panel by a
// step before the one that reads it. A destination is computed in memory of the worker, a part of a panel at
// a time that stays in the L2, and brought into the rows from there.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// Rows of tokens, of which a tile touches the rows of its panel.
template <class E> operand rows_by_panel(token_rows<E> const& rows) {
  operand o = all_of(rows);
  o.touches = footprint::own_rows;
  o.stride = std::size_t(panel_tokens * rows.stride()) * sizeof(E);
  return o;
}

/// The bytes of features [first, last) of the rows of a panel.
template <class E>
touched_bytes part_of_rows(operand const& rows, std::int64_t stride, tile const& t, std::int64_t first,
                           std::int64_t last, int tokens) {
  touched_bytes part = elements_of<E>(rows, t.index, first, last - first);
  part.count = tokens, part.stride = stride * std::int64_t(sizeof(E));
  return part;
}

/// A tensor is written past the caches if it is larger than a core's share of the last one.
template <class E> kernels::lines_go lines_of(operand const& to, std::int64_t features, std::int64_t tokens) {
  const bool large = features * tokens * std::int64_t(sizeof(E)) > (1 << 24);
  return large && to.owner != memory::worker ? kernels::lines_go::to_memory : kernels::lines_go::to_caches;
}

/// panel = rows
template <class E> struct from_rows_body {
  panels_to<E> to;
  operand rows;
  std::int64_t stride;
  kernels::lines_go go = lines_of<E>(to.at, to.features, to.tokens);

  panels_to<E> const& destination() const { return to; }
  range features_of(tile const&) const { return {0, int(to.features)}; }
  void compute_at(tile const& t, E* panel) const noexcept {
    kernels::row_transposition<simd::native, E>::to_panel(t.address<E const>(rows), stride, panel, 0,
                                                          to.features, tokens_of(t.index, to.tokens), go);
  }
  void describe(tile const& t, task_description& d) const {
    d.read(part_of_rows<E>(rows, stride, t, 0, to.features, tokens_of(t.index, to.tokens)));
  }
};

template <class E, class T>
  requires std::is_same_v<E, std::remove_const_t<T>>
TESSERA_COLD void lower_to(plan& p, panels_to<E> const& to, expr::by_value<token_rows<T>> const& leaf) {
  token_rows<T> const& rows = leaf.tensor();
  step_draft s("rows to panels", cut::panels);
  s.divides = division::never;
  s.tiles = to.panels();
  s.writes(to.at);
  const operand from = s.reads(rows_by_panel(rows));
  p.add(s, from_rows_body<E>{to, from, rows.stride()});
}

/// A panel_body, which computes panels a piece at a time, and brings each into the rows.
template <class E, class Body> struct rows_body {
  Body of;
  operand rows;
  std::int64_t stride, tokens;
  int pieces;

  tile piece_of(tile const& t, int piece) const {
    tile part = t;
    part.part = t.part * pieces + piece;
    part.parts = t.parts * pieces;
    return part;
  }
  void compute(tile const& t) const noexcept {
    E* const to = t.address<E>(rows);
    for (int i = 0; i < pieces; ++i) {
      const tile now = piece_of(t, i);
      const range f = of.features_of(now);
      if (f.size() <= 0) continue;
      // Where the panel would begin whose feature f.first stands in the piece's memory.
      E* const panel = t.address<E>(of.destination().at) - place_in_panel<E>(f.first, 0);
      of.compute_at(now, panel);
      kernels::row_transposition<simd::native, E>::to_rows(
          panel, to, stride, f.first, f.last, tokens_of(t.index, tokens), kernels::lines_go::to_caches);
    }
  }
  void describe(tile const& t, task_description& d) const {
    for (int i = 0; i < pieces; ++i) {
      const tile now = piece_of(t, i);
      const range f = of.features_of(now);
      task_description inner;
      of.describe(now, inner);
      for (touched_bytes const& bytes : inner.reads) read_once(d, bytes);
      d.multiplies += inner.multiplies;
      d.operations += inner.operations;
      d.products.insert(d.products.end(), inner.products.begin(), inner.products.end());
      d.write(part_of_rows<E>(rows, stride, t, f.first, f.last, tokens_of(t.index, tokens)));
    }
  }
};

/// The destination of a step over panels that brings its results into rows.
template <element E> struct rows_to {
  static constexpr std::int64_t piece_features = (1 << 18) / (panel_tokens * std::int64_t(sizeof(E)));

  operand at;
  std::int64_t features, tokens, stride;
  operand piece = {};  // in the worker's memory
  int pieces = 1;

  int panels() const { return int(ceil_div<std::int64_t>(tokens, panel_tokens)); }
  panels_to<E> computed_at() const { return {piece, features, tokens}; }
  void cut(plan& p, int most, function_ref<range(int, int)> features_of) {
    pieces = int(std::clamp<std::int64_t>(features / piece_features, 1, std::max(1, most)));
    int widest = 0;
    for (int i = 0; i < pieces; ++i) widest = std::max(widest, features_of(i, pieces).size());
    piece = p.worker_memory(std::size_t(round_up(widest, granule)) * panel_tokens * sizeof(E));
  }
  template <class Body> rows_body<E, Body> finished(Body const& body) const {
    return {body, at, stride, tokens, pieces};
  }
};

/// rows = panel
template <class E> struct to_rows_body {
  operand rows, from;
  std::int64_t features, tokens, stride;
  kernels::lines_go go = lines_of<E>(rows, features, tokens);

  void compute(tile const& t) const noexcept {
    kernels::row_transposition<simd::native, E>::to_rows(t.address<E const>(from), t.address<E>(rows), stride,
                                                         0, features, tokens_of(t.index, tokens), go);
  }
  void describe(tile const& t, task_description& d) const {
    const int live = tokens_of(t.index, tokens);
    d.read(part_of_panel<E>(from, t.index, 0, features, live));
    d.write(part_of_rows<E>(rows, stride, t, 0, features, live));
  }
};

template <class T, class Value> void lower(plan& p, expr::statement<token_rows<T>, Value, false> const& s) {
  token_rows<T> const& y = s.destination();
  if constexpr (expr::leaf<Value>)
    if constexpr (in_panels<typename Value::tensor_type> && Value::laid_over == domain::panels &&
                  std::is_same_v<T, typename Value::value_type>) {
      step_draft copy("panels to rows", cut::panels);
      copy.divides = division::never;
      copy.tiles = int(ceil_div<std::int64_t>(y.tokens(), panel_tokens));
      const operand to = copy.writes(rows_by_panel(y)), from = copy.reads(by_panel(s.value.tensor()));
      return p.add(copy, to_rows_body<T>{to, from, y.features(), y.tokens(), y.stride()});
    }
  const rows_to<T> to{rows_by_panel(y), y.features(), y.tokens(), y.stride()};
  if constexpr (has_product<Value> && sizeof(T) > 1)
    add_product_of<T>(p, to, s.value, first_product(s.value));
  else
    add_elementwise<T>(p, to, s.value);
}

}}}  // namespace tessera::TESSERA_ISA::eval
