// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/graph/program.hpp>
#include <tessera/ipu/popsparse/static_plan.hpp>
#include <tessera/tensor/pattern.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

template <element T>
inline constexpr precision precision_of = sizeof(T) == 2 ? precision::half : precision::single;

namespace detail {

/// The rows [first, last) of a row-major matrix of n columns, at columns [n_first, n_last): one slice where
/// they are one behind the other.
void add_rows(std::vector<slice>& to, slice matrix, std::int64_t n, std::int64_t first, std::int64_t last,
              std::int64_t n_first, std::int64_t n_last);

/// out (rows x columns of a share) = blocks times x. Table: rows, then for each row the number of its blocks
/// and their columns among those of the share.
template <element T>
std::int64_t multiply_blocks(target const& on, ports const& p, int block, std::int64_t columns,
                             bool transposed_blocks) {
  const auto table = p.in<std::uint16_t>(0);
  const auto values = p.in<T>(1), x = p.in<T>(2);
  const auto y = p.out<T>(3);
  const auto b = std::size_t(block), n = std::size_t(columns);
  constexpr std::size_t most_columns = 64;  // of X at a time
  std::array<float, 16 * most_columns> sums;
  std::size_t at = 1, value = 0;
  const std::size_t rows = table[0];
  for (std::size_t r = 0; r < rows; ++r) {
    const std::size_t count = table[at];
    for (std::size_t begin = 0; begin < n; begin += most_columns) {
      const std::size_t width = std::min(most_columns, n - begin);
      std::fill_n(sums.begin(), b * width, 0.0f);
      for (std::size_t k = 0; k < count; ++k) {
        T const* const w = &values[value + k * b * b];
        T const* const rows_of_x = &x[table[at + 1 + k] * b * n + begin];
        for (std::size_t i = 0; i < b; ++i)
          for (std::size_t j = 0; j < b; ++j) {
            const auto factor = float(w[transposed_blocks ? j * b + i : i * b + j]);
            for (std::size_t q = 0; q < width; ++q)
              sums[i * width + q] += factor * float(rows_of_x[j * n + q]);
          }
      }
      for (std::size_t i = 0; i < b; ++i)
        for (std::size_t q = 0; q < width; ++q) y[(r * b + i) * n + begin + q] = T(sums[i * width + q]);
    }
    at += 1 + count, value += count * b * b;
  }
  const std::size_t blocks = value / (b * b);
  return codelets::static_multiply(on, std::int64_t(rows), std::int64_t(blocks), columns, block,
                                   precision_of<T>);
}

/// Gradients of a share's blocks: dy times x-transposed over the share's columns. Out: sums in float.
template <element T, class Out>
std::int64_t multiply_gradients(target const& on, ports const& p, int block, std::int64_t columns) {
  const auto table = p.in<std::uint16_t>(0);
  const auto dy = p.in<T>(1), x = p.in<T>(2);
  const auto out = p.out<Out>(3);
  const auto b = std::size_t(block), n = std::size_t(columns);
  std::size_t at = 1, value = 0, blocks = 0;
  for (std::size_t r = 0; r < table[0]; ++r)
    for (std::size_t count = table[at++]; count > 0; --count, ++blocks, value += b * b) {
      const std::size_t first = std::size_t(table[at++]) * b;
      for (std::size_t i = 0; i < b; ++i)
        for (std::size_t j = 0; j < b; ++j) {
          float sum = 0;
          for (std::size_t k = 0; k < n; ++k)
            sum += float(dy[(r * b + i) * n + k]) * float(x[(first + j) * n + k]);
          out[value + i * b + j] = Out(sum);
        }
    }
  return codelets::dynamic_weight_gradient(on, table[0], std::int64_t(blocks), columns, block,
                                           precision_of<T>, precision::single);
}

/// Adds vertices for the workers of each tile that holds a part of `to`: they share it in whole vectors, and
/// each adds up the same part of all of `from`, in order, in float.
template <class In, class Out>
void add_sum(graph& g, compute_set set, std::vector<slice> const& from, slice to) {
  constexpr std::int64_t wide = sizeof(In) == 2 ? 8 : 4;
  auto const& code = g.add_codelet([depth = from.size()](target const&, ports const& p) {
    const auto all = p.in<In>(0);
    const auto sums = p.out<Out>(1);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      float sum = 0;
      for (std::size_t d = 0; d < depth; ++d) sum += float(all[d * sums.size() + i]);
      sums[i] = Out(sum);
    }
    const auto loops = ceil_div(std::int64_t(sums.size()), wide);
    return 16 +
           loops * codelets::static_reduce_loop(std::int64_t(depth), precision_of<In>, precision_of<Out>);
  });
  g.for_each_interval(to, [&](std::size_t i, std::int64_t first, std::int64_t last) {
    const std::int64_t each = round_up(ceil_div(last - first, std::int64_t(g.on().workers)), wide);
    for (std::int64_t begin = first; begin < last; begin += each) {
      const std::int64_t end = std::min(last, begin + each);
      std::vector<slice> parts;
      for (slice const& s : from) parts.push_back(s.part(begin - to.first, end - to.first));
      g.add_vertex(set, g.at(to).mapping[i].tile, code,
                   {in(std::move(parts)), out(slice{to.variable, begin, end})}, runs_on::worker);
    }
  });
}

}  // namespace detail

