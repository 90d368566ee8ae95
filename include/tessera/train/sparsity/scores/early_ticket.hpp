// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/slimmable.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/sparsity/penalties.hpp>
#include <tessera/train/sparsity/scores/prune.hpp>
#include <tessera/train/sparsity/watching/model_patterns.hpp>
#include <tessera/train/step_hook.hpp>
#include <tessera/train/token_loss.hpp>

// Early-bird tickets: which blocks are weak is known long before the end of training. The mask that pruning
// would leave is drawn after each epoch; when it hardly changes any more, the model is pruned, and only the
// ticket is trained to the end.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Ends the search for a ticket when the last `window` mask distances between consecutive observations are
/// all below `distance` (You et al. 2020, "Drawing early-bird tickets", §3.2; their numbers are the
/// defaults).
class early_ticket {
 public:
  /// Throws option_error unless distance is in (0, 1] and window at least 1.
  explicit early_ticket(double distance = 0.1, int window = 5) : distance_(distance), window_(window) {
    if (!(distance > 0 && distance <= 1) || window < 1)
      throw option_error(message("[early_ticket] distance is ", distance, " and window ", window,
                                 ": distance must be in (0, 1], and window at least 1"));
  }

  /// Takes the mask after an epoch, and says whether the search ends. Throws shape_error for the mask of
  /// another model than before.
  bool observe(model_patterns left) {
    if (!last_.empty()) distances_.push_back(mask_distance(last_, left));
    last_ = std::move(left);
    return is_found();
  }
  /// The mask that pruning a model by the magnitude of blocks would leave: as `prune` has it.
  template <class Model>
  bool observe(Model const& model, double density, pruning_scope scope = pruning_scope::whole_model) {
    Model pruned = model;
    prune(pruned, density, scope);
    return observe(patterns_of(pruned, true));
  }

  bool is_found() const {
    return std::ssize(distances_) >= window_ &&
           std::all_of(distances_.end() - window_, distances_.end(), [&](double d) { return d < distance_; });
  }
  /// The last mask, and the distance of each from the one before.
  model_patterns const& ticket() const { return last_; }
  std::vector<double> const& distances() const { return distances_; }

 private:
  double distance_;
  int window_;
  model_patterns last_;
  std::vector<double> distances_;
};

namespace detail {
/// Calls visit(layer, layer of each other…) for the layers of a model with coefficients of their units.
template <bool Mlps = true, bool Attentions = true, class Model, class Visit, class... Others>
void for_each_slimmable(Model& model, Visit&& visit, Others&... others) {
  nn::for_each_layer(
      model,
      [&](auto& each, auto&... belonging) {
        using layer_type = std::remove_cvref_t<decltype(each)>;
        if constexpr ((Mlps && nn::is_slimmable_mlp<layer_type>) ||
                      (Attentions && nn::is_slimmable_attention<layer_type>))
          visit(each, belonging...);
      },
      others...);
}
}  // namespace detail

/// Draws the coefficients of nn::slimmable_mlp and nn::slimmable_attention to zero: strength · Σ |c| (Liu et
/// al. 2017, equation 1; EarlyBERT takes a strength of 1e-4). Frozen ones stay, but count in the value.
struct slimming_penalty : penalty {
  explicit slimming_penalty(double by) : penalty("slimming_penalty", by) {}

  template <class Training> void accumulated(context&, Training& t, token_loss const& loss) {
    const double factor = strength * detail::in_gradients(t, loss);
    double sum = 0;
    detail::for_each_slimmable(
        t.model,
        [&](auto const& layer, auto& gradients) {
          for (std::int64_t k = 0; k < layer.coefficients.size(); ++k) {
            const double c = double(layer.coefficients[k]);
            sum += std::abs(c);
            if (!nn::is_wanted(gradients.coefficients)) continue;
            auto& gradient = gradients.coefficients[k];
            gradient += std::remove_cvref_t<decltype(gradient)>(factor * double((c > 0) - (c < 0)));
          }
        },
        t.gradients);
    value = strength * sum;
  }
};

