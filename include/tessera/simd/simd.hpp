// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The thin layer over xsimd: the one header that includes it. Kernels hold whole arrays of registers, so they
// work on `reg`, the compiler's own vector type; ops work on `batch`, for which xsimd overloads the
// arithmetic.

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push  // GCC 12 warns of its own intrinsics headers
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <xsimd/xsimd.hpp>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#if XSIMD_VERSION_MAJOR < 12 || (XSIMD_VERSION_MAJOR == 12 && XSIMD_VERSION_MINOR < 1) || \
    XSIMD_VERSION_MAJOR >= 15
#error \
    "tessera needs xsimd 12.1 up to 14.x: on Debian 12 `./dev test` installs it, elsewhere libxsimd-dev or Conan"
#endif

#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// The instruction set the compiler flags ask for.
using native = xsimd::default_arch;

template <class T, class Arch = native> using batch = xsimd::batch<T, Arch>;

/// The number as which a lane of T is moved: T, if it is a number itself.
template <class T> struct moved {
  using as = T;
};

template <class T, class Arch = native>
using reg = typename batch<typename moved<T>::as, Arch>::register_type;

/// Values of T in a register.
template <class T, class Arch = native>
inline constexpr int lanes = static_cast<int>(batch<typename moved<T>::as, Arch>::size);

// xsimd's aligned forms contain an assert: a branch at every load where NDEBUG is not defined.
template <class Arch, class T> TESSERA_INLINE reg<T, Arch> load(T const* from) {
  if constexpr (std::is_arithmetic_v<T>) {
    return batch<T, Arch>::load_unaligned(from).data;
  } else {
    reg<T, Arch> value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
}

template <class Arch, class T> TESSERA_INLINE void store(T* to, reg<T, Arch> value) {
  if constexpr (std::is_arithmetic_v<T>)
    batch<T, Arch>(value).store_unaligned(to);
  else
    std::memcpy(static_cast<void*>(to), &value, sizeof value);
}

/// Past the caches, where a register has such a store. `to` is aligned to the register; others see the value
/// after streams_end().
template <class Arch, class T> TESSERA_INLINE void stream(T* to, reg<T, Arch> value) {
#ifdef __AVX512F__
  if constexpr (sizeof value == 64)
    return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), std::bit_cast<__m512i>(value));
#endif
#ifdef __AVX__
  if constexpr (sizeof value == 32)
    return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), std::bit_cast<__m256i>(value));
#endif
#ifdef __SSE2__
  if constexpr (sizeof value == 16)
    return _mm_stream_si128(reinterpret_cast<__m128i*>(to), std::bit_cast<__m128i>(value));
