// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/io/numpy.hpp>

#include "memory_file.hpp"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  return reading(bytes, size, [](std::string const& path) {
    const io::numpy_file file(path);
    for (auto const& [name, tensor] : file.tensors()) static_cast<void>(io::read_numbers<double>(file, name));
  });
}
