// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/core/random.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/train/sparsity/watching/connectivity.hpp>

namespace connectivity_test { namespace {

using namespace tessera;
using train::model_patterns;

pattern random(int rows, int cols, double density, std::uint64_t seed) {
  return random_pattern(rows, cols, density, random_stream(seed, random_purpose::test));
}

/// The colour of each cell of the first matrix that a picture draws, by replaying its strokes: "" if none.
std::vector<std::string> colours_of(std::string const& svg, int rows, int cols) {
  std::vector<std::string> all(std::size_t(rows) * std::size_t(cols));
  const std::size_t end = svg.find("</g>");
  int faults = 0;  // cells outside, or drawn twice
  for (std::size_t at = 0; (at = svg.find("<path stroke=\"", at)) < end;) {
    const std::string colour = svg.substr(at + 14, 7);
    at = svg.find(" d=\"", at) + 4;
    int x = 0, y = 0;
    while (svg[at] != '"') {
      int dx = 0, dy = 0, length = 0, read = 0;
      if (std::sscanf(svg.substr(at, 40).c_str(), "m%d %dh%d%n", &dx, &dy, &length, &read) != 3) return {};
      x += dx;
      y += dy;
      for (; length > 0; --length) {
        const bool inside = x >= 0 && x < cols && y >= 0 && y < rows;
        if (!inside || !all[std::size_t(y) * std::size_t(cols) + std::size_t(x)].empty()) ++faults;
        if (inside) all[std::size_t(y) * std::size_t(cols) + std::size_t(x++)] = colour;
      }
      at += std::size_t(read);
    }
  }
  CHECK(faults == 0);
  return all;
}

TEST_CASE("connectivity: a square for each block, and new ones have a colour of their own") {
  const pattern before = random(13, 21, 0.3, 1), now = random(13, 21, 0.3, 2), fresh = now - before;
  const std::string first = train::to_svg({{"up", now}}),
                    svg = train::to_svg({{"up", now}}, {{"up", before}}, "after <10> & more\033");
  const auto plain = colours_of(first, 13, 21), cells = colours_of(svg, 13, 21);
  for (int i = 0; i < 13; ++i)
    for (int j = 0; j < 21; ++j) {
      const std::size_t at = std::size_t(i) * 21 + std::size_t(j);
      CHECK(plain[at] == (now.find(i, j) < 0 ? "" : "#32363c"));
      CHECK(cells[at] == (now.find(i, j) < 0 ? "" : fresh.find(i, j) < 0 ? "#32363c" : "#e06414"));
    }
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(svg.find("after &lt;10&gt; &amp; more\\x1b</text>") != svg.npos);
  CHECK(svg.find(message("up: ", now.blocks(), " of 13 x 21 blocks, ", fresh.blocks(), " of them new")) !=
        svg.npos);
}

TEST_CASE("connectivity: the picture of a large model stays small, and its cells show density and age") {
  model_patterns before, now;
  for (int m = 0; m < 24; ++m) {
    const auto seed = static_cast<std::uint64_t>(m);
    before.push_back({message("block.", m / 6, ".some.long.name.", m % 6), random(300, 400, 0.1, seed)});
    now.push_back({before.back().name, random(300, 400, 0.1, 100 + seed)});
  }
  const std::string svg = train::to_svg(now, before, "large");
  CHECK(svg.size() < 200'000);
  CHECK(svg.size() > 20'000);
  CHECK(svg.find("blocks)</text>") != svg.npos);
  CHECK(train::to_svg({{"w", pattern::dense(1000, 7001)}}).size() < 5'000);
  CHECK(train::to_svg({{"w", random(999, 1501, 0.5, 1)}}).size() < 200'000);
  CHECK(train::to_svg({{"w", band_pattern(30000, 30000, 0, 0)}}).size() < 200'000);

  // Cells of 2 x 2: full, half of it new, a quarter, none, and so on.
  std::vector<char> half(200 * 200, 1), earlier(200 * 200, 1);
  for (std::size_t i = 0; i < half.size(); ++i) {
    const std::size_t row = i / 200, col = i % 200;
    half[i] = col % 4 < 2 || (row % 2 == 0 && col % 2 == 0);
    earlier[i] = half[i] && !(col % 4 < 2 && row % 2 == 1);
  }
  const model_patterns striped{{"w", pattern_from_mask(200, 200, half)}};
  const std::string picture = train::to_svg(striped, {{"w", pattern_from_mask(200, 200, earlier)}});
  CHECK(picture.find("a cell is 2 x 2 blocks") != picture.npos);
  const auto cells = colours_of(picture, 100, 100);
  int others = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) others += cells[i] != (i % 2 == 0 ? "#a65422" : "#999b9e");
  CHECK(others == 0);
}

TEST_CASE("connectivity: nothing is a picture, too, and another model is refused") {
  CHECK(train::to_svg(model_patterns{}).ends_with("</svg>\n"));
  CHECK(train::to_svg({{"w", pattern()}}).ends_with("</svg>\n"));
  CHECK(error_of<shape_error>([] {
          (void)train::to_svg({{"w", pattern::dense(1, 2)}}, {{"v", pattern::dense(1, 2)}});
        }) == "[to_svg] pattern 0 is of w and of v: they must be of one model");
}

}}  // namespace connectivity_test
