// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/attention.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/nn/transformer_block.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_sources.hpp>

// Layers whose units, neurons or heads, have coefficients, which tell the units that may go: network slimming
// (Liu et al. 2017), on transformers EarlyBERT (Chen et al. 2021, §3.1). They stand where an mlp and a
// multi_head_attention would, also in a transformer_block. train::slimming_penalty draws coefficients to
// zero, train::neuron_masks and train::head_masks choose, and `slimmed` makes the smaller layer.

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

namespace detail {
/// Throws shape_error unless there is a coefficient for each unit.
TESSERA_COLD inline void require_coefficients(const char* layer, std::int64_t coefficients,
                                              std::int64_t units) {
  if (coefficients != units || units < 1)
    throw shape_error(message("[", layer, "] there are ", coefficients, " coefficients for ", units,
                              " units: each must have one"));
}
}  // namespace detail

/// y = W₂ (c ∘ f(z)) + b₂, z = W₁ x + b₁: an mlp with a coefficient for each hidden neuron.
///   x, y (features, tokens)   W₁ (hidden, features)   W₂ (outputs, hidden)   c (hidden)   z (hidden, tokens)
///   Linear   as of mlp
template <element T, class Block, class Op = ops::gelu_polynomial, class Linear = linear<T, Block>>
struct slimmable_mlp {
  using whole_type = mlp<T, Block, Op, Linear>;

  whole_type whole;
  feature_vector<accumulator_t<T>> coefficients;  // c

  using saved = typename whole_type::saved;
  using gradients = slimmable_mlp<accumulator_t<T>, Block, Op, typename Linear::gradients>;

  slimmable_mlp() = default;
  /// Coefficients are 1: it computes as `of` does.
  explicit slimmable_mlp(whole_type of) : whole(std::move(of)), coefficients(whole.down.inputs()) {
    std::ranges::fill(coefficients, accumulator_t<T>(1));
  }

  static void parts(auto& each, auto&... of) {
    each("", of.whole...);
    each("coefficients", of.coefficients...);
  }
  static model_size size(transformer_config const& of) { return whole_type::size(of).vector(of.inner()); }
  /// Zeros on random patterns, by the name of this part in the model.
  static slimmable_mlp random(transformer_config const& of, std::uint64_t seed, parameter_name const& name) {
    return slimmable_mlp(whole_type::random(of, seed, name));
  }
  std::int64_t outputs(std::int64_t features) const { return whole.outputs(features); }

  saved unfilled() const { return whole.unfilled(); }
  template <class X> auto prepare(X const& x, saved& s, pass<T> const& p) const {
    return statements(whole.up.prepare(x, s.up, p), s.z = whole.up.value(x, s.up),
                      whole.down.prepare(apply<Op>(s.z) * coefficients, s.down, p));
  }
  template <class X> auto value(X const&, saved const& s) const {
    return whole.down.value(apply<Op>(s.z) * coefficients, s.down);
  }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
    forward_by_value(*this, x, y, s, p);
  }
  void show_inputs(panel_matrix<T> const& x, saved const& s, pass<T> const& p) const {
    const auto h = p.borrow(whole.down.inputs(), x.tokens());
    run(p.ctx, *h = apply<Op>(s.z) * coefficients);
    nn::show_inputs(whole.up, x, s.up, p);
    nn::show_inputs(whole.down, *h, s.down, p);
  }

  /// With dh = W₂ᵀ dy: dc = Σ dh ∘ f(z), dz = dh ∘ c ∘ f′(z), dx = W₁ᵀ dz
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const {
    dx.require_apart("slimmable_mlp", x, dy);
    require_forward("slimmable_mlp", s.z.tokens(), dy.tokens());
    auto const &up = whole.up, &down = whole.down;
    const auto h_room = p.borrow(down.inputs(), dy.tokens()), dz_room = p.borrow(down.inputs(), dy.tokens());
    panel_matrix<T>&h = *h_room, &dz = *dz_room;
    const auto dh = local(down.input_gradient(dy));
    const bool of_down = any_wanted(g.whole.down), of_up = any_wanted(g.whole.up);
    run(p.ctx, when(of_down, [&] { return h = apply<Op>(s.z) * coefficients; }),
        down.bias_gradient(dy, g.whole.down),
        when(is_wanted(g.coefficients), [&] { return g.coefficients += sum_tokens(dh * apply<Op>(s.z)); }),
        when(of_up || dx, [&] { return dz = dh * coefficients * derivative<Op>(s.z); }),
        up.bias_gradient(dz, g.whole.up), dx = up.input_gradient(dz));
    if (of_down) down.add_weight_gradient(dy, h, g.whole.down, p, s.down);
    if (of_up) up.add_weight_gradient(dz, x, g.whole.up, p, s.up);
  }
};

