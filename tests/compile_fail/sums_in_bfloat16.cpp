// expect one error: the table that tokens are summed into has the accumulator type
// SPDX-License-Identifier: BSD-3-Clause
#include <span>

#include <tessera/statements/embedding.hpp>
#include <tessera/statements/run.hpp>

using namespace tessera;

void f(context& ctx, dense_matrix<bfloat16>& gradient, panel_matrix<bfloat16> const& dy,
       std::span<std::int32_t const> ids) {
  run(ctx, scatter_rows(gradient, dy, ids));
}
