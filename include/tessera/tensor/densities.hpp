// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// How a density is shared out over several weights: one for all, or after Erdős and Rényi, so that every row
/// and column has about as many stored blocks and small weights are denser.
enum class density_distribution { uniform, erdos_renyi };

struct matrix_shape {
  std::int64_t rows, cols;
};

/// The densities of weights that together store `density` of their elements: of each
///   min(1, ε (rows + cols) ÷ (rows · cols))
/// (Mocanu et al. 2018, equation 3), with ε solved again without the weights that become dense (Evci et al.
/// 2020, §3, where matrices have the same densities by "ERK"). Blocks change nothing. Throws option_error
/// unless density is in (0, 1].
std::vector<double> erdos_renyi_densities(std::span<matrix_shape const> weights, double density);

#ifdef TESSERA_BODY

TESSERA_BODY std::vector<double> erdos_renyi_densities(std::span<matrix_shape const> weights,
                                                       double density) {
  if (!(density > 0 && density <= 1))
    throw option_error(message("[erdos_renyi_densities] density ", density, " is outside (0, 1]"));
  std::vector<double> densities(weights.size(), 0);
  for (bool again = true; again;) {
    again = false;
    double elements = 0, sides = 0;  // to be stored, but for dense weights; of the other weights
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const auto rows = double(weights[i].rows), cols = double(weights[i].cols);
      elements += density * rows * cols - (densities[i] == 1 ? rows * cols : 0);
      sides += densities[i] == 1 ? 0 : rows + cols;
    }
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (densities[i] == 1) continue;
      const auto rows = double(weights[i].rows), cols = double(weights[i].cols);
      densities[i] = elements / sides * (rows + cols) / (rows * cols);
      if (densities[i] >= 1) densities[i] = 1, again = true;
    }
  }
  return densities;
}

#endif

}}  // namespace tessera::TESSERA_ISA
