// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/embedding.hpp>
#include <tessera/nn/frozen_matrix.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/linear_like.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/vectors.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = W x + b of a trained layer that is used: the weights are kept in fewer bits than they were trained in,
/// and are multiplied by activations of T as they are ("weight only": Dettmers et al. 2022, "LLM.int8()", has
/// the memory; activations are not rounded). Weights of 8 bits have a scale for each row.
///   x (in, tokens)   W (out, in), dense or block-sparse, of E   b (out)   y (out, tokens)
///   E   bfloat16, float16, int8, float8_e4m3
/// Nothing of it is trained; gradients go through it, so that nn::lora<T, Block, frozen_linear<…>> is trained
/// (QLoRA: Dettmers et al. 2023). A model of such layers keeps its token table, and an output table of its
/// own, in E, too; projections of factorised embeddings, and the linear layers of BERT's heads, stay in T.
/// Its weights store nothing until nn::freeze takes them from a trained model, or a checkpoint is read.
template <element T, element E, class Block> struct frozen_linear {
  static_assert(std::is_same_v<accumulator_t<T>, float> && std::is_same_v<accumulator_t<E>, float> &&
                    sizeof(E) <= 2,
                "[frozen_linear] weights of 16 or 8 bits, and activations whose sums are float");
  using value_type = T;
  using block = Block;
  using token_table = embedding<T, E>;  // of a model of such layers

  frozen_matrix<E, Block> weight;
  feature_vector<float> bias;
  bias_term has_bias = bias_term::present;

  struct saved {};
  using gradients = frozen_linear<accumulator_t<T>, E, Block>;

  static void parts(auto& each, auto&... of) {
    each.frozen("weight", of.weight...);
    each.frozen("bias", optional(of.bias, of.has_bias)...);
  }
  static model_size size(std::int64_t out, std::int64_t in, double density, bias_term with_bias) {
    model_size size = model_size::of<T>().template frozen_matrix<E>(out, in, density, block_size_of<Block>());
    return with_bias == bias_term::present ? size.frozen_vector(out) : size;
  }
  /// A layer whose weights are not read yet: nothing is random.
  static frozen_linear random(std::int64_t out, std::int64_t in, double, bias_term with_bias, std::uint64_t,
                              parameter_name const&) {
    return {unread_matrix<frozen_matrix<E, Block>>(out, in), feature_vector<float>(out), with_bias};
  }

  std::int64_t inputs() const { return weight.cols(); }
  std::int64_t outputs(std::int64_t) const { return weight.rows(); }
  frozen_linear& plain() { return *this; }
  frozen_linear const& plain() const { return *this; }

  saved unfilled() const { return {}; }
  template <class X> auto prepare(X const&, saved&, pass<T> const&) const { return statements(); }
  /// The expression W x + b; x may be an expression.
  template <class X> auto value(X const& x, saved const& = {}) const {
    return weight * converted<T>(x) + bias;
  }
  template <class X> void forward(X const& x, destination<T> y, saved& s, pass<T> const& p) const {
    run(p.ctx, y = value(x));
    observe_forward(*this, x, y, s, p);
  }

  /// The expression Wᵀ dy.
  auto input_gradient(panel_matrix<T> const& dy) const { return transposed(weight) * dy; }
  auto bias_gradient(panel_matrix<T> const&, gradients&) const { return statements(); }
  void add_weight_gradient(panel_matrix<T> const&, panel_matrix<T> const&, gradients&, pass<T> const&,
                           saved const& = {}) const {}
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const {
    linear_backward("frozen_linear", *this, x, s, dy, dx, g, p);
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
