// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>

#include <tessera/core/engine.hpp>

namespace engine_test {

using namespace tessera;

TEST_CASE("engine: pairs are taken where they are faster and allowed") {
  engine_set all, without;
  without.forbid(engine::pairs);
  CHECK(faster_engine(cpu_family::amd, all) == engine::pairs);
  CHECK(faster_engine(cpu_family::other, all) == engine::pairs);
  CHECK(faster_engine(cpu_family::intel, all) == engine::fma);
  for (const cpu_family family : {cpu_family::amd, cpu_family::intel, cpu_family::other})
    CHECK(faster_engine(family, without) == engine::fma);
}

TEST_CASE("engine: multiplying one number at a time cannot be forbidden") {
  engine_set some;
  some.forbid(engine::fma);
  CHECK(some.allows(engine::fma));
  CHECK(some.allows(engine::pairs));
}

}  // namespace engine_test
