// SPDX-License-Identifier: BSD-3-Clause

#include <memory>
#include <optional>

#include <harness/operands.hpp>

#include <tessera/statements/quantised.hpp>
#include <tessera/tessera.hpp>

// y = W·x as users write it.

namespace bench { namespace {

template <class T, class Block> struct forward_product {
  context ctx;
  block_sparse_matrix<T, Block> w;
  panel_matrix<T> x;
  panel_matrix<result_of<T>> y;
  explicit forward_product(workload const& what)
      : ctx(what.threads),
        w(weights_of<Block, T>(what)),
        x(activation<T>(what.k, what.n, 4)),
        y(what.m, what.n) {}
};

template <class T, class Block> job forward_job(workload const& what) {
  auto p = std::make_shared<forward_product<T, Block>>(what);
  return {useful_flops(p->w, what.n), [p] { run(p->ctx, p->y = p->w * p->x); }, what.m * what.n,
          [p, n = what.n](std::int64_t r) {
            const std::int64_t i = r / n, t = r % n;
            return beside_sum(
                p->y(i, t), p->w.cols(), [&](std::int64_t j) { return p->w(i, j); },
                [&](std::int64_t j) { return p->x(j, t); });
          }};
}

std::optional<job> prepare(workload const& what) {
  const auto job_of = [&]<class T, class Block> { return std::optional(forward_job<T, Block>(what)); };
  if (what.element == "int8")
    return with_block(what.block, [&]<class Block> { return job_of.template operator()<int8, Block>(); });
  return with_product_element_and_block(what, job_of);
}

// A dense matrix is one whose pattern stores every block.
const registered sparse({"tessera", "forward", prepare});
const registered dense({"tessera", "dense", prepare});

}}  // namespace bench
