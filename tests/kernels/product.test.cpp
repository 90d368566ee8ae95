// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <kernels/product_arrays.hpp>
#include <simd/archs.hpp>
#include <support/types.hpp>

#include <tessera/kernels/product.hpp>

// Products of a matrix in blocks with a panel, in registers of every width that the flags allow.

using namespace tessera;
using namespace support;

namespace {

template <class Arch> struct by_registers {
  using arch = Arch;
  template <class Types, class Shape, class Tree>
  using kernel = kernels::sparse_product<Arch, Types, Shape, Tree>;
};

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("product: results are exact on integers", Arch, exact) {
  using kernels::product_types;
  using in_float = product_types<float, float, float>;
  using in_double = product_types<double, double, double>;
  check_products<by_registers<Arch>, in_float, block_shape<16>>();
  check_products<by_registers<Arch>, in_float, block_shape<4>>();
  check_products<by_registers<Arch>, in_double, block_shape<8>>();
  check_products<by_registers<Arch>, in_float, block_shape<1>>();
  check_products<by_registers<Arch>, in_double, block_shape<10, 6>>();
}
TEST_CASE_TEMPLATE_APPLY(exact, support::archs);

TEST_CASE_TEMPLATE_DEFINE("product: results of narrow elements are exact on integers", Arch, exact_narrow) {
  const auto all = []<class E>(E) {
    check_product<by_registers<Arch>, kernels::product_types<E, E, E, engine::pairs>, block_shape<4>, false,
                  kernels::tree::sum>();
    check_product<by_registers<Arch>, kernels::product_types<E, E, float>, block_shape<6, 10>, true,
                  costly_sum>();
  };
  all(bfloat16{});
  all(float16{});
}
TEST_CASE_TEMPLATE_APPLY(exact_narrow, support::archs);

// In registers of one width, for compile time is dear: other flags bring others.
TEST_CASE_TEMPLATE_DEFINE("product: results of narrow and of mixed elements are exact on integers", E,
                          exact_mixed) {
  using Arch = simd::native;
  using kernels::product_types;
  using narrow = product_types<E, E, E, engine::pairs>;
  using narrow_to_float = product_types<E, E, float>;
  using narrow_weights = product_types<E, float, E>;
  using narrow_activations = product_types<float, E, float>;
  check_products<by_registers<Arch>, narrow, block_shape<16>>();
  check_products<by_registers<Arch>, narrow, block_shape<4>>();
  check_products<by_registers<Arch>, narrow, block_shape<1>>();
  check_products<by_registers<Arch>, narrow, block_shape<6, 10>>();
  check_products<by_registers<Arch>, narrow_to_float, block_shape<5, 3>>();
  check_products<by_registers<Arch>, narrow_weights, block_shape<3, 4>>();
  check_products<by_registers<Arch>, narrow_activations, block_shape<8>>();
}
TEST_CASE_TEMPLATE_APPLY(exact_mixed, support::narrow_elements);

TEST_CASE("product: results are exact on integers in blocks larger than a tile") {
  using kernels::product_types;
  check_products<by_registers<simd::native>, product_types<float, float, float>, block_shape<32>>();
  check_products<by_registers<simd::native>, product_types<double, double, double>, block_shape<4, 16>>();
}
