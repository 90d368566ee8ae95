// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/eval/lower.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/steps.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/tensor/pattern.hpp>

namespace tessera::inline TESSERA_ISA {
namespace eval {

/// A tree over stored values, in ranges of them, for a result of elements E.
template <class E, class Node>
step values_step(plan& p, std::int64_t count, expr::extent const& size, operand const& to, Node const& node,
                 auto kernel) {
  using lowered = lowering<accumulator_t<E>, over::values, cursor<1, 0, 1>, Node>;
  static_assert(lowered::next::operand <= step::most_operands && lowered::next::scalar <= step::most_scalars,
                "this statement has too many operands: split it");
  step s;
  s.kind = cut::values;
  s.computes = work::values;
  s.element_bytes = sizeof(E);
  s.features = count;
  if constexpr (Node::laid_over == domain::values) {  // may be other than zero where blocks overhang
    s.index = index_of(*size.stored);
    s.stored_features = size.rows;
    s.depth = size.cols;
    s.block_rows = int(size.block_rows);
    s.block_cols = int(size.block_cols);
  }
  s.tiles = int(ceil_div(count, values_a_tile));
  s.add(to);
  lowered::bind(p, s, node);
  s.compute = kernel(std::type_identity<map_step<simd::native, E, typename lowered::tree>>{});
  return s;
}

/// Whether the pattern `c` stores all blocks of a·b.
inline bool stores_product(pattern const& a, pattern const& b, pattern const& c) {
  for (int i = 0; i < a.block_rows(); ++i)
    for (const int k : a.row(i))
      if (const auto all = c.row(i), some = b.row(k);
          !std::includes(all.begin(), all.end(), some.begin(), some.end()))
        return false;
  return true;
}

/// How many it does not store.
TESSERA_COLD inline std::int64_t lost_blocks(pattern const& a, pattern const& b, pattern const& c) {
  std::int64_t lost = 0;
  std::vector<int> seen_in(std::size_t(b.block_cols()), -1);  // the row that has or has lost the column
  for (int i = 0; i < a.block_rows(); ++i) {
    for (const int j : c.row(i)) seen_in[std::size_t(j)] = i;
    for (const int k : a.row(i))
      for (const int j : b.row(k)) lost += std::exchange(seen_in[std::size_t(j)], i) != i;
  }
  return lost;
}

template <class Destination, class Value, bool Accumulates> struct statement_lowering;

// activation or token_vector = anything over panels
template <class T, class Value> struct statement_lowering<panel_matrix<T>, Value, false> {
  static void lower(plan& p, panel_matrix<T>& to, Value const& value) {
    lower_panels<T, domain::panels>(p, operand_of<over::panels>(to), to.features(), to.tokens(), value);
  }
};
template <class T, class Value> struct statement_lowering<token_vector<T>, Value, false> {
  static void lower(plan& p, token_vector<T>& to, Value const& value) {
    if constexpr (requires { value.argument; })
      lower_fold<T>(p, operand_of<over::panels>(to), to.tokens(), value);
    else
      lower_panels<T, domain::tokens>(p, operand_of<over::panels>(to), 1, to.tokens(), value);
  }
};

// feature_vector = sum over tokens, or elementwise among vectors
template <class T, class Argument, bool Accumulates>
struct statement_lowering<feature_vector<T>, expr::token_sum<Argument>, Accumulates> {
  static void lower(plan& p, feature_vector<T>& to, expr::token_sum<Argument> const& value) {
    lower_reductions(p, expr::extent_of(value.argument).tokens,
                     token_sum<T, Argument>(p, to, value.argument, Accumulates));
  }
};
template <class T, class Value>
  requires(!expr::sums_by_itself<Value>)
struct statement_lowering<feature_vector<T>, Value, false> {
  static void lower(plan& p, feature_vector<T>& to, Value const& value) {
    p.add(values_step<T>(p, to.size(), expr::extent_of(value), operand_of<over::values>(to), value,
                         []<class Step>(std::type_identity<Step>) { return Step::values; }));
  }
};

// matrix = elementwise among matrices of one pattern
template <class T, class Block, class Value>
  requires(!expr::sums_by_itself<Value>)
struct statement_lowering<block_sparse_matrix<T, Block>, Value, false> {
  static void lower(plan& p, block_sparse_matrix<T, Block>& to, Value const& value) {
    p.add(values_step<T>(p, to.size(), expr::extent_of(value), operand_of<over::values>(to), value,
                         []<class Step>(std::type_identity<Step>) { return Step::values; }));
  }
};

// matrix = a·bᵀ of activations, at its blocks
template <class T, class Block, class A, class B, bool Accumulates>
struct statement_lowering<block_sparse_matrix<T, Block>, expr::outer_product<A, B>, Accumulates> {
  TESSERA_COLD static void lower(plan& p, block_sparse_matrix<T, Block>& to,
                                 expr::outer_product<A, B> const& value) {
    using types = kernels::sampled_types<typename A::value_type, typename B::value_type>;
    static_assert(
        std::is_same_v<accumulator_t<T>, typename types::accumulator>,
        "the operands and the destination of a statement have different element types: bring them to one");
    static_assert(std::is_same_v<T, accumulator_t<T>>,
                  "[c = a * transposed(b)] the sums over tokens are kept in c: store a float");
    if (!value.sampled && !to.stored().is_dense())
      throw shape_error(message("[c = a * transposed(b)] c stores ", to.stored().stored(), " of ",
                                std::int64_t(to.stored().block_rows()) * to.stored().block_cols(),
                                " blocks, the others would be lost: write c = sampled(a * transposed(b))"));
    auto const& a = value.a.tensor();
    auto const& b = value.b.tensor();
    using as_written = sampled_step<simd::native, types, Block>;
    using exchanged =
        sampled_step<simd::native, kernels::sampled_types<typename B::value_type, typename A::value_type>,
                     block_shape<Block::cols, Block::rows>>;
    // The second operand is regrouped: better the smaller one, if that saves more than it costs to transpose.
    if (as_written::regroups && (b.features() - a.features()) * a.tokens() > 4 * to.size())
      add<exchanged>(p, to, b, a, true);
    else
      add<as_written>(p, to, a, b, false);
  }

