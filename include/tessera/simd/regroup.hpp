// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/lane.hpp>
#include <tessera/simd/simd.hpp>

// Registers whose lanes hold `Columns` columns of `lanes / Columns` consecutive tokens each, column by
// column: the form in which a product that sums over tokens needs no reduction until its end, for any width
// of block. Where an instruction multiplies pairs of elements, two tokens of one feature
// stand in one lane.

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// Lanes of one feature of a panel, each of one token, or of two in a simd::pair.
template <class Lane> inline constexpr int lanes_a_panel = panel_tokens / elements_a_lane<Lane>;

/// True where the permutation of two registers is one instruction.
template <class T, class Arch>
inline constexpr bool permutes_two =
#ifdef __AVX512BW__
    lanes<T, Arch> * sizeof(T) == 64;
#else
    false;
#endif

namespace detail {
/// One register out of two: lane i is lane Index::at(i) of the 2 * lanes of a and b.
template <class T, class Arch, class Index>
TESSERA_INLINE reg<T, Arch> permute(reg<T, Arch> a, reg<T, Arch> b, Index) {
  using vector = typename compiler_vector<typename moved<T>::as, lanes<T, Arch>>::type;
  return [&]<int... i>(std::integer_sequence<int, i...>) TESSERA_INLINE_LAMBDA {
    return std::bit_cast<reg<T, Arch>>(
        __builtin_shufflevector(std::bit_cast<vector>(a), std::bit_cast<vector>(b), Index::at(i)...));
  }(std::make_integer_sequence<int, lanes<T, Arch>>());
}

/// One half of the step that exchanges bit `Bit` of the register's number with that of the column's.
template <int Lanes, int Tokens, int Bit, bool High> struct exchange {
  static constexpr int at(int lane) {
    const int column = lane / Tokens, token = lane % Tokens, distance = 1 << Bit;
    const bool set = (column & distance) != 0;
    if (!High) return set ? Lanes + (column - distance) * Tokens + token : lane;
    return set ? Lanes + lane : (column + distance) * Tokens + token;
  }
};

/// From `Columns` registers, one a column, to as many in which each holds one group of tokens of all columns:
///   r[c] lanes (group of tokens, token)   →   r[group] lanes (column, token)
template <int Columns, class Lane, class Arch> TESSERA_INLINE void exchange_columns(reg<Lane, Arch>* r) {
  constexpr int n = lanes<Lane, Arch>, lanes_a_column = n / Columns;
  unroll<5>([&](auto bit) TESSERA_INLINE_LAMBDA {
    if constexpr ((1 << bit) < Columns)
      unroll<Columns>([&](auto c) TESSERA_INLINE_LAMBDA {
        if constexpr ((c & (1 << bit)) == 0) {
          const auto a = r[c], b = r[c + (1 << bit)];
          r[c] = permute<Lane, Arch>(a, b, exchange<n, lanes_a_column, bit, false>{});
          r[c + (1 << bit)] = permute<Lane, Arch>(a, b, exchange<n, lanes_a_column, bit, true>{});
        }
      });
  });
}

template <int Keep, int Lanes, class T>
TESSERA_INLINE typename compiler_vector<T, Keep>::type fold(
    typename compiler_vector<T, Lanes>::type const& value) {
  if constexpr (Keep == Lanes)
    return value;
  else
    return [&]<int... i>(std::integer_sequence<int, i...>) TESSERA_INLINE_LAMBDA {
      return fold<Keep, Lanes / 2, T>(__builtin_shufflevector(value, value, i...) +
                                      __builtin_shufflevector(value, value, (Lanes / 2 + i)...));
    }(std::make_integer_sequence<int, Lanes / 2>());
}

template <int Lanes, int Odd> struct alternate {
  static constexpr int at(int lane) { return 2 * lane + Odd; }
};
}  // namespace detail

/// Loads the features of a panel that share its lanes, each to one register: a register of tokens from
/// `first` on, two by two or widened.
template <class Lane, class Arch, class X>
TESSERA_INLINE void load_features(X const* features, int first, reg<Lane, Arch>* to) {
  constexpr int features_a_lane = element_traits<X>::features_a_lane;
  if constexpr (std::is_same_v<Lane, accumulator_t<X>>) {
    widen_lanes<Arch>(features + features_a_lane * first, to);
  } else {
    static_assert(std::is_same_v<Lane, stored_lane<X>>);
    constexpr int n = lanes<Lane, Arch>;
    using halves = reg<std::uint16_t, Arch>;
    const auto a = std::bit_cast<halves>(load_lanes<Arch>(features + 4 * first));
    const auto b = std::bit_cast<halves>(load_lanes<Arch>(features + 4 * first + 2 * n));
    unroll<2>([&](auto i) TESSERA_INLINE_LAMBDA {
      to[i] = std::bit_cast<reg<Lane, Arch>>(
          detail::permute<std::uint16_t, Arch>(a, b, detail::alternate<2 * n, i>{}));
    });
  }
}

