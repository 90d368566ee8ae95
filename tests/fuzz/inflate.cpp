// SPDX-License-Identifier: BSD-3-Clause
#include <span>

#include <tessera/io/inflate.hpp>

using namespace tessera;

// The first two bytes are the size of the data, the others what was compressed.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  if (size < 2) return 0;
  try {
    static_cast<void>(
        io::inflate(std::as_bytes(std::span(bytes + 2, size - 2)), bytes[0] + 256u * bytes[1], "input"));
  } catch (error const&) {
  }
  return 0;
}
