// expect one error: lvalue required|not assignable
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(dense_matrix<float>& w) { w(0, 0) = 3; }
