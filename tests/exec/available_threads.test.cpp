// SPDX-License-Identifier: BSD-3-Clause
#include <string>
#include <vector>

#include <doctest/doctest.h>
#ifdef __linux__
#include <sched.h>
#endif

#include <tessera/exec/available_threads.hpp>

namespace detail = tessera::exec::detail;

namespace {

using folders = std::vector<std::string>;

TEST_CASE("quota_cores: a quota is rounded down to whole cores but not below one") {
  CHECK(detail::quota_cores("200000", "100000\n") == 2);
  CHECK(detail::quota_cores("250000\n", "100000\n") == 2);
  CHECK(detail::quota_cores("50000", "100000") == 1);
  CHECK(detail::quota_cores("9223372036854775807", "1") == 1 << 20);
}

TEST_CASE("quota_cores: no quota and no file and nonsense are no limit") {
  CHECK_FALSE(detail::quota_cores("max", "100000\n"));
  CHECK_FALSE(detail::quota_cores("-1\n", "100000\n"));
  CHECK_FALSE(detail::quota_cores("", ""));
  CHECK_FALSE(detail::quota_cores("200000", "0"));
  CHECK_FALSE(detail::quota_cores("two", "cores"));
}

TEST_CASE("quota_folders: version 2 gives the group of the process and all above it") {
  CHECK(detail::quota_folders(
            "0::/user.slice/session.scope\n",
            "24 1 0:21 / /proc rw - proc proc rw\n"
            "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n") ==
        folders{"/sys/fs/cgroup/user.slice/session.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"});
}

TEST_CASE("quota_folders: version 1 gives the hierarchy of the cpu controller alone") {
  CHECK(
      detail::quota_folders("5:cpuset:/set\n4:cpu,cpuacct:/work\n3:memory:/m\n",
                            "32 31 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
                            "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n") ==
      folders{"/sys/fs/cgroup/cpu,cpuacct/work", "/sys/fs/cgroup/cpu,cpuacct"});
}

TEST_CASE("quota_folders: a container that mounts its own group sees the path below it") {
  const std::string mounts = "33 31 0:30 /docker/0a1b /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n";
  CHECK(detail::quota_folders("4:cpu:/docker/0a1b\n", mounts) == folders{"/sys/fs/cgroup/cpu"});
  CHECK(detail::quota_folders("4:cpu:/docker/0a1b/job\n", mounts) ==
        folders{"/sys/fs/cgroup/cpu/job", "/sys/fs/cgroup/cpu"});
  CHECK(detail::quota_folders("4:cpu:/elsewhere\n", mounts) == folders{"/sys/fs/cgroup/cpu"});
}

TEST_CASE("quota_folders: text of another form gives no folders") {
  CHECK(detail::quota_folders("", "").empty());
  CHECK(detail::quota_folders("0::/\n", "cgroup2\n\n - \n").empty());
}

TEST_CASE("available_threads: there is at least one") { CHECK(tessera::exec::available_threads() >= 1); }

#ifdef __linux__
TEST_CASE("available_threads: a process tied to one core has one") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  cpu_set_t first;
  CPU_ZERO(&first);
  std::size_t cpu = 0;
  while (!CPU_ISSET(cpu, &before)) ++cpu;
  CPU_SET(cpu, &first);
  REQUIRE(sched_setaffinity(0, sizeof first, &first) == 0);
  CHECK(tessera::exec::available_threads() == 1);
  CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
}
#endif

}  // namespace
