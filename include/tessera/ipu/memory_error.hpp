// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// A program, or a run of the library, that a tile's memory is too small for.
class memory_error : public error {
 public:
  using error::error;
};

/// The fate of a program or a run that does not fit: it ends before anything is computed, or is computed with
/// a remark in its profile.
enum class overflow : std::uint8_t { refused, charged };

}}}  // namespace tessera::TESSERA_ISA::ipu
