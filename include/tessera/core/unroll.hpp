// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA {

namespace detail {

template <class Body, int... Index>
TESSERA_INLINE constexpr void unroll(Body& body, std::integer_sequence<int, Index...>) {
  (body(std::integral_constant<int, Index>{}), ...);
}

}  // namespace detail

/// Calls body(0) … body(Count - 1) with compile-time integers, written out one after the other. Pragmas do
/// not unroll reliably (GCC 12), and one loop left rolled puts a whole array of accumulators on the stack.
template <int Count, class Body> TESSERA_INLINE constexpr void unroll(Body&& body) {
  detail::unroll(body, std::make_integer_sequence<int, Count>{});
}

}}  // namespace tessera::TESSERA_ISA
