// SPDX-License-Identifier: BSD-3-Clause

#include <cstddef>
#include <memory>
#include <optional>

#include <harness/operands.hpp>

#include <tessera/eval/run.hpp>
#include <tessera/eval/steps.hpp>
#include <tessera/kernels/sampled_product.hpp>
#include <tessera/kernels/sampled_product_1x1.hpp>

// g += dy·xᵀ by the kernel alone: x has been regrouped before, as if for another gradient that uses it too.

namespace bench {
namespace {

template <class Block> struct product_only {
  using kernel = kernels::sampled_product<simd::native, float, Block>;
  using step = eval::sampled_step<simd::native, float, Block>;

  block_sparse_matrix<float, Block> g;
  panel_matrix<float> dy, x, grouped;
  aligned_array<std::byte> scratch;

  explicit product_only(workload const& what)
      : g(what.m, what.k, weights_of<Block>(what).stored()),
        dy(activation(what.m, what.n, 5)),
        x(activation(what.k, what.n, 4)),
        grouped(x),
        scratch(step::scratch_bytes(index(), x.stored_features())) {
    if constexpr (kernel::regroups)
      for (std::int64_t p = 0; p < x.panels(); ++p)
        kernel::regroup(x.panel(p), grouped.panel(p), x.stored_features());
  }

  kernels::line_index index() const { return eval::rows_of(g.stored()); }

  void run() {
    kernels::sampled_arguments<float> a{};
    a.index = index();
    a.a_stride = dy.panel_stride();
    a.b_stride = x.panel_stride();
    a.rows = dy.stored_features();
    a.cols = x.stored_features();
    a.values = g.data();
    a.first_line = 0;
    a.last_line = g.stored().block_rows();
    a.panels = int(x.panels());
    a.a = dy.data();
    a.grouped_b = grouped.data();
    a.scratch = scratch.data();
    kernel::run(a);
  }
};

const registered here({"tessera product only", "sampled", [](workload const& what) -> std::optional<job> {
                         if (what.threads > 1) return std::nullopt;
                         return with_block(what.block, [&]<class Block> {
                           auto p = std::make_shared<product_only<Block>>(what);
                           return std::optional(sampled_job(p, [q = p.get()] { q->run(); }));
                         });
                       }});

}  // namespace
}  // namespace bench
