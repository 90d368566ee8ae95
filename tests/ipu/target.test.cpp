// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>

#include <tessera/ipu/target.hpp>

namespace target_test { namespace {

using namespace tessera;

TEST_CASE("target: presets have the peaks and memories of their data sheets") {
  // TFLOP/s in half and in single precision, and MiB of memory.
  const auto is = [](ipu::target const& t, double half, double single, double mib) {
    CHECK(t.peak_flops(ipu::precision::half) / 1e12 == doctest::Approx(half).epsilon(0.01));
    CHECK(t.peak_flops(ipu::precision::single) / 1e12 == doctest::Approx(single).epsilon(0.01));
    CHECK(double(t.memory_bytes()) / (1 << 20) == doctest::Approx(mib).epsilon(0.001));
  };
  is(ipu::bow(), 350, 87.5, 897);
  is(ipu::gc200(), 250, 62.5, 897);
  is(ipu::gc2(), 124.5, 31.1, 304);
}

TEST_CASE("target: names are those of the presets, others are refused") {
  CHECK(ipu::target_named("gc2").tiles == 1216);
  CHECK_THROWS_WITH_AS(ipu::target_named("gc3"), "[ipu::target_named] \"gc3\": there are bow, gc200 and gc2",
                       option_error);
}

TEST_CASE("target: numbers that no machine can have are refused") {
  const auto broken = [](auto member, auto value) {
    ipu::target t = ipu::bow();
    t.*member = value;
    CHECK_THROWS_AS(t.check(), option_error);
  };
  broken(&ipu::target::tiles, 0);
  broken(&ipu::target::tiles, 70000);
  broken(&ipu::target::workers, 0);
  broken(&ipu::target::clock_hz, -1.0);
  broken(&ipu::target::bytes_per_tile, std::int64_t(0));
  broken(&ipu::target::exchange_bytes_per_cycle, 0.0);
  broken(&ipu::target::sync_cycles, -1);
}

TEST_CASE("target: neighbours that receive the same data receive it at twice the rate") {
  ipu::target t = ipu::bow();
  CHECK(t.exchange_cycles(4000) == 1000);
  CHECK(t.exchange_cycles(4000, true) == 500);
  t.pairs_share_exchange = false;
  CHECK(t.exchange_cycles(4000, true) == 1000);
}

}}  // namespace target_test
