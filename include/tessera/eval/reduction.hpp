// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/kernels/reductions.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/vectors.hpp>

// token_vector = a reduction over the features, feature_vector = a sum over the tokens, and several
// reductions in one pass over their panels. In a sum over tokens each panel leaves a row of sums; a step
// behind all panels adds the rows.

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

// ---- one pass over a panel ----

/// A reduction of a tree over the features of each token, into an operand of elements E.
template <class E, class Op, class Tree> struct fold_body {
  static constexpr bool over_features = true;
  operand to;
  Tree tree;

  kernels::feature_fold<E, Op, addressed_tree<Tree>> on_panel(tile const& t) const {
    return {addressed(tree, t), t.address<E>(to)};
  }
  touched_bytes written(tile const& t, range, int tokens) const {
    return elements_of<E>(to, t.index, 0, tokens);
  }
};
/// A sum over the tokens of a panel, in the accumulator: a row for each panel.
template <class T, class Tree> struct token_sum_body {
  static constexpr bool over_features = false;
  operand to;
  Tree tree;

  kernels::token_sum<T, addressed_tree<Tree>> on_panel(tile const& t) const {
    return {addressed(tree, t), t.address<T>(to)};
  }
  touched_bytes written(tile const& t, range features, int) const {
    return elements_of<T>(to, t.index, features.first, features.size());
  }
};

/// Reductions of one panel, or of a range of its features if no reduction needs all features.
template <class T, class... Reduction> struct reductions_body {
  std::int64_t features, tokens;
  tree::operands<Reduction...> of;

  range rows(tile const& t) const { return granules_of(features, t.part, t.parts); }
  void compute(tile const& t) const noexcept {
    const range f = rows(t);
    tree::with(of, [&](auto const&... each) {
      using kernel = kernels::reductions<simd::native, T, decltype(each.on_panel(t))...>;
      kernel::run(all_on_panel(t, each...), f.first, f.last, tokens_of(t.index, tokens),
                  t.index * panel_tokens);
    });
  }
  void describe(tile const& t, task_description& d) const {
    const range f = rows(t);
    const int live = tokens_of(t.index, tokens);
    tree::with(of, [&](auto const&... each) {
      (describe_reads(each.tree, t, f.first, f.last, live, d), ...);
      (d.write(each.written(t, f, live)), ...);
    });
  }

 private:
  static tree::operands<> all_on_panel(tile const&) { return {}; }
  template <class First, class... Rest>
  static auto all_on_panel(tile const& t, First const& first, Rest const&... rest) {
    return prepend(first.on_panel(t), all_on_panel(t, rest...));
  }
};

// ---- the sum of rows ----

/// Features of a tile of row_sum_body.
inline constexpr int features_a_tile = 16 * granule;

/// Adds the rows that the panels left, in double and in the order of the panels: over many panels a float
/// would lose more than the sums within panels lost.
template <class E> struct row_sum_body {
  using T = accumulator_t<E>;
  operand to, rows;
  std::int64_t features;
  int panels;
  bool accumulates;

  std::int64_t first(tile const& t) const { return t.index * features_a_tile; }
  std::int64_t size(tile const& t) const {
    return std::min<std::int64_t>(features_a_tile, features - first(t));
  }
  void compute(tile const& t) const noexcept {
    alignas(64) double sums[features_a_tile] = {};
    for (int panel = 0; panel < panels; ++panel) {
      T const* const row = t.address<T const>(rows, panel) + first(t);
      for (std::int64_t f = 0; f < size(t); ++f) sums[f] += static_cast<double>(row[f]);
    }
    E* const y = t.address<E>(to, 0) + first(t);
    for (std::int64_t f = 0; f < size(t); ++f) y[f] = E((accumulates ? T(y[f]) : T(0)) + T(sums[f]));
  }
  void describe(tile const& t, task_description& d) const {
    touched_bytes of_rows = elements_of<T>(rows, 0, first(t), size(t));
    of_rows.count = panels, of_rows.stride = std::int64_t(rows.stride);
    d.read(of_rows);
    d.write(elements_of<E>(to, 0, first(t), size(t)));
    if (accumulates) d.read(d.writes.back());
  }
};

