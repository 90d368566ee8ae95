// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/tensor/any_tensor.hpp>

// Initial values. The value of an element is a function of the seed, the name of its parameter, its row and
// its column, and not of pattern or block shape: the weights of a sparse model start like the weights of the
// dense model.

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// A distribution of mean 0.
///   normal             with the given deviation
///   truncated_normal   normal, drawn again beyond two deviations
///   xavier             uniform within ±√(6 / (rows + cols)) (Glorot, Bengio 2010, eq. 16)
///   he                 normal with deviation √(2 / cols) (He et al. 2015, eq. 10)
enum class distribution { normal, truncated_normal, xavier, he };

/// Fills the stored blocks of a matrix. Throws shape_error if it is a vector.
///   parameter   name of the matrix in the model, the key of its random numbers
///   deviation   of the normal distributions
///   factor      multiplies all values
void initialise(any_tensor matrix, distribution from, std::uint64_t seed, random_key parameter,
                double deviation = 0.02, double factor = 1);

/// Initial values of a transformer as in GPT-2 (Radford et al. 2019, §2.3) and BERT, for every tensor that
/// its layers left at zero: matrices, frozen ones, too, are normal or truncated normal with deviation 0.02;
/// in the layers that end a residual branch (`attention.out` and `mlp.down` of a block) they are divided by
/// √(2 layers); a vector called `weight`, a gain, is 1. All others stay as their layers made them.
void initialise_transformer(mutable_parameter_list model, std::int64_t layers, std::uint64_t seed,
                            distribution from = distribution::normal, double deviation = 0.02);

/// Initial values by `start` of a configuration, in the same tensors; biases stay zero.
///   standard   as above
///   xavier     all matrices xavier, but the embeddings normal with deviation 1 ÷ √features
///   fixup      xavier and such embeddings. Of each of L residual branches the last matrix is zero, and the
///              matrices before it are multiplied by L^(-1 ÷ (2 m - 2)), where the branch has m: 2 in an MLP,
///              4 in attention, with Q, K and V (Zhang, Dauphin, Ma 2019, §3, and their transformer). Its
///              scalar biases are part of the biases of layers here. No output is zero: its weight is the
///              table of tokens
///   t_fixup    xavier, but V, `attention.out` and the matrices of MLPs are multiplied by 0.67 N^(-1 ÷ 4),
///              and the embeddings by (9 N)^(-1 ÷ 4), for N layers. This is the formula of an encoder, which
///              also a decoder without one takes (Huang et al. 2020, §3.2)
/// Q, K and V lie above each other. In xavier they are one matrix, so each is 1 ÷ √2 as large as it would be
/// alone; t_fixup takes V alone. A layer that is used twice counts as two layers.
void initialise_transformer(mutable_parameter_list model, transformer_config const& of, std::uint64_t seed,
                            distribution from = distribution::normal, double deviation = 0.02);

#ifdef TESSERA_BODY

