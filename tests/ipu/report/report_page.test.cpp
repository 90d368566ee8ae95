// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include <tessera/ipu/report/report_page.hpp>

namespace report_page_test { namespace {

using namespace tessera;

TEST_CASE("ipu report page: a step that takes a millionth of the time is drawn, and two pixels wide") {
  ipu::profile p;
  p.on = ipu::bow();
  p.on.tiles = 1;
  const auto add = [&](char const* name, std::uint32_t cycles) {
    p.steps.push_back({.name = name, .kind = ipu::activity::compute, .cycles = cycles, .by_tile = {cycles}});
  };
  for (int i = 0; i < 200; ++i) add("short", 1);
  add("long", 1000000);
  const std::string page = ipu::to_page(p);
  const auto count = [&](std::string_view part) {
    int found = 0;
    for (std::size_t at = page.find(part); at != std::string::npos; at = page.find(part, at + 1)) ++found;
    return found;
  };
  CHECK(count("<title>short, compute: 1 cycles</title>") == 200);
  CHECK(count("h1.5v21") == 200);  // the step of the tile, and half a pixel until the next
  CHECK(count(">long</text>") == 1);
}

}}  // namespace report_page_test
