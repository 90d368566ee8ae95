// expect: compile without -ffast-math, -Ofast and their parts
// flags: -ffast-math
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>
