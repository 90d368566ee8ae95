// expect: keeps_zero, costly
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

struct cube {
  template <class V> V operator()(V x) const { return x * x * x; }
};

void f(context& ctx, panel_matrix<float>& y, panel_matrix<float> const& x) { run(ctx, y = apply<cube>(x)); }