/// Stores `Columns` features of a panel, 64 tokens each, in the grouped form; more if more share a lane.
template <int Columns, class Arch, class X, class Lane>
TESSERA_INLINE void regroup(X const* features, Lane* grouped) {
  constexpr int n = lanes<Lane, Arch>, row = lanes_a_panel<Lane>, lanes_a_column = n / Columns;
  constexpr int features_a_lane = element_traits<X>::features_a_lane,
                at_once = std::max(Columns, features_a_lane);
  if constexpr (Columns > n) {  // for a matrix unit in plain C++
    for (int i = 0; i < row * Columns; ++i)
      for (int t = 0; t < elements_a_lane<Lane>; ++t)
        std::memcpy(reinterpret_cast<std::byte*>(grouped + i) + unsigned(t) * sizeof(X),
                    features + place_in_panel<X>(i % Columns, i / Columns * elements_a_lane<Lane> + t),
                    sizeof(X));
  } else {
    for (int first = 0; first < row; first += n) {
      reg<Lane, Arch> r[unsigned(at_once)];
      unroll<at_once / features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
        load_features<Lane, Arch>(features + i * features_a_lane * panel_tokens, first,
                                  r + i * features_a_lane);
      });
      unroll<at_once / Columns>([&](auto group) TESSERA_INLINE_LAMBDA {
        detail::exchange_columns<Columns, Lane, Arch>(r + group * Columns);
      });
      unroll<at_once>([&](auto c) TESSERA_INLINE_LAMBDA {
        constexpr int group = c / Columns, column = c % Columns;
        store<Arch>(grouped + group * Columns * row + (first / lanes_a_column + column) * n, r[c]);
      });
    }
  }
}

/// A square of registers, one for each lane: lane i of register k to lane k of register i.
template <class T, class Arch> TESSERA_INLINE void transpose(reg<T, Arch> (&r)[unsigned(lanes<T, Arch>)]) {
  detail::exchange_columns<lanes<T, Arch>, T, Arch>(r);
}

/// A square of words, one register for each row, into its transpose.
///   from_stride, to_stride   words from one row to the next
template <class Word, class Arch>
TESSERA_INLINE void transpose_square(Word const* from, std::int64_t from_stride, Word* to,
                                     std::int64_t to_stride) {
  constexpr int side = lanes<Word, Arch>;
  reg<Word, Arch> r[unsigned(side)];
  unroll<side>([&](auto i) TESSERA_INLINE_LAMBDA { r[i] = load<Arch>(from + i * from_stride); });
  detail::exchange_columns<side, Word, Arch>(r);
  unroll<side>([&](auto i) TESSERA_INLINE_LAMBDA { store<Arch>(to + i * to_stride, r[i]); });
}

/// A block (Rows, Cols), stored row by row, into its transpose: in one register, by square tiles (a
/// register for each lane), or number by number.
template <int Rows, int Cols, class Arch, class T>
TESSERA_INLINE void transpose(T const* __restrict from, T* __restrict to) {
  using lane =
      std::conditional_t<sizeof(T) == 2, std::uint16_t, std::conditional_t<sizeof(T) == 1, std::uint8_t, T>>;
  constexpr int most = int(sizeof(reg<float, Arch>) / sizeof(T)), fewest = int(16 / sizeof(T));
  constexpr int side = std::min(most, std::min(Rows & -Rows, Cols & -Cols));
  if constexpr (permutes_two<float, Arch> && Rows * Cols <= most &&
                std::has_single_bit(unsigned(Rows * Cols))) {
    typename compiler_vector<lane, Rows * Cols>::type block;
    std::memcpy(&block, from, sizeof block);
    block = [&]<int... i>(std::integer_sequence<int, i...>) TESSERA_INLINE_LAMBDA {
      return __builtin_shufflevector(block, block, (i % Rows * Cols + i / Rows)...);
    }(std::make_integer_sequence<int, Rows * Cols>());
    std::memcpy(static_cast<void*>(to), &block, sizeof block);
  } else if constexpr (side >= fewest) {
    using tile = typename xsimd::make_sized_batch_t<lane, unsigned(side)>::arch_type;
    for (int row = 0; row < Rows; row += side)
      for (int col = 0; col < Cols; col += side) {
        reg<lane, tile> r[unsigned(side)];
        unroll<side>([&](auto i) TESSERA_INLINE_LAMBDA {
          std::memcpy(&r[i], from + (row + i) * Cols + col, sizeof r[i]);
        });
        detail::exchange_columns<side, lane, tile>(r);
        unroll<side>([&](auto i) TESSERA_INLINE_LAMBDA {
          std::memcpy(static_cast<void*>(to + (col + i) * Rows + row), &r[i], sizeof r[i]);
        });
      }
  } else {
    for (int c = 0; c < Cols; ++c)
      for (int r = 0; r < Rows; ++r) to[c * Rows + r] = from[r * Cols + c];
  }
}

