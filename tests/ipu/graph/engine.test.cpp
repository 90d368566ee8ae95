// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/allocations.hpp>

#include <tessera/ipu/graph/engine.hpp>

namespace engine_test { namespace {

using namespace tessera;
using ipu::copy, ipu::engine, ipu::execute, ipu::graph, ipu::if_nonzero, ipu::in, ipu::out, ipu::ports,
    ipu::repeat, ipu::repeat_while, ipu::sequence, ipu::target;
using numbers = std::vector<std::int32_t>;

ipu::codelet const& add_to(graph& g, std::int32_t amount) {
  return g.add_codelet([amount](target const&, ports const& p) {
    for (std::int32_t& n : p.out<std::int32_t>(0)) n += amount;
    return std::int64_t(10);
  });
}

TEST_CASE("engine: vertices read and write elements of any tile, and cycles are those of the slowest") {
  for (const int threads : {1, 2, 8}) {
    graph g(ipu::bow());
    const auto a = g.add_variable<std::int32_t>("a", 1000), b = g.add_variable<std::int32_t>("b", 1000),
               c = g.add_variable<std::int32_t>("c", 1000);
    g.map_linearly(a), g.map_linearly(b, 7), g.map(c, 3);
    auto const& add = g.add_codelet([](target const&, ports const& p) {
      for (std::size_t i = 0; i < p.out<std::int32_t>(2).size(); ++i)
        p.out<std::int32_t>(2)[i] = p.in<std::int32_t>(0)[i] + p.in<std::int32_t>(1)[i];
      return std::int64_t(p.out<std::int32_t>(2).size());
    });
    const auto set = g.add_compute_set("add");
    for (int i = 0; i < 10; ++i)
      g.add_vertex(set, i, add,
                   {in(a.part(i * 100, i * 100 + 100)), in(b.part(i * 100, i * 100 + 100)),
                    out(c.part(i * 100, i * 100 + 100))});
    engine e(std::move(g), execute(set), threads);
    numbers x(1000), y(1000, 5);
    std::iota(x.begin(), x.end(), 0);
    e.write(a, x), e.write(b, y);
    e.run();
    const auto z = e.read<std::int32_t>(c);
    for (int i = 0; i < 1000; ++i) CHECK(z[std::size_t(i)] == i + 5);
    auto const& p = e.profile();
    CHECK(p.cycles(ipu::activity::compute) == 111);  // 100 and the launch
    CHECK(p.active_tiles() == 10);
    CHECK(p.cycles(ipu::activity::sync) == 2 * 600);  // operands come, results go home
    CHECK(p.cycles(ipu::activity::exchange) > 0);
  }
}

TEST_CASE("engine: workers share the issue slots of their tile") {
  graph g(ipu::bow());
  const auto a = g.add_variable<std::int32_t>("a", 7);
  g.map(a, 0);
  auto const& code = add_to(g, 1);
  const auto set = g.add_compute_set("add");
  for (int i = 0; i < 7; ++i) g.add_vertex(set, 0, code, {out(a.part(i, i + 1))}, ipu::runs_on::worker);
  engine e(std::move(g), execute(set), 1);
  e.run();
  CHECK(e.profile().cycles() == 11 + 2 * 10 * 6);  // one of six workers has two vertices
}

TEST_CASE("engine: programs repeat, choose, loop and call") {
  graph g(ipu::bow());
  const auto n = g.add_variable<std::int32_t>("n", 1), flag = g.add_variable<std::int32_t>("flag", 1),
             copied = g.add_variable<std::int32_t>("copied", 1);
  g.map(n, 0), g.map(flag, 5), g.map(copied, 700);
  const auto one = g.add_compute_set("one"), ten = g.add_compute_set("ten"), down = g.add_compute_set("down");
  g.add_vertex(one, 0, add_to(g, 1), {out(n)});
  g.add_vertex(ten, 0, add_to(g, 10), {out(n)});
  g.add_vertex(down, 5, add_to(g, -1), {out(flag)});
  const ipu::program function = sequence({execute(one), execute(one)});
  engine e(std::move(g),
           sequence({repeat(3, execute(one)), function, function,
                     repeat_while({}, flag, sequence({execute(ten), execute(down)})),
                     if_nonzero(flag, execute(ten), execute(one)), copy({n}, {copied})}),
           2);
  e.write(flag, numbers{4});
  e.run();
  CHECK(e.read<std::int32_t>(copied)[0] == 3 + 4 + 40 + 1);
  e.run();  // the flag is 0 now
  CHECK(e.read<std::int32_t>(copied)[0] == 48 + 3 + 4 + 1);
}

TEST_CASE("engine: a second run allocates nothing, and has the profile of the first" *
          doctest::skip(!support::counts_allocations)) {
  for (const int threads : {1, 2}) {
    graph g(ipu::bow());
    const auto n = g.add_variable<std::int32_t>("n", 3000), flag = g.add_variable<std::int32_t>("flag", 1),
               copied = g.add_variable<std::int32_t>("copied", 3000);
    g.map_linearly(n), g.map(flag, 5), g.map(copied, 700);
    const auto all = g.add_compute_set("a step whose name is longer than a short string"),
               down = g.add_compute_set("down"), up = g.add_compute_set("up");
    for (int i = 0; i < 30; ++i)  // not where the elements are
      g.add_vertex(all, i % 7, add_to(g, 1), {out(n.part(i * 100, i * 100 + 100))}, ipu::runs_on::worker);
    g.add_vertex(down, 5, add_to(g, -1), {out(flag)}), g.add_vertex(up, 5, add_to(g, 3), {out(flag)});
    engine e(std::move(g),
             sequence({execute(up), repeat_while({}, flag, sequence({execute(all), execute(down)})),
                       if_nonzero(flag, {}, copy({n}, {copied}))}),
             threads);
    e.run();
    const ipu::profile first = e.profile();
    const long before = support::allocations();
    e.run();
    CHECK(support::allocations() == before);
    CHECK(e.read<std::int32_t>(copied)[0] == 6);
    REQUIRE(e.profile().steps.size() == first.steps.size());
    for (std::size_t i = 0; i < first.steps.size(); ++i) {
      auto const &a = first.steps[i], &b = e.profile().steps[i];
      CHECK((a.name == b.name && a.kind == b.kind && a.cycles == b.cycles && a.by_tile == b.by_tile &&
             a.bytes == b.bytes && a.multiplies == b.multiplies && a.estimated == b.estimated));
    }
    CHECK(e.profile().liveness.size() == first.liveness.size());
  }
}

TEST_CASE("engine: temporaries share memory when their lives do not meet") {
  const auto peak = [](int values) {
    graph g(ipu::bow());
    const auto x = g.add_variable<float>("x", 1000);
    g.map(x, 0);
    std::vector<ipu::program> all;
    ipu::slice before = x;
    for (int i = 0; i < values; ++i) {
      const auto next = g.add_variable<float>("t", 1000, ipu::lifetime::temporary);
      g.map(next, 0);
      all.push_back(copy({before}, {next}));
      before = next;
    }
    engine e(std::move(g), sequence(std::move(all)), 1);
    e.run();
    return e.profile().peak(0);
  };
  CHECK(peak(2) == 12000);
  CHECK(peak(9) == 12000);
}

TEST_CASE("engine: vertices that race are refused by name") {
  graph g(ipu::bow());
  const auto a = g.add_variable<std::int32_t>("weights", 10);
  g.map_linearly(a);
  auto const& code = add_to(g, 1);
  const auto set = g.add_compute_set("update");
  g.add_vertex(set, 0, code, {out(a.part(0, 6))});
  SUBCASE("both write") { g.add_vertex(set, 1, code, {out(a.part(5, 10))}); }
  SUBCASE("one reads") { g.add_vertex(set, 1, code, {out(a.part(8, 9)), in(a.part(5, 7))}); }
  CHECK(error_of<option_error>([&] {
          engine(std::move(g), execute(set), 1);
        }).find("vertices 0 and 1 of \"update\" race: both touch elements 5 to 6 of weights") !=
        std::string::npos);
}

TEST_CASE("engine: a race behind a longer use of the same vertex is refused by name") {
  graph g(ipu::bow());
  const auto v = g.add_variable<std::int32_t>("v", 10);
  g.map_linearly(v);
  auto const& code = add_to(g, 0);
  const auto set = g.add_compute_set("update");
  g.add_vertex(set, 0, code, {out(v.part(9, 10)), in(v.part(0, 3))});
  g.add_vertex(set, 1, code, {out(v.part(1, 2)), in(v.part(0, 8))});
  CHECK(
      error_of<option_error>([&] { engine(std::move(g), execute(set), 1); }) ==
      "[ipu::engine] vertices 0 and 1 of \"update\" race: both touch elements 1 to 2 of v, and at least one "
      "writes them");
}

TEST_CASE("engine: a copy to elements that it reads, or writes twice, is refused by name") {
  const auto copied = [](std::vector<std::int64_t> from, std::vector<std::int64_t> to) {
    graph g(ipu::bow());
    const auto v = g.add_variable<std::int32_t>("v", 100);
    g.map_linearly(v);
    std::vector<ipu::slice> a, b;
    for (std::int64_t i : from) a.push_back(v.part(i, i + 10));
    for (std::int64_t i : to) b.push_back(v.part(i, i + 10));
    return error_of<option_error>([&] { engine(std::move(g), ipu::copy(a, b, "shift"), 1); });
  };
  CHECK(copied({0, 0}, {50, 60}) == "");
  CHECK(copied({0, 20}, {50, 55}) ==
        "[ipu::engine] parts 2 and 3 of \"shift\" race: both touch elements 55 to 60 of v, and at least one "
        "writes them");
  CHECK(copied({0}, {7}) ==
        "[ipu::engine] parts 0 and 1 of \"shift\" race: both touch elements 7 to 10 of v, and at least one "
        "writes them");
}

TEST_CASE("engine: elements without a tile are refused by name") {
  graph g(ipu::bow());
  const auto a = g.add_variable<std::int32_t>("bias", 10);
  g.map(a.part(0, 4), 0);
  const auto set = g.add_compute_set("add");
  g.add_vertex(set, 0, add_to(g, 1), {out(a)});
  CHECK(error_of<option_error>([&] { engine(std::move(g), execute(set), 1); }) ==
        "[ipu::engine] bias: element 4 of 10 is mapped to no tile, and step \"add\" uses it: map or "
        "map_linearly");
}

TEST_CASE("engine: too much for a tile is refused with its number, the step and the bytes, or charged") {
  const auto make = [](ipu::overflow what) {
    graph g(ipu::bow());
    const auto a = g.add_variable<float>("a", 100000), b = g.add_variable<float>("b", 100000);
    g.map(a, 17), g.map(b, 17);
    engine e(std::move(g), copy({a}, {b}, "move"), 1, what);
    e.run();
    return e.profile().remarks;
  };
  const std::string why = error_of<ipu::memory_error>([&] { make(ipu::overflow::refused); });
  CHECK(why.find(
            "[ipu::engine] tile 17 needs 800000 bytes at step \"move\" and has 638976 (variables 800000") ==
        0);
  CHECK(make(ipu::overflow::charged).size() == 1);
}

TEST_CASE("engine: what the host gives must have the size and the kind of the variable") {
  graph g(ipu::bow());
  const auto a = g.add_variable<float>("a", 3), t = g.add_variable<float>("t", 3, ipu::lifetime::temporary);
  g.map(a, 0), g.map(t, 0);
  CHECK_THROWS_AS(g.map(a.part(1, 2), 1), option_error);  // mapped already
  CHECK_THROWS_AS(g.map(t, 1472), option_error);
  CHECK_THROWS_AS(a.part(2, 4), shape_error);
  engine e(std::move(g), {}, 1);
  CHECK_THROWS_AS(e.write(a, std::vector<float>{1, 2}), shape_error);
  CHECK_THROWS_AS(e.write(a, std::vector<double>{1, 2, 3}), shape_error);
  CHECK_THROWS_AS(e.read<float>(t), option_error);
  graph other(ipu::bow());
  const auto x = other.add_variable<float>("x", 3), y = other.add_variable<float>("y", 2);
  other.map(x, 0), other.map(y, 1);
  CHECK_THROWS_AS(engine(std::move(other), copy({x}, {y}), 1), shape_error);
}

}}  // namespace engine_test
