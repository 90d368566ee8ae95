// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <string>

#include <tessera/io/matrix_market.hpp>

#include "memory_file.hpp"

using namespace tessera;

// A file that is read with each element once is read, as the same matrix, where elements may be repeated.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  return reading(bytes, size, [](std::string const& path) {
    constexpr io::memory_limit limit{1 << 16};
    const auto summed = io::read_matrix_market<float, block_shape<4>>(path, duplicates::summed, limit);
    try {
      const auto once = io::read_matrix_market<float, block_shape<4>>(path, duplicates::refused, limit);
      if (once.pattern() != summed.pattern()) std::abort();
    } catch (io_error const& wrong) {
      if (std::string(wrong.what()).find("] line ") == std::string::npos) std::abort();
    }
  });
}
