// SPDX-License-Identifier: BSD-3-Clause

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <harness/operands.hpp>

#include <tessera/statements/outer_products.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tessera.hpp>

// c = W·W, both sparse: with the pattern of c, which others find anew in each product, and without; row by
// row, and by outer products.

namespace bench { namespace {

template <class T, class Block> struct square_of_weights {
  context ctx;
  block_sparse_matrix<T, Block> w, c;
  explicit square_of_weights(workload const& what)
      : ctx(what.threads),
        w(weights_of<Block, T>(what)),
        c(what.m, what.k, product_pattern(w.pattern(), w.pattern())) {}
};

template <class T, class Block, class Compute> job square_job(workload const& what, Compute compute) {
  auto p = std::make_shared<square_of_weights<T, Block>>(what);
  return {pair_flops(p->w), [p, compute] { compute(*p); }, what.m * what.n,
          [p, n = what.n](std::int64_t r) {
            const std::int64_t i = r / n, j = r % n;
            return beside_sum(
                T(std::as_const(p->c)(i, j)), p->w.cols(),
                [&](std::int64_t k) { return T(std::as_const(p->w)(i, k)); },
                [&](std::int64_t k) { return T(std::as_const(p->w)(k, j)); });
          }};
}

template <class Compute> registered here(char const* name, Compute compute) {
  return registered({name, "sparse product", [compute](workload const& what) {
                       return with_element_and_block(what, [&]<class T, class Block> {
                         return std::optional(square_job<T, Block>(what, compute));
                       });
                     }});
}

const registered all[] = {
    here("tessera",
         [](auto& p) {
           p.c = {p.w.rows(), p.w.cols(), product_pattern(p.w.pattern(), p.w.pattern())};
           run(p.ctx, p.c = p.w * p.w);
         }),
    here("tessera product only", [](auto& p) { run(p.ctx, p.c = p.w * p.w); }),
    here("tessera by outer products", [](auto& p) { run(p.ctx, p.c = by_outer_products(p.w * p.w)); })};

}}  // namespace bench
