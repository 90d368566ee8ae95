// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/runs/homes.hpp>
#include <tessera/ipu/runs/placement.hpp>
#include <tessera/ipu/runs/task_cost.hpp>

namespace placement_test { namespace {

using namespace tessera;
using exec::task_description, exec::touched_bytes;
using ipu::detail::charged, ipu::detail::homes, ipu::detail::placement;

constexpr std::uintptr_t base = 1 << 20;  // the begin of a page
touched_bytes bytes_at(std::uintptr_t at, std::int64_t bytes, std::int64_t count = 1,
                       std::int64_t stride = 0) {
  return {exec::memory::user, base + at, bytes, count, stride};
}
/// Pages from `base` on, and the bytes of each.
std::vector<std::pair<std::int64_t, std::int64_t>> pages_of(homes& h, touched_bytes const& t) {
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  h.for_each_page(t, [&](homes::page&, std::uint64_t key, std::int64_t bytes) {
    all.push_back({std::int64_t(key) - std::int64_t(base / homes::page_bytes), bytes});
  });
  return all;
}
ipu::target of_tiles(int tiles) {
  ipu::target t = ipu::bow();
  t.tiles = tiles;
  return t;
}
charged nothing_charged(std::size_t tiles) {
  charged c;
  c.exchange.assign(tiles, 0), c.buffers.assign(tiles, 0), c.scratch.assign(tiles, 0);
  return c;
}

using pages = std::vector<std::pair<std::int64_t, std::int64_t>>;

TEST_CASE("ipu homes: a task touches the pages of its bytes, neighbouring pieces of a page at once") {
  homes h(4);
  CHECK(pages_of(h, bytes_at(100, 300)) == pages{{0, 156}, {1, 144}});
  CHECK(pages_of(h, bytes_at(0, 8, 3, 512)) == pages{{0, 8}, {2, 8}, {4, 8}});
  CHECK(pages_of(h, bytes_at(0, 16, 8, 64)) == pages{{0, 64}, {1, 64}});
  CHECK(pages_of(h, bytes_at(0, 0)).empty());
  touched_bytes of_worker = bytes_at(0, 100);
  of_worker.owner = exec::memory::worker;
  CHECK(pages_of(h, of_worker).empty());
  touched_bytes of_run{exec::memory::run, 0, 100};
  CHECK(pages_of(h, of_run).size() == 1);
  CHECK(pages_of(h, of_run) != pages_of(h, bytes_at(0, 100)));
}

TEST_CASE("ipu homes: pages are held by their tiles until they are taken back") {
  homes h(4);
  const auto give = [&](touched_bytes const& t, int tile, bool tokens) {
    h.for_each_page(t,
                    [&](homes::page& p, std::uint64_t key, std::int64_t) { h.give(p, key, tile, tokens); });
  };
  const touched_bytes of_user = bytes_at(0, 512), of_run{exec::memory::run, 0, 256};
  give(of_user, 2, true), give(of_run, 3, false);
  CHECK(h.held(2) == 512);
  CHECK(h.of_tokens(2) == 512);
  CHECK(h.held(3) == 256);
  CHECK(h.of_tokens(3) == 0);
  for (int i = 0; i < 8; ++i) CHECK(h.held(std::size_t(h.emptier_tile())) <= (512 + 256) / 4);
  h.take_back(true);
  CHECK(h.held(2) == 512);
  CHECK(h.held(3) == 0);
  give(bytes_at(4096, 256), 1, false);
  h.take_back(false);
  CHECK(h.held(1) == 0);
  CHECK(h.held(2) == 512);  // given before the last time
}

TEST_CASE("ipu placement: tasks go to idle tiles, the most expensive first") {
  placement p(of_tiles(2));
  const std::vector<task_description> tasks(3);
  CHECK(p.place(tasks, {4, 8, 5}) == std::vector<int>{1, 0, 1});
  CHECK(p.place(std::vector<task_description>(2), {7, 7}) == std::vector<int>{0, 1});
}

TEST_CASE("ipu placement: a task goes where its result lives, unless another tile is done much earlier") {
  placement p(of_tiles(4));
  task_description writes, reads;
  writes.write(bytes_at(0, 256)), reads.read(bytes_at(0, 256));
  p.give_homes({writes}, {3});
  CHECK(p.place({writes}, {10}) == std::vector<int>{3});
  CHECK(p.place({reads}, {10}) == std::vector<int>{3});
  // 256 bytes are moved in 64 cycles: the second task waits for 60, and not for 70.
  CHECK(p.place({writes, writes}, {60, 60}) == std::vector<int>{3, 3});
  CHECK(p.place({writes, writes}, {70, 70}) == std::vector<int>{3, 0});
}

TEST_CASE("ipu placement: what is written lives with its writer, what is read is dealt to its readers") {
  placement p(of_tiles(4));
  task_description one, other;
  one.write(bytes_at(0, 256)), one.read(bytes_at(4096, 1024));
  other.write(bytes_at(256, 256)), other.read(bytes_at(4096, 1024));
  p.give_homes({one, other}, {1, 2});
  CHECK(p.memory.held(1) == 256 + 512);
  CHECK(p.memory.held(2) == 256 + 512);
  CHECK(p.bytes_from_elsewhere(one, 1) == 512);
  CHECK(p.bytes_from_elsewhere(one, 3) == 256 + 1024);
}

TEST_CASE("ipu placement: bytes exchanged for a small case are those that are counted by hand") {
  placement p(of_tiles(4));
  task_description first;
  first.write(bytes_at(0, 512));
  p.give_homes({first}, {0});
  // Tile 1 reads 300 bytes of two pages twice, and writes 40 bytes of tile 0's.
  task_description d;
  d.read(bytes_at(0, 300)), d.read(bytes_at(0, 300)), d.write(bytes_at(256, 40));
  d.write({exec::memory::worker, 0, 64});
  charged c = nothing_charged(4);
  p.exchange({d}, {{}, {0}, {}, {}}, c);
  CHECK(c.bytes == 300 + 40);
  CHECK(c.buffers[1] == 300 + 40);
  CHECK(c.scratch[1] == 64);
  CHECK(c.exchange[1] == 300 / 4);
  CHECK(c.exchange[0] == 300 / 4);  // to send 300 bytes takes longer than to receive 40
  CHECK(c.pieces == 1);
  charged at_home = nothing_charged(4);
  p.exchange({d}, {{0}, {}, {}, {}}, at_home);
  CHECK(at_home.bytes == 0);
  CHECK(at_home.exchange[0] == 0);
}

TEST_CASE("ipu placement: what is streamed arrives in pieces that fit") {
  ipu::target small = of_tiles(64);
  small.bytes_per_tile = 8192;
  placement p(small);
  task_description first, streams;
  first.write(bytes_at(0, 32768)), streams.read(bytes_at(0, 32768)), streams.streams = true;
  p.give_homes({first}, {0});
  charged c = nothing_charged(64);
  std::vector<std::vector<int>> tasks(64);
  tasks[1] = {0};
  p.exchange({streams}, tasks, c);
  CHECK(c.bytes == 32768 - p.memory.held(1));
  CHECK(c.pieces == ceil_div(c.bytes, c.buffers[1]));
  CHECK(c.buffers[1] + p.memory.held(1) <= small.bytes_per_tile);
}

TEST_CASE("ipu task cost: products by the formula of popsparse, other work by instructions, which is said") {
  const ipu::target on = ipu::bow();
  task_description d;
  bool estimated = false;
  d.multiply({3, 10, 64, 16, 16, 2});
  CHECK(ipu::detail::cycles_of(on, d, estimated) ==
        on.launch_cycles + ipu::codelets::static_multiply(on, 3, 10, 64, 16, ipu::precision::half));
  CHECK(!estimated);
  task_description wide;  // a block of 32 x 16 is two of 16 x 16
  wide.multiply({3, 10, 64, 32, 16, 4});
  CHECK(ipu::detail::cycles_of(on, wide, estimated) ==
        on.launch_cycles + ipu::codelets::static_multiply(on, 6, 20, 64, 16, ipu::precision::single));
  CHECK(!estimated);
  task_description elementwise;
  elementwise.read(bytes_at(0, 800)), elementwise.write(bytes_at(4096, 400)), elementwise.operations = 10;
  CHECK(ipu::detail::cycles_of(on, elementwise, estimated) == on.launch_cycles + 20 * 6 + 800 / 8 + 400 / 8);
  CHECK(estimated);
}

}}  // namespace placement_test
