// SPDX-License-Identifier: BSD-3-Clause
// Compiled for any CPU of its kind.
#include <cstdio>
#include <exception>

#include "total.hpp"

int main() try {
  std::printf("%g by %s\n", total_of_product(64, 0.25), total_of_product.instruction_set());
} catch (std::exception const& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
