// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/kernels/attention.hpp>
#include <tessera/statements/attention_heads.hpp>
#include <tessera/tensor/mask.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/sequences.hpp>

// The keys that queries see, and the place of a head's rows.

namespace tessera { inline namespace TESSERA_ISA {

/// The keys that a query sees: the keys of its sequence that `order` allows, of these, if there is a window,
/// only the keys at a distance below it (so `window` keys if causal: Beltagy et al. 2020, Jiang et al. 2023),
/// and, if there are patterns, only the keys in blocks of 64 x 64 positions that the pattern of its head
/// stores (Child et al. 2019, Beltagy et al. 2020, Zaheer et al. 2020). Other blocks are neither read nor
/// computed.
///   blocks   a pattern for each head of queries, or one for all, held by reference; block (i, j) are the
///            queries from 64 i on of a sequence, and its keys from 64 j on. Sequences then begin at
///            multiples of 64 tokens
///   window   0: none
struct visible_keys {
  mask order;
  std::span<pattern const> blocks;
  std::int64_t window;

  visible_keys(mask of_sequence, std::span<pattern const> blocks_of_heads TESSERA_LIFETIMEBOUND = {},
               std::int64_t keys_of_window = 0)
      : order(of_sequence), blocks(blocks_of_heads), window(keys_of_window) {}

