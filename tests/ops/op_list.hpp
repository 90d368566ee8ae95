// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/ops/ops.hpp>
#include <tessera/simd/simd.hpp>

/// Every op of the library: what all of them promise is tested over these lists.
template <class... Op> struct op_list {
  template <class Body> static void for_each(Body&& body) { (body(Op{}), ...); }
};

using unary_ops =
    op_list<tessera::ops::negate, tessera::ops::absolute, tessera::ops::square, tessera::ops::square_root,
            tessera::ops::reciprocal_square_root, tessera::ops::exponential, tessera::ops::logarithm,
            tessera::ops::sine, tessera::ops::cosine, tessera::ops::sigmoid, tessera::ops::tanh,
            tessera::ops::silu, tessera::ops::relu, tessera::ops::gelu, tessera::ops::gelu_tanh,
            tessera::ops::gelu_polynomial>;
using binary_ops =
    op_list<tessera::ops::add, tessera::ops::subtract, tessera::ops::multiply, tessera::ops::divide,
            tessera::ops::power, tessera::ops::maximum, tessera::ops::minimum, tessera::ops::equal,
            tessera::ops::less, tessera::ops::greater_equal>;

/// op of registers filled with each of the arguments.
template <class Op, class T, class... More> T in_register(Op op, T a, More... more) {
  return op(tessera::simd::batch<T>(a), tessera::simd::batch<T>(more)...).get(0);
}

/// op of each of the values, a register at a time; as many values as fill registers.
template <class T, class Op> std::vector<T> in_registers(Op op, std::vector<T> const& x) {
  std::vector<T> y(x.size());
  constexpr std::size_t lanes = tessera::simd::lanes<T>;
  for (std::size_t i = 0; i + lanes <= x.size(); i += lanes)
    op(tessera::simd::batch<T>::load_unaligned(&x[i])).store_unaligned(&y[i]);
  return y;
}

/// Numbers from low to high in even steps, a count that fills registers of any size.
template <class T> std::vector<T> even_steps(double low, double high, int count) {
  std::vector<T> x(static_cast<std::size_t>(tessera::round_up(count, 64)));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<T>(low + (high - low) * double(i) / double(x.size() - 1));
  return x;
}
