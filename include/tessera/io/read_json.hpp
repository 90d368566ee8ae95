// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <tessera/core/config.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/file_format.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/io/memory_limit.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// The value of a JSON file, as parse_json reads it. Throws io_error for a file of another format, and as
/// read_file.
json read_json(std::string const& path, memory_limit limit = {});

#ifdef TESSERA_BODY

TESSERA_BODY json read_json(std::string const& path, memory_limit limit) {
  const std::string text = read_file(path, limit);
  refuse_other_format(path, text, "io::read_json");
  return parse_json(text, path);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::io
