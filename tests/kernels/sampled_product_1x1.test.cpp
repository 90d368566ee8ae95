// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <kernels/sampled_arrays.hpp>
#include <simd/archs.hpp>

#include <tessera/kernels/sampled_product_1x1.hpp>

using namespace tessera;
using support::check_sampled_product;

TEST_CASE_TEMPLATE_DEFINE("sampled_product_1x1: sums of single elements are exact on integers", Arch, exact) {
  using single = block_shape<1>;
  check_sampled_product<Arch, float, float, single>();
  check_sampled_product<Arch, double, double, single>();
  check_sampled_product<Arch, bfloat16, bfloat16, single>();
  check_sampled_product<Arch, float16, float16, single>();
  check_sampled_product<Arch, bfloat16, float, single>();
  check_sampled_product<Arch, float, float16, single>();
}
TEST_CASE_TEMPLATE_APPLY(exact, support::archs);
