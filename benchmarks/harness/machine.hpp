// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <ctime>
#include <fstream>
#include <string>

#include <harness/bandwidth.hpp>
#include <harness/peak.hpp>

#include <tessera/core/config.hpp>
#include <tessera/exec/available_threads.hpp>
#include <tessera/io/json.hpp>
#include <tessera/kernels/register_block.hpp>

namespace bench {

/// The value of the first line of /proc/cpuinfo with this key; "unknown" if there is none.
inline std::string cpu_info(std::string const& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key) && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "unknown";
}

inline std::string date_and_time() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

/// What the figures of a report depend on. Peaks in GFLOP/s, by element and number of threads; how fast one
/// thread reads from the caches and from memory (from arrays of this many KiB), in GB/s.
inline io::json describe_machine(int threads) {
#ifdef __clang__
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "g++ " __VERSION__;
#endif
  io::json machine;
  machine["name"] = cpu_info("model name");
  machine["family"] = cpu_info("cpu family");
  machine["model"] = cpu_info("model\t");
  machine["instruction_set"] = TESSERA_ISA_NAME;
  machine["register_block"] = kernels::register_block<float, simd::native>::name;
  machine["cores"] = exec::available_threads();
  io::json& peaks = machine["measured_peaks"];
  for (const char* element : {"float", "double", "bfloat16", "float16"})
    for (int t = 1; t <= threads; ++t)
      peaks[element][message(t, t == 1 ? " thread" : " threads")] = peak_gflops(element, t);
  io::json& reads = machine["measured_reads"];
  for (const std::size_t kib : {16u, 512u, 8192u, 262144u})
    reads[message(kib, " KiB")] = read_gbytes_per_second(kib << 10);
  machine["compiler"] = compiler;
  machine["flags"] = TESSERA_BENCH_FLAGS;
  machine["tessera"] = message(TESSERA_VERSION_MAJOR, ".", TESSERA_VERSION_MINOR, ".", TESSERA_VERSION_PATCH);
  machine["xsimd"] = message(XSIMD_VERSION_MAJOR, ".", XSIMD_VERSION_MINOR, ".", XSIMD_VERSION_PATCH);
  machine["date"] = date_and_time();
  return machine;
}

}  // namespace bench
