// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/io/text.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/matrix_view.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/vectors.hpp>

// Tensors by their names out of files, converted from any dtype of numbers.

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// A file of tensors: safetensors_file, numpy_file.
template <class File>
concept tensor_file = requires(File const& file, std::string_view name) {
  { file.at(name) } -> std::same_as<safetensor const&>;
  file.fail("what is wrong");
};

/// A model in one or several safetensors files, as one.
class safetensors_files {
 public:
  /// Throws io_error if a file is not readable, or two of them have a tensor of one name.
  explicit safetensors_files(std::vector<std::string> const& paths) {
    if (paths.empty()) throw option_error("[read] no safetensors files are given");
    files_.reserve(paths.size());
    for (std::string const& path : paths) {
      safetensors_file const& file = files_.emplace_back(path);
      for (auto const& [name, tensor] : file.tensors())
        if (const auto [other, is_new] = file_of_.emplace(name, files_.size() - 1); !is_new)
          file.fail(message("tensor ", in_quotes(name), " is in ", files_[other->second].path(), ", too"));
    }
  }
  explicit safetensors_files(std::string const& path) : safetensors_files(std::vector{path}) {}

  std::span<safetensors_file const> files() const { return files_; }
  bool contains(std::string_view name) const { return file_of_.find(name) != file_of_.end(); }
  /// The file that holds a tensor. Throws io_error if none does.
  safetensors_file const& file_of(std::string_view name) const {
    if (const auto found = file_of_.find(name); found != file_of_.end()) return files_[found->second];
    if (files_.size() == 1) static_cast<void>(files_[0].at(name));  // names tensors that are there
    throw io_error(message("[read ", files_[0].path(), " and ", files_.size() - 1, " more] no tensor ",
                           in_quotes(name), " in any of these files"));
  }

 private:
  std::vector<safetensors_file> files_;
  std::map<std::string_view, std::size_t> file_of_;  // of each tensor, by its name in the file
};

/// How a matrix stands in a file: as (rows, cols), or as (cols, rows), like the weights of GPT-2.
enum class orientation { as_it_is, transposed };

namespace detail {

/// Throws io_error, with its dtype, for a tensor whose numbers are not read.
template <tensor_file File> void refuse_dtype(File const& file, safetensor const& tensor) {
  const std::string kind = kind_of_descr(tensor.dtype);
  file.fail(message("tensor ", in_quotes(tensor.name), " is ", in_quotes(tensor.dtype),
                    kind.empty() ? kind : ", " + kind, ": numbers of this dtype are not read"));
}

/// Calls visit(T()) with the type of the numbers of a dtype. Throws io_error if there is none.
template <tensor_file File, class Visit>
void with_type_of(File const& file, safetensor const& tensor, Visit&& visit) {
  bool known = false;
  const auto try_type = [&]<class T>(T) {
    if (known || tensor.dtype != dtype_name<T>()) return;
    known = true;
    visit(T());
  };
  try_type(float()), try_type(bfloat16()), try_type(float16()), try_type(double());
  try_type(float8_e4m3()), try_type(float8_e5m2());
  try_type(std::int64_t()), try_type(std::int32_t()), try_type(std::int16_t()), try_type(std::int8_t());
  try_type(std::uint64_t()), try_type(std::uint32_t()), try_type(std::uint16_t()), try_type(std::uint8_t());
  try_type(bool());
  if (!known) refuse_dtype(file, tensor);
}

template <tensor_file File>
void require_tensor(File const& file, safetensor const& tensor, std::vector<std::int64_t> const& shape) {
  if (dtype_bits(tensor.dtype) == 0) refuse_dtype(file, tensor);
  if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end()))
    file.fail(message("tensor ", in_quotes(tensor.name), " is ", tensor_text(tensor.dtype, tensor.shape),
                      " but should be ", tensor_text(tensor.dtype, shape)));
}

/// Throws io_error for a matrix of which nearly all rows and columns are empty: a few bytes of a file must
/// not make gigabytes of an index.
void require_plausible_size(auto const& file, std::int64_t rows, std::int64_t cols, std::size_t stored) {
  const std::int64_t most = (1 << 22) + 256 * std::int64_t(stored);
  if (rows > most || cols > most)
    file.fail(message("a matrix of ", rows, " rows and ", cols, " columns with only ", stored, " elements"));
}

