// expect one error: of which blocks. Write block_sparse_matrix<float, block_shape<16>>
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f() { block_sparse_matrix<float> w(64, 32); }
