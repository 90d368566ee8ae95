// SPDX-License-Identifier: BSD-3-Clause
#ifndef __clang__
#pragma GCC optimize("associative-math", "no-signed-zeros", "no-trapping-math")
#endif
#include <cstdio>

#include <tessera/exec/context.hpp>

int main() {
  try {
    tessera::context ctx(1);
  } catch (tessera::option_error const& refused) {
    std::puts(refused.what());
  }
}
