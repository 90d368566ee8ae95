// expect: stack memory associated with local variable 'x'
// flags: -Werror=return-stack-address
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

auto first_half() {
  tessera::panel_matrix<float> x(64, 128);
  return tessera::slice_features(x, 0, 32);
}

int main() { first_half(); }
