// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/core/memory.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// Goes through the elements of an activation or of a slice: feature by feature, the tokens of each in order.
template <class Panels> class panel_iterator {
 public:
  using value_type = typename Panels::value_type;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::forward_iterator_tag;
  using iterator_category = std::forward_iterator_tag;
  using reference = decltype(std::declval<Panels&>()(0, 0));
  using pointer = void;

  panel_iterator() = default;
  panel_iterator(Panels& of, std::int64_t feature) : of_(&of), feature_(feature) {}

  reference operator*() const { return (*of_)(feature_, token_); }
  panel_iterator& operator++() {
    if (++token_ == of_->tokens()) {
      token_ = 0;
      ++feature_;
    }
    return *this;
  }
  panel_iterator operator++(int) {
    const panel_iterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(panel_iterator const&, panel_iterator const&) = default;

 private:
  Panels* of_ = nullptr;
  std::int64_t feature_ = 0, token_ = 0;
};

/// An activation (features, tokens), kept as panels of 64 tokens: a panel is contiguous, feature by feature
/// (features that share a lane together: place_in_panel), so that the tokens of one feature are whole SIMD
/// registers. Features are stored in multiples of 16; elements beyond the last feature or token are
/// always zero.
template <element Element> class panel_matrix {
 public:
  using tensor_tag = void;
  using value_type = Element;
  static constexpr domain laid_over = domain::panels;

  panel_matrix() = default;
  TESSERA_COLD panel_matrix(std::int64_t features, std::int64_t tokens)
      : features_(features), tokens_(tokens), values_(elements(features, tokens)) {}
  template <node Value> panel_matrix(Value const&) = delete;  // say y(features, tokens); run(ctx, y = w * x)
  template <element Other>
  panel_matrix(panel_matrix<Other> const&) = delete;  // say y(features, tokens); run(ctx, y = converted(x))
  panel_matrix(panel_matrix const&) = default;
  /// Leaves the other 0 x 0.
  panel_matrix(panel_matrix&& other) noexcept
      : features_(std::exchange(other.features_, 0)),
        tokens_(std::exchange(other.tokens_, 0)),
        values_(std::move(other.values_)) {}
  panel_matrix& operator=(panel_matrix other) noexcept {
    std::swap(features_, other.features_);
    std::swap(tokens_, other.tokens_);
    std::swap(values_, other.values_);
    return *this;
  }

  std::int64_t features() const { return features_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t padded_features() const { return round_up<std::int64_t>(features_, granule); }
  std::int64_t panels() const { return ceil_div<std::int64_t>(tokens_, panel_tokens); }
  /// Elements from one panel to the next.
  std::int64_t panel_stride() const { return padded_features() * panel_tokens; }
  std::size_t size_bytes() const { return values_.size_bytes(); }

  Element* panel(std::int64_t p) { return values_.data() + p * panel_stride(); }
  Element const* panel(std::int64_t p) const { return values_.data() + p * panel_stride(); }
  Element* data() { return values_.data(); }
  Element const* data() const { return values_.data(); }

  Element& operator()(std::int64_t feature, std::int64_t token) { return values_[index(feature, token)]; }
  Element operator()(std::int64_t feature, std::int64_t token) const {
    return values_[index(feature, token)];
  }

  /// The elements without padding: feature by feature, the tokens of each in order.
  auto begin() { return panel_iterator<panel_matrix>(*this, 0); }
  auto end() { return panel_iterator<panel_matrix>(*this, tokens_ > 0 ? features_ : 0); }
  auto begin() const { return panel_iterator<panel_matrix const>(*this, 0); }
  auto end() const { return panel_iterator<panel_matrix const>(*this, tokens_ > 0 ? features_ : 0); }

  template <class Number> void fill(Number) = delete;  // say std::fill(x.begin(), x.end(), number)

  /// Another number of tokens. Values are lost. Allocates only to grow beyond the largest size so far.
  void resize(std::int64_t tokens) {
    if (tokens == tokens_) return;
    const std::size_t needed = elements(features_, tokens);
    if (needed > values_.size())
      values_ = aligned_array<Element>(needed);
    else if (tokens % panel_tokens != 0)
      std::fill_n(values_.data() + needed - std::size_t(panel_stride()), panel_stride(), Element{});
    tokens_ = tokens;
  }

  // An assignment of an expression describes it: see expr/statement.hpp.
  template <assigned Value> auto operator=(Value const& value) { return assign(*this, value); }
  template <element Other> void operator=(panel_matrix<Other> const&) = delete;  // say y = converted(x)
  template <expression Expression> auto operator+=(Expression&& value) {
    return accumulate(*this, static_cast<Expression&&>(value));
  }

 private:
  TESSERA_COLD static std::size_t elements(std::int64_t features, std::int64_t tokens) {
    if (features < 0 || tokens < 0)
      throw shape_error(
          message("[panel_matrix] ", features, " features and ", tokens, " tokens: neither may be negative"));
    const auto up = [](std::int64_t n, int step) {
      return std::size_t(n) / unsigned(step) * unsigned(step) + (n % step ? unsigned(step) : 0);
    };
    const std::size_t rows = up(features, granule), columns = up(tokens, panel_tokens);
    // A panel without tokens has a stride, too.
    checked_multiply(rows, panel_tokens);
    checked_multiply(columns, granule);
    return checked_multiply(rows, columns);
  }
  std::size_t index(std::int64_t feature, std::int64_t token) const {
    TESSERA_ASSERT(feature >= 0 && feature < features_ && token >= 0 && token < tokens_,
                   "indices are in range");
    return std::size_t(token / panel_tokens * panel_stride() +
                       place_in_panel<Element>(feature, token % panel_tokens));
  }

  std::int64_t features_ = 0, tokens_ = 0;
  aligned_array<Element> values_;
};

}}  // namespace tessera::TESSERA_ISA
