// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/core/element.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/int8.hpp>
#include <tessera/core/random.hpp>
#include <tessera/exec/amx_permission.hpp>
#include <tessera/exec/denormals.hpp>
#include <tessera/simd/amx.hpp>
#include <tessera/simd/float16.hpp>

// A matrix unit in plain C++ against loops over single numbers, and against the hardware where it is.

using namespace tessera;

namespace {

constexpr int row_length = 40;  // of a matrix in memory: wider than a tile

/// Numbers of 2^middle, times or divided by up to 2^spread.
struct magnitudes {
  int middle, spread;
};
/// In float16 the largest and the smallest numbers lie nearer, and subnormal ones are not flushed.
template <class E> std::vector<magnitudes> magnitudes_of() {
  if (std::is_same_v<E, float16>) return {{0, 0}, {0, 13}, {-14, 4}, {-20, 4}};
  return {{0, 0}, {0, 30}, {-120, 10}, {-128, 6}};
}

/// The operands and sums of one instruction, in memory.
template <class E> struct operands {
  std::vector<E> left, right;
  std::vector<float> sums;

  operands(std::uint64_t seed, magnitudes of) {
    const random_stream random(seed, random_purpose::test);
    std::uint64_t i = 0;
    const auto next = [&](int middle) {
      const double number = 2 * random.uniform(i) - 1;
      const int power = middle + int((2 * random.uniform(i + 1) - 1) * of.spread);
      i += 2;
      return float(std::ldexp(number, power));
    };
    for (int k = 0; k < 16 * row_length; ++k) {
      left.emplace_back(next(of.middle));
      right.emplace_back(next(0));
      sums.push_back(next(of.middle));
    }
  }
};

constexpr simd::amx_shapes shapes_of(int rows, int depth, int columns) {
  simd::amx_shapes all;
  all.set(2, rows, columns * 4);
  all.set(5, rows, depth * 2);
  all.set(7, depth / 2, columns * 4);
  return all;
}

/// sums += left · right, by a unit.
template <class Unit, class E> std::vector<float> by(operands<E> o, simd::amx_shapes const& shapes) {
  const exec::flush_denormals flushed;
  Unit unit(shapes);
  unit.template load<2>(o.sums.data(), row_length * 4);
  unit.template load<5>(o.left.data(), row_length * 2);
  unit.template load<7>(o.right.data(), row_length * 2);
  unit.template multiply_add<2, 5, 7, E>();
  unit.template store<2>(o.sums.data(), row_length * 4);
  Unit::release();
  return o.sums;
}

template <class E> std::vector<float> by_loops(operands<E> o, int rows, int depth, int columns) {
  const exec::flush_denormals flushed;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) {
      float of_parity[2] = {0, 0};
      for (int k = 0; k < depth; ++k)
        of_parity[k % 2] =
            std::fma(float(o.left[std::size_t(r * row_length + k)]),
                     float(o.right[std::size_t(k / 2 * row_length + 2 * c + k % 2)]), of_parity[k % 2]);
      o.sums[std::size_t(r * row_length + c)] += of_parity[0] + of_parity[1];
    }
  return o.sums;
}

[[maybe_unused]] bool same_bits(std::vector<float> const& a, std::vector<float> const& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

template <class Visit> void for_each_shape(Visit const& visit) {
  for (const int rows : {16, 8, 1})
    for (const int depth : {32, 16, 8, 2})
      for (const int columns : {16, 8, 4}) visit(rows, depth, columns);
}

}  // namespace

TEST_CASE_TEMPLATE("amx: the unit in plain C++ adds even and odd products apart, each rounded once", E,
                   bfloat16, float16) {
  for_each_shape([](int rows, int depth, int columns) {
    for (const magnitudes of : magnitudes_of<E>()) {
      INFO("rows ", rows, ", depth ", depth, ", columns ", columns, ", numbers of 2^", of.middle);
      const operands<E> o(7, of);
      const auto got = by<simd::emulated_amx>(o, shapes_of(rows, depth, columns));
#ifdef __FMA__
      CHECK(same_bits(got, by_loops(o, rows, depth, columns)));
#endif
      for (int r = 0; r < 16; ++r)
        for (int c = 0; c < row_length; ++c) {
          const auto at = std::size_t(r * row_length + c);
          if (r >= rows || c >= columns) {
            REQUIRE(got[at] == o.sums[at]);
            continue;
          }
          double exact = o.sums[at], magnitude = std::abs(exact);
          for (int k = 0; k < depth; ++k) {
            const double product = double(o.left[std::size_t(r * row_length + k)]) *
                                   double(o.right[std::size_t(k / 2 * row_length + 2 * c + k % 2)]);
            exact += product;
            magnitude += std::abs(product);
          }
          // Operands, products and sums below 2^-126 become zero.
          const double flushed = (depth + 3) * std::ldexp(1.0, of.spread + 1 - 126);
          REQUIRE(std::abs(got[at] - exact) <= (depth / 2 + 3) * unit_roundoff<float> * magnitude + flushed);
        }
    }
  });
}

