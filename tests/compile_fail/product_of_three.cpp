// expect one error: W is an expression, not a stored matrix
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

auto f(dense_matrix<float> const& a, dense_matrix<float> const& b, panel_matrix<float> const& x) {
  return a * b * x;
}
