// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/linear_like.hpp>
#include <tessera/nn/lora_settings.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/pattern.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y = A x + s U (D x), where A x = W x + b is a linear_like layer that is frozen, and D and U are of low
/// rank (LoRA: Hu et al. 2022, arXiv 2106.09685). A new one has no adapters, and computes what its base does.
///   x (in, tokens)   W (out, in)   D (R, in)   U (out, R)   y (out, tokens)
///   Base   linear, or int8_linear, so that W is multiplied in 8 bits (after QLoRA: Dettmers et al. 2023)
/// A matrix that is several, such as Q, K and V, may have an adapter for some of them: U then stores the
/// blocks alone in which one of them meets its own rows of D. R is the sum of the ranks, each rounded up to
/// four; the rows of D and columns of U that this adds are zero, and have zero gradients. Dropout of x, which
/// the paper's code has, is left out.
template <element T, class Block, class Base = linear<T, Block>> struct lora {
  static_assert((require_linear_like<Base, T>(), true));
  using value_type = T;
  using block = Block;
  using low_rank = linear<T, block_shape<4>>;

  Base base;
  low_rank down, up;
  double scale = 0;

  struct saved {
    typename Base::saved base;
    panel_matrix<T> inner;  // s D x (R, tokens)
    static void parts(auto& each, auto&... of) { each("base", of.base...), each("inner", of.inner...); }
  };
  using gradients = lora<accumulator_t<T>, Block, typename Base::gradients>;

  static void parts(auto& each, auto& first, auto&... others) {
    each.frozen("", first.base, others.base...);
    if (first.ranks() == 0) return;
    each.dense("down", first.down, others.down...);
    each.dense("up", first.up, others.up...);
    each.setting("scale", first.scale, others.scale...);
  }
  /// Of the base: adapters are made later.
  static model_size size(std::int64_t out, std::int64_t in, double density, bias_term with_bias) {
    return Base::size(out, in, density, with_bias);
  }
  static lora random(std::int64_t out, std::int64_t in, double density, bias_term with_bias,
                     std::uint64_t seed, parameter_name const& name) {
    return {Base::random(out, in, density, with_bias, seed, name),
            {0, in, bias_term::absent},
            {out, 0, bias_term::absent}};
  }
  std::int64_t inputs() const { return base.inputs(); }
  std::int64_t outputs(std::int64_t features) const { return base.outputs(features); }
  /// R, the rows of D; 0 without adapters.
  std::int64_t ranks() const { return down.weight.rows(); }
  auto& plain() { return base.plain(); }
  auto const& plain() const { return base.plain(); }

  /// Gives it new adapters: D is random, within ± 1 ÷ √in, and U is zero. Throws option_error for settings
  /// without meaning, and shape_error for rows that are not in W, or do not begin and end at multiples of
  /// four.
  ///   parts   the rows of each adapter, in ascending order; without, one for all rows
  ///   key     of the random numbers: a layer's name
  void adapt(lora_settings const& how, std::vector<row_range> parts, std::uint64_t seed, random_key key);

  /// Adds s U D to W, and drops the adapters. Returns the norm of that part of s U D which W does not store.
  /// A base of 8 bits is to be refreshed.
  double merge(merge_blocks where);

  saved unfilled() const { return {base.unfilled(), {ranks(), 0}}; }
  template <class X> auto prepare(X const& x, saved& s, pass<T> const& p) const {
    return statements(base.prepare(x, s.base, p), s.inner = down.value(x) * scale);
  }
  template <class X> auto value(X const& x, saved const& s) const {
    return base.value(x, s.base) + up.value(s.inner);
  }
  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
    forward_by_value(*this, x, y, s, p);
  }
  void show_inputs(panel_matrix<T> const& x, saved const& s, pass<T> const& p) const {
    if (ranks() == 0) return;
    nn::show_inputs(down, x, {}, p);
    nn::show_inputs(up, s.inner, {}, p);
  }

  /// dx = Aᵀ dy + Dᵀ dinner with dinner = s Uᵀ dy
  auto input_gradient(panel_matrix<T> const& dy) const {
    return base.input_gradient(dy) + transposed(down.weight) * (scale * up.input_gradient(dy));
  }
  auto bias_gradient(panel_matrix<T> const&, gradients&) const { return statements(); }
  /// dD += dinner xᵀ, dU += dy innerᵀ
  void add_weight_gradient(panel_matrix<T> const& dy, panel_matrix<T> const& x, gradients& g,
                           pass<T> const& p, saved const& s) const {
    if (ranks() == 0) return;
    require_forward("lora", s.inner.tokens(), dy.tokens());
    const auto dinner = p.borrow(ranks(), dy.tokens());
    run(p.ctx, *dinner = scale * up.input_gradient(dy));
    low_rank::add_weight_gradient(*dinner, x, g.down, p);
    low_rank::add_weight_gradient(dy, s.inner, g.up, p);
  }
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const {
    linear_backward("lora", *this, x, s, dy, dx, g, p);
  }

  /// Of a base of 8 bits: makes its w8 anew.
  void refresh(context& ctx, std::int64_t step)
    requires requires { base.refresh(ctx, step); }
  {
    base.refresh(ctx, step);
  }
};

