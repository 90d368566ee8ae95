// SPDX-License-Identifier: BSD-3-Clause
// Compiled as a plug-in that keeps a context, with -D PLUGIN, and as a program that unloads it.
#ifdef PLUGIN
#include <tessera/exec/context.hpp>

namespace {
tessera::context ctx(2);
}

extern "C" int tasks_done() {
  int done[2] = {};
  ctx.run(2, [&](int task, std::byte*) { done[task] = 1; });
  return done[0] + done[1];
}
#else
#include <iostream>  // a program that has no use for the C++ library gets it from the plug-in, and keeps both

#include <dlfcn.h>

int main(int, char** files) {
  void* const plugin = dlopen(files[1], RTLD_NOW);
  if (!plugin) return std::cerr << dlerror() << "\n", 1;
  const int done = reinterpret_cast<int (*)()>(dlsym(plugin, "tasks_done"))();
  dlclose(plugin);
  const bool stays = dlopen(files[1], RTLD_NOW | RTLD_NOLOAD) != nullptr;
  std::cout << done << " tasks were computed, and the plug-in is " << (stays ? "still there\n" : "gone\n");
  return done == 2 && !stays ? 0 : 1;
}
#endif