/// y = W₂ (c ∘ A(x)) + b₂: a multi_head_attention with a coefficient for each head, which all features of the
/// result A(x) of the head share.
///   x, y (features, tokens)   c (heads of queries)
///   Score, Linear   as of multi_head_attention
template <element T, class Block, score_functor Score = plain_scores, class Linear = linear<T, Block>>
struct slimmable_attention {
  using whole_type = multi_head_attention<T, Block, Score, Linear>;

  whole_type whole;
  feature_vector<accumulator_t<T>> coefficients;  // c

  struct saved : whole_type::saved {
    feature_vector<accumulator_t<T>> factors;  // c, for each feature of `mixed`
    static void parts(auto& each, auto&... of) {
      whole_type::saved::parts(each, of...), each("factors", of.factors...);
    }
  };
  using gradients = slimmable_attention<accumulator_t<T>, Block, Score, typename Linear::gradients>;

  slimmable_attention() = default;
  /// Coefficients are 1: it computes as `of` does.
  explicit slimmable_attention(whole_type of) : whole(std::move(of)), coefficients(whole.heads.queries) {
    std::ranges::fill(coefficients, accumulator_t<T>(1));
  }

  static void parts(auto& each, auto&... of) {
    each("", of.whole...);
    each("coefficients", of.coefficients...);
  }
  static model_size size(transformer_config const& of) { return whole_type::size(of).vector(of.heads); }
  /// Zeros on random patterns, by the name of this part in the model.
  static slimmable_attention random(transformer_config const& of, mask seen, std::uint64_t seed,
                                    parameter_name const& name) {
    return slimmable_attention(whole_type::random(of, seen, seed, name));
  }
  std::int64_t outputs(std::int64_t features) const { return whole.outputs(features); }

