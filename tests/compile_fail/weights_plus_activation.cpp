// expect one error: a matrix and an activation cannot be combined element by element
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

auto f(block_sparse_matrix<float, block_shape<16>> const& w, panel_matrix<float> const& x) { return w + x; }
