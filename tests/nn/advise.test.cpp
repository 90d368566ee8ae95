// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>

#include <tessera/nn/advise.hpp>
#include <tessera/statements/quantised.hpp>

namespace advise_test {

using namespace tessera;

TEST_CASE("advise: every block size has times, the fastest training first, and dense is beside them") {
  context ctx(1);
  const advice a = advise<float, block_shape<1>, block_shape<16>>(ctx, 100, 300, 0.1, 150);
  REQUIRE(a.blocks.size() == 2);
  CHECK(a.blocks[0].block_rows + a.blocks[1].block_rows == 17);
  CHECK(a.blocks[0].seconds.training() <= a.blocks[1].seconds.training());
  CHECK(a.dense.block_rows == 16);
  for (block_advice const& b : {a.blocks[0], a.blocks[1], a.dense}) {
    CHECK(b.by == engine::fma);
    CHECK(b.seconds.forward > 0);
    CHECK(b.seconds.backward > 0);
    CHECK(b.seconds.gradient > 0);
    CHECK(b.seconds.training() == b.seconds.forward + b.seconds.backward + b.seconds.gradient);
    CHECK(b.seconds.training() < 10);
  }
}

TEST_CASE("advise: the engine is the one that the products of a context have") {
  context any(1), none(1);
  none.forbid(engine::pairs);
  none.forbid(engine::amx);
  const auto by = [](context& ctx) {
    return advise<bfloat16, block_shape<16>>(ctx, 32, 32, 0.5, 64).blocks[0].by;
  };
  CHECK(by(none) == engine::fma);
  CHECK(by(any) == fastest_engine(any.runs_on().family, any.runs_on().engines,
                                  eval::engines_for<bfloat16, engine::pairs, engine::amx>()));
}

TEST_CASE(
    "advise: for a single token, and without an engine for integers, int8 is multiplied as another element") {
  context any(1), none(1);
  none.forbid(engine::quads);
  none.forbid(engine::amx);
  const auto by = [](context& ctx, std::int64_t tokens) {
    return advise<int8, block_shape<16>>(ctx, 64, 64, 0.5, tokens).blocks[0].by;
  };
  const auto in_integers = [](engine which) { return which == engine::quads || which == engine::amx; };
  CHECK(in_integers(by(any, 64)) ==
        (fastest_engine(any.runs_on().family, any.runs_on().engines,
                        eval::engines_for<int8, engine::quads, engine::amx>()) != engine::fma));
  CHECK(by(any, 1) != engine::quads);
  CHECK(!in_integers(by(none, 64)));
}

TEST_CASE("advise: more tokens than are measured take longer, in proportion") {
  context ctx(1);
  const pattern stored = pattern::dense(16, 16);
  const auto forward = [&](std::int64_t tokens) {
    return expected_seconds<float, block_shape<4>>(ctx, 64, 64, stored, tokens).forward;
  };
  CHECK(forward(10'000'000) > 100 * forward(64));
}

TEST_CASE("advise: what makes no sense is refused before anything is timed") {
  context ctx(1);
  const auto ask = [&](std::int64_t rows, double density, std::int64_t tokens) {
    return advise<float, block_shape<4>>(ctx, rows, 32, density, tokens);
  };
  CHECK_THROWS_WITH_AS(ask(32, 0, 10), "[advise] density is 0: it must be in (0, 1]", option_error);
  CHECK_THROWS_WITH_AS(ask(32, 1.5, 10), "[advise] density is 1.5: it must be in (0, 1]", option_error);
  CHECK_THROWS_WITH_AS(ask(0, 0.5, 10), "[advise] a weight (0, 32): there must be a row and a column",
                       shape_error);
  CHECK_THROWS_WITH_AS(ask(32, 0.5, 0), "[advise] 0 tokens: there must be at least one", shape_error);
  CHECK_THROWS_AS((expected_seconds<float, block_shape<4>>(ctx, 32, 32, pattern::dense(3, 8), 10)),
                  shape_error);
}

}  // namespace advise_test
