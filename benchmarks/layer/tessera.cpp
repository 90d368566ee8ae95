// SPDX-License-Identifier: BSD-3-Clause

#include <memory>
#include <optional>

#include <harness/operands.hpp>

#include <tessera/tessera.hpp>

// A linear layer forward and backward as users write it: y, dx and the gradient of the weights.

namespace bench { namespace {

template <class Block> struct linear_layer {
  context ctx;
  block_sparse_matrix<float, Block> w, g;
  panel_matrix<float> x, y, dy, dx;
  std::vector<std::pair<std::int32_t, std::int32_t>> places;

  explicit linear_layer(workload const& what)
      : ctx(what.threads),
        w(weights_of<Block>(what)),
        g(w),
        x(activation(what.k, what.n, 4)),
        y(what.m, what.n),
        dy(activation(what.m, what.n, 5)),
        dx(what.k, what.n),
        places(stored_places(w)) {}

  void train() {
    run(ctx, y = w * x);
    run(ctx, dx = transposed(w) * dy);
    run(ctx, g = sampled(dy * transposed(x)));
  }

  /// y, dx and the gradient one after the other.
  checked_value result(std::int64_t r) {
    const std::int64_t m = w.rows(), k = w.cols(), n = x.tokens();
    if (r < m * n)
      return beside_sum(
          y(r / n, r % n), k, [&](std::int64_t j) { return w(r / n, j); },
          [&](std::int64_t j) { return x(j, r % n); });
    r -= m * n;
    if (r < k * n)
      return beside_sum(
          dx(r / n, r % n), m, [&](std::int64_t i) { return w(i, r / n); },
          [&](std::int64_t i) { return dy(i, r % n); });
    const auto [i, j] = places[std::size_t(r - k * n)];
    return beside_sum(
        g(i, j), n, [&](std::int64_t t) { return dy(i, t); }, [&](std::int64_t t) { return x(j, t); });
  }
};

const registered here({"tessera", "layer", [](workload const& what) {
                         return with_block(what.block, [&]<class Block> {
                           auto p = std::make_shared<linear_layer<Block>>(what);
                           return std::optional(
                               job{3 * useful_flops(p->w, what.n), [p] { p->train(); },
                                   (what.m + what.k) * what.n + std::int64_t(p->places.size()),
                                   [p](std::int64_t r) { return p->result(r); }});
                         });
                       }});

}}  // namespace bench
