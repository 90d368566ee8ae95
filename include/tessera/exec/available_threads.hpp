// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#ifdef __linux__
#include <sched.h>
#endif

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

namespace detail {

/// Reads the numbers at the beginning of a small file; returns how many there are ("max" is none).
int read_numbers(std::string const& path, long long (&numbers)[2]);

/// Whole cores that the CPU quota in a control group's folder allows, at least 1; INT_MAX if it has none.
/// Rounded down: the quota would stop one thread too many in the middle of a run, and all others would wait.
int quota_cores(std::string const& folder);

/// The tightest quota of the control group at root + path and of all above it.
int quota_cores_up_to(std::string const& root, std::string path);

/// The path in a line "number:controllers:path" of /proc/self/cgroup, if the group is one of version 2 (no
/// controllers) or, of version 1, that with the cpu controller; else null.
char const* group_path(char const* line);

int affinity_cores();

}  // namespace detail

/// The threads this process can keep running at once: the cores it may use, within the CPU quota of its
/// control groups (containers) where these are mounted as usual. At least 1.
int available_threads();

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY int read_numbers(std::string const& path, long long (&numbers)[2]) {
  std::FILE* const file = std::fopen(path.c_str(), "r");
  if (!file) return 0;
  const int found = std::fscanf(file, "%lld %lld", numbers, numbers + 1);
  std::fclose(file);
  return found;
}

TESSERA_COLD TESSERA_BODY int quota_cores(std::string const& folder) {
  long long quota[2] = {}, period[2] = {};
  if (read_numbers(message(folder, "/cpu.max"), quota) == 2)  // version 2
    period[0] = quota[1];
  else if (read_numbers(message(folder, "/cpu.cfs_quota_us"), quota) < 1 ||  // version 1
           read_numbers(message(folder, "/cpu.cfs_period_us"), period) < 1)
    return INT_MAX;
  if (quota[0] <= 0 || period[0] <= 0) return INT_MAX;
  return static_cast<int>(std::clamp(quota[0] / period[0], 1LL, 1LL << 20));
}

TESSERA_COLD TESSERA_BODY int quota_cores_up_to(std::string const& root, std::string path) {
  int cores = quota_cores(root);
  for (; path.size() > 1; path.erase(path.rfind('/')))
    cores = std::min(cores, quota_cores(message(root, path)));
  return cores;
}

TESSERA_COLD TESSERA_BODY char const* group_path(char const* line) {
  char const* const controllers = std::strchr(line, ':');
  char const* const path = controllers ? std::strchr(controllers + 1, ':') : nullptr;
  if (!path) return nullptr;
  for (char const* word = controllers; word < path; word = std::strpbrk(word + 1, ",:"))
    if (path == controllers + 1 || std::strncmp(word + 1, "cpu,", 4) == 0 ||
        std::strncmp(word + 1, "cpu:", 4) == 0)
      return path + 1;
  return nullptr;
}

TESSERA_COLD TESSERA_BODY int affinity_cores() {
#ifdef __linux__
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY int available_threads() {
  int threads = detail::affinity_cores();
  if (std::FILE* const groups = std::fopen("/proc/self/cgroup", "r")) {
    char line[4096];
    while (std::fgets(line, sizeof line, groups)) {
      line[std::strcspn(line, "\n")] = '\0';
      if (char const* const path = detail::group_path(line))
        for (char const* const root : {"/sys/fs/cgroup", "/sys/fs/cgroup/cpu"})
          threads = std::min(threads, detail::quota_cores_up_to(root, path));
    }
    std::fclose(groups);
  }
  return std::max(threads, 1);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::exec