namespace detail {

/// Fills a matrix as `initialise` does.
///   factor   of the values of a row
TESSERA_COLD TESSERA_BODY void fill_rows(any_tensor& matrix, distribution from, std::uint64_t seed,
                                         random_key parameter, double deviation,
                                         function_ref<double(std::int64_t)> factor) {
  if (!matrix.is_matrix()) throw shape_error("[initialise] fills matrices, and this is a vector");
  const double rows = static_cast<double>(matrix.rows()), cols = static_cast<double>(matrix.cols());
  const auto stream = [&](std::uint64_t attempt) {
    return random_stream(seed, random_purpose::initial_values, parameter, attempt);
  };
  const random_stream first = stream(0);
  const auto draw = [&](std::uint64_t i) {
    if (from == distribution::xavier) return (2 * first.uniform(i) - 1) * std::sqrt(6 / (rows + cols));
    if (from == distribution::he) return first.normal(i) * std::sqrt(2 / cols);
    double value = first.normal(i);
    if (from == distribution::truncated_normal)
      for (std::uint64_t attempt = 1; std::abs(value) > 2; ++attempt) value = stream(attempt).normal(i);
    return value * deviation;
  };
  std::vector<double> block(static_cast<std::size_t>(matrix.block_elements()));
  std::byte* to = matrix.data();
  matrix.pattern().for_each([&](int block_row, int block_col, std::int64_t) {
    std::size_t k = 0;
    for (int r = 0; r < matrix.block_rows(); ++r)
      for (int c = 0; c < matrix.block_cols(); ++c, ++k) {
        const std::int64_t i = std::int64_t(block_row) * matrix.block_rows() + r,
                           j = std::int64_t(block_col) * matrix.block_cols() + c;
        const bool inside = i < matrix.rows() && j < matrix.cols();
        block[k] =
            inside ? factor(i) * draw(std::uint64_t(i) * std::uint64_t(matrix.cols()) + std::uint64_t(j)) : 0;
      }
    matrix.element().from_double(block.data(), std::ssize(block), to);
    to += block.size() * matrix.element().bytes;
  });
}

inline bool ends_residual_branch(std::string const& name) {
  const std::string path = '.' + name;
  return path.find(".attention.out.") != path.npos || path.find(".mlp.down.") != path.npos;
}

inline bool is_part(std::string const& name, char const* part) {
  return ('.' + name).find(part) != std::string::npos;
}

/// Gives the tensors of a model that are zero values, its matrices by `fill`.
TESSERA_COLD TESSERA_BODY void fill_zeros(mutable_parameter_list& model,
                                          function_ref<void(any_parameter&, std::string const&)> fill) {
  const auto give_values = [&](any_parameter& each, std::string const& name) {
    if (!each.tensor.is_zero()) return;
    if (each.tensor.is_matrix())
      fill(each, name);
    else if (name == "weight" || name.ends_with(".weight"))
      each.tensor.set_values(std::vector<double>(static_cast<std::size_t>(each.tensor.size()), 1.0));
  };
  const std::vector<std::string> names = model.names(), frozen = model.frozen_names();
  for (std::size_t i = 0; i < model.size(); ++i) give_values(model[i], names[i]);
  for (std::size_t i = 0; i < frozen.size(); ++i) give_values(model.frozen()[i], frozen[i]);
}

/// What the values of a matrix are multiplied by, beside xavier: in all rows, and in the rows of V.
struct start_factors {
  double all = 1, of_v = 1;
};
TESSERA_COLD TESSERA_BODY start_factors factors_of(initial_values start, double layers, bool gated,
                                                   any_parameter const& each, std::string const& name) {
  const bool is_qkv = is_part(name, ".attention.qkv."), is_mlp = is_part(name, ".mlp."),
             ends = ends_residual_branch(name);
  if (start == initial_values::fixup) {
    const double branches = 2 * layers;
    if (ends) return {0, 0};
    const double all = is_qkv   ? std::pow(branches, -1.0 / 6)
                       : is_mlp ? std::pow(branches, gated ? -1.0 / 4 : -1.0 / 2)
                                : 1.0;
    return {all, all};
  }
  if (start != initial_values::t_fixup) return {};
  const double share = 0.67 * std::pow(layers, -0.25);
  if (is_qkv && each.matrices() == 3) {
    const std::int64_t rows = each.tensor.rows(), cols = each.tensor.cols(), of_v = rows - each.row_end(1);
    return {1, share * std::sqrt(static_cast<double>(rows + cols) / static_cast<double>(of_v + cols))};
  }
  if (ends || is_mlp) return {share, share};
  return {};
}

}  // namespace detail

TESSERA_BODY void initialise(any_tensor matrix, distribution from, std::uint64_t seed, random_key parameter,
                             double deviation, double factor) {
  detail::fill_rows(matrix, from, seed, parameter, deviation, [&](std::int64_t) { return factor; });
}

TESSERA_BODY void initialise_transformer(mutable_parameter_list model, std::int64_t layers,
                                         std::uint64_t seed, distribution from, double deviation) {
  detail::fill_zeros(model, [&](any_parameter& each, std::string const& name) {
    initialise(each.tensor, from, seed, name, deviation,
               detail::ends_residual_branch(name) ? 1 / std::sqrt(2.0 * static_cast<double>(layers)) : 1.0);
  });
}

TESSERA_COLD TESSERA_BODY void initialise_transformer(mutable_parameter_list model,
                                                      transformer_config const& of, std::uint64_t seed,
                                                      distribution from, double deviation) {
  if (of.start == initial_values::standard)
    return initialise_transformer(model, of.depth(), seed, from, deviation);
  const double layers = static_cast<double>(of.depth());
  const std::vector<std::string> names = model.names();
  const bool gated = std::any_of(names.begin(), names.end(),
                                 [](std::string const& name) { return detail::is_part(name, ".mlp.gate."); });
  detail::fill_zeros(model, [&](any_parameter& each, std::string const& name) {
    if (detail::is_part(name, "_embedding")) {
      const double narrowed = of.start == initial_values::t_fixup ? std::pow(9 * layers, -0.25) : 1.0;
      return initialise(each.tensor, distribution::normal, seed, name,
                        narrowed / std::sqrt(static_cast<double>(each.tensor.cols())));
    }
    const detail::start_factors factors = detail::factors_of(of.start, layers, gated, each, name);
    const std::int64_t first_of_v = each.matrices() == 3 ? each.row_end(1) : each.tensor.rows();
    if (factors.all != 0)
      detail::fill_rows(each.tensor, distribution::xavier, seed, name, 0,
                        [&](std::int64_t row) { return row < first_of_v ? factors.all : factors.of_v; });
  });
}

#endif

}}}  // namespace tessera::TESSERA_ISA::nn
