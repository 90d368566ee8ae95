// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>

#include <tessera/exec/context.hpp>

// Compiled for AVX2 and run on emulated CPUs without it: every context must say so, and no instruction may be
// illegal before.

using namespace tessera;

template <class Make> bool refused(Make make) {
  try {
    make();
  } catch (machine_error const& e) {
    std::puts(e.what());
    return true;
  }
  return false;
}

int main() {
  const bool all_refused = refused([] { context ctx; }) && refused([] { context ctx(1); }) && refused([] {
                             exec::serial executor;
                             context ctx(executor);
                           });
  return all_refused ? 0 : 1;
}
