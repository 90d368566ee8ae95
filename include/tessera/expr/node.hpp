// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/tensor/pattern.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace expr {

constexpr bool of_matrix(domain d) { return d == domain::blocks || d == domain::values; }

/// The size of an expression; -1 where it takes any.
struct extent {
  std::int64_t features = -1, tokens = -1;  // of activations and vectors
  std::int64_t rows = -1, cols = -1;        // of matrices
  std::int64_t block_rows = -1, block_cols = -1;
  pattern const* stored = nullptr;
};
inline constexpr struct {
  char const* name;
  std::int64_t extent::* size;
} extent_sizes[] = {{"features", &extent::features},
                    {"tokens", &extent::tokens},
                    {"rows", &extent::rows},
                    {"columns", &extent::cols},
                    {"rows in a block", &extent::block_rows},
                    {"columns in a block", &extent::block_cols}};

/// The size of a tensor, and of a matrix its pattern, by which it is known that it has not changed.
struct tensor_size {
  std::int64_t rows, cols;
  std::uint64_t pattern;

  template <class Tensor> static tensor_size of(Tensor const& tensor) {
    if constexpr (requires { tensor.pattern(); })
      return {tensor.rows(), tensor.cols(), tensor.pattern().serial()};
    else if constexpr (of_matrix(Tensor::laid_over))
      return {tensor.rows(), tensor.cols(), 0};
    else
      return {tensor.features(), tensor.tokens(), 0};
  }
  friend bool operator==(tensor_size const&, tensor_size const&) = default;
};

[[noreturn]] void throw_changed(tensor_size const& built, tensor_size const& now);
inline void require_unchanged(tensor_size const& built, tensor_size const& now) {
  if (!(built == now)) throw_changed(built, now);
}

/// A tensor in an expression: by reference when it has a name, by value when it is temporary or a view.
/// `tensor` throws shape_error if a referenced one has another size or pattern than when the expression was
/// written. A matrix in N:M sparsity, which is a factor of products alone, is referred to like one.
template <class Tensor> struct by_reference {
  using node_tag = void;
  using tensor_type = Tensor;
  using value_type = typename Tensor::value_type;
  static constexpr domain laid_over = Tensor::laid_over;
  Tensor const* address;
  tensor_size built;

  explicit by_reference(Tensor const& tensor) : address(&tensor), built(tensor_size::of(tensor)) {}
  Tensor const& tensor() const {
    require_unchanged(built, tensor_size::of(*address));
    return *address;
  }
};
template <tensor Tensor> struct by_value {
  using node_tag = void;
  using tensor_type = Tensor;
  using value_type = typename Tensor::value_type;
  static constexpr domain laid_over = Tensor::laid_over;
  Tensor copy;
  Tensor const& tensor() const { return copy; }
};
template <class Node>
concept leaf = requires { typename Node::tensor_type; };

/// A number in an expression.
struct number {
  using node_tag = void;
  using value_type = void;  // that of its neighbours
  static constexpr domain laid_over = domain::number;
  double value;
};

/// An operand as an expression keeps it. Nodes are always kept by value, so `auto` is safe; a local, which is
/// the one node that has an identity, is kept by reference.
template <class T> constexpr auto hold(T&& operand) {
  using bare = std::remove_cvref_t<T>;
  if constexpr (std::is_arithmetic_v<bare>)
    return number{static_cast<double>(operand)};
  else if constexpr (tensor_view<bare>)
    return by_value<bare>{operand};
  else if constexpr (tensor<bare> && std::is_lvalue_reference_v<T>)
    return by_reference<bare>(operand);
  else if constexpr (tensor<bare>)
    return by_value<bare>{std::forward<T>(operand)};
  else if constexpr (requires { typename bare::local_tag; })
    return operand.reference();
  else
    return bare(std::forward<T>(operand));
}
template <class T> using held = decltype(hold(std::declval<T>()));

/// An expression, or a number beside one.
template <class T>
concept operand = expression<T> || std::is_arithmetic_v<std::remove_cvref_t<T>>;

