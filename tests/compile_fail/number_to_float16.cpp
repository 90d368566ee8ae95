// expect one error: rounding must be said
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(panel_matrix<float16>& x) { x(0, 0) = 1; }
