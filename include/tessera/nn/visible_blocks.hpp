// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter.hpp>
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

/// The pattern of the greatest stored blocks of a matrix, `density` · (blocks of the grid) of them: the
/// stored pattern without the least ones. Throws option_error if fewer are stored.
///   least_of(count)   marks by slot: 1 for the `count` least blocks
template <class Matrix, class Least>
pattern greatest_blocks(const char* layer, parameter_name const& name, Matrix const& of, double density,
                        Least&& least_of) {
  pattern const& stored = of.pattern();
  const std::int64_t grid = std::int64_t{stored.block_rows()} * stored.block_cols(),
                     count = tessera::detail::blocks_at(layer, density, grid);
  if (count > stored.blocks())
    throw option_error(message("[", layer, "] the forward density ", density, " is ", count, " of ", grid,
                               " blocks of ", name.text(), ", but the update pattern stores only ",
                               stored.blocks(), ": the forward density may be at most ",
                               double(stored.blocks()) / double(grid)));
  return count == stored.blocks() ? stored
                                  : tessera::detail::without(stored, least_of(stored.blocks() - count));
}

/// Copies the blocks that `to` stores; drops blocks that `from` does not store.
template <class Matrix> void copy_blocks(Matrix const& from, Matrix& to) {
  bool all = true;
  for (int i = 0; i < to.pattern().block_rows(); ++i) {
    const auto columns = from.pattern().row(i);
    const std::int64_t first = from.pattern().first_slot(i);
    std::int64_t slot = to.pattern().first_slot(i);
    auto at = columns.begin();
    for (const std::int32_t j : to.pattern().row(i)) {
      while (at != columns.end() && *at < j) ++at;
      const bool found = at != columns.end() && *at == j;
      if (found) std::ranges::copy(from.at_slot(first + (at - columns.begin())), to.at_slot(slot).begin());
      all = all && found;
      ++slot;
    }
  }
  if (!all) to.set_pattern(to.pattern() & from.pattern());
}

/// Copies a parameter that is visible as it is.
template <class Parameter> void copy_all(Parameter const& from, Parameter& to) {
  if (from.size() == to.size())
    std::copy(from.begin(), from.end(), to.begin());
  else
    to = from;
}

}}}}  // namespace tessera::TESSERA_ISA::nn::detail
