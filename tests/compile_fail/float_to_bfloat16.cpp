// expect one error: rounding must be said: x = bfloat16\(number\). tensors: y = converted
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(panel_matrix<bfloat16>& x) { x(0, 0) = 1.5f; }
