// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/engines.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/reduction.hpp>
#include <tessera/kernels/attention.hpp>
#include <tessera/kernels/attention_backward.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>
#include <tessera/statements/attention_heads.hpp>
#include <tessera/statements/attention_shape.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/sequences.hpp>
#include <tessera/tensor/vectors.hpp>

namespace tessera { inline namespace TESSERA_ISA {

namespace eval {

/// with_engine for attention: AMX sums over whole registers of 32 features.
template <class T, class Use> void with_attention_engine(machine on, int head_size, Use&& use) {
  if (head_size % 32 != 0) on.engines.forbid(engine::amx);
  with_engine<T, T, engine::pairs, sizeof(T) == 2 ? engine::amx : engine::fma>(on, static_cast<Use&&>(use));
}

/// Computes attention. A tile is one head of a panel of queries.
template <class T, engine By, class Score> struct attention_body {
  using sum = accumulator_t<T>;
  attention_shape<T, Score> shape;
  panel_matrix<T>* y;
  panel_matrix<sum>* log_sums;
  operand scratch;

  std::int64_t tiles() const { return shape.heads.queries * y->panels(); }

  void compute(tile const& t) const noexcept {
    const std::int64_t head = t.index / y->panels(), panel = t.index % y->panels();
    const kernels::lane_keys keys = keys_of_panel(*shape.layout, shape.seen, panel);
    // The next tile whose rows are not in use yet.
    const std::int64_t next = t.index + std::min(keys.panels(), most_panels_ahead);
    kernels::attention_panel<simd::native, T, By, Score>::run(
        {shape.operands(int(head), panel, keys), y->panel(panel) + head * shape.head_size() * panel_tokens,
         log_sums->panel(panel) + head * panel_tokens, tokens_of(panel, y->tokens()), t.address<sum>(scratch),
         next < tiles() ? shape.rows_ahead(int(next / y->panels()), next % y->panels(), *y)
                        : kernels::rows_ahead{}});
  }

  void describe(tile const& t, task_description& d) const {
    const std::int64_t head = t.index / y->panels(), panel = t.index % y->panels();
    const std::int64_t size = shape.head_size();
    const panel_range own{panel, panel + 1};
    const auto rows = shape.rows_of(head);
    shape.touch(d.reads, *shape.qkv, rows[0], size, own);
    for (const int part : {1, 2})
      shape.for_each_visited(int(head), panel, [&](panel_range keys) {
        shape.touch(d.reads, *shape.qkv, rows[std::size_t(part)], size, keys);
      });
    shape.touch(d.writes, *y, head * size, size, own);
    shape.touch(d.writes, *log_sums, head, 1, own);
    d.multiplies += shape.multiplies(int(head), panel, 2);
  }
};

template <class T, class Score> struct TESSERA_STATEMENT attention_statement {
  using statement_tag = void;
  using sum = accumulator_t<T>;
  attention_shape<T, Score> shape;
  panel_matrix<T>* y;
  panel_matrix<sum>* log_sums;

  /// Throws shape_error.
  void check() const {
    shape.check("attention");
    shape.check("attention", "y", *y, shape.hidden());
    shape.check("attention", "log_sums", *log_sums, shape.heads.queries);
    if (static_cast<void const*>(y) == log_sums)
      throw shape_error("[attention] y and log_sums are the same tensor: give two");
  }

  void lower(plan& p) const {
    check();
    step_draft s("attention", cut::lines);
    s.writes(all_of(*y));
    s.writes(all_of(*log_sums));
    s.reads(all_of(*shape.qkv));
    s.tiles = int(shape.heads.queries * y->panels());
    const operand scratch =
        p.worker_memory(std::size_t(kernels::attention_scratch<T>(shape.head_size())) * sizeof(sum));
    with_attention_engine<T>(p.machine(), shape.head_size(), [&]<engine By>(engine_constant<By>) {
      s.around = around_products<By>;
      p.add(s, attention_body<T, By, Score>{shape, y, log_sums, scratch});
    });
  }
};

/// Computes the gradients of attention. A tile is one head of keys, with its heads of queries, of a group of
/// panels: panels outside the group share no sequence with it, so no other tile adds to its gradients.
template <class T, engine By, class Score> struct attention_backward_body {
  using sum = accumulator_t<T>;
  attention_shape<T, Score> shape;
  panel_matrix<T> const* y;
  panel_matrix<sum> const* log_sums;
  panel_matrix<T> const* dy;
  panel_matrix<T>* dqkv;
  operand scratch;
  operand dparameters;  // a row for each group of panels, head by head; stride 0 if not wanted

  std::int64_t panel_group(tile const& t) const { return t.index / shape.heads.keys; }
  panel_range panels_of(tile const& t) const {
    const auto bounds = shape.layout->panel_groups().subspan(std::size_t(panel_group(t)), 2);
    return {bounds[0], bounds[1]};
  }
  range queries_of(tile const& t) const {
    const int first = int(t.index % shape.heads.keys) * shape.heads.group();
    return {first, first + shape.heads.group()};
  }

  void compute(tile const& t) const noexcept {
    const range heads = queries_of(t);
    const int size = shape.head_size();
    const panel_range panels = panels_of(t);
    const auto rows = shape.rows_of(heads.first);
    sum* const room = t.address<sum>(scratch);
    kernels::key_sums<sum> sums[2];  // dk and dv
    for (int part = 0; part < 2; ++part)
      if constexpr (std::is_same_v<T, sum>) {
        sums[part] = {dqkv->data() + rows[std::size_t(1 + part)] * panel_tokens, dqkv->panel_stride(),
                      dqkv->panels()};
      } else {
        const std::int64_t numbers = kernels::wide_numbers<T>(size);
        sums[part] = {room + kernels::attention_backward_scratch<T>(size) + part * numbers, 2 * numbers,
                      most_panels_seen(*shape.layout, panels.first, panels.last)};
      }
    const auto dparameters_of = [&](int head) -> sum* {
      if (dparameters.stride == 0) return nullptr;
      return t.address<sum>(dparameters, panel_group(t)) + head * shape.parameters();
    };
    for (int head = heads.first; head < heads.last && dparameters.stride > 0; ++head)
      std::fill_n(dparameters_of(head), shape.parameters(), sum(0));
    // No later query sees panels before `complete`: their gradients are stored. Panels complete … begun - 1
    // have sums.
    std::int64_t begun = panels.first, complete = panels.first;
    const auto complete_until = [&](std::int64_t panel) {
      for (; complete < panel; ++complete)
        for (int part = 0; part < 2; ++part)
          simd::store_narrowed<simd::native>(
              sums[part].of_panel(complete), size,
              dqkv->panel(complete) + rows[std::size_t(1 + part)] * panel_tokens);
    };
    for (std::int64_t panel = panels.first; panel < panels.last; ++panel) {
      const panel_range seen = panels_of_sequences(*shape.layout, panel);
      complete_until(seen.first);
      for (; begun < seen.last; ++begun)
        for (auto const& part : sums) std::fill_n(part.of_panel(begun), size * panel_tokens, sum(0));
      const kernels::lane_keys keys = keys_of_panel(*shape.layout, shape.seen, panel);
      for (int head = heads.first; head < heads.last; ++head) {
        // Prefetches for the next head, unless that would evict rows that this head still needs.
        kernels::rows_ahead soon;
        if (head + 1 < shape.heads.queries && panels.last - panels.first <= most_panels_ahead)
          soon = shape.rows_ahead(head + 1, panel, *y, *dy, *dqkv);
        const std::int64_t row = std::int64_t(head) * size * panel_tokens;
        kernels::attention_backward_panel<simd::native, T, By, Score>::run(
            {shape.operands(head, panel, keys), y->panel(panel) + row, dy->panel(panel) + row,
             log_sums->panel(panel) + head * panel_tokens, dqkv->panel(panel) + row, sums[0], sums[1], room,
             soon, dparameters_of(head)});
      }
    }
    complete_until(panels.last);
  }

  void describe(tile const& t, task_description& d) const {
    const panel_range panels = panels_of(t);
    const range heads = queries_of(t);
    const std::int64_t size = shape.head_size();
    const auto rows = shape.rows_of(heads.first);
    for (const int part : {0, 1, 2}) {
      const std::int64_t first = rows[std::size_t(part)], features = part == 0 ? heads.size() * size : size;
      shape.touch(d.reads, *shape.qkv, first, features, panels);
      shape.touch(d.writes, *dqkv, first, features, panels);
    }
    for (auto const* x : {y, dy}) shape.touch(d.reads, *x, heads.first * size, heads.size() * size, panels);
    shape.touch(d.reads, *log_sums, heads.first, heads.size(), panels);
    const std::int64_t bytes = shape.parameters() * std::int64_t(sizeof(sum));
    if (dparameters.stride > 0)
      d.write({dparameters.owner,
               dparameters.at + dparameters.stride * std::size_t(panel_group(t)) +
                   std::size_t(heads.first * bytes),
               heads.size() * bytes});
    for (std::int64_t panel = panels.first; panel < panels.last; ++panel)
      for (int head = heads.first; head < heads.last; ++head)
        d.multiplies += shape.multiplies(head, panel, 5);
  }
};

template <class T, class Score> struct TESSERA_STATEMENT attention_backward_statement {
  using statement_tag = void;
  using sum = accumulator_t<T>;
  attention_shape<T, Score> shape;
  panel_matrix<T> const* y;
  panel_matrix<sum> const* log_sums;
  panel_matrix<T> const* dy;
  panel_matrix<T>* dqkv;
  feature_vector<sum>* dparameters;  // null if not wanted

  /// Throws shape_error.
  void check() const {
    shape.check("attention_backward");
    shape.check("attention_backward", "y", *y, shape.hidden());
    shape.check("attention_backward", "log_sums", *log_sums, shape.heads.queries);
    shape.check("attention_backward", "dy", *dy, shape.hidden());
    shape.check("attention_backward", "dqkv", *dqkv, shape.qkv->features());
    if (dqkv == shape.qkv)
      throw shape_error("[attention_backward] dqkv is qkv itself: the gradient cannot be computed in place");
    if (dparameters && dparameters->size() != shape.heads.queries * shape.parameters())
      throw shape_error(message("[attention_backward] dparameters has ", dparameters->size(),
                                " numbers but should have ", shape.heads.queries * shape.parameters(), ": ",
                                shape.parameters(), " for each of ", shape.heads.queries, " heads"));
  }

  void lower(plan& p) const {
    check();
    step_draft s("attention backward", cut::lines);
    const int groups = int(shape.layout->panel_groups().size()) - 1;
    s.tiles = shape.heads.keys * groups;
    s.writes(all_of(*dqkv));
    for (auto* read : {shape.qkv, y, dy}) s.reads(all_of(*read));
    s.reads(all_of(*log_sums));
    // Wide sums of the gradients of keys and values: 1 MiB for head size 64 and 2048 tokens.
    const std::int64_t wide =
        2 * kernels::wide_numbers<T>(shape.head_size()) * most_panels_seen(*shape.layout, 0, dqkv->panels());
    const operand scratch = p.worker_memory(
        std::size_t(kernels::attention_backward_scratch<T>(shape.head_size()) + wide) * sizeof(sum));
    operand rows{};
    if (dparameters && dparameters->size() > 0) {
      const std::size_t row = std::size_t(dparameters->size()) * sizeof(sum);
      rows = p.run_memory(row * std::size_t(groups), row);
      rows.touches = footprint::everything;
      s.writes(rows);
    }
    with_attention_engine<T>(p.machine(), shape.head_size(), [&]<engine By>(engine_constant<By>) {
      s.around = around_products<By>;
      p.add(s, attention_backward_body<T, By, Score>{shape, y, log_sums, dy, dqkv, scratch, rows});
    });
    if (rows.stride > 0) add_row_sum<sum>(p, all_of(*dparameters), rows, dparameters->size(), groups, true);
  }
};

}  // namespace eval

/// y = V softmax(Kᵀ Q / √d), head by head and sequence by sequence.
///   qkv (3 hidden, tokens)    the features of q, then of k, then of v; of each, head h has features
///                             h d … (h + 1) d - 1 with d = hidden / heads. Of fewer heads of keys and values
///                             than of queries: ((queries + 2 keys) d, tokens)
///   y (hidden, tokens)        zero where a query sees no key
///   log_sums (heads, tokens)  log Σ e^score of each query, for backward; -infinity where a query sees no key
///   seen                      mask::causal or mask::bidirectional; with a window, or the blocks that each
///                             head sees
///   score                     changes the scores before the softmax
/// Scores and sums are in the accumulator type. If the engine multiplies pairs of T, or is AMX, which takes
/// heads of multiples of 32 features, probabilities, and in backward the gradients of scores, are rounded to
/// T before sums over tokens: each product has a relative error of unit_roundoff<T>, log_sums none. Throws
/// shape_error, also if heads would share lanes. All arguments are held by reference until run.
template <element T, score_functor Score = plain_scores>
auto attention(panel_matrix<T> const& qkv, sequences const& layout, attention_heads heads, visible_keys seen,
               panel_matrix<T>& y, panel_matrix<accumulator_t<T>>& log_sums,
               Score const& score = eval::scores_as_they_are) {
  const eval::attention_statement<T, Score> statement{{&qkv, &layout, heads, seen, &score}, &y, &log_sums};
  statement.check();
  return statement;
}

/// dqkv, the gradient of a loss by qkv and as large, from dy (hidden, tokens), its gradient by y, and the
/// results of `attention`. The gradient by the parameters of a learned score functor is added to dparameters:
/// for head h, the numbers h n … (h + 1) n - 1 of n = score.parameters() for each; if nobody wants it, null.
/// Throws shape_error. All are held by reference until run.
template <element T, score_functor Score = plain_scores>
auto attention_backward(panel_matrix<T> const& qkv, panel_matrix<T> const& y,
                        panel_matrix<accumulator_t<T>> const& log_sums, panel_matrix<T> const& dy,
                        sequences const& layout, attention_heads heads, visible_keys seen,
                        panel_matrix<T>& dqkv, Score const& score = eval::scores_as_they_are,
                        feature_vector<accumulator_t<T>>* dparameters = nullptr) {
  const eval::attention_backward_statement<T, Score> statement{
      {&qkv, &layout, heads, seen, &score}, &y, &log_sums, &dy, &dqkv, dparameters};
  statement.check();
  return statement;
}

}}  // namespace tessera::TESSERA_ISA
