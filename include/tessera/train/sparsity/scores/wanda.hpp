// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/vectors.hpp>
#include <tessera/train/sparsity/scores/prune.hpp>

// Pruning of a trained model by its weights and their inputs: Wanda (Sun et al. 2024, arXiv 2306.11695).
//
//   train::input_squares seen(model);
//   nn::any_pass p{ctx, nn::purpose::evaluation};
//   p.layer_inputs = {seen, nn::parameter_list(model)};
//   … forwards of a few texts with p …
//   train::prune(model, 0.5, train::wanda_scores(model, seen), train::pruning_scope::each_matrix);

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// An observer of inputs that sums, for each input feature of each weight, the squares over all tokens that
/// it sees.
class input_squares {
 public:
  explicit input_squares(nn::parameter_list const& model) : of_(model.size()) {}

  template <element T> void operator()(context& ctx, std::size_t number, panel_matrix<T> const& x) {
    feature_vector<accumulator_t<T>> sums(x.features());
    run(ctx, sums = sum_tokens(x * x));
    add(number, std::vector<double>(sums.begin(), sums.end()));
  }
  /// Of the input features of a weight, by its number; empty if it saw none.
  std::vector<double> const& of(std::size_t number) const { return of_.at(number); }

 private:
  void add(std::size_t number, std::vector<double> const& squares);

  std::vector<std::vector<double>> of_;
};

/// Scores of Wanda: the mean over each stored block of |w| ‖x‖, where ‖x‖ is the norm, over the tokens seen,
/// of the input feature that a weight multiplies. The paper compares single weights within a row; blocks
/// compete within their matrix by pruning_scope::each_matrix.
///   Throws option_error for a weight whose inputs were not seen.
std::vector<double> wanda_scores(nn::parameter_list const& model, input_squares const& seen);

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void input_squares::add(std::size_t number, std::vector<double> const& squares) {
  std::vector<double>& all = of_.at(number);
  if (all.empty()) all.resize(squares.size());
  for (std::size_t i = 0; i < squares.size(); ++i) all[i] += squares[i];
}

TESSERA_BODY std::vector<double> wanda_scores(nn::parameter_list const& model, input_squares const& seen) {
  std::vector<double> scores;
  for (const auto [i, number] : evolving_weights(model, true)) {
    any_tensor const& w = model[i].tensor;
    std::vector<double> norms = seen.of(i);
    if (norms.empty())
      throw option_error(message("[wanda_scores] no input of ", model.name(i),
                                 " was seen: give passes the observer, p.layer_inputs = {seen, model}"));
    for (double& norm : norms) norm = std::sqrt(norm);
    const std::int64_t width = w.block_cols(), elements = w.block_elements();
    norms.resize(std::size_t(std::int64_t{w.pattern().block_cols()} * width));  // 0 of an overhang
    const std::vector<double> values = w.values();
    w.pattern().for_each([&](int, int col, std::int64_t slot) {
      double sum = 0;
      for (std::int64_t k = 0; k < elements; ++k)
        sum +=
            std::abs(values[std::size_t(slot * elements + k)]) * norms[std::size_t(col * width + k % width)];
      scores.push_back(sum / double(elements));
    });
  }
  return scores;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