/// Features of a whole panel, from an even one on, one after the other as elements Y, which are X or its
/// accumulator: where they stand, or else in `room`.
template <class Arch, class X, class Y>
TESSERA_INLINE Y const* one_by_one(X const* panel, int features, [[maybe_unused]] Y* room) {
  constexpr int features_a_lane = element_traits<X>::features_a_lane;
  if constexpr (features_a_lane == 1) {
    return panel;
  } else {
    for (int at = 0; at < features * panel_tokens; at += features_a_lane * panel_tokens)
      regroup<1, Arch>(panel + at, reinterpret_cast<stored_lane<Y>*>(room + at));
    return room;
  }
}

/// `Tokens` consecutive values, repeated to fill a register.
template <int Tokens, class Arch, class T> TESSERA_INLINE reg<T, Arch> repeat(T const* from) {
  constexpr int n = lanes<T, Arch>;
  if constexpr (Tokens == 1) {
    return broadcast<Arch>(*from);
  } else if constexpr (Tokens == n) {
    return load<Arch>(from);
  } else if constexpr (Tokens * sizeof(T) == sizeof(double)) {
    double together;
    std::memcpy(&together, from, sizeof together);
    return std::bit_cast<reg<T, Arch>>(broadcast<Arch>(together));
  } else {
#ifdef __AVX512F__
    if constexpr (permutes_two<T, Arch> && Tokens * sizeof(T) == 16)
      return std::bit_cast<reg<T, Arch>>(
          _mm512_broadcast_f32x4(_mm_loadu_ps(reinterpret_cast<float const*>(from))));
    if constexpr (permutes_two<T, Arch> && Tokens * sizeof(T) == 32)
      return std::bit_cast<reg<T, Arch>>(
          _mm512_broadcast_f32x8(_mm256_loadu_ps(reinterpret_cast<float const*>(from))));
#endif
#ifdef __AVX__
    if constexpr (sizeof(reg<T, Arch>) == 32 && Tokens * sizeof(T) == 16)
      return std::bit_cast<reg<T, Arch>>(
          _mm256_broadcast_ps(static_cast<__m128 const*>(static_cast<void const*>(from))));
#endif
    alignas(64) T out[unsigned(n)];
    for (int i = 0; i < n; i += Tokens) std::memcpy(out + i, from, Tokens * sizeof(T));
    return load<Arch>(static_cast<T const*>(out));
  }
}

/// The sums over the tokens of `Tokens` grouped registers, in one register: sums of the first register's
/// columns, then sums of the second's, …
template <int Tokens, class T, class Arch>
TESSERA_INLINE reg<T, Arch> sum_groups(reg<T, Arch> const* registers) {
  if constexpr (Tokens == 1) {
    return registers[0];
  } else {
    constexpr int n = lanes<T, Arch>;
    const auto a = sum_groups<Tokens / 2, T, Arch>(registers);
    const auto b = sum_groups<Tokens / 2, T, Arch>(registers + Tokens / 2);
    return (batch<T, Arch>(detail::permute<T, Arch>(a, b, detail::alternate<n, 0>{})) +
            batch<T, Arch>(detail::permute<T, Arch>(a, b, detail::alternate<n, 1>{})))
        .data;
  }
}

/// The sum of all groups of `Keep` consecutive lanes, as a vector of that many numbers.
template <int Keep, class T, class Arch>
TESSERA_INLINE typename compiler_vector<T, Keep>::type fold(reg<T, Arch> value) {
  return detail::fold<Keep, lanes<T, Arch>, T>(
      std::bit_cast<typename compiler_vector<T, lanes<T, Arch>>::type>(value));
}

}}}  // namespace tessera::TESSERA_ISA::simd
