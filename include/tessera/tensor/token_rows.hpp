// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// An activation in the user's memory, a row of features for each token, as PyTorch and NumPy have it:
/// element (feature, token) stands at data[token * stride + feature]. An operand and a destination of
/// statements, which bring it into panels and back while they compute: `run(ctx, rows_out = w * rows_in +
/// b)`.
///   Element   const if the memory is only read
template <class Element> class token_rows {
  static_assert(
      element<std::remove_const_t<Element>>,
      "token_rows hold elements: float, double, bfloat16, float16 and, after #include "
      "<tessera/statements/quantised.hpp>, float8_e4m3, float8_e5m2 and int8 (not std::int8_t); `copy` "
      "converts others");

 public:
  using tensor_tag = void;
  using view_tag = void;
  using value_type = std::remove_const_t<Element>;
  static constexpr domain laid_over = domain::panels;

  /// Throws shape_error unless the sizes are possible and the rows do not overlap.
  token_rows(Element* data, std::int64_t tokens, std::int64_t features)
      : token_rows(data, tokens, features, features) {}
  TESSERA_COLD token_rows(Element* data, std::int64_t tokens, std::int64_t features, std::int64_t stride)
      : data_(data), tokens_(tokens), features_(features), stride_(stride) {
    if (!data && tokens > 0 && features > 0) throw shape_error("[token_rows] null is no memory of rows");
    if (tokens < 0 || features < 0 || stride < features)
      throw shape_error(
          message("[token_rows] ", tokens, " tokens of ", features, " features, ", stride,
                  " elements from one to the next: none may be negative, and rows may not overlap"));
  }
  token_rows(token_rows const&) = default;

  std::int64_t features() const { return features_; }
  std::int64_t tokens() const { return tokens_; }
  /// Elements from one token to the next.
  std::int64_t stride() const { return stride_; }
  std::size_t size_bytes() const {
    if (tokens_ == 0) return 0;
    return std::size_t((tokens_ - 1) * stride_ + features_) * sizeof(value_type);
  }
  Element* data() const { return data_; }
  std::conditional_t<std::is_const_v<Element>, value_type, Element&> operator()(std::int64_t feature,
                                                                                std::int64_t token) const {
    TESSERA_ASSERT(feature >= 0 && feature < features_ && token >= 0 && token < tokens_,
                   "indices are in range");
    return data_[token * stride_ + feature];
  }

  // An assignment describes a statement that writes to the memory, also that of other rows.
  auto operator=(token_rows const& value) const { return assign(*this, value); }
  template <class Value>
    requires(assigned<Value> || tensor<Value>)
  auto operator=(Value const& value) const {
    return assign(*this, value);
  }
  template <expression Expression> auto operator+=(Expression&& value) const {
    return accumulate(*this, static_cast<Expression&&>(value));
  }

 private:
  Element* data_;
  std::int64_t tokens_, features_, stride_;
};

}}  // namespace tessera::TESSERA_ISA
