// expect one error: the tokens of a sequence are read from several
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(context& ctx, panel_matrix<float>& y, panel_matrix<float>& x, sequences const& batch) {
  run(ctx, y = mean_tokens(relu(x), batch));
}
