// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// The most that a reader takes for one text, or one compressed array, whatever a file says. Compressed data
/// become up to 1032 times as many bytes, and a file with holes any number, so a small file may ask for much
/// memory. A file that is mapped as it is needs none, and is not limited.
struct memory_limit {
  std::uint64_t bytes = std::uint64_t(1) << 30;
};

}}}  // namespace tessera::TESSERA_ISA::io
