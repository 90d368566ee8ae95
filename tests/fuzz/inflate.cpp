// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <span>

#include <tessera/io/gunzip.hpp>
#include <tessera/io/inflate.hpp>

using namespace tessera;

// The first two bytes are the size of the data, the others the compressed data; or all are a file of gzip.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  if (size < 2) return 0;
  const auto all = std::as_bytes(std::span(bytes, size));
  constexpr io::memory_limit limit{1 << 16};
  try {
    if (io::is_gzip(all)) {
      if (io::gunzip(all, "input", limit).size() > limit.bytes) std::abort();
    } else {
      static_cast<void>(io::inflate(all.subspan(2), bytes[0] + 256u * bytes[1], "input", limit));
    }
  } catch (error const&) {
  }
  return 0;
}