/// Adds a late step that sums `count` rows in memory of the run.
template <class E>
void add_row_sum(plan& p, operand const& sum, operand rows, std::int64_t features, int count,
                 bool accumulates) {
  step_draft s("sum of rows", cut::lines);
  s.when = timing::late;
  s.tiles = int(ceil_div<std::int64_t>(features, features_a_tile));
  s.writes(sum);
  rows.touches = footprint::everything;
  s.reads(rows);
  p.add(s, row_sum_body<E>{sum, rows, features, count, accumulates});
}

// ---- lowering ----

/// The sources of one reduction of a pass: its argument, the place of its result, and the steps that follow
/// the pass.
template <class E, class Op, class Argument> struct fold_source {
  using accumulator = accumulator_t<E>;
  static constexpr bool over_features = true;
  Argument const& argument;
  operand to;

  operand const& written() const { return to; }
  template <class Tree> auto body_of(Tree const& tree) const { return fold_body<E, Op, Tree>{to, tree}; }
  void follow(plan&) const {}
};
template <class E, class Argument> struct token_sum_source {
  using accumulator = accumulator_t<E>;
  static constexpr bool over_features = false;
  Argument const& argument;
  operand rows;  // a row for each panel
  operand sum;
  std::int64_t features, tokens;
  bool accumulates;

  operand const& written() const { return rows; }
  template <class Tree> auto body_of(Tree const& tree) const {
    return token_sum_body<accumulator, Tree>{rows, tree};
  }
  void follow(plan& p) const {
    add_row_sum<E>(p, sum, rows, features, int(ceil_div<std::int64_t>(tokens, panel_tokens)), accumulates);
  }
};

template <class E, class Argument>
token_sum_source<E, Argument> make_token_sum(plan& p, feature_vector<E>& to, Argument const& argument,
                                             bool accumulates) {
  const std::size_t row =
      std::size_t(round_up<std::int64_t>(to.features(), granule)) * sizeof(accumulator_t<E>);
  const std::int64_t tokens = expr::extent_of(argument).tokens;
  const auto panels = std::size_t(ceil_div<std::int64_t>(tokens, panel_tokens));
  return {argument, p.run_memory(row * panels, row), all_of(to), to.features(), tokens, accumulates};
}

template <class Binder> tree::operands<> bind_reductions(Binder&) { return {}; }
template <class Binder, class First, class... Rest>
auto bind_reductions(Binder& bind, First const& first, Rest const&... rest) {
  auto head = first.body_of(bind(first.argument));
  return prepend(head, bind_reductions(bind, rest...));
}
template <class T, class... Each>
void add_reductions(plan& p, step_draft const& s, std::int64_t features, std::int64_t tokens,
                    tree::operands<Each...> const& all) {
  p.add(s, reductions_body<T, Each...>{features, tokens, all});
}

/// Adds a step that computes reductions of `tokens` tokens in one pass.
template <class First, class... Rest>
TESSERA_COLD void lower_reductions(plan& p, std::int64_t tokens, First const& first, Rest const&... rest) {
  using T = typename First::accumulator;
  static_assert((std::is_same_v<T, typename Rest::accumulator> && ...),
                "[in_one_pass] the reductions have different element types: " TESSERA_ONE_ACCUMULATOR);
  const expr::extent size = expr::extent_of(first.argument);
  step_draft s("reduction", cut::panels);
  s.writes(first.written());
  (s.writes(rest.written()), ...);
  if (((expr::extent_of(rest.argument).features != size.features ||
        expr::extent_of(rest.argument).tokens != tokens) ||
       ...))
    throw shape_error("[in_one_pass] the reductions are over different numbers of features or tokens");
  if constexpr ((First::over_features || ... || Rest::over_features)) {
    if (size.features < 1) throw shape_error("[reduction over features] there must be at least one feature");
    s.divides = division::never;  // needs all features of a panel
  }
  binder<T, over::panels> bind(p, s, tokens);
  const auto all = bind_reductions(bind, first, rest...);
  tree::with(all, [](auto const&... each) { require_same_names(each.tree...); });
  s.tiles = int(ceil_div<std::int64_t>(tokens, panel_tokens));
  s.most_parts = int(ceil_div<std::int64_t>(size.features, granule));
  add_reductions<T>(p, s, size.features, tokens, all);
  first.follow(p);
  (rest.follow(p), ...);
}

