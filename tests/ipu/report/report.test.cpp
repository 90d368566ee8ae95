// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/io/json.hpp>
#include <tessera/ipu/popsparse/static_plan.hpp>
#include <tessera/ipu/report/pictures.hpp>
#include <tessera/ipu/report/report.hpp>
#include <tessera/tensor/pattern_sources.hpp>

namespace report_test { namespace {

using namespace tessera;
using ipu::activity;

int count(std::string const& text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Two tiles of 1 KiB that multiply twice in a second.
ipu::profile small() {
  ipu::profile p;
  p.name = "small", p.on.tiles = 2, p.on.clock_hz = 100, p.on.bytes_per_tile = 1024;
  p.steps.push_back({"exchange", activity::exchange, 20, {20, 5}, 0, 2048});
  p.steps.push_back({"multiply", activity::compute, 60, {60, 10}, 300});
  p.steps.push_back({"multiply", activity::compute, 20, {10, 20}, 100, 0, true});
  p.memory = {{100, 10, 1, 7, 3}, {512, 0, 0, 0, 0}};
  p.peaks = {118, 512};
  p.liveness = {{620, 512}, {630, 512}, {610, 512}};
  return p;
}

TEST_CASE("ipu report: numbers have three digits and a prefix, at its borders too") {
  using namespace ipu::detail;
  CHECK(short_number(0) == "0");
  CHECK(short_number(7) == "7");
  CHECK(short_number(999) == "999");
  CHECK(short_number(999.6) == "1.00 k");
  CHECK(short_number(12345) == "12.3 k");
  CHECK(short_number(350e12, "FLOP/s") == "350 TFLOP/s");
  CHECK(short_bytes(1023) == "1023 B");
  CHECK(short_bytes(1024) == "1.00 KiB");
  CHECK(short_bytes(638976) == "624 KiB");
  CHECK(short_time(0.0123) == "12.3 ms");
  CHECK(percent(1, 3) == "33.3 %");
  CHECK(percent(1, 0) == "0.0 %");
  CHECK(times(8, 3) == "2.67");
  CHECK(padded("ab", 4) == "ab  ");
  CHECK(padded("ab", 4, true) == "  ab");
  CHECK(padded("abcde", 4) == "abcde");
}

TEST_CASE("ipu report: the text tells the numbers of the profile, in lines of at most 100 columns") {
  ipu::profile p = small();
  p.remarks.push_back("a remark"), p.compared.push_back({"dense", 250});
  const std::string text = ipu::to_text(p, 1);
  for (char const* line :
       {"small on Bow: 2 tiles\n", "  ! a remark\n", "  time        1 s, 100 cycles\n",
        "  compute     80.0 %", "  compared    2.50 times as fast as dense, 250 cycles\n",
        "  exchanged   2.00 KiB\n", "  balance     71.4 %", "2 active\n", "  estimated   20.0 %",
        "  multiply *", "  … and 1 more\n", "tile 1 is the fullest: 512 B of 1.00 KiB, 512 B always live\n",
        "  fullest tiles       1 (512 B), 0 (118 B)\n"})
    CHECK_MESSAGE(text.find(line) != std::string::npos, std::string(line), text);
  std::size_t width = 0;
  for (char c : text) {
    if (c == '\n') width = 0;
    CHECK(++width <= 101);
  }
}

TEST_CASE("ipu report: JSON has every step and every tile") {
  const ipu::profile p = small();
  const io::json all = ipu::to_json(p);
  CHECK(all.at("cycles").as_integer() == 100);
  CHECK(all.at("exchange_cycles").as_integer() == 20);
  CHECK(all.at("estimated_cycles").as_integer() == 20);
  CHECK(all.at("exchanged_bytes").as_integer() == 2048);
  auto const& steps = *all.find("steps")->get_if<io::json::array>();
  REQUIRE(steps.size() == 3);
  CHECK(steps[1].at("cycles").as_integer() == 60);
  auto const& memory = *all.find("memory_by_tile")->get_if<io::json::array>();
  REQUIRE(memory.size() == 2);
  CHECK(memory[1].at("variables").as_integer() == 512);
  CHECK(all.find("live_bytes_by_step")->get_if<io::json::array>()->size() == 3);
}

TEST_CASE("ipu pictures: a square for each tile, and none where nothing happened") {
  const auto show = [](double n) { return std::to_string(int(n)); };
  const std::string map = ipu::detail::heat_map({3, 0, 12, 6, 1}, "work", show);
  CHECK(count(map, "<rect ") == 5);
  CHECK(count(map, "<title>tile 2: 12</title>") == 1);
  CHECK(count(map, "opacity:1.00") == 1);
  CHECK(count(map, "opacity:0.10") == 1);
  CHECK(ipu::detail::heat_map({0, 0}, "work", show).empty());
}

TEST_CASE("ipu pictures: a partition shows every block, in as many bands as are planned") {
  const pattern stored = random_pattern(20, 30, 0.2, 1);
  ipu::static_options o;
  o.bands = 3;
  const auto plan = ipu::plan_static(ipu::bow(), {320, 480, 64}, stored, 16, ipu::precision::half, o);
  const std::string picture = ipu::picture_of_partition(plan, stored);
  CHECK(count(picture, "<rect ") == stored.blocks());
  CHECK(count(picture, "class=\"band\"") == 2);
  CHECK(count(picture, "3 bands of columns") == 1);
  const pattern none = pattern_from_coo(2, 2, std::vector<int>{}, std::vector<int>{});
  CHECK(ipu::picture_of_partition(ipu::static_plan{}, none).empty());
}

TEST_CASE("ipu pictures: text is escaped") {
  CHECK(ipu::detail::escaped("a<b> & \"c\"") == "a&lt;b&gt; &amp; &quot;c&quot;");
}

}}  // namespace report_test
