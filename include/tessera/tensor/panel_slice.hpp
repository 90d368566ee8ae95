// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/tensor/panel_matrix.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// A range of the features and of the panels of an activation, as an operand or a destination: the gates of a
/// recurrent layer, a time step of many. Refers to the activation, which must outlive it.
///   Element   const if the activation is
/// Tokens of the last panel beyond the slice's tokens are padding: statements on the slice write zeros there,
/// up to a multiple of 16 at least.
template <class Element> class panel_slice {
 public:
  using tensor_tag = void;
  using view_tag = void;
  using value_type = std::remove_const_t<Element>;
  using whole_type =
      std::conditional_t<std::is_const_v<Element>, panel_matrix<value_type> const, panel_matrix<value_type>>;
  static constexpr domain laid_over = domain::panels;

  /// All of an activation.
  explicit panel_slice(whole_type& whole)
      : whole_(&whole),
        built_features_(whole.features()),
        built_tokens_(whole.tokens()),
        features_(whole.features()),
        tokens_(whole.tokens()) {}
  panel_slice(panel_slice const&) = default;

  std::int64_t features() const { return features_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t padded_features() const { return round_up<std::int64_t>(features_, granule); }
  std::int64_t panels() const { return ceil_div<std::int64_t>(tokens_, panel_tokens); }
  /// Elements from one panel to the next.
  std::int64_t panel_stride() const { return whole_->panel_stride(); }
  /// From the first element to behind the last one, elements of other features between them included.
  std::size_t size_bytes() const {
    if (panels() == 0 || features_ == 0) return 0;
    const std::int64_t last = round_up<std::int64_t>(features_, element_traits<value_type>::features_a_lane);
    return std::size_t((panels() - 1) * panel_stride() + last * panel_tokens) * sizeof(value_type);
  }
  /// Whether the features behind the slice, until it has a multiple of 16, are zeros of its activation.
  bool has_padded_features() const {
    return features_ % granule == 0 ||
           (first_feature_ + features_ == built_features_ &&
            first_feature_ + padded_features() <= round_up<std::int64_t>(built_features_, granule));
  }
  /// Whether the tokens behind the slice, up to a multiple of 64, are zero.
  bool has_padded_tokens() const {
    return tokens_ % panel_tokens == 0 || first_panel_ * panel_tokens + tokens_ == built_tokens_;
  }

  /// Throws shape_error if the activation has another size than when the slice was made.
  Element* data() const {
    if (whole_->features() != built_features_ || whole_->tokens() != built_tokens_)
      throw shape_error(message("[slice] the activation was (", built_features_, ", ", built_tokens_,
                                ") when the slice was made and is (", whole_->features(), ", ",
                                whole_->tokens(), ") now: make the slice anew"));
    Element* const all = whole_->data();  // null if it has no elements
    return all ? all + first_panel_ * panel_stride() + place_in_panel<value_type>(first_feature_, 0) : all;
  }
  Element* panel(std::int64_t p) const { return data() + p * panel_stride(); }

  std::conditional_t<std::is_const_v<Element>, value_type, Element&> operator()(std::int64_t feature,
                                                                                std::int64_t token) const {
    TESSERA_ASSERT(feature >= 0 && feature < features_ && token >= 0 && token < tokens_,
                   "indices are in range");
    return (*whole_)(first_feature_ + feature, first_panel_ * panel_tokens + token);
  }

  /// The elements: feature by feature, the tokens of each in order. The slice must outlive the iterators.
  auto begin() const { return panel_iterator<panel_slice const>(*this, 0); }
  auto end() const { return panel_iterator<panel_slice const>(*this, tokens_ > 0 ? features_ : 0); }

  /// Features [first, last) of this slice.
  TESSERA_COLD panel_slice with_features(std::int64_t first, std::int64_t last) const {
    require_range("slice_features", "features", first, last, features_);
    constexpr std::int64_t lane = element_traits<value_type>::features_a_lane;
    if (first % lane != 0 || (last % lane != 0 && last != features_))
      throw shape_error(message("[slice_features] features ", first, " to ", last, " of ", features_, ": ",
                                lane, " features share a lane, so a slice begins at a multiple of ", lane,
                                " and ends at one, or at ", features_));
    panel_slice part = *this;
    part.first_feature_ += first;
    part.features_ = last - first;
    return part;
  }
  /// Tokens [first, last) of this slice.
  TESSERA_COLD panel_slice with_tokens(std::int64_t first, std::int64_t last) const {
    require_range("slice_tokens", "tokens", first, last, tokens_);
    if (first % panel_tokens != 0)
      throw shape_error(message("[slice_tokens] tokens ", first, " to ", last, " of ", tokens_,
                                ": a slice begins at a panel, a multiple of ", panel_tokens, ", such as ",
                                first / panel_tokens * panel_tokens));
    panel_slice part = *this;
    part.first_panel_ += first / panel_tokens;
    part.tokens_ = last - first;
    return part;
  }

  // An assignment describes a statement that writes to the activation, also that of another slice.
  auto operator=(panel_slice const& value) const { return assign(*this, value); }
  template <class Value>
    requires(assigned<Value> || tensor<Value>)
  auto operator=(Value const& value) const {
    return assign(*this, value);
  }
  template <expression Expression> auto operator+=(Expression&& value) const {
    return accumulate(*this, static_cast<Expression&&>(value));
  }

 private:
  static void require_range(const char* operation, const char* what, std::int64_t first, std::int64_t last,
                            std::int64_t all) {
    if (first < 0 || last < first || last > all)
      throw shape_error(message("[", operation, "] ", what, " ", first, " to ", last, " of ", all,
                                ": they must be in ascending order within 0 … ", all));
  }

  whole_type* whole_;
  std::int64_t built_features_, built_tokens_;
  std::int64_t first_feature_ = 0, features_;
  std::int64_t first_panel_ = 0, tokens_;
};

namespace detail {
template <class Element> panel_slice<Element> slice_of(panel_matrix<Element>& x) {
  return panel_slice<Element>(x);
}
template <class Element> panel_slice<Element const> slice_of(panel_matrix<Element> const& x) {
  return panel_slice<Element const>(x);
}
template <class Element> panel_slice<Element> slice_of(panel_slice<Element> const& x) { return x; }
template <class Panels>
concept can_be_sliced = !tensor_view<Panels> && requires(Panels& x) { slice_of(x); };
}  // namespace detail

/// Features [first, last) of an activation or of a slice. Throws shape_error unless they begin and end at a
/// lane: anywhere for float and double, at even numbers for bfloat16 and float16, at multiples of four for
/// 8-bit floats.
template <class Panels>
  requires detail::can_be_sliced<Panels>
auto slice_features(Panels&& x TESSERA_LIFETIMEBOUND, std::int64_t first, std::int64_t last) {
  static_assert(std::is_lvalue_reference_v<Panels>,
                "[slice_features] a slice refers to an activation, which must be a variable");
  return detail::slice_of(x).with_features(first, last);
}
template <class Element>
auto slice_features(panel_slice<Element> const& x, std::int64_t first, std::int64_t last) {
  return x.with_features(first, last);
}

/// Tokens [first, last) of an activation or of a slice. Throws shape_error unless they begin at a multiple of
/// 64.
template <class Panels>
  requires detail::can_be_sliced<Panels>
auto slice_tokens(Panels&& x TESSERA_LIFETIMEBOUND, std::int64_t first, std::int64_t last) {
  static_assert(std::is_lvalue_reference_v<Panels>,
                "[slice_tokens] a slice refers to an activation, which must be a variable");
  return detail::slice_of(x).with_tokens(first, last);
}
template <class Element>
auto slice_tokens(panel_slice<Element> const& x, std::int64_t first, std::int64_t last) {
  return x.with_tokens(first, last);
}

}}  // namespace tessera::TESSERA_ISA
