// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// FNV-1a of 64 bits (Fowler, Noll, Vo) over the bytes of `text`, continuing from the hash `before` of the
/// preceding text.
constexpr std::uint64_t content_hash(std::string_view text, std::uint64_t before = 0xcbf29ce484222325u) {
  for (const char c : text) before = (before ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return before;
}

}}  // namespace tessera::TESSERA_ISA
