// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Values that stand one after the other, in the accumulator: where they stand, or else in `room`.
template <class Arch, int Count, class E>
TESSERA_INLINE accumulator_t<E> const* widened(E const* from,
                                               [[maybe_unused]] accumulator_t<E>* room) noexcept {
  using T = accumulator_t<E>;
  if constexpr (std::is_same_v<E, T>) {
    return from;
  } else {
    constexpr int lanes = simd::lanes<T, Arch>, whole = Count / lanes * lanes;
    for (int i = 0; i < whole; i += lanes) simd::load_values<Arch>(from + i).store_unaligned(room + i);
    for (int i = whole; i < Count; ++i) room[i] = T(from[i]);
    return room;
  }
}

/// The product of a block of Rows x Inner and one of Inner x Cols, all in T: summed over the inner index from
/// zero on, in its order, and then stored, or added to the stored sums. A register holds columns of one row,
/// or several whole rows if they are short.
template <class T, class Arch, int Rows, int Inner, int Cols> struct block_times_block {
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int rows_a_register =
      Cols < lanes && lanes % Cols == 0 && Rows % (lanes / Cols) == 0 ? lanes / Cols : 1;
  static constexpr int lines = Rows / rows_a_register;  // of registers
  static constexpr int line_size = Cols * rows_a_register;
  static constexpr int registers = ceil_div(line_size, lanes);
  static constexpr int tail = line_size % lanes;  // numbers in the last register of a line that is not full
  static constexpr int at_once = power_of_two_divisor(register_block<T, Arch>::registers, registers);
  static constexpr int lines_at_once = power_of_two_divisor(at_once > 1 ? 4 : 8, lines);

  /// Numbers of the left block in the form in which it is used.
  static constexpr int left_size = rows_a_register == 1 ? Rows * Inner : lines * Inner * lanes;

  /// The left block in that form: where it stands, or else in `room`, of left_size numbers.
  template <class E> static T const* prepared(E const* block, T* room) noexcept {
    if constexpr (rows_a_register == 1) {
      return widened<Arch, Rows * Inner>(block, room);
    } else {
      T numbers[unsigned(Rows * Inner)];
      T const* const wide = widened<Arch, Rows * Inner>(block, numbers);
      for (int row = 0; row < Rows; ++row)
        for (int i = 0; i < Inner; ++i)
          std::fill_n(room + (row / rows_a_register * Inner + i) * lanes + row % rows_a_register * Cols, Cols,
                      wide[row * Inner + i]);
      return room;
    }
  }

  /// to = left · right, or to += left · right.
  ///   left   from prepared()
  template <bool Adds> TESSERA_INLINE static void multiply(T const* left, T const* right, T* to) noexcept {
    using reg = simd::reg<T, Arch>;
    for (int line = 0; line < lines; line += lines_at_once)
      unroll<registers / at_once>([&](auto chunk) TESSERA_INLINE_LAMBDA {
        constexpr int first = chunk * at_once;
        reg sums[unsigned(lines_at_once)][unsigned(at_once)];
        for (auto& row : sums)
          for (reg& sum : row) sum = simd::zero<Arch, T>();
        for (int i = 0; i < Inner; ++i)
          multiply_registers<T, Arch>(
              sums,
              [&](auto l) TESSERA_INLINE_LAMBDA {
                if constexpr (rows_a_register == 1)
                  return simd::broadcast<Arch>(left[(line + l) * Inner + i]);
                else
                  return simd::load<Arch>(left + ((line + l) * Inner + i) * lanes);
              },
              [&](auto j) TESSERA_INLINE_LAMBDA {
                if constexpr (rows_a_register == 1)
                  return load_register<first + j>(right + i * Cols);
                else
                  return simd::repeat<Cols, Arch>(right + i * Cols);
              });
        unroll<lines_at_once>([&](auto l) TESSERA_INLINE_LAMBDA {
          unroll<at_once>([&](auto j) TESSERA_INLINE_LAMBDA {
            T* const row = to + (line + l) * line_size;
            batch sum(sums[l][j]);
            if constexpr (Adds) sum = batch(load_register<first + j>(row)) + sum;
            store_register<first + j>(row, sum.data);
          });
        });
      });
  }

 private:
  using batch = simd::batch<T, Arch>;

  template <int Register> static constexpr bool is_full = tail == 0 || Register + 1 < registers;

  template <int Register> TESSERA_INLINE static simd::reg<T, Arch> load_register(T const* line) {
    if constexpr (is_full<Register>) {
      return simd::load<Arch>(line + Register * lanes);
    } else {
      T numbers[unsigned(lanes)] = {};
      std::memcpy(numbers, line + Register * lanes, tail * sizeof(T));
      return simd::load<Arch>(static_cast<T const*>(numbers));
    }
  }
  template <int Register> TESSERA_INLINE static void store_register(T* line, simd::reg<T, Arch> value) {
    if constexpr (is_full<Register>) {
      simd::store<Arch>(line + Register * lanes, value);
    } else {
      T numbers[unsigned(lanes)];
      simd::store<Arch>(numbers, value);
      std::memcpy(line + Register * lanes, numbers, tail * sizeof(T));
    }
  }
};

/// to[i] = left · right[i], i < count, with the bits of block_times_block for blocks of one element.
template <class Arch, class T, class B>
TESSERA_INLINE void multiply_number(T left, B const* right, int count, T* to) noexcept {
  constexpr int lanes = simd::lanes<T, Arch>;
  const auto factor = simd::broadcast<Arch>(left);
  int i = 0;
  for (; i + lanes <= count; i += lanes)
    simd::store<Arch>(
        to + i, simd::fma<Arch, T>(factor, simd::load_values<Arch>(right + i).data, simd::zero<Arch, T>()));
  for (; i < count; ++i) to[i] = left * T(right[i]) + T(0);
}

}}}  // namespace tessera::TESSERA_ISA::kernels
