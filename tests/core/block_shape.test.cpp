// SPDX-License-Identifier: BSD-3-Clause
#include <type_traits>

#include <doctest/doctest.h>

#include <tessera/core/block_shape.hpp>

namespace block_shape_test {

using namespace tessera;

TEST_CASE("block_shape: one number makes a square") {
  CHECK(std::is_same_v<block_shape<8>, block_shape<8, 8>>);
}

TEST_CASE("block_shape: elements are rows times columns") {
  CHECK(block_shape<1>::elements == 1);
  CHECK(block_shape<16>::elements == 256);
  CHECK(block_shape<2, 5>::rows == 2);
  CHECK(block_shape<2, 5>::cols == 5);
  CHECK(block_shape<2, 5>::elements == 10);
}

}  // namespace block_shape_test
