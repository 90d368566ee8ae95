// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <tessera/io/parse_number.hpp>
#include <tessera/io/text.hpp>

using namespace tessera;

// A number of a text is that of the C library, with all its bits, and a text in quotes is short.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  const std::string text(reinterpret_cast<char const*>(bytes), size);
  double value = 7;
  const std::size_t length = io::parse_number(text, value);
  if (length > 0 && text.find_first_of("nN") >= length) {  // NaN may have any bits
    const std::string digits = text.substr(0, length);
    char* stop = nullptr;
    const double right = std::strtod(digits.c_str(), &stop);
    if (stop != digits.c_str() + length || std::memcmp(&right, &value, sizeof value) != 0) std::abort();
  }
  float narrow = 7;
  if (io::is_number(text, narrow) && !std::isnan(narrow) && narrow != std::strtof(text.c_str(), nullptr))
    std::abort();
  std::int64_t whole = 7;
  if (io::is_number(text, whole) && whole != std::strtoll(text.c_str(), nullptr, 10)) std::abort();
  if (io::in_quotes(text).size() > 2 + 100 * 8 + 3) std::abort();
  return 0;
}
