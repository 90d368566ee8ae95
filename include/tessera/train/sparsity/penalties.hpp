// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/top_kast.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/vectors.hpp>
#include <tessera/train/step_hook.hpp>
#include <tessera/train/token_loss.hpp>

// Terms of the loss that drive weights, or whole blocks of them, to zero: hooks of the training step. Each
// adds the gradient of strength · penalty to the mean gradient of a step, before it is measured and clipped.
// Hooks that sum gradients over processes come before them.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The base of these hooks.
struct penalty : step_hook {
  double strength;
  double value = 0;  // of the last step, a part of the mean loss that step_report does not contain

  /// Throws option_error, which begins with `name`, for a strength that is negative or no number.
  TESSERA_COLD penalty(const char* name, double by) : strength(by) {
    if (!(by >= 0 && std::isfinite(by)))
      throw option_error(message("[", name, "] strength is ", by, ": it must be a number, at least 0"));
  }
};

namespace detail {

/// Calls visit(matrix, gradient) for the weights of a training that are not frozen and have a gradient.
template <class Training, class Visit> void for_each_trained_weight(Training& t, Visit&& visit) {
  const nn::parameter_list model(t.model);
  nn::mutable_parameter_list gradients(t.gradients);
  nn::require_alike("penalty", model, gradients);
  for (std::size_t i = 0; i < model.size(); ++i)
    if (model[i].is_weight() && !t.groups.of_parameter(i).is_frozen() && nn::is_wanted(gradients[i].tensor))
      visit(model[i].tensor, gradients[i].tensor);
}

/// The factor of a term of the mean loss in gradients that are sums over tokens, times the loss scale.
template <class Training> double in_gradients(Training const& t, token_loss const& loss) {
  return static_cast<double>(loss.tokens) * t.scaling.scale;
}

/// Calls add(slot) for all blocks of a matrix, and returns the sum of its results, in an order that does not
/// depend on threads.
///   elements   of a block
template <class Add> double sum_over_blocks(context& ctx, std::int64_t blocks, int elements, Add&& add) {
  const std::int64_t together = std::max<std::int64_t>(1, 8192 / elements);
  std::vector<double> sums(static_cast<std::size_t>((blocks + together - 1) / together));
  ctx.run(static_cast<int>(sums.size()), [&](int part, std::byte*) {
    const std::int64_t first = part * together, last = std::min(blocks, first + together);
    double sum = 0;
    for (std::int64_t slot = first; slot < last; ++slot) sum += add(slot);
    sums[static_cast<std::size_t>(part)] = sum;
  });
  double all = 0;
  for (const double sum : sums) all += sum;
  return all;
}

}  // namespace detail

/// L1 (Tibshirani 1996, the lasso): strength · Σ |w|, over the stored elements of all weights; embeddings,
/// heads and vectors are left out, frozen weights too. The gradient at zero is zero.
struct l1_penalty : penalty {
  explicit l1_penalty(double by) : penalty("l1_penalty", by) {}

  template <class Training> void accumulated(context& ctx, Training& t, token_loss const& loss) {
    const double factor = strength * detail::in_gradients(t, loss);
    double sum = 0;
    detail::for_each_trained_weight(t, [&](any_tensor const& weight, any_tensor& of_weight) {
      visit_values(weight, [&]<class T>(feature_vector<T> const& w) {
        using number = accumulator_t<T>;
        auto gradient = feature_vector<number>::of_values(of_weight.data<number>(), of_weight.size());
        sum += nn::total(ctx, abs(stored_values(w)), weight);
        run(ctx, gradient = stored_values(gradient) + derivative<ops::absolute>(stored_values(w)) * factor);
      });
    });
    value = strength * sum;
  }
};

/// Group lasso (Yuan, Lin 2006) over blocks: strength · Σ √elements · ‖block‖₂, over the stored blocks of all
/// weights as l1_penalty takes them. It draws whole blocks to zero, so that pruning finds them; of blocks of
/// one element it is L1. The gradient of a block of zeros is zero.
struct group_lasso : penalty {
  explicit group_lasso(double by) : penalty("group_lasso", by) {}

