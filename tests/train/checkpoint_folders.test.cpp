// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/train/checkpoint_folders.hpp>

namespace checkpoint_folders_test {

using namespace tessera::train;
using steps = std::vector<std::int64_t>;

TEST_CASE("checkpoint folders: they are named after the step and listed in order") {
  const scratch_folder scratch;
  const std::string run = scratch / "run";
  CHECK(checkpoint_steps(run).empty());
  for (const int step : {2000, 5, 100}) std::filesystem::create_directories(checkpoint_folder(run, step));
  for (const char* other : {"step-5", "step-00000007.partial", "step-0000000x", "notes"})
    std::filesystem::create_directories(run + "/" + other);
  CHECK(checkpoint_folder("r", 5) == "r/step-00000005");
  CHECK(checkpoint_folder("r", 1234567890) == "r/step-1234567890");
  CHECK(checkpoint_steps(run) == steps{5, 100, 2000});
}

TEST_CASE(
    "checkpoint folders: one that cannot be read is an error, one that is not there has no checkpoints") {
  namespace fs = std::filesystem;
  const scratch_folder scratch;
  CHECK(checkpoint_steps(scratch / "nowhere").empty());
  CHECK(checkpoint_steps(scratch / "nowhere/deeper").empty());
  put(scratch / "file", "no folder");
  fs::create_symlink(scratch / "loop", scratch / "loop");
  fs::create_symlink(scratch / "gone", scratch / "dangling");
  const auto refusal = [](std::string const& run) {
    return error_of<tessera::io_error>([&] { checkpoint_steps(run); });
  };
  CHECK(refusal(scratch / "file") == "[read " + scratch / "file" + "] Not a directory");
  CHECK(refusal(scratch / "file/run") == "[read " + scratch / "file/run" + "] Not a directory");
  CHECK(refusal(scratch / "loop").starts_with("[read " + scratch / "loop" + "] Too many levels"));
  CHECK(checkpoint_steps(scratch / "dangling").empty());
  CHECK_THROWS_AS(keep_checkpoints(scratch / "file", 1, -1), tessera::io_error);
}

TEST_CASE("checkpoint folders: the last ones and the best are kept") {
  const scratch_folder scratch;
  const std::string run = scratch / "run";
  std::filesystem::create_directories(run + "/notes");
  for (int step = 1; step <= 6; ++step) {
    std::filesystem::create_directories(checkpoint_folder(run, step) + "/deep");
    keep_checkpoints(run, 2, step < 3 ? 1 : 3);
  }
  CHECK(checkpoint_steps(run) == steps{3, 5, 6});
  keep_checkpoints(run, 2, -1);
  CHECK(checkpoint_steps(run) == steps{5, 6});
  keep_checkpoints(run, 10, -1);
  CHECK(checkpoint_steps(run) == steps{5, 6});
  CHECK_THROWS_AS(keep_checkpoints(run, -1, -1), tessera::option_error);
  CHECK(checkpoint_steps(run) == steps{5, 6});
  CHECK(std::filesystem::exists(run + "/notes"));
}

}  // namespace checkpoint_folders_test
