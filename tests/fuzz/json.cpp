// SPDX-License-Identifier: BSD-3-Clause
#include <cstdlib>
#include <string>
#include <string_view>

#include <tessera/io/json.hpp>
#include <tessera/io/json_parser.hpp>

using namespace tessera;

// A value that was parsed is written and parsed again to the same text.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  try {
    const std::string text =
        io::to_text(io::parse_json(std::string_view(reinterpret_cast<char const*>(bytes), size)));
    if (io::to_text(io::parse_json(text)) != text) std::abort();
  } catch (error const&) {
  }
  return 0;
}
