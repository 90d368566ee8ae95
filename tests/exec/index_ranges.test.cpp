// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <atomic>
#include <climits>
#include <stdexcept>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/exec/index_ranges.hpp>

namespace index_ranges_test {

using tessera::ceil_div;
using tessera::exec::index_ranges;

std::vector<int> drained(index_ranges& ranges, int part) {
  std::vector<int> order;
  ranges.drain(part, [&](int index) { order.push_back(index); });
  return order;
}

TEST_CASE("index_ranges: a part is taken from its front and then the others from their back") {
  index_ranges ranges(3);
  CHECK(ranges.deal(9) == 3);
  CHECK(drained(ranges, 1) == std::vector<int>{3, 4, 5, 8, 7, 6, 2, 1, 0});
  CHECK(drained(ranges, 0).empty());
}

TEST_CASE("index_ranges: the sizes of the parts differ by at most one") {
  for (int parts : {1, 2, 3, 8})
    for (int count : {1, 2, 3, 7, 8, 9, 100}) {
      const int used = std::min(parts, count);
      std::vector<int> begins;
      for (int part = 0; part < used; ++part) {
        index_ranges ranges(parts);
        CHECK(ranges.deal(count) == used);
        begins.push_back(drained(ranges, part).front());
      }
      begins.push_back(count);
      CHECK(begins.front() == 0);
      for (std::size_t part = 1; part < begins.size(); ++part) {
        const int size = begins[part] - begins[part - 1];
        CHECK(size >= count / used);
        CHECK(size <= ceil_div(count, used));
      }
    }
}

TEST_CASE("index_ranges: the greatest count is dealt without overflow") {
  index_ranges ranges(3);
  CHECK(ranges.deal(INT_MAX) == 3);
  std::vector<int> first;
  const int done = ranges.drain(2, [&](int index) {
    first.push_back(index);
    if (first.size() == 2) throw std::runtime_error("enough");
  });
  CHECK(first == std::vector<int>{1431655764, 1431655765});
  CHECK(done == INT_MAX);
  CHECK_THROWS_WITH(ranges.rethrow_failure(), "enough");
}

TEST_CASE("index_ranges: after a failure the remaining indices are counted but not run") {
  index_ranges ranges(2);
  ranges.deal(10);
  int calls = 0;
  const int done = ranges.drain(0, [&](int index) {
    ++calls;
    if (index == 2) throw std::runtime_error("index 2");
  });
  CHECK(calls == 3);
  CHECK(done == 10);
  CHECK(drained(ranges, 1).empty());
  CHECK_THROWS_WITH(ranges.rethrow_failure(), "index 2");
  CHECK_NOTHROW(ranges.rethrow_failure());
  ranges.deal(4);
  CHECK(drained(ranges, 0) == std::vector<int>{0, 1, 3, 2});
}

TEST_CASE("index_ranges: a run that was not carried out leaves nothing to the next") {
  index_ranges ranges(3);
  ranges.deal(9);
  ranges.drain(0, [](int) { throw std::runtime_error("old"); });
  ranges.deal(9);
  CHECK(ranges.deal(1) == 1);
  CHECK(drained(ranges, 2) == std::vector<int>{0});
  CHECK_NOTHROW(ranges.rethrow_failure());
}

TEST_CASE("sole_entry: a place is occupied until the first entry ends") {
  std::atomic<bool> occupied{false};
  {
    const tessera::exec::sole_entry first(occupied);
    CHECK(bool(first));
    {
      CHECK_FALSE(bool(tessera::exec::sole_entry(occupied)));
    }
    CHECK_FALSE(bool(tessera::exec::sole_entry(occupied)));
  }
  CHECK(bool(tessera::exec::sole_entry(occupied)));
}

}  // namespace index_ranges_test
