// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <kernels/sampled_arrays.hpp>
#include <simd/archs.hpp>

#include <tessera/kernels/amx_sampled_product.hpp>

using namespace tessera;

TEST_CASE_TEMPLATE_DEFINE("amx_sampled_product: sums are exact on integers", Arch, exact) {
  const auto check = []<class Block>(Block) {
    using types = kernels::sampled_types<bfloat16, bfloat16, engine::amx>;
    support::check_sampled_kernel<Arch, types, Block,
                                  kernels::amx_sampled_product<simd::emulated_amx, Arch, types, Block>>();
  };
  check(block_shape<16>());
  check(block_shape<8>());
  check(block_shape<32>());
  check(block_shape<16, 32>());
  check(block_shape<32, 16>());
}
TEST_CASE_TEMPLATE_APPLY(exact, support::archs);
