// expect one error: no kind of step computes this statement: one that is no assignment has a member
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

struct shuffle {
  using statement_tag = void;
  panel_matrix<float>* x;
};

void f(context& ctx, panel_matrix<float>& y) { run(ctx, shuffle{&y}); }
