// SPDX-License-Identifier: BSD-3-Clause
#include <climits>
#include <filesystem>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <unistd.h>

#include <tessera/exec/available_threads.hpp>

namespace available_threads_test {

using namespace tessera::exec;

/// A folder tree as control groups have it, removed at the end.
struct control_groups {
  std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("tessera-groups-" + std::to_string(getpid()));
  ~control_groups() { std::filesystem::remove_all(root); }
  void put(std::string const& file, std::string const& text) const {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  }
};

std::string group_of(std::string const& line) {
  char const* const path = detail::group_path(line.c_str());
  return path ? path : "none";
}

TEST_CASE("available_threads: at least one and no more than there are cores") {
  CHECK(available_threads() >= 1);
  CHECK(available_threads() <= detail::affinity_cores());
}

TEST_CASE("available_threads: the group is that of version 2 or that of the cpu controller") {
  CHECK(group_of("0::/user.slice/app") == "/user.slice/app");
  CHECK(group_of("0::/") == "/");
  CHECK(group_of("4:cpu,cpuacct:/docker/a:b") == "/docker/a:b");
  CHECK(group_of("4:cpuacct,cpu:/docker") == "/docker");
  CHECK(group_of("4:cpuacct,cpuset:/docker") == "none");
  CHECK(group_of("1:name=systemd:/") == "none");
  CHECK(group_of("nonsense") == "none");
  CHECK(group_of("") == "none");
}

TEST_CASE("available_threads: a quota is whole cores and at least one") {
  const control_groups groups;
  const auto cores = [&](std::string const& text) {
    groups.put("cpu.max", text);
    return detail::quota_cores(groups.root.string());
  };
  CHECK(cores("200000 100000\n") == 2);
  CHECK(cores("399999 100000\n") == 3);
  CHECK(cores("50000 100000\n") == 1);
  CHECK(cores("max 100000\n") == INT_MAX);
  CHECK(cores("") == INT_MAX);
  CHECK(cores("0 0\n") == INT_MAX);
  CHECK(detail::quota_cores("/nowhere") == INT_MAX);
}

TEST_CASE("available_threads: version 1 has quota and period in two files") {
  const control_groups groups;
  groups.put("cpu.cfs_quota_us", "300000\n");
  CHECK(detail::quota_cores(groups.root.string()) == INT_MAX);
  groups.put("cpu.cfs_period_us", "100000\n");
  CHECK(detail::quota_cores(groups.root.string()) == 3);
  groups.put("cpu.cfs_quota_us", "-1\n");
  CHECK(detail::quota_cores(groups.root.string()) == INT_MAX);
}

TEST_CASE("available_threads: the tightest quota on the way up counts") {
  const control_groups groups;
  const std::string root = groups.root.string();
  groups.put("a/b/cpu.max", "800000 100000\n");
  groups.put("a/cpu.max", "400000 100000\n");
  CHECK(detail::quota_cores_up_to(root, "/a/b") == 4);
  CHECK(detail::quota_cores_up_to(root, "/a") == 4);
  CHECK(detail::quota_cores_up_to(root, "/") == INT_MAX);
  groups.put("cpu.max", "300000 100000\n");
  CHECK(detail::quota_cores_up_to(root, "/a/b") == 3);
  groups.put("a/b/cpu.max", "100000 100000\n");
  CHECK(detail::quota_cores_up_to(root, "/a/b") == 1);
}

}  // namespace available_threads_test