  template <class Training> void accumulated(context& ctx, Training& t, token_loss const& loss) {
    const double factor = strength * detail::in_gradients(t, loss);
    double sum = 0;
    detail::for_each_trained_weight(t, [&](any_tensor const& weight, any_tensor& of_weight) {
      const int elements = weight.block_elements();
      const double weight_of_block = std::sqrt(elements);
      visit_values(weight, [&]<class T>(feature_vector<T> const& w) {
        using number = accumulator_t<T>;
        number* const gradient = of_weight.data<number>();
        sum += weight_of_block *
               detail::sum_over_blocks(
                   ctx, weight.pattern().blocks(), elements, [&](std::int64_t slot) -> double {
                     T const* const block = w.data() + slot * elements;
                     double squares = 0;
                     for (int k = 0; k < elements; ++k) squares += double(block[k]) * double(block[k]);
                     if (squares == 0) return 0;
                     const double norm = std::sqrt(squares), by = factor * weight_of_block / norm;
                     for (int k = 0; k < elements; ++k)
                       gradient[slot * elements + k] += number(by * double(block[k]));
                     return norm;
                   });
      });
    });
    value = strength * sum;
  }
};

/// The exploration penalty of Top-KAST (Jayakumar et al. 2020, §2.3), for the layers nn::top_kast of a model:
///   strength · (Σ w² over A + Σ w² ÷ D over B \ A)
/// with D the forward density. Blocks that take no part in forward must grow against a stronger pull to come
/// into A, and blocks of A that lose their use leave it. It takes the place of the optimizer's weight decay.
struct exploration_penalty : penalty {
  explicit exploration_penalty(double by) : penalty("exploration_penalty", by) {}

  template <class Training> void accumulated(context& ctx, Training& t, token_loss const& loss) {
    const double factor = 2 * strength * detail::in_gradients(t, loss);
    double sum = 0;
    nn::for_each_layer(
        t.model,
        [&](auto& layer, auto& gradients) {
          if constexpr (nn::is_top_kast<std::remove_const_t<std::remove_reference_t<decltype(layer)>>>)
            nn::for_each_parameter(
                layer.stored,
                [&](nn::parameter_name const& name, auto const& w, auto const& visible, auto& gradient) {
                  if constexpr (nn::is_matrix<decltype(w)>)
                    if (name.role() == nn::parameter_role::weight && nn::is_wanted(gradient))
                      sum += add(ctx, w, visible.pattern(), 1 / layer.density, factor, gradient);
                },
                layer.visible, gradients.stored);
        },
        t.gradients);
    value = strength * sum;
  }

 private:
  /// Adds to the gradient of one matrix, and returns its sum of squares; `outside` multiplies blocks that are
  /// not in `visible`.
  template <class Weight, class Gradient>
  static double add(context& ctx, Weight const& w, pattern const& visible, double outside, double factor,
                    Gradient& gradient) {
    using number = typename Gradient::value_type;
    std::vector<double> pull;  // by slot
    pull.reserve(static_cast<std::size_t>(w.pattern().blocks()));
    w.pattern().for_each(
        [&](int i, int j, std::int64_t) { pull.push_back(visible.find(i, j) >= 0 ? 1 : outside); });
    return detail::sum_over_blocks(ctx, w.pattern().blocks(), Weight::block::elements,
                                   [&](std::int64_t slot) {
                                     const auto block = w.at_slot(slot);
                                     const auto its = gradient.at_slot(slot);
                                     const double by = pull[static_cast<std::size_t>(slot)];
                                     double squares = 0;
                                     for (std::size_t k = 0; k < its.size(); ++k) {
                                       squares += double(block[k]) * double(block[k]);
                                       its[k] += number(factor * by * double(block[k]));
                                     }
                                     return by * squares;
                                   });
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
