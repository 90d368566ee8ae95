// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <memory>
#include <optional>

#include <harness/operands.hpp>

#include <tessera/eval/steps.hpp>
#include <tessera/kernels/sampled_product.hpp>

// g += dy·xᵀ by the kernel alone: x has been regrouped before, as if for another gradient that uses it too.

namespace bench {
namespace {

template <class Block> struct product_only {
  using kernel = kernels::sampled_product<simd::native, float, Block>;
  using step = eval::sampled_step<simd::native, float, Block>;

  block_sparse_matrix<float, Block> g;
  panel_matrix<float> dy, x, grouped;

  explicit product_only(workload const& what)
      : g(what.m, what.k, weights_of<Block>(what).stored()),
        dy(activation(what.m, what.n, 5)),
        x(activation(what.k, what.n, 4)),
        grouped(x) {
    if constexpr (kernel::regroups)
      for (std::int64_t p = 0; p < x.panels(); ++p)
        kernel::regroup(x.panel(p), grouped.panel(p), x.stored_features());
  }

  void run() {
    const pattern& stored = g.stored();
    kernels::sampled_arguments<float> a{};
    a.index = {stored.is_dense() ? nullptr : stored.row_start().data(), stored.cols().data(), nullptr,
               stored.block_rows(), stored.block_cols()};
    a.a_stride = dy.panel_stride();
    a.b_stride = x.panel_stride();
    a.rows = dy.stored_features();
    a.cols = x.stored_features();
    a.values = g.data();
    a.first_line = 0;
    a.last_line = stored.block_rows();
    const auto panel_bytes = std::size_t(a.b_stride) * sizeof(float);
    const auto chunk =
        std::int64_t(std::clamp<std::size_t>(step::chunk_bytes / panel_bytes, 1, step::most_panels_a_chunk));
    for (std::int64_t p = 0; p < x.panels(); p += chunk) {
      a.panels = int(std::min(chunk, x.panels() - p));
      a.a = dy.panel(p);
      a.grouped_b = grouped.panel(p);
      kernel::run(a);
    }
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