template <class E, class Op, class Argument>
void lower_to(plan& p, tokens_to<E> const& to, expr::feature_reduction<Op, Argument> const& node) {
  lower_reductions(p, to.tokens, fold_source<E, Op, Argument>{node.argument, to.at});
}

/// A reduction among the reductions of one pass: a sum over tokens, …
template <class E, class Argument, bool Accumulates>
auto reduction_of(plan& p,
                  expr::statement<feature_vector<E>, expr::token_sum<Argument>, Accumulates> const& s) {
  return make_token_sum(p, s.destination(), s.value.argument, Accumulates);
}
/// … one over features, …
template <class E, class Op, class Argument>
auto reduction_of(plan&,
                  expr::statement<token_vector<E>, expr::feature_reduction<Op, Argument>, false> const& s) {
  return fold_source<E, Op, Argument>{s.value.argument, by_panel(s.destination())};
}
/// … or a local reduction over features.
template <class Op, class Argument>
auto reduction_of(plan& p, expr::local_value<expr::feature_reduction<Op, Argument>> const& local) {
  using T = accumulator_t<typename Argument::value_type>;
  const std::int64_t tokens = expr::extent_of(local.argument.argument).tokens;
  const operand to =
      p.local_memory(panel_tokens * sizeof(T), ceil_div<std::int64_t>(tokens, panel_tokens), true);
  p.add_local(&local, to);
  return fold_source<T, Op, Argument>{local.argument.argument, to};
}

template <class T, class Argument, bool Accumulates>
void lower(plan& p, expr::statement<feature_vector<T>, expr::token_sum<Argument>, Accumulates> const& s) {
  lower_reductions(p, expr::extent_of(s.value.argument).tokens, reduction_of(p, s));
}

template <class T>
concept reduction = requires(plan& p, T const& each) { reduction_of(p, each); };

/// Reductions that are computed in one pass: statements, and references to locals.
template <class... Reduction> struct TESSERA_STATEMENT one_pass {
  using statement_tag = void;
  std::tuple<Reduction...> reductions;
  void lower(plan& p) const {
    std::apply(
        [&](auto const&... each) {
          const auto lower_all = [&](auto const& first, auto const&... rest) {
            lower_reductions(p, expr::extent_of(first.argument).tokens, first, rest...);
          };
          lower_all(reduction_of(p, each)...);
        },
        reductions);
  }
};

/// Stands in for a statement that failed a static_assert.
struct no_statement {
  using statement_tag = void;
  void lower(plan&) const {}
};

}  // namespace eval

/// Computes several reductions in one pass over their panels: sums over tokens, reductions over features, and
/// local reductions over features. `run(ctx, in_one_pass(g = sum_tokens(x), m = max_features(x)), …)`
template <class... Reduction> auto in_one_pass(Reduction&&... reduction) {
  constexpr bool fits = sizeof...(Reduction) > 0 && (eval::reduction<std::remove_cvref_t<Reduction>> && ...);
  static_assert(fits,
                "in_one_pass takes `vector = sum_tokens(…)`, `vector += sum_tokens(…)`, `tokens = "
                "sum_features(…)` or max_features(…), and local(sum_features(…)) or local(max_features(…))");
  if constexpr (fits)
    return eval::one_pass<Reduction...>{{std::forward<Reduction>(reduction)...}};
  else
    return eval::no_statement{};
}

}}  // namespace tessera::TESSERA_ISA
