// SPDX-License-Identifier: BSD-3-Clause
#include "memory_file.hpp"

#include <tessera/io/smtx.hpp>

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  return reading(bytes, size, [](std::string const& path) { static_cast<void>(io::read_smtx(path)); });
}
