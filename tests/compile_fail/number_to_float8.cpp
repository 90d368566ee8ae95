// expect one error: rounding must be said
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/statements/quantised.hpp>

using namespace tessera;

void f(panel_matrix<float8_e4m3>& x) { x(0, 0) = 1; }
