// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/nm_linear.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/train/sparsity/penalties.hpp>
#include <tessera/train/token_loss.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The sparse-refined term of SR-STE (Zhou et al. 2021, eq. 8), for the layers nn::nm_linear of a model: adds
/// strength · (1 − m) ⊙ w to the gradient of the mean loss, with m the mask of the weights that take part in
/// forward. It keeps absent weights small, so that masks settle. `value` is strength / 2 · Σ w² over absent
/// weights. The default is the paper's, for SGD; AdamW divides the sum of both gradients by its moments.
/// Throws option_error in a step of a model without such layers.
struct sr_ste_penalty : penalty {
  explicit sr_ste_penalty(double by = 2e-4) : penalty("sr_ste_penalty", by) {}

  template <class Training> void accumulated(context& ctx, Training& t, token_loss const& loss) {
    const double factor = strength * detail::in_gradients(t, loss);
    double sum = 0;
    bool found = false;
    nn::for_each_layer(
        t.model,
        [&](auto const& layer, auto& gradients) {
          if constexpr (nn::is_nm_linear<std::remove_cvref_t<decltype(layer)>>) {
            layer.require_refreshed();
            if (nn::is_wanted(gradients.weight))
              sum += add(ctx, layer.weight, layer.visible, factor, gradients.weight);
            found = true;
          }
        },
        t.gradients);
    if (!found)
      throw option_error("[sr_ste_penalty] the model has no nm_linear, whose weights it would pull");
    value = strength / 2 * sum;
  }

 private:
  /// Adds to the gradient of one matrix, and returns the sum of squares of its absent weights.
  template <class Weight, class Visible, class Gradient>
  static double add(context& ctx, Weight const& w, Visible const& visible, double factor,
                    Gradient& gradient) {
    using number = typename Gradient::value_type;
    using block = typename Weight::block;
    std::vector<std::pair<std::int32_t, std::int32_t>> place;  // block row and column, by slot
    place.reserve(static_cast<std::size_t>(w.pattern().blocks()));
    w.pattern().for_each([&](int i, int j, std::int64_t) { place.emplace_back(i, j); });
    return detail::sum_over_blocks(ctx, w.pattern().blocks(), block::elements, [&](std::int64_t slot) {
      const auto [block_row, block_col] = place[static_cast<std::size_t>(slot)];
      const auto weights = w.at_slot(slot);
      const auto its = gradient.at_slot(slot);
      double squares = 0;
      for (int k = 0; k < block::elements; ++k) {
        const std::int64_t i = std::int64_t{block_row} * block::rows + k / block::cols,
                           j = std::int64_t{block_col} * block::cols + k % block::cols;
        if (i >= w.rows() || j >= w.cols() || visible.find(i, j) >= 0) continue;
        const auto weight = static_cast<double>(weights[static_cast<std::size_t>(k)]);
        squares += weight * weight;
        its[static_cast<std::size_t>(k)] += static_cast<number>(factor * weight);
      }
      return squares;
    });
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
