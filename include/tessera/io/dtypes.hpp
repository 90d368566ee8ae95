// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/io/text.hpp>

// The types of numbers in files, by their names in safetensors.

namespace tessera { inline namespace TESSERA_ISA { namespace io {

struct dtype_size {
  std::string_view name;
  std::uint64_t bits;
};
inline constexpr std::array<dtype_size, 22> dtypes{{
    {"BOOL", 8},        {"U8", 8},          {"I8", 8},      {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},        {"F32", 32},    {"F64", 64},    {"I64", 64},    {"U64", 64},
    {"C64", 64},        {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6},
}};

/// Bits of one number, or 0 for a dtype that is not known.
constexpr std::uint64_t dtype_bits(std::string_view dtype) {
  for (dtype_size const& known : dtypes)
    if (known.name == dtype) return known.bits;
  return 0;
}
/// Bytes of one number, or 0 for a dtype that is not known or has no whole bytes.
constexpr std::uint64_t dtype_bytes(std::string_view dtype) {
  const std::uint64_t bits = dtype_bits(dtype);
  return bits % 8 == 0 ? bits / 8 : 0;
}

/// The dtype of an element or an integer.
template <class T> constexpr char const* dtype_name() {
  if constexpr (element<T>) {
    return element_traits<T>::name;
  } else if constexpr (std::same_as<T, bool>) {
    return "BOOL";
  } else {
    static_assert(std::integral<T>, "safetensors files hold elements, integers and bool");
    constexpr std::array is_signed{"I8", "I16", "I32", "I64"}, is_unsigned{"U8", "U16", "U32", "U64"};
    return (std::is_signed_v<T> ? is_signed : is_unsigned)[std::countr_zero(sizeof(T))];
  }
}

namespace detail {

/// Bytes of a tensor, or none if the dtype is unknown, an extent is negative, or the product too large or no
/// whole number of bytes.
std::optional<std::uint64_t> tensor_bytes(std::string_view dtype, std::span<std::int64_t const> shape);

/// What an array of NumPy holds that is not one of numbers, by the description of its type: "<U5", "|S3". ""
/// for other descriptions, and for names of dtypes.
std::string kind_of_descr(std::string_view descr);

/// "F32 (3, 4)", of many extents the first.
std::string tensor_text(std::string_view dtype, std::span<std::int64_t const> shape);

/// "is F31 (3, 4)", and why that has no size.
std::string no_size_text(std::string_view dtype, std::span<std::int64_t const> shape);

}  // namespace detail

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY std::optional<std::uint64_t> tensor_bytes(std::string_view dtype,
                                                       std::span<std::int64_t const> shape) {
  std::uint64_t bits = dtype_bits(dtype);
  const std::uint64_t unit =
      std::gcd(bits, std::uint64_t(8));  // so that whole bytes may be as many as 64 bits count
  if (bits == 0) return std::nullopt;
  std::uint64_t units = bits / unit;
  for (const std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(units, static_cast<std::uint64_t>(extent), &units))
      return std::nullopt;
  if (units % (8 / unit) != 0) return std::nullopt;
  return units / (8 / unit);
}

TESSERA_COLD TESSERA_BODY std::string kind_of_descr(std::string_view descr) {
  if (descr.size() < 2 || std::string_view("<>|=").find(descr[0]) == descr.npos) return "";
  const std::string size = excerpt(descr.substr(2, 20));
  switch (descr[1]) {
    case 'U':
      return "texts of " + size + " characters";
    case 'S':
    case 'a':
      return "texts of " + size + " bytes";
    case 'O':
      return "Python objects";
    case 'M':
      return "dates";
    case 'm':
      return "durations";
    case 'V':
      return "bytes without a type";
    case 'c':
      return "complex numbers";
    default:
      return "";
  }
}

TESSERA_BODY std::string tensor_text(std::string_view dtype, std::span<std::int64_t const> shape) {
  constexpr std::size_t most_shown = 8;
  std::string text = excerpt(dtype.substr(0, 20)) + (dtype.size() > 20 ? "… (" : " (");
  for (std::size_t i = 0; i < shape.size() && i < most_shown; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() > most_shown ? ", …)" : ")");
}

TESSERA_BODY std::string no_size_text(std::string_view dtype, std::span<std::int64_t const> shape) {
  std::string text = "is " + tensor_text(dtype, shape);
  if (dtype_bytes(dtype) > 0) return text + ", which has no size in 64 bits";
  if (dtype_bits(dtype) > 0) return text + ", which is no whole number of bytes";
  text += ", but the known dtypes are";
  for (dtype_size const& known : dtypes) (text += ' ') += known.name;
  return text;
}

}  // namespace detail

#endif

}}}  // namespace tessera::TESSERA_ISA::io
