// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/eval/elementwise.hpp>
#include <tessera/eval/matrix_product.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/product.hpp>
#include <tessera/eval/reduction.hpp>
#include <tessera/eval/sampled.hpp>
#include <tessera/eval/token_rows.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/statements/concatenation.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/panel_slice.hpp>
#include <tessera/tensor/vectors.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// A statement that `run` takes: `y = …`, `y += …`, or one of another kind, such as attention.
template <class T>
concept runnable = requires { typename std::remove_cvref_t<T>::statement_tag; };

namespace eval {

/// activation = expression, or token_vector = expression: argument-dependent lookup of lower_to(plan,
/// destination, expression) finds the kind of step that computes the expression, in eval/ or in a user's
/// namespace.
template <class T, class Value> void lower(plan& p, expr::statement<panel_matrix<T>, Value, false> const& s) {
  panel_matrix<T>& y = s.destination();
  lower_to(p, panels_to<T>{by_panel(y), y.features(), y.tokens()}, s.value);
}
template <class T, class Value> void lower(plan& p, expr::statement<panel_slice<T>, Value, false> const& s) {
  panel_slice<T> const& y = s.destination();
  lower_to(p, panels_to<T>{by_panel(y), y.features(), y.tokens()}, s.value);
}
template <class T, class Value> void lower(plan& p, expr::statement<token_vector<T>, Value, false> const& s) {
  token_vector<T>& y = s.destination();
  lower_to(p, tokens_to<T>{by_panel(y), y.tokens()}, s.value);
}

/// Adds the steps of a statement to a plan. A statement that is no assignment has a member `lower`. Each kind
/// of assignment has an overload of `lower` in its file, which may be a user's.
template <class Statement> void lower_statement(plan& p, Statement const& s) {
  if constexpr (requires { s.lower(p); })
    s.lower(p);
  else if constexpr (requires { lower(p, s); })
    lower(p, s);
  else
    static_assert(sizeof(Statement) == 0,
                  "no kind of step computes this statement: one that is no assignment has a member `void "
                  "lower(tessera::eval::plan&) const`, an assignment an overload of lower(plan&, statement) "
                  "in the namespace of its tensors");
}

}  // namespace eval

/// A statement, or none. Owns the statement, so that a plan may refer to it.
template <class Statement> struct TESSERA_STATEMENT optional_statement {
  using statement_tag = void;
  std::optional<Statement> statement;
  void lower(eval::plan& p) const {
    if (statement) eval::lower_statement(p, *statement);
  }
};

/// Several statements as one, in order: for functions that add more than one statement to a run.
template <class... Statement> struct TESSERA_STATEMENT statement_list {
  using statement_tag = void;
  std::tuple<Statement...> all;
  void lower(eval::plan& p) const {
    std::apply([&](auto const&... each) { (eval::lower_statement(p, each), ...); }, all);
  }
};
template <runnable... Statement> statement_list<Statement...> statements(Statement... each) {
  return {{std::move(each)...}};
}

/// The statement that make() returns, if the condition holds; otherwise nothing is computed and `make` is not
/// called: `run(ctx, when(dx, [&] { return *dx = transposed(w) * dy; }))`
template <class Make>
  requires runnable<std::invoke_result_t<Make const&>>
optional_statement<std::invoke_result_t<Make const&>> when(bool condition, Make const& make) {
  if (!condition) return {std::nullopt};
  return {make()};
}

/// The statement that make() returns if the condition holds, else the statement that otherwise() returns.
template <class Make, class Otherwise>
auto when(bool condition, Make const& make, Otherwise const& otherwise) {
  return statements(when(condition, make), when(!condition, otherwise));
}

/// Runs the statements as if one after another. Statements over the same panels are carried together, panel
/// by panel. Throws shape_error before anything is computed. Repeating a run allocates nothing.
template <class... Statement> void run(context& ctx, Statement const&... statement) {
  static_assert((runnable<Statement> && ...),
                "run takes statements such as `y = w * x`: an assignment of one tensor to another is none "
                "(`y = converted(x)`"
                " is), nor is an expression without a destination");
  if constexpr ((runnable<Statement> && ...)) {
    eval::plan plan(ctx.runs_on());
    (eval::lower_statement(plan, statement), ...);
    plan.run(ctx);
  }
}

/// The message for a run without a context, or with one that nothing else can use.
template <class First, class... Statement>
  requires(!std::is_convertible_v<First, context&>)
void run(First&&, Statement const&...) {
  static_assert(
      std::is_void_v<First>,
      "the first argument of run is a context, a variable that all runs share: `context ctx(2); run(ctx, "
      "y = w * x);`");
}

}}  // namespace tessera::TESSERA_ISA
