// SPDX-License-Identifier: BSD-3-Clause

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <harness/operands.hpp>

#include <tessera/eval/run.hpp>
#include <tessera/eval/steps.hpp>
#include <tessera/kernels/sampled_product.hpp>
#include <tessera/kernels/sampled_product_1x1.hpp>

// g += dy·xᵀ by the kernel alone: x has been regrouped before.

namespace bench {
namespace {

template <class T, class Block> struct product_only {
  using types = kernels::sampled_types<T, T>;
  using kernel = kernels::sampled_product<simd::native, types, Block>;
  using step = eval::sampled_step<simd::native, types, Block>;
  static constexpr bool regroups = Block::elements > 1;

  block_sparse_matrix<float, Block> g;
  panel_matrix<T> dy, x;
  context one{1};
  eval::plan plan{one};
  aligned_array<std::byte> scratch;
  aligned_array<float> transpose_of_g;
  std::vector<aligned_array<std::byte>> memory;  // of what has been regrouped,
  std::vector<typename kernel::right> grouped;   // range by range, chunk by chunk

  explicit product_only(workload const& what)
      : g(what.m, what.k, weights_of<Block>(what).stored()),
        dy(activation<T>(what.m, what.n, 5)),
        x(activation<T>(what.k, what.n, 4)) {
    eval::lower(plan, g += sampled(dy * transposed(x)));
    transpose_of_g = aligned_array<float>(std::size_t(g.size()));
    scratch = aligned_array<std::byte>(kernel::scratch_bytes(plan.at(0).index, plan.at(0).depth));
    if constexpr (regroups)
      for_each_range([&](auto const& a) {
        for_each_chunk(a, [&](int panel) {
          memory.emplace_back(kernel::right::bytes(a.cols, kernel::panels_a_chunk));
          grouped.push_back(kernel::right_of(a, panel, memory.back().data()));
        });
      });
  }

  void for_each_range(auto visit) {
    for (int range = 0; range < plan.at(0).tiles; ++range) {
      auto a = step::arguments_of(plan.at(0), {range, scratch.data()});
      if (!a.values) a.values = transpose_of_g.data();  // the plan's own place for it comes when it is run
      visit(a);
    }
  }

  void for_each_chunk(auto const& a, auto visit) {
    kernel::prepare(a);
    for (int panel = 0; panel < a.panels; panel += kernel::panels_a_chunk) visit(panel);
  }

  void run() {
    auto now = grouped.begin();
    for_each_range([&](auto const& a) {
      if constexpr (regroups)
        for_each_chunk(a, [&](int panel) { kernel::multiply(a, panel, *now++); });
      else
        kernel::run(a);
      step::finish(plan.at(0), a);
    });
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
