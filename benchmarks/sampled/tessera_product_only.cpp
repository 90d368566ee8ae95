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

template <class T, class Block> struct product_only {
  using types = kernels::sampled_types<T, T>;
  using kernel = kernels::sampled_product<simd::native, types, Block>;

  block_sparse_matrix<float, Block> g;
  panel_matrix<T> dy, x;
  aligned_array<typename types::lane> grouped;
  aligned_array<std::byte> scratch;

  explicit product_only(workload const& what)
      : g(what.m, what.k, weights_of<Block>(what).stored()),
        dy(activation<T>(what.m, what.n, 5)),
        x(activation<T>(what.k, what.n, 4)),
        grouped(std::size_t(x.panels() * b_stride())),
        scratch(kernel::scratch_bytes(index(), x.stored_features())) {
    if constexpr (kernel::regroups)
      for (std::int64_t p = 0; p < x.panels(); ++p)
        kernels::regroup<kernel::columns, simd::native>(x.panel(p), grouped.data() + p * b_stride(),
                                                        x.stored_features());
  }
  std::int64_t b_stride() const { return x.stored_features() * types::row; }

  kernels::line_index index() const { return eval::rows_of(g.stored()); }

  void run() {
    kernels::sampled_arguments<types> a{};
    a.index = index();
    a.a_stride = dy.panel_stride();
    a.b_stride = b_stride();
    a.rows = dy.stored_features();
    a.cols = x.stored_features();
    a.values = g.data();
    a.first_line = 0;
    a.last_line = g.stored().block_rows();
    a.panels = int(x.panels());
    a.a = dy.data();
    if constexpr (kernel::regroups)
      a.grouped_b = grouped.data();
    else
      a.grouped_b = x.data();
    a.scratch = scratch.data();
    kernel::run(a);
  }
};

const registered here({"tessera product only", "sampled", [](workload const& what) -> std::optional<job> {
                         if (what.threads > 1) return std::nullopt;
                         return with_element_and_block(what, [&]<class T, class Block> {
                           auto p = std::make_shared<product_only<T, Block>>(what);
                           return std::optional(sampled_job(p, [q = p.get()] { q->run(); }));
                         });
                       }});

}  // namespace
}  // namespace bench
