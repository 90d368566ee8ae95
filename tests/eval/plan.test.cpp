// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/eval/plan.hpp>

#ifdef XSIMD_VERSION_MAJOR
#error "a plan knows nothing of kernels"
#endif

#include <doctest/doctest.h>

// Scheduling, with steps made up for it: each writes a line in a log.

using namespace tessera;
using eval::cut;
using eval::footprint;
using eval::memory;
using eval::operand;

namespace {

/// Memory of some tiles of 64 bytes each.
struct region {
  std::array<std::byte, 4096> bytes{};
  operand by_tile() {
    return {std::uintptr_t(bytes.data()), 64, bytes.size(), memory::user, footprint::own_range};
  }
  operand all() {
    return {std::uintptr_t(bytes.data()), 0, bytes.size(), memory::user, footprint::everything};
  }
};

struct log_body {
  std::vector<std::string>* log;
  char name;
  void compute(eval::tile const& t) const noexcept {
    std::string line{name};
    line += std::to_string(t.index);
    if (t.parts > 1) line += "." + std::to_string(t.part);
    log->push_back(line);
  }
  void describe(eval::tile const&, exec::task_description& d) const { d.multiplies += name; }
};

struct made_up {
  char name;
  int tiles;
  std::vector<operand> writes, reads;
  cut by = cut::panels;
  eval::timing when = eval::timing::in_order;
  int most_parts = 1;
  eval::division divides = eval::division::if_uneven;
};

void add(eval::plan& p, std::vector<std::string>& log, made_up const& of) {
  eval::step_draft s("made up", of.by);
  s.tiles = of.tiles;
  s.when = of.when;
  s.most_parts = of.most_parts;
  s.divides = of.divides;
  for (operand const& o : of.writes) s.writes(o);
  for (operand const& o : of.reads) s.reads(o);
  p.add(s, log_body{&log, of.name});
}

/// The log of steps, in order, with `|` at barriers.
std::string order_of(eval::plan& p, std::vector<std::string> const& log) {
  context ctx(1);
  p.run(ctx);
  std::vector<int> phases;
  p.for_each_tile([&](int phase, int, int, eval::tile const&) { phases.push_back(phase); });
  REQUIRE(phases.size() == log.size());
  std::string all;
  for (std::size_t i = 0; i < log.size(); ++i) {
    if (i > 0) all += phases[i] != phases[i - 1] ? " | " : " ";
    all += log[i];
  }
  return all;
}
std::string order_of(std::vector<made_up> const& steps, int workers = 1) {
  std::vector<std::string> log;
  eval::plan p({workers});
  for (made_up const& s : steps) add(p, log, s);
  return order_of(p, log);
}

region a, b, c, d;

}  // namespace

TEST_CASE("plan: steps that pass a tile on are one chain, tile by tile") {
  CHECK(order_of({{'f', 2, {a.by_tile()}, {b.by_tile()}}, {'g', 2, {c.by_tile()}, {a.by_tile()}}}) ==
        "f0 g0 f1 g1");
}

TEST_CASE("plan: a step that looks at everything waits behind a barrier") {
  CHECK(order_of({{'f', 2, {a.by_tile()}, {b.by_tile()}}, {'g', 2, {c.by_tile()}, {a.all()}}}) ==
        "f0 f1 | g0 g1");
  // Also to write a tensor that others read.
  CHECK(order_of({{'f', 2, {c.by_tile()}, {a.all()}}, {'g', 2, {a.by_tile()}, {b.by_tile()}}}) ==
        "f0 f1 | g0 g1");
}

TEST_CASE("plan: steps that do not touch each other's results stand side by side") {
  CHECK(order_of({{'f', 2, {a.all()}, {b.all()}, cut::lines}, {'g', 2, {c.all()}, {b.all()}, cut::lines}}) ==
        "f0 f1 g0 g1");
}

