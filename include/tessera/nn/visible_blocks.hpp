// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/following.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/pruning.hpp>

// Layers that train more blocks than they compute with: beside the layer that is trained they keep a visible
// one, of the same type, with the blocks that were chosen. The visible layer computes forward and the
// gradient by the input; its backward is given the gradients of the trained one, so that weight gradients are
// sampled at all trained blocks. The visible layer is a frozen part: checkpoints keep it, with its patterns.

namespace tessera { inline namespace TESSERA_ISA { namespace nn { namespace detail {

/// Whether a parameter is a weight whose blocks are chosen; all other parameters are visible as they are.
template <class Parameter> bool is_chosen(parameter_name const& name) {
  return is_matrix<Parameter> && name.role() == parameter_role::weight;
}

/// Forward of the visible layer. An observer sees the inputs of its weights under the numbers of trained
/// ones.
template <element T, class Layer>
void forward_of_visible(Layer const& visible, Layer const& trained, panel_matrix<T> const& x,
                        destination<T> y, typename Layer::saved& s, pass<T> const& p) {
  if (!p.layer_inputs) return visible.forward(x, y, s, p);
  const parameter_list from(visible), to(trained);
  const auto observer = [&](context& ctx, std::size_t number, panel_matrix<T> const& of) {
    p.layer_inputs(ctx, to[number].tensor.address(), of);
  };
  pass<T> translated = p;
  translated.layer_inputs = {observer, from};
  visible.forward(x, y, s, translated);
}

/// Memory in which a layer chooses blocks, by a number for each. The layer keeps it.
template <class Number> struct choice_room {
  std::vector<Number> numbers;
  weakest_room<Number> least;
};

/// Whether a pattern has the blocks of `stored` that are not marked, by slot.
inline bool is_without(pattern const& some, pattern const& stored, std::vector<char> const& marks) {
  std::size_t slot = 0;
  for (int i = 0; i < stored.block_rows(); ++i) {
    const auto left = some.row(i);
    auto next = left.begin();
    for (const std::int32_t j : stored.row(i))
      if (!marks[slot++] && (next == left.end() || *next++ != j)) return false;
    if (next != left.end()) return false;
  }
  return true;
}

/// Gives `to` the pattern of the `density` · (blocks of the grid) stored blocks of a matrix that have the
/// greatest numbers. Allocates nothing if it has that already. Throws option_error if fewer are stored.
///   number_of(values)   of a block, as numbers_of_blocks has it
template <class Matrix, class Number, class Of>
void choose_blocks(context& ctx, const char* layer, parameter_name const& name, Matrix const& of,
                   double density, choice_room<Number>& room, Of number_of, Matrix& to) {
  pattern const& stored = of.pattern();
  const std::int64_t grid = std::int64_t{stored.block_rows()} * stored.block_cols(),
                     count = tessera::detail::blocks_at(layer, density, grid);
  if (count > stored.blocks())
    throw option_error(message("[", layer, "] the forward density ", density, " is ", count, " of ", grid,
                               " blocks of ", name.text(), ", but the update pattern stores only ",
                               stored.blocks(), ": the forward density may be at most ",
                               double(stored.blocks()) / double(grid)));
  if (count == stored.blocks()) return to.set_pattern(stored);
  room.numbers.resize(static_cast<std::size_t>(stored.blocks()));
  run(ctx, numbers_of_blocks(std::span(room.numbers), of, number_of));
  std::vector<char> const& least =
      weakest(std::span<Number const>(room.numbers), stored.blocks() - count, room.least);
  if (!is_without(to.pattern(), stored, least)) to.set_pattern(tessera::detail::without(stored, least));
}

/// Copies the blocks that `to` stores; drops blocks that `from` does not store.
template <class Matrix> void copy_blocks(context& ctx, Matrix const& from, Matrix& to) {
  if (!stores_all(from.pattern(), to.pattern())) to.set_pattern(to.pattern() & from.pattern());
  run(ctx, copied_blocks(to, from));
}

/// Copies a parameter that is visible as it is.
template <class Parameter> void copy_all(context& ctx, Parameter const& from, Parameter& to) {
  bool alike = from.size() == to.size();
  if constexpr (is_matrix<Parameter>)
    alike = from.rows() == to.rows() && from.cols() == to.cols() && from.pattern() == to.pattern();
  if (alike)
    run(ctx, to = converted(from));
  else
    to = from;
}

}}}}  // namespace tessera::TESSERA_ISA::nn::detail
