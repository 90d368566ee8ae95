// expect one error: the operands have different element types
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

auto f(panel_matrix<float> const& x, panel_matrix<double> const& y) { return x + y; }
