// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/graph/program.hpp>
#include <tessera/ipu/popsparse/dense_plan.hpp>
#include <tessera/ipu/target.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

namespace detail {

/// sums (rows x columns) = w (rows x depth) x (depth x columns), summed in float.
template <element T, class Sum>
void multiply_dense(std::span<T const> w, std::span<T const> x, std::span<Sum> sums, std::size_t depth,
                    std::size_t columns) {
  constexpr std::size_t most_columns = 64;  // at a time
  std::array<float, most_columns> row;
  for (std::size_t i = 0; i * columns < sums.size(); ++i)
    for (std::size_t begin = 0; begin < columns; begin += most_columns) {
      const std::size_t width = std::min(most_columns, columns - begin);
      std::fill_n(row.begin(), width, 0.0f);
      for (std::size_t j = 0; j < depth; ++j) {
        const auto factor = float(w[i * depth + j]);
        T const* const row_of_x = &x[j * columns + begin];
        for (std::size_t q = 0; q < width; ++q) row[q] += factor * float(row_of_x[q]);
      }
      for (std::size_t q = 0; q < width; ++q) sums[i * columns + begin + q] = Sum(row[q]);
    }
}

}  // namespace detail

/// The dense product on a graph: Y = W X. X and Y are row-major, the matrices of the groups one behind the
/// other, and live where map_operand and map_result put them, or anywhere.
template <element T> class dense_product {
 public:
  dense_product(graph& g, dense_plan plan, product_shape const& shape, dense_options const& options,
                std::string name)
      : plan_(std::move(plan)), shape_(shape), options_(options), name_(std::move(name)) {
    values_ = g.template add_variable<T>(name_ + ": values", shape_.m * shape_.k * shape_.groups);
    if (is_streamed())
      g.map_linearly(values_, 8);
    else
      map_weights(g, values_);
  }

  dense_plan const& plan() const { return plan_; }
  /// W, in the order of in_order_of_plan.
  slice values() const { return values_; }
  /// Row-major values of W, group by group, part by part as the tiles take them.
  std::vector<T> in_order_of_plan(std::span<T const> row_major) const {
    if (std::int64_t(row_major.size()) != values_.size())
      throw shape_error(
          message("[ipu::dense_product] ", row_major.size(), " values: W has ", values_.size()));
    std::vector<T> all;
    all.reserve(row_major.size());
    for_each_part_of_weights([&](part const& p) {
      for (std::int64_t i = p.rows.first; i < p.rows.last; ++i) {
        const auto from = row_major.subspan(std::size_t((p.group * shape_.m + i) * shape_.k + p.inner.first));
        all.insert(all.end(), from.begin(), from.begin() + std::ptrdiff_t(p.inner.size()));
      }
    });
    return all;
  }

  /// Maps X to the tiles that share it: each holds as many of its rows as the others.
  void map_operand(graph& g, slice x) const {
    require_matrix("X", x, shape_.k);
    for (std::int64_t group = 0; group < shape_.groups; ++group)
      for (std::int64_t pk = 0; pk < plan_.k_parts; ++pk)
        for (std::int64_t pn = 0; pn < plan_.n_parts; ++pn) {
          const range inner = part_of(shape_.k, plan_.k_parts, pk), columns = columns_of(pn);
          const std::int64_t each = ceil_div(std::max<std::int64_t>(inner.size(), 1), plan_.m_parts);
          for (std::int64_t j = inner.first; columns.size() > 0 && j < inner.last; ++j)
            g.map(row_of(x, group, shape_.k, j, columns), tile(group, (j - inner.first) / each, pk, pn));
        }
  }
  /// Maps Y to the tiles that add up its partial sums.
  void map_result(graph& g, slice y) const {
    require_matrix("Y", y, shape_.m);
    for_each_result([&](std::int64_t group, std::int64_t pm, std::int64_t pn, range rows) {
      for (std::int64_t pk = 0; pk < plan_.k_parts; ++pk)
        for (slice const& s : share_of_result(y, group, rows, pn, pk)) g.map(s, tile(group, pm, pk, pn));
    });
  }

  /// Y = W X. X is (k, n), Y (m, n), for each group.
  program multiply(graph& g, slice x, slice y) const {
    require_matrix("X", x, shape_.k), require_matrix("Y", y, shape_.m);
    return options_.partials == precision::half && sizeof(T) == 2 ? multiply_with_sums<T>(g, x, y)
                                                                  : multiply_with_sums<float>(g, x, y);
  }

 private:
  struct range {
    std::int64_t first, last;
    std::int64_t size() const { return last - first; }
  };
  struct part {  // of W
    std::int64_t group, serial, pm, pk;
    range rows, inner;
    slice values_in(slice all) const { return all.part(begin, begin + rows.size() * inner.size()); }
    std::int64_t begin;  // among the values
  };

  bool is_streamed() const { return plan_.by == dense_plan::method::activations_stationary; }
  /// Neighbours want the same part of the operand that is streamed.
  int tile(std::int64_t group, std::int64_t pm, std::int64_t pk, std::int64_t pn) const {
    const std::int64_t outer = group * plan_.k_parts + pk;
    return int(is_streamed() ? (outer * plan_.m_parts + pm) * plan_.n_parts + pn
                             : (outer * plan_.n_parts + pn) * plan_.m_parts + pm);
  }
  static range part_of(std::int64_t size, std::int64_t parts, std::int64_t number) {
    const std::int64_t each = ceil_div(size, parts);
    return {std::min(size, number * each), std::min(size, (number + 1) * each)};
  }
  range columns_of(std::int64_t pn) const { return part_of(shape_.n, plan_.n_parts, pn); }
  range rows_of(std::int64_t serial, std::int64_t pm) const {
    const range whole = part_of(shape_.m, plan_.serial, serial);
    const std::int64_t each = ceil_div(ceil_div(shape_.m, plan_.serial), plan_.m_parts);
    return {std::min(whole.last, whole.first + pm * each),
            std::min(whole.last, whole.first + (pm + 1) * each)};
  }
  slice row_of(slice matrix, std::int64_t group, std::int64_t rows, std::int64_t row, range columns) const {
    const std::int64_t first = (group * rows + row) * shape_.n;
    return matrix.part(first + columns.first, first + columns.last);
  }

  template <class Visit> void for_each_part_of_weights(Visit&& visit) const {
    std::int64_t begin = 0;
    for (std::int64_t group = 0; group < shape_.groups; ++group)
      for (std::int64_t serial = 0; serial < plan_.serial; ++serial)
        for (std::int64_t pm = 0; pm < plan_.m_parts; ++pm)
          for (std::int64_t pk = 0; pk < plan_.k_parts; ++pk) {
            const part p{group, serial, pm, pk, rows_of(serial, pm), part_of(shape_.k, plan_.k_parts, pk),
                         begin};
            begin += p.rows.size() * p.inner.size();
            visit(p);
          }
  }
  /// Each part of W is shared by the tiles of all parts of n.
  void map_weights(graph& g, slice all) const {
    for_each_part_of_weights([&](part const& p) {
      const slice whole = p.values_in(all);
      for (std::int64_t pn = 0; pn < plan_.n_parts; ++pn) {
        const range own = part_of(whole.size(), plan_.n_parts, pn);
        g.map(whole.part(own.first, own.last), tile(p.group, p.pm, p.pk, pn));
      }
    });
  }
  template <class Visit> void for_each_result(Visit&& visit) const {
    for (std::int64_t group = 0; group < shape_.groups; ++group)
      for (std::int64_t serial = 0; serial < plan_.serial; ++serial)
        for (std::int64_t pm = 0; pm < plan_.m_parts; ++pm)
          for (std::int64_t pn = 0; pn < plan_.n_parts; ++pn)
            if (const range rows = rows_of(serial, pm); rows.size() > 0 && columns_of(pn).size() > 0)
              visit(group, pm, pn, rows);
  }
  /// The elements of part (rows, pn) of Y that tile pk of the tiles with partial sums adds up, row by row.
  std::vector<slice> share_of_result(slice y, std::int64_t group, range rows, std::int64_t pn,
                                     std::int64_t pk) const {
    const range columns = columns_of(pn), own = part_of(rows.size() * columns.size(), plan_.k_parts, pk);
    std::vector<slice> all;
    for (std::int64_t at = own.first; at < own.last;) {
      const std::int64_t i = at / columns.size(), from = at % columns.size(),
                         to = std::min(columns.size(), from + own.last - at);
      all.push_back(row_of(y, group, shape_.m, rows.first + i, columns).part(from, to));
      at += to - from;
    }
    return all;
  }

  template <class Sum> program multiply_with_sums(graph& g, slice x, slice y) const {
    std::vector<program> all;
    slice weights = values_;
    if (is_streamed()) {
      weights = g.template add_variable<T>(name_ + ": rearranged", values_.size(), lifetime::temporary);
      map_weights(g, weights);
      all.push_back(copy({values_}, {weights}, name_ + ": rearrange, exchange"));
      all.push_back(rearrange(g, weights));
    }
    std::vector<std::vector<part>> of_serial(std::size_t(plan_.serial));
    for_each_part_of_weights([&](part const& p) { of_serial[std::size_t(p.serial)].push_back(p); });
    for (auto const& parts : of_serial) {
      const compute_set set = g.add_compute_set(name_ + ": multiply"),
                        reduce = g.add_compute_set(name_ + ": reduce");
      std::vector<std::vector<slice>> sums(
          std::size_t(g.target().tiles));  // by the first of the tiles that add up
      for (part const& p : parts)
        for (std::int64_t pn = 0; pn < plan_.n_parts; ++pn) {
          const range columns = columns_of(pn);
          if (p.rows.size() == 0 || columns.size() == 0) continue;
          const slice own = g.template add_variable<Sum>(name_ + ": partial sums",
                                                         p.rows.size() * columns.size(), lifetime::temporary);
          const int here = tile(p.group, p.pm, p.pk, pn);
          g.map(own, here);
          std::vector<slice> rows_of_x;
          for (std::int64_t j = p.inner.first; j < p.inner.last; ++j)
            rows_of_x.push_back(row_of(x, p.group, shape_.k, j, columns));
          add_multiply<Sum>(g, set, here, p, weights, std::move(rows_of_x), own, columns.size());
          sums[std::size_t(tile(p.group, p.pm, 0, pn))].push_back(own);
        }
      for (part const& p : parts)
        for (std::int64_t pn = 0; pn < plan_.n_parts; ++pn)
          if (p.rows.size() > 0 && columns_of(pn).size() > 0)
            add_reduce<Sum>(g, reduce, p, pn, sums[std::size_t(tile(p.group, p.pm, 0, pn))], y);
      all.push_back(execute(set)), all.push_back(execute(reduce));
    }
    return sequence(std::move(all));
  }

  program rearrange(graph& g, slice weights) const {
    const compute_set set = g.add_compute_set(name_ + ": rearrange");
    auto const& code = g.add_codelet([](target const& on, ports const& f) {
      return codelets::copy(on, std::int64_t(f.out<std::byte>(0).size()));
    });
    g.for_each_interval(weights, [&](std::size_t i, std::int64_t first, std::int64_t last) {
      g.add_vertex(set, g.at(weights).mapping[i].tile, code, {out(weights.part(first, last))});
    });
    return execute(set);
  }

  template <class Sum>
  void add_multiply(graph& g, compute_set set, int here, part const& p, slice weights,
                    std::vector<slice> rows_of_x, slice own, std::int64_t columns) const {
    const std::int64_t rows = p.rows.size(), depth = p.inner.size();
    auto const& code = g.add_codelet([rows, depth, columns, by = plan_.by, partials = options_.partials](
                                         target const& on, ports const& f) {
      detail::multiply_dense(f.in<T>(0), f.in<T>(1), f.out<Sum>(2), std::size_t(depth), std::size_t(columns));
      return multiply_cycles(on, by, rows, depth, columns, precision_of<T>, partials);
    });
    g.add_vertex(set, here, code, {in(p.values_in(weights)), in(std::move(rows_of_x)), out(own)},
                 runs_on::tile, double(rows) * double(depth) * double(columns));
  }
  /// A tile adds its share of the partial sums of all parts of k, in order, in float.
  template <class Sum>
  void add_reduce(graph& g, compute_set set, part const& p, std::int64_t pn, std::vector<slice> const& sums,
                  slice y) const {
    const range own = part_of(sums[0].size(), plan_.k_parts, p.pk);
    if (own.size() == 0) return;
    std::vector<slice> from;
    for (slice const& s : sums) from.push_back(s.part(own.first, own.last));
    auto const& code =
        g.add_codelet([depth = sums.size(), partials = options_.partials](target const& on, ports const& f) {
          const auto terms = f.in<Sum>(0);
          const auto result = f.out<T>(1);
          for (std::size_t i = 0; i < result.size(); ++i) {
            float sum = 0;
            for (std::size_t d = 0; d < depth; ++d) sum += float(terms[d * result.size() + i]);
            result[i] = T(sum);
          }
          return codelets::reduce(on, std::int64_t(result.size()), std::int64_t(depth), partials,
                                  precision_of<T>);
        });
    g.add_vertex(set, tile(p.group, p.pm, p.pk, pn), code,
                 {in(std::move(from)), out(share_of_result(y, p.group, p.rows, pn, p.pk))});
  }

  void require_matrix(char const* what, slice s, std::int64_t rows) const {
    if (s.size() != rows * shape_.n * shape_.groups)
      throw shape_error(message("[ipu::dense_product] ", what, " has ", s.size(),
                                " elements: ", shape_.groups, " x ", rows, " x ", shape_.n, " are planned"));
  }

  dense_plan plan_;
  product_shape shape_;
  dense_options options_;
  std::string name_;
  slice values_;
};

}}}  // namespace tessera::TESSERA_ISA::ipu
