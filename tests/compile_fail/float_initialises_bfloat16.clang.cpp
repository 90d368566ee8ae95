// expect one error: rounding must be said: bfloat16\(x\)
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f() {
  bfloat16 b = 1.5f;
  static_cast<void>(b);
}
