// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "format.hpp"

namespace programs {

using table_row = std::vector<std::string>;

/// Rows of as many cells as the header has.
struct table {
  table_row header;
  std::vector<table_row> rows;
};

/// For reading: the first column to the left, the others to the right, a rule below the header.
inline std::string aligned(table const& t) {
  std::vector<table_row> lines = t.rows;
  lines.insert(lines.begin(), t.header);
  std::string all;
  std::vector<std::size_t> widths(t.header.size());
  for (table_row const& line : lines)
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], text_width(line.at(i)));
  for (std::size_t l = 0; l < lines.size(); ++l) {
    for (std::size_t i = 0; i < widths.size(); ++i)
      all += i == 0 ? padded(lines[l][i], widths[i]) : "  " + padded(lines[l][i], widths[i], padding::before);
    all.erase(all.find_last_not_of(' ') + 1);
    all += '\n';
    if (l > 0) continue;
    for (std::size_t i = 0; i < widths.size(); ++i)
      for (std::size_t dash = 0; dash < widths[i] + (i == 0 ? 0 : 2); ++dash) all += "─";
    all += '\n';
  }
  return all;
}

/// For programs (RFC 4180).
inline std::string csv(table const& t) {
  std::string all;
  const auto add = [&](table_row const& line) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      std::string cell = line[i];
      if (cell.find_first_of(",\"\n\r") != cell.npos) {
        for (std::size_t at = 0; (at = cell.find('"', at)) != cell.npos; at += 2) cell.insert(at, 1, '"');
        cell = '"' + cell + '"';
      }
      all += (i == 0 ? "" : ",") + cell;
    }
    all += '\n';
  };
  add(t.header);
  for (table_row const& line : t.rows) add(line);
  return all;
}

}  // namespace programs
