// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>

#include <tessera/core/engine.hpp>

namespace engine_test {

using namespace tessera;

TEST_CASE("engine: the fastest is taken of those that are allowed and compiled") {
  const engine_set all{engine::pairs, engine::amx}, pairs{engine::pairs}, none;
  CHECK(fastest_engine(cpu_family::amd, all, pairs) == engine::pairs);
  CHECK(fastest_engine(cpu_family::other, pairs, all) == engine::pairs);
  CHECK(fastest_engine(cpu_family::intel, pairs, pairs) == engine::fma);
  for (const cpu_family family : {cpu_family::amd, cpu_family::intel, cpu_family::other}) {
    CHECK(fastest_engine(family, all, all) == engine::amx);
    CHECK(fastest_engine(family, none, all) == engine::fma);
    CHECK(fastest_engine(family, all, none) == engine::fma);
    CHECK(fastest_engine(family, {engine::pairs, engine::quads}, {engine::quads}) == engine::quads);
    CHECK(fastest_engine(family, {engine::quads, engine::amx}, {engine::quads, engine::amx}) == engine::amx);
  }
}

TEST_CASE("engine: multiplying one number at a time cannot be forbidden") {
  engine_set some{engine::pairs};
  some.forbid(engine::fma);
  CHECK(some.allows(engine::fma));
  CHECK(some.allows(engine::pairs));
  some.forbid(engine::pairs);
  CHECK(!some.allows(engine::pairs));
  CHECK(some == engine_set());
}

}  // namespace engine_test
