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

/// A description of a computation, built by operators; building one computes nothing.
template <class T>
concept node = requires { typename std::remove_cvref_t<T>::node_tag; };

/// What may stand in an expression.
template <class T>
concept expression = tensor<T> || node<T>;

/// What may be assigned to an activation or a vector: a description, or a number for all of its values.
template <class T>
concept node_or_number = node<T> || std::is_arithmetic_v<T>;

}}  // namespace tessera::TESSERA_ISA
