// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/statements/attention.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/vectors.hpp>

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

template <class Block> constexpr block_size block_size_of() { return {Block::rows, Block::cols}; }

/// The sizes of a layer or a model, computed from its configuration without allocating it. Each layer has a
/// function `size` that adds up the sizes of its parts. A multiply-add is two FLOPs; norms and activations
/// are not counted. Functions throw option_error where a number would be 2^63 or more.
struct model_size {
  std::int64_t parameters = 0;               // of the dense layer
  std::int64_t live_parameters = 0;          // stored, without elements that overhang a matrix
  std::int64_t stored_elements = 0;          // stored, with all padding of blocks and vectors
  std::int64_t stored_blocks = 0;            // of matrices
  std::int64_t copied_bytes = 0;             // of weights, and copies of some, in other elements
  std::int64_t multiply_adds = 0;            // with weights, for each token of a forward pass
  std::int64_t attention_multiply_adds = 0;  // for each pair of query and key of a forward pass
  std::int64_t cached_values = 0;            // for each token of a decoding: see token_cache
  std::int64_t saved_values = 0;             // for each token of a batch, saved from forward to backward
  std::int64_t element_bytes = 4;            // of a weight or an activation
  std::int64_t accumulator_bytes = 4;        // of a gradient, a moment or a master

  template <element T> static model_size of() {
    model_size none;
    none.element_bytes = sizeof(T);
    none.accumulator_bytes = sizeof(accumulator_t<T>);
    return none;
  }

  // ---- adding up ----

  /// Adds a matrix with the number of blocks that random_pattern gives it.
  ///   uses   multiply-adds of each value for each token
  /// If blocks of a sparse matrix overhang, the live count depends on the pattern: the mean is added.
  model_size& matrix(std::int64_t rows, std::int64_t cols, double density, block_size block,
                     std::int64_t uses = 1) {
    const std::int64_t blocks =
        detail::product(ceil_div<std::int64_t>(rows, block.rows), ceil_div<std::int64_t>(cols, block.cols));
    const std::int64_t present =
        density == 1 ? blocks
                     : std::max<std::int64_t>(1, std::llround(density * static_cast<double>(blocks)));
    const std::int64_t all = detail::product(rows, cols),
                       values = detail::product(present, block.rows, block.cols);
    const double exactly = static_cast<double>(present) / static_cast<double>(blocks);
    increase(parameters, all);
    increase(live_parameters, present == blocks ? all : std::llround(exactly * static_cast<double>(all)));
    increase(stored_elements, values);
    increase(stored_blocks, present);
    increase(multiply_adds, detail::product(values, uses));
    return *this;
  }
  model_size& vector(std::int64_t features) {
    increase(parameters, features);
    increase(live_parameters, features);
    increase(stored_elements, round_up<std::int64_t>(features, granule));
    return *this;
  }
  /// Adds a matrix, or a vector, that has no gradients, in elements of its own.
  template <element E>
  model_size& frozen_matrix(std::int64_t rows, std::int64_t cols, double density, block_size block,
                            std::int64_t uses = 1) {
    const std::int64_t before = stored_elements;
    matrix(rows, cols, density, block, uses);
    increase(copied_bytes, detail::product(stored_elements - before, std::int64_t(sizeof(E))));
    stored_elements = before;
    return sizeof(E) == 1 ? frozen_numbers(rows) : *this;  // scales
  }
  model_size& frozen_vector(std::int64_t features) {
    increase(parameters, features);
    increase(live_parameters, features);
    return frozen_numbers(features);
  }
  /// Adds a copy of a weight beside it, in another element.
  model_size& copies(std::int64_t bytes) {
    increase(copied_bytes, bytes);
    return *this;
  }
  /// Adds `count` activations that are saved from forward to backward. They have no tokens here.
  template <element E> model_size& keeps(panel_matrix<E> const& unfilled, std::int64_t count = 1) {
    increase(saved_values,
             detail::product(unfilled.padded_features(), std::int64_t(sizeof(E)) / element_bytes, count));
    return *this;
  }
  /// Adds a number for each token.
  template <element E> model_size& keeps(token_vector<E> const&) {
    increase(saved_values, std::int64_t(sizeof(E)) / element_bytes);
    return *this;
  }
  /// Nothing: numbers that are as many for any number of tokens.
  template <element E> model_size& keeps(feature_vector<E> const&) { return *this; }
  /// Adds the parts of a `saved`, without the parts that stand apart: see nn/saved.hpp. A part of the layer
  /// counts its own saved values.
  template <detail::has_parts Saved> model_size& keeps(Saved const& unfilled) {
    keep_each each{*this};
    Saved::parts(each, unfilled);
    return *this;
  }
  /// Adds activations that backward borrows together, and holds while its parts borrow.
  model_size& lends(std::int64_t features, std::int64_t count = 1) {
    increase(lent_[features], count);
    return *this;
  }
  /// Adds a part `count` times. Parts borrow one after the other.
  ///   times   that each of them is used, with the same parameters
  model_size& part(model_size const& one, std::int64_t count = 1, std::int64_t times = 1) {
    for (auto number : {&model_size::parameters, &model_size::live_parameters, &model_size::stored_elements,
                        &model_size::stored_blocks, &model_size::copied_bytes})
      increase(this->*number, detail::product(one.*number, count));
    for (auto number : {&model_size::multiply_adds, &model_size::attention_multiply_adds,
                        &model_size::saved_values, &model_size::cached_values})
      increase(this->*number, detail::product(one.*number, count, times));
    lend_in_turn(one);
    return *this;
  }
  /// Adds a part `count` times that saves nothing: backward recomputes the saved values of `parts_at_once`
  /// parts at a time, in borrowed memory.
  model_size& recomputed_part(model_size const& one, std::int64_t count = 1, std::int64_t parts_at_once = 1,
                              std::int64_t times = 1) {
    const std::int64_t kept = saved_values;
    part(one, count, times);
    saved_values = kept;
    recomputed_values = std::max(recomputed_values, detail::product(one.saved_values, parts_at_once));
    return *this;
  }

