// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>

#include <doctest/doctest.h>

#include <tessera/ipu/popsparse/plan_cache.hpp>
#include <tessera/tensor/pattern_sources.hpp>

namespace plan_cache_test { namespace {

using namespace tessera;
using ipu::precision;

TEST_CASE("ipu plan cache: each plan is made once") {
  ipu::plan_cache cache(ipu::bow());
  const pattern p = random_pattern(16, 16, 0.3, 1), q = random_pattern(16, 16, 0.3, 2);
  auto const& first = cache.fixed({256, 256, 16}, p, 16, precision::half);
  cache.fixed({256, 256, 16}, q, 16, precision::half);
  cache.dynamic({256, 256, 16}, p.blocks(), 16, precision::half);
  cache.dense({256, 256, 16}, precision::half);
  CHECK(&cache.fixed({256, 256, 16}, p, 16, precision::half) == &first);
  CHECK(cache.size() == 4);
  cache.fixed({256, 256, 16}, p, 16, precision::half, {.bands = 2});
  CHECK(cache.size() == 5);
}

TEST_CASE("ipu plan cache: plans are those of the planner, and every option tells two of them apart") {
  ipu::plan_cache cache(ipu::bow());
  const ipu::product_shape shape{512, 256, 32};
  const pattern p = random_pattern(32, 16, 0.3, 1);
  CHECK(cache.fixed(shape, p, 16, precision::half).order ==
        ipu::plan_static(ipu::bow(), shape, p, 16, precision::half).order);
  std::size_t plans = 1;
  const auto dynamic = [&](auto member, auto value) {
    ipu::dynamic_options o;
    o.*member = value;
    auto const& cached = cache.dynamic(shape, p.blocks(), 16, precision::half, o);
    const auto made = ipu::plan_dynamic(ipu::bow(), shape, p.blocks(), 16, precision::half, o);
    CHECK(cached.explain() == made.explain());
    CHECK(cached.cost.with_sync() == made.cost.with_sync());
    CHECK(cached.bucket_words == made.bucket_words);
    CHECK(cache.size() == ++plans);
  };
  using options = ipu::dynamic_options;
  dynamic(&options::oversize, 0.3);  // the default
  dynamic(&options::available_memory_proportion, 0.4);
  dynamic(&options::oversize, 0.7);
  dynamic(&options::partials, precision::half);
  dynamic(&options::gradient_of_activations, true);
  dynamic(&options::gradient_of_weights, true);
  dynamic(&options::optimise_for_speed, false);
  dynamic(&options::force_bucket_spills, true);
  dynamic(&options::x, std::int64_t(3));
  dynamic(&options::y, std::int64_t(3));
  dynamic(&options::z, std::int64_t(3));
  const auto made = ipu::plan_dense(ipu::bow(), shape, precision::single);
  CHECK(cache.dense(shape, precision::single).explain() == made.explain());
  CHECK(cache.dense(shape, precision::single, {precision::half}).cost.cycles() ==
        ipu::plan_dense(ipu::bow(), shape, precision::single, {precision::half}).cost.cycles());
  CHECK(cache.size() == plans + 2);
}

}}  // namespace plan_cache_test
