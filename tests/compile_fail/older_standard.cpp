// expect: tessera needs C
// flags: -std=c++17
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>
