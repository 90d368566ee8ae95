// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/nn/token_cache.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/statements/attention.hpp>
#include <tessera/statements/cached_attention.hpp>
#include <tessera/statements/rotary.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/pattern.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = W₂ softmax(Q Kᵀ / √d) V + b₂ with (Q, K, V) = W₁ x + b₁, head by head (Vaswani et al. 2017, §3.2.2).
///   x, y (features, tokens)   W₁ ((queries + 2 keys) d, features)   W₂ (features, queries d), of heads of d
///   Score   changes the scores before the softmax. One with members lists parts, as a layer does; numbers
///           among them are settings. A learned one has its parameters in the vector `table`, and is its own
///           kind of gradients.
///   Linear   of W₁ and W₂: linear, or another linear_like layer, such as float8_linear
/// A token sees the tokens of its own sequence except padding, and if causal, no later ones; if there are
/// `blocks`, one pattern for each head of queries or one for all, only tokens in these blocks, and if there
/// is a `window`, only tokens at a distance below it (visible_keys). A checkpoint does not hold the blocks,
/// but compares them: to read one of other blocks, set them afterwards. Rotary positions, if any, rotate Q
/// and K. In a pass with a token_cache it sees the tokens there, too.
template <element T, class Block, score_functor Score = plain_scores, class Linear = linear<T, Block>>
struct multi_head_attention {
  static_assert((require_linear_like<Linear, T>(), true));

  Linear qkv, out;
  attention_heads heads = 1;
  mask seen = mask::causal;
  Score score = {};
  rotary_positions<accumulator_t<T>> positions = {};
  std::vector<pattern> blocks = {};
  std::int64_t window = 0;

  struct saved {
    panel_matrix<T> qkv, mixed;  // mixed (features, tokens): the results of all heads
    panel_matrix<accumulator_t<T>> log_sums;
    typename Linear::saved of_qkv, of_out;
    static void parts(auto& each, auto&... of) {
      each("qkv", of.qkv...), each("mixed", of.mixed...), each("log_sums", of.log_sums...);
      each("of_qkv", of.of_qkv...), each("of_out", of.of_out...);
    }
  };
  using gradients = multi_head_attention<accumulator_t<T>, Block, Score, typename Linear::gradients>;

  static void parts(auto& each, auto& first, auto&... others) {
    static_assert(
        std::is_empty_v<Score> || detail::has_parts<Score>,
        "a score functor with members lists them: `static void parts(auto& each, auto& first, auto&...) "
        "{ each.setting(\"slope\", first.slope); }`, so that checkpoints keep and compare them");
    each.stacked("qkv", {first.heads.queries, first.heads.keys, first.heads.keys}, first.qkv, others.qkv...);
    each("out", first.out, others.out...);
    each.setting("heads", first.heads.queries);
    each.setting("key_heads", first.heads.keys);
    each.hyperparameter(first.heads, others.heads...);
    each.setting("seen", first.seen, others.seen...);
    each.setting("score", first.score, others.score...);
    if constexpr (detail::has_parts<Score>) each("score", first.score, others.score...);
    each.setting("rotary_base", first.positions.base());
    if (const rotary_scaling scaling = first.positions.scaling()) {
      each.setting("rotary_scaling", scaling.form);
      each.setting("rotary_factor", scaling.factor);
      each.setting("rotary_long_part", scaling.long_part);
      each.setting("rotary_short_part", scaling.short_part);
      each.setting("rotary_trained", scaling.trained);
    }
    each.hyperparameter(first.positions, others.positions...);
    each.setting("visible_blocks", first.blocks, others.blocks...);
    if (first.window != 0) each.setting("window", first.window, others.window...);  // older files have none
  }
  static model_size size(transformer_config const& of) {
    const std::int64_t features = of.hidden, qkv = of.qkv_features(), head = features / of.heads;
    if (constexpr int shared = element_traits<T>::features_a_lane; head % shared != 0)
      throw option_error(message("[transformer] heads have ", head, " features, of which ", shared,
                                 " share a lane: make hidden ",
                                 of.heads * round_up<std::int64_t>(head, shared)));
    model_size size =
        model_size::of<T>()
            .part(Linear::size(qkv, features, of.density_of(qkv, features), of.qkv_bias()))
            .part(Linear::size(features, features, of.density_of(features, features), of.out_bias()))
            .keeps(saved{{qkv, 0}, {features, 0}, {of.heads, 0}, {}, {}})
            .lends(features)  // the gradients of mixed and qkv
            .lends(qkv);
    size.attention_multiply_adds = detail::product(2, features);
    size.cached_values = detail::product(of.heads_of_keys(), head + round_up<std::int64_t>(head, granule));
    return size;
  }
  /// Zeros on random patterns, by the name of this part in the model.
  static multi_head_attention random(transformer_config const& of, mask seen, std::uint64_t seed,
                                     parameter_name const& name) {
    multi_head_attention made{
        Linear::random(of.qkv_features(), of.hidden, of.density_of(of.qkv_features(), of.hidden),
                       of.qkv_bias(), seed, name.child("qkv")),
        Linear::random(of.hidden, of.hidden, of.density_of(of.hidden, of.hidden), of.out_bias(), seed,
                       name.child("out")),
        {int(of.heads), int(of.heads_of_keys())},
        seen,
        score_of(int(of.heads), seen)};
    if (of.positions == position_coding::rotary)
      made.positions = {int(of.hidden / of.heads), of.context, of.rotary_base, of.scaling};
    made.window = of.window;
    return made;
  }
  std::int64_t outputs(std::int64_t) const { return out.outputs(out.inputs()); }

