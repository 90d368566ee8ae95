// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/ipu/engine.hpp>

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

TEST_CASE("exchange: a tile receives 4 bytes a cycle, neighbours share, senders send once") {
  const target on = ipu::bow();
  const auto cycles = [&](std::vector<ipu::transfer> all) {
    return ipu::schedule_exchange(on, std::move(all)).cycles;
  };
  CHECK(cycles({{0, 100, 0, 0, 400}}) == 100);
  CHECK(cycles({{0, 100, 0, 0, 400}, {1, 101, 0, 0, 400}}) == 100);  // other data: side by side
  CHECK(cycles({{0, 100, 0, 0, 400}, {1, 100, 0, 0, 400}}) == 100);  // received in 50, sent in 100
  CHECK(cycles({{0, 100, 0, 0, 400}, {0, 102, 0, 400, 400}, {1, 100, 0, 0, 400}, {1, 102, 0, 400, 400}}) ==
        100);
  CHECK(cycles({{0, 100, 0, 0, 400}, {7, 100, 0, 0, 400}, {9, 100, 0, 0, 400}}) == 100);  // one broadcast
  const auto merged = ipu::schedule_exchange(on, {{0, 100, 0, 0, 40}, {0, 100, 40, 40, 60}});
  CHECK(merged.transfers.size() == 1);
  CHECK(merged.bytes == 100);
}

}}  // namespace engine_test
