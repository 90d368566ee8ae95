// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace support {

/// The pieces of a text of bytes by merges as they are defined (Sennrich et al. 2016): the pair that was
/// learned first, of equal pairs the leftmost, again and again.
inline std::vector<std::string> merged_naively(std::vector<std::pair<std::string, std::string>> const& merges,
                                               std::string const& text) {
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  for (bool any = true; any;) {
    any = false;
    for (auto const& [left, right] : merges) {
      std::size_t i = 0;
      while (i + 1 < parts.size() && !(parts[i] == left && parts[i + 1] == right)) ++i;
      if (i + 1 >= parts.size()) continue;
      parts[i] += parts[i + 1];
      parts.erase(parts.begin() + std::ptrdiff_t(i) + 1);
      any = true;
      break;
    }
  }
  return parts;
}

}  // namespace support
