// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <type_traits>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// How a tensor or an expression is laid over features and tokens.
enum class domain {
  number,    // one value
  features,  // one value for each feature
  tokens,    // one value for each token
  panels,    // one value for each feature and token
  blocks,    // a matrix: its stored blocks, and zeros elsewhere
  values,    // the stored values of a matrix alone
};

/// A tensor: something with memory that an expression can read, and an assignment can write.
template <class T>
concept tensor = requires { typename std::remove_cvref_t<T>::tensor_tag; };

/// A tensor that is a part of another one, and does not own its memory: expressions keep it by value, and an
/// assignment writes to the other tensor.
template <class T>
concept tensor_view = tensor<T> && requires { typename std::remove_cvref_t<T>::view_tag; };

/// A description of a computation, built by operators; building one computes nothing.
template <class T>
concept node = requires { typename std::remove_cvref_t<T>::node_tag; };

/// An operand of an expression.
template <class T>
concept expression = tensor<T> || node<T>;

/// A tensor with rows and columns exchanged: a factor of a product, and no expression by itself.
template <class T>
concept transposition = requires { typename std::remove_cvref_t<T>::transpose_tag; };

/// The right side of `=`: a description, a view, or a number for all values. `assign` refuses a
/// transposition, and a number for a matrix, with a message that gives the right statement.
template <class T>
concept assigned = node<T> || transposition<T> || tensor_view<T> || std::is_arithmetic_v<T>;

}}  // namespace tessera::TESSERA_ISA
