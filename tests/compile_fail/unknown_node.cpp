// expect one error: no kind of step computes this node: it needs an overload, in its namespace, of lower_to
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

struct all_ones {
  using node_tag = void;
  using value_type = float;
  static constexpr domain laid_over = domain::panels;
  expr::extent size() const { return {}; }
};

void f(context& ctx, panel_matrix<float>& y) { run(ctx, y = all_ones{}); }