template <element T, class Block, class Base>
void lora<T, Block, Base>::adapt(lora_settings const& how, std::vector<row_range> parts, std::uint64_t seed,
                                 random_key key) {
  how.check();
  const std::int64_t out = base.plain().weight.rows(), in = base.plain().weight.cols();
  if (parts.empty()) parts = {{0, out}};
  std::int64_t end = 0;
  for (row_range const& part : parts) {
    const bool fits = part.first % 4 == 0 && (part.end % 4 == 0 || part.end == out);
    if (part.first < end || part.end <= part.first || part.end > out || !fits)
      throw shape_error(message("[lora] rows ", part.first, " to ", part.end, " of ", out,
                                ": ranges ascend, and begin and end at multiples of four"));
    end = part.end;
  }
  const std::int64_t each = round_up<std::int64_t>(how.rank, 4), all = each * std::ssize(parts);
  std::vector<std::int32_t> row_start{0}, cols;
  for (std::int64_t row = 0; row < out; row += 4) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (row < parts[i].end && row + 4 > parts[i].first)
        for (std::int64_t col = 0; col < each / 4; ++col)
          cols.push_back(std::int32_t(std::int64_t(i) * each / 4 + col));
    row_start.push_back(std::int32_t(cols.size()));
  }
  low_rank new_down(all, in, bias_term::absent);
  const random_stream random(seed, random_purpose::initial_values, key);
  const double largest = 1 / std::sqrt(static_cast<double>(in));
  new_down.weight.generate([&](std::int64_t row, std::int64_t col) {
    if (row % each >= how.rank) return T(0.0f);
    return static_cast<T>(
        accumulator_t<T>(largest * (2 * random.uniform(std::uint64_t(row * in + col)) - 1)));
  });
  up = {out, all, pattern::from_rows(int(row_start.size()) - 1, int(all / 4), row_start, cols),
        bias_term::absent};
  down = std::move(new_down);
  scale = how.scale();
}

template <element T, class Block, class Base> double lora<T, Block, Base>::merge(merge_blocks where) {
  using wide = accumulator_t<T>;
  auto& w = base.plain().weight;
  const std::int64_t out = w.rows(), in = w.cols();
  std::vector<double> product(static_cast<std::size_t>(out * in));  // s U D, row by row
  up.weight.pattern().for_each([&](int block_row, int block_col, std::int64_t) {
    for (std::int64_t row = 4 * block_row; row < std::min<std::int64_t>(out, 4 * block_row + 4); ++row)
      for (std::int64_t k = 4 * block_col; k < 4 * block_col + 4; ++k) {
        const double factor = scale * static_cast<double>(wide(std::as_const(up.weight)(row, k)));
        if (factor == 0) continue;
        for (std::int64_t col = 0; col < in; ++col)
          product[std::size_t(row * in + col)] +=
              factor * static_cast<double>(wide(std::as_const(down.weight)(k, col)));
      }
  });
  double lost = 0;
  block_sparse_matrix<T, Block> merged = where == merge_blocks::all
                                             ? block_sparse_matrix<T, Block>(out, in)
                                             : block_sparse_matrix<T, Block>(out, in, w.pattern());
  for (std::int64_t row = 0; row < out; ++row)
    for (std::int64_t col = 0; col < in; ++col)
      if (merged.find(row, col) < 0) {
        const double value = product[std::size_t(row * in + col)];
        lost += value * value;
      }
  merged.generate([&](std::int64_t row, std::int64_t col) {
    return static_cast<T>(static_cast<wide>(static_cast<double>(wide(std::as_const(w)(row, col))) +
                                            product[std::size_t(row * in + col)]));
  });
  w = std::move(merged);
  down = {0, in, bias_term::absent};
  up = {out, 0, bias_term::absent};
  scale = 0;
  return std::sqrt(lost);
}

static_assert(linear_like<lora<float, block_shape<16>>>);

}}}  // namespace tessera::TESSERA_ISA::nn
