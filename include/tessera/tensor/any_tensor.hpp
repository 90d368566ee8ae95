// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/pattern_moves.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/tensor/vectors.hpp>

// Tensors whose types are known at run time alone. Code that treats all parameters of a model alike, and is
// no kernel, takes these, so that it is compiled once, and not for each model.

namespace tessera { inline namespace TESSERA_ISA {

/// The type of the numbers of a tensor.
struct element_type {
  char const* name;  // as in a safetensors file: "F32"
  std::size_t bytes;
  double epsilon;                   // of std::numeric_limits; 0 of integers
  element_type const* accumulator;  // its own address if sums are kept in it; null of integers
  void (*to_double)(void const* from, std::int64_t count, double* to);
  void (*from_double)(double const* from, std::int64_t count, void* to);  // rounds to nearest

  template <class T> bool is() const;
};

namespace detail {
template <class T> constexpr char const* element_name() {
  if constexpr (element<T>)
    return element_traits<T>::name;
  else {
    constexpr char const *is_signed[]{"I8", "I16", "I32", "I64"}, *is_unsigned[]{"U8", "U16", "U32", "U64"};
    return (std::is_signed_v<T> ? is_signed : is_unsigned)[std::countr_zero(sizeof(T))];
  }
}
template <class T> constexpr double element_epsilon() {
  if constexpr (element<T>)
    return static_cast<double>(std::numeric_limits<T>::epsilon());
  else
    return 0;
}
template <class T> constexpr element_type const* element_accumulator();
template <class T> void widen_elements(void const* from, std::int64_t count, double* to) {
  std::transform(static_cast<T const*>(from), static_cast<T const*>(from) + count, to, [](T value) {
    if constexpr (element<T>)
      return static_cast<double>(accumulator_t<T>(value));
    else
      return static_cast<double>(value);
  });
}
template <class T> void round_elements(double const* from, std::int64_t count, void* to) {
  std::transform(from, from + count, static_cast<T*>(to), [](double value) { return static_cast<T>(value); });
}
}  // namespace detail

/// The one of an element or an integer. Compared by address within a program, by name between them.
template <class T>
inline constexpr element_type element_type_of{detail::element_name<T>(),    sizeof(T),
                                              detail::element_epsilon<T>(), detail::element_accumulator<T>(),
                                              &detail::widen_elements<T>,   &detail::round_elements<T>};

namespace detail {
template <class T> constexpr element_type const* element_accumulator() {
  if constexpr (element<T>)
    return &element_type_of<accumulator_t<T>>;
  else
    return nullptr;
}
}  // namespace detail

template <class T> bool element_type::is() const { return this == &element_type_of<T>; }

/// Refers to a vector or a block-sparse matrix, which must live longer. As of a pointer, a copy refers to the
/// same tensor; one that is const gives no access that changes it.
class any_tensor {
 public:
  template <element T, class Block>
  any_tensor(block_sparse_matrix<T, Block>& of) : tensor_(&of), type_(&type_of_matrix<T, Block>) {}
  template <element T, domain Axis>
  any_tensor(axis_vector<T, Axis>& of) : tensor_(&of), type_(&type_of_vector<T, Axis>) {}

  element_type const& element() const { return *type_->element; }
  bool is_matrix() const { return type_->set_pattern != nullptr; }
  /// Whether all its values are zero.
  bool is_zero() const {
    std::byte const* const first = data();
    const std::size_t bytes = size_bytes();
    return bytes == 0 || (first[0] == std::byte() && std::equal(first + 1, first + bytes, first));
  }
  /// Of a vector: its size, and 1.
  std::int64_t rows() const { return type_->look(tensor_).rows; }
  std::int64_t cols() const { return type_->look(tensor_).cols; }
  /// Of a block; of a vector 1.
  int block_rows() const { return type_->block_rows; }
  int block_cols() const { return type_->block_cols; }
  int block_elements() const { return type_->block_rows * type_->block_cols; }
  /// Of a matrix.
  tessera::pattern const& pattern() const { return *type_->look(tensor_).stored; }
  /// Stored values: block by block in the order of the pattern, each row by row, overhanging ones included.
  std::int64_t size() const { return type_->look(tensor_).size; }
  std::size_t size_bytes() const { return std::size_t(size()) * element().bytes; }
  std::byte* data() { return type_->look(tensor_).data; }
  std::byte const* data() const { return type_->look(tensor_).data; }
  /// The values, if they are of this element.
  template <class T> T* data() { return reinterpret_cast<T*>(data()); }
  template <class T> T const* data() const { return reinterpret_cast<T const*>(data()); }
  /// All stored values as double.
  std::vector<double> values() const;
  /// Rounds them. Throws shape_error unless there are as many numbers as are stored.
  void set_values(std::span<double const> all);
  /// Takes the values of a tensor of the same size, block and element, to the bit; the other matrix must
  /// store all blocks that are stored here, and its other blocks are left out. Throws shape_error otherwise.
  void assign(any_tensor const& from);
  /// Leaves it as one that was not given a size: without rows and values.
  void drop() { reset_to(0, 0, tessera::pattern()); }
  /// Makes it zeros of the size of another tensor of its kind, of any element, and on its pattern.
  void reset_like(any_tensor const& other) {
    reset_to(other.rows(), other.cols(), other.is_matrix() ? other.pattern() : tessera::pattern());
  }
  /// Makes it a matrix of its size and of another pattern over the values of another owner, who keeps them
  /// for longer. Throws as block_sparse_matrix::over.
  void borrow(std::span<std::byte> lent, tessera::pattern const& stored) {
    type_->borrow(tensor_, lent, stored);
  }
  /// Whether values begin and end at multiples of 64 bytes.
  static bool can_borrow(std::span<std::byte const> lent) {
    constexpr std::size_t alignment = aligned_array<std::byte>::alignment;
    return reinterpret_cast<std::uintptr_t>(lent.data()) % alignment == 0 && lent.size() % alignment == 0;
  }
  /// Identifies the tensor.
  void const* address() const { return tensor_; }

