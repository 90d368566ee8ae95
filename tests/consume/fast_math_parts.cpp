// SPDX-License-Identifier: BSD-3-Clause
#if defined(BY_PRAGMA) && defined(__clang__)
#pragma clang fp reassociate(on)
#elif defined(BY_PRAGMA)
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
