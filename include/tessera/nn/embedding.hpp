// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/frozen_matrix.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/embedding.hpp>
#include <tessera/statements/run.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y(:, t) = row ids[t] of a table.
///   table (symbols, features), dense   ids (tokens)   y (features, tokens)
///   E   of the table, if it is not trained: see frozen_linear
/// A table that also serves as the output weight has this one owner.
template <element T, class E = T> struct embedding {
  static constexpr bool is_frozen = !std::is_same_v<T, E>;
  using matrix = frozen_matrix<E, typename dense_matrix<T>::block>;

  matrix table;

  using gradients = embedding<accumulator_t<T>, std::conditional_t<is_frozen, E, accumulator_t<T>>>;

  embedding() = default;
  /// Zeros; a frozen table stores nothing until it is read.
  embedding(std::int64_t symbols, std::int64_t features) {
    if constexpr (is_frozen)
      table = unread_matrix<matrix>(symbols, features);
    else
      table = matrix(symbols, features);
  }

  static void parts(auto& each, auto&... of) {
    if constexpr (is_frozen)
      each.frozen("", of.table...);
    else
      each.dense("", of.table...);
  }
  /// `uses` is 1 if the table is also the output weight, else 0.
  static model_size size(std::int64_t symbols, std::int64_t features, std::int64_t uses = 0) {
    constexpr auto block = block_size_of<typename dense_matrix<T>::block>();
    if constexpr (is_frozen)
      return model_size::of<T>().template frozen_matrix<E>(symbols, features, 1, block, uses);
    else
      return model_size::of<T>().matrix(symbols, features, 1, block, uses);
  }

  void forward(std::span<std::int32_t const> ids, panel_matrix<T>& y, pass<T> const& p) const {
    run(p.ctx, gather_rows(y, table, ids));
  }
  void backward(std::span<std::int32_t const> ids, panel_matrix<T> const& dy, gradients& g,
                pass<T> const& p) const {
    if (is_wanted(g.table)) run(p.ctx, g.add_rows(dy, ids));
  }

  // Of gradients, the statements by which a table grows; none if it is frozen.

  /// Row ids[t] += dy(:, t).
  template <element L> auto add_rows(panel_matrix<L> const& dy, std::span<std::int32_t const> ids) {
    if constexpr (is_frozen)
      return statements();
    else
      return scatter_rows(table, dy, ids);
  }
  /// += dlogits xᵀ, as the output weight.
  template <element L> auto add_products(panel_matrix<L> const& dlogits, panel_matrix<L> const& x) {
    if constexpr (is_frozen)
      return statements();
    else
      return table += sampled(dlogits * transposed(x));
  }
};

namespace detail {
/// The type of the token table of a model: that of its layers, which then keep their weights frozen, else one
/// that is trained.
template <element T, class Layer> constexpr auto token_table_for() {
  if constexpr (requires { typename Layer::token_table; })
    return std::type_identity<typename Layer::token_table>();
  else if constexpr (requires { &Layer::layer; })
    return token_table_for<T, decltype(Layer::layer)>();
  else if constexpr (requires { &Layer::attention; })
    return token_table_for<T, decltype(Layer::attention)>();
  else if constexpr (requires { &Layer::qkv; })
    return token_table_for<T, decltype(Layer::qkv)>();
  else if constexpr (requires { &Layer::base; })
    return token_table_for<T, decltype(Layer::base)>();
  else
    return std::type_identity<embedding<T>>();
}
}  // namespace detail
template <element T, class Layer>
using token_table = typename decltype(detail::token_table_for<T, Layer>())::type;

/// Throws shape_error unless there is one id, or one of `what`, for each token of the batch.
template <element T>
void require_tokens(std::span<std::int32_t const> ids, pass<T> const& p, const char* what = "token ids") {
  if (std::int64_t(ids.size()) != p.tokens())
    throw shape_error(
        message("[embedding] ", ids.size(), " ", what, " for a batch of ", p.tokens(), " tokens"));
}

/// The position of each token in its sequence, as ids of a position table. Throws shape_error if a sequence
/// ends beyond `context`.
inline void list_positions(sequences const& batch, std::int64_t context,
                           std::vector<std::int32_t>& positions) {
  positions.resize(std::size_t(batch.tokens()));
  for (std::int64_t i = 0; i < batch.count(); ++i) {
    const std::int64_t start = batch.start(i), length = start + batch.length(i);
    if (length > context)
      throw shape_error(message("[position embedding] sequence ", i, " has ", length,
                                " tokens but the context is ", context));
    for (std::int64_t t = batch.begin(i); t < batch.end(i); ++t)
      positions[std::size_t(t)] = std::int32_t(start + t - batch.begin(i));
  }
}

}}}  // namespace tessera::TESSERA_ISA::nn
