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
#include <tessera/core/random.hpp>
#include <tessera/nn/parameter_list.hpp>
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

#ifdef TESSERA_BODY

TESSERA_BODY void initialise(any_tensor matrix, distribution from, std::uint64_t seed, random_key parameter,
                             double deviation, double factor) {
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
            inside ? factor * draw(std::uint64_t(i) * std::uint64_t(matrix.cols()) + std::uint64_t(j)) : 0;
      }
    matrix.element().from_double(block.data(), std::ssize(block), to);
    to += block.size() * matrix.element().bytes;
  });
}

namespace detail {

inline bool is_zero(any_tensor const& tensor) {  // 0 of every element has the bits 0
  std::byte const* const first = tensor.data();
  const std::size_t bytes = tensor.size_bytes();
  return bytes == 0 || (first[0] == std::byte() && std::equal(first + 1, first + bytes, first));
}

inline bool ends_residual_branch(std::string const& name) {
  const std::string path = '.' + name;
  return path.find(".attention.out.") != path.npos || path.find(".mlp.down.") != path.npos;
}

}  // namespace detail

TESSERA_BODY void initialise_transformer(mutable_parameter_list model, std::int64_t layers,
                                         std::uint64_t seed, distribution from, double deviation) {
  const auto give_values = [&](any_tensor& tensor, std::string const& name) {
    if (!detail::is_zero(tensor)) return;
    if (tensor.is_matrix())
      initialise(tensor, from, seed, name, deviation,
                 detail::ends_residual_branch(name) ? 1 / std::sqrt(2.0 * static_cast<double>(layers)) : 1.0);
    else if (name == "weight" || name.ends_with(".weight"))
      tensor.set_values(std::vector<double>(static_cast<std::size_t>(tensor.size()), 1.0));
  };
  const std::vector<std::string> names = model.names(), frozen = model.frozen_names();
  for (std::size_t i = 0; i < model.size(); ++i) give_values(model[i].tensor, names[i]);
  for (std::size_t i = 0; i < frozen.size(); ++i) give_values(model.frozen()[i].tensor, frozen[i]);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::nn