  saved unfilled() const {
    using vector = feature_vector<accumulator_t<T>>;  // of this size, and without memory
    return {whole.unfilled(), vector::of_values(nullptr, whole.out.inputs())};
  }
  /// Throws shape_error unless each head has a coefficient.
  template <class X> auto prepare(X const& x, saved& s, pass<T> const& p) const {
    detail::require_coefficients("slimmable_attention", coefficients.size(), whole.heads.queries);
    for (std::int64_t i = 0; i < s.factors.size(); ++i) s.factors[i] = coefficients[i / features_of_head()];
    return statements(whole.prepare_heads(x, s, p), whole.out.prepare(s.mixed * s.factors, s.of_out, p));
  }
  template <class X> auto value(X const&, saved const& s) const {
    return whole.out.value(s.mixed * s.factors, s.of_out);
  }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
    forward_by_value(*this, x, y, s, p);
  }
  void show_inputs(panel_matrix<T> const& x, saved const& s, pass<T> const& p) const {
    const auto h = p.borrow(s.mixed.features(), x.tokens());
    run(p.ctx, *h = s.mixed * s.factors);
    nn::show_inputs(whole.qkv, x, s.of_qkv, p);
    nn::show_inputs(whole.out, *h, s.of_out, p);
  }

  /// With dh = W₂ᵀ dy: dc is the sum of dh ∘ A(x) over tokens and the features of a head, dA(x) = c ∘ dh
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const {
    require_forward("slimmable_attention", s.mixed.tokens(), dy.tokens());
    const auto h_room = p.borrow(s.mixed.features()), dmixed_room = p.borrow(s.mixed.features());
    panel_matrix<T>&h = *h_room, &dmixed = *dmixed_room;
    const auto sums_room = p.template borrow_saved<feature_vector<accumulator_t<T>>>();
    feature_vector<accumulator_t<T>>& sums = *sums_room;
    sums.resize(s.mixed.features());
    const auto dh = local(whole.out.input_gradient(dy));
    const bool of_out = any_wanted(g.whole.out), goes_on = dx || whole_type::wants_heads(g.whole);
    run(p.ctx, when(of_out, [&] { return h = s.mixed * s.factors; }),
        whole.out.bias_gradient(dy, g.whole.out),
        when(is_wanted(g.coefficients), [&] { return sums = sum_tokens(dh * s.mixed); }),
        when(goes_on, [&] { return dmixed = dh * s.factors; }));
    if (of_out) whole.out.add_weight_gradient(dy, h, g.whole.out, p, s.of_out);
    if (is_wanted(g.coefficients))
      for (std::int64_t i = 0; i < sums.size(); ++i) g.coefficients[i / features_of_head()] += sums[i];
    if (goes_on) whole.backward_of_heads(x, s, dmixed, dx, g.whole, p);
  }

 private:
  std::int64_t features_of_head() const { return whole.out.inputs() / whole.heads.queries; }
};

template <class Layer> inline constexpr bool is_slimmable_mlp = false;
template <class T, class Block, class Op, class Linear>
inline constexpr bool is_slimmable_mlp<slimmable_mlp<T, Block, Op, Linear>> = true;
template <class Layer> inline constexpr bool is_slimmable_attention = false;
template <class T, class Block, class Score, class Linear>
inline constexpr bool is_slimmable_attention<slimmable_attention<T, Block, Score, Linear>> = true;

namespace detail {

/// The rows or columns of W that belong to the units that are kept, `features` of them to each unit.
///   Throws shape_error unless `kept` is a row of `units` with at least one that is kept.
inline std::vector<std::int64_t> features_kept(pattern const& kept, std::int64_t units,
                                               std::int64_t features) {
  if (kept.block_rows() != 1 || kept.block_cols() != units || kept.blocks() == 0)
    throw shape_error(message("[slimmed] a pattern of ", kept.block_rows(), " x ", kept.block_cols(),
                              " with ", kept.blocks(), " units: it must be 1 x ", units,
                              ", with at least one"));
  std::vector<std::int64_t> numbers;
  for (const std::int64_t unit : kept.row(0))
    for (std::int64_t i = 0; i < features; ++i) numbers.push_back(unit * features + i);
  return numbers;
}

inline std::vector<std::int64_t> all_features(std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), std::int64_t(0));
  return numbers;
}

/// The layer of some rows and columns of W; column j is multiplied by factor(j). A block is stored if an
/// element of it was.
template <element T, class Block, class Factor>
linear<T, Block> part_of(linear<T, Block> const& of, std::vector<std::int64_t> const& rows,
                         std::vector<std::int64_t> const& cols, Factor const& factor) {
  std::vector<char> mask;
  for (const std::int64_t i : rows)
    for (const std::int64_t j : cols) mask.push_back(of.weight.find(i, j) >= 0);
  const auto count = [](auto const& numbers) { return static_cast<int>(numbers.size()); };
  linear<T, Block> part(count(rows), count(cols),
                        pattern_from_mask(count(rows), count(cols), mask, block_size_of<Block>()),
                        of.has_bias);
  const auto old = [](auto const& numbers, std::int64_t i) { return numbers[static_cast<std::size_t>(i)]; };
  part.weight.generate([&](std::int64_t i, std::int64_t j) {
    const std::int64_t col = old(cols, j);
    return T(accumulator_t<T>(of.weight(old(rows, i), col)) * factor(col));
  });
  for (std::int64_t i = 0; i < count(rows); ++i) part.bias[i] = of.bias[old(rows, i)];
  return part;
}

}  // namespace detail

