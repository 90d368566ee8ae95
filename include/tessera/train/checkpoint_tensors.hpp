// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/eval/engines.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/matrix_view.hpp>
#include <tessera/train/optimizers/optimizer.hpp>

// The tensors of a checkpoint: their names, shapes and values in its file.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

inline constexpr char const* checkpoint_format = "tessera.checkpoint";
/// Version 1 had no checksums and no sizes of sparse matrices, version 2 no checksum of the header and no
/// architecture, version 3 nothing of visible blocks and residual connections, and no settings of a training.
inline constexpr int checkpoint_version = 4;

namespace detail {

/// Of a checkpoint of parameters alone.
struct no_optimizer {
  static constexpr std::array<char const*, 0> moments{};
};

/// What decides about the last bits of a model's results: the engines are those of its parameters, and of
/// the elements to which its layers round the factors of products.
template <class Model> std::string arithmetic_of_model(Model const& model, machine const& on) {
  std::set<std::string> engines;
  const auto add = [&](nn::parameter_name const&, auto const& of) {
    if constexpr (element<std::remove_cvref_t<decltype(of)>>) {
      using E = std::remove_cvref_t<decltype(of)>;
      engines.insert({engine_words<E>(on), engine_words<eval::multiplied_as<E, E>>(on)});
    }
  };
  nn::for_each_parameter(model, [&](nn::parameter_name const& name, auto const& parameter) {
    add(name, typename std::remove_cvref_t<decltype(parameter)>::value_type());
  });
  nn::for_each_setting(model, add);
  std::string words = arithmetic_of<>(on);
  for (std::string const& of_one : engines) words += of_one;
  return words;
}

/// The shape of a parameter or moment in the file; `stored` is the pattern of a matrix.
template <class Tensor>
std::vector<std::int64_t> shape_in_file(Tensor const& tensor, [[maybe_unused]] pattern const* stored) {
  if constexpr (!nn::is_matrix<Tensor>)
    return {tensor.size()};
  else if (stored->is_dense())
    return {tensor.rows(), tensor.cols()};
  else
    return {stored->blocks(), Tensor::block::rows, Tensor::block::cols};
}

/// The key of a matrix in the metadata, and its text: "24 x 20 in blocks of 4 x 4".
inline std::string matrix_key(std::string const& name) { return "tessera.matrix." + name; }
template <class Matrix> std::string matrix_text(Matrix const& matrix) {
  return message(matrix.rows(), " x ", matrix.cols(), " in blocks of ", Matrix::block::rows, " x ",
                 Matrix::block::cols);
}

/// Calls visit(name in the file, tensor) for a parameter, its master and its moments.
template <class Optimizer, class Model, class Visit, class Parameter, class... Its>
void for_each_tensor(Visit&& visit, std::string const& name, Parameter& parameter, Its&... its) {
  visit(name, parameter);
  std::size_t i = 0;
  (visit(name + "." + tensor_names<Optimizer, Model>[i++], its), ...);
}

/// Tensors that will be written to a file.
class outgoing_tensors {
 public:
  /// packed   numbers of blocks take 16 bits where they fit
  explicit outgoing_tensors(bool packed) : packed_(packed) {}

  template <class Tensor> void add(std::string name, Tensor const& tensor) {
    using T = typename Tensor::value_type;
    std::span<T const> values(tensor.begin(), tensor.end());
    std::vector<std::int64_t> shape;
    if constexpr (nn::is_matrix<Tensor>) {
      shape = shape_in_file(tensor, &tensor.pattern());
      if (tensor.pattern().is_dense()) {
        auto rows = std::make_shared<std::vector<T>>(static_cast<std::size_t>(tensor.rows() * tensor.cols()));
        copy(tensor, row_major(rows->data(), tensor.rows(), tensor.cols()));
        values = *rows;
        kept_.push_back(std::move(rows));
      }
    } else {
      shape = shape_in_file(tensor, nullptr);
    }
    list_.push_back(io::make_safetensor(std::move(name), std::move(shape), values));
  }
  template <class Matrix> void add_pattern(std::string const& name, Matrix const& matrix) {
    if (matrix.pattern().is_dense()) return;
    const auto starts = matrix.pattern().row_start(), cols = matrix.pattern().cols();
    list_.push_back(io::make_safetensor(name + ".pattern.row_start", {std::ssize(starts)}, starts));
    if (packed_ && matrix.pattern().block_cols() <= 1 << 16) {
      auto packed = std::make_shared<std::vector<std::uint16_t>>(cols.begin(), cols.end());
      list_.push_back(io::make_safetensor(name + ".pattern.cols", {std::ssize(*packed)},
                                          std::span<std::uint16_t const>(*packed)));
      kept_.push_back(std::move(packed));
    } else {
      list_.push_back(io::make_safetensor(name + ".pattern.cols", {std::ssize(cols)}, cols));
    }
    metadata[matrix_key(name)] = matrix_text(matrix);
  }
  std::span<io::safetensor const> all() const { return list_; }

  io::safetensors_metadata metadata = io::format_metadata(checkpoint_format, checkpoint_version);

 private:
  bool packed_;
  std::vector<io::safetensor> list_;
  std::vector<std::shared_ptr<void>> kept_;  // copies that live until they are written
};

}  // namespace detail

}}}  // namespace tessera::TESSERA_ISA::train