  /// Throws option_error if a number of bytes would be 2^63 or more.
  model_size const& checked() const {
    static_cast<void>(detail::product(3, gradient_bytes()));  // moments and masters
    return *this;
  }

  // ---- derived numbers ----

  /// A training step takes three products for each weight: W x, Wᵀ dy and dy xᵀ.
  std::int64_t training_multiply_adds() const { return detail::product(3, multiply_adds); }
  /// Multiply-adds of attention in one forward pass over a sequence, where each query sees all keys or, if
  /// causal, the keys up to its own position.
  std::int64_t attention_multiply_adds_of(std::int64_t tokens, mask seen) const {
    const std::int64_t pairs =
        seen == mask::causal ? detail::product(tokens, tokens + 1) / 2 : detail::product(tokens, tokens);
    return detail::product(pairs, attention_multiply_adds);
  }

  /// Bytes of values; the index arrays of patterns are not counted.
  std::int64_t weight_bytes() const {
    return detail::sum(detail::product(stored_elements, element_bytes), copied_bytes);
  }
  std::int64_t gradient_bytes() const { return detail::product(stored_elements, accumulator_bytes); }
  /// Bytes of the keys and values of `tokens` tokens, in whole panels.
  std::int64_t cache_bytes(std::int64_t tokens, std::int64_t bytes_of_number) const {
    return detail::product(cached_values, round_up<std::int64_t>(tokens, panel_tokens), bytes_of_number);
  }
  /// Bytes saved from forward to backward, and most bytes borrowed at once, for a batch of `tokens` tokens
  /// that all have targets.
  std::int64_t saved_bytes(std::int64_t tokens) const { return bytes(saved_values, tokens); }
  std::int64_t room_bytes(std::int64_t tokens) const {
    std::int64_t values = recomputed_values;
    for (auto const& [features, count] : lent_in_all())
      increase(values, detail::product(round_up<std::int64_t>(features, granule), count));
    return bytes(values, tokens);
  }

 private:
  using lent = std::map<std::int64_t, std::int64_t>;  // number of features → activations
  struct keep_each {
    model_size& size;
    template <class Part> void operator()(std::string_view, Part const& unfilled) {
      if constexpr (requires { typename Part::tensor_tag; })
        size.keeps(unfilled);
      else if constexpr (requires { typename Part::value_type::tensor_tag; })
        for (auto const& one : unfilled) size.keeps(one);
    }
    void apart(std::string_view, auto const&) {}
  };

  model_size& frozen_numbers(std::int64_t count) {
    increase(copied_bytes, detail::product(round_up<std::int64_t>(count, granule), std::int64_t(4)));
    return *this;
  }
  static void increase(std::int64_t& total, std::int64_t more) { total = detail::sum(total, more); }
  lent lent_in_all() const {
    lent all = lent_to_parts_;
    for (auto const& [features, count] : lent_) increase(all[features], count);
    return all;
  }
  void lend_in_turn(model_size const& one) {
    for (auto const& [features, count] : one.lent_in_all()) {
      std::int64_t& most = lent_to_parts_[features];
      most = std::max(most, count);
    }
    recomputed_values = std::max(recomputed_values, one.recomputed_values);
  }
  std::int64_t bytes(std::int64_t values, std::int64_t tokens) const {
    return detail::product(values, round_up<std::int64_t>(tokens, panel_tokens), element_bytes);
  }

  lent lent_, lent_to_parts_;
  std::int64_t recomputed_values = 0;  // for each token: saved values in borrowed memory
};

}}}  // namespace tessera::TESSERA_ISA::nn