/// The MLP of the neurons that are kept, with their coefficients in W₂: it computes what the whole one does
/// when the coefficients of the others are zero, but for rounding.
///   kept (1, hidden)   the neurons, as a pattern of single elements
///   Throws shape_error unless `kept` has this grid and at least one neuron, and each has a coefficient.
template <element T, class Block, class Op>
mlp<T, Block, Op> slimmed(slimmable_mlp<T, Block, Op> const& of, pattern const& kept) {
  detail::require_coefficients("slimmed", of.coefficients.size(), of.whole.down.inputs());
  const auto neurons = detail::features_kept(kept, of.coefficients.size(), 1);
  return {detail::part_of(of.whole.up, neurons, detail::all_features(of.whole.up.inputs()),
                          [](std::int64_t) { return accumulator_t<T>(1); }),
          detail::part_of(of.whole.down, detail::all_features(of.whole.outputs(0)), neurons,
                          [&](std::int64_t j) { return of.coefficients[j]; })};
}

/// The attention of the heads that are kept, with their coefficients in W₂, as for the MLP.
///   kept (1, heads)   the heads, as a pattern of single elements
///   Throws shape_error unless `kept` has this grid and at least one head, and each has a coefficient;
///   option_error if heads share keys. A score functor with members may depend on the number of heads, and
///   does not compile.
template <element T, class Block, class Score>
multi_head_attention<T, Block, Score> slimmed(slimmable_attention<T, Block, Score> const& of,
                                              pattern const& kept) {
  auto const& whole = of.whole;
  detail::require_coefficients("slimmed", of.coefficients.size(), whole.heads.queries);
  const std::int64_t heads = whole.heads.queries, features = whole.out.inputs();
  if (whole.heads.keys != heads)
    throw option_error(message("[slimmed] ", heads, " heads share the keys of ", whole.heads.keys,
                               ": each must have its own"));
  static_assert(std::is_empty_v<Score>, "a score functor with members may depend on the number of heads");
  const auto mixed = detail::features_kept(kept, heads, features / heads);
  std::vector<std::int64_t> rows;  // of queries, keys and values
  for (std::int64_t part = 0; part < 3; ++part)
    for (const std::int64_t i : mixed) rows.push_back(part * features + i);
  multi_head_attention<T, Block, Score> slim = whole;
  slim.qkv = detail::part_of(whole.qkv, rows, detail::all_features(whole.qkv.inputs()),
                             [](std::int64_t) { return accumulator_t<T>(1); });
  slim.out = detail::part_of(whole.out, detail::all_features(whole.outputs(0)), mixed,
                             [&](std::int64_t j) { return of.coefficients[j / (features / heads)]; });
  slim.heads = static_cast<int>(kept.blocks());
  if (whole.blocks.size() > 1) {
    slim.blocks.clear();
    for (const std::int32_t head : kept.row(0)) slim.blocks.push_back(whole.blocks[std::size_t(head)]);
  }
  return slim;
}

/// A transformer_block of slimmed layers, with the norms of the whole one.
template <element T, class Block, norm_order Order, class Norm, class Mlp, class Attention>
auto slimmed(transformer_block<T, Block, Order, Norm, Mlp, Attention> const& of, pattern const& heads,
             pattern const& neurons) {
  auto attention = slimmed(of.attention, heads);
  auto mlp = slimmed(of.mlp, neurons);
  return transformer_block<T, Block, Order, Norm, decltype(mlp), decltype(attention)>{
      of.norm1,       std::move(attention), of.attention_dropout, of.norm2,
      std::move(mlp), of.mlp_dropout,       of.attention_scale,   of.mlp_scale};
}

}}}  // namespace tessera::TESSERA_ISA::nn
