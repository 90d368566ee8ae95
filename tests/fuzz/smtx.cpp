// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/io/smtx.hpp>

#include "memory_file.hpp"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  return reading(bytes, size, [](std::string const& path) { static_cast<void>(io::read_smtx(path)); });
}
