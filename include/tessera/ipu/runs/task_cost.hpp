// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/exec/phase.hpp>
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/target.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu { namespace detail {

std::int64_t bytes_of_all(std::vector<exec::touched_bytes> const& all);

/// Cycles of a task on a tile: products by popsparse's formula, everything else by counted instructions.
std::int64_t cycles_of(target const& on, exec::task_description const& d, bool& estimated);

#ifdef TESSERA_BODY

TESSERA_BODY std::int64_t bytes_of_all(std::vector<exec::touched_bytes> const& all) {
  std::int64_t sum = 0;
  for (auto const& t : all) sum += t.all();
  return sum;
}

TESSERA_BODY std::int64_t cycles_of(target const& on, exec::task_description const& d, bool& estimated) {
  using namespace codelets;
  std::int64_t cycles = on.launch_cycles, in_blocks = 0;
  precision widest = precision::half;
  for (auto const& p : d.products) {
    const precision of = p.element_bytes <= 2 ? precision::half : precision::single;
    if (of == precision::single) widest = of;
    // Blocks of another size are multiplied as the largest square ones that fit in them.
    const int side = std::min(p.block_rows, p.block_cols);
    const int block = side >= 16 ? 16 : side >= 8 ? 8 : side >= 4 ? 4 : 1;
    const std::int64_t split = std::int64_t(p.block_rows) * p.block_cols / (block * block);
    cycles += static_multiply(on, std::max<std::int64_t>(1, p.rows * p.block_rows / block), p.blocks * split,
                              p.columns, block, of);
    in_blocks += p.blocks * p.block_rows * p.block_cols * p.columns;
  }
  if (d.products.empty()) widest = precision::single;
  if (const std::int64_t others = d.multiplies - in_blocks; others > 0) {
    // Attention, products of matrices: the multiplier at half of its speed.
    cycles += std::int64_t(double(others) * 4 / on.flops_per_cycle(widest)) + 30 * on.workers;
    estimated = true;
  }
  if (d.products.empty() || d.operations > 0) {
    const bool fused = !d.products.empty() || d.multiplies > 0;
    cycles += elementwise(on, d.operations, fused ? 0 : bytes_of_all(d.reads),
                          fused ? 0 : bytes_of_all(d.writes), widest);
    estimated = true;
  }
  return cycles;
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::ipu::detail
