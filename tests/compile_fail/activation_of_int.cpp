// expect: float, double, bfloat16, float16; int8: #include <tessera/statements/quantised.hpp>
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(panel_matrix<int>& x);
