// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <optional>
#include <string>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <sys/stat.h>
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

TEST_CASE("folder lock: what lies in the place of its file is refused and stays as it is") {
  const scratch_folder scratch;
  const std::string place = scratch / "run/.lock", mine = scratch / "precious.txt";
  std::filesystem::create_directories(scratch / "run");
  put(mine, "precious");
  const auto refusal = [&] {
    return error_of<io_error>([&] { const folder_lock refused(scratch / "run"); });
  };
  const auto refused_as = [&](char const* what) {
    return "[lock " + place + "] there is " + what + "; it stays: move it away";
  };
  std::filesystem::create_symlink("../precious.txt", place);
  CHECK(refusal() == refused_as("a link"));
  std::filesystem::remove(place);
  std::filesystem::create_symlink("../none", place);
  CHECK(refusal() == refused_as("a link"));
  CHECK_FALSE(std::filesystem::exists(scratch / "none"));
  std::filesystem::remove(place);
  std::filesystem::create_hard_link(mine, place);
  CHECK(refusal() == refused_as("a file with other names"));
  std::filesystem::remove(place);
  put(place, "precious");
  CHECK(refusal() == refused_as("a file that holds other things than the number of a process"));
  CHECK(io::read_file(place) == "precious");
  std::filesystem::remove(place);
  REQUIRE(::mkfifo(place.c_str(), 0666) == 0);
  CHECK(refusal() == refused_as("a pipe"));
  std::filesystem::remove(place);
  std::filesystem::create_directory(place);
  CHECK(refusal() == "[lock " + place + "] Is a directory");
  CHECK(io::read_file(mine) == "precious");
}

TEST_CASE("folder lock: a folder that is moved or removed is noticed") {
  namespace fs = std::filesystem;
  const scratch_folder scratch;
  const std::string run = scratch / "run", start = "[write " + run + "] the folder was ",
                    end = " while this process wrote to it; nothing more is written";
  fs::create_directories(run);
  const folder_lock lock(run);
  const auto refusal = [&] { return error_of<io_error>([&] { lock.require_in_place(); }); };
  CHECK(refusal() == "");
  lock.keep_in_place([&] { io::write_atomically(run + "/a", "whole"); });
  CHECK(error_of<io_error>([&] {
          lock.keep_in_place([&] {  // the error tells of the move, not of the failure that it caused
            fs::rename(run, scratch / "moved");
            io::write_atomically(run + "/a", "whole");
          });
        }).starts_with(start));
  CHECK(refusal() == start + "moved to " + fs::canonical(scratch / "moved").string() + end);
  fs::create_directories(run);  // another one of the name
  CHECK(refusal() != "");
  fs::remove(run);
  fs::rename(scratch / "moved", run);
  CHECK(refusal() == "");
  fs::remove_all(run);
  CHECK(refusal() == start + "removed or moved" + end);
}

TEST_CASE("folder lock: a folder that is not there is an error") {
  const scratch_folder scratch;
  CHECK(error_of<io_error>([&] { const folder_lock none(scratch / "none"); }) ==
        "[lock " + scratch / "none" + "/.lock] No such file or directory");
}

}  // namespace folder_lock_test
