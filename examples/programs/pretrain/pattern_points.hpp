// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/io/json.hpp>

#include "../common/table.hpp"

namespace pretrain {

using namespace programs;

/// The patterns of a model after one update.
struct pattern_point {
  static constexpr std::array names{"step",      "stored",   "grown",   "grown_survivors",
                                    "survivors", "explored", "expected"};
  std::int64_t step, stored, grown;  ///< blocks: stored, and grown by this update
  double grown_survivors;            ///< share that is left of the blocks that the update before grew
  double survivors;                  ///< share of the first blocks that were never pruned
  double explored, expected;         ///< share of all blocks ever stored, and if blocks grew at random

  std::array<tessera::io::json, names.size()> values() const {
    return {step, stored, grown, grown_survivors, survivors, explored, expected};
  }
};

/// A row of each.
inline table pattern_table(std::vector<pattern_point> const& points) {
  table all{{pattern_point::names.begin(), pattern_point::names.end()}, {}};
  for (pattern_point const& p : points) {
    table_row& row = all.rows.emplace_back();
    for (tessera::io::json const& value : p.values()) row.push_back(tessera::io::to_text(value));
  }
  return all;
}

/// Points as lines, each an object of JSON.
inline std::string json_lines(std::vector<pattern_point> const& points) {
  using tessera::io::json;
  std::string all;
  for (pattern_point const& p : points) {
    json line = json::object{};
    for (std::size_t i = 0; i < p.names.size(); ++i) line[p.names[i]] = p.values()[i];
    all += tessera::io::to_text(line) + "\n";
  }
  return all;
}

inline tessera::io::json to_json(std::vector<pattern_point> const& points) {
  using tessera::io::json;
  json::array all;
  for (pattern_point const& p : points) {
    const auto values = p.values();
    all.push_back(json::array(values.begin(), values.end()));
  }
  return all;
}

inline std::vector<pattern_point> read_pattern_points(tessera::io::json_place const& all) {
  std::vector<pattern_point> points;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto p = all.at(i);
    const auto n = [&](std::size_t k) { return p.at(k).as_number(); };
    points.push_back(
        {p.at(0).as_integer(), p.at(1).as_integer(), p.at(2).as_integer(), n(3), n(4), n(5), n(6)});
  }
  return points;
}

}  // namespace pretrain
