// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <simd/archs.hpp>

#include <tessera/core/config.hpp>
#include <tessera/kernels/register_block.hpp>

using namespace tessera;

namespace {

/// What the kernels take for granted of the table.
template <class T, class Arch> constexpr void check_table() {
  using sizes = kernels::register_block<T, Arch>;
  constexpr int lanes = simd::lanes<T, Arch>, file = sizes::wide ? 32 : 16;
  static_assert(panel_tokens % (sizes::registers * lanes) == 0, "a panel is cut into whole tiles");
  static_assert(panel_tokens % sizes::rows == 0, "a panel of keys is cut into whole rows of tiles");
  static_assert(granule % sizes::rows == 0, "and so are stored features");
  static_assert(sizes::rows % 2 == 0, "features that share a lane are in one tile");
  static_assert(sizes::rows * sizes::registers + sizes::registers + 1 <= file,
                "accumulators, a row of x and an element of W fit the registers");
  static_assert(sizes::chunk_features % granule == 0 && sizes::chunk_features > 0);
  static_assert(sizes::line_bytes < sizes::chunk_bytes && sizes::chunk_bytes < sizes::whole_panel_bytes);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("register_block: tiles fit the registers and divide panels and granules", Arch,
                          table) {
  check_table<float, Arch>();
  check_table<double, Arch>();
}
TEST_CASE_TEMPLATE_APPLY(table, support::archs);

TEST_CASE("register_block: the divisor is the largest power of two up to the limit") {
  for (int limit = 1; limit <= 64; limit *= 2)
    for (int size = 1; size <= 100; ++size) {
      int largest = 1;
      for (int d = 1; d <= limit; d *= 2)
        if (size % d == 0) largest = d;
      CHECK(kernels::power_of_two_divisor(limit, size) == largest);
    }
}
