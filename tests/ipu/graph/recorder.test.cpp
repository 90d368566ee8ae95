// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/ipu/graph/recorder.hpp>

namespace recorder_test { namespace {

using namespace tessera;
using ipu::activity;

ipu::detail::memory_layout layout_of_one_tile() {
  ipu::detail::memory_layout plan;
  plan.by_kind = {{100, 10, 5, 0, 0}};
  plan.peaks = {100};
  return plan;
}

TEST_CASE("recorder: the profile is that of the last run, shorter or longer") {
  ipu::detail::recorder r(ipu::bow(), layout_of_one_tile());
  const auto run = [&](int steps) {
    r.record_run([&] {
      for (int i = 0; i < steps; ++i) {
        ipu::step_record& now = r.step("compute", activity::compute, i + 1);
        CHECK(now.by_tile.empty());
        CHECK(now.multiplies == 0);
        now.by_tile = {1}, now.multiplies = 2, now.bytes = 3, now.estimated = true;
        r.live({std::int64_t(10 * i), 0});
      }
    });
  };
  for (const int steps : {3, 1, 4}) {
    run(steps);
    CHECK(r.profile().steps.size() == std::size_t(steps));
    CHECK(r.profile().liveness.size() == std::size_t(steps));
    CHECK(r.profile().cycles() == steps * (steps + 1) / 2);
  }
  CHECK(r.profile().peaks[0] == 115);  // with vertex state and the code of exchanges
}

TEST_CASE("recorder: a run that throws leaves the steps that it has done") {
  ipu::detail::recorder r(ipu::bow(), layout_of_one_tile());
  r.record_run([&] { r.step("a", activity::compute), r.step("b", activity::compute); });
  CHECK_THROWS_AS(r.record_run([&] {
    r.step("c", activity::sync, 600);
    throw std::runtime_error("stop");
  }),
                  std::runtime_error);
  REQUIRE(r.profile().steps.size() == 1);
  CHECK(r.profile().steps[0].name == "c");
}

TEST_CASE("recorder: an exchange and its sync have the liveness of the step that they serve") {
  ipu::detail::recorder r(ipu::bow(), layout_of_one_tile());
  r.record_run([&] {
    r.step("compute", activity::compute);
    r.live({50, 5});
    r.step("read a flag", activity::sync);
    r.step("sync", activity::sync), r.step("exchange", activity::exchange);
    r.live_up_to_exchange();
    r.step("compute", activity::compute);
    r.live({70, 7});
  });
  std::vector<std::int64_t> live;
  for (auto const& l : r.profile().liveness) live.push_back(l.all_tiles);
  CHECK(live == std::vector<std::int64_t>{50, 50, 70, 70, 70});
}

}}  // namespace recorder_test
