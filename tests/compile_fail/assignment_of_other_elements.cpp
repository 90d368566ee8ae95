// expect one error: (use of|selected) deleted.*say y = converted.x
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(panel_matrix<bfloat16>& y, panel_matrix<float> const& x) { y = x; }
