// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/engines.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/kernels/attention.hpp>
#include <tessera/kernels/attention_backward.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/sequences.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// Which keys of its sequence a query sees: all, or those up to its own position.
enum class mask { bidirectional, causal };

namespace eval {

/// The keys each lane of a panel of queries sees; none in lanes beyond the last token.
inline kernels::lane_keys keys_of_panel(sequences const& layout, mask seen, std::int64_t panel) {
  kernels::lane_keys keys;
  std::int64_t token = panel * panel_tokens, sequence = layout.sequence_of(token);
  for (int lane = 0; lane < panel_tokens; ++lane, ++token) {
    if (token >= layout.tokens()) {
      keys.set(lane, 0, 0);
      continue;
    }
    while (token >= layout.end(sequence)) ++sequence;
    const std::int64_t begin = layout.begin(sequence), end = begin + layout.keys(sequence);
    keys.set(lane, begin, seen == mask::causal ? std::min(end, token + 1) : end);
  }
  return keys;
}

/// The panels of the sequences that have a token in a panel: first … last - 1.
struct panel_range {
  std::int64_t first, last;
};
inline panel_range panels_of_sequences(sequences const& layout, std::int64_t panel) {
  const std::int64_t token = panel * panel_tokens;
  const std::int64_t last = std::min(token + panel_tokens, layout.tokens()) - 1;
  return {layout.begin(layout.sequence_of(token)) / panel_tokens,
          ceil_div<std::int64_t>(layout.end(layout.sequence_of(last)), panel_tokens)};
}
/// The largest number of them, for the panels [first, last).
inline std::int64_t most_panels_seen(sequences const& layout, std::int64_t first, std::int64_t last) {
  std::int64_t most = 0;
  for (std::int64_t panel = first; panel < last; ++panel) {
    const panel_range seen = panels_of_sequences(layout, panel);
    most = std::max(most, seen.last - seen.first);
  }
  return most;
}

/// The panels whose keys the queries of a panel may see.
inline panel_range visited_panels(sequences const& layout, mask seen, std::int64_t panel) {
  const std::int64_t first = panel * panel_tokens;
  const std::int64_t last = std::min(first + panel_tokens, layout.tokens()) - 1;
  const std::int64_t sequence = layout.sequence_of(last);
  std::int64_t end = layout.begin(sequence) + layout.keys(sequence);
  if (seen == mask::causal) end = std::min(end, last + 1);
  const std::int64_t begin = layout.begin(layout.sequence_of(first)) / panel_tokens;
  return {begin, std::max(begin, ceil_div<std::int64_t>(end, panel_tokens))};
}

/// Of a head, whose rows stay in the L2 beside those that are in use.
inline constexpr int most_panels_ahead = 8;

/// What both directions are given, and what they check.
template <class T> struct attention_shape {
  using sum = accumulator_t<T>;
  panel_matrix<T> const* qkv;
  sequences const* layout;
  int heads;
  mask seen;

  std::int64_t hidden() const { return qkv->features() / 3; }
  int head_size() const { return int(hidden() / heads); }

  void check(const char* operation) const {
    if (heads < 1 || qkv->features() == 0 || qkv->features() % (3 * std::int64_t(heads)) != 0)
      throw shape_error(message("[", operation, "] qkv has ", qkv->features(), " features for ", heads,
                                " heads: it needs a multiple of 3 * heads, and at least one head"));
    if (head_size() % element_traits<T>::features_a_lane != 0)
      throw shape_error(message("[", operation, "] ", heads, " heads of ", head_size(), " features: in ",
                                element_traits<T>::name, " two features share a lane, so that a head needs ",
                                "an even number"));
    if (layout->tokens() != qkv->tokens())
      throw shape_error(message("[", operation, "] qkv has ", qkv->tokens(), " tokens but the sequences ",
                                layout->tokens()));
  }
  template <class E>
  void check(const char* operation, const char* name, panel_matrix<E> const& x, std::int64_t features) const {
    if (x.features() != features || x.tokens() != qkv->tokens())
      throw shape_error(message("[", operation, "] ", name, " is (", x.features(), " features, ", x.tokens(),
                                " tokens) but should be (", features, ", ", qkv->tokens(), ")"));
  }

  kernels::attention_operands<T> operands(int head, std::int64_t panel,
                                          kernels::lane_keys const& keys) const {
    T const* const q = qkv->data() + std::int64_t(head) * head_size() * panel_tokens;
    return {q + panel * qkv->panel_stride(),
            q + hidden() * panel_tokens,
            q + 2 * hidden() * panel_tokens,
            qkv->panel_stride(),
            head_size(),
            sum(1 / std::sqrt(double(head_size()))),
            &keys};
  }
  /// A head's rows in a panel of qkv, and in the same panel of other tensors.
  template <class... X>
  kernels::rows_ahead rows_ahead(int head, std::int64_t panel, X const&... others) const {
    kernels::rows_ahead soon;
    soon.bytes = std::size_t(head_size()) * panel_tokens * sizeof(T);
    const auto add = [&](panel_matrix<T> const& x) {
      for (std::int64_t row = head * head_size(); row < x.features(); row += hidden())
        soon.add(x.panel(panel) + row * panel_tokens);
    };
    add(*qkv);
    (add(others), ...);
    return soon;
  }
  /// Multiply-adds of so many products with the keys that a panel of queries visits, for one head.
  std::int64_t multiplies(std::int64_t panel, int products) const {
    const panel_range keys = visited_panels(*layout, seen, panel);
    return products * (keys.last - keys.first) * panel_tokens * panel_tokens * head_size();
  }
  /// A head's rows of one of the tensors q, k, v, y, … in some panels: those from feature `first` on.
  template <class E>
  void touch(std::vector<touched_bytes>& list, panel_matrix<E> const& x, std::int64_t first,
             std::int64_t rows, panel_range panels) const {
    for (std::int64_t p = panels.first; p < panels.last; ++p)
      list.push_back(part_of_panel<E>(memory::user, reinterpret_cast<std::uintptr_t>(x.panel(p)), first,
                                      first + rows, tokens_of(p, x.tokens())));
  }
};

/// A tile is one head of a panel of queries.
template <class T, engine By> struct attention_body {
  using sum = accumulator_t<T>;
  attention_shape<T> shape;
  panel_matrix<T>* y;
  panel_matrix<sum>* log_sums;
  operand scratch;

  std::int64_t tiles() const { return shape.heads * y->panels(); }

  void compute(tile const& t) const noexcept {
    const std::int64_t head = t.index / y->panels(), panel = t.index % y->panels();
    const kernels::lane_keys keys = keys_of_panel(*shape.layout, shape.seen, panel);
    // What is needed first after the panels that are in use.
    const std::int64_t next = t.index + std::min(keys.panels(), most_panels_ahead);
    kernels::attention_panel<simd::native, T, By>::run(
        {shape.operands(int(head), panel, keys), y->panel(panel) + head * shape.head_size() * panel_tokens,
         log_sums->panel(panel) + head * panel_tokens, tokens_of(panel, y->tokens()), t.address<sum>(scratch),
         next < tiles() ? shape.rows_ahead(int(next / y->panels()), next % y->panels(), *y)
                        : kernels::rows_ahead{}});
  }

  void describe(tile const& t, task_description& d) const {
    const std::int64_t head = t.index / y->panels(), panel = t.index % y->panels();
    const std::int64_t first = head * shape.head_size(), rows = shape.head_size();
    const panel_range own{panel, panel + 1}, keys = visited_panels(*shape.layout, shape.seen, panel);
    shape.touch(d.reads, *shape.qkv, first, rows, own);
    shape.touch(d.reads, *shape.qkv, first + shape.hidden(), rows, keys);
    shape.touch(d.reads, *shape.qkv, first + 2 * shape.hidden(), rows, keys);
    shape.touch(d.writes, *y, first, rows, own);
    shape.touch(d.writes, *log_sums, head, 1, own);
    d.multiplies += shape.multiplies(panel, 2);
  }
};

template <class T>
struct [[nodiscard(
    "a statement computes nothing until it is given to run(context, …)")]] attention_statement {
  using statement_tag = void;
  using sum = accumulator_t<T>;
  attention_shape<T> shape;
  panel_matrix<T>* y;
  panel_matrix<sum>* log_sums;

  /// Throws shape_error.
  void check() const {
    shape.check("attention");
    shape.check("attention", "y", *y, shape.hidden());
    shape.check("attention", "log_sums", *log_sums, shape.heads);
    if (static_cast<void const*>(y) == log_sums)
      throw shape_error("[attention] y and log_sums are the same tensor: give two");
  }

  void lower(plan& p) const {
    check();
    step_in_the_making s("attention", cut::lines);
    s.writes(all_of(*y));
    s.writes(all_of(*log_sums));
    s.reads(all_of(*shape.qkv));
    s.tiles = int(shape.heads * y->panels());
    const operand scratch =
        p.worker_memory(std::size_t(kernels::attention_scratch<T>(shape.head_size())) * sizeof(sum));
    with_engine<T, T, panel_tokens>(p.on(), [&]<engine By>(engine_constant<By>) {
      p.add(s, attention_body<T, By>{shape, y, log_sums, scratch});
    });
  }
};

/// A tile is one head of a group of panels: panels outside share no sequence with it, so nobody else adds to
/// its gradients.
template <class T, engine By> struct attention_backward_body {
  using sum = accumulator_t<T>;
  attention_shape<T> shape;
  panel_matrix<T> const* y;
  panel_matrix<sum> const* log_sums;
  panel_matrix<T> const* dy;
  panel_matrix<T>* dqkv;
  operand scratch;

  panel_range group(tile const& t) const {
    const auto bounds = shape.layout->panel_groups().subspan(std::size_t(t.index / shape.heads), 2);
    return {bounds[0], bounds[1]};
  }

  void compute(tile const& t) const noexcept {
    const int head = int(t.index % shape.heads), size = shape.head_size();
    const panel_range panels = group(t);
    const std::int64_t hidden = shape.hidden() * panel_tokens;
    const std::int64_t row = std::int64_t(head) * size * panel_tokens;
    sum* const room = t.address<sum>(scratch);
    kernels::key_sums<sum> sums[2];  // dk and dv
    for (int part = 0; part < 2; ++part)
      if constexpr (std::is_same_v<T, sum>) {
        sums[part] = {dqkv->data() + row + (1 + part) * hidden, dqkv->panel_stride(), dqkv->panels()};
      } else {
        const std::int64_t numbers = kernels::wide_numbers<T>(size);
        sums[part] = {room + kernels::attention_backward_scratch<T>(size) + part * numbers, 2 * numbers,
                      most_panels_seen(*shape.layout, panels.first, panels.last)};
      }
    // Panels before `complete` are seen by no later query and are stored; from there to `begun` they have
    // sums.
    std::int64_t begun = panels.first, complete = panels.first;
    const auto complete_until = [&](std::int64_t panel) {
      for (; complete < panel; ++complete)
        for (int part = 0; part < 2; ++part)
          simd::store_narrowed<simd::native>(sums[part].of(complete), size,
                                             dqkv->panel(complete) + row + (1 + part) * hidden);
    };
    for (std::int64_t panel = panels.first; panel < panels.last; ++panel) {
      const panel_range seen = panels_of_sequences(*shape.layout, panel);
      complete_until(seen.first);
      for (; begun < seen.last; ++begun)
        for (auto const& part : sums) std::fill_n(part.of(begun), size * panel_tokens, sum(0));
      const kernels::lane_keys keys = keys_of_panel(*shape.layout, shape.seen, panel);
      // For the next head, if that does not push out of the cache what is still needed for this one.
      kernels::rows_ahead soon;
      if (head + 1 < shape.heads && panels.last - panels.first <= most_panels_ahead)
        soon = shape.rows_ahead(head + 1, panel, *y, *dy, *dqkv);
      kernels::attention_backward_panel<simd::native, T, By>::run(
          {shape.operands(head, panel, keys), y->panel(panel) + row, dy->panel(panel) + row,
           log_sums->panel(panel) + head * panel_tokens, dqkv->panel(panel) + row, sums[0], sums[1], room,
           soon});
    }
    complete_until(panels.last);
  }

  void describe(tile const& t, task_description& d) const {
    const panel_range panels = group(t);
    const std::int64_t head = t.index % shape.heads, rows = shape.head_size();
    for (std::int64_t row = head * rows; row < shape.qkv->features(); row += shape.hidden()) {
      shape.touch(d.reads, *shape.qkv, row, rows, panels);
      shape.touch(d.writes, *dqkv, row, rows, panels);
    }
    shape.touch(d.reads, *y, head * rows, rows, panels);
    shape.touch(d.reads, *dy, head * rows, rows, panels);
    shape.touch(d.reads, *log_sums, head, 1, panels);
    for (std::int64_t panel = panels.first; panel < panels.last; ++panel)
      d.multiplies += shape.multiplies(panel, 5);
  }
};

template <class T>
struct [[nodiscard(
    "a statement computes nothing until it is given to run(context, …)")]] attention_backward_statement {
  using statement_tag = void;
  using sum = accumulator_t<T>;
  attention_shape<T> shape;
  panel_matrix<T> const* y;
  panel_matrix<sum> const* log_sums;
  panel_matrix<T> const* dy;
  panel_matrix<T>* dqkv;

  /// Throws shape_error.
  void check() const {
    shape.check("attention_backward");
    shape.check("attention_backward", "y", *y, shape.hidden());
    shape.check("attention_backward", "log_sums", *log_sums, shape.heads);
    shape.check("attention_backward", "dy", *dy, shape.hidden());
    shape.check("attention_backward", "dqkv", *dqkv, shape.qkv->features());
    if (dqkv == shape.qkv)
      throw shape_error("[attention_backward] dqkv is qkv itself: the gradient cannot be computed in place");
  }

  void lower(plan& p) const {
    check();
    step_in_the_making s("attention backward", cut::lines);
    s.tiles = int(shape.heads * (std::int64_t(shape.layout->panel_groups().size()) - 1));
    s.writes(all_of(*dqkv));
    for (auto* read : {shape.qkv, y, dy}) s.reads(all_of(*read));
    s.reads(all_of(*log_sums));
    // Gradients of keys and values that are summed beside dqkv: 1 MiB for head size 64 and 2048 tokens.
    const std::int64_t wide =
        2 * kernels::wide_numbers<T>(shape.head_size()) * most_panels_seen(*shape.layout, 0, dqkv->panels());
    const operand scratch = p.worker_memory(
        std::size_t(kernels::attention_backward_scratch<T>(shape.head_size()) + wide) * sizeof(sum));
    with_engine<T, T, panel_tokens>(p.on(), [&]<engine By>(engine_constant<By>) {
      p.add(s, attention_backward_body<T, By>{shape, y, log_sums, dy, dqkv, scratch});
    });
  }
};

}  // namespace eval

