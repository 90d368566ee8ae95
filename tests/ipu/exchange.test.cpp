// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/exchange.hpp>

namespace exchange_test { namespace {

using namespace tessera;
using ipu::target;

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

TEST_CASE("exchange: bytes, messages and cycles of a small schedule are those that are counted by hand") {
  // Tile 1 sends the same 16 bytes to tiles 0 and 2, tile 0 copies 48 bytes of its own, and nothing goes
  // to 3.
  const auto e = ipu::schedule_exchange(
      ipu::bow(), {{2, 1, 0, 8, 16}, {0, 0, 100, 200, 48}, {0, 1, 0, 0, 16}, {3, 1, 0, 0, 0}});
  CHECK(e.transfers.size() == 3);
  CHECK(e.bytes == 16 + 16);
  CHECK(e.messages_by_tile[0] == 1);
  CHECK(e.messages_by_tile[1] == 1);
  CHECK(e.messages_by_tile[2] == 1);
  CHECK(e.messages_by_tile[3] == 0);
  CHECK(e.cycles_by_tile[0] == 16 / 4 + (20 + 1) * 6);  // one load and store for each worker
  CHECK(e.cycles_by_tile[1] == 16 / 4);
  CHECK(e.cycles_by_tile[2] == 16 / 4);
  CHECK(e.cycles_by_tile[3] == 0);
  CHECK(e.cycles == 130);
  CHECK(e.first_of_tile[3] - e.first_of_tile[0] == 3);
  CHECK(e.waits());
}

TEST_CASE("exchange: copies within tiles wait for nobody") {
  const auto e = ipu::schedule_exchange(ipu::bow(), {{5, 5, 0, 64, 8}});
  CHECK(!e.empty());
  CHECK(!e.waits());
  CHECK(e.cycles == ipu::codelets::copy(ipu::bow(), 8));
}

}}  // namespace exchange_test
