// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/kernels/attention.hpp>
#include <tessera/kernels/attention_backward.hpp>
#include <tessera/ops/exponential.hpp>
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

/// What both directions are given, and what they check.
template <class T> struct attention_shape {
  static_assert(element_traits<T>::features_a_lane == 1, "attention in bfloat16 comes later: use float");
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
    if (layout->tokens() != qkv->tokens())
      throw shape_error(message("[", operation, "] qkv has ", qkv->tokens(), " tokens but the sequences ",
                                layout->tokens()));
  }
  void check(const char* operation, const char* name, panel_matrix<T> const& x, std::int64_t features) const {
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
            T(1 / std::sqrt(double(head_size()))),
            &keys};
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
  attention_shape<T> shape;
  panel_matrix<T>*y, *log_sums;

  void lower(plan& p) const {
    step s = shape.new_step(y->panels(), 2);
    s.add(all_of(*y));
    s.add(all_of(*log_sums));
    s.results = 2;
    s.add(all_of(*shape.qkv));
    s.extra = this;
    s.sums = p.scratch(panel_tokens * panel_tokens * sizeof(T));
    s.compute = compute;
    p.add(s);
  }
  static void compute(step const& s, tile const& t) noexcept {
    auto const& [shape, y, log_sums] = *static_cast<attention_statement const*>(s.extra);
    const std::int64_t head = t.index / y->panels(), panel = t.index % y->panels();
    const kernels::lane_keys keys = keys_of_panel(*shape.layout, shape.seen, panel);
    kernels::attention_panel<simd::native, T, ops::exponential>::run(
        {shape.operands(int(head), panel, keys), y->panel(panel) + head * shape.head_size() * panel_tokens,
         log_sums->panel(panel) + head * panel_tokens, s.tokens_of(panel),
         reinterpret_cast<T*>(t.scratch + s.sums)});
  }
};

template <class T>
struct [[nodiscard(
    "a statement computes nothing until it is given to run(context, …)")]] attention_backward_statement {
  using statement_tag = void;
  attention_shape<T> shape;
  panel_matrix<T> const *y, *log_sums, *dy;
  panel_matrix<T>* dqkv;

  void lower(plan& p) const {
    step s = shape.new_step(std::int64_t(shape.layout->panel_groups().size()) - 1, 5);
    s.add(all_of(*dqkv));
    for (auto* read : {shape.qkv, y, log_sums, dy}) s.add(all_of(*read));
    s.extra = this;
    s.sums = p.scratch(kernels::attention_backward_scratch * sizeof(T));
    s.compute = compute;
    p.add(s);
  }
  /// One head of a group of panels: panels outside share no sequence with it, so nobody else adds to its
  /// gradients.
  static void compute(step const& s, tile const& t) noexcept {
    auto const& [shape, y, log_sums, dy, dqkv] = *static_cast<attention_backward_statement const*>(s.extra);
    const auto groups = shape.layout->panel_groups();
    const int head = t.index % shape.heads;
    const std::size_t group = std::size_t(t.index / shape.heads);
    const std::int64_t hidden = shape.hidden() * panel_tokens;
    const std::int64_t row = std::int64_t(head) * shape.head_size() * panel_tokens;
    T* const dq = dqkv->data() + row;
    for (std::int64_t panel = groups[group]; panel < groups[group + 1]; ++panel)
      for (int part = 1; part < 3; ++part)
        std::fill_n(dqkv->panel(panel) + row + part * hidden, shape.head_size() * panel_tokens, T(0));
    for (std::int64_t panel = groups[group]; panel < groups[group + 1]; ++panel) {
      const kernels::lane_keys keys = keys_of_panel(*shape.layout, shape.seen, panel);
      kernels::attention_backward_panel<simd::native, T, ops::exponential>::run(
          {shape.operands(head, panel, keys), y->panel(panel) + row, dy->panel(panel) + row,
           log_sums->panel(panel) + head * panel_tokens, dqkv->panel(panel) + row, dq + hidden,
           dq + 2 * hidden, reinterpret_cast<T*>(t.scratch + s.sums)});
    }
  }
};

}  // namespace eval

/// y = V softmax(Kᵀ Q / √d), head by head and sequence by sequence.
///   qkv (3 hidden, tokens)    the features of q, then of k, then of v; of each, head h has features
///                             h d … (h + 1) d - 1 with d = hidden / heads
///   y (hidden, tokens)        zero where a query sees no key
///   log_sums (heads, tokens)  log Σ e^score of each query, for backward; there -infinity
/// Throws shape_error. All are held by reference until run.
template <element T>
auto attention(panel_matrix<T> const& qkv, sequences const& layout, int heads, mask seen, panel_matrix<T>& y,
               panel_matrix<T>& log_sums) {
  const eval::attention_shape<T> shape{&qkv, &layout, heads, seen};
  shape.check("attention");
  shape.check("attention", "y", y, shape.hidden());
  shape.check("attention", "log_sums", log_sums, heads);
  if (&y == &log_sums) throw shape_error("[attention] y and log_sums are the same tensor: give two");
  return eval::attention_statement<T>{shape, &y, &log_sums};
}

/// dqkv (3 hidden, tokens), the gradient of a loss by qkv, from dy (hidden, tokens), its gradient by y, and
/// what `attention` computed. Throws shape_error. All are held by reference until run.
template <element T>
auto attention_backward(panel_matrix<T> const& qkv, panel_matrix<T> const& y, panel_matrix<T> const& log_sums,
                        panel_matrix<T> const& dy, sequences const& layout, int heads, mask seen,
                        panel_matrix<T>& dqkv) {
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
