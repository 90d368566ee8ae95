// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include <tessera/core/config.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/source_tree.hpp>
#include <tessera/eval/squares.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/any_tensor.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// A factor of the update of each matrix, from its norm and that of its update, for optimizers such as LAMB
/// and LARS:
///
///   trust_ratios trust(of.parameter);
///   run(ctx, trust.measure(w, update, m = m * beta + g));
///   run(ctx, of.w = w - update * trust.factors(rate, [](double w, double u) { return w / u; }), …);
///
/// Norms are over stored values, in double, with bits that do not depend on threads. Matrices that stand
/// above each other in one parameter, such as Q, K and V, have a ratio each; a block in which two of them
/// meet counts as the first one's. The ratio is 1 where a norm is 0, and of a vector.
class trust_ratios {
 public:
  explicit trust_ratios(nn::any_parameter const& of);
  trust_ratios(trust_ratios const&) = delete;  // a run writes to it

  /// A statement. It makes the assignments first, in the same loop.
  template <class Weights, class Update, class... Assignment>
  auto measure(Weights const& w, Update const& update, Assignment const&... before) {
    return eval::squares_by_range(squares_, ranges_, w, update, before...);
  }
  /// rate · ratio(norm of the weights, norm of the update) for each stored value, when both are measured.
  eval::range_numbers factors(double rate, function_ref<double(double, double)> ratio) const;

 private:
  eval::value_ranges ranges_;  // of each matrix
  bool is_matrix_;
  eval::sums_of_ranges squares_{};  // of the norms of weights and update
};

static_assert(std::tuple_size_v<nn::row_shares> == eval::value_ranges::most);

#ifdef TESSERA_BODY

TESSERA_BODY trust_ratios::trust_ratios(nn::any_parameter const& of) : is_matrix_(of.tensor.is_matrix()) {
  if (!is_matrix_) return;
  any_tensor const& w = of.tensor;
  ranges_.count = of.matrices();
  for (int i = 0; i < ranges_.count; ++i) {
    const auto line = int(ceil_div<std::int64_t>(of.row_end(i), w.block_rows()));
    ranges_.ends[std::size_t(i)] = eval::index_of(w.pattern()).blocks_before(line) * w.block_elements();
  }
}

TESSERA_BODY eval::range_numbers trust_ratios::factors(double rate,
                                                       function_ref<double(double, double)> ratio) const {
  std::array<double, eval::value_ranges::most> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto [w, update] = squares_[i];
    all[i] = rate * (is_matrix_ && w > 0 && update > 0 ? ratio(std::sqrt(w), std::sqrt(update)) : 1);
  }
  return {ranges_, all};
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
