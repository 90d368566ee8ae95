// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/eval/elementwise.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/tensor/panel_slice.hpp>

// Features of several activations, one behind the other, as an operand and as a destination.

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

template <class E, std::size_t Parts, class Value> struct split_assignment;

template <class T> inline constexpr bool is_written_part = false;
template <class E>
inline constexpr bool is_written_part<expr::by_value<panel_slice<E>>> = !std::is_const_v<E>;

/// The element of a concatenation: that of its parts if they have one, else their accumulator.
template <class...> struct concatenated_element;
template <class First, class... Rest> struct concatenated_element<First, Rest...> {
  using type = std::conditional_t<(std::is_same_v<First, Rest> && ...), First,
                                  typename expr::common_value<First, Rest...>::type>;
};

template <class... Parts> struct concatenation {
  using node_tag = void;
  using value_type = typename concatenated_element<typename Parts::value_type...>::type;
  using stored_element = value_type;
  static constexpr domain laid_over = domain::panels;
  static constexpr bool is_destination = (is_written_part<Parts> && ...);
  std::tuple<Parts...> parts;

  explicit concatenation(Parts... all) : parts(std::move(all)...) {}
  concatenation(concatenation const&) = default;

  expr::extent size() const {
    return std::apply(
        [](auto const& first, auto const&... rest) {
          const expr::extent one = expr::extent_of(first);
          return expr::extent{(one.features + ... + expr::extent_of(rest).features), one.tokens};
        },
        parts);
  }

  // An assignment describes a statement that writes to the parts.
  auto operator=(concatenation const& value) const
    requires is_destination
  {
    return assigned_from(value);
  }
  template <class Value>
    requires(is_destination && (assigned<Value> || tensor<Value>))
  auto operator=(Value const& value) const {
    return assigned_from(expr::hold(value));
  }
  template <expr::operand Value>
    requires is_destination
  auto operator+=(Value&& value) const {
    return assigned_from(*this + std::forward<Value>(value));
  }

 private:
  template <class Value> auto assigned_from(Value const& value) const {
    static_assert((std::is_same_v<typename Parts::value_type, value_type> && ...),
                  "[concat_features(…) = …] the parts have different element types: bring them to one");
    expr::check_sizes(size(), expr::extent_of(value));
    return std::apply(
        [&](auto const&... part) {
          return split_assignment<value_type, sizeof...(Parts), Value>{{part.tensor()...}, value};
        },
        parts);
  }
};

/// Part of a panel: features from `first` on.
template <class E> operand features_from(operand panel, std::int64_t first, std::int64_t features) {
  panel.at += std::size_t(place_in_panel<E>(first, 0)) * sizeof(E);
  panel.bytes =
      std::size_t(round_up<std::int64_t>(features, element_traits<E>::features_a_lane) * panel_tokens) *
      sizeof(E);
  return panel;
}

/// Zeroes the features of a panel in the worker's memory that pad it to a multiple of 16.
template <class E> struct end_padding_body {
  operand to;
  std::int64_t features;

  void compute(tile const& t) const noexcept { clear_padding(to, features, t.address<E>(to), t); }
  void describe(tile const&, task_description&) const {}
};

/// Adds the step that copies features of a panel in the worker's memory to where they belong.
template <class E> TESSERA_COLD void add_copy(plan& p, panels_to<E> const& to, operand const& from) {
  step_draft s("elementwise", cut::panels);
  s.writes(to.at);
  const source<tree::panel<E>> tree(s.reads(from));
  s.tiles = to.panels();
  p.add(s, elementwise_body<E, source<tree::panel<E>>>{to, tree});
}

/// In the worker's memory every part is computed where it stands; its own padding is overwritten by the next
/// one. Memory of the run, which tasks share, gets a copy.
template <class E, class... Parts>
TESSERA_COLD void lower_to(plan& p, panels_to<E> const& to, concatenation<Parts...> const& node) {
  if (to.at.owner == memory::user) return add_elementwise<E>(p, to, node);
  if (to.at.owner == memory::run) {
    const panels_to<E> whole{p.worker_memory(panel_bytes<E>(to.features)), to.features, to.tokens};
    lower_to(p, whole, node);
    return add_copy(p, to, whole.at);
  }
  std::int64_t first = 0;
  const auto lower_part = [&](auto const& part) {
    const std::int64_t features = expr::extent_of(part).features;
    if (features > 0)
      lower_to(p, panels_to<E>{features_from<E>(to.at, first, features), features, to.tokens}, part);
    first += features;
  };
  std::apply([&](auto const&... part) { (lower_part(part), ...); }, node.parts);
  if (to.features % granule == 0 && to.features > 0) return;
  step_draft s("padding", cut::panels);
  s.tiles = to.panels();
  s.writes(to.at);
  p.add(s, end_padding_body<E>{to.at, to.features});
}

