// expect one error: a number of one byte is for storage: nn::float8_linear and nn::int8_linear
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/nn/linear.hpp>
#include <tessera/statements/quantised.hpp>

using namespace tessera;

nn::linear<float8_e4m3, block_shape<16>> layer(64, 32);
