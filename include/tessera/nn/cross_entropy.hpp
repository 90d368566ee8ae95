// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/statements/embedding.hpp>
#include <tessera/statements/run.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// The target of a token that has none.
inline constexpr std::int32_t ignored = -1;

/// The positions of a batch that have a target. Everything between the last layer and the loss is computed at
/// these positions alone, so other tokens never meet the vocabulary.
class counted_tokens {
 public:
  void choose(std::span<std::int32_t const> targets) {
    positions_.clear();
    targets_.clear();
    positions_.reserve(targets.size());
    targets_.reserve(targets.size());
    for (std::size_t t = 0; t < targets.size(); ++t)
      if (targets[t] != ignored) {
        positions_.push_back(std::int32_t(t));
        targets_.push_back(targets[t]);
      }
    all_ = positions_.size() == targets.size();
  }
  /// All tokens count: nothing needs to be gathered.
  bool all() const { return all_; }
  std::int64_t count() const { return std::int64_t(positions_.size()); }
  std::span<std::int32_t const> positions() const { return positions_; }
  std::span<std::int32_t const> targets() const { return targets_; }

  /// x itself if all tokens count, else `room`, filled with the tokens that count.
  template <element T>
  panel_matrix<T> const& pick(panel_matrix<T> const& x, panel_matrix<T>& room, pass<T> const& p) const {
    if (all_) return x;
    fit(room, x.features(), count());
    run(p.ctx, gather_tokens(room, x, positions()));
    return room;
  }

 private:
  std::vector<std::int32_t> positions_, targets_;
  bool all_ = true;
};

/// The mean of -log softmax(logits)[target] over tokens.
///   logits, dlogits (classes, tokens)   targets (tokens), 0 … classes - 1
template <element T> struct cross_entropy {
  struct saved {
    token_vector<accumulator_t<T>> target, picked, largest, sum;
    bool has_gradient = false;  // forward has computed dlogits
    static void parts(auto& each, auto&... of) {
      each("target", of.target...), each("picked", of.picked...);
      each("largest", of.largest...), each("sum", of.sum...);
    }
  };

  /// Includes the logits, whose memory later holds their gradient.
  static model_size size(std::int64_t classes) {
    return model_size::of<T>().keeps(panel_matrix<T>(classes, 0)).keeps(saved());
  }

  /// Returns the sum over these tokens divided by `count`, the number of tokens here or in all micro-batches
  /// of a step. Subtracts the largest logit first, so that exp cannot overflow.
  ///   dlogits   output: the gradient by the logits, (softmax - one-hot) loss_scale / count. Null in an
  ///             evaluation. May be &logits if these are not read again, which saves a panel_matrix.
  double forward(panel_matrix<T> const& logits, std::span<std::int32_t const> targets, double count,
                 panel_matrix<T>* dlogits, saved& s, pass<T> const& p) const {
    const std::int64_t tokens = logits.tokens();
    if (std::int64_t(targets.size()) != tokens)
      throw shape_error(message("[cross_entropy] ", targets.size(), " targets for ", tokens, " tokens"));
    eval::require_indices("cross_entropy", "classes", targets, logits.features(),
                          "; models leave out targets that are nn::ignored, -1");
    s.has_gradient = dlogits != nullptr;
    if (tokens == 0) return 0;
    if (!(count > 0))
      throw option_error(message("[cross_entropy] a mean over ", count, " tokens: there must be some"));
    fit(s, {}, tokens);
    for (std::int64_t t = 0; t < tokens; ++t) s.target[t] = accumulator_t<T>(targets[std::size_t(t)]);

    const auto scores = named<"logits">(logits);
    const auto one_hot = apply<ops::equal>(feature_number(), s.target);
    const auto shifted = apply<ops::exponential_of_negative>(logits - s.largest);
    const double slope = p.loss_scale / count;
    const auto scale = local(slope / s.sum);
    // In one run, so that a panel stays in the cache.
    run(p.ctx,
        in_one_pass(s.picked = sum_features(where(one_hot, scores, 0.0)), s.largest = max_features(scores)),
        s.sum = sum_features(shifted),
        when(dlogits, [&] { return *dlogits = shifted * scale - one_hot * slope; }));
    return total(p.ctx, log(s.sum) + s.largest - s.picked) / count;
  }
  /// Throws error if the last forward computed no gradient, as in an evaluation.
  static void require_gradient(saved const& s) {
    if (!s.has_gradient)
      throw error(
          "[cross_entropy] backward without the gradient of a loss: it follows a forward whose pass has "
          "purpose::training");
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
