// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io { namespace detail {

/// CRC-32 of ISO 3309, the checksum of zip and gzip files: of these bytes behind others.
inline std::uint32_t crc32(std::span<std::byte const> bytes, std::uint32_t before = 0) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> made;
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0xedb88320u : 0);
      made[i] = value;
    }
    return made;
  }();
  std::uint32_t crc = ~before;
  for (const std::byte b : bytes) crc = table[(crc ^ std::uint32_t(b)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

}}}}  // namespace tessera::TESSERA_ISA::io::detail
