// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/int8.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/following.hpp>
#include <tessera/statements/quantised.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/vectors.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// The scale of a tensor in 8 bits, from its largest absolute values in the last 16 steps: the greatest of
/// them becomes the largest number of E. NVIDIA TransformerEngine's recipe DelayedScaling with
/// amax_history_len = 16, the algorithm "max" and margin 0: the scale of a step is known before the tensor is
/// computed. Before the first step, and while all values were zero, it is 1.
template <element E> struct delayed_scale {
  static constexpr std::int64_t steps = 16;

  /// Of a model: a number for each of the last steps, the newest first. Of gradients: that of their own step,
  /// the greatest of all micro-batches.
  feature_vector<float> amaxes = feature_vector<float>(steps);

  /// Throws error if a value was infinite or not-a-number.
  float scale() const { return quantisation_scale<E>(amax(amaxes)); }

  /// Makes this that of gradients.
  void only_one_step() { amaxes = feature_vector<float>(1); }
  /// Adds to the number of the step; not-a-number stays one.
  ///   largest   the largest absolute value of each token
  void observe(token_vector<float> const& largest) { amaxes[0] = ops::maximum()(amaxes[0], amax(largest)); }
  void follow(delayed_scale const& of_step) {
    std::shift_right(amaxes.begin(), amaxes.end(), 1);
    amaxes[0] = of_step.amaxes[0];
  }
};

/// y = W x + b, whose products take W and x in 8 bits, as elements E with one scale each. W itself, a float
/// or bfloat16, is trained, as if nothing were rounded (straight through). Two are named:
///   float8_linear   W and x in E4M3, dy in E5M2 (Micikevicius et al. 2022, "FP8 formats for deep learning",
///                   §3), as hardware for 8-bit floats would compute
///   int8_linear     W and x in int8, dy as it is: quantisation-aware training (Jacob et al. 2018,
///                   "Quantization and training of neural networks for efficient integer-arithmetic-only
///                   inference", §3), for weights that shall be used in int8
///   x (in, tokens)   W (out, in), dense or block-sparse   b (out)   y (out, tokens)
///   Gradient   the element of dy in products, or void: dy is not rounded, and dy8 = dy, sdy = 1
///   w8 = W / sw,  x8 = x / sx,  dy8 = dy / sdy;  y = sx (sw (w8 x8)) + b
///   dx = sdy (sw (w8ᵀ dy8)),  dW += (sx sdy) dy8 x8ᵀ at the blocks of W,  db += Σ dy
/// sw is of the present W: refresh, which training calls, makes w8 follow; after weights were read or changed
/// otherwise, nn::refresh(model, 0) does. sx and sdy are delayed_scales: values that are larger than in the
/// last steps become the largest number of their element. Backward observes |x| and |dy| in the pass that
/// rounds them, and leaves the greatest in the gradients; a step of training whose numbers are finite hands
/// them on. Both histories are frozen parts, so that a run resumes with its bits. In gradients
/// for_each_frozen visits the numbers of the step: a sum over processes needs their maximum. Stands where a
/// linear may: see linear_like. Not in top_kast and edge_popup, whose visible layers have no
/// refresh.
template <element T, class Block, element E, class Gradient> struct quantised_linear : linear<T, Block> {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, bfloat16>,
                "quantised_linear trains weights of float or bfloat16");
  static constexpr bool rounds_gradients = !std::is_void_v<Gradient>;
  using base = linear<T, Block>;
  using base::weight, base::bias;
  using saved = typename base::saved;
  using gradients = quantised_linear<accumulator_t<T>, Block, E, Gradient>;

  quantised_matrix<E, Block> weight8;  // w8 and sw
  delayed_scale<E> x_scale;
  delayed_scale<std::conditional_t<rounds_gradients, Gradient, E>> dy_scale;  // if dy is rounded

  using base::base;
  quantised_linear() = default;
  explicit quantised_linear(base layer) : base(std::move(layer)) {}

  static void parts(auto& each, auto&... of) {
    base::parts(each, of...);
    each.setting("products_in", E());  // without the arguments of a template
    if constexpr (requires { E::fraction_bits; }) each.setting("fraction_bits", E::fraction_bits);
    if constexpr (requires { Gradient::fraction_bits; })
      each.setting("gradient_fraction_bits", Gradient::fraction_bits);
    each.frozen("amax_x", of.x_scale.amaxes...);
    if constexpr (rounds_gradients) each.frozen("amax_dy", of.dy_scale.amaxes...);
  }
  static model_size size(std::int64_t out, std::int64_t in, double density, bias_term with_bias) {
    const auto copy = model_size::of<E>().matrix(out, in, density, block_size_of<Block>());
    return base::size(out, in, density, with_bias).copies(copy.weight_bytes()).lends(in).lends(out);
  }
  /// As linear::random.
  static quantised_linear random(std::int64_t out, std::int64_t in, double density, bias_term with_bias,
                                 std::uint64_t seed, parameter_name const& name) {
    return quantised_linear(base::random(out, in, density, with_bias, seed, name));
  }

  /// The expression sx (sw (w8 x8)) + b; x may be an expression.
  template <class X> auto value(X const& x, saved const& = {}) const {
    require_refreshed();
    return x_scale.scale() * (weight8.scale * (weight8.values * in_8_bits(x_scale, converted<T>(x)))) + bias;
  }
  template <class X> void forward(X const& x, destination<T> y, saved& s, pass<T> const& p) const {
    run(p.ctx, y = value(x));
    observe_forward(*this, x, y, s, p);
  }

  /// The expression sdy (sw (w8ᵀ dy8)). The product of scales alone might be too small for a float.
  auto input_gradient(panel_matrix<T> const& dy) const {
    require_refreshed();
    if constexpr (rounds_gradients)
      return dy_scale.scale() * (weight8.scale * (transposed(weight8.values) * in_8_bits(dy_scale, dy)));
    else
      return weight8.scale * (transposed(weight8.values) * dy);
  }
  void backward(panel_matrix<T> const& x, saved const&, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;
  /// dW += (sx sdy) dy8 x8ᵀ at the blocks of W; the observer of the pass sees the factors. The rounded ones
  /// are kept in T, since they would be widened for the product: one holds 8 bits exactly, the other, times
  /// the scales, is rounded to T.
  void add_weight_gradient(panel_matrix<T> const& dy, panel_matrix<T> const& x, gradients& g,
                           pass<T> const& p, saved const& = {}) const;

  /// Makes w8 follow W. Throws error if a weight is infinite or not-a-number; until none is, products are
  /// refused.
  void refresh(context& ctx, std::int64_t);
  /// The same after a step, whose largest values the next scales know.
  void refresh(context& ctx, std::int64_t step, gradients const& of_step);
  /// Drops w8 and histories: gradients and moments have none.
  void drop_refreshed() {
    weight8 = {};
    x_scale.only_one_step();
    dy_scale.only_one_step();
  }

 private:
  struct largest_of_tokens {
    token_vector<float> x, dy;
  };

  template <element To, class X> static auto in_8_bits(delayed_scale<To> const& by, X const& x) {
    return converted<To>((1 / by.scale()) * x);
  }
  bool is_refreshed() const {
    return weight8.values.rows() == weight.rows() && weight8.values.cols() == weight.cols() &&
           weight8.values.pattern() == weight.pattern();
  }
  void require_refreshed() const {
    if (!is_refreshed())
      throw error(message(
          "[quantised_linear] the weights of 8 bits (", weight8.values.rows(), ", ", weight8.values.cols(),
          ") are not those of W (", weight.rows(), ", ", weight.cols(),
          "), or of its pattern: call nn::refresh(model, 0), or nn::refresh(layer, 0) of a frozen one, "
          "after W was made, read or changed outside of training"));
  }
};

