// expect one error: make it of a span
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(float* data, feature_vector<float>& b) { copy(row_major(data, 1, 8), b); }