/// Number i of a tensor, whose bytes need not be aligned, converted to To.
template <class From, class To> To number_at(std::byte const* bytes, std::int64_t i) {
  if constexpr (std::is_same_v<From, bool>) return static_cast<To>(bytes[i] != std::byte(0) ? 1.0f : 0.0f);
  From number;
  std::memcpy(&number, bytes + i * std::int64_t(sizeof(From)), sizeof(From));
  if constexpr (element<To> && std::is_integral_v<From>)
    return static_cast<To>(static_cast<accumulator_t<To>>(number));
  else
    return static_cast<To>(number);
}

/// Whether T holds exactly this number.
template <class T, class Number> bool is_held_by(Number number) {
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<Number, bool>)
    return double(number) == 0 || double(number) == 1;
  else if constexpr (std::is_integral_v<Number>)
    return std::in_range<T>(number);
  else
    return double(number) >= -std::ldexp(std::is_signed_v<T>, std::numeric_limits<T>::digits) &&
           double(number) < std::ldexp(1.0, std::numeric_limits<T>::digits) &&
           double(number) == std::trunc(double(number));
}

}  // namespace detail

/// All numbers of a tensor, row by row, converted to T. Throws io_error for a number that an integer T does
/// not hold.
template <class T, tensor_file File> std::vector<T> read_numbers(File const& file, std::string_view name) {
  safetensor const& tensor = file.at(name);
  std::vector<T> numbers;
  detail::with_type_of(file, tensor, [&]<class From>(From) {
    numbers.resize(tensor.bytes.size() / sizeof(From));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if constexpr (std::is_integral_v<T>)
        if (const auto number = detail::number_at<From, From>(tensor.bytes.data(), std::int64_t(i));
            !detail::is_held_by<T>(number))
          file.fail(message("number ", i, " of tensor ", in_quotes(tensor.name), " is ", double(number),
                            ", which an integer of ", sizeof(T), " bytes cannot be"));
      numbers[i] = detail::number_at<From, T>(tensor.bytes.data(), std::int64_t(i));
    }
  });
  return numbers;
}

/// Reads a tensor by its name and converts it. Throws io_error, before anything is changed, unless the tensor
/// is in the file with this shape.
///   a matrix       (rows, cols), or (cols, rows) if transposed; elements of absent blocks are left out
///   a vector       (size)
///   an activation  (tokens, features), as PyTorch has it
template <tensor_file File, element T, class Block>
void read(File const& file, std::string_view name, block_sparse_matrix<T, Block>& to,
          orientation stands = orientation::as_it_is) {
  safetensor const& tensor = file.at(name);
  const bool as_it_is = stands == orientation::as_it_is;
  const std::int64_t height = as_it_is ? to.rows() : to.cols(), width = as_it_is ? to.cols() : to.rows();
  detail::require_tensor(file, tensor, {height, width});
  const std::int64_t row_stride = as_it_is ? width : 1, col_stride = as_it_is ? 1 : width;
  detail::with_type_of(file, tensor, [&]<class From>(From) {
    to.generate([&](std::int64_t i, std::int64_t j) {
      return detail::number_at<From, T>(tensor.bytes.data(), i * row_stride + j * col_stride);
    });
  });
}
template <tensor_file File, element T, domain Axis>
void read(File const& file, std::string_view name, axis_vector<T, Axis>& to) {
  safetensor const& tensor = file.at(name);
  detail::require_tensor(file, tensor, {to.size()});
  detail::with_type_of(file, tensor, [&]<class From>(From) {
    for (std::int64_t i = 0; i < to.size(); ++i) to[i] = detail::number_at<From, T>(tensor.bytes.data(), i);
  });
}
template <tensor_file File, element T>
void read(File const& file, std::string_view name, panel_matrix<T>& to) {
  safetensor const& tensor = file.at(name);
  detail::require_tensor(file, tensor, {to.tokens(), to.features()});
  detail::with_type_of(file, tensor, [&]<class From>(From) {
    tessera::detail::for_each_element(
        to,
        [&](std::int64_t feature, std::int64_t token, T& value) {
          value = detail::number_at<From, T>(tensor.bytes.data(), token * to.features() + feature);
        },
        true);
  });
}

/// The same out of several files.
template <tensor Tensor, class... Orientation>
void read(safetensors_files const& files, std::string_view name, Tensor& to, Orientation... stands) {
  read(files.file_of(name), name, to, stands...);
}
template <class T> std::vector<T> read_numbers(safetensors_files const& files, std::string_view name) {
  return read_numbers<T>(files.file_of(name), name);
}

}}}  // namespace tessera::TESSERA_ISA::io
