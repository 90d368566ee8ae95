// expect one error: print elements
// SPDX-License-Identifier: BSD-3-Clause
#include <iostream>

#include <tessera/tessera.hpp>

using namespace tessera;

void f(dense_matrix<float> const& w) { std::cout << w; }