  saved unfilled() const {
    return {{qkv.outputs(qkv.inputs()), 0},
            {out.inputs(), 0},
            {heads.queries, 0},
            qkv.unfilled(),
            out.unfilled()};
  }
  template <class X> auto prepare(X const& x, saved& s, pass<T> const& p) const {
    return statements(prepare_heads(x, s, p), out.prepare(s.mixed, s.of_out, p));
  }
  /// The results of the heads, s.mixed.
  template <class X> auto prepare_heads(X const& x, saved& s, pass<T> const& p) const {
    return statements(qkv.prepare(x, s.of_qkv, p), s.qkv = qkv.value(x, s.of_qkv),
                      when(bool(positions), [&] { return rotary(s.qkv, p.sequences, heads, positions); }),
                      attend(s, p));
  }
  template <class X> auto value(X const&, saved const& s) const { return out.value(s.mixed, s.of_out); }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
    forward_by_value(*this, x, y, s, p);
  }
  void show_inputs(panel_matrix<T> const& x, saved const& s, pass<T> const& p) const {
    nn::show_inputs(qkv, x, s.of_qkv, p);
    nn::show_inputs(out, s.mixed, s.of_out, p);
  }

  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;
  /// Whether gradients are wanted of parameters that `mixed` follows from, and the backward that computes
  /// them and dx, from the gradient of `mixed` on.
  static bool wants_heads(gradients const& g) {
    if constexpr (learned_score_functor<Score>)
      if (is_wanted(g.score.table)) return true;
    return any_wanted(g.qkv);
  }
  void backward_of_heads(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dmixed,
                         destination<T> dx, gradients& g, pass<T> const& p) const;

 private:
  visible_keys visible() const { return {seen, blocks, window}; }
  /// s.mixed of s.qkv: of sequences that begin with this pass, or go on with the tokens of its cache.
  auto attend(saved& s, pass<T> const& p) const {
    key_value_cache<T>* const cache =
        p.cache ? &p.cache->next(heads.keys, int(s.qkv.features() / heads.all()), window) : nullptr;
    const std::span<std::int32_t const> slot_list =
        p.cache ? p.cache->slot_list() : std::span<std::int32_t const>();
    const bool begins = !p.cache || p.cache->begins();
    return statements(
        when(begins,
             [&] { return attention(s.qkv, p.sequences, heads, visible(), s.mixed, s.log_sums, score); }),
        when(cache && begins,
             [&] { return cache_keys(s.qkv, p.sequences, heads, visible(), *cache, slot_list); }),
        when(!begins, [&] {
          return cached_attention(s.qkv, p.sequences, heads, visible(), *cache, slot_list, s.mixed, score);
        }));
  }
  static Score score_of(int heads, mask seen) {
    if constexpr (std::is_aggregate_v<Score>)  // heads would be taken for its first member
      return {};
    else if constexpr (std::is_constructible_v<Score, int, mask>)
      return Score(heads, seen);
    else if constexpr (std::is_constructible_v<Score, int>)
      return Score(heads);
    else
      return {};
  }
};

template <element T, class Block, score_functor Score, class Linear>
void multi_head_attention<T, Block, Score, Linear>::backward(panel_matrix<T> const& x, saved const& s,
                                                             panel_matrix<T> const& dy, destination<T> dx,
                                                             gradients& g, pass<T> const& p) const {
  require_forward("multi_head_attention", s.mixed.tokens(), dy.tokens());
  const auto dmixed = p.borrow(out.inputs());
  const bool goes_on = dx || wants_heads(g);
  out.backward(s.mixed, s.of_out, dy, destination<T>(*dmixed).only_if(goes_on), g.out, p);
  if (goes_on) backward_of_heads(x, s, *dmixed, dx, g, p);
}

template <element T, class Block, score_functor Score, class Linear>
void multi_head_attention<T, Block, Score, Linear>::backward_of_heads(panel_matrix<T> const& x,
                                                                      saved const& s,
                                                                      panel_matrix<T> const& dmixed,
                                                                      destination<T> dx, gradients& g,
                                                                      pass<T> const& p) const {
  const auto dqkv = p.borrow(s.qkv.features());
  feature_vector<accumulator_t<T>>* dscore = nullptr;
  if constexpr (learned_score_functor<Score>)
    if (is_wanted(g.score.table)) dscore = &g.score.table;
  run(p.ctx,
      attention_backward(s.qkv, s.mixed, s.log_sums, dmixed, p.sequences, heads, visible(), *dqkv, score,
                         dscore),
      when(bool(positions), [&] { return rotary_backward(*dqkv, p.sequences, heads, positions); }));
  qkv.backward(x, s.of_qkv, *dqkv, dx, g.qkv, p);
}

}}}  // namespace tessera::TESSERA_ISA::nn
