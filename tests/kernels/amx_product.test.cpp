// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <kernels/product_arrays.hpp>
#include <simd/archs.hpp>

#include <tessera/kernels/amx_product.hpp>

// Products of a matrix in blocks with a panel on a matrix unit in plain C++.

using namespace tessera;
using namespace support;

namespace {
template <class Arch> struct by_amx {
  using arch = Arch;
  template <class Types, class Shape, class Tree>
  using kernel = kernels::amx_product<simd::emulated_amx, Arch, Types, Shape, Tree>;
};
}  // namespace

TEST_CASE_TEMPLATE_DEFINE("amx_product: results are exact on integers", Arch, exact) {
  using types = kernels::product_types<bfloat16, bfloat16, bfloat16>;
  using to_float = kernels::product_types<bfloat16, bfloat16, float>;
  using how = by_amx<Arch>;
  check_products<how, types, block_shape<16>>();
  check_products<how, types, block_shape<8>>();
  check_products<how, types, block_shape<32>>();
  check_products<how, to_float, block_shape<16, 32>>();
  check_products<how, to_float, block_shape<32, 16>>();
  check_products<how, types, block_shape<4>, 1>();
  check_products<how, to_float, block_shape<16, 4>, 1>();
}
TEST_CASE_TEMPLATE_APPLY(exact, support::archs);
