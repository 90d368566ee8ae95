// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <tessera/io/numpy.hpp>

#include "memory_file.hpp"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  return reading(bytes, size, [](std::string const& path) {
    const io::numpy_file file(path, io::memory_limit{1 << 20});
    for (std::string const& name : file.names()) {
      if (!file.contains(name)) std::abort();
      try {
        static_cast<void>(io::read_numbers<double>(file, name));
      } catch (io_error const& wrong) {
        if (std::string(wrong.what()).size() > 1000) std::abort();
      }
    }
  });
}