  // Of a matrix:

  /// block_norms and block_sums of its blocks.
  std::vector<double> block_norms(block_norm kind) const { return type_->norms(tensor_, kind); }
  std::vector<double> block_sums() const { return type_->sums(tensor_); }
  /// A mark for each slot: 1 for the `count` blocks of least norm, as `weakest` chooses.
  std::vector<char> weakest_blocks(std::int64_t count, block_norm kind = block_norm::l1) const {
    return type_->weakest(tensor_, count, kind);
  }
  /// As block_sparse_matrix::set_pattern.
  void set_pattern(tessera::pattern const& stored) { type_->set_pattern(tensor_, stored, nullptr); }
  void set_pattern(tessera::pattern const& stored, pattern_moves const& moves) {
    type_->set_pattern(tensor_, stored, &moves);
  }
  /// Zeros on another pattern of its grid.
  void reset(tessera::pattern const& stored) { reset_to(rows(), cols(), stored); }

 private:
  struct place {
    std::byte* data;
    std::int64_t size, rows, cols;
    tessera::pattern const* stored;
  };
  struct tensor_type {
    element_type const* element;
    int block_rows, block_cols;
    place (*look)(void* tensor);
    void (*assign)(void* tensor, void const* from);
    void (*reset)(void* tensor, std::int64_t rows, std::int64_t cols, tessera::pattern const&);
    void (*set_pattern)(void* tensor, tessera::pattern const&, pattern_moves const*) = nullptr;
    void (*borrow)(void* tensor, std::span<std::byte> lent, tessera::pattern const&) = nullptr;
    std::vector<double> (*norms)(void const* tensor, block_norm) = nullptr;
    std::vector<double> (*sums)(void const* tensor) = nullptr;
    std::vector<char> (*weakest)(void const* tensor, std::int64_t, block_norm) = nullptr;
  };
  template <class Tensor> static place look_at(void* tensor) {
    Tensor& of = *static_cast<Tensor*>(tensor);
    const auto data = reinterpret_cast<std::byte*>(of.data());
    if constexpr (Tensor::laid_over == domain::blocks)
      return {data, of.size(), of.rows(), of.cols(), &of.pattern()};
    else
      return {data, of.size(), of.size(), 1, nullptr};
  }
  template <class Tensor> static void assign_from(void* tensor, void const* from) {
    Tensor copy = *static_cast<Tensor const*>(from);
    Tensor& to = *static_cast<Tensor*>(tensor);
    if constexpr (Tensor::laid_over == domain::blocks) {
      if ((to.pattern() - copy.pattern()).blocks() > 0)
        throw shape_error("[assign] the other matrix has not all blocks that are stored here");
      copy.set_pattern(to.pattern());
    }
    to = std::move(copy);
  }
  void reset_to(std::int64_t rows, std::int64_t cols, tessera::pattern const& stored) {
    type_->reset(tensor_, rows, cols, stored);
  }
  template <class Tensor>
  static void reset_tensor(void* tensor, std::int64_t rows, [[maybe_unused]] std::int64_t cols,
                           [[maybe_unused]] tessera::pattern const& stored) {
    Tensor& of = *static_cast<Tensor*>(tensor);
    if constexpr (Tensor::laid_over == domain::blocks)
      of = Tensor(rows, cols, stored);
    else
      of = Tensor(rows);
  }
  template <class T, domain Axis>
  static constexpr tensor_type type_of_vector{&element_type_of<T>,
                                              1,
                                              1,
                                              &look_at<axis_vector<T, Axis>>,
                                              &assign_from<axis_vector<T, Axis>>,
                                              &reset_tensor<axis_vector<T, Axis>>};
  template <class T, class Block>
  static constexpr tensor_type type_of_matrix{
      &element_type_of<T>,
      Block::rows,
      Block::cols,
      &look_at<block_sparse_matrix<T, Block>>,
      &assign_from<block_sparse_matrix<T, Block>>,
      &reset_tensor<block_sparse_matrix<T, Block>>,
      [](void* tensor, tessera::pattern const& stored, pattern_moves const* moves) {
        auto& of = *static_cast<block_sparse_matrix<T, Block>*>(tensor);
        moves ? of.set_pattern(stored, *moves) : of.set_pattern(stored);
      },
      [](void* tensor, std::span<std::byte> lent, tessera::pattern const& stored) {
        auto& of = *static_cast<block_sparse_matrix<T, Block>*>(tensor);
        const std::span<T> values(reinterpret_cast<T*>(lent.data()), lent.size() / sizeof(T));
        of = block_sparse_matrix<T, Block>::over(values, of.rows(), of.cols(), stored);
      },
      [](void const* tensor, block_norm kind) {
        const auto norms =
            tessera::block_norms(*static_cast<block_sparse_matrix<T, Block> const*>(tensor), kind);
        return std::vector<double>(norms.begin(), norms.end());
      },
      [](void const* tensor) {
        return tessera::block_sums(*static_cast<block_sparse_matrix<T, Block> const*>(tensor));
      },
      [](void const* tensor, std::int64_t count, block_norm kind) {
        const auto norms =
            tessera::block_norms(*static_cast<block_sparse_matrix<T, Block> const*>(tensor), kind);
        return weakest(std::span(norms), count);
      }};