/// y = V softmax(Kᵀ Q / √d), head by head and sequence by sequence.
///   qkv (3 hidden, tokens)    the features of q, then of k, then of v; of each, head h has features
///                             h d … (h + 1) d - 1 with d = hidden / heads
///   y (hidden, tokens)        zero where a query sees no key
///   log_sums (heads, tokens)  log Σ e^score of each query, for backward; there -infinity
/// Scores and sums are in the accumulator type. Where an instruction multiplies pairs of T, probabilities,
/// and backwards the gradients of scores, are rounded for the sums over tokens: each product has a relative
/// error of unit_roundoff<T>, log_sums none of it. Throws shape_error, also if heads would share lanes. All
/// are held by reference until run.
template <element T>
auto attention(panel_matrix<T> const& qkv, sequences const& layout, int heads, mask seen, panel_matrix<T>& y,
               panel_matrix<accumulator_t<T>>& log_sums) {
  const eval::attention_statement<T> statement{{&qkv, &layout, heads, seen}, &y, &log_sums};
  statement.check();
  return statement;
}

/// dqkv (3 hidden, tokens), the gradient of a loss by qkv, from dy (hidden, tokens), its gradient by y, and
/// what `attention` computed. Throws shape_error. All are held by reference until run.
template <element T>
auto attention_backward(panel_matrix<T> const& qkv, panel_matrix<T> const& y,
                        panel_matrix<accumulator_t<T>> const& log_sums, panel_matrix<T> const& dy,
                        sequences const& layout, int heads, mask seen, panel_matrix<T>& dqkv) {
  const eval::attention_backward_statement<T> statement{
      {&qkv, &layout, heads, seen}, &y, &log_sums, &dy, &dqkv};
  statement.check();
  return statement;
}

}}  // namespace tessera::TESSERA_ISA
