// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/available_threads.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

namespace detail {

inline constexpr std::uint64_t unknown_memory = std::numeric_limits<std::uint64_t>::max();

/// The number in the line of a file that begins with a word, as of /proc/meminfo; `otherwise` if none does.
std::uint64_t number_behind(std::string const& path, char const* word, std::uint64_t otherwise);

/// Bytes left of the limit in a control group's folder, of version 2, and its pages of files, which the
/// system takes back; unknown_memory without a limit.
std::uint64_t memory_left(std::string const& folder);

/// The least of the control group at root + path and of all above it.
std::uint64_t memory_left_up_to(std::string const& root, std::string path);

}  // namespace detail

/// Bytes that this process may still take, by the estimate of the system (MemAvailable of Linux) and by the
/// limits of its control groups (containers; version 2) where these are mounted as usual. The greatest number
/// where nothing is known. Other processes may take them first.
std::uint64_t available_memory();

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY std::uint64_t number_behind(std::string const& path, char const* word,
                                                      std::uint64_t otherwise) {
  std::uint64_t found = otherwise;
  if (std::FILE* const file = std::fopen(path.c_str(), "r")) {
    char line[256];
    const std::size_t length = std::strlen(word);
    unsigned long long number = 0;
    while (std::fgets(line, sizeof line, file))
      if (std::strncmp(line, word, length) == 0 && std::sscanf(line + length, " %llu", &number) == 1) {
        found = number;
        break;
      }
    std::fclose(file);
  }
  return found;
}

TESSERA_COLD TESSERA_BODY std::uint64_t memory_left(std::string const& folder) {
  const std::uint64_t most = number_behind(folder + "/memory.max", "", unknown_memory),
                      used = number_behind(folder + "/memory.current", "", 0);
  if (most == unknown_memory) return most;
  const std::string stat = folder + "/memory.stat";
  const std::uint64_t of_files =
      number_behind(stat, "inactive_file ", 0) + number_behind(stat, "active_file ", 0);
  return most - std::min(most, used - std::min(used, of_files));
}

TESSERA_COLD TESSERA_BODY std::uint64_t memory_left_up_to(std::string const& root, std::string path) {
  std::uint64_t left = memory_left(root);
  for (; path.size() > 1; path.erase(path.rfind('/'))) left = std::min(left, memory_left(root + path));
  return left;
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY std::uint64_t available_memory() {
  const std::uint64_t kibibytes =
      detail::number_behind("/proc/meminfo", "MemAvailable:", detail::unknown_memory / 1024);
  std::uint64_t left = kibibytes == detail::unknown_memory / 1024 ? detail::unknown_memory : kibibytes * 1024;
  if (std::FILE* const groups = std::fopen("/proc/self/cgroup", "r")) {
    char line[4096];
    while (std::fgets(line, sizeof line, groups)) {
      line[std::strcspn(line, "\n")] = '\0';
      if (std::strncmp(line, "0::/", 4) == 0)
        left = std::min(left, detail::memory_left_up_to("/sys/fs/cgroup", line + 3));
    }
    std::fclose(groups);
  }
  return left;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::exec