/// The parts of a destination, each a slice. The value is computed in the worker's memory before any part is
/// written, so that it may read them.
template <class E, std::size_t Parts, class Value> struct TESSERA_STATEMENT split_assignment {
  using statement_tag = void;
  std::array<panel_slice<E>, Parts> parts;
  Value value;

  void lower(plan& p) const {
    std::int64_t features = 0;
    for (panel_slice<E> const& part : parts) features += part.features();
    const std::int64_t tokens = parts[0].tokens();
    for (std::size_t i = 0; i < Parts; ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (shared_tiles(by_panel(parts[i]), by_panel(parts[j])) != relation::none)
          throw shape_error(message("[concat_features(…) = …] parts ", j, " and ", i, " share memory"));
    const panels_to<E> whole{p.worker_memory(panel_bytes<E>(features)), features, tokens};
    lower_to(p, whole, value);
    std::int64_t first = 0;
    for (panel_slice<E> const& part : parts) {
      if (part.features() == 0) continue;
      add_copy<E>(p, {by_panel(part), part.features(), tokens},
                  features_from<E>(whole.at, first, part.features()));
      first += part.features();
    }
  }
};

/// A part of a concatenation: a slice, which can be written, of a tensor that has a name.
template <class Part> auto concatenated(Part&& part) {
  if constexpr (detail::can_be_sliced<Part> && (std::is_lvalue_reference_v<Part> || tensor_view<Part>))
    return expr::by_value<decltype(detail::slice_of(part))>{detail::slice_of(part)};
  else
    return expr::hold(std::forward<Part>(part));
}

/// Throws shape_error unless all parts have the tokens of the first one, and each begins at a lane.
void require_parts(std::span<expr::extent const> parts, std::int64_t lane);

}  // namespace eval

/// Features of several activations, one behind the other: all features of the first, then all of the second,
/// and so on. An operand, `w * concat_features(x, h)`, and if all parts are tensors or slices, a destination,
/// `concat_features(a, b) = w * x`. A product of which parts are wanted as tensors can instead have slices of
/// one tensor, which are not copied. Throws shape_error unless all parts have the same tokens and begin at a
/// lane, which holds two features of bfloat16 and float16, four of 8-bit floats.
template <expr::activation... Parts>
  requires(sizeof...(Parts) > 0)
auto concat_features(Parts&&... parts) {
  using made = eval::concatenation<decltype(eval::concatenated(std::forward<Parts>(parts)))...>;
  static_assert(element<typename made::value_type>,
                "[concat_features] the parts have different element types: " TESSERA_ONE_ACCUMULATOR);
  if constexpr (element<typename made::value_type>) {
    const made all(eval::concatenated(std::forward<Parts>(parts))...);
    std::apply(
        [](auto const&... part) {
          const expr::extent sizes[] = {expr::extent_of(part)...};
          eval::require_parts(sizes, element_traits<typename made::value_type>::features_a_lane);
        },
        all.parts);
    return all;
  } else {
    return (expr::hold(std::forward<Parts>(parts)), ...);
  }
}

#ifdef TESSERA_BODY

namespace eval {

TESSERA_COLD TESSERA_BODY void require_parts(std::span<expr::extent const> parts, std::int64_t lane) {
  std::int64_t first = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].features < 0 || parts[i].tokens < 0)
      throw shape_error(
          message("[concat_features] part ", i,
                  " has no number of features and tokens of its own: store it in a panel_matrix first"));
    if (parts[i].tokens != parts[0].tokens)
      throw shape_error(message("[concat_features] part ", i, " has ", parts[i].tokens,
                                " tokens but part 0 has ", parts[0].tokens));
    if (first % lane != 0)
      throw shape_error(message("[concat_features] part ", i, " would begin at feature ", first, ": ", lane,
                                " features share a lane, so each part but the last must have a multiple of ",
                                lane, " features"));
    first += parts[i].features;
  }
}

}  // namespace eval

#endif

}}  // namespace tessera::TESSERA_ISA
