// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <examples/shell.hpp>
#include <fcntl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <tessera/io/safetensors.hpp>

#include "../io/scratch_folder.hpp"

// The built programs, run as a user runs them.
#if defined(PRETRAIN) && defined(GENERATE) && defined(FILL_MASK) && defined(FREEZE) && defined(FINETUNE)

namespace pretrain_programs {

namespace fs = std::filesystem;

inline bool contains(outcome const& result, std::string const& part) {
  const bool found = result.output.find(part) != std::string::npos;
  if (!found) MESSAGE(result.output);
  return found;
}

inline std::string contents(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The bytes of a tensor row by row: weights for use have dense matrices as (block rows, block columns, rows
/// of a block, columns of a block). Rows that overhang stay at the end.
inline std::vector<std::byte> in_rows(tessera::io::safetensor const& tensor) {
  if (tensor.shape.size() != 4) return {tensor.bytes.begin(), tensor.bytes.end()};
  const auto size = [&](std::size_t i) { return std::size_t(tensor.shape[i]); };
  const std::size_t width = size(3) * tensor.bytes.size() / (size(0) * size(1) * size(2) * size(3));
  std::vector<std::byte> all;
  for (std::size_t row = 0; row < size(0) * size(2); ++row)
    for (std::size_t column = 0; column < size(1); ++column) {
      const std::size_t at = ((row / size(2) * size(1) + column) * size(2) + row % size(2)) * width;
      all.insert(all.end(), tensor.bytes.begin() + std::ptrdiff_t(at),
                 tensor.bytes.begin() + std::ptrdiff_t(at + width));
    }
  return all;
}

/// A folder with a text to learn and runs of a small model on it.
class workplace {
 public:
  explicit workplace(std::string const& word = "square") {
    std::string text;
    for (int i = 0; i < 500; ++i)
      text += "of " + std::to_string(i) + " the " + word + " is " + std::to_string(i * i) + ".\n";
    put(folder / "text", text);
  }

  std::string in(std::string const& name) const { return folder / name; }

  /// The command that trains a small model, in the run of that name.
  std::string pretrain(std::string const& run, std::string const& more = "") const {
    return PRETRAIN " --text " + in("text") + " --out " + in("runs") + " --name " + run +
           " --layers 2 --hidden 32 --heads 2 --context 16 --batch 4 --steps 60 --updates 59 --density 0.25"
           " --quiet " +
           more;
  }
  std::string resume(std::string const& run, std::string const& more = "") const {
    return PRETRAIN " --resume " + in("runs/" + run) + " " + more;
  }
  std::string generate(std::string const& of, std::string const& more = "") const {
    return GENERATE " --checkpoint " + in("runs/" + of) + " --tokens 40 " + more;
  }
  /// All that lies in a run.
  std::set<std::string> files(std::string const& run) const {
    std::set<std::string> all;
    for (auto const& entry : fs::recursive_directory_iterator(in("runs/" + run)))
      all.insert(entry.path().lexically_relative(in("runs/" + run)).string());
    return all;
  }

 private:
  scratch_folder folder;
};

/// Runs `command`, and sends it a signal once there is a file that matches `awaited`. The output ends with
/// the exit code.
inline outcome terminate(std::string const& command, std::string const& awaited,
                         std::string const& signal = "TERM") {
  return shell(command + " & pid=$!; until ls " + awaited +
               " >/dev/null 2>&1 || ! kill -0 $pid; do sleep 0.005; done; kill -" + signal +
               " $pid; wait $pid");
}

/// What a command writes to a terminal, in a few lines.
inline std::string shown_in_terminal(std::string const& command) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  REQUIRE(terminal >= 0);
  REQUIRE(grantpt(terminal) == 0);
  REQUIRE(unlockpt(terminal) == 0);
  const std::string name = ptsname(terminal);
  const int kept = open(name.c_str(), O_RDWR | O_NOCTTY);  // so that output stays readable
  termios raw{};
  REQUIRE(tcgetattr(kept, &raw) == 0);
  cfmakeraw(&raw);
  REQUIRE(tcsetattr(kept, TCSANOW, &raw) == 0);
  CHECK(shell(command + " >" + name).code == 0);
  std::string shown;
  for (char part[4096];;) {
    const ssize_t size = read(terminal, part, sizeof part);
    if (size <= 0) break;
    shown.append(part, std::size_t(size));
  }
  close(kept), close(terminal);
  return shown;
}

/// Runs a command where a folder is a small file system of its own, after `before` full; null if the system
/// mounts none for tests.
inline std::optional<outcome> with_full_disk(std::string const& folder, std::string const& before,
                                             std::string const& command) {
  const std::string mount =
      "mkdir -p " + folder + " && unshare -rm sh -c 'mount -t tmpfs -o size=20m none " + folder + " && ";
  if (shell(mount + "true'").code != 0) {
    MESSAGE("skipped: no file system can be mounted here");
    return {};
  }
  return shell(mount + before + " && { cat /dev/zero >" + folder + "/full 2>/dev/null; " + command + "; }'");
}

/// Whether two checkpoints hold the same bits; their metadata may differ, since they say how long it took.
inline bool same_tensors(std::string const& a, std::string const& b) {
  const tessera::io::safetensors_file x(a + "/tensors.safetensors"), y(b + "/tensors.safetensors");
  if (x.tensors().size() != y.tensors().size()) return false;
  for (auto const& [name, tensor] : x.tensors()) {
    auto const& other = y.at(name);
    if (tensor.dtype != other.dtype || tensor.shape != other.shape ||
        !std::equal(tensor.bytes.begin(), tensor.bytes.end(), other.bytes.begin(), other.bytes.end()))
      return false;
  }
  return !x.tensors().empty();
}

}  // namespace pretrain_programs

#endif
