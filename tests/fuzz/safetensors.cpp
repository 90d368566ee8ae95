// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/io/read_tensors.hpp>
#include <tessera/io/safetensors.hpp>

#include "memory_file.hpp"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  return reading(bytes, size, [](std::string const& path) {
    const io::safetensors_file file(path);
    for (auto const& [name, tensor] : file.tensors()) {
      try {
        static_cast<void>(io::read_numbers<int>(file, name));
      } catch (io_error const&) {
      }
      try {
        file.check(name);
      } catch (io_error const&) {
      }
    }
  });
}
