// expect one error: then std::copy to b.begin
// SPDX-License-Identifier: BSD-3-Clause
#include <vector>

#include <tessera/tessera.hpp>

using namespace tessera;

auto f(std::vector<float> const& values) { return feature_vector<float>(values); }
