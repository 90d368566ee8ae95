// expect one error: a factor is a transpose: store it first
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/statements/outer_products.hpp>
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<float> const& a, dense_matrix<float>& c) {
  run(ctx, c = by_outer_products(transposed(a) * a));
}
