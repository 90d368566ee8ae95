// expect one error: products of two matrices of elements narrower than their sums come later
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

auto f(dense_matrix<bfloat16> const& a, dense_matrix<bfloat16> const& b) { return a * b; }
