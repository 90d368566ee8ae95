// expect one error: rounding must be said: float16\(x\)
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f() {
  float16 h = 1.5f;
  static_cast<void>(h);
}
