// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>

#include <doctest/doctest.h>
#include <support/allocations.hpp>

#include <tessera/exec/context.hpp>

namespace allocation_test {

TEST_CASE("context: a run allocates nothing once scratch is reserved" *
          doctest::skip(!support::counts_allocations)) {
  for (int threads : {1, 2, 3}) {
    tessera::context ctx(threads, tessera::oversubscribe::allowed);
    const auto step = [&] {
      ctx.reserve_scratch(5000);
      ctx.shared_scratch(5000);
      ctx.run(100, [](int, std::byte* scratch) { *scratch = std::byte{1}; });
    };
    const long before_first = support::allocations();
    step();
    CHECK(support::allocations() > before_first);
    const long before_second = support::allocations();
    step();
    CHECK(support::allocations() == before_second);
  }
}

}  // namespace allocation_test