#endif
  store<Arch>(to, value);
}
inline void streams_end() noexcept {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

template <class Arch, class T> TESSERA_INLINE reg<T, Arch> broadcast(T value) {
  using number = typename moved<T>::as;
  return batch<number, Arch>(std::bit_cast<number>(value)).data;
}

template <class Arch, class T> TESSERA_INLINE reg<T, Arch> zero() { return batch<T, Arch>(T(0)).data; }

/// a * b + c, rounded once where the instruction set has it.
template <class Arch, class T>
TESSERA_INLINE reg<T, Arch> fma(reg<T, Arch> a, reg<T, Arch> b, reg<T, Arch> c) {
  return xsimd::fma(batch<T, Arch>(a), batch<T, Arch>(b), batch<T, Arch>(c)).data;
}

/// True for registers whose fma is one instruction, which rounds once.
template <class V> inline constexpr bool has_fma = false;
template <class T, class Arch>
inline constexpr bool has_fma<batch<T, Arch>> =
    std::is_base_of_v<xsimd::avx512f, Arch> || std::is_base_of_v<xsimd::fma3<xsimd::avx2>, Arch> ||
    std::is_base_of_v<xsimd::fma3<xsimd::avx>, Arch> || std::is_base_of_v<xsimd::fma3<xsimd::sse4_2>, Arch> ||
    std::is_base_of_v<xsimd::neon64, Arch>;

namespace detail {
template <class T, class Arch> constexpr auto half_arch() {
  if constexpr (lanes<T, Arch> < 8) {
    return Arch();
  } else {
    using half = typename xsimd::make_sized_batch_t<T, unsigned(lanes<T, Arch> / 2)>::arch_type;
    if constexpr (has_fma<batch<T, half>> == has_fma<batch<T, Arch>>)
      return half();
    else
      return Arch();
  }
}
}  // namespace detail

/// The instruction set of registers of half the size whose fma rounds as that of Arch; Arch itself where
/// there is none, or where it would have less than four lanes.
template <class T, class Arch> using half_of = decltype(detail::half_arch<T, Arch>());

/// a * b + c of numbers, rounded as `fma` rounds registers.
template <class Arch, class T> TESSERA_INLINE T fma_of_one(T a, T b, T c) {
  if constexpr (!has_fma<batch<T, Arch>>)
    return a * b + c;
  else if constexpr (std::is_same_v<T, float>)
    return __builtin_fmaf(a, b, c);
  else
    return __builtin_fma(a, b, c);
}

/// The compiler's own vectors, which it knows how to widen, to narrow and to shuffle.
template <class T, int Lanes> struct compiler_vector {
  typedef T type __attribute__((vector_size(Lanes * sizeof(T))));
};

/// 0, 1, 2, …
template <class T, class Arch> TESSERA_INLINE batch<T, Arch> lane_numbers() {
  alignas(64) static constexpr auto numbers = [] {
    struct {
      T lane[static_cast<unsigned>(lanes<T, Arch>)];
    } table{};
    for (int i = 0; i < lanes<T, Arch>; ++i) table.lane[i] = T(i);
    return table;
  }();
  return batch<T, Arch>::load_unaligned(numbers.lane);
}

/// The first `count` lanes of `value`, zero in the others; none if count ≤ 0.
template <class T, class Arch> TESSERA_INLINE batch<T, Arch> first_lanes(batch<T, Arch> value, int count) {
  return xsimd::select(lane_numbers<T, Arch>() < batch<T, Arch>(T(count)), value, batch<T, Arch>(T(0)));
}

/// The others: zero in the first `count` lanes.
template <class T, class Arch>
TESSERA_INLINE batch<T, Arch> without_first_lanes(batch<T, Arch> value, int count) {
  return xsimd::select(lane_numbers<T, Arch>() < batch<T, Arch>(T(count)), batch<T, Arch>(T(0)), value);
}

/// max(x, low), not-a-number if x is.
template <class T, class Arch> TESSERA_INLINE batch<T, Arch> at_least(batch<T, Arch> x, batch<T, Arch> low) {
#ifdef __AVX512F__
  // Returns its second operand if either is not-a-number.
  if constexpr (sizeof(reg<T, Arch>) == 64 && std::is_same_v<T, float>) return _mm512_max_ps(low, x);
#endif
  return xsimd::select(x < low, low, x);
}

/// a / b, rounded once. xsimd's, of floats on ARM, is an estimate, and not-a-number for b = infinity.
template <class T, class Arch> TESSERA_INLINE batch<T, Arch> quotient(batch<T, Arch> a, batch<T, Arch> b) {
#ifdef __aarch64__
  if constexpr (std::is_same_v<T, float>) return vdivq_f32(a, b);
#endif
  return a / b;
}

/// √x, rounded once. xsimd's, of floats on ARM, is an estimate, and not-a-number for infinity.
template <class T, class Arch> TESSERA_INLINE batch<T, Arch> root(batch<T, Arch> x) {
#ifdef __aarch64__
  if constexpr (std::is_same_v<T, float>) return vsqrtq_f32(x);
#endif
  return xsimd::sqrt(x);
}

/// The sum of all lanes.
template <class T, class Arch> TESSERA_INLINE T sum_lanes(batch<T, Arch> value) {
  return xsimd::reduce_add(value);
}

/// The largest of all lanes.
template <class T, class Arch> TESSERA_INLINE T largest_lane(batch<T, Arch> value) {
  return xsimd::reduce_max(value);
}

/// Sums as numbers To: themselves, or integers of 32 bits as floats.
template <class To, class Sum, class Arch> TESSERA_INLINE batch<To, Arch> as(batch<Sum, Arch> const& sums) {
  if constexpr (std::is_same_v<To, Sum>)
    return sums;
  else
    return xsimd::to_float(sums);
}

/// Keeps a loaded value in a register: without this GCC folds the load into each multiplication that uses it,
/// and clang each broadcast. Costs no instruction.
template <class Register> TESSERA_INLINE void pin([[maybe_unused]] Register& value) {
#if defined(__AVX512F__)
  asm("" : "+v"(value));
#elif defined(__SSE2__)
  asm("" : "+x"(value));
#elif defined(__aarch64__)
  asm("" : "+w"(value));
#endif
}

/// Four consecutive values, each in all lanes of one register; with a single load where registers
/// have shuffles for it.
template <class Arch, class T> TESSERA_INLINE void broadcast_four(T const* from, reg<T, Arch> (&to)[4]) {
#if defined(__AVX512F__)
  if constexpr (sizeof(reg<T, Arch>) == 64 && sizeof(T) == 4) {
    __m512 four = _mm512_broadcast_f32x4(_mm_loadu_ps(from));
    pin(four);
    to[0] = _mm512_permute_ps(four, 0x00);
    to[1] = _mm512_permute_ps(four, 0x55);
    to[2] = _mm512_permute_ps(four, 0xaa);
    to[3] = _mm512_permute_ps(four, 0xff);
    return;
  } else if constexpr (sizeof(reg<T, Arch>) == 64 && sizeof(T) == 8) {
    __m512d four = _mm512_broadcast_f64x4(_mm256_loadu_pd(from));
    pin(four);
    to[0] = _mm512_permutex_pd(four, 0x00);
    to[1] = _mm512_permutex_pd(four, 0x55);
    to[2] = _mm512_permutex_pd(four, 0xaa);
    to[3] = _mm512_permutex_pd(four, 0xff);
    return;
  }
#endif
  for (int i = 0; i < 4; ++i) to[i] = broadcast<Arch>(from[i]);
}

/// Indices, none negative, read two by two: gathers and scatters are as fast as their loads.
struct index_pair {
  std::uint32_t first, second;
};
TESSERA_INLINE index_pair load_pair(std::int32_t const* index) {
  std::uint64_t both;
  std::memcpy(&both, index, sizeof both);
  return {std::uint32_t(both), std::uint32_t(both >> 32)};
}

/// from[index[i]] in lane i: by loads of single numbers, of which AMD does more than its gather instruction.
template <class Arch, class T> TESSERA_INLINE reg<T, Arch> gather(T const* from, std::int32_t const* index) {
  return [&]<int... i>(std::integer_sequence<int, i...>) TESSERA_INLINE_LAMBDA {
    const index_pair at[] = {load_pair(index + 2 * i)...};
    typename compiler_vector<T, lanes<T, Arch>>::type all;
    ((all[2 * i] = from[at[i].first], all[2 * i + 1] = from[at[i].second]), ...);
    return std::bit_cast<reg<T, Arch>>(all);
  }(std::make_integer_sequence<int, lanes<T, Arch> / 2>());
}

/// to[index[i]] += lane i of `values`, for distinct indices.
template <class Arch, class T>
TESSERA_INLINE void scatter_add(T* to, std::int32_t const* index, reg<T, Arch> values) {
  const auto all = std::bit_cast<typename compiler_vector<T, lanes<T, Arch>>::type>(values);
  unroll<lanes<T, Arch> / 2>([&](auto i) TESSERA_INLINE_LAMBDA {
    const index_pair at = load_pair(index + 2 * i);
    to[at.first] += all[2 * i];
    to[at.second] += all[2 * i + 1];
  });
}

/// Asks for the cache line at `address`, into the L2 or the L1.
template <int Level> TESSERA_INLINE void prefetch(void const* address) {
  static_assert(Level == 1 || Level == 2, "only the L1 and the L2 are worth asking for");
  __builtin_prefetch(address, 0, Level == 1 ? 3 : 2);
}

}}}  // namespace tessera::TESSERA_ISA::simd