TEST_CASE("plan: early steps come before what is carried together, late ones behind it") {
  CHECK(order_of({{'f', 2, {a.by_tile()}, {b.by_tile()}},
                  {'o', 1, {d.all()}, {}, cut::lines, eval::timing::early},
                  {'g', 2, {c.by_tile()}, {a.by_tile(), d.all()}}}) == "o0 | f0 g0 f1 g1");
  CHECK(order_of({{'f', 2, {a.by_tile()}, {b.by_tile()}},
                  {'s', 1, {d.all()}, {a.all()}, cut::lines, eval::timing::late},
                  {'g', 2, {c.by_tile()}, {a.by_tile()}}}) == "f0 g0 f1 g1 | s0");
  // Not beyond the step that reads its result.
  CHECK(order_of({{'s', 1, {d.all()}, {a.all()}, cut::lines, eval::timing::late},
                  {'g', 2, {c.by_tile()}, {d.all()}},
                  {'h', 2, {b.by_tile()}, {c.by_tile()}}}) == "s0 | g0 h0 g1 h1");
}

TEST_CASE("plan: a value in the worker's memory is computed by the task that uses it") {
  std::vector<std::string> log;
  eval::plan p({4});
  const operand here = p.worker_memory(64);
  add(p, log, {'v', 3, {here}, {a.by_tile()}, cut::panels, eval::timing::in_order, 8});
  add(p, log, {'w', 3, {b.by_tile()}, {here}});
  CHECK(order_of(p, log) == "v0 w0 v1 w1 v2 w2");
  eval::plan q({4});
  const operand gone = q.worker_memory(64);
  add(q, log, {'v', 3, {gone, b.by_tile()}, {a.by_tile()}});
  add(q, log, {'s', 1, {c.all()}, {b.all()}, cut::lines});
  add(q, log, {'w', 3, {d.by_tile()}, {gone, c.all()}});
  CHECK_THROWS_AS(q.schedule(), error);
}

TEST_CASE("plan: few panels are divided among the workers, and many only where that costs nothing") {
  CHECK(order_of({{'f', 1, {a.by_tile()}, {}, cut::panels, eval::timing::in_order, 3}}, 4) ==
        "f0.0 f0.1 f0.2");
  CHECK(order_of({{'f', 1, {a.by_tile()}, {}, cut::panels, eval::timing::in_order, 3, eval::division::never}},
                 4) == "f0");
  CHECK(order_of({{'f', 4, {a.by_tile()}, {}, cut::panels, eval::timing::in_order, 3}}, 4) == "f0 f1 f2 f3");
  CHECK(
      order_of({{'f', 2, {a.by_tile()}, {}, cut::panels, eval::timing::in_order, 2, eval::division::freely}},
               2) == "f0.0 f0.1 f1.0 f1.1");
}

namespace {
int entered = 0, left = 0, most_inside = 0;
constexpr exec::part_hook counting{[] { most_inside = std::max(most_inside, ++entered - left); },
                                   [] { ++left; }};
}  // namespace

TEST_CASE("plan: what an engine needs of a thread is done once around what the thread takes in a phase") {
  std::vector<std::string> log;
  eval::plan p({1});
  for (const char name : {'f', 'g'}) {
    eval::step_draft s("made up", cut::panels);
    s.tiles = 3;
    s.around = &counting;
    s.writes(name == 'f' ? a.by_tile() : b.by_tile());
    p.add(s, log_body{&log, name});
  }
  entered = left = most_inside = 0;
  context ctx(1);
  p.run(ctx);
  CHECK(log.size() == 6);
  CHECK(entered == 1);
  CHECK(left == 1);
  CHECK(most_inside == 1);
}

TEST_CASE("plan: steps without tiles are left out") {
  CHECK(order_of({{'e', 0, {a.by_tile()}, {}}, {'f', 1, {b.by_tile()}, {}}}) == "f0");
}

TEST_CASE("plan: more steps, operands or locals than there is room for are refused") {
  std::vector<std::string> log;
  eval::plan p({1});
  for (int i = 0; i < eval::plan::most_steps; ++i) add(p, log, {'f', 1, {a.by_tile()}, {}});
  CHECK_THROWS_WITH_AS(add(p, log, {'f', 1, {a.by_tile()}, {}}),
                       "[run] more than 40 steps in one run: split it in two", error);
  eval::plan q({1});
  const std::vector<operand> many(14, a.by_tile());
  CHECK_THROWS_WITH_AS(for (int i = 0; i < 40; ++i) add(q, log, {'f', 1, {}, many}),
                       "[run] more than 400 operands in one run: split it in two", error);
  eval::step_draft s("made up", cut::panels);
  CHECK_THROWS_AS(for (int i = 0; i < 1000; ++i) s.reads(a.by_tile()), error);
}
