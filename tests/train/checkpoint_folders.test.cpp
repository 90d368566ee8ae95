// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/train/checkpoint_folders.hpp>

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
  CHECK(std::filesystem::exists(run + "/notes"));
}
