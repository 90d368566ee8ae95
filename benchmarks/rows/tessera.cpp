// SPDX-License-Identifier: BSD-3-Clause

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <harness/operands.hpp>

#include <tessera/tessera.hpp>

// y = W·x with x and y as rows of tokens, the memory of PyTorch and NumPy.

namespace bench { namespace {

template <class T, class Block> struct product_of_rows {
  context ctx;
  block_sparse_matrix<T, Block> w;
  std::vector<T> in, out;
  token_rows<T const> x;
  token_rows<T> y;
  explicit product_of_rows(workload const& what)
      : ctx(what.threads),
        w(weights_of<Block, T>(what)),
        in(std::size_t(what.k * what.n)),
        out(std::size_t(what.m * what.n)),
        x(in.data(), what.n, what.k),
        y(out.data(), what.n, what.m) {
    copy(activation<T>(what.k, what.n, 4), transposed(row_major(in.data(), what.n, what.k)));
  }
};

template <class T, class Block> job rows_job(workload const& what) {
  auto p = std::make_shared<product_of_rows<T, Block>>(what);
  return {useful_flops(p->w, what.n), [p] { run(p->ctx, p->y = p->w * p->x); }, what.m * what.n,
          [p, n = what.n](std::int64_t r) {
            const std::int64_t i = r / n, t = r % n;
            return beside_sum(
                p->y(i, t), p->w.cols(), [&](std::int64_t j) { return p->w(i, j); },
                [&](std::int64_t j) { return p->x(j, t); });
          }};
}

const registered here({"tessera", "forward in rows", [](workload const& what) {
                         return with_element_and_block(what, [&]<class T, class Block> {
                           return std::optional(rows_job<T, Block>(what));
                         });
                       }});

}}  // namespace bench