namespace detail {
/// The mask of units without the `weak` ones.
inline named_pattern mask_of_units(std::string name, std::vector<char> const& weak) {
  std::vector<char> kept;
  for (const char each : weak) kept.push_back(!each);
  return {std::move(name), pattern_from_mask(1, static_cast<int>(kept.size()), kept)};
}
template <class Coefficients>
std::vector<double> magnitudes(char const* operation, Coefficients const& coefficients) {
  std::vector<double> all;
  for (const auto c : coefficients) {
    if (!std::isfinite(double(c)))
      throw error(message("[", operation, "] coefficient ", all.size(), " of a layer is ", double(c),
                          ": coefficients must be finite"));
    all.push_back(std::abs(double(c)));
  }
  return all;
}
inline void require_share(char const* operation, double share) {
  if (!(share >= 0 && share < 1))
    throw option_error(message("[", operation, "] the share to prune is ", share, ": it must be in [0, 1)"));
}
}  // namespace detail

/// The neurons that are left of each nn::slimmable_mlp of a model, in its order, when the neurons of least
/// |c|, `share` of all, are pruned: patterns (1, hidden) for early_ticket and nn::slimmed. Each layer keeps
/// at least one.
///   Throws option_error unless share is in [0, 1) and the model has such layers; error if a coefficient is
///   not finite.
template <class Model> model_patterns neuron_masks(Model const& model, double share) {
  detail::require_share("neuron_masks", share);
  std::vector<double> scores;
  std::vector<std::int64_t> sizes;
  std::int64_t must_stay = 0;
  detail::for_each_slimmable<true, false>(model, [&](auto const& mlp) {
    std::vector<double> its = detail::magnitudes("neuron_masks", mlp.coefficients);
    sizes.push_back(std::ssize(its));
    if (its.empty()) return;
    *std::max_element(its.begin(), its.end()) = std::numeric_limits<double>::infinity();
    ++must_stay;
    scores.insert(scores.end(), its.begin(), its.end());
  });
  if (scores.empty()) throw option_error("[neuron_masks] the model has no nn::slimmable_mlp with neurons");
  const std::int64_t most = std::ssize(scores) - must_stay;
  const auto weak = weakest(std::span<double const>(scores),
                            std::min<std::int64_t>(std::llround(share * double(std::ssize(scores))), most));
  model_patterns masks;
  auto next = weak.begin();
  for (const std::int64_t size : sizes) {
    masks.push_back(detail::mask_of_units(message("mlp.", masks.size(), ".neurons"), {next, next + size}));
    next += size;
  }
  return masks;
}

/// The heads that are left of each nn::slimmable_attention of a model, in its order, when it loses `share` of
/// its own heads, rounded: patterns (1, heads). Layer by layer, as in EarlyBERT, which prunes a third; each
/// keeps at least one.
///   Throws option_error unless share is in [0, 1) and the model has such layers; error if a coefficient is
///   not finite.
template <class Model> model_patterns head_masks(Model const& model, double share) {
  detail::require_share("head_masks", share);
  model_patterns masks;
  detail::for_each_slimmable<false, true>(model, [&](auto const& attention) {
    const std::vector<double> scores = detail::magnitudes("head_masks", attention.coefficients);
    const std::int64_t heads = std::ssize(scores), most = std::max<std::int64_t>(0, heads - 1);
    const auto weak = weakest(std::span<double const>(scores),
                              std::min<std::int64_t>(std::llround(share * double(heads)), most));
    masks.push_back(detail::mask_of_units(message("attention.", masks.size(), ".heads"), weak));
  });
  if (masks.empty()) throw option_error("[head_masks] the model has no nn::slimmable_attention");
  return masks;
}

}}}  // namespace tessera::TESSERA_ISA::train
