// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <filesystem>
#include <string>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/exec/available_memory.hpp>

namespace available_memory_test {

using namespace tessera::exec;

TEST_CASE("available_memory: there is some") { CHECK(available_memory() > 1000); }

TEST_CASE("available_memory: a line of a file is found by its word") {
  const scratch_folder folder;
  put(folder / "meminfo", "MemTotal:  100 kB\nMemFree: 20 kB\nMemAvailable:   12345 kB\n");
  CHECK(detail::number_behind(folder / "meminfo", "MemAvailable:", 7) == 12345);
  CHECK(detail::number_behind(folder / "meminfo", "SwapFree:", 7) == 7);
  CHECK(detail::number_behind(folder / "nowhere", "MemAvailable:", 7) == 7);
}

TEST_CASE("available_memory: a control group has its limit, less what it uses beside pages of files") {
  const scratch_folder folder;
  const std::string group = folder / ".";
  CHECK(detail::memory_left(group) == detail::unknown_memory);
  put(folder / "memory.max", "max\n");
  put(folder / "memory.current", "700\n");
  CHECK(detail::memory_left(group) == detail::unknown_memory);
  put(folder / "memory.max", "1000\n");
  CHECK(detail::memory_left(group) == 300);
  put(folder / "memory.stat", "anon 600\nfile 100\ninactive_file 60\nactive_file 20\n");
  CHECK(detail::memory_left(group) == 380);
  put(folder / "memory.max", "500\n");
  CHECK(detail::memory_left(group) == 0);
}

TEST_CASE("available_memory: the tightest of the groups around a process counts") {
  const scratch_folder folder;
  std::filesystem::create_directories(folder / "a/b");
  put(folder / "a/memory.max", "1000\n");
  put(folder / "a/b/memory.max", "2000\n");
  const std::string root = folder / "";
  CHECK(detail::memory_left_up_to(root.substr(0, root.size() - 1), "/a/b") == 1000);
  CHECK(detail::memory_left_up_to(root.substr(0, root.size() - 1), "/") == detail::unknown_memory);
}

}  // namespace available_memory_test
