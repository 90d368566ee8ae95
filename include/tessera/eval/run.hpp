// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/eval/elementwise.hpp>
#include <tessera/eval/matrix_product.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/product.hpp>
#include <tessera/eval/reduction.hpp>
#include <tessera/eval/sampled.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// What `run` takes: `y = …`, `y += …`, or a statement of its own kind.
template <class T>
concept runnable = requires { typename std::remove_cvref_t<T>::statement_tag; };

namespace eval {

/// Statements of a kind of their own, such as attention, lower themselves. For assignments, each kind of
/// statement has an overload of `lower` in its file.
template <class Statement>
  requires requires(Statement const& s, plan& p) { s.lower(p); }
void lower(plan& p, Statement const& s) {
  s.lower(p);
}

}  // namespace eval

/// A statement, or none. It lives as long as this, so that a plan may refer to it.
template <class Statement>
struct [[nodiscard("a statement computes nothing until it is given to run(context, …)")]] optional_statement {
  using statement_tag = void;
  std::optional<Statement> statement;
  void lower(eval::plan& p) const {
    if (statement) eval::lower(p, *statement);
  }
};

/// The statement that make() gives, if the condition holds; otherwise nothing is computed, and `make` is not
/// called: `run(ctx, when(dx, [&] { return *dx = transposed(w) * dy; }))`
template <class Make>
  requires runnable<std::invoke_result_t<Make const&>>
optional_statement<std::invoke_result_t<Make const&>> when(bool condition, Make const& make) {
  if (!condition) return {std::nullopt};
  return {make()};
}

/// Runs the statements as if one after another. Statements over the same panels are carried together, panel
/// by panel. Throws shape_error before anything is computed. After the first run of the same statements
/// nothing is allocated.
template <class... Statement> void run(context& ctx, Statement const&... statement) {
  static_assert(
      (runnable<Statement> && ...),
      "run takes statements such as `y = w * x`: an assignment of one tensor to another, or an expression "
      "without a destination, is none");
  if constexpr ((runnable<Statement> && ...)) {
    eval::plan plan(ctx.runs_on());
    (eval::lower(plan, statement), ...);
    plan.run(ctx);
  }
}

}}  // namespace tessera::TESSERA_ISA