template <element T, class Block, element E, class Gradient>
void quantised_linear<T, Block, E, Gradient>::backward(panel_matrix<T> const& x, saved const& s,
                                                       panel_matrix<T> const& dy, destination<T> dx,
                                                       gradients& g, pass<T> const& p) const {
  linear_backward("quantised_linear", *this, x, s, dy, dx, g, p);
}

template <element T, class Block, element E, class Gradient>
void quantised_linear<T, Block, E, Gradient>::add_weight_gradient(panel_matrix<T> const& dy,
                                                                  panel_matrix<T> const& x, gradients& g,
                                                                  pass<T> const& p, saved const&) const {
  const auto x_room = p.borrow(x.features(), x.tokens());
  const auto largest_room = p.template borrow_saved<largest_of_tokens>();
  panel_matrix<T>& x8 = *x_room;
  auto& [of_x, of_dy] = *largest_room;
  fit(of_x, x.tokens());
  const float sx = x_scale.scale();
  if constexpr (rounds_gradients) {
    const auto dy_room = p.borrow(dy.features(), dy.tokens());
    panel_matrix<T>& dy8 = *dy_room;
    fit(of_dy, dy.tokens());
    run(p.ctx, x8 = in_8_bits(x_scale, x), of_x = max_features(abs(x)),
        dy8 = sx * (dy_scale.scale() * in_8_bits(dy_scale, dy)), of_dy = max_features(abs(dy)));
    g.dy_scale.observe(of_dy);
    base::add_weight_gradient(dy8, x8, g, p);
  } else {
    run(p.ctx, x8 = sx * in_8_bits(x_scale, x), of_x = max_features(abs(x)));
    base::add_weight_gradient(dy, x8, g, p);
  }
  g.x_scale.observe(of_x);
}

template <element T, class Block, element E, class Gradient>
void quantised_linear<T, Block, E, Gradient>::refresh(context& ctx, std::int64_t) {
  const float most = amax(ctx, weight);
  if (!std::isfinite(most)) weight8 = {};
  const float scale = quantisation_scale<E>(most);
  if (!is_refreshed()) weight8.values = {weight.rows(), weight.cols(), weight.pattern()};
  run(ctx, weight8.values = (1 / scale) * weight);
  weight8.scale = scale;
}

template <element T, class Block, element E, class Gradient>
void quantised_linear<T, Block, E, Gradient>::refresh(context& ctx, std::int64_t step,
                                                      gradients const& of_step) {
  refresh(ctx, step);
  x_scale.follow(of_step.x_scale);
  dy_scale.follow(of_step.dy_scale);
}

template <element T, class Block = block_shape<16>>
using float8_linear = quantised_linear<T, Block, float8_e4m3, float8_e5m2>;
template <element T, class Block = block_shape<16>>
using int8_linear = quantised_linear<T, Block, int8, void>;

static_assert(linear_like<float8_linear<float>> && linear_like<int8_linear<float>>);

}}}  // namespace tessera::TESSERA_ISA::nn
