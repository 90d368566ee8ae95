// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sums of W·v of a few tokens, of single elements W. The tokens stand beside each other, so that one
/// load for an element brings them all: in numbers one by one, or in registers. Element b of a line belongs
/// to sum b % 4 of its line: the bits of a token do not depend on the others.
template <class Arch, class W> struct vector_sums_1x1 {
  using T = accumulator_t<W>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int most_one_by_one = std::min(2, lanes / 2), most_registers = 2;
  using half = simd::half_of<T, Arch>;
  static constexpr int half_lanes = simd::lanes<T, half>;

  /// Tokens that stand beside each other, padding included; more make several groups, (groups, columns of W,
  /// beside).
  static int beside(int tokens) {
    if (tokens <= most_one_by_one) return std::max(tokens, 1);
    if (tokens <= half_lanes) return half_lanes;
    return std::min(round_up(tokens, lanes), most_registers * lanes);
  }

  /// Brings x, tokens of a panel, into that order.
  ///   depth   stored features of x
  template <class X> static void bring(X const* x, std::int64_t depth, int tokens, T* v) {
    with_width(tokens, [&](auto width) { bring_as<decltype(width)>(x, depth, tokens, v); });
  }

  /// sums = W·v, of lines [first, last) of W, beginning with line `first`.
  ///   group_size   numbers of a group in v
  ///   sums         (lines, sums_stride ≥ whole groups of tokens)
  static void by_rows(block_index const& index, W const* weights, int tokens, T const* v,
                      std::int64_t group_size, T* sums, std::int64_t sums_stride, int first,
                      int last) noexcept {
    with_width(tokens, [&](auto width) {
      add_up<decltype(width)>(index, weights, tokens, v, group_size, sums, sums_stride, first, last);
    });
  }

 private:
  static constexpr int sets = 4;                  // sums that hide the latency of a multiply-add
  static constexpr int prefetch_distance = 1024;  // bytes
  static constexpr int widened_at_once = sizeof(W) == sizeof(T) ? 16 : 2 * lanes;

  struct number {
    using type = T;
  };
  template <class In> struct register_of {
    using type = simd::reg<T, In>;
  };
  /// Tokens that stand beside each other: Count registers of `In`, or numbers if that is void.
  template <class In, int Count> struct width_of {
    static constexpr int count = Count;
    static constexpr bool in_registers = !std::is_void_v<In>;
    using arch = std::conditional_t<in_registers, In, Arch>;
    using type = typename std::conditional_t<in_registers, register_of<arch>, number>::type;
    static constexpr int size = in_registers ? simd::lanes<T, arch> : 1, all = Count * size;

    TESSERA_INLINE static type load(T const* from) {
      if constexpr (in_registers)
        return simd::load<arch>(from);
      else
        return *from;
    }
    TESSERA_INLINE static type broadcast(T value) {
      if constexpr (in_registers)
        return simd::broadcast<arch>(value);
      else
        return value;
    }
    TESSERA_INLINE static type fma(type a, type b, type c) {
      if constexpr (in_registers)
        return simd::fma<arch, T>(a, b, c);
      else
        return simd::fma_of_one<arch>(a, b, c);
    }
    TESSERA_INLINE static type add(type a, type b) {
      if constexpr (in_registers)
        return (simd::batch<T, arch>(a) + simd::batch<T, arch>(b)).data;
      else
        return a + b;
    }
    TESSERA_INLINE static void store(T* to, type value) {
      if constexpr (in_registers)
        simd::store<arch>(to, value);
      else
        *to = value;
    }
  };

  /// Calls use(width_of) for the width of some tokens.
  template <class Use> static void with_width(int tokens, Use const& use) {
    const int width = beside(tokens);
    if (width == 1)
      use(width_of<void, 1>());
    else if (width == most_one_by_one)
      use(width_of<void, most_one_by_one>());
    else if (width == half_lanes)
      use(width_of<half, 1>());
    else if (width == lanes)
      use(width_of<Arch, 1>());
    else
      use(width_of<Arch, most_registers>());
  }

  template <class Width, class X> static void bring_as(X const* x, std::int64_t depth, int tokens, T* v) {
    constexpr int features_a_lane = element_traits<X>::features_a_lane;
    for (int token = 0; token < tokens; token += Width::all)
      for (std::int64_t f = 0; f < depth; f += features_a_lane, v += features_a_lane * Width::all)
        unroll<Width::count>([&](auto c) TESSERA_INLINE_LAMBDA {
          X const* const from = x + place_in_panel<X>(f, token + c * Width::size);
          simd::prefetch<1>(from + 32 * panel_tokens);
          if constexpr (Width::in_registers) {
            typename Width::type features[unsigned(features_a_lane)];
            simd::widen_lanes<typename Width::arch>(from, features);
            unroll<features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
              Width::store(v + i * Width::all + c * Width::size, features[i]);
            });
          } else {
            for (int i = 0; i < features_a_lane; ++i) v[i * Width::all + c] = T(from[i]);
          }
        });
  }

  template <class Width>
  [[gnu::noinline]] static void add_up(block_index const& index, W const* weights, int tokens, T const* v,
                                       std::int64_t group_size, T* sums, std::int64_t sums_stride, int first,
                                       int last) noexcept {
    for (int line = first; line < last; ++line, sums += sums_stride) {
      const block_line blocks = index.blocks() == 0 ? block_line{} : index.line(line);
      T const* group = v;
      for (int t = 0; t < tokens; t += Width::all, group += group_size)
        add_line<Width>(blocks, weights + blocks.first, group, sums + t);
    }
  }

  template <class Width>
  TESSERA_INLINE static void add_line(block_line const& blocks, W const* w, T const* v, T* sums) {
    constexpr int count = Width::count;
    typename Width::type acc[unsigned(sets)][unsigned(count)];
    unroll<sets * count>([&](auto i)
                             TESSERA_INLINE_LAMBDA { acc[i / count][i % count] = Width::broadcast(T(0)); });
    const auto add = [&](auto set, T weight, std::int64_t column) TESSERA_INLINE_LAMBDA {
      const auto factor = Width::broadcast(weight);
      T const* const from = v + column * std::int64_t(Width::all);
      unroll<count>([&](auto c) TESSERA_INLINE_LAMBDA {
        acc[set][c] = Width::fma(factor, Width::load(from + c * Width::size), acc[set][c]);
      });
    };
    std::int32_t const* const columns = blocks.columns;
    int b = 0;
    for (; b + widened_at_once <= blocks.count; b += widened_at_once) {
      simd::prefetch<1>(reinterpret_cast<std::byte const*>(w + b) + prefetch_distance);
      simd::prefetch<1>(reinterpret_cast<std::byte const*>(columns + b) + prefetch_distance);
      T const* wide;
      alignas(64) T room[unsigned(widened_at_once)];
      if constexpr (std::is_same_v<W, T>) {
        wide = w + b;
      } else {
        unroll<widened_at_once / lanes>([&](auto i) TESSERA_INLINE_LAMBDA {
          simd::store<Arch>(room + i * lanes, simd::load_values<Arch>(w + b + i * lanes).data);
        });
        wide = room;
      }
      unroll<widened_at_once / 2>([&](auto i) TESSERA_INLINE_LAMBDA {
        const simd::index_pair at = simd::load_pair(columns + b + 2 * i);
        add(std::integral_constant<int, 2 * i % sets>(), wide[2 * i], at.first);
        add(std::integral_constant<int, (2 * i + 1) % sets>(), wide[2 * i + 1], at.second);
      });
    }
    for (; b + sets <= blocks.count; b += sets)
      unroll<sets>([&](auto i) TESSERA_INLINE_LAMBDA { add(i, T(w[b + i]), columns[b + i]); });
    unroll<sets - 1>([&](auto i) TESSERA_INLINE_LAMBDA {
      if (b + i < blocks.count) add(i, T(w[b + i]), columns[b + i]);
    });
    unroll<count>([&](auto c) TESSERA_INLINE_LAMBDA {
      Width::store(sums + c * Width::size,
                   Width::add(Width::add(acc[0][c], acc[1][c]), Width::add(acc[2][c], acc[3][c])));
    });
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
