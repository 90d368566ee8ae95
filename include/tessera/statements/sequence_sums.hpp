// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/kernels/sequence_sums.hpp>
#include <tessera/simd/simd.hpp>
#include <tessera/tensor/sequences.hpp>

// Sums and means over the tokens of each sequence of a batch, whose result has a token for each sequence, and
// the reverse: the tokens of a sequence all alike.

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

enum class token_average : std::uint8_t { sum, mean };

/// The sum or mean over the tokens of each sequence: an expression of as many tokens as there are sequences.
template <class X> struct sequence_sum {
  using node_tag = void;
  using value_type = typename X::value_type;
  static constexpr domain laid_over = domain::panels;
  X x;
  sequences const* batch;
  token_average kind;
  expr::extent size() const { return {x.tensor().features(), batch->count()}; }
};

/// The token of its sequence, at each token of a batch, and zero at padding.
template <class X> struct repeated_tokens {
  using node_tag = void;
  using value_type = typename X::value_type;
  static constexpr domain laid_over = domain::panels;
  X x;
  sequences const* batch;
  expr::extent size() const { return {x.tensor().features(), batch->tokens()}; }
};

/// What both directions know: tiles are panels of the result, or granules of its features.
template <class Y, class X> struct sequence_tiles {
  panels_to<Y> to;
  operand from;
  std::int64_t stride;  // of x: elements from panel to panel
  sequences const* batch;

  panels_to<Y> const& destination() const { return to; }
  range features_of(tile const& t) const { return granules_of(to.features, t.part, t.parts); }
  int live(tile const& t) const { return tokens_of(t.index, to.tokens); }
  /// Features of tokens [begin, end) of x.
  void describe_tokens(task_description& d, range f, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t p = begin / panel_tokens; p * panel_tokens < end; ++p) {
      const std::int64_t first = std::max<std::int64_t>(begin - p * panel_tokens, 0),
                         last = std::min<std::int64_t>(end - p * panel_tokens, panel_tokens);
      constexpr int lane = element_traits<X>::features_a_lane;
      d.read({from.owner,
              from.at + std::uintptr_t(p * stride + place_in_panel<X>(f.first, first)) * sizeof(X),
              (last - first) * lane * std::int64_t(sizeof(X)), ceil_div<std::int64_t>(f.size(), lane),
              lane * panel_tokens * std::int64_t(sizeof(X))});
    }
  }
};

template <class Y, class X> struct sequence_sum_body : sequence_tiles<Y, X> {
  token_average kind;

  void compute_at(tile const& t, Y* y) const noexcept {
    using T = accumulator_t<X>;
    const range f = this->features_of(t);
    X const* const x = t.address<X const>(this->from, 0);
    const int live = this->live(t);
    for (int token = 0; token < live; ++token) {
      const std::int64_t sequence = t.index * panel_tokens + token, begin = this->batch->begin(sequence),
                         keys = this->batch->keys(sequence);
      const T share = kind == token_average::mean && keys > 0 ? T(1) / T(keys) : T(1);
      for (int feature = f.first; feature < f.last; ++feature)
        y[place_in_panel<Y>(feature, token)] =
            Y(share * kernels::sum_of_tokens<simd::native>(x, this->stride, feature, begin, begin + keys));
    }
  }
  void describe(tile const& t, task_description& d) const {
    for (int token = 0; token < this->live(t); ++token) {
      const std::int64_t sequence = t.index * panel_tokens + token, begin = this->batch->begin(sequence);
      this->describe_tokens(d, this->features_of(t), begin, begin + this->batch->keys(sequence));
    }
  }
};

template <class Y, class X> struct repeated_tokens_body : sequence_tiles<Y, X> {
  /// Calls visit(sequence, first, last, keys) for the sequences of a panel, with the tokens of the panel.
  template <class Visit> void for_each_sequence(tile const& t, Visit const& visit) const {
    const std::int64_t first = t.index * panel_tokens, last = first + this->live(t);
    for (std::int64_t token = first; token < last;) {
      const std::int64_t sequence = this->batch->sequence_of(token),
                         end = std::min(last, this->batch->end(sequence)),
                         keys = this->batch->begin(sequence) + this->batch->keys(sequence);
      visit(sequence, int(token - first), int(end - first), int(std::clamp(keys, token, end) - first));
      token = end;
    }
  }
  void compute_at(tile const& t, Y* y) const noexcept {
    const range f = this->features_of(t);
    X const* const x = t.address<X const>(this->from, 0);
    for_each_sequence(t, [&](std::int64_t sequence, int first, int last, int keys) {
      X const* const of = x + sequence / panel_tokens * this->stride;
      for (int feature = f.first; feature < f.last; ++feature) {
        using T = accumulator_t<X>;
        const auto value = Y(T(of[place_in_panel<X>(feature, sequence % panel_tokens)]));
        kernels::fill_tokens(y, feature, first, keys, value);
        kernels::fill_tokens(y, feature, keys, last, Y(0));
      }
    });
  }
  void describe(tile const& t, task_description& d) const {
    for_each_sequence(t, [&](std::int64_t sequence, int, int, int) {
      this->describe_tokens(d, this->features_of(t), sequence, sequence + 1);
    });
  }
};