inline extent extent_of(number const&) { return {}; }
template <leaf Leaf> extent extent_of(Leaf const& leaf) {
  extent size;
  if constexpr (of_matrix(Leaf::laid_over)) {
    size.rows = leaf.tensor().rows();
    size.cols = leaf.tensor().cols();
    if constexpr (requires { leaf.tensor().pattern(); }) {
      size.block_rows = Leaf::tensor_type::block::rows;
      size.block_cols = Leaf::tensor_type::block::cols;
      size.stored = &leaf.tensor().pattern();
    }
  } else {
    size.features = leaf.tensor().features();
    size.tokens = leaf.tensor().tokens();
  }
  return size;
}
template <class Node>
  requires requires(Node const& n) { n.size(); }
extent extent_of(Node const& node) {
  return node.size();
}

/// The common size of two operands of an elementwise operation; shape_error if there is none.
extent join(const char* operation, extent const& a, extent const& b);

/// Where the result of an elementwise operation on two operands lies.
constexpr domain join(domain a, domain b) {
  if (a == b || b == domain::number) return a;
  if (a == domain::number) return b;
  return of_matrix(a) || of_matrix(b) ? domain::values : domain::panels;
}
constexpr bool combine(domain a, domain b) {
  return a == domain::number || b == domain::number || of_matrix(a) == of_matrix(b);
}

// What a message about elements with two accumulators advises.
#define TESSERA_ONE_ACCUMULATOR                                                                            \
  "bring them to one, since sums are float for some and double for others: before the run, an activation " \
  "by `copy(xd, x)`, a matrix by `block_sparse_matrix<float, Block> w(wd)`, a vector by "                  \
  "`feature_vector<float> b(bd)`"

/// The type that an operation on these elements computes in: the accumulator they share. `void` is a
/// number's; `mixed` if there are two.
struct mixed {};
template <class T> struct computed_in {
  using type = T;
};
template <element T> struct computed_in<T> {
  using type = accumulator_t<T>;
};
template <class...> struct common_value {
  using type = void;
};
template <class Head, class... Rest> struct common_value<Head, Rest...> {
  using first = typename computed_in<Head>::type;
  using rest = typename common_value<Rest...>::type;
  using type = std::conditional_t<std::is_void_v<first> || std::is_same_v<first, rest>, rest,
                                  std::conditional_t<std::is_void_v<rest>, first, mixed>>;
};

template <class T>
concept activation = expression<T> && held<T>::laid_over == domain::panels;
template <class T>
concept matrix = tensor<T> && std::remove_cvref_t<T>::laid_over == domain::blocks;

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void throw_changed(tensor_size const& built, tensor_size const& now) {
  if (built.rows == now.rows && built.cols == now.cols)
    throw shape_error(
        message("[run] the pattern of a matrix (", now.rows, ", ", now.cols,
                ") has changed since the statement was written: write the statement behind the change"));
  throw shape_error(message("[run] a tensor of the statement was (", built.rows, ", ", built.cols,
                            ") when the statement was written and is (", now.rows, ", ", now.cols,
                            ") now: write the statement behind the change"));
}

TESSERA_COLD TESSERA_BODY extent join(const char* operation, extent const& a, extent const& b) {
  extent both;
  for (auto const& [name, size] : extent_sizes) {
    if (a.*size >= 0 && b.*size >= 0 && a.*size != b.*size)
      throw shape_error(message("[", operation, "] the left side has ", a.*size, " ", name, " but the right ",
                                "side has ", b.*size, a.*size && b.*size ? "" : ": is it in saved::parts?"));
    both.*size = a.*size >= 0 ? a.*size : b.*size;
  }
  both.stored = a.stored ? a.stored : b.stored;
  if (a.stored && b.stored && !(*a.stored == *b.stored))
    throw shape_error(message("[", operation, "] the matrices store different blocks (",
                              a.stored->blocks() == b.stored->blocks()
                                  ? message("as many, ", a.stored->blocks(), ", at other places")
                                  : message(a.stored->blocks(), " and ", b.stored->blocks()),
                              "): bring both to one pattern with set_pattern"));
  return both;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::expr
