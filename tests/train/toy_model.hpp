// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <support/reference.hpp>

#include <tessera/nn/parameter.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/training.hpp>

namespace toy {

using namespace tessera;

/// y = W₂ relu(W₁ x + b): a parameter of each kind. W₁ (24, 20) is sparse, W₂ (5, 24) is dense.
template <class T, class Block = block_shape<4>> struct model {
  static constexpr std::int64_t inputs = 20, hidden = 24, outputs = 5;
  block_sparse_matrix<T, Block> up;
  feature_vector<accumulator_t<T>> bias;
  dense_matrix<T> down;

  using gradients = model<accumulator_t<T>, Block>;

  explicit model(std::uint64_t seed = 1, double density = 0.4)
      : up(support::random_matrix<T, Block>(hidden, inputs, density, seed)),
        bias(hidden),
        down(support::random_matrix<T, block_shape<16>>(outputs, hidden, 1, seed + 1)) {
    support::fill(bias, seed + 2);
  }

  static void parts(auto& each, auto&... of) {
    each("up", of.up...);
    each("bias", of.bias...);
    each("down", of.down...);
  }
};

/// Half the squared distance from the output of `teacher`, at random inputs that depend on `key` alone.
/// Gradients are multiplied by `loss_scale`.
template <class T, class Block>
train::token_loss accumulate(context& ctx, model<T, Block> const& m, typename model<T, Block>::gradients& g,
                             std::uint64_t key, std::int64_t tokens, double loss_scale = 1) {
  const model<T, Block> teacher(99, 1);
  panel_matrix<T> x(m.inputs, tokens), z(m.hidden, tokens), h(m.hidden, tokens), e(m.outputs, tokens),
      dz(m.hidden, tokens);
  support::fill(x, 1000 + key);
  run(ctx, h = relu(teacher.up * x + teacher.bias), e = teacher.down * h);
  run(ctx, z = m.up * x + m.bias, h = relu(z), e = m.down * h - e);
  const double loss = total(ctx, square(e)) / 2;
  run(ctx, e = e * loss_scale);
  run(ctx, when(nn::is_wanted(g.down), [&] { return g.down += e * transposed(h); }),
      dz = (transposed(m.down) * e) * derivative<ops::relu>(z));
  run(ctx, g.up += sampled(dz * transposed(x)), g.bias += sum_tokens(dz));
  return {loss, tokens, loss_scale};
}

template <class Tensor> bool same_bits(Tensor const& a, Tensor const& b) {
  if constexpr (requires { a.pattern(); })
    if (!(a.pattern() == b.pattern())) return false;
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

template <class T, class Block> bool same_bits(model<T, Block> const& a, model<T, Block> const& b) {
  return same_bits(a.up, b.up) && same_bits(a.bias, b.bias) && same_bits(a.down, b.down);
}

template <class Model, class Optimizer, class Policy>
bool same_bits(train::training<Model, Optimizer, Policy> const& a,
               train::training<Model, Optimizer, Policy> const& b) {
  bool same = same_bits(a.model, b.model) && a.state.updates == b.state.updates && a.explored == b.explored &&
              a.progress.step == b.progress.step && a.progress.tokens == b.progress.tokens;
  return same && a.state == b.state;
}

}  // namespace toy