/// Adds the step of either direction; make(tiles) is its body.
template <class E, class X, class Make>
TESSERA_COLD void add_sequence_step(plan& p, panels_to<E> const& to, X const& x, sequences const& batch,
                                    Make const& make) {
  using element = typename X::value_type;
  static_assert(std::is_same_v<accumulator_t<E>, accumulator_t<element>>,
                "the operand and the destination have different element types: " TESSERA_ONE_ACCUMULATOR);
  step_draft s("sequences", cut::panels);
  s.tiles = to.panels();
  s.most_parts = int(ceil_div<std::int64_t>(to.features, granule));
  const operand written = s.writes(to.at), read = s.reads(all_of(x.tensor()));
  if (shared_tiles(written, read) != relation::none)
    throw shape_error("[sum_tokens] the destination is also the operand: tokens cannot move in place");
  p.add(s, make(sequence_tiles<E, element>{to, read, x.tensor().panel_stride(), &batch}));
}
template <class E, class X> void lower_to(plan& p, panels_to<E> const& to, sequence_sum<X> const& node) {
  add_sequence_step(p, to, node.x, *node.batch, [&](auto const& tiles) {
    return sequence_sum_body<E, typename X::value_type>{tiles, node.kind};
  });
}
template <class E, class X> void lower_to(plan& p, panels_to<E> const& to, repeated_tokens<X> const& node) {
  add_sequence_step(p, to, node.x, *node.batch, [&](auto const& tiles) {
    return repeated_tokens_body<E, typename X::value_type>{tiles};
  });
}

/// The node Node{x, batch, more…} of a stored activation of `tokens` tokens.
template <template <class> class Node, class X, class... More>
auto over_sequences(char const* operation, X&& x, sequences const& batch, std::int64_t tokens, More... more) {
  constexpr bool stored = tensor<X> && in_panels<std::remove_cvref_t<X>>;
  static_assert(stored,
                "[sum_tokens(x, batch)] the tokens of a sequence are read from several panels: store x in a "
                "panel_matrix first");
  if constexpr (stored) {
    if (x.tokens() != tokens)
      throw shape_error(
          message("[", operation, "] the activation has ", x.tokens(), " tokens but the batch ", tokens));
    return Node<expr::held<X>>{expr::hold(std::forward<X>(x)), &batch, more...};
  } else {
    return expr::hold(std::forward<X>(x));
  }
}

}  // namespace eval

/// The sum over the tokens of each sequence of a batch (features, sequences); padding takes no part.
///   x       a tensor (features, tokens of the batch)
///   batch   must outlive the statement
/// Throws shape_error if x has other tokens than the batch.
template <expr::activation X> auto sum_tokens(X&& x, sequences const& batch) {
  return eval::over_sequences<eval::sequence_sum>("sum_tokens", std::forward<X>(x), batch, batch.tokens(),
                                                  eval::token_average::sum);
}
/// The mean over the tokens of each sequence; zero for a sequence without any.
template <expr::activation X> auto mean_tokens(X&& x, sequences const& batch) {
  return eval::over_sequences<eval::sequence_sum>("mean_tokens", std::forward<X>(x), batch, batch.tokens(),
                                                  eval::token_average::mean);
}

/// At each token of a batch the token of its sequence, and zero at padding: the gradient of sum_tokens, and
/// of mean_tokens if each token of y is divided by the tokens of its sequence.
///   y   a tensor (features, sequences)
/// Throws shape_error if y has another number of tokens than the batch has sequences.
template <expr::activation Y> auto repeat_tokens(Y&& y, sequences const& batch) {
  return eval::over_sequences<eval::repeated_tokens>("repeat_tokens", std::forward<Y>(y), batch,
                                                     batch.count());
}

}}  // namespace tessera::TESSERA_ISA
