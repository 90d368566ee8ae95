// SPDX-License-Identifier: BSD-3-Clause

#include <cmath>
#include <memory>
#include <optional>

#include <harness/operands.hpp>

#include <tessera/tessera.hpp>

// y = V f(W x), f the GELU of nn::mlp: each panel of f(W x), m features, stays in the cache.

namespace bench { namespace {

template <class T, class Block> struct feed_forward {
  context ctx;
  block_sparse_matrix<T, Block> w, v;
  panel_matrix<T> x, y;
  explicit feed_forward(workload const& what)
      : ctx(what.threads),
        w(weights_of<Block, T>(what)),
        v(weights_of<Block, T>({"", what.k, what.m, 0, what.density})),
        x(activation<T>(what.k, what.n, 4)),
        y(what.k, what.n) {}

  void run() { tessera::run(ctx, y = v * converted<T>(apply<ops::gelu_polynomial>(w * x))); }

  /// The errors of the inner sums pass the GELU, whose slope is at most 1.13, and the outer sum.
  checked_value result(std::int64_t row, std::int64_t token) const {
    constexpr double u = unit_roundoff<float>, stored = std::is_same_v<T, float> ? 0 : unit_roundoff<T>;
    double sum = 0, error = 0, magnitude = 0;
    for (std::int64_t i = 0; i < w.rows(); ++i) {
      const auto weight = double(v(row, i));
      if (weight == 0) continue;
      const checked_value inner = beside_sum(
          0.f, w.cols(), [&](std::int64_t j) { return w(i, j); },
          [&](std::int64_t j) { return x(j, token); });
      const double z = inner.reference, h = .5 * z * std::erfc(-z / std::sqrt(2.0));
      sum += weight * h;
      error +=
          std::abs(weight) * (1.13 * inner.tolerance + 1e-6 + stored * (std::abs(h) + 1.13 * std::abs(z)));
      magnitude += std::abs(weight * h);
    }
    return {double(y(row, token)), sum, error + double(w.rows()) * u * magnitude + stored * std::abs(sum)};
  }
};

template <class T, class Block> job feed_forward_job(workload const& what) {
  auto p = std::make_shared<feed_forward<T, Block>>(what);
  return {useful_flops(p->w, what.n) + useful_flops(p->v, what.n), [p] { p->run(); }, what.k * what.n,
          [p, n = what.n](std::int64_t r) { return p->result(r / n, r % n); }};
}

const registered here({"tessera", "feed-forward", [](workload const& what) {
                         return with_element_and_block(what, [&]<class T, class Block> {
                           return std::optional(feed_forward_job<T, Block>(what));
                         });
                       }});

}}  // namespace bench
