// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/step.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/tensor/pattern.hpp>

// Tensors as operands of steps, and the bytes that a tile touches of them.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

class plan;

/// Values of one tile of a statement on stored values.
inline constexpr std::int64_t values_a_tile = 1024;

/// Memory of the user, or a tensor, that each tile may read or write everywhere.
inline operand everything(void const* at, std::size_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(at), 0, bytes, memory::user, footprint::everything};
}
template <class Tensor> operand all_of(Tensor const& tensor) {
  return everything(tensor.data(), tensor.size_bytes());
}
/// A tensor of which a tile touches its own panel; or everything, if the tensor has no tokens.
template <class Tensor> operand by_panel(Tensor const& tensor) {
  using E = typename Tensor::value_type;
  operand o = all_of(tensor);
  if constexpr (Tensor::laid_over == domain::panels || Tensor::laid_over == domain::tokens) {
    o.touches = footprint::own_range;
    if constexpr (Tensor::laid_over == domain::panels)
      o.stride = std::size_t(tensor.panel_stride()) * sizeof(E);
    else
      o.stride = panel_tokens * sizeof(E);
  }
  return o;
}
/// Whether the elements of an activation stand in panels; if not, a step brings them there.
template <class Tensor>
inline constexpr bool in_panels =
    Tensor::laid_over != domain::panels || requires(Tensor const& x) { x.panel(0); };

/// A tensor of which a tile touches its own range of stored values.
template <class Tensor> operand by_values(Tensor const& tensor) {
  operand o = all_of(tensor);
  o.touches = footprint::own_range;
  o.stride = values_a_tile * sizeof(typename Tensor::value_type);
  return o;
}

/// A pattern as kernels see it, row by row, or column by column for the transpose.
inline kernels::block_index index_of(pattern const& p, bool transposed = false) {
  using kernels::block_index;
  const int rows = p.block_rows(), cols = p.block_cols();
  if (p.is_dense())
    return transposed ? block_index::dense(cols, rows, p.rows().data(), p.col_slots().data())
                      : block_index::dense(rows, cols, p.cols().data());
  return transposed
             ? block_index::sparse(cols, rows, p.col_start().data(), p.rows().data(), p.col_slots().data())
             : block_index::sparse(rows, cols, p.row_start().data(), p.cols().data());
}

/// The number of tokens of a panel.
inline int tokens_of(std::int64_t panel, std::int64_t tokens) {
  return int(std::min<std::int64_t>(panel_tokens, tokens - panel * panel_tokens));
}

/// Part `part` of `parts` of the features of a panel, in multiples of 16.
inline range granules_of(std::int64_t features, int part, int parts) {
  const range granules = part_of(int(ceil_div<std::int64_t>(features, granule)), part, parts);
  return {granules.first * granule, int(std::min<std::int64_t>(features, granules.last * granule))};
}

/// Bytes of a panel in the worker's memory; with room for the padding of a part of it, which may end beyond
/// its own.
template <class E> std::size_t panel_bytes(std::int64_t features) {
  return std::size_t(round_up<std::int64_t>(features, granule) + granule) * panel_tokens * sizeof(E);
}

/// Zeroes the padding features of a panel that is no tensor's: padding of tensors is always zero.
template <class T> void clear_padding(operand const& to, std::int64_t features, T* panel, tile const& t) {
  if (to.owner == memory::user || t.part + 1 < t.parts) return;
  const auto written = round_up<std::int64_t>(features, element_traits<T>::features_a_lane);
  for (std::int64_t f = features; f < written; ++f)
    for (int token = 0; token < panel_tokens; ++token) panel[place_in_panel<T>(f, token)] = T(0);
  std::fill(panel + written * panel_tokens, panel + round_up<std::int64_t>(features, granule) * panel_tokens,
            T(0));
}

/// The bytes of features [first, last), extended to whole lanes, and of the first tokens of a panel at
/// address `panel`.
template <class E>
TESSERA_COLD touched_bytes part_of_panel(memory owner, std::uintptr_t panel, std::int64_t first,
                                         std::int64_t last, int tokens) {
  constexpr int group = element_traits<E>::features_a_lane;
  const std::int64_t lanes = ceil_div<std::int64_t>(last, group) - first / group;
  const std::int64_t lane = group * std::int64_t(sizeof(E));
  return {owner, panel + std::uintptr_t(first / group * lane * panel_tokens), tokens * lane, lanes,
          lane * panel_tokens};
}
/// part_of_panel of a panel of an operand.
template <class E>
touched_bytes part_of_panel(operand const& o, std::int64_t panel, std::int64_t first, std::int64_t last,
                            int tokens) {
  return part_of_panel<E>(o.owner, o.at + o.stride * std::size_t(panel), first, last, tokens);
}
/// The bytes of `count` elements from `first` on, in range `position` of an operand.
template <class E>
touched_bytes elements_of(operand const& o, std::int64_t position, std::int64_t first, std::int64_t count) {
  return {o.owner, o.at + o.stride * std::size_t(position) + std::uintptr_t(first) * sizeof(E),
          count * std::int64_t(sizeof(E))};
}
/// Where the tile's part of an operand begins: the address or offset in touched_bytes.
inline std::uintptr_t place_of(operand const& o, tile const& t) {
  return o.at + o.stride * std::size_t(t.index);
}
void read_once(task_description& d, touched_bytes const& bytes);

/// The destination of a step over panels: `features` features, or a number for each token.
template <element E> struct panels_to {
  operand at;
  std::int64_t features, tokens;

  int panels() const { return int(ceil_div<std::int64_t>(tokens, panel_tokens)); }
  E* panel(tile const& t) const { return t.address<E>(at); }
  touched_bytes part(tile const& t, range of) const {
    return part_of_panel<E>(at, t.index, of.first, of.last, tokens_of(t.index, tokens));
  }

  // A body computes where the destination says, and is finished by it: here, in place. Rows of tokens are
  // computed in pieces of a panel.
  panels_to const& computed_at() const { return *this; }
  static void cut(plan&, int, function_ref<range(int, int)>) {}
  template <class Body> Body const& finished(Body const& body) const { return body; }
};
template <element E> struct tokens_to {
  operand at;
  std::int64_t tokens;
  int panels() const { return int(ceil_div<std::int64_t>(tokens, panel_tokens)); }
};

/// A body over panels of its destination, or over parts of their features. It has
///   destination()            a panels_to
///   features_of(tile)        the features of a tile
///   compute_at(tile, panel)  with the tile's panel of the destination at `panel`
///   describe(tile, d)        the reads and the work
template <class T>
concept panel_body =
    requires(T const& body, tile const& t) { body.destination().part(t, body.features_of(t)); };

template <panel_body Body> TESSERA_INLINE void compute_tile(Body const& body, tile const& t) noexcept {
  auto const& to = body.destination();
  auto* const panel = to.panel(t);
  body.compute_at(t, panel);
  clear_padding(to.at, to.features, panel, t);
}
template <panel_body Body>
TESSERA_INLINE void describe_tile(Body const& body, tile const& t, task_description& d) {
  body.describe(t, d);
  d.write(body.destination().part(t, body.features_of(t)));
}

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void read_once(task_description& d, touched_bytes const& bytes) {
  for (touched_bytes const& known : d.reads)
    if (known == bytes) return;
  if (bytes.all() > 0) d.read(bytes);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::eval
