// expect: the total of sum_tokens
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

double f(context& ctx, panel_matrix<float> const& x) { return total(ctx, sum_tokens(x)); }
