// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <tessera/core/config.hpp>

namespace tessera::inline TESSERA_ISA::io {

/// Finds what a disk or a cable did to bytes; no defence against those who mean to deceive.
///   A change within one word of 4 bytes, so any changed bit, is always found: each word goes into its lane
///   by the step of XXH32 (Collet), which loses neither the word nor what the lane held, and so do the lanes
///   into the result, by that of XXH64. Other changes are overlooked once in 2^32 if they are all in one
///   lane, else in 2^64. Runs at the speed of the memory where there is a multiplication of 32-bit lanes
///   (AVX2 or more).
class checksum {
 public:
  /// Bytes in which each lane has one word.
  static constexpr std::size_t stretch = 128;

  checksum() {
    for (std::uint32_t i = 0; i < words; ++i) state_.of[i / lanes][i % lanes] = (i + 1) * multiplier;
  }

  /// The bytes that follow; all pieces but the last are multiples of `stretch`.
  void add(std::span<std::byte const> bytes) {
    bytes_ += bytes.size();
    vectors now = state_;  // in registers: what bytes point to might be this
    std::size_t at = 0;
    for (; bytes.size() - at >= stretch; at += stretch) step(now, bytes.data() + at);
    if (at < bytes.size()) {
      std::byte last[stretch]{};
      std::copy(bytes.begin() + std::ptrdiff_t(at), bytes.end(), last);
      step(now, last);
    }
    state_ = now;
  }

  std::uint64_t value() const {
    std::uint64_t all = bytes_;
    for (std::uint32_t i = 0; i < words; ++i)
      all = std::rotl(all + state_.of[i / lanes][i % lanes] * 0xc2b2ae3d27d4eb4fu, 31) * 0x9e3779b185ebca87u;
    return all;
  }

 private:
  static constexpr std::uint32_t multiplier = 2654435761u, word_multiplier = 2246822519u;
  static constexpr std::uint32_t words = stretch / sizeof(std::uint32_t);
  // GCC 12 vectorises no loop over all the lanes, but these types, which are as wide as AVX2's registers.
  using vector [[gnu::vector_size(32)]] = std::uint32_t;
  static constexpr std::uint32_t lanes = sizeof(vector) / sizeof(std::uint32_t);

  struct vectors {
    vector of[words / lanes];
  };

  TESSERA_INLINE static void step(vectors& all, std::byte const* from) {
    for (vector& state : all.of) {
      vector word;
      std::memcpy(&word, from, sizeof(word));
      from += sizeof(word);
      word = state + word * word_multiplier;
      state = ((word << 13) | (word >> 19)) * multiplier;
    }
  }

  vectors state_;
  std::uint64_t bytes_ = 0;
};

}  // namespace tessera::inline TESSERA_ISA::io
