// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/expr/map.hpp>
#include <tessera/expr/node.hpp>

namespace tessera { inline namespace TESSERA_ISA {
namespace expr {

/// Op folded over the features of each token.
template <class Op, class Argument> struct feature_reduction {
  using node_tag = void;
  using value_type = typename Argument::value_type;
  static constexpr domain laid_over = domain::tokens;
  Argument argument;
  extent size() const { return {-1, extent_of(argument).tokens}; }
};

/// A sum over the tokens for each feature, in an order that does not depend on threads.
template <class Argument> struct token_sum {
  using node_tag = void;
  using value_type = typename Argument::value_type;
  static constexpr domain laid_over = domain::features;
  Argument argument;
  extent size() const { return {extent_of(argument).features, -1}; }
};

/// A value that is computed once per panel and never stored.
template <class Argument> struct local_value {
  using node_tag = void;
  using local_tag = void;
  using value_type = typename Argument::value_type;
  static constexpr domain laid_over = Argument::laid_over;
  Argument argument;

  explicit local_value(Argument of) : argument(std::move(of)) {}
  local_value(local_value const&) = delete;
  local_value& operator=(local_value const&) = delete;

  struct reference_type {
    using node_tag = void;
    using value_type = typename Argument::value_type;
    static constexpr domain laid_over = Argument::laid_over;
    local_value const* address;
    extent size() const { return extent_of(address->argument); }
  };
  reference_type reference() const { return {this}; }
  extent size() const { return extent_of(argument); }
};

/// A name as a template argument.
template <std::size_t Size> struct value_name {
  char text[Size];
  consteval value_name(char const (&name)[Size]) { std::copy_n(name, Size, text); }
  template <std::size_t Other> constexpr bool operator==(value_name<Other> const& other) const {
    return std::equal(text, text + Size, other.text, other.text + Other);
  }
};

/// A value that stands in several places of a statement and is computed once.
template <value_name Name, class Value> struct named_value {
  using node_tag = void;
  using value_type = typename Value::value_type;
  static constexpr domain laid_over = Value::laid_over;
  Value value;
  extent size() const { return extent_of(value); }
};

template <class T>
concept over_tokens =
    expression<T> && (held<T>::laid_over == domain::panels || held<T>::laid_over == domain::tokens);

}  // namespace expr

/// The sum over the features, for each token.
template <expr::activation Operand> auto sum_features(Operand&& x) {
  return expr::feature_reduction<ops::add, expr::held<Operand>>{expr::hold(std::forward<Operand>(x))};
}

/// The mean over the features, for each token.
template <expr::activation Operand> auto mean_features(Operand&& x) {
  auto sum = sum_features(std::forward<Operand>(x));
  return sum * (1.0 / static_cast<double>(expr::extent_of(sum.argument).features));
}

/// The largest value over the features, for each token.
template <expr::activation Operand> auto max_features(Operand&& x) {
  return expr::feature_reduction<ops::maximum, expr::held<Operand>>{expr::hold(std::forward<Operand>(x))};
}

/// e^x divided by its sum over the features, for each token, by the largest x so that nothing overflows
/// (Goodfellow et al. 2016, §4.1). Reads x three times.
template <expr::activation Operand> auto softmax_features(Operand&& x) {
  const auto held = expr::hold(std::forward<Operand>(x));
  const auto power = exp(held - max_features(held));
  return power / sum_features(power);
}

/// The sum over the tokens, for each feature: for a feature_vector on the left of `=` or `+=`.
template <expr::activation Operand> auto sum_tokens(Operand&& x) {
  return expr::token_sum<expr::held<Operand>>{expr::hold(std::forward<Operand>(x))};
}

/// The mean over the tokens, for each feature.
template <expr::activation Operand> auto mean_tokens(Operand&& x) {
  const std::int64_t tokens = expr::extent_of(expr::hold(x)).tokens;
  return sum_tokens(std::forward<Operand>(x) * (1.0 / static_cast<double>(tokens)));
}

/// Names an elementwise value that stands in several places of one statement, or of the reductions of one
/// pass: it is computed once for each register. Without a name it would be computed at each place, because
/// whether two tensors are one is known only when the statement runs.
/// `const auto n = named<"n">((x - mean) * scale);`
template <expr::value_name Name, expression Operand> auto named(Operand&& x) {
  return expr::named_value<Name, expr::held<Operand>>{expr::hold(std::forward<Operand>(x))};
}

/// Names a value that several statements of one run use and nobody wants stored: it is computed once for each
/// panel, in the cache. `auto h = local(gelu(w1 * x + b1));`
template <expr::over_tokens Operand> auto local(Operand&& x) {
  return expr::local_value<expr::held<Operand>>(expr::hold(std::forward<Operand>(x)));
}

}}  // namespace tessera::TESSERA_ISA
