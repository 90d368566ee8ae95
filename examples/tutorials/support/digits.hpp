// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/core/random.hpp>

// Handwritten digits for the tutorials: MNIST from $TESSERA_DATA/mnist (or data/mnist), unpacked by gzip, or
// without it made-up ones that are almost as good to learn from.

namespace digits {

inline constexpr int pixels = 28 * 28;

struct images {
  std::vector<std::uint8_t> pixel;  // image after image
  std::vector<std::int32_t> label;  // 0 … 9
  std::string failure;              // why there are none
  std::int64_t count() const { return static_cast<std::int64_t>(label.size()); }
};

/// The bytes of $TESSERA_DATA/mnist/`file`.gz behind its header; `failure` becomes why there are none.
inline std::vector<std::uint8_t> unpacked(std::string const& file, int header, std::string& failure) {
  char const* folder = std::getenv("TESSERA_DATA");
  const std::string path = std::string(folder ? folder : "data") + "/mnist/" + file + ".gz";
  std::FILE* const there = std::fopen(path.c_str(), "rb");
  if (!there) {
    failure = path + ": " + std::strerror(errno) + (folder ? "" : " (TESSERA_DATA is not set)");
    return {};
  }
  std::fclose(there);
  std::string quoted;
  for (const char c : path) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  std::vector<std::uint8_t> bytes;
  bool complete = false;
  if (std::FILE* pipe = popen(("gzip -dc <'" + quoted + "'").c_str(), "r")) {
    std::uint8_t piece[1 << 16];
    while (const std::size_t n = std::fread(piece, 1, sizeof piece, pipe))
      bytes.insert(bytes.end(), piece, piece + n);
    complete = pclose(pipe) == 0;
  }
  if (!complete || std::ssize(bytes) <= header) {
    failure = path + (complete ? ": it is too short" : ": gzip could not unpack it");
    return {};
  }
  return {bytes.begin() + header, bytes.end()};
}

/// MNIST's `train` or `t10k`; nothing but a failure if it cannot be read.
inline images mnist(std::string const& part) {
  images all, none;
  all.pixel = unpacked(part + "-images-idx3-ubyte", 16, none.failure);
  if (!none.failure.empty()) return none;
  const auto labels = unpacked(part + "-labels-idx1-ubyte", 8, none.failure);
  if (!none.failure.empty()) return none;
  all.label.assign(labels.begin(), labels.end());
  if (all.pixel.size() == all.label.size() * pixels) return all;
  none.failure = part + ": there are not as many images as labels";
  return none;
}

/// Digits as a seven-segment display shows them, thick or thin, shifted and noisy.
inline images made_up(std::int64_t count, std::uint64_t seed) {
  // Segments a … g of each digit, bit by bit.
  static constexpr int lit[10] = {0x3f, 0x06, 0x5b, 0x4f, 0x66, 0x6d, 0x7d, 0x07, 0x7f, 0x6f};
  struct segment {
    int row, col, rows, cols;
  };
  static constexpr segment place[7] = {{4, 9, 1, 10},  {4, 18, 10, 1}, {14, 18, 10, 1}, {23, 9, 1, 10},
                                       {14, 9, 10, 1}, {4, 9, 10, 1},  {14, 9, 1, 10}};
  const tessera::random_stream random(seed, tessera::random_purpose::test);
  images all;
  all.pixel.resize(static_cast<std::size_t>(count) * pixels);
  std::uint64_t n = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto digit = static_cast<std::int32_t>(random.below(n++, 10));
    const int down = static_cast<int>(random.below(n++, 7)) - 3,
              right = static_cast<int>(random.below(n++, 7)) - 3;
    const int thick = 1 + static_cast<int>(random.below(n++, 3));
    all.label.push_back(digit);
    std::uint8_t* const image = all.pixel.data() + i * pixels;
    for (int s = 0; s < 7; ++s)
      if (lit[digit] >> s & 1)
        for (int r = place[s].row; r < place[s].row + place[s].rows + thick; ++r)
          for (int c = place[s].col; c < place[s].col + place[s].cols + thick; ++c)
            if (r + down >= 0 && r + down < 28 && c + right >= 0 && c + right < 28)
              image[(r + down) * 28 + c + right] = 200;
    for (int p = 0; p < pixels; ++p)
      image[p] = static_cast<std::uint8_t>(image[p] + random.below(n++, image[p] > 0 ? 56 : 80));
  }
  return all;
}

}  // namespace digits
