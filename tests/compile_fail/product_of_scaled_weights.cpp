// expect one error: W is an expression, not a stored matrix
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

auto f(dense_matrix<float> const& w, panel_matrix<float> const& x) { return 2 * w * x; }