/// The static product on a graph: Y = W X, and both of its gradients. Matrices are row-major.
///   values   blocks in the order of the plan: order[i] is the slot of block i. Where W is the transpose of
///            another matrix, they are that one's, and read transposed
template <element T> class static_product {
 public:
  /// With values of its own.
  static_product(graph& g, static_plan plan, pattern const& stored, std::string name)
      : static_product(g, std::move(plan), stored, std::move(name), slice{}, {}, false) {}

  static_plan const& plan() const { return plan_; }
  slice values() const { return values_; }
  /// Where block `slot` of the pattern is among the values.
  slice block(std::int64_t slot) const {
    const std::int64_t area = std::int64_t(plan_.block) * plan_.block;
    return values_.part(place_[std::size_t(slot)] * area, (place_[std::size_t(slot)] + 1) * area);
  }
  /// Values or gradients of blocks in the pattern's order, as the engine wants them, and back.
  template <class V> std::vector<V> in_order_of_plan(std::span<V const> by_slot) const {
    std::vector<V> all(by_slot.size());
    move_blocks(by_slot, std::span<V>(all), true);
    return all;
  }
  template <class V> std::vector<V> in_order_of_pattern(std::span<V const> by_plan) const {
    std::vector<V> all(by_plan.size());
    move_blocks(by_plan, std::span<V>(all), false);
    return all;
  }

  /// W-transposed times dY, on a plan for it, with the values of this product.
  static_product transposed(graph& g, static_plan plan, pattern const& transposed_pattern,
                            std::string name) const {
    std::vector<slice> source;
    transposed_pattern.for_each(
        [&](int i, int j, std::int64_t) { source.push_back(block(pattern_.find(j, i))); });
    return static_product(g, std::move(plan), transposed_pattern, std::move(name), values_, std::move(source),
                          true);
  }

  /// Y = W X. X is (k, n), Y (m, n).
  program multiply(graph& g, slice x, slice y) const {
    require_matrix("X", x, plan_.shape.k), require_matrix("Y", y, plan_.shape.m);
    const std::int64_t b = plan_.block, n = plan_.shape.n;
    const compute_set set = g.add_compute_set(name_ + ": multiply");
    struct partial {
      slice rows;  // of one row of blocks
      std::int64_t n_first, n_last;
    };
    std::vector<std::vector<partial>> of_row(std::size_t(pattern_.block_rows()));
    for (std::size_t i = 0; i < plan_.shares.size(); ++i) {
      static_share const& s = plan_.shares[i];
      const std::int64_t width = s.n_last - s.n_first, each = b * width;
      const slice sums = g.template add_variable<T>(
          name_ + ": partial sums", std::int64_t(lines_[i].rows.size()) * each, lifetime::temporary);
      g.map(sums, s.tile);
      for (std::size_t r = 0; r < lines_[i].rows.size(); ++r)
        of_row[std::size_t(lines_[i].rows[r])].push_back(
            {sums.part(std::int64_t(r) * each, std::int64_t(r + 1) * each), s.n_first, s.n_last});
      auto const& code =
          g.add_codelet([block = plan_.block, width, flipped = flipped_](target const& on, ports const& p) {
            return detail::multiply_blocks<T>(on, p, block, width, flipped);
          });
      g.add_vertex(set, s.tile, code,
                   {in(tables_[i]), in(values_of(s)), in(rows_of(x, lines_[i].columns, s)), out(sums)},
                   runs_on::tile, double((s.last - s.first) * b * b * width));
    }
    const compute_set reduce = g.add_compute_set(name_ + ": reduce");
    auto const& clear = g.add_codelet([](target const& on, ports const& p) {
      const auto to = p.template out<T>(0);
      std::fill(to.begin(), to.end(), T(0));
      return 10 + ceil_div<std::int64_t>(std::int64_t(to.size_bytes()), on.store_bytes_per_cycle);
    });
    for (std::size_t row = 0; row < of_row.size(); ++row) {
      auto& parts = of_row[row];
      const std::int64_t first = std::int64_t(row) * b;
      if (parts.empty()) {
        const slice rows = y.part(first * n, (first + b) * n);
        g.for_each_interval(rows, [&](std::size_t i, std::int64_t begin, std::int64_t end) {
          g.add_vertex(reduce, g.at(rows).mapping[i].tile, clear, {out(slice{rows.variable, begin, end})},
                       runs_on::worker);
        });
        continue;
      }
      std::sort(parts.begin(), parts.end(), [](partial const& a, partial const& c) {
        return a.n_first != c.n_first ? a.n_first < c.n_first : a.rows.variable < c.rows.variable;
      });
      for (std::size_t begin = 0, end; begin < parts.size(); begin = end) {
        for (end = begin; end < parts.size() && parts[end].n_first == parts[begin].n_first;) ++end;
        std::vector<slice> rows;
        detail::add_rows(rows, y, n, first, first + b, parts[begin].n_first, parts[begin].n_last);
        std::int64_t at = 0;
        for (slice const& row_of_y : rows) {
          std::vector<slice> sums;
          for (std::size_t i = begin; i < end; ++i)
            sums.push_back(parts[i].rows.part(at, at + row_of_y.size()));
          at += row_of_y.size();
          detail::add_sum<T, T>(g, reduce, sums, row_of_y);
        }
      }
    }
    return sequence({execute(set), execute(reduce)});
  }

  /// dvalues = dY X-transposed at the blocks of W, in the order of the plan, in float.
  program gradient_of_values(graph& g, slice dy, slice x, slice dvalues) const {
    require_matrix("dY", dy, plan_.shape.m), require_matrix("X", x, plan_.shape.k);
    if (dvalues.size() != values_.size())
      throw shape_error(message("[ipu::static_product] gradients of ", dvalues.size(), " values: there are ",
                                values_.size()));
    const std::int64_t area = std::int64_t(plan_.block) * plan_.block;
    const compute_set set = g.add_compute_set(name_ + ": gradient of values");
    std::vector<std::pair<std::int64_t, std::vector<slice>>> partials;  // by first block
    for (std::size_t i = 0; i < plan_.shares.size(); ++i) {
      static_share const& s = plan_.shares[i];
      const std::int64_t width = s.n_last - s.n_first;
      slice to = dvalues.part(s.first * area, s.last * area);
      if (plan_.n_parts > 1) {
        const slice whole = to;
        to = g.template add_variable<float>(name_ + ": partial gradients", whole.size(), lifetime::temporary);
        g.map(to, s.tile);
        auto known =
            std::find_if(partials.begin(), partials.end(), [&](auto const& p) { return p.first == s.first; });
        if (known == partials.end()) known = partials.insert(partials.end(), {s.first, {}});
        known->second.push_back(to);
      }
      auto const& code = g.add_codelet([block = plan_.block, width](target const& on, ports const& p) {
        return detail::multiply_gradients<T, float>(on, p, block, width);
      });
      g.add_vertex(
          set, s.tile, code,
          {in(tables_[i]), in(rows_of(dy, lines_[i].rows, s)), in(rows_of(x, lines_[i].columns, s)), out(to)},
          runs_on::tile, double((s.last - s.first) * area * width));
    }
    if (plan_.n_parts == 1) return execute(set);
    const compute_set reduce = g.add_compute_set(name_ + ": reduce gradients");
    for (auto const& [first, from] : partials) {
      const slice to = dvalues.part(first * area, first * area + from[0].size());
      detail::add_sum<float, float>(g, reduce, from, to);
    }
    return sequence({execute(set), execute(reduce)});
  }

 private:
  struct lines_of_share {
    std::vector<std::int32_t> rows, columns;
  };

  static_product(graph& g, static_plan plan, pattern const& stored, std::string name, slice values,
                 std::vector<slice> source, bool flipped)
      : plan_(std::move(plan)),
        pattern_(stored),
        name_(std::move(name)),
        source_(std::move(source)),
        flipped_(flipped),
        place_(plan_.order.size()) {
    const std::int64_t area = std::int64_t(plan_.block) * plan_.block;
    for (std::size_t i = 0; i < plan_.order.size(); ++i)
      place_[std::size_t(plan_.order[i])] = std::int64_t(i);
    values_ = values.variable >= 0
                  ? values
                  : g.template add_variable<T>(name_ + ": values", std::int64_t(plan_.order.size()) * area);
    std::vector<std::int32_t> row_of(plan_.order.size()), col_of(plan_.order.size());
    for (int i = 0; i < stored.block_rows(); ++i)
      for (std::int64_t slot = stored.first_slot(i); std::int32_t j : stored.row(i))
        row_of[std::size_t(slot)] = i, col_of[std::size_t(slot++)] = j;
    std::vector<std::int32_t> local(std::size_t(stored.block_cols()), -1);
    for (static_share const& s : plan_.shares) {
      lines_of_share lines;
      std::vector<std::uint16_t> words{0};
      std::size_t count = 0;
      for (std::int64_t i = s.first; i < s.last; ++i) {
        const auto slot = std::size_t(plan_.order[std::size_t(i)]);
        if (lines.rows.empty() || lines.rows.back() != row_of[slot]) {
          lines.rows.push_back(row_of[slot]);
          count = words.size();
          words.push_back(0);
        }
        ++words[count];
        auto& here = local[std::size_t(col_of[slot])];
        if (here < 0) here = std::int32_t(lines.columns.size()), lines.columns.push_back(col_of[slot]);
        words.push_back(std::uint16_t(here));
      }
      for (std::int32_t j : lines.columns) local[std::size_t(j)] = -1;
      words[0] = std::uint16_t(lines.rows.size());
      const slice table =
          g.template add_variable<std::uint16_t>(name_ + ": table", std::int64_t(words.size()));
      g.is_table(table), g.map(table, s.tile);
      g.initialise(table, std::span<std::uint16_t const>(words));
      tables_.push_back(table);
      lines_.push_back(std::move(lines));
      if (values.variable < 0 && plan_.n_parts == 1)
        g.map(values_.part(s.first * area, s.last * area), s.tile);
    }
    if (values.variable < 0 && plan_.n_parts > 1) g.map_linearly(values_, area);
  }

  std::vector<slice> values_of(static_share const& s) const {
    const std::int64_t area = std::int64_t(plan_.block) * plan_.block;
    if (source_.empty()) return {values_.part(s.first * area, s.last * area)};
    std::vector<slice> all;
    for (std::int64_t i = s.first; i < s.last; ++i)
      all.push_back(source_[std::size_t(plan_.order[std::size_t(i)])]);
    return all;
  }
  std::vector<slice> rows_of(slice matrix, std::vector<std::int32_t> const& lines,
                             static_share const& s) const {
    std::vector<slice> all;
    for (std::int32_t line : lines)
      detail::add_rows(all, matrix, plan_.shape.n, std::int64_t(line) * plan_.block,
                       std::int64_t(line + 1) * plan_.block, s.n_first, s.n_last);
    return all;
  }
  void require_matrix(char const* name, slice s, std::int64_t rows) const {
    if (s.size() != rows * plan_.shape.n)
      throw shape_error(message("[ipu::static_product] ", name, " has ", s.size(), " elements: ", rows, " x ",
                                plan_.shape.n, " are planned"));
  }
  template <class V> void move_blocks(std::span<V const> from, std::span<V> to, bool into_plan) const {
    const auto area = std::size_t(plan_.block) * std::size_t(plan_.block);
    if (from.size() != place_.size() * area)
      throw shape_error(message("[ipu::static_product] ", from.size(), " values: there are ", place_.size(),
                                " blocks of ", area));
    for (std::size_t slot = 0; slot < place_.size(); ++slot) {
      const std::size_t a = slot * area, b = std::size_t(place_[slot]) * area;
      std::copy_n(&from[into_plan ? a : b], area, &to[into_plan ? b : a]);
    }
  }

  static_plan plan_;
  pattern pattern_;
  std::string name_;
  slice values_;
  std::vector<slice> source_;  // of each slot, for a product that borrows its values
  bool flipped_;               // blocks are read transposed
  std::vector<std::int64_t> place_;
  std::vector<slice> tables_;
  std::vector<lines_of_share> lines_;
};

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY void add_rows(std::vector<slice>& to, slice matrix, std::int64_t n, std::int64_t first,
                           std::int64_t last, std::int64_t n_first, std::int64_t n_last) {
  if (n_first == 0 && n_last == n) {
    to.push_back(matrix.part(first * n, last * n));
    return;
  }
  for (std::int64_t r = first; r < last; ++r) to.push_back(matrix.part(r * n + n_first, r * n + n_last));
}

}  // namespace detail

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