 private:
  /// to = a·bᵀ, or to = (a·bᵀ)ᵀ.
  template <class Step>
  TESSERA_COLD static void add(plan& p, block_sparse_matrix<T, Block>& to, auto const& a, auto const& b,
                               bool transposed) {
    step product;
    product.kind = cut::lines;
    product.computes = work::sampled;
    product.element_bytes = sizeof(T);
    product.block_rows = Step::block::rows;
    product.block_cols = Step::block::cols;
    product.accumulates = Accumulates;
    product.index = index_of(to.stored(), transposed);
    product.lines = product.index.lines();
    product.tokens = a.tokens();
    product.features = a.features();
    product.stored_features = a.stored_features();
    product.inner = b.features();
    product.depth = b.stored_features();
    product.add(operand_of<over::all_panels>(to));
    product.add(operand_of<over::all_panels>(a));
    product.add(operand_of<over::all_panels>(b));
    if (transposed) product.add(p.keep(to.size_bytes()));
    if (to.size() > 0) Step::prepare(p, product);
    p.add(product);
  }
};

// matrix = a·b of matrices
template <class T, class Block, class A, class B, bool Accumulates>
struct statement_lowering<block_sparse_matrix<T, Block>, expr::matrix_product<A, B>, Accumulates> {
  using a_block = typename A::tensor_type::block;
  using b_block = typename B::tensor_type::block;
  TESSERA_COLD static void lower(plan& p, block_sparse_matrix<T, Block>& to,
                                 expr::matrix_product<A, B> const& value) {
    static_assert(
        a_block::rows == Block::rows && a_block::cols == b_block::rows && b_block::cols == Block::cols,
        "[c = a * b] the blocks do not fit: a's rows and b's columns must be c's, and a's columns b's rows");
    static_assert(
        std::is_same_v<T, typename A::value_type> && std::is_same_v<T, typename B::value_type>,
        "the operands and the destination of a statement have different element types: bring them to one");
    auto const& a = value.a.tensor();
    auto const& b = value.b.tensor();
    if (!value.sampled && !to.stored().is_dense() && !stores_product(a.stored(), b.stored(), to.stored()))
      throw shape_error(message("[c = a * b] ", lost_blocks(a.stored(), b.stored(), to.stored()),
                                " blocks of the product are not stored by c and would be lost: give c "
                                "product_pattern(a, b), or write c = sampled(a * b)"));
    step s;
    s.kind = cut::lines;
    s.computes = work::matrix_product;
    s.element_bytes = sizeof(T);
    s.accumulates = Accumulates;
    s.inner = a_block::cols;
    s.block_rows = Block::rows;
    s.block_cols = Block::cols;
    s.index = index_of(a.stored());
    s.second_index = index_of(b.stored());
    s.result_index = index_of(to.stored());
    s.lines = s.index.lines();
    s.tiles = std::min(s.lines, 8 * p.threads());
    s.add(operand_of<over::all_panels>(to));
    s.add(operand_of<over::all_panels>(a));
    s.add(operand_of<over::all_panels>(b));
    if (overlap(s.operand[0], s.operand[1]) || overlap(s.operand[0], s.operand[2]))
      throw shape_error("[c = a * b] c is also an operand: a product cannot be computed in place");
    s.compute = matrix_product_step<T, Block::rows, a_block::cols, Block::cols>::compute;
    p.add(s);
  }
};

template <tensor Destination, class Value, bool Accumulates>
void lower(plan& p, expr::statement<Destination, Value, Accumulates> const& s) {
  statement_lowering<Destination, Value, Accumulates>::lower(p, *s.destination, s.value);
}
/// Statements of a kind of their own, such as attention, lower themselves.
template <class Statement>
  requires requires(Statement const& s, plan& p) { s.lower(p); }
void lower(plan& p, Statement const& s) {
  s.lower(p);
}

/// A reduction among those of one pass: a sum over tokens, …
template <class E, class Argument, bool Accumulates>
token_sum<E, Argument> reduction_of(
    plan& p, expr::statement<feature_vector<E>, expr::token_sum<Argument>, Accumulates> const& s) {
  return {p, *s.destination, s.value.argument, Accumulates};
}
/// … one over features, …
template <class E, class Op, class Argument>
feature_fold<E, Op, Argument> reduction_of(
    plan&, expr::statement<token_vector<E>, expr::feature_reduction<Op, Argument>, false> const& s) {
  return {s.value.argument, operand_of<over::panels>(*s.destination)};
}
/// … or one that has a name.
template <class Op, class Argument>
auto reduction_of(plan& p, expr::local_value<expr::feature_reduction<Op, Argument>> const& local) {
  using T = accumulator_t<typename Argument::value_type>;
  const operand to = p.carried<T>(domain::tokens, 1);
  p.add_local(&local, to);
  return feature_fold<T, Op, Argument>{local.argument.argument, to};
}

template <class T>
concept reduction = requires(plan& p, T const& each) { reduction_of(p, each); };

/// Reductions that are computed together: statements, and references to locals.
template <class... Reduction>
struct [[nodiscard("a statement computes nothing until it is given to run(context, …)")]] one_pass {
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

/// In place of one that has been complained about.
struct no_statement {
  using statement_tag = void;
  void lower(plan&) const {}
};

}  // namespace eval

/// What `run` takes: `y = …`, `y += …`, or a statement of its own kind.
template <class T>
concept runnable = requires { typename std::remove_cvref_t<T>::statement_tag; };

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

/// Reductions that read the same panels, computed in one pass over them: sums over tokens, reductions over
/// features, and such reductions that have a name.
/// `run(ctx, in_one_pass(g = sum_tokens(x), m = max_features(x)), …)`
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

/// Computes statements in the order they are written, as far as one can see: what may be carried through
/// several of them panel by panel is. Throws shape_error before anything is computed. After the first run of
/// the same statements nothing is allocated.
template <class... Statement> void run(context& ctx, Statement const&... statement) {
  static_assert(
      (runnable<Statement> && ...),
      "run takes statements such as `y = w * x`: an assignment of one tensor to another, or an expression "
      "without a destination, is none");
  if constexpr ((runnable<Statement> && ...)) {
    eval::plan plan(ctx);
    (eval::lower(plan, statement), ...);
    plan.run();
  }
}

/// The sum of an expression over all features and tokens of an activation, or all stored values of a matrix
/// or vector: in fixed pieces, added in double in a fixed order.
template <expression Expression> double total(context& ctx, Expression const& expression) {
  const auto node = expr::hold(expression);
  const expr::extent size = expr::extent_of(node);
  using Node = std::remove_const_t<decltype(node)>;
  static_assert(expr::has_total<Node>,
                "total adds up activations, matrices, vectors and what is computed from them element by "
                "element: the total of sum_tokens(x) is that of x");
  using T = accumulator_t<typename Node::value_type>;
  eval::plan p(ctx);
  std::int64_t tiles = 0;
  if constexpr (Node::laid_over == domain::panels || Node::laid_over == domain::tokens) {
    if (size.tokens < 0 || (Node::laid_over == domain::panels && size.features < 0))
      throw shape_error("[total] the expression has no size of its own: it needs an activation");
    eval::step s;
    s.kind = eval::cut::panels;
    s.divides = eval::division::never;
    s.features = Node::laid_over == domain::tokens ? 1 : size.features;
    s.tokens = size.tokens;
    s.tiles = int(tiles = s.panels());
    s.add(p.shared(sizeof(double), std::size_t(tiles) * sizeof(double), eval::access::same_tile));
    using lowered = eval::lowering<T, eval::over::panels, eval::cursor<1, 0, 1>, Node>;
    lowered::bind(p, s, node);
    s.compute = eval::map_step<simd::native, T, typename lowered::tree>::total_panel;
    p.add(s);
  } else {
    const std::int64_t count = expr::values_in(node);
    tiles = ceil_div(count, eval::values_a_tile);
    p.add(eval::values_step<T>(
        p, count, size,
        p.shared(sizeof(double), std::size_t(tiles) * sizeof(double), eval::access::same_tile), node,
        []<class Step>(std::type_identity<Step>) { return Step::total_values; }));
  }
  if (tiles == 0) return 0;
  p.run();
  double const* partial =
      reinterpret_cast<double const*>(ctx.shared_scratch(std::size_t(tiles) * sizeof(double)));
  double sum = 0;
  for (std::int64_t i = 0; i < tiles; ++i) sum += partial[i];
  return sum;
}

}  // namespace tessera::inline TESSERA_ISA
