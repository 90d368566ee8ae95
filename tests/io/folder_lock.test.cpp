// SPDX-License-Identifier: BSD-3-Clause
#include <optional>
#include <string>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/io/folder_lock.hpp>

namespace folder_lock_test {

using namespace tessera;
using io::folder_lock;

TEST_CASE("folder lock: a second one is refused with the process of the first, until the first ends") {
  const scratch_folder scratch;
  const std::string folder = scratch / ".";
  std::optional<folder_lock> first(folder);
  CHECK(error_of<io_error>([&] { const folder_lock second(folder); }) ==
        message("[lock ", folder, "] process ", ::getpid(),
                " writes to this folder; wait for its end, or stop it"));
  first.reset();
  CHECK_NOTHROW(folder_lock{folder});
}

TEST_CASE("folder lock: a process that was killed leaves none") {
  const scratch_folder scratch;
  const std::string folder = scratch / ".";
  const pid_t child = ::fork();
  if (child == 0) {
    const folder_lock killed(folder);
    ::_exit(1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK_NOTHROW(folder_lock{folder});
}

TEST_CASE("folder lock: a folder that is not there is an error") {
  const scratch_folder scratch;
  CHECK(error_of<io_error>([&] { const folder_lock none(scratch / "none"); }) ==
        "[lock " + scratch / "none" + "/.lock] No such file or directory");
}

}  // namespace folder_lock_test