  /// The keys [first, last) among `count` keys of its sequence that a query sees by order and window.
  struct bounds {
    std::int64_t first, last;
  };
  bounds of_query(std::int64_t query, std::int64_t count) const {
    bounds seen{0, order == mask::causal ? std::min(count, query + 1) : count};
    if (window == 0) return seen;
    return {std::max<std::int64_t>(0, query + 1 - window), std::min(seen.last, query + window)};
  }
};

using kernels::learned_score_functor;
using kernels::plain_scores;
using kernels::score_functor;

namespace eval {

/// The keys that each lane of a panel of queries sees; lanes beyond the last token see none.
inline kernels::lane_keys keys_of_panel(sequences const& layout, visible_keys const& seen,
                                        std::int64_t panel) {
  kernels::lane_keys keys;
  std::int64_t token = panel * panel_tokens, sequence = layout.sequence_of(token);
  for (int lane = 0; lane < panel_tokens; ++lane, ++token) {
    if (token >= layout.tokens()) {
      keys.set(lane, 0, 0);
      continue;
    }
    while (token >= layout.end(sequence)) ++sequence;
    const std::int64_t begin = layout.begin(sequence);
    const auto visible = seen.of_query(token - begin, layout.keys(sequence));
    keys.set(lane, begin + visible.first, begin + visible.last);
  }
  return keys;
}

/// Panels first … last - 1.
struct panel_range {
  std::int64_t first, last;
};
/// The panels of all sequences that have a token in a panel.
inline panel_range panels_of_sequences(sequences const& layout, std::int64_t panel) {
  const std::int64_t token = panel * panel_tokens;
  const std::int64_t last = std::min(token + panel_tokens, layout.tokens()) - 1;
  return {layout.begin(layout.sequence_of(token)) / panel_tokens,
          ceil_div<std::int64_t>(layout.end(layout.sequence_of(last)), panel_tokens)};
}
/// The largest number of panels_of_sequences for the panels [first, last).
inline std::int64_t most_panels_seen(sequences const& layout, std::int64_t first, std::int64_t last) {
  std::int64_t most = 0;
  for (std::int64_t panel = first; panel < last; ++panel) {
    const panel_range seen = panels_of_sequences(layout, panel);
    most = std::max(most, seen.last - seen.first);
  }
  return most;
}

/// The panels whose keys the queries of a panel may see.
inline panel_range visited_panels(sequences const& layout, visible_keys const& seen, std::int64_t panel) {
  const std::int64_t first = panel * panel_tokens;
  const std::int64_t last = std::min(first + panel_tokens, layout.tokens()) - 1;
  const auto bounds_of = [&](std::int64_t token) {
    const std::int64_t sequence = layout.sequence_of(token), begin = layout.begin(sequence);
    const auto visible = seen.of_query(token - begin, layout.keys(sequence));
    return visible_keys::bounds{begin + visible.first, begin + visible.last};
  };
  const std::int64_t begin = bounds_of(first).first / panel_tokens;
  return {begin, std::max(begin, ceil_div<std::int64_t>(bounds_of(last).last, panel_tokens))};
}

/// The score functor of a statement without one.
inline constexpr plain_scores scores_as_they_are;

/// Panels ahead whose rows of one head stay in the L2 beside the rows in use.
inline constexpr int most_panels_ahead = 8;

/// The arguments of attention and of its backward, and their checks.
template <class T, class Score = plain_scores> struct attention_shape {
  using sum = accumulator_t<T>;
  panel_matrix<T> const* qkv;
  sequences const* layout;
  attention_heads heads;
  visible_keys seen;
  Score const* score;

  int head_size() const { return int(qkv->features() / heads.all()); }
  /// Features of y.
  std::int64_t hidden() const { return std::int64_t(heads.queries) * head_size(); }
  /// The first features in qkv of a head of queries, and of its keys and values.
  std::array<std::int64_t, 3> rows_of(std::int64_t head) const {
    const std::int64_t key = heads.queries + head / heads.group(), size = head_size();
    return {head * size, key * size, (key + heads.keys) * size};
  }
  /// Parameters of a learned score functor for each head, else 0.
  std::int64_t parameters() const {
    if constexpr (learned_score_functor<Score>)
      return score->parameters();
    else
      return 0;
  }

  /// Throws shape_error.
  ///   cached   whether keys stand in a cache, where each sequence has panels of its own
  void check(const char* operation, bool cached = false) const {
    if (heads.queries < 1 || qkv->features() == 0 || qkv->features() % heads.all() != 0)
      throw shape_error(message("[", operation, "] qkv has ", qkv->features(), " features for ",
                                heads.queries, " heads of queries and ", heads.keys,
                                " of keys and values: it needs a multiple of ", std::max(3, heads.all()),
                                ", and at least one head"));
    if (head_size() % element_traits<T>::features_a_lane != 0)
      throw shape_error(message("[", operation, "] ", heads.queries, " heads of ", head_size(),
                                " features: in ", element_traits<T>::name,
                                " two features share a lane, so that a head needs ", "an even number"));
    if (layout->tokens() != qkv->tokens())
      throw shape_error(message("[", operation, "] qkv has ", qkv->tokens(), " tokens but the sequences ",
                                layout->tokens()));
    if constexpr (requires { score->check(heads.queries); }) score->check(heads.queries);
    if (!seen.blocks.empty()) check_blocks(operation, cached);
  }
  template <class E>
  void check(const char* operation, const char* name, panel_matrix<E> const& x, std::int64_t features) const {
    if (x.features() != features || x.tokens() != qkv->tokens())
      throw shape_error(message("[", operation, "] ", name, " is (", x.features(), " features, ", x.tokens(),
                                " tokens) but should be (", features, ", ", qkv->tokens(), ")"));
  }

  kernels::attention_operands<T, Score> operands(int head, std::int64_t panel,
                                                 kernels::lane_keys const& keys) const {
    const auto rows = rows_of(head);
    return {qkv->panel(panel) + rows[0] * panel_tokens,
            qkv->data() + rows[1] * panel_tokens,
            qkv->data() + rows[2] * panel_tokens,
            qkv->panel_stride(),
            head_size(),
            sum(1 / std::sqrt(double(head_size()))),
            &keys,
            score,
            head,
            panel,
            live(head, panel)};
  }
  /// The panels of keys that a panel of queries visits, for one head.
  kernels::live_panels live(int head, std::int64_t panel) const {
    if (seen.blocks.empty()) return {};
    const std::int64_t first = layout->begin(layout->sequence_of(panel * panel_tokens)) / panel_tokens;
    const auto row = seen.blocks[seen.blocks.size() == 1 ? 0 : std::size_t(head)].row(int(panel - first));
    return {false, row.data(), int(row.size()), first};
  }
  /// The rows of a head of queries in a panel of qkv and of tensors as y and dqkv.
  template <class... X>
  kernels::rows_ahead rows_ahead(int head, std::int64_t panel, X const&... others) const {
    kernels::rows_ahead soon;
    soon.bytes = std::size_t(head_size()) * panel_tokens * sizeof(T);
    const auto rows = rows_of(head);
    const auto add = [&](panel_matrix<T> const& x) {
      for (int part = 0; part < (x.features() == qkv->features() ? 3 : 1); ++part)
        soon.add(x.panel(panel) + rows[std::size_t(part)] * panel_tokens);
    };
    add(*qkv);
    (add(others), ...);
    return soon;
  }
  /// Calls visit(range) for the panels of keys that a panel of queries visits, for one head.
  template <class Visit> void for_each_visited(int head, std::int64_t panel, Visit&& visit) const {
    const panel_range keys = visited_panels(*layout, seen, panel);
    if (seen.blocks.empty()) return visit(keys);
    const kernels::live_panels among = live(head, panel);
    for (std::int64_t p = keys.first; p < keys.last; ++p)
      if (among.contain(p)) visit(panel_range{p, p + 1});
  }
  /// Multiply-adds of `products` products of a panel of queries with the keys that it visits, for one head.
  std::int64_t multiplies(int head, std::int64_t panel, int products) const {
    std::int64_t panels = 0;
    for_each_visited(head, panel, [&](panel_range keys) { panels += keys.last - keys.first; });
    return products * panels * panel_tokens * panel_tokens * head_size();
  }
  /// Lists `rows` rows of a tensor, from feature `first` on, in some panels.
  template <class E>
  void touch(std::vector<touched_bytes>& list, panel_matrix<E> const& x, std::int64_t first,
             std::int64_t rows, panel_range panels) const {
    for (std::int64_t p = panels.first; p < panels.last; ++p)
      list.push_back(part_of_panel<E>(memory::user, reinterpret_cast<std::uintptr_t>(x.panel(p)), first,
                                      first + rows, tokens_of(p, x.tokens())));
  }

 private:
  TESSERA_COLD void check_blocks(const char* operation, bool cached) const {
    if (seen.blocks.size() != 1 && std::ssize(seen.blocks) != heads.queries)
      throw shape_error(message("[", operation, "] ", seen.blocks.size(), " patterns of visible blocks for ",
                                heads.queries, " heads of queries: give one for each, or one for all"));
    for (std::int64_t s = 0; s < layout->count(); ++s) {
      if (!cached && layout->begin(s) % panel_tokens != 0 && layout->length(s) > 0)
        throw shape_error(message("[", operation, "] sequence ", s, " begins at token ", layout->begin(s),
                                  ": with visible blocks sequences begin at multiples of ", panel_tokens));
      const std::int64_t length = layout->start(s) + layout->length(s);
      const std::int64_t blocks = ceil_div<std::int64_t>(length, panel_tokens);
      for (std::size_t head = 0; head < seen.blocks.size(); ++head) {
        pattern const& p = seen.blocks[head];
        if (p.block_rows() < blocks || p.block_cols() < blocks)
          throw shape_error(message("[", operation, "] the visible blocks of head ", head, " are a grid of ",
                                    p.block_rows(), " x ", p.block_cols(), ", but sequence ", s, " has ",
                                    length, " tokens, which take ", blocks, " x ", blocks, " blocks of ",
                                    panel_tokens));
      }
    }
  }
};

}  // namespace eval

}}  // namespace tessera::TESSERA_ISA
