// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
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
  std::int64_t count() const { return static_cast<std::int64_t>(label.size()); }
};

inline std::vector<std::uint8_t> unpacked(std::string const& file) {
  char const* folder = std::getenv("TESSERA_DATA");
  const std::string path = std::string(folder ? folder : "data") + "/mnist/" + file + ".gz";
  std::vector<std::uint8_t> bytes;
  if (std::FILE* there = std::fopen(path.c_str(), "rb")) {
    std::fclose(there);
    if (std::FILE* pipe = popen(("gzip -dc '" + path + "'").c_str(), "r")) {
      std::uint8_t piece[1 << 16];
      while (const std::size_t n = std::fread(piece, 1, sizeof piece, pipe))
        bytes.insert(bytes.end(), piece, piece + n);
      if (pclose(pipe) != 0) bytes.clear();
    }
  }
  return bytes;
}

/// MNIST's `train` or `t10k`; nothing if it is not there.
inline images mnist(std::string const& part) {
  const auto image_file = unpacked(part + "-images-idx3-ubyte"),
             label_file = unpacked(part + "-labels-idx1-ubyte");
  images all;
  if (image_file.size() < 16 || label_file.size() < 8) return all;
  all.pixel.assign(image_file.begin() + 16, image_file.end());
  all.label.assign(label_file.begin() + 8, label_file.end());
  if (all.pixel.size() != all.label.size() * pixels) return {};
  return all;
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
