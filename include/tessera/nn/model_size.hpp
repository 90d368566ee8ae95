// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/tensor/pattern_algebra.hpp>

// What a model will take, from its configuration alone: nothing is allocated.

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

namespace detail {
[[noreturn]] inline void throw_overflow() {
  throw option_error("[transformer] the sizes multiply to 2^63 or more: no machine holds such a model");
}
inline std::int64_t sum(std::int64_t a, std::int64_t b) {
  if (__builtin_add_overflow(a, b, &a)) throw_overflow();
  return a;
}
template <class... Factor> std::int64_t product(std::int64_t first, Factor... factor) {
  if ((__builtin_mul_overflow(first, std::int64_t(factor), &first) || ...)) throw_overflow();
  return first;
}
}  // namespace detail

/// Sizes of a model. A multiply-add is two FLOPs; those of norms, activations and the like are not counted.
struct model_size {
  std::int64_t parameters = 0;               // were it dense
  std::int64_t live = 0;                     // stored, without what overhangs the matrices' edges
  std::int64_t stored = 0;                   // with it: padding of blocks and vectors
  std::int64_t multiply_adds = 0;            // of all weights, for each token of a forward pass
  std::int64_t attention_multiply_adds = 0;  // for each pair of query and key of a forward pass
  std::int64_t saved_values = 0;             // for each token of a batch, kept from forward for backward
  std::int64_t room_values = 0;              // for each token of a batch, lent during backward, at most
  std::int64_t element_bytes = 4;            // of a weight or an activation
  std::int64_t accumulator_bytes = 4;        // of a gradient, a moment or a master

  /// A training step takes three products for each weight: W x, Wᵀ dy and dy xᵀ.
  std::int64_t training_multiply_adds() const { return detail::product(3, multiply_adds); }
  /// Scores and mixtures of one forward pass over a sequence, where each query sees all keys or, if causal,
  /// itself and those before.
  std::int64_t attention_multiply_adds_of(std::int64_t tokens, mask seen) const {
    const std::int64_t pairs =
        seen == mask::causal ? detail::product(tokens, tokens + 1) / 2 : detail::product(tokens, tokens);
    return detail::product(pairs, attention_multiply_adds);
  }

  /// Values alone: the index arrays of patterns are not counted.
  std::int64_t weight_bytes() const { return detail::product(stored, element_bytes); }
  std::int64_t gradient_bytes() const { return detail::product(stored, accumulator_bytes); }
  /// What AdamW keeps: two moments, and the masters of narrow weights.
  std::int64_t moment_bytes() const {
    return detail::product(element_bytes < accumulator_bytes ? 3 : 2, gradient_bytes());
  }
  /// Of a batch of so many tokens, all with targets.
  std::int64_t saved_bytes(std::int64_t tokens) const { return bytes(saved_values, tokens); }
  std::int64_t room_bytes(std::int64_t tokens) const { return bytes(room_values, tokens); }

 private:
  std::int64_t bytes(std::int64_t values, std::int64_t tokens) const {
    return detail::product(values, round_up<std::int64_t>(tokens, panel_tokens), element_bytes);
  }
};

template <class Block> constexpr block_size block_size_of() { return {Block::rows, Block::cols}; }

/// Adds up the matrices, vectors and activations of a model.
class size_counter {
 public:
  size_counter(block_size block, std::size_t element_bytes, std::size_t accumulator_bytes) : block_(block) {
    size_.element_bytes = std::int64_t(element_bytes);
    size_.accumulator_bytes = std::int64_t(accumulator_bytes);
  }

