// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The pattern of one matrix of a model.
struct named_pattern {
  std::string name;  // `block.3.mlp.up.weight`
  pattern stored;

  /// Blocks of the grid, stored or absent.
  std::int64_t all() const { return std::int64_t{stored.block_rows()} * stored.block_cols(); }
  std::int64_t absent() const { return all() - stored.blocks(); }
};

/// The patterns of a model at one moment, in the order of its parameters. Patterns are shared, so that
/// keeping some of an earlier step costs their indexes at most.
using model_patterns = std::vector<named_pattern>;

/// The patterns of all sparse weights of a model or, with `dense_too`, of all that may be pruned.
model_patterns patterns_of(nn::parameter_list const& model, bool dense_too = false);

namespace detail {

/// Throws shape_error unless both are of one model.
void check_same_model(const char* operation, model_patterns const& a, model_patterns const& b);

}  // namespace detail

/// The mask distance of You et al. 2020 ("Drawing early-bird tickets"): the share of the blocks of the grid
/// that one pattern stores and the other does not, 0 … 1 (the Hamming distance of the masks, normalised); 0
/// for a grid without blocks. Throws shape_error if the grids differ.
double mask_distance(pattern const& a, pattern const& b);

/// Of a whole model: every block counts once. Throws shape_error unless both are of one model.
double mask_distance(model_patterns const& a, model_patterns const& b);

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY model_patterns patterns_of(nn::parameter_list const& model, bool dense_too) {
  model_patterns all;
  const std::vector<std::string> names = model.names();
  for (const auto [i, number] : evolving_weights(model, dense_too))
    all.push_back({names[i], model[i].tensor.pattern()});
  return all;
}

namespace detail {

TESSERA_COLD TESSERA_BODY void check_same_model(const char* operation, model_patterns const& a,
                                                model_patterns const& b) {
  if (a.size() != b.size())
    throw shape_error(message("[", operation, "] patterns of ", a.size(), " matrices and of ", b.size(),
                              ": they must be of one model"));
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name)
      throw shape_error(message("[", operation, "] pattern ", i, " is of ", a[i].name, " and of ", b[i].name,
                                ": they must be of one model"));
    tessera::detail::check_same_grid(operation, a[i].stored, b[i].stored);
  }
}

/// Blocks that one of two patterns of a grid stores and the other does not.
TESSERA_BODY std::int64_t different_blocks(pattern const& a, pattern const& b) {
  std::int64_t both = 0;
  for (int i = 0; i < a.block_rows(); ++i) {
    const auto x = a.row(i), y = b.row(i);
    for (std::size_t p = 0, q = 0; p < x.size() && q < y.size();) {
      both += x[p] == y[q];
      const bool x_next = x[p] <= y[q], y_next = y[q] <= x[p];
      p += x_next;
      q += y_next;
    }
  }
  return a.blocks() + b.blocks() - 2 * both;
}

}  // namespace detail

TESSERA_BODY double mask_distance(pattern const& a, pattern const& b) {
  tessera::detail::check_same_grid("mask_distance", a, b);
  const double all = static_cast<double>(a.block_rows()) * b.block_cols();
  return all > 0 ? static_cast<double>(detail::different_blocks(a, b)) / all : 0;
}

TESSERA_BODY double mask_distance(model_patterns const& a, model_patterns const& b) {
  detail::check_same_model("mask_distance", a, b);
  std::int64_t different = 0, all = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    different += detail::different_blocks(a[i].stored, b[i].stored);
    all += a[i].all();
  }
  return all > 0 ? static_cast<double>(different) / static_cast<double>(all) : 0;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
