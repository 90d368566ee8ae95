// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/graph/program.hpp>
#include <tessera/ipu/popsparse/row_sums.hpp>
#include <tessera/ipu/popsparse/static_codelets.hpp>
#include <tessera/ipu/popsparse/static_plan.hpp>
#include <tessera/ipu/target.hpp>
#include <tessera/tensor/pattern.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// The static product on a graph: Y = W X, and both of its gradients. Matrices are row-major.
///   values   blocks in the order of the plan: order[i] is the slot of block i. Where W is the transpose of
///            another matrix, they are the other's, and read transposed
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
    const compute_set set = g.add_compute_set(name_ + ": multiply");
    std::vector<std::vector<partial_row>> sums = add_partial_sums(g, set, x);
    const compute_set reduce = g.add_compute_set(name_ + ": reduce");
    auto const& clear = g.add_codelet([](target const& on, ports const& p) {
      const auto to = p.template out<T>(0);
      std::fill(to.begin(), to.end(), T(0));
      return 10 + ceil_div<std::int64_t>(std::int64_t(to.size_bytes()), on.store_bytes_per_cycle);
    });
    for (std::size_t row = 0; row < sums.size(); ++row)
      if (sums[row].empty())
        add_clear(g, reduce, clear, rows_of_y(y, row));
      else
        add_reduction(g, reduce, row, std::move(sums[row]), y);
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
  struct partial_row {  // a share's sums of one row of blocks
    slice sums;
    std::int64_t n_first, n_last;
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
    const std::vector<detail::block_place> places = detail::places_of(stored);
    std::vector<std::int32_t> local(std::size_t(stored.block_cols()), -1);
    for (static_share const& s : plan_.shares) {
      lines_of_share lines;
      std::vector<std::uint16_t> words{0};
      std::size_t count = 0;
      for (std::int64_t i = s.first; i < s.last; ++i) {
        const auto [row, column] = places[std::size_t(plan_.order[std::size_t(i)])];
        if (lines.rows.empty() || lines.rows.back() != row) {
          lines.rows.push_back(row);
          count = words.size();
          words.push_back(0);
        }
        ++words[count];
        auto& here = local[std::size_t(column)];
        if (here < 0) here = std::int32_t(lines.columns.size()), lines.columns.push_back(column);
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

  /// Vertices that multiply each share's blocks, into a variable on its tile. Returns the sums by row.
  std::vector<std::vector<partial_row>> add_partial_sums(graph& g, compute_set set, slice x) const {
    const std::int64_t b = plan_.block;
    std::vector<std::vector<partial_row>> of_row(std::size_t(pattern_.block_rows()));
    for (std::size_t i = 0; i < plan_.shares.size(); ++i) {
      static_share const& s = plan_.shares[i];
      auto const& [rows, columns] = lines_[i];
      const std::int64_t width = s.n_last - s.n_first, each = b * width;
      const slice sums = g.template add_variable<T>(name_ + ": partial sums",
                                                    std::int64_t(rows.size()) * each, lifetime::temporary);
      g.map(sums, s.tile);
      for (std::size_t r = 0; r < rows.size(); ++r)
        of_row[std::size_t(rows[r])].push_back(
            {sums.part(std::int64_t(r) * each, std::int64_t(r + 1) * each), s.n_first, s.n_last});
      auto const& code =
          g.add_codelet([block = plan_.block, width, flipped = flipped_](target const& on, ports const& p) {
            return detail::multiply_blocks<T>(on, p, block, width, flipped);
          });
      g.add_vertex(set, s.tile, code,
                   {in(tables_[i]), in(values_of(s)), in(rows_of(x, columns, s)), out(sums)}, runs_on::tile,
                   double((s.last - s.first) * b * b * width));
    }
    return of_row;
  }
  /// Vertices that write zeros, on the tiles where `rows` are.
  static void add_clear(graph& g, compute_set set, codelet const& clear, slice rows) {
    g.for_each_interval(rows, [&](std::size_t i, std::int64_t begin, std::int64_t end) {
      g.add_vertex(set, g.at(rows).mapping[i].tile, clear, {out(slice{rows.variable, begin, end})},
                   runs_on::worker);
    });
  }
  /// Vertices that add up one row of blocks, for each part of n.
  void add_reduction(graph& g, compute_set set, std::size_t row, std::vector<partial_row> parts,
                     slice y) const {
    const std::int64_t first = std::int64_t(row) * plan_.block;
    std::sort(parts.begin(), parts.end(), [](partial_row const& a, partial_row const& c) {
      return a.n_first != c.n_first ? a.n_first < c.n_first : a.sums.variable < c.sums.variable;
    });
    for (std::size_t begin = 0, end; begin < parts.size(); begin = end) {
      for (end = begin; end < parts.size() && parts[end].n_first == parts[begin].n_first;) ++end;
      std::vector<slice> rows;
      detail::add_rows(rows, y, plan_.shape.n, first, first + plan_.block, parts[begin].n_first,
                       parts[begin].n_last);
      std::int64_t at = 0;
      for (slice const& row_of_y : rows) {
        std::vector<slice> sums;
        for (std::size_t i = begin; i < end; ++i)
          sums.push_back(parts[i].sums.part(at, at + row_of_y.size()));
        at += row_of_y.size();
        detail::add_sum<T, T>(g, set, sums, row_of_y);
      }
    }
  }
  /// The elements of Y that row `row` of blocks makes.
  slice rows_of_y(slice y, std::size_t row) const {
    const std::int64_t each = plan_.block * plan_.shape.n;
    return y.part(std::int64_t(row) * each, std::int64_t(row + 1) * each);
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

}}}  // namespace tessera::TESSERA_ISA::ipu
