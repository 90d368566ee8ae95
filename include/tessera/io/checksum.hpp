// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// A checksum that finds faults of disks and cables; no defence against forgery.
///   A change within one word of 4 bytes, so any changed bit, is always found: each word goes into its lane
///   by the step of XXH32 (Collet), which loses neither the word nor the lane, and each lane goes into
///   the result by the step of XXH64. Other changes are overlooked once in 2^32 if they are all in one
///   lane, else in 2^64. Runs at the speed of the memory on any CPU that has AVX2, whatever the compiler's
///   flags: without them, these few lines are compiled for it as well, and the CPU is asked.
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
    std::size_t const whole = bytes.size() - bytes.size() % stretch;
    steps_fastest(state_, bytes.data(), whole);
    if (whole < bytes.size()) {
      std::byte last[stretch]{};
      std::copy(bytes.begin() + std::ptrdiff_t(whole), bytes.end(), last);
      steps(state_, last, stretch);
    }
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

  TESSERA_INLINE static void steps(vectors& all, std::byte const* bytes, std::size_t size) {
    vectors now = all;  // in registers: `bytes` might point to `all`
    for (std::byte const* from = bytes; from != bytes + size;)
      for (vector& state : now.of) {
        vector word;
        std::memcpy(&word, from, sizeof(word));
        from += sizeof(word);
        word = state + word * word_multiplier;
        state = ((word << 13) | (word >> 19)) * multiplier;
      }
    all = now;
  }

#if defined(__x86_64__) && !defined(__AVX2__)
  [[gnu::target("avx2")]] static void steps_avx2(vectors& all, std::byte const* bytes, std::size_t size) {
    steps(all, bytes, size);
  }
  static void steps_fastest(vectors& all, std::byte const* bytes, std::size_t size) {
    if (__builtin_cpu_supports("avx2"))
      steps_avx2(all, bytes, size);
    else
      steps(all, bytes, size);
  }
#else
  static void steps_fastest(vectors& all, std::byte const* bytes, std::size_t size) {
    steps(all, bytes, size);
  }
#endif

  vectors state_;
  std::uint64_t bytes_ = 0;
};

}}}  // namespace tessera::TESSERA_ISA::io
