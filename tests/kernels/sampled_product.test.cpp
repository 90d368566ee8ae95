// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <kernels/sampled_arrays.hpp>
#include <simd/archs.hpp>
#include <support/types.hpp>

#include <tessera/kernels/sampled_product.hpp>

using namespace tessera;
using support::check_sampled_product;

TEST_CASE_TEMPLATE_DEFINE("sampled_product: sums are exact on integers", Arch, exact) {
  check_sampled_product<Arch, float, float, block_shape<16>>();
  check_sampled_product<Arch, float, float, block_shape<4>>();
  check_sampled_product<Arch, double, double, block_shape<8>>();
  check_sampled_product<Arch, double, double, block_shape<10, 6>>();
  check_sampled_product<Arch, bfloat16, bfloat16, block_shape<4>>();
  check_sampled_product<Arch, float16, float16, block_shape<4>>();
}
TEST_CASE_TEMPLATE_APPLY(exact, support::archs);

// In registers of one width, for compile time is dear: other flags bring others.
TEST_CASE_TEMPLATE_DEFINE("sampled_product: sums of narrow and of mixed elements are exact on integers", E,
                          exact_mixed) {
  using Arch = simd::native;
  check_sampled_product<Arch, E, E, block_shape<32>>();
  check_sampled_product<Arch, E, E, block_shape<6, 10>>();
  check_sampled_product<Arch, E, float, block_shape<4, 16>>();
  check_sampled_product<Arch, float, E, block_shape<5, 3>>();
}
TEST_CASE_TEMPLATE_APPLY(exact_mixed, support::narrow_elements);
