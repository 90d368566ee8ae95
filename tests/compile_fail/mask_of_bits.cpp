// expect one error: take std::vector<char>
// SPDX-License-Identifier: BSD-3-Clause
#include <vector>

#include <tessera/tessera.hpp>

using namespace tessera;

auto f(std::vector<bool> const& mask) { return pattern_from_mask(8, 8, mask); }