  /// `copies` matrices with as many blocks each as random_pattern gives them.
  ///   uses   multiply-adds of each value for each token
  /// Where a sparse one overhangs its blocks' edges, its live count depends on the pattern: this is the mean.
  void matrix(std::int64_t rows, std::int64_t cols, double density, std::int64_t copies, block_size block,
              std::int64_t uses = 1) {
    const std::int64_t blocks =
        detail::product(ceil_div<std::int64_t>(rows, block.rows), ceil_div<std::int64_t>(cols, block.cols));
    const std::int64_t present = stored_blocks(blocks, density), all = detail::product(rows, cols);
    const std::int64_t stored = detail::product(present, block.rows, block.cols, copies);
    const double share = static_cast<double>(present) / static_cast<double>(blocks);
    add(size_.parameters, detail::product(all, copies));
    add(size_.live,
        detail::product(present == blocks ? all : std::llround(share * static_cast<double>(all)), copies));
    add(size_.stored, stored);
    add(size_.multiply_adds, detail::product(stored, uses));
  }
  void vector(std::int64_t features, std::int64_t copies = 1) {
    add(size_.parameters, detail::product(features, copies));
    add(size_.live, detail::product(features, copies));
    add(size_.stored, detail::product(round_up<std::int64_t>(features, granule), copies));
  }
  void linear(std::int64_t out, std::int64_t in, transformer_config const& config, std::int64_t copies) {
    matrix(out, in, config.density, copies, block_);
    if (config.bias == bias_term::present) vector(out, copies);
  }
  void norm(std::int64_t features, bias_term bias, std::int64_t copies = 1) {
    vector(features, copies);
    if (bias == bias_term::present) vector(features, copies);
    keeps_numbers(detail::product(2, copies));
  }
  /// One row for each symbol; `uses` is 1 if it is also the output weight, else 0.
  void table(std::int64_t symbols, std::int64_t features, std::int64_t uses = 0) {
    matrix(symbols, features, 1, 1, {granule, granule}, uses);
  }
  /// Activations, and numbers for each token, that are kept from forward for backward.
  void keeps(std::int64_t features, std::int64_t copies = 1) {
    add(size_.saved_values, detail::product(round_up<std::int64_t>(features, granule), copies));
  }
  void keeps_numbers(std::int64_t copies) { add(size_.saved_values, copies); }
  /// Activations that are lent at the same time during backward.
  void lends(std::int64_t features, std::int64_t copies = 1) {
    add(size_.room_values, detail::product(round_up<std::int64_t>(features, granule), copies));
  }

  /// All blocks of a transformer.
  void blocks(transformer_config const& config, norm_order order) {
    const std::int64_t h = config.hidden, layers = config.layers;
    const std::int64_t inner = detail::product(h, config.feed_forward), qkv = detail::product(3, h);
    norm(h, config.bias, detail::product(2, layers));
    linear(qkv, h, config, layers);
    linear(h, h, config, layers);
    linear(inner, h, config, layers);
    linear(h, inner, config, layers);
    add(size_.attention_multiply_adds, detail::product(2, h, layers));
    keeps(qkv, layers);
    keeps(h, detail::product(order == norm_order::post ? 3 : 2, layers));  // mixed, h, v
    keeps(config.heads, layers);                                           // log_sums
    keeps(inner, layers);                                                  // z
    keeps(h, layers - 1);                                                  // between blocks
    lends(h, 7);      // two of the stack, four of a block, one of attention
    lends(qkv);       // its gradient
    lends(inner, 2);  // f(z) and the gradient of z
  }
  /// Logits and loss.
  void loss(std::int64_t vocabulary) {
    keeps(vocabulary);
    keeps_numbers(4);
  }

  model_size result() const {
    static_cast<void>(size_.moment_bytes());  // refused here if it overflows
    return size_;
  }

 private:
  static std::int64_t stored_blocks(std::int64_t blocks, double density) {
    if (density == 1) return blocks;
    return std::max<std::int64_t>(1, std::llround(density * static_cast<double>(blocks)));
  }
  static void add(std::int64_t& total, std::int64_t more) { total = detail::sum(total, more); }

  block_size block_;
  model_size size_;
};

/// Sizes of a gpt of elements T, and of an encoder. Throw option_error if the configuration makes no sense.
template <element T> model_size gpt_size(transformer_config const& config, block_size block) {
  config.check();
  size_counter count(block, sizeof(T), sizeof(accumulator_t<T>));
  count.table(config.vocabulary, config.hidden, 1);
  count.table(config.context, config.hidden);
  count.blocks(config, norm_order::pre);
  count.norm(config.hidden, config.bias);
  count.keeps(config.hidden, 2);  // embedded, top
  count.loss(config.vocabulary);
  count.lends(config.hidden, 2);  // gradients of the two
  return count.result();
}

template <element T> model_size encoder_size(transformer_config const& config, block_size block) {
  config.check();
  size_counter count(block, sizeof(T), sizeof(accumulator_t<T>));
  const std::int64_t h = config.hidden;
  count.table(config.vocabulary, h, 1);
  count.table(config.context, h);
  if (config.segments > 0) count.table(config.segments, h);
  count.norm(h, bias_term::present);  // of the embeddings
  count.blocks(config, norm_order::post);
  count.matrix(h, h, 1, 1, {granule, granule});  // the head: a layer, a norm, and a bias of the vocabulary
  count.vector(h);
  count.norm(h, bias_term::present);
  count.vector(config.vocabulary);
  count.keeps(h, 5);  // summed embeddings, embedded, top, two of the head
  count.loss(config.vocabulary);
  count.lends(h, 2);
  return count.result();
}

}}}  // namespace tessera::TESSERA_ISA::nn
