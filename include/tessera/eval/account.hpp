// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/run.hpp>
#include <tessera/eval/steps.hpp>

// What the tiles of a run read, write and multiply: counted from the plan, nothing is computed.
//   bytes        of live features and tokens, and of whole blocks; once for each tile that touches them,
//                however often its kernel comes back to them. Indices are not counted.
//   multiplies   multiply-adds of products: of whole stored blocks, for live tokens

namespace tessera::inline TESSERA_ISA {

struct cost {
  std::int64_t bytes_read = 0, bytes_written = 0, multiplies = 0;

  cost& operator+=(cost const& other) {
    bytes_read += other.bytes_read;
    bytes_written += other.bytes_written;
    multiplies += other.multiplies;
    return *this;
  }
  friend bool operator==(cost const&, cost const&) = default;
};

/// One kernel call of a run.
struct task : cost {
  int stage;  // between two barriers
  int step;   // in the order of the program
  eval::work computes;
  int tile;  // of its step
};

struct workload {
  std::vector<task> tasks;  // stage by stage
  cost total;
};

namespace eval {

inline std::int64_t blocks_of(kernels::block_index const& index, share lines) {
  return index.blocks(lines.first, lines.last);
}

/// Those among them in some block columns.
inline std::int64_t blocks_in(kernels::block_index const& index, share lines, share columns) {
  std::int64_t count = 0;
  for (int line = lines.first; line < lines.last; ++line) {
    const auto all = index.line(line).all_columns();
    count += std::ranges::lower_bound(all, columns.last) - std::ranges::lower_bound(all, columns.first);
  }
  return count;
}

/// Rows of `lines` lines of some height that lie among the first `rows`.
inline std::int64_t rows_in(share lines, int height, std::int64_t rows) {
  return std::min<std::int64_t>(rows, std::int64_t(lines.last) * height) -
         std::min<std::int64_t>(rows, std::int64_t(lines.first) * height);
}

/// The bytes an elementwise expression reads at so many features and tokens, or stored values: its operands
/// from number `from` on, those that stand in it twice once.
inline std::int64_t bytes_read(step const& s, int from, std::int64_t features, std::int64_t tokens) {
  const auto same = [](operand const& a, operand const& b) {
    return a.owner == b.owner && a.base == b.base && a.offset == b.offset;
  };
  std::int64_t count = 0;
  for (int o = from; o < s.operands; ++o) {
    operand const& read = s.operand[o];
    if (std::any_of(s.operand + s.results, s.operand + o,
                    [&](operand const& other) { return same(other, read); }))
      continue;
    count += (read.form == domain::panels   ? features * tokens
              : read.form == domain::tokens ? tokens
                                            : features) *
             read.element_bytes;
  }
  return count;
}

/// Block rows of c = a·b.
inline cost cost_of_matrix_product(step const& s, share lines) {
  std::vector<char> read(std::size_t(s.second_index.blocks()), 0);
  std::int64_t products = 0;
  for (int line = lines.first; line < lines.last; ++line)
    for (const int k : s.index.line(line).all_columns()) {
      std::int64_t right = s.second_index.blocks_before(k);
      for (const int j : s.second_index.line(k).all_columns()) {
        if (std::ranges::binary_search(s.result_index.line(line).all_columns(), j)) {
          ++products;
          read[std::size_t(right)] = 1;
        }
        ++right;
      }
    }
  const std::int64_t height = s.block_rows, width = s.block_cols;
  const std::int64_t result = blocks_of(s.result_index, lines) * height * width;
  return {((blocks_of(s.index, lines) * height + std::ranges::count(read, 1) * width) * s.inner +
           (s.accumulates ? result : 0)) *
              s.element_bytes,
          result * s.element_bytes, products * height * s.inner * width};
}

/// One tile of a kind that is counted.
inline cost counted_cost(step const& s, tile const& t) {
  const std::int64_t panel = t.index / s.parts;
  const share lines_of_panel = lines_of(s, t.index % s.parts, s.parts), lines = lines_of(s, t.index, s.tiles);
  const std::int64_t block = std::int64_t(s.block_rows) * s.block_cols, size = s.element_bytes;
  switch (s.computes) {
    case work::product: {
      const std::int64_t rows = rows_in(lines_of_panel, s.block_rows, s.features),
                         tokens = s.tokens_of(panel);
      const std::int64_t weights = blocks_of(s.index, lines_of_panel) * block;
      return {weights * s.operand[2].element_bytes + s.inner * tokens * s.operand[1].element_bytes +
                  bytes_read(s, 3, rows, tokens),
              rows * tokens * size, weights * tokens};
    }
    case work::elementwise: {
      const std::int64_t rows = rows_in(lines_of_panel, granule, s.features), tokens = s.tokens_of(panel);
      return {bytes_read(s, 1, rows, tokens), rows * tokens * size, 0};
    }
    case work::reduction: {
      const std::int64_t features = rows_in(lines_of_panel, granule, s.features), tokens = s.tokens_of(panel);
      std::int64_t written = 0;
      for (int r = 0; r < s.results; ++r)
        written += (s.operand[r].form == domain::tokens ? tokens : features) * s.operand[r].element_bytes;
      return {bytes_read(s, s.results, features, tokens), written, 0};
    }
    case work::row_sum: {
      const std::int64_t first = std::int64_t(t.index) * features_a_tile;
      const std::int64_t features = std::min<std::int64_t>(features_a_tile, s.features - first);
      const std::int64_t written = features * size;
      return {features * s.panels() * s.operand[1].element_bytes + (s.accumulates ? written : 0), written, 0};
    }
    case work::values: {
      const std::int64_t count = std::min(values_a_tile, s.features - t.index * values_a_tile);
      return {bytes_read(s, 1, count, 1), count * size, 0};
    }
    case work::order: {
      const std::int64_t copied = blocks_of(s.index, lines) * block;
      return {copied * s.operand[1].element_bytes, copied * size, 0};
    }
    case work::sampled: {
      const share sampled_lines = lines_of(s, t.index / s.parts, s.tiles / s.parts);
      const share columns = columns_of(s, t.index % s.parts);
      const std::int64_t sums = blocks_in(s.index, sampled_lines, columns) * block;
      const std::int64_t rows = rows_in(sampled_lines, s.block_rows, s.features),
                         cols = rows_in(columns, s.block_cols, s.inner);
      return {(rows * s.operand[1].element_bytes + cols * s.operand[2].element_bytes) * s.tokens +
                  (s.accumulates ? sums * size : 0),
              sums * size, sums * s.tokens};
    }
    case work::matrix_product:
      return cost_of_matrix_product(s, lines);
    case work::other:
      break;
  }
  return {};
}

/// One tile. Steps of another kind are taken to touch each operand once, and tiles to have equal shares.
inline cost cost_of(step const& s, tile const& t) {
  if (s.computes == work::other) {
    const auto part = [&](std::int64_t all) {
      return all * (t.index + 1) / s.tiles - all * t.index / s.tiles;
    };
    cost c{0, 0, part(s.multiplies)};
    for (int o = 0; o < s.operands; ++o)
      (o < s.results ? c.bytes_written : c.bytes_read) += part(std::int64_t(s.operand[o].bytes));
    return c;
  }
  return counted_cost(s, t);
}

}  // namespace eval

/// The tasks that `run` would give to the threads of this context, and what each reads, writes and
/// multiplies. Throws what `run` would throw.
template <class... Statement> workload account(context& ctx, Statement const&... statement) {
  static_assert((runnable<Statement> && ...), "account takes what run takes: statements such as `y = w * x`");
  workload all;
  if constexpr ((runnable<Statement> && ...)) {
    eval::plan plan(ctx);
    (eval::lower(plan, statement), ...);
    plan.schedule();
    plan.for_each_tile([&](int stage, int step, eval::tile const& t) {
      eval::step const& s = plan.at(step);
      const cost c = eval::cost_of(s, t);
      all.tasks.push_back({c, stage, step, s.computes, t.index});
      all.total += c;
    });
  }
  return all;
}

}  // namespace tessera::inline TESSERA_ISA
