// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/simd/bfloat16.hpp>
#include <tessera/simd/lane.hpp>
#include <tessera/simd/simd.hpp>

// Intel's matrix unit (AMX): eight tile registers of up to 16 rows of 64 bytes, and an instruction that
// multiplies two of them. Kernels take the unit as a type, the hardware's or one in plain C++ that gives its
// bits, and name registers by number:
//   unit(shapes)                          all registers get their shapes
//   zero<Register>()
//   load<Register>(from, row_bytes)       row r from `row_bytes` · r on
//   store<Register>(to, row_bytes)
//   multiply_add<Sums, Left, Right>()     sums += left · right
// of which left holds (rows, depth) of bfloat16, right (depth / 2, columns, 2), which is how a panel stands
// in memory, and sums (rows, columns) of float. multiply_add<Sums, Left, Right, float16>() multiplies
// float16; multiply_add<Sums, Left, Right, int8>() multiplies (rows, depth) by (depth / 4, columns, 4), and
// sums in integers of 32 bits.

namespace tessera { inline namespace TESSERA_ISA {
class float16;
class int8;
namespace simd {

inline constexpr int amx_registers = 8, amx_rows = 16, amx_columns = 16, amx_row_bytes = 64;

/// Rows and bytes of a row of each register, as the hardware reads them.
struct alignas(64) amx_shapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  constexpr void set(int number, int its_rows, int its_row_bytes) {
    rows[number] = static_cast<std::uint8_t>(its_rows);
    row_bytes[number] = static_cast<std::uint16_t>(its_row_bytes);
  }
};
static_assert(sizeof(amx_shapes) == 64);

/// The unit in plain C++. Its bits are the hardware's where a multiply-add rounds once and denormals are
/// flushed: measured on a Xeon with AMX, for normal, wide, subnormal and underflowing operands of bfloat16.
/// That of float16 follows Intel's Instruction Set Extensions Reference (TDPFP16PS), and is not measured.
class emulated_amx {
 public:
  explicit emulated_amx(amx_shapes const& shapes) : shapes_(shapes) {
    std::memset(register_, 0, sizeof register_);
  }
  static void release() noexcept {}

  template <int Register> void zero() { std::memset(register_[Register], 0, sizeof register_[Register]); }
  template <int Register> void load(void const* from, std::ptrdiff_t row_bytes) {
    zero<Register>();
    for (int r = 0; r < shapes_.rows[Register]; ++r)
      std::memcpy(register_[Register][r], static_cast<std::byte const*>(from) + r * row_bytes,
                  shapes_.row_bytes[Register]);
  }
  template <int Register> void store(void* to, std::ptrdiff_t row_bytes) const {
    for (int r = 0; r < shapes_.rows[Register]; ++r)
      std::memcpy(static_cast<std::byte*>(to) + r * row_bytes, register_[Register][r],
                  shapes_.row_bytes[Register]);
  }
  /// Integers wrap around; of floats, products of even and of odd positions along the depth are summed
  /// apart, from zero; then their sums are added, and the whole to `Sums`.
  template <int Sums, int Left, int Right, class E = bfloat16> void multiply_add() {
    if constexpr (std::is_same_v<E, int8>)
      multiply_add_integers(Sums, Left, Right);
    else
      multiply_add_floats<E>(Sums, Left, Right);
  }

 private:
  template <class E> void multiply_add_floats(int to_sums, int left, int right) {
    using floats = batch<float>;
    for (int r = 0; r < shapes_.rows[to_sums]; ++r)
      for (int column = 0; column < amx_columns; column += lanes<float>) {
        floats sums[2] = {floats(0.0f), floats(0.0f)};
        for (int k = 0; k < shapes_.rows[right]; ++k) {
          const lane_bits<native> pairs(load_bits(register_[right][k] + column * 4));
          unroll<2>([&](auto i) TESSERA_INLINE_LAMBDA {
            E factor;
            std::memcpy(static_cast<void*>(&factor), register_[left][r] + (2 * k + i) * 2, sizeof factor);
            sums[i] = simd::fma<native, float>(
                floats(float(factor)).data, lane<E>::template feature<i, native>(pairs).data, sums[i].data);
          });
        }
        float* const to = reinterpret_cast<float*>(register_[to_sums][r]) + column;
        (floats::load_unaligned(to) + (sums[0] + sums[1])).store_unaligned(to);
      }
  }
  void multiply_add_integers(int sums, int left, int right) {
    for (int r = 0; r < shapes_.rows[sums]; ++r)
      for (int column = 0; column < shapes_.row_bytes[sums] / 4; ++column) {
        std::uint32_t sum;
        std::memcpy(&sum, register_[sums][r] + 4 * column, sizeof sum);
        for (int k = 0; k < 4 * shapes_.rows[right]; ++k)
          sum += std::uint32_t(std::int8_t(register_[left][r][k])) *
                 std::uint32_t(std::int8_t(register_[right][k / 4][4 * column + k % 4]));
        std::memcpy(register_[sums][r] + 4 * column, &sum, sizeof sum);
      }
  }
  static reg<std::uint32_t> load_bits(std::byte const* from) {
    reg<std::uint32_t> bits;
    std::memcpy(&bits, from, sizeof bits);
    return bits;
  }

  amx_shapes const& shapes_;
  alignas(64) std::byte register_[amx_registers][amx_rows][amx_row_bytes];
};

#ifdef TESSERA_HARDWARE_AMX
/// The hardware, of the thread that uses it, which needs the permission of exec::amx_permitted. Written in
/// assembler: the compilers' own functions do not say that they read and write memory.
class hardware_amx {
 public:
  explicit hardware_amx(amx_shapes const& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
  static void release() noexcept { asm volatile("tilerelease" ::: "memory"); }

  template <int Register> TESSERA_INLINE void zero() { asm volatile("tilezero %%tmm%c0" ::"i"(Register)); }
  template <int Register> TESSERA_INLINE void load(void const* from, std::ptrdiff_t row_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(Register) : "memory");
  }
  template <int Register> TESSERA_INLINE void store(void* to, std::ptrdiff_t row_bytes) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(Register) : "memory");
  }
  template <int Sums, int Left, int Right, class E = bfloat16> TESSERA_INLINE void multiply_add() {
    if constexpr (std::is_same_v<E, int8>)
      asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(Left), "i"(Right));
    else if constexpr (std::is_same_v<E, float16>)
      asm volatile("tdpfp16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(Left), "i"(Right));
    else
      asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(Left), "i"(Right));
  }
};
#endif

/// The unit of products: the hardware, where it is compiled for, else plain C++, which only tests choose,
/// with TESSERA_EMULATED_AMX.
#ifdef TESSERA_HARDWARE_AMX
using native_amx = hardware_amx;
#else
using native_amx = emulated_amx;
#endif
#if defined(TESSERA_HARDWARE_AMX) || defined(TESSERA_EMULATED_AMX)
inline constexpr bool has_amx = true;
#else
inline constexpr bool has_amx = false;
#endif
/// Whether the unit multiplies elements E.
template <class E>
inline constexpr bool amx_multiplies = has_amx && (std::is_same_v<E, bfloat16> || std::is_same_v<E, int8>);
#if defined(TESSERA_HARDWARE_AMX_FP16) || defined(TESSERA_EMULATED_AMX)
template <> inline constexpr bool amx_multiplies<float16> = true;
#endif

}  // namespace simd
}}  // namespace tessera::TESSERA_ISA
