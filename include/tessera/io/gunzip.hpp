// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/crc32.hpp>
#include <tessera/io/inflate.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// Whether a file begins as a file of gzip does.
inline bool is_gzip(std::span<std::byte const> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte(0x1f) && bytes[1] == std::byte(0x8b);
}

/// The content of a file of gzip (RFC 1952), in one member or several, behind which zeros may follow. Throws
/// io_error, `[read path] …`, if it is damaged or becomes more than the limit allows. Memory grows with the
/// content, whatever size the file claims.
inline std::vector<std::byte> gunzip(std::span<std::byte const> file, std::string const& path,
                                     memory_limit limit = {}) {
  std::vector<std::byte> all;
  std::size_t at = 0;
  const auto fail = [&](std::string const& what) {
    throw io_error(message("[read ", path, "] compressed by gzip, byte ", at, ": ", what));
  };
  const auto too_long = [&] { fail(message("more data than the memory_limit of ", limit.bytes, " bytes")); };
  const auto skip = [&](std::size_t bytes) {
    if (bytes > file.size() - at) fail("the file ends within a header or a checksum");
    return std::exchange(at, at + bytes);
  };
  const auto number = [&]<class T>(T value) {
    std::memcpy(&value, file.data() + skip(sizeof(T)), sizeof(T));
    return value;
  };
  const auto is_padding = [](std::byte b) { return b == std::byte(0); };
  while (!std::all_of(file.begin() + std::ptrdiff_t(at), file.end(), is_padding)) {
    if (!is_gzip(file.subspan(at))) fail("no member begins here");
    const std::size_t header = skip(10);
    const auto flags = static_cast<unsigned>(file[header + 3]);
    if (file[header + 2] != std::byte(8) || (flags & 0xe0) != 0) fail("of a kind that is not known");
    if (flags & 4) skip(number(std::uint16_t()));
    for (const unsigned text : {8u, 16u})  // a name, a comment
      if (flags & text)
        while (file[skip(1)] != std::byte(0)) {
        }
    if (flags & 2) skip(2);
    std::vector<std::byte> these;
    at += detail::inflater(file.subspan(at), these, limit.bytes - all.size(), fail, too_long).run();
    if (number(std::uint32_t()) != detail::crc32(these) ||
        number(std::uint32_t()) != static_cast<std::uint32_t>(these.size()))
      fail("some of its bytes were changed: their checksum differs");
    all.insert(all.end(), these.begin(), these.end());
  }
  return all;
}

}}}  // namespace tessera::TESSERA_ISA::io
