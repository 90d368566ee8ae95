// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/kernels/attention.hpp>
#include <tessera/kernels/attention_backward.hpp>
#include <tessera/simd/bfloat16.hpp>
#include <tessera/simd/simd.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/sequences.hpp>

namespace tessera::inline TESSERA_ISA {

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

/// Queries times keys in the 64 × 64 blocks that are visited.
inline std::int64_t visited_pairs(sequences const& layout, mask seen) {
  std::int64_t panels = 0;
  for (std::int64_t first = 0; first < layout.tokens(); first += panel_tokens) {
    const std::int64_t last = std::min(first + panel_tokens, layout.tokens()) - 1;
    const std::int64_t sequence = layout.sequence_of(last);
    std::int64_t end = layout.begin(sequence) + layout.keys(sequence);
    if (seen == mask::causal) end = std::min(end, last + 1);
    const std::int64_t begin = layout.begin(layout.sequence_of(first)) / panel_tokens;
    panels += std::max<std::int64_t>(0, ceil_div<std::int64_t>(end, panel_tokens) - begin);
  }
  return panels * panel_tokens * panel_tokens;
}

template <class T> operand all_of(panel_matrix<T> const& x) {
  auto* const base = reinterpret_cast<std::byte*>(const_cast<T*>(x.data()));
  return {base, 0, x.size_bytes(), 0, access::everything, memory::user, domain::panels};
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
  /// A step of which a tile is one head of what `cuts` counts, for `products` products.
  step new_step(std::int64_t cuts, int products) const {
    step s;
    s.kind = cut::lines;
    s.element_bytes = sizeof(T);
    s.tiles = int(heads * cuts);
    s.tokens = qkv->tokens();
    s.features = hidden();
    s.multiplies = products * visited_pairs(*layout, seen) * hidden();
    return s;
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

  void lower(plan& p) const {
    step s = shape.new_step(y->panels(), 2);
    s.add(all_of(*y));
    s.add(all_of(*log_sums));
    s.results = 2;
    s.add(all_of(*shape.qkv));
    s.extra = this;
    s.sums = p.scratch(std::size_t(kernels::attention_scratch<T>(shape.head_size())) * sizeof(sum));
    s.compute = compute;
    p.add(s);
  }
  static void compute(step const& s, tile const& t) noexcept {
    auto const& [shape, y, log_sums] = *static_cast<attention_statement const*>(s.extra);
    const std::int64_t head = t.index / y->panels(), panel = t.index % y->panels();
    const kernels::lane_keys keys = keys_of_panel(*shape.layout, shape.seen, panel);
    // What is needed first after the panels that are in use.
    const std::int64_t next = t.index + std::min(keys.panels(), most_panels_ahead);
    kernels::attention_panel<simd::native, T>::run(
        {shape.operands(int(head), panel, keys), y->panel(panel) + head * shape.head_size() * panel_tokens,
         log_sums->panel(panel) + head * panel_tokens, s.tokens_of(panel),
         reinterpret_cast<sum*>(t.scratch + s.sums),
         next < s.tiles ? shape.rows_ahead(int(next / y->panels()), next % y->panels(), *y)
                        : kernels::rows_ahead{}});
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

  void lower(plan& p) const {
    step s = shape.new_step(std::int64_t(shape.layout->panel_groups().size()) - 1, 5);
    s.add(all_of(*dqkv));
    for (auto* read : {shape.qkv, y, dy}) s.add(all_of(*read));
    s.add(all_of(*log_sums));
    s.extra = this;
    // Gradients of keys and values that are summed beside dqkv: 1 MiB for head size 64 and 2048 tokens.
    const std::int64_t wide =
        2 * kernels::wide_numbers<T>(shape.head_size()) * most_panels_seen(*shape.layout, 0, dqkv->panels());
    s.sums = p.scratch(std::size_t(kernels::attention_backward_scratch<T>(shape.head_size()) + wide) *
                       sizeof(sum));
    s.compute = compute;
    p.add(s);
  }
  /// One head of a group of panels: panels outside share no sequence with it, so nobody else adds to its
  /// gradients.
  static void compute(step const& s, tile const& t) noexcept {
    auto const& [shape, y, log_sums, dy, dqkv] = *static_cast<attention_backward_statement const*>(s.extra);
    const int head = t.index % shape.heads, size = shape.head_size();
    const auto group = shape.layout->panel_groups().subspan(std::size_t(t.index / shape.heads), 2);
    const std::int64_t hidden = shape.hidden() * panel_tokens;
    const std::int64_t row = std::int64_t(head) * size * panel_tokens;
    sum* const scratch = reinterpret_cast<sum*>(t.scratch + s.sums);
    kernels::key_sums<sum> sums[2];  // dk and dv
    for (int part = 0; part < 2; ++part)
      if constexpr (std::is_same_v<T, sum>) {
        sums[part] = {dqkv->data() + row + (1 + part) * hidden, dqkv->panel_stride(), dqkv->panels()};
      } else {
        const std::int64_t numbers = kernels::wide_numbers<T>(size);
        sums[part] = {scratch + kernels::attention_backward_scratch<T>(size) + part * numbers, 2 * numbers,
                      most_panels_seen(*shape.layout, group[0], group[1])};
      }
    // Panels before `complete` are seen by no later query and are stored; from there to `begun` they have
    // sums.
    std::int64_t begun = group[0], complete = group[0];
    const auto complete_until = [&](std::int64_t panel) {
      for (; complete < panel; ++complete)
        for (int part = 0; part < 2; ++part)
          simd::store_narrowed<simd::native>(sums[part].of(complete), size,
                                             dqkv->panel(complete) + row + (1 + part) * hidden);
    };
    for (std::int64_t panel = group[0]; panel < group[1]; ++panel) {
      const panel_range seen = panels_of_sequences(*shape.layout, panel);
      complete_until(seen.first);
      for (; begun < seen.last; ++begun)
        for (auto const& part : sums) std::fill_n(part.of(begun), size * panel_tokens, sum(0));
      const kernels::lane_keys keys = keys_of_panel(*shape.layout, shape.seen, panel);
      // For the next head, if that does not push out of the cache what is still needed for this one.
      kernels::rows_ahead soon;
      if (head + 1 < shape.heads && group[1] - group[0] <= most_panels_ahead)
        soon = shape.rows_ahead(head + 1, panel, *y, *dy, *dqkv);
      kernels::attention_backward_panel<simd::native, T>::run(
          {shape.operands(head, panel, keys), y->panel(panel) + row, dy->panel(panel) + row,
           log_sums->panel(panel) + head * panel_tokens, dqkv->panel(panel) + row, sums[0], sums[1], scratch,
           soon});
    }
    complete_until(group[1]);
  }
};

}  // namespace eval

/// y = V softmax(Kᵀ Q / √d), head by head and sequence by sequence.
///   qkv (3 hidden, tokens)    the features of q, then of k, then of v; of each, head h has features
///                             h d … (h + 1) d - 1 with d = hidden / heads
///   y (hidden, tokens)        zero where a query sees no key
///   log_sums (heads, tokens)  log Σ e^score of each query, for backward; there -infinity
/// Scores and sums are in the accumulator type. Where bfloat16 has a dot-product instruction, probabilities,
/// and backwards the gradients of scores, are rounded for the sums over tokens: each product has a relative
/// error of unit_roundoff<T>, log_sums none of it. Throws shape_error, also if heads would share lanes. All
/// are held by reference until run.
template <element T>
auto attention(panel_matrix<T> const& qkv, sequences const& layout, int heads, mask seen, panel_matrix<T>& y,
               panel_matrix<accumulator_t<T>>& log_sums) {
  const eval::attention_shape<T> shape{&qkv, &layout, heads, seen};
  shape.check("attention");
  shape.check("attention", "y", y, shape.hidden());
  shape.check("attention", "log_sums", log_sums, heads);
  if (static_cast<void const*>(&y) == &log_sums)
    throw shape_error("[attention] y and log_sums are the same tensor: give two");
  return eval::attention_statement<T>{shape, &y, &log_sums};
}

/// dqkv (3 hidden, tokens), the gradient of a loss by qkv, from dy (hidden, tokens), its gradient by y, and
/// what `attention` computed. Throws shape_error. All are held by reference until run.
template <element T>
auto attention_backward(panel_matrix<T> const& qkv, panel_matrix<T> const& y,
                        panel_matrix<accumulator_t<T>> const& log_sums, panel_matrix<T> const& dy,
                        sequences const& layout, int heads, mask seen, panel_matrix<T>& dqkv) {
  const eval::attention_shape<T> shape{&qkv, &layout, heads, seen};
  shape.check("attention_backward");
  shape.check("attention_backward", "y", y, shape.hidden());
  shape.check("attention_backward", "log_sums", log_sums, heads);
  shape.check("attention_backward", "dy", dy, shape.hidden());
  shape.check("attention_backward", "dqkv", dqkv, qkv.features());
  if (&dqkv == &qkv)
    throw shape_error("[attention_backward] dqkv is qkv itself: the gradient cannot be computed in place");
  return eval::attention_backward_statement<T>{shape, &y, &log_sums, &dy, &dqkv};
}

}  // namespace tessera::inline TESSERA_ISA
