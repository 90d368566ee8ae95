// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string>

#include <tessera/io/file.hpp>
#include <tessera/io/gunzip.hpp>
#include <tessera/io/json_parser.hpp>

/// Recorded by tests/golden/record_tokenizer_files.py.
inline tessera::io::json const& tokenizer_golden() {
  using namespace tessera;
  static const io::json all = [] {
    const std::string name = "tokenizer_files.json.gz";
    const std::string packed = io::read_file(TESSERA_SOURCE_DIR "/tests/golden/" + name);
    const auto bytes = io::gunzip(std::as_bytes(std::span(packed)), name);
    return io::parse_json({reinterpret_cast<char const*>(bytes.data()), bytes.size()}, name);
  }();
  return all;
}
