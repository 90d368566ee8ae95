// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>

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

/// Fills the stored blocks of a matrix.
///   parameter   name of the matrix in the model, the key of its random numbers
///   deviation   of the normal distributions
///   factor      multiplies all values
template <element T, class Block>
void initialise(block_sparse_matrix<T, Block>& matrix, distribution from, std::uint64_t seed,
                random_key parameter, double deviation = 0.02, double factor = 1) {
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
  matrix.generate([&](std::int64_t i, std::int64_t j) {
    return factor * draw(std::uint64_t(i) * std::uint64_t(matrix.cols()) + std::uint64_t(j));
  });
}

/// Initial values of a transformer as in GPT-2 (Radford et al. 2019, §2.3) and BERT: matrices are normal or
/// truncated normal with deviation 0.02; matrices at the end of a residual branch (`…out.weight`,
/// `…down.weight`) are divided by √(2 layers); gains are 1, biases 0. Coefficients of
/// slimmable layers are 1.
template <class Model>
void initialise_transformer(Model& model, std::int64_t layers, std::uint64_t seed,
                            distribution from = distribution::normal, double deviation = 0.02) {
  for_each_parameter(model, [&](parameter_name const& name, auto& parameter) {
    using T = typename std::remove_cvref_t<decltype(parameter)>::value_type;
    const std::string text = name.text();
    if constexpr (requires { parameter.pattern(); }) {
      const bool ends_branch = text.ends_with(".out.weight") || text.ends_with(".down.weight");
      initialise(parameter, from, seed, text, deviation,
                 ends_branch ? 1 / std::sqrt(2.0 * static_cast<double>(layers)) : 1.0);
    } else {
      const bool multiplies = name.last() == "weight" || name.last() == "coefficients";
      std::ranges::fill(parameter, multiplies ? T(1) : T(0));
    }
  });
}

}}}  // namespace tessera::TESSERA_ISA::nn
