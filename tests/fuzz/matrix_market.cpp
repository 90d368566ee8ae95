// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/io/matrix_market.hpp>

#include "memory_file.hpp"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  return reading(bytes, size, [](std::string const& path) {
    static_cast<void>(io::read_matrix_market<float, block_shape<4>>(path));
  });
}