  void* tensor_;
  tensor_type const* type_;
};

/// Calls visit(values) with the stored values of a tensor, a feature_vector of its element: for statements
/// over stored values. Throws option_error for elements of 8 bits.
template <class Visit> void visit_values(any_tensor const& of, Visit&& visit) {
  const auto visited = [&]<class T>(T) {
    if (!of.element().is<T>()) return false;
    const auto values = feature_vector<T>::of_values(const_cast<T*>(of.data<T>()), of.size());
    visit(values);
    return true;
  };
  if (!(visited(float()) || visited(double()) || visited(bfloat16()) || visited(float16())))
    throw option_error(message("[visit_values] no statement computes with values of ", of.element().name));
}

/// Calls visit(value, row, col) for the stored values of a tensor that are no overhang, in the order of
/// memory; `value` points to the bytes of one. Of a vector, the column is 0.
///   begin   of its values, or of as many others of `bytes` bytes each
template <class Byte, class Visit>
void for_each_value(any_tensor const& of, Byte* begin, std::size_t bytes, Visit&& visit) {
  if (!of.is_matrix()) {
    for (std::int64_t i = 0; i < of.size(); ++i) visit(begin + std::size_t(i) * bytes, i, std::int64_t(0));
    return;
  }
  const std::int64_t height = of.block_rows(), width = of.block_cols();
  of.pattern().for_each([&](int block_row, int block_col, std::int64_t slot) {
    const std::int64_t row = block_row * height, col = block_col * width;
    for (std::int64_t r = 0; r < std::min(height, of.rows() - row); ++r)
      for (std::int64_t c = 0; c < std::min(width, of.cols() - col); ++c)
        visit(begin + std::size_t(slot * height * width + r * width + c) * bytes, row + r, col + c);
  });
}

#ifdef TESSERA_BODY

TESSERA_BODY std::vector<double> any_tensor::values() const {
  std::vector<double> all(static_cast<std::size_t>(size()));
  element().to_double(data(), size(), all.data());
  return all;
}

TESSERA_BODY void any_tensor::set_values(std::span<double const> all) {
  if (std::ssize(all) != size())
    throw shape_error(message("[set_values] ", all.size(), " numbers for ", size(), " stored values"));
  element().from_double(all.data(), size(), data());
}

TESSERA_BODY void any_tensor::assign(any_tensor const& from) {
  if (type_ != from.type_ || rows() != from.rows() || cols() != from.cols())
    throw shape_error(message("[assign] ", rows(), " x ", cols(), " of ", element().name, " from ",
                              from.rows(), " x ", from.cols(), " of ", from.element().name));
  type_->assign(tensor_, from.tensor_);
}

#endif

}}  // namespace tessera::TESSERA_ISA
