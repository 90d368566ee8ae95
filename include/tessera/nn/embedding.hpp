// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/embedding.hpp>
#include <tessera/statements/run.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// y(:, t) = row ids[t] of a table.
///   table (symbols, features), dense   ids (tokens)   y (features, tokens)
/// A table that also serves as the output weight has this one owner.
template <element T> struct embedding {
  dense_matrix<T> table;

  using gradients = embedding<accumulator_t<T>>;

  embedding() = default;
  embedding(std::int64_t symbols, std::int64_t features) : table(symbols, features) {}

  static void parts(auto& each, auto&... of) { each.dense("", of.table...); }
  /// `uses` is 1 if the table is also the output weight, else 0.
  static model_size size(std::int64_t symbols, std::int64_t features, std::int64_t uses = 0) {
    return model_size::of<T>().matrix(symbols, features, 1, block_size_of<typename dense_matrix<T>::block>(),
                                      uses);
  }

  void forward(std::span<std::int32_t const> ids, panel_matrix<T>& y, pass<T> const& p) const {
    run(p.ctx, gather_rows(y, table, ids));
  }
  void backward(std::span<std::int32_t const> ids, panel_matrix<T> const& dy, gradients& g,
                pass<T> const& p) const {
    if (is_wanted(g.table)) run(p.ctx, scatter_rows(g.table, dy, ids));
  }
};

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
