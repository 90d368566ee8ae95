// expect: write -fno-finite-math-only
// flags: -ffast-math
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>
