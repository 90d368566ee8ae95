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
#include <tessera/ipu/graph/engine.hpp>
#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/graph/program.hpp>
#include <tessera/ipu/popsparse/bucket_travel.hpp>
#include <tessera/ipu/popsparse/buckets.hpp>
#include <tessera/ipu/popsparse/dynamic_codelets.hpp>
#include <tessera/ipu/popsparse/dynamic_plan.hpp>
#include <tessera/ipu/popsparse/row_sums.hpp>
#include <tessera/ipu/target.hpp>
#include <tessera/tensor/pattern.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// The dynamic product on a graph: Y = W X, and both of its gradients, for any pattern of at most the planned
/// blocks, which new buckets replace while the machine runs. Matrices are row-major, and the groups have
/// theirs one behind the other.
template <element T> class dynamic_product {
 public:
  dynamic_product(graph& g, dynamic_plan plan, std::string name)
      : plan_(std::move(plan)), name_(std::move(name)) {
    const std::int64_t area = std::int64_t(plan_.block) * plan_.block;
    words_ = plan_.bucket_words, numbers_ = plan_.bucket_blocks * area;
    tables_ = of_tiles<std::uint16_t>(g, "tables", words_, lifetime::kept);
    g.is_table(tables_);
    values_ = of_tiles<T>(g, "values", numbers_, lifetime::kept);
    travel_ = detail::bucket_travel(g, plan_, name_);
  }

  dynamic_plan const& plan() const { return plan_; }
  slice values() const { return values_; }

  /// Sends a pattern and its values to the machine.
  void write(engine& to, buckets<T> const& b) const {
    to.write(tables_, b.tables), to.write(values_, b.values);
    to.write(travel_.steps(), std::vector<std::int32_t>{b.steps});
  }
  void write(engine& to, pattern const& stored, std::vector<T> const& by_slot) const {
    write(to, fill_buckets<T>(plan_, stored, std::span<T const>(by_slot)));
  }
  pattern_and_values<T> read(engine& from, std::int64_t group = 0) const {
    const auto tables = from.read<std::uint16_t>(tables_);
    const auto values = from.read<T>(values_);
    return empty_buckets<T, T>(plan_, tables, values, group);
  }
  /// Gradients, by slot of the pattern whose buckets the machine has.
  std::vector<float> read_gradients(engine& from, slice dvalues, std::int64_t group = 0) const {
    const auto tables = from.read<std::uint16_t>(tables_);
    const auto all = from.read<float>(dvalues);
    return empty_buckets<float, float>(plan_, tables, all, group).values;
  }
  /// A variable with a gradient in float for each value of the buckets.
  slice add_gradients(graph& g) const { return of_tiles<float>(g, "gradients", numbers_, lifetime::kept); }

  /// Y = W X. X is (k, n), Y (m, n), for each group.
  program multiply(graph& g, slice x, slice y) const { return product(g, x, y, false); }
  /// dX = W-transposed dY, from the same buckets.
  program gradient_of_activations(graph& g, slice dy, slice dx) const { return product(g, dy, dx, true); }

  /// dvalues = dY X-transposed at the blocks of the buckets.
  program gradient_of_values(graph& g, slice dy, slice x, slice dvalues) const {
    require_matrix("dY", dy, plan_.shape.m), require_matrix("X", x, plan_.shape.k);
    const std::array travelling{of_tiles<float>(g, "travelling gradients", numbers_, lifetime::temporary),
                                of_tiles<float>(g, "travelling gradients", numbers_, lifetime::temporary)};
    const std::array tables{travelling_tables(g), travelling_tables(g)};
    const auto compute = [&](char const* what, slice table, slice to) {
      std::vector<program> all;
      for (std::int64_t z = 0; z < plan_.z; ++z) {
        const compute_set set = g.add_compute_set(name_ + what);
        plan_.for_each_tile([&](std::int64_t group, std::int64_t px, std::int64_t py, std::int64_t pz) {
          const int tile = plan_.tile(group, px, py, pz);
          const std::int64_t width = columns(z).second - columns(z).first;
          auto const& code = g.add_codelet([p = plan_, px, py, width](target const& on, ports const& f) {
            return detail::gradients_of_bucket<T>(on, f, p, int(px), int(py), width);
          });
          g.add_vertex(
              set, tile, code,
              {in(detail::slice_of_tile(table, tile, words_)), in(part_rows(dy, group, px, z, false)),
               in(part_rows(x, group, py, z, true)), out(detail::slice_of_tile(to, tile, numbers_))},
              runs_on::tile, double(numbers_) * double(width) / (1 + plan_.options.oversize));
        });
        all.push_back(execute(set));
      }
      return sequence(std::move(all));
    };
    const program clear = clear_floats(g, dvalues, numbers_, ": clear gradients");
    const program at_home = compute(": gradient of values", tables_, dvalues);
    const program on_first = compute(": gradients of values that travel", tables[0], travelling[0]);
    const program on_second = compute(": gradients of values that travel", tables[1], travelling[1]);
    const detail::travel_buffers through{
        {tables_, dvalues}, {tables[0], travelling[0]}, {tables[1], travelling[1]}};
    return sequence(
        {clear, at_home, travel_.there(g, through, on_first, on_second), travel_.back(g, through)});
  }

  /// Rows of W by number, dense: out (ids, k) = the rows `ids` of W (m, k), 32-bit numbers. popsparse's
  /// embedding, groups 1.
  program gather_rows(graph& g, slice ids, slice result) const {
    require_one_group();
    const std::int64_t count = ids.size(), k = plan_.shape.k, b = plan_.block;
    if (result.size() != count * k)
      throw shape_error(message("[ipu::dynamic_product] ", count, " rows of ", k, " columns: the result has ",
                                result.size()));
    const std::int64_t width = plan_.columns_each() * b;
    const compute_set set = g.add_compute_set(name_ + ": gather rows");
    std::vector<std::vector<slice>> found(std::size_t(plan_.y));
    plan_.for_each_tile([&](std::int64_t group, std::int64_t px, std::int64_t py, std::int64_t pz) {
      const int tile = plan_.tile(group, px, py, pz);
      const slice rows = g.template add_variable<T>(
          name_ + ": rows found", count * std::min(width, k - py * width), lifetime::temporary);
      g.map(rows, tile);
      found[std::size_t(py)].push_back(rows);
      auto const& code = g.add_codelet([p = plan_, py](target const& on, ports const& f) {
        return detail::rows_of_bucket<T>(on, f, p, int(py));
      });
      g.add_vertex(set, tile, code,
                   {in(detail::slice_of_tile(tables_, tile, words_)),
                    in(detail::slice_of_tile(values_, tile, numbers_)), in(ids), out(rows)});
    });
    const compute_set sum = g.add_compute_set(name_ + ": add rows found");
    for (std::int64_t py = 0; py < plan_.y; ++py)
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t begin = py * width, here = std::min(width, k - begin);
        std::vector<slice> parts;
        for (slice const& s : found[std::size_t(py)]) parts.push_back(s.part(i * here, (i + 1) * here));
        if (here > 0) detail::add_sum<T, T>(g, sum, parts, result.part(i * k + begin, i * k + begin + here));
      }
    return sequence({execute(set), execute(sum)});
  }
  /// W(ids, stored blocks) += scale * rows (ids, k): the update of an embedding.
  program add_to_rows(graph& g, slice ids, slice rows, float scale) const {
    require_one_group();
    const std::int64_t count = ids.size(), k = plan_.shape.k;
    if (rows.size() != count * k)
      throw shape_error(message("[ipu::dynamic_product] ", count, " rows of ", k, " columns: ", rows.size(),
                                " elements are given"));
    const compute_set set = g.add_compute_set(name_ + ": add to rows");
    plan_.for_each_tile([&](std::int64_t group, std::int64_t px, std::int64_t py, std::int64_t pz) {
      const int tile = plan_.tile(group, px, py, pz);
      auto const& code = g.add_codelet([p = plan_, scale](target const& on, ports const& f) {
        return detail::add_to_bucket<T>(on, f, p, scale);
      });
      g.add_vertex(set, tile, code,
                   {in(detail::slice_of_tile(tables_, tile, words_)),
                    out(detail::slice_of_tile(values_, tile, numbers_)), in(ids), in(rows)});
    });
    return execute(set);
  }

 private:
  /// Variables of a product, by tile: the tile's part of X, which stays while buckets travel, and its sums.
  struct parts_of_tiles {
    std::vector<slice> x, sums;
    std::vector<slice> from;  // where the parts of X are, in order
  };

  program product(graph& g, slice x, slice y, bool transposed) const {
    require_matrix("the operand", x, transposed ? plan_.shape.m : plan_.shape.k);
    require_matrix("the result", y, transposed ? plan_.shape.k : plan_.shape.m);
    if (plan_.options.partials != precision::single)
      throw option_error(
          "[ipu::dynamic_product] partialsType = half is planned, and sums on the machine are in float");
    const parts_of_tiles parts = add_parts(g, x, transposed);
    const std::array tables{travelling_tables(g), travelling_tables(g)};
    const std::array values{of_tiles<T>(g, "travelling values", numbers_, lifetime::temporary),
                            of_tiles<T>(g, "travelling values", numbers_, lifetime::temporary)};
    const auto multiply_at = [&](std::string const& what, slice at_tables, slice at_values, bool clears) {
      return multiply_on_tiles(g, what, parts, at_tables, at_values, transposed, clears);
    };
    const program at_home =
        multiply_at(transposed ? ": multiply transposed" : ": multiply", tables_, values_, true);
    const program on_first = multiply_at(": multiply travelling buckets", tables[0], values[0], false);
    const program on_second = multiply_at(": multiply travelling buckets", tables[1], values[1], false);
    const program there = travel_.there(
        g, {{tables_, values_}, {tables[0], values[0]}, {tables[1], values[1]}}, on_first, on_second);
    const program reduce = add_up(g, parts.sums, y, transposed);
    return sequence({copy(parts.from, parts.x, name_ + ": exchange X"), at_home, there, reduce});
  }

  parts_of_tiles add_parts(graph& g, slice x, bool transposed) const {
    parts_of_tiles all;
    plan_.for_each_tile([&](std::int64_t group, std::int64_t px, std::int64_t py, std::int64_t pz) {
      const int tile = plan_.tile(group, px, py, pz);
      const auto [first, last] = rows_of_part(transposed ? py : px, transposed);
      const slice sums = g.template add_variable<float>(
          name_ + ": partial sums", (last - first) * plan_.block * width_of(pz), lifetime::temporary);
      const field part = in(part_rows(x, group, transposed ? px : py, pz, !transposed));
      const slice own_x = g.template add_variable<T>(name_ + ": part of X", part.size(), lifetime::temporary);
      g.map(sums, tile), g.map(own_x, tile);
      all.sums.push_back(sums), all.x.push_back(own_x);
      all.from.insert(all.from.end(), part.parts.begin(), part.parts.end());
    });
    return all;
  }

  /// Every tile multiplies the blocks of its part of W in the buckets of all tiles of the part.
  program multiply_on_tiles(graph& g, std::string const& what, parts_of_tiles const& parts, slice tables,
                            slice values, bool transposed, bool clears) const {
    const compute_set set = g.add_compute_set(name_ + what);
    plan_.for_each_tile([&](std::int64_t group, std::int64_t px, std::int64_t py, std::int64_t pz) {
      const int tile = plan_.tile(group, px, py, pz);
      const std::int64_t width = width_of(pz);
      std::vector<slice> all_tables, all_values;  // of the part
      for (std::int64_t z = 0; z < plan_.z; ++z) {
        all_tables.push_back(detail::slice_of_tile(tables, plan_.tile(group, px, py, z), words_));
        all_values.push_back(detail::slice_of_tile(values, plan_.tile(group, px, py, z), numbers_));
      }
      auto const& code =
          g.add_codelet([p = plan_, px, py, width, transposed, clears](target const& on, ports const& f) {
            return detail::multiply_buckets<T>(on, f, p, int(px), int(py), width, transposed, clears);
          });
      const double most = double(numbers_ * plan_.z) * double(width) / (1 + plan_.options.oversize);
      g.add_vertex(set, tile, code,
                   {in(std::move(all_tables)), in(std::move(all_values)), in(parts.x[std::size_t(tile)]),
                    out(parts.sums[std::size_t(tile)])},
                   runs_on::tile, clears ? most : 0);
    });
    return execute(set);
  }

  /// Y = the sums of the tiles that share its rows.
  program add_up(graph& g, std::vector<slice> const& sums, slice y, bool transposed) const {
    const compute_set reduce = g.add_compute_set(name_ + ": reduce");
    const std::int64_t out_parts = transposed ? plan_.y : plan_.x, in_parts = transposed ? plan_.x : plan_.y;
    for (std::int64_t group = 0; group < plan_.shape.groups; ++group)
      for (std::int64_t part = 0; part < out_parts; ++part)
        for (std::int64_t z = 0; z < plan_.z; ++z) {
          std::int64_t at = 0;
          for (slice const& row : part_rows(y, group, part, z, transposed)) {
            std::vector<slice> terms;
            for (std::int64_t other = 0; other < in_parts; ++other)
              terms.push_back(sums[std::size_t(transposed ? plan_.tile(group, other, part, z)
                                                          : plan_.tile(group, part, other, z))]
                                  .part(at, at + row.size()));
            detail::add_sum<float, T>(g, reduce, terms, row);
            at += row.size();
          }
        }
    return execute(reduce);
  }

  slice travelling_tables(graph& g) const {
    return of_tiles<std::uint16_t>(g, "travelling tables", words_, lifetime::temporary);
  }

  program clear_floats(graph& g, slice all, std::int64_t each, char const* what) const {
    const compute_set set = g.add_compute_set(name_ + what);
    auto const& code = g.add_codelet([](target const& on, ports const& f) {
      const auto to = f.out<float>(0);
      std::fill(to.begin(), to.end(), 0.0f);
      return codelets::zeroing(on, std::int64_t(to.size_bytes()));
    });
    for (std::int64_t t = 0; t < plan_.tiles(); ++t)
      g.add_vertex(set, int(t), code, {out(detail::slice_of_tile(all, int(t), each))});
    return execute(set);
  }

  template <class E> slice of_tiles(graph& g, char const* what, std::int64_t each, lifetime lives) const {
    const slice all = g.template add_variable<E>(name_ + ": " + what, plan_.tiles() * each, lives);
    for (std::int64_t t = 0; t < plan_.tiles(); ++t) g.map(detail::slice_of_tile(all, int(t), each), int(t));
    return all;
  }

  std::pair<std::int64_t, std::int64_t> columns(std::int64_t z) const {
    const std::int64_t n = plan_.shape.n;
    return {std::min(n, z * plan_.n_each()), std::min(n, (z + 1) * plan_.n_each())};
  }
  std::int64_t width_of(std::int64_t z) const { return columns(z).second - columns(z).first; }
  /// Rows, or columns, of blocks of a part.
  std::pair<std::int64_t, std::int64_t> rows_of_part(std::int64_t part, bool of_columns) const {
    const std::int64_t all = (of_columns ? plan_.shape.k : plan_.shape.m) / plan_.block,
                       each = of_columns ? plan_.columns_each() : plan_.rows_each();
    return {std::min(all, part * each), std::min(all, (part + 1) * each)};
  }
  std::vector<slice> part_rows(slice matrix, std::int64_t group, std::int64_t part, std::int64_t z,
                               bool of_columns) const {
    const auto [first, last] = rows_of_part(part, of_columns);
    const std::int64_t size = matrix.size() / plan_.shape.groups;
    std::vector<slice> all;
    if (first < last && width_of(z) > 0)
      detail::add_rows(all, matrix.part(group * size, (group + 1) * size), plan_.shape.n, first * plan_.block,
                       last * plan_.block, columns(z).first, columns(z).second);
    return all;
  }

  void require_matrix(char const* what, slice s, std::int64_t rows) const {
    if (s.size() != rows * plan_.shape.n * plan_.shape.groups)
      throw shape_error(message("[ipu::dynamic_product] ", what, " has ", s.size(), " elements: ",
                                plan_.shape.groups, " x ", rows, " x ", plan_.shape.n, " are planned"));
  }
  void require_one_group() const {
    if (plan_.shape.groups != 1)
      throw option_error(
          message("[ipu::dynamic_product] rows of ", plan_.shape.groups, " groups: the embedding has one"));
  }

  dynamic_plan plan_;
  std::string name_;
  std::int64_t words_ = 0, numbers_ = 0;  // of a bucket
  slice tables_, values_;
  detail::bucket_travel travel_;
};

}}}  // namespace tessera::TESSERA_ISA::ipu
