// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/core/memory.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// Numbers along one axis of an activation, in memory one after the other. Elements beyond the last one
/// are always zero. The two axes are two types, so that a bias cannot be mistaken for a mask.
template <element Element, domain Axis> class axis_vector {
  static_assert(Axis == domain::features || Axis == domain::tokens, "an activation has two axes");
  static constexpr int multiple = Axis == domain::features ? granule : panel_tokens;

 public:
  using tensor_tag = void;
  using value_type = Element;
  static constexpr domain laid_over = Axis;

  axis_vector() = default;
  TESSERA_COLD explicit axis_vector(std::int64_t size) : size_(size), values_(padded(size)) {}
  /// The numbers of a vector, an array or a span, each converted.
  template <class Array>
    requires requires(Array const& array) { std::span(array); }
  explicit axis_vector(Array const& numbers) : axis_vector(std::int64_t(std::size(numbers))) {
    std::transform(std::begin(numbers), std::end(numbers), begin(),
                   [](auto number) { return static_cast<Element>(number); });
  }
  axis_vector(std::initializer_list<Element> numbers) : axis_vector(std::span(numbers)) {}
  /// A vector over numbers that another owns, and keeps for longer. Statements write them; a copy has numbers
  /// of its own, and so has this vector after another vector was assigned to it.
  ///   lent   begins at a multiple of 64 bytes; zeros follow `size` numbers up to a multiple of 16 features
  ///          or of 64 tokens
  /// Throws as block_sparse_matrix::over.
  TESSERA_COLD static axis_vector over(std::span<Element> lent TESSERA_LIFETIMEBOUND, std::int64_t size,
                                       borrowing how = borrowing::strict) {
    axis_vector made;
    made.values_ = aligned_array<Element>::over(lent, std::size_t(size), padded(size), how);
    made.size_ = size;
    return made;
  }
  bool borrows() const { return values_.borrows(); }
  /// The values of another tensor, for statements over stored values alone: there need not be as many zeros
  /// behind them as other statements rely on. As of any vector, an assignment of another
  /// vector gives it other numbers, and leaves the tensor as it is.
  static axis_vector of_values(Element* values, std::int64_t size) {
    axis_vector made;
    made.values_ = aligned_array<Element>::at(values, std::size_t(size));
    made.size_ = size;
    return made;
  }
  template <node Value> axis_vector(Value const&) = delete;  // say s(size); run(ctx, s = sum_tokens(x))
  axis_vector(axis_vector const&) = default;
  /// Leaves the other without elements.
  axis_vector(axis_vector&& other) noexcept
      : size_(std::exchange(other.size_, 0)), values_(std::move(other.values_)) {}
  axis_vector& operator=(axis_vector other) noexcept {
    std::swap(size_, other.size_);
    std::swap(values_, other.values_);
    return *this;
  }

  std::int64_t size() const { return size_; }
  std::int64_t features() const { return Axis == domain::features ? size_ : -1; }
  std::int64_t tokens() const { return Axis == domain::tokens ? size_ : -1; }
  std::size_t size_bytes() const { return values_.size_bytes(); }
  Element* data() { return values_.data(); }
  Element const* data() const { return values_.data(); }
  Element* begin() { return data(); }
  Element* end() { return data() + size_; }
  Element const* begin() const { return data(); }
  Element const* end() const { return data() + size_; }
  Element& operator[](std::int64_t i) { return values_[std::size_t(i)]; }
  Element const& operator[](std::int64_t i) const { return values_[std::size_t(i)]; }

  template <class Number> void fill(Number) = delete;  // say std::fill(x.begin(), x.end(), number)

  /// Another size. Values are lost. Allocates only to grow beyond the largest size so far.
  void resize(std::int64_t size) {
    if (size == size_) return;
    if (padded(size) > values_.size())
      values_ = aligned_array<Element>(padded(size));
    else
      std::fill(values_.begin(), values_.end(), Element{});
    size_ = size;
  }

  template <assigned Value> auto operator=(Value const& value) { return assign(*this, value); }
  template <element Other> void operator=(axis_vector<Other, Axis> const&) = delete;  // say y = converted(x)
  template <expression Expression> auto operator+=(Expression&& value) {
    return accumulate(*this, static_cast<Expression&&>(value));
  }

 private:
  static std::size_t padded(std::int64_t size) {
    if (size < 0) throw shape_error(message("[vector] ", size, " elements: there cannot be fewer than none"));
    return std::size_t(size) / multiple * multiple + (size % multiple ? multiple : 0);
  }
  std::int64_t size_ = 0;
  aligned_array<Element> values_;
};

/// A number for each feature, such as a bias.
template <element Element> using feature_vector = axis_vector<Element, domain::features>;

/// A number for each token, such as a loss or a mean over features.
template <element Element> using token_vector = axis_vector<Element, domain::tokens>;

/// The numbers of a vector, each several times in turn.
template <element Element> class repeated_vector {
 public:
  using tensor_tag = void;
  using view_tag = void;
  using value_type = Element;
  static constexpr domain laid_over = domain::features;

  repeated_vector(feature_vector<Element> const& of TESSERA_LIFETIMEBOUND, std::int64_t times)
      : numbers_(of.data()), bytes_(of.size_bytes()), size_(of.size() * times), times_(times) {}

  std::int64_t times() const { return times_; }
  std::int64_t size() const { return size_; }
  std::int64_t features() const { return size_; }
  std::int64_t tokens() const { return -1; }
  /// Of the vector.
  Element const* data() const { return numbers_; }
  std::size_t size_bytes() const { return bytes_; }

 private:
  Element const* numbers_;
  std::size_t bytes_;
  std::int64_t size_, times_;
};

/// In statements on stored values, numbers that several values share: of the blocks of a matrix, each for all
/// of its elements. Throws shape_error unless times is positive.
template <element Element>
repeated_vector<Element> repeat_interleave(feature_vector<Element> const& of TESSERA_LIFETIMEBOUND,
                                           std::int64_t times) {
  if (times < 1) throw shape_error(message("[repeat_interleave] numbers are to stand ", times, " times"));
  return {of, times};
}
template <element Element>
void repeat_interleave(feature_vector<Element> const&& of, std::int64_t times) = delete;

}}  // namespace tessera::TESSERA_ISA
