// SPDX-License-Identifier: BSD-3-Clause

#include <memory>
#include <optional>

#include <harness/operands.hpp>

#include <tessera/tessera.hpp>

// g = dy·xᵀ at the blocks of g as users write it, the regrouping of x included.

namespace bench { namespace {

/// The gradient is kept in float.
template <class T, class Block> struct weight_gradient {
  context ctx;
  block_sparse_matrix<float, Block> g;
  panel_matrix<T> dy, x;
  explicit weight_gradient(workload const& what)
      : ctx(what.threads),
        g(weights_of<Block>(what)),
        dy(activation<T>(what.m, what.n, 5)),
        x(activation<T>(what.k, what.n, 4)) {}
};

const registered here({"tessera", "sampled", [](workload const& what) {
                         return with_product_element_and_block(what, [&]<class T, class Block> {
                           auto p = std::make_shared<weight_gradient<T, Block>>(what);
                           return std::optional(sampled_job(
                               p, [q = p.get()] { run(q->ctx, q->g = sampled(q->dy * transposed(q->x))); }));
                         });
                       }});

}}  // namespace bench
