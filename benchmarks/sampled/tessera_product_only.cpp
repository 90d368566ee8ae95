// SPDX-License-Identifier: BSD-3-Clause

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <harness/operands.hpp>
#include <harness/peak.hpp>

#include <tessera/eval/sampled.hpp>
#include <tessera/kernels/sampled_product.hpp>
#include <tessera/kernels/sampled_product_1x1.hpp>
#include <tessera/statements/run.hpp>

// g += dy·xᵀ by the kernel alone: x has been regrouped before.

namespace bench { namespace {

template <class T, class Block> struct product_only {
  // As the library chooses.
  static constexpr engine by =
      kernels::has_engine<engine::pairs, T, simd::native> ? engine::pairs : engine::fma;
  using types = kernels::sampled_types<T, T, by>;
  using kernel = kernels::sampled_product<simd::native, types, Block>;
  using body = eval::sampled_body<types, Block>;
  static constexpr bool regroups = Block::elements > 1;

  /// What one tile of the plan computes.
  struct part {
    aligned_array<std::byte> scratch;
    eval::tile tile;
    kernels::sampled_arguments<types> a;
  };
  struct chunk {
    aligned_array<std::byte> memory;
    typename kernel::right columns;
  };

  context ctx;
  block_sparse_matrix<float, Block> g;
  panel_matrix<T> dy, x;
  eval::plan plan{{ctx.concurrency()}};
  aligned_array<std::byte> run_memory;
  std::vector<part> parts;
  std::map<std::int32_t, std::vector<chunk>> regrouped;  // by the first column, for all ranges of lines

  explicit product_only(workload const& what)
      : ctx(what.threads),
        g(what.m, what.k, weights_of<Block>(what).pattern()),
        dy(activation<T>(what.m, what.n, 5)),
        x(activation<T>(what.k, what.n, 4)) {
    eval::lower_statement(plan, g += sampled(dy * transposed(x)));
    run_memory = aligned_array<std::byte>(g.size_bytes());
    for (int tile = 0; tile < plan.at(0).tiles; ++tile) {
      part& r = parts.emplace_back();
      r.scratch = aligned_array<std::byte>(product().scratch.bytes);
      r.tile = {tile, 0, 1, std::uintptr_t(r.scratch.data()), std::uintptr_t(run_memory.data())};
      r.a = product().arguments(r.tile);
      if constexpr (regroups) regroup(r.a);
    }
  }
  body const& product() const { return *reinterpret_cast<body const*>(plan.at(0).body); }

  void regroup(auto const& a) {
    auto& chunks = regrouped[a.first_col];
    if (!chunks.empty()) return;
    for (int panel = 0; panel < a.panels; panel += kernel::panels_a_chunk) {
      chunk& c = chunks.emplace_back();
      c.memory = aligned_array<std::byte>(kernel::right::bytes(a.cols, kernel::panels_a_chunk));
      c.columns = kernel::right_of(a, panel, c.memory.data());
    }
  }

  void run() {
    ctx.run(int(parts.size()), [&](int tile, std::byte*) {
      part const& r = parts[std::size_t(tile)];
      if constexpr (regroups) {
        kernel::prepare(r.a);
        int panel = 0;
        for (chunk const& c : regrouped.at(r.a.first_col)) {
          kernel::multiply(r.a, panel, c.columns);
          panel += kernel::panels_a_chunk;
        }
      } else {
        kernel::run(r.a);
      }
      product().finish(r.tile, r.a);
    });
  }
};

const registered here({"tessera product only", "sampled", [](workload const& what) -> std::optional<job> {
                         if (what.element == "bfloat16" && multiplies_by_amx())
                           return {};  // has no such part
                         return with_product_element_and_block(what, [&]<class T, class Block> {
                           auto p = std::make_shared<product_only<T, Block>>(what);
                           return std::optional(sampled_job(p, [q = p.get()] { q->run(); }));
                         });
                       }});

}}  // namespace bench
