// SPDX-License-Identifier: BSD-3-Clause

#include <cstdio>
#include <exception>
#include <string>

#include <harness/machine.hpp>
#include <unistd.h>

#include <tessera/eval/engines.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/simd/build_info.hpp>
#include <tessera/simd/int8.hpp>

// tessera-info: the compiler and flags of this program, the parts of this machine, and its speed just now.

namespace {

std::string cache_text(long bytes) {
  if (bytes <= 0) return "unknown";
  return bytes < 1 << 20 ? tessera::message(bytes >> 10, " KiB") : tessera::message(bytes >> 20, " MiB");
}

void print_info() {
  using namespace tessera;
  std::printf("%s", build_info().text().c_str());
  std::printf("CPU      %s, family %s, model %s, %d threads for this process\n",
              bench::cpu_info("model name").c_str(), bench::cpu_info("cpu family").c_str(),
              bench::cpu_info("model\t").c_str(), exec::available_threads());
  std::printf("caches   L1 %s, L2 %s, L3 %s\n", cache_text(sysconf(_SC_LEVEL1_DCACHE_SIZE)).c_str(),
              cache_text(sysconf(_SC_LEVEL2_CACHE_SIZE)).c_str(),
              cache_text(sysconf(_SC_LEVEL3_CACHE_SIZE)).c_str());
  const machine here = this_machine();
  std::printf("engine   %s for products of bfloat16, %s for int8 by int8\n",
              name_of(fastest_engine(here.family, here.engines,
                                     eval::engines_for<bfloat16, engine::pairs, engine::amx>())),
              name_of(fastest_engine(here.family, here.engines,
                                     eval::engines_for<int8, engine::quads, engine::amx>())));
  if (simd::has_amx && !here.engines.allows(engine::amx))
    std::printf("         AMX is compiled in, but this process may not use it\n");
  if (!build_info().missing_feature.empty()) return;
  for (const char* element : {"float", "double", "bfloat16"})
    std::printf("peak     %-8s %6.1f GFLOP/s, one thread\n", element, bench::peak_gflops(element, 1));
  for (const std::size_t kib : {16u, 512u, 8192u, 131072u})
    std::printf("reading  %6zu KiB %6.1f GB/s, one thread\n", kib, bench::read_gbytes_per_second(kib << 10));
}

}  // namespace

int main(int count, char** arguments) try {
  if (count == 1) {
    print_info();
    return 0;
  }
  const bool helps = std::string(arguments[1]) == "--help";
  std::fprintf(helps ? stdout : stderr,
               "tessera-info: prints what it was compiled with, what this machine has, and measured peaks\n");
  return helps ? 0 : 2;
} catch (std::exception const& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