namespace {

/// sums += left · right of int8, by a unit and by loops.
template <class Unit> void check_integers(std::uint64_t seed, int rows, int depth, int columns) {
  simd::amx_shapes shapes;
  shapes.set(2, rows, columns * 4);
  shapes.set(5, rows, depth);
  shapes.set(7, depth / 4, columns * 4);
  const random_stream random(seed, random_purpose::test);
  std::vector<std::uint64_t> left(16 * 8), right(16 * 8);  // rows of 64 bytes
  for (std::size_t i = 0; i < left.size(); ++i)
    left[i] = random.bits(2 * i), right[i] = random.bits(2 * i + 1);
  std::vector<std::int32_t> sums(16 * 16);
  for (std::size_t i = 0; i < sums.size(); ++i)
    sums[i] = std::int32_t(random.bits(1000 + i));  // they wrap around
  std::vector<std::int32_t> exact = sums;
  const auto byte = [](std::vector<std::uint64_t> const& of, int at) {
    std::int8_t code;
    std::memcpy(&code, reinterpret_cast<char const*>(of.data()) + at, 1);
    return std::uint32_t(code);
  };
  Unit unit(shapes);
  unit.template load<2>(sums.data(), 64);
  unit.template load<5>(left.data(), 64);
  unit.template load<7>(right.data(), 64);
  unit.template multiply_add<2, 5, 7, int8>();
  unit.template store<2>(sums.data(), 64);
  Unit::release();
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) {
      auto sum = std::uint32_t(exact[std::size_t(r * 16 + c)]);
      for (int k = 0; k < depth; ++k) sum += byte(left, r * 64 + k) * byte(right, k / 4 * 64 + 4 * c + k % 4);
      exact[std::size_t(r * 16 + c)] = std::int32_t(sum);
    }
  CHECK(sums == exact);
}

}  // namespace

TEST_CASE("amx: products of int8 are summed in integers of 32 bits, in plain C++ and by the hardware") {
  for (const int rows : {16, 8, 1})
    for (const int depth : {64, 32, 16, 4})
      for (const int columns : {16, 8, 4})
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
          INFO("rows ", rows, ", depth ", depth, ", columns ", columns);
          check_integers<simd::emulated_amx>(seed, rows, depth, columns);
#ifdef TESSERA_HARDWARE_AMX
          if (exec::amx_permitted()) check_integers<simd::hardware_amx>(seed, rows, depth, columns);
#endif
        }
}

TEST_CASE("amx: a register that is cleared is zero, and rows of any distance are loaded and stored") {
  simd::amx_shapes shapes;
  shapes.set(0, 3, 8);
  shapes.set(1, 3, 8);
  simd::emulated_amx unit(shapes);
  const std::uint8_t from[3 * 20] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::uint8_t to[3 * 9];
  std::memset(to, 255, sizeof to);
  unit.load<0>(from, 20);
  unit.load<1>(from, 0);
  unit.zero<0>();
  unit.store<0>(to, 9);
  for (int i = 0; i < 3 * 9; ++i) CHECK(to[i] == (i % 9 < 8 ? 0 : 255));
  unit.store<1>(to, 9);
  for (int i = 0; i < 3 * 9; ++i) CHECK(to[i] == (i % 9 < 8 ? i % 9 + 1 : 255));
}

#ifdef TESSERA_HARDWARE_AMX
TEST_CASE_TEMPLATE("amx: the hardware has the bits of the unit in plain C++", E, bfloat16, float16) {
  if constexpr (!simd::amx_multiplies<E>) return;
  if (!exec::amx_permitted()) {
    MESSAGE("this process may not use the matrix unit");
    return;
  }
  for_each_shape([](int rows, int depth, int columns) {
    for (const magnitudes of : magnitudes_of<E>())
      for (std::uint64_t seed = 0; seed < 50; ++seed) {
        INFO("rows ", rows, ", depth ", depth, ", columns ", columns, ", numbers of 2^", of.middle);
        const operands<E> o(seed, of);
        const auto shapes = shapes_of(rows, depth, columns);
        CHECK(same_bits(by<simd::hardware_amx>(o, shapes), by<simd::emulated_amx>(o, shapes)));
      }
  });
}
#endif
