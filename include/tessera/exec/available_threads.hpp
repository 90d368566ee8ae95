// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>
#ifdef __linux__
#include <sched.h>
#endif

#include <tessera/core/config.hpp>

namespace tessera::inline TESSERA_ISA::exec {

namespace detail {

/// Takes the text up to the separator, or all of it if there is none, off the front of `rest`.
TESSERA_COLD inline std::string_view split_off(std::string_view& rest, char separator) {
  const std::string_view first = rest.substr(0, rest.find(separator));
  rest.remove_prefix(std::min(rest.size(), first.size() + 1));
  return first;
}

TESSERA_COLD inline bool lists(std::string_view comma_separated, std::string_view word) {
  while (!comma_separated.empty())
    if (split_off(comma_separated, ',') == word) return true;
  return false;
}

/// Whole cores in a CPU quota, at least 1; nothing if there is no limit ("max" in version 2 of control
/// groups, "-1" in version 1). Rounded down: the quota would stop one thread too many in the middle of a run,
/// and all others would wait for it.
TESSERA_COLD inline std::optional<int> quota_cores(std::string_view quota, std::string_view period) {
  long long quota_us = 0, period_us = 0;
  std::from_chars(quota.data(), quota.data() + quota.size(), quota_us);
  std::from_chars(period.data(), period.data() + period.size(), period_us);
  if (quota_us <= 0 || period_us <= 0) return std::nullopt;
  return static_cast<int>(std::clamp(quota_us / period_us, 1LL, 1LL << 20));
}

/// The control group of this process: version 2, or the one of version 1 with the cpu controller.
///   groups   text of /proc/self/cgroup: lines of "number:controllers:path"
TESSERA_COLD inline std::string_view group_path(std::string_view groups, bool version_2) {
  while (!groups.empty()) {
    std::string_view line = split_off(groups, '\n');
    split_off(line, ':');
    const std::string_view controllers = split_off(line, ':');
    if (version_2 ? controllers.empty() : lists(controllers, "cpu")) return line;
  }
  return "/";
}

/// Folders that may hold a CPU quota of this process: its own control group and all above it, as far as
/// they are mounted here.
///   groups   text of /proc/self/cgroup
///   mounts   text of /proc/self/mountinfo: lines of "id parent device root folder options … - type source
///            options", see proc(5)
TESSERA_COLD inline std::vector<std::string> quota_folders(std::string_view groups, std::string_view mounts) {
  std::vector<std::string> folders;
  while (!mounts.empty()) {
    std::string_view line = split_off(mounts, '\n');
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    std::string_view file_system = line.substr(dash + 3);
    for (int skipped = 0; skipped < 3; ++skipped) split_off(line, ' ');
    const std::string_view root = split_off(line, ' '), mount = split_off(line, ' ');
    const std::string_view type = split_off(file_system, ' ');
    split_off(file_system, ' ');
    if (type != "cgroup2" && !(type == "cgroup" && lists(file_system, "cpu"))) continue;

    std::string_view path = group_path(groups, type == "cgroup2");
    if (root != "/") path = path.starts_with(root) ? path.substr(root.size()) : "";
    std::string folder(mount);
    folder += path;
    while (folder.ends_with('/')) folder.pop_back();
    for (; folder.size() > mount.size(); folder.resize(folder.rfind('/'))) folders.push_back(folder);
    folders.emplace_back(mount);
  }
  return folders;
}

/// The content of a small file; empty if there is none.
TESSERA_COLD inline std::string text_of(std::string const& path) {
  std::string text;
  if (std::FILE* file = std::fopen(path.c_str(), "r")) {
    char piece[4096];
    while (const std::size_t size = std::fread(piece, 1, sizeof piece, file)) text.append(piece, size);
    std::fclose(file);
  }
  return text;
}

TESSERA_COLD inline int affinity_cores() {
#ifdef __linux__
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace detail

/// The threads this process can keep running at once: the cores it may use, within the CPU quota of its
/// control groups (containers). At least 1.
TESSERA_COLD inline int available_threads() {
  int threads = detail::affinity_cores();
  for (std::string const& folder :
       detail::quota_folders(detail::text_of("/proc/self/cgroup"), detail::text_of("/proc/self/mountinfo"))) {
    const std::string quota_and_period = detail::text_of(folder + "/cpu.max");
    std::string_view period = quota_and_period;
    const std::string_view quota = detail::split_off(period, ' ');
    const auto version_2 = detail::quota_cores(quota, period);
    const auto version_1 = detail::quota_cores(detail::text_of(folder + "/cpu.cfs_quota_us"),
                                               detail::text_of(folder + "/cpu.cfs_period_us"));
    threads = std::min({threads, version_2.value_or(threads), version_1.value_or(threads)});
  }
  return std::max(threads, 1);
}

}  // namespace tessera::inline TESSERA_ISA::exec
