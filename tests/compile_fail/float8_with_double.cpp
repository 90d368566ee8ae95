// expect: the matrix and the activation have different element types: bring them to one
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/statements/quantised.hpp>

using namespace tessera;

auto f(dense_matrix<float8_e4m3> const& w, panel_matrix<double> const& x) { return w * x; }
