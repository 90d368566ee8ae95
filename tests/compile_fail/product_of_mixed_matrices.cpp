// expect one error: the two matrices have different element types: bring them to one
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

auto f(dense_matrix<bfloat16> const& a, dense_matrix<double> const& b) { return a * b; }
