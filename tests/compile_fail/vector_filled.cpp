// expect one error: say std::fill\(x.begin\(\), x.end\(\), number\)
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(feature_vector<float>& x) { x.fill(1.0f); }
