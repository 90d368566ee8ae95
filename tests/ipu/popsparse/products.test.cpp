// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/allocations.hpp>

#include <tessera/core/float16.hpp>
#include <tessera/ipu/graph/engine.hpp>
#include <tessera/ipu/popsparse/block_softmax.hpp>
#include <tessera/ipu/popsparse/dense_product.hpp>
#include <tessera/ipu/popsparse/dynamic_product.hpp>
#include <tessera/ipu/popsparse/static_product.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/pattern_sources.hpp>

namespace products_test { namespace {

using namespace tessera;
using ipu::sequence;

template <class T> std::vector<T> numbers(std::int64_t count, unsigned seed) {
  std::vector<T> all(static_cast<std::size_t>(count));
  for (T& n : all) {
    seed = seed * 1664525 + 1013904223;
    n = T(float(seed >> 8) / float(1 << 23) - 1);
  }
  return all;
}

/// W (by slot), X and the result of a product, and both gradients, in double; with the sums of magnitudes.
struct expected {
  std::vector<double> y, dx, dw, y_size, dx_size, dw_size;
};
template <class T>
expected multiply(pattern const& p, int block, std::int64_t n, std::vector<T> const& w,
                  std::vector<T> const& x, std::vector<T> const& dy) {
  const std::int64_t m = p.block_rows() * block, k = p.block_cols() * block, area = block * block;
  const auto make = [](std::int64_t size) { return std::vector<double>(static_cast<std::size_t>(size)); };
  expected e{make(m * n), make(k * n), make(p.blocks() * area),
             make(m * n), make(k * n), make(p.blocks() * area)};
  p.for_each([&](int i, int j, std::int64_t slot) {
    for (int a = 0; a < block; ++a)
      for (int b = 0; b < block; ++b)
        for (std::int64_t q = 0; q < n; ++q) {
          const auto at_w = std::size_t(slot * area + a * block + b),
                     at_y = std::size_t((i * block + a) * n + q), at_x = std::size_t((j * block + b) * n + q);
          const double v = float(w[at_w]), d = float(dy[at_y]), of_x = float(x[at_x]);
          e.y[at_y] += v * of_x, e.y_size[at_y] += std::abs(v * of_x);
          e.dx[at_x] += v * d, e.dx_size[at_x] += std::abs(v * d);
          e.dw[at_w] += d * of_x, e.dw_size[at_w] += std::abs(d * of_x);
        }
  });
  return e;
}
/// k products in float, and three roundings to T (Higham 2002, section 3.1).
template <class T>
void check_near(std::vector<T> const& got, std::vector<double> const& want, std::vector<double> const& size,
                std::int64_t k) {
  REQUIRE(got.size() == want.size());
  const double unit = sizeof(T) == 2 ? 0x1p-11 : 0x1p-24;
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double allowed = (double(k) * 0x1p-24 + 3 * unit) * size[i] + 1e-30;
    worst = std::max(worst, std::abs(double(float(got[i])) - want[i]) / allowed);
  }
  CHECK(worst <= 1);
}

struct result {
  std::vector<float> y, dx, dw;
  friend bool operator==(result const&, result const&) = default;
};
template <class T> std::vector<float> in_float(std::vector<T> const& all) {
  std::vector<float> f;
  for (T n : all) f.push_back(float(n));
  return f;
}

template <class T>
result run_static(pattern const& p, int block, std::int64_t n, int threads,
                  ipu::static_options const& o = {}) {
  const std::int64_t m = p.block_rows() * block, k = p.block_cols() * block;
  const ipu::target on = ipu::bow();
  ipu::graph g(on);
  const ipu::static_product<T> w(g, ipu::plan_static(on, {m, k, n}, p, block, ipu::precision_of<T>, o), p,
                                 "W");
  const pattern turned = transposed(p);
  const auto wt = w.transposed(g, ipu::plan_static(on, {k, m, n}, turned, block, ipu::precision_of<T>),
                               turned, "W transposed");
  const auto x = g.add_variable<T>("X", k * n), y = g.add_variable<T>("Y", m * n),
             dy = g.add_variable<T>("dY", m * n), dx = g.add_variable<T>("dX", k * n);
  const auto dw = g.add_variable<float>("dW", w.values().size());
  for (auto s : {x, y, dy, dx, dw}) g.map_linearly(s, 4);
  auto steps = sequence({w.multiply(g, x, y), wt.multiply(g, dy, dx), w.gradient_of_values(g, dy, x, dw)});
  ipu::engine e(std::move(g), std::move(steps), threads);
  const auto ws = numbers<T>(p.blocks() * block * block, 1), xs = numbers<T>(k * n, 2),
             dys = numbers<T>(m * n, 3);
  e.write(w.values(), w.in_order_of_plan(std::span<T const>(ws))), e.write(x, xs), e.write(dy, dys);
  e.run();
  const auto want = multiply(p, block, n, ws, xs, dys);
  const auto by_plan = e.read<float>(dw);
  std::vector<float> by_slot;
  for (std::int64_t slot = 0; slot < p.blocks(); ++slot)
    for (std::int64_t i = w.block(slot).first; i < w.block(slot).last; ++i)
      by_slot.push_back(by_plan[std::size_t(i)]);
  const auto ys = e.read<T>(y), dxs = e.read<T>(dx);
  check_near(ys, want.y, want.y_size, k), check_near(dxs, want.dx, want.dx_size, m),
      check_near(by_slot, want.dw, want.dw_size, n);
  CHECK(w.in_order_of_pattern(std::span<T const>(w.in_order_of_plan(std::span<T const>(ws)))) == ws);
  return {in_float(ys), in_float(dxs), by_slot};
}

template <class T>
result run_dynamic(pattern const& p, int block, std::int64_t n, int threads, ipu::dynamic_options o = {}) {
  const std::int64_t m = p.block_rows() * block, k = p.block_cols() * block;
  o.gradient_of_activations = o.gradient_of_weights = true;
  const ipu::target on = ipu::bow();
  ipu::graph g(on);
  const ipu::dynamic_product<T> w(
      g,
      ipu::plan_dynamic(on, {m, k, n}, std::max<std::int64_t>(p.blocks(), 1), block, ipu::precision_of<T>, o),
      "W");
  const auto x = g.add_variable<T>("X", k * n), y = g.add_variable<T>("Y", m * n),
             dy = g.add_variable<T>("dY", m * n), dx = g.add_variable<T>("dX", k * n);
  for (auto s : {x, y, dy, dx}) g.map_linearly(s, 4);
  const auto dw = w.add_gradients(g);
  auto steps = sequence(
      {w.multiply(g, x, y), w.gradient_of_activations(g, dy, dx), w.gradient_of_values(g, dy, x, dw)});
  ipu::engine e(std::move(g), std::move(steps), threads);
  const auto ws = numbers<T>(p.blocks() * block * block, 1), xs = numbers<T>(k * n, 2),
             dys = numbers<T>(m * n, 3);
  w.write(e, p, ws), e.write(x, xs), e.write(dy, dys);
  e.run();
  const auto back = w.read(e);
  CHECK(back.stored == p);
  CHECK(back.values == ws);
  const auto want = multiply(p, block, n, ws, xs, dys);
  const auto ys = e.read<T>(y), dxs = e.read<T>(dx);
  const auto dws = w.read_gradients(e, dw);
  check_near(ys, want.y, want.y_size, k), check_near(dxs, want.dx, want.dx_size, m),
      check_near(dws, want.dw, want.dw_size, n);
  return {in_float(ys), in_float(dxs), dws};
}

template <class T>
void run_dense(ipu::product_shape const& shape, ipu::dense_plan const& plan, ipu::dense_options const& o,
               int threads) {
  const auto [m, k, n, groups] = shape;
  ipu::graph g(ipu::bow());
  const ipu::dense_product<T> w(g, plan, shape, o, "W");
  const auto x = g.add_variable<T>("X", k * n * groups), y = g.add_variable<T>("Y", m * n * groups);
  w.map_operand(g, x), w.map_result(g, y);
  auto steps = w.multiply(g, x, y);
  ipu::engine e(std::move(g), std::move(steps), threads);
  const auto ws = numbers<T>(m * k * groups, 1), xs = numbers<T>(k * n * groups, 2);
  e.write(w.values(), w.in_order_of_plan(std::span<T const>(ws))), e.write(x, xs);
  e.run();
  CHECK(e.profile().multiplies() == shape.multiplies());
  const auto ys = e.template read<T>(y);
  for (std::int64_t group = 0; group < groups; ++group) {
    const auto part = [&](std::vector<T> const& all, std::int64_t size) {
      return std::vector<T>(all.begin() + group * size, all.begin() + (group + 1) * size);
    };
    const auto want = multiply(pattern::dense(int(m), int(k)), 1, n, part(ws, m * k), part(xs, k * n),
                               std::vector<T>(std::size_t(m * n)));
    check_near(part(ys, m * n), want.y, want.y_size, k);
  }
}

TEST_CASE("ipu dense product: all ways of cutting it are right, for all types, odd shapes and groups") {
  using method = ipu::dense_plan::method;
  const ipu::target on = ipu::bow();
  for (ipu::product_shape const& shape : {ipu::product_shape{37, 23, 11}, ipu::product_shape{64, 48, 20, 2},
                                          ipu::product_shape{1, 1, 1}, ipu::product_shape{5, 200, 3, 3}}) {
    const auto as_planned = ipu::plan_dense(on, shape, ipu::precision::single);
    run_dense<float>(shape, as_planned, {}, 2);
    run_dense<float16>(shape, ipu::plan_dense(on, shape, ipu::precision::half, {ipu::precision::half}),
                       {ipu::precision::half}, 1);
    for (method by : {method::weights_stationary, method::activations_stationary, method::dot_products})
      for (const std::int64_t parts : {1, 3, 4}) {
        run_dense<float>(shape, {parts, 5 - parts, 2, 2, by, {}}, {}, 1);
        run_dense<float16>(shape, {2, parts, parts, 1, by, {}}, {}, 2);
      }
  }
}

/// Patterns with empty rows and columns, and one without blocks.
std::vector<pattern> patterns(int rows, int cols) {
  return {random_pattern(rows, cols, 0.15, 7), pattern::dense(rows, cols),
          pattern_from_coo(rows, cols, std::vector<int>{rows - 1, 1, 1}, std::vector<int>{0, 0, cols - 1}),
          pattern_from_coo(rows, cols, std::vector<int>{}, std::vector<int>{})};
}

TEST_CASE(
    "ipu products: both modes and all gradients are right, for all blocks, types and odd shapes, with any "
    "threads") {
  for (const int block : {1, 4, 8, 16})
    for (pattern const& p : patterns(block == 1 ? 37 : 9, block == 1 ? 23 : 7))
      for (const std::int64_t n : {std::int64_t(1), std::int64_t(12)}) {
        CAPTURE(block);
        CAPTURE(p.blocks());
        CAPTURE(n);
        CHECK(run_static<float>(p, block, n, 1) == run_static<float>(p, block, n, 8));
        CHECK(run_dynamic<float>(p, block, n, 1) == run_dynamic<float>(p, block, n, 8));
        run_static<float16>(p, block, n, 2), run_dynamic<float16>(p, block, n, 2);
      }
}

TEST_CASE("ipu products: bands, parts of n, and buckets that travel do not change what is computed") {
  const pattern p = random_pattern(24, 20, 0.2, 3);
  for (const std::int64_t bands : {1, 3, 20})
    for (const std::int64_t parts : {1, 2, 5})
      run_static<float>(p, 4, 20, 2, {.bands = bands, .n_split = parts});
  ipu::dynamic_options o;
  o.x = 3, o.y = 4, o.z = 2, o.oversize = 1.5;
  const result at_home = run_dynamic<float>(p, 4, 20, 2, o);
  o.force_bucket_spills = true;
  const result spilled = run_dynamic<float>(p, 4, 20, 2, o);
  CHECK(at_home.dw.size() == spilled.dw.size());
  o.y = 1, o.x = 5;
  run_dynamic<float>(p, 4, 20, 2, o);
  // All blocks in one corner: they overflow, and find places elsewhere.
  std::vector<int> rows, cols;
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 6; ++j) rows.push_back(i), cols.push_back(j);
  const pattern corner = pattern_from_coo(24, 20, rows, cols);
  o.force_bucket_spills = false, o.x = 4, o.y = 3, o.z = 1, o.oversize = 0.3;
  run_dynamic<float>(corner, 4, 20, 2, o);
}

TEST_CASE("ipu dynamic product: new buckets replace the pattern while the machine runs") {
  const ipu::target on = ipu::bow();
  ipu::graph g(on);
  const ipu::dynamic_product<float> w(g, ipu::plan_dynamic(on, {64, 64, 8}, 40, 4, ipu::precision::single),
                                      "W");
  const auto x = g.add_variable<float>("X", 64 * 8), y = g.add_variable<float>("Y", 64 * 8);
  g.map_linearly(x), g.map_linearly(y);
  auto steps = w.multiply(g, x, y);
  ipu::engine e(std::move(g), std::move(steps), 2);
  const auto xs = numbers<float>(64 * 8, 2);
  e.write(x, xs);
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    const pattern p = random_pattern(16, 16, 0.1 + 0.01 * double(seed), seed);
    const auto ws = numbers<float>(p.blocks() * 16, unsigned(seed));
    w.write(e, p, ws);
    e.run();
    const auto want = multiply(p, 4, 8, ws, xs, xs);
    check_near(e.read<float>(y), want.y, want.y_size, 64);
  }
  const pattern more = random_pattern(16, 16, 0.5, 1);
  const auto before = e.read<float>(y);
  CHECK(error_of<option_error>([&] { w.write(e, more, numbers<float>(more.blocks() * 16, 1)); }) ==
        "[ipu::load_of] 128 blocks, and the plan is for at most 40");
  e.run();
  CHECK(e.read<float>(y) == before);  // the machine has the buckets it had
}

TEST_CASE("ipu dynamic product: groups are products side by side") {
  const ipu::target on = ipu::bow();
  ipu::graph g(on);
  const ipu::dynamic_product<float> w(g, ipu::plan_dynamic(on, {32, 16, 4, 3}, 20, 4, ipu::precision::single),
                                      "W");
  const auto x = g.add_variable<float>("X", 3 * 16 * 4), y = g.add_variable<float>("Y", 3 * 32 * 4);
  g.map_linearly(x), g.map_linearly(y);
  auto steps = w.multiply(g, x, y);
  ipu::engine e(std::move(g), std::move(steps), 2);
  std::vector<pattern> stored;
  std::vector<std::vector<float>> values;
  for (std::uint64_t i = 0; i < 3; ++i)
    stored.push_back(random_pattern(8, 4, 0.3, i)),
        values.push_back(numbers<float>(stored.back().blocks() * 16, unsigned(i)));
  const std::vector<std::span<float const>> spans(values.begin(), values.end());
  w.write(e, ipu::fill_buckets<float>(w.plan(), stored, spans));
  const auto xs = numbers<float>(3 * 16 * 4, 5);
  e.write(x, xs);
  e.run();
  const auto ys = e.read<float>(y);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::vector<float> own(xs.begin() + std::ptrdiff_t(i * 64),
                                 xs.begin() + std::ptrdiff_t(i * 64 + 64));
    const auto want = multiply(stored[i], 4, 4, values[i], own, std::vector<float>(128));
    check_near(
        std::vector<float>(ys.begin() + std::ptrdiff_t(i * 128), ys.begin() + std::ptrdiff_t(i * 128 + 128)),
        want.y, want.y_size, 16);
    CHECK(w.read(e, std::int64_t(i)).stored == stored[i]);
  }
}

TEST_CASE("ipu embedding: rows are gathered from the buckets, and added to their blocks") {
  const ipu::target on = ipu::bow();
  ipu::graph g(on);
  const ipu::dynamic_product<float> w(g, ipu::plan_dynamic(on, {40, 24, 8}, 30, 4, ipu::precision::single),
                                      "W");
  const auto ids = g.add_variable<std::int32_t>("ids", 5);
  const auto rows = g.add_variable<float>("rows", 5 * 24), found = g.add_variable<float>("found", 5 * 24);
  g.map(ids, 2), g.map_linearly(rows), g.map_linearly(found);
  auto steps = sequence({w.gather_rows(g, ids, found), w.add_to_rows(g, ids, rows, 0.5f)});
  ipu::engine e(std::move(g), std::move(steps), 2);
  const pattern p = random_pattern(10, 6, 0.4, 9);
  auto values = numbers<float>(p.blocks() * 16, 3);
  w.write(e, p, values);
  const std::vector<std::int32_t> wanted{3, 39, 0, 3, 17};
  const auto added = numbers<float>(5 * 24, 4);
  e.write(ids, wanted), e.write(rows, added);
  e.run();
  const auto got = e.read<float>(found);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    for (int c = 0; c < 24; ++c) {
      const std::int64_t slot = p.find(wanted[i] / 4, c / 4);
      CHECK(got[i * 24 + std::size_t(c)] ==
            (slot < 0 ? 0 : values[std::size_t(slot * 16 + wanted[i] % 4 * 4 + c % 4)]));
    }
  for (std::size_t i = 0; i < wanted.size(); ++i)
    for (int c = 0; c < 24; ++c)
      if (const std::int64_t slot = p.find(wanted[i] / 4, c / 4); slot >= 0)
        values[std::size_t(slot * 16 + wanted[i] % 4 * 4 + c % 4)] += 0.5f * added[i * 24 + std::size_t(c)];
  CHECK(w.read(e).values == values);
}

TEST_CASE("ipu softmax: rows of stored entries sum to one, masked ones are zero, and the gradient is right") {
  const pattern p = pattern_from_coo(4, 4, std::vector<int>{0, 1, 1, 3, 3}, std::vector<int>{0, 0, 1, 1, 3});
  ipu::graph g(ipu::bow());
  const ipu::block_softmax<float> soft(p, 4, ipu::sub_block_mask::zero_upper_triangle, "attention");
  const std::int64_t size = p.blocks() * 16;
  const auto x = g.add_variable<float>("x", size), y = g.add_variable<float>("y", size),
             dy = g.add_variable<float>("dy", size), dx = g.add_variable<float>("dx", size);
  for (auto s : {x, y, dy, dx}) g.map_linearly(s);
  auto steps = sequence({soft.softmax(g, x, y), soft.gradient(g, y, dy, dx)});
  ipu::engine e(std::move(g), std::move(steps), 2);
  auto xs = numbers<float>(size, 1);
  const auto dys = numbers<float>(size, 2);
  const auto at = [&](std::vector<float> const& v) {
    e.write(x, v), e.write(dy, dys);
    e.run();
    return e.read<float>(y);
  };
  const auto ys = at(xs);
  const auto dxs = e.read<float>(dx);
  for (const int i : {0, 1, 3})
    for (int r = 0; r < 4; ++r) {
      double sum = 0;
      for (std::int64_t slot = p.first_slot(i); int j : p.row(i)) {
        for (int c = 0; c < 4; ++c) {
          sum += double(ys[std::size_t(slot * 16 + r * 4 + c)]);
          if (j == i && c > r) CHECK(ys[std::size_t(slot * 16 + r * 4 + c)] == 0);
        }
        ++slot;
      }
      CHECK(sum == doctest::Approx(1));
    }
  for (std::size_t k = 0; k < xs.size(); k += 7) {  // central differences
    const float step = 1e-2f, old = xs[k];
    const auto loss = [&](float v) {
      xs[k] = v;
      const auto out_ = at(xs);
      double sum = 0;
      for (std::size_t i = 0; i < out_.size(); ++i) sum += double(out_[i]) * double(dys[i]);
      return sum;
    };
    const double slope = (loss(old + step) - loss(old - step)) / (2 * double(step));
    xs[k] = old;
    CHECK(double(dxs[k]) == doctest::Approx(slope).epsilon(0.02).scale(0.05));
  }
  CHECK_THROWS_AS(
      ipu::block_softmax<float>(pattern::dense(2, 2), 4, ipu::sub_block_mask::zero_lower_triangle, "a"),
      option_error);
}

std::int64_t cycles_of(ipu::profile const& p, std::string const& name) {
  for (auto const& s : p.by_name())
    if (s.name == name && s.kind == ipu::activity::compute) return s.cycles;
  return 0;
}
std::int64_t cycles_of(ipu::cost_estimate const& c, std::string const& name) {
  for (auto const& p : c.phases)
    if (p.name == name) return p.cycles;
  return 0;
}
/// Plans and emulates Y = W X in the three ways.
///   visit(name, plan's cost, emulated profile)
template <class T, class Visit>
void in_three_ways(ipu::product_shape const& shape, pattern const& p, int block, Visit&& visit) {
  const ipu::target on = ipu::bow();
  const auto of = ipu::precision_of<T>;
  const auto emulate = [&](char const* name, auto&& make) {
    ipu::graph g(on);
    const auto x = g.add_variable<T>("X", shape.k * shape.n), y = g.add_variable<T>("Y", shape.m * shape.n);
    auto [steps, cost, prepare] = make(g, x, y);
    ipu::engine e(std::move(g), std::move(steps), 2);
    prepare(e);
    e.run();
    visit(name, cost, e.profile());
  };
  const auto nothing = [](ipu::engine&) {};
  emulate("dense", [&](ipu::graph& g, ipu::slice x, ipu::slice y) {
    const auto plan = ipu::plan_dense(on, shape, of, {of});
    const ipu::dense_product<T> w(g, plan, shape, {of}, "W");
    w.map_operand(g, x), w.map_result(g, y);
    return std::tuple(w.multiply(g, x, y), plan.cost, std::function<void(ipu::engine&)>(nothing));
  });
  emulate("static", [&](ipu::graph& g, ipu::slice x, ipu::slice y) {
    g.map_linearly(x, on.vector_width(of)), g.map_linearly(y, on.vector_width(of));
    const auto plan = ipu::plan_static(on, shape, p, block, of);
    const ipu::static_product<T> w(g, plan, p, "W");
    return std::tuple(w.multiply(g, x, y), plan.cost, std::function<void(ipu::engine&)>(nothing));
  });
  emulate("dynamic", [&](ipu::graph& g, ipu::slice x, ipu::slice y) {
    g.map_linearly(x, on.vector_width(of)), g.map_linearly(y, on.vector_width(of));
    ipu::dynamic_options o;
    o.oversize = 1;
    const auto plan = ipu::plan_dynamic(on, shape, p.blocks(), block, of, o);
    const ipu::dynamic_product<T> w(g, plan, "W");
    return std::tuple(w.multiply(g, x, y), ipu::cost_of(on, plan, p),
                      std::function<void(ipu::engine&)>([w, p, block](ipu::engine& e) {
                        w.write(e, p, std::vector<T>(std::size_t(p.blocks() * block * block)));
                      }));
  });
}

TEST_CASE(
    "ipu products: plans have the emulated cycles of multiplications, and those of exchange and sums in the "
    "range that the page says") {
  const auto compare = [&](std::string const& name, ipu::cost_estimate const& planned,
                           ipu::profile const& ran) {
    CAPTURE(name);
    using ipu::activity;
    if (name != "dynamic") CHECK(cycles_of(planned, "multiply") == cycles_of(ran, "W: multiply"));
    if (name == "dense") CHECK(cycles_of(planned, "reduce") == cycles_of(ran, "W: reduce"));
    const std::int64_t syncs_to_rearrange = cycles_of(planned, "rearrange W") > 0 ? 600 : 0;
    if (name == "dense")
      CHECK(planned.cycles(activity::sync) + syncs_to_rearrange == ran.cycles(activity::sync));
    const double ratio = double(ran.cycles()) / double(planned.with_sync());
    CAPTURE(ratio);
    CHECK(ratio > (name == "dense" ? 1.0 : name == "static" ? 0.65 : 0.75));
    CHECK(ratio < (name == "dense" ? 1.2 : name == "static" ? 1.25 : 1.5));
  };
  for (const int block : {1, 4, 16})
    for (const double density : {0.25, 1.0 / 16})
      for (const std::int64_t size : {256, 512})
        for (const std::int64_t n : {4, 64}) {
          CAPTURE(block);
          CAPTURE(density);
          CAPTURE(size);
          CAPTURE(n);
          const pattern p = random_pattern(int(size / block), int(size / block), density, 1);
          in_three_ways<float16>({size, size, n}, p, block, compare);
        }
  in_three_ways<float>({512, 768, 128}, random_pattern(64, 96, 0.1, 1), 8, compare);
  in_three_ways<float>({256, 256, 256}, random_pattern(16, 16, 1.0 / 16, 1), 16, compare);
}

TEST_CASE("ipu products: a second run allocates nothing" * doctest::skip(!support::counts_allocations)) {
  const ipu::target on = ipu::bow();
  const pattern p = random_pattern(6, 6, 0.4, 3);
  const std::int64_t n = 132;  // more columns than are summed at a time
  ipu::graph g(on);
  const ipu::static_product<float> fixed(
      g, ipu::plan_static(on, {96, 96, n}, p, 16, ipu::precision::single, {.bands = 2, .n_split = 1}), p,
      "W");
  ipu::dynamic_options o;
  o.x = 2, o.y = 2, o.z = 1, o.oversize = 3, o.force_bucket_spills = true;
  o.gradient_of_activations = o.gradient_of_weights = true;
  const ipu::dynamic_product<float> moving(
      g, ipu::plan_dynamic(on, {96, 96, n}, p.blocks(), 16, ipu::precision::single, o), "V");
  const ipu::block_softmax<float> soft(p, 16, ipu::sub_block_mask::none, "attention");
  const auto x = g.add_variable<float>("X", 96 * n), y = g.add_variable<float>("Y", 96 * n),
             dw = g.add_variable<float>("dW", p.blocks() * 256), s = g.add_variable<float>("S", dw.size());
  for (auto v : {x, y, dw, s}) g.map_linearly(v, 4);
  const auto dv = moving.add_gradients(g);
  auto steps =
      sequence({fixed.multiply(g, x, y), fixed.gradient_of_values(g, y, x, dw), soft.softmax(g, dw, s),
                soft.gradient(g, s, dw, fixed.values()), moving.multiply(g, y, x),
                moving.gradient_of_activations(g, x, y), moving.gradient_of_values(g, y, x, dv)});
  ipu::engine e(std::move(g), std::move(steps), 2);
  moving.write(e, p, numbers<float>(p.blocks() * 256, 1));
  e.run();
  const long before = support::allocations();
  e.run();
  CHECK(support::allocations() == before);
}

TEST_CASE("ipu buckets: overflow and tables without room are refused, and say which head-room would do") {
  std::vector<int> rows, cols;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) rows.push_back(i), cols.push_back(j);
  const pattern corner = pattern_from_coo(16, 16, rows, cols);
  ipu::dynamic_options o;
  o.x = 4, o.y = 4, o.z = 1, o.oversize = 0;
  const ipu::target on = ipu::bow();
  const auto values = numbers<float>(16 * 16, 1);
  // Room for 15 blocks: one too few.
  auto plan = ipu::plan_dynamic(on, {64, 64, 8}, 16, 4, ipu::precision::single, o);
  CHECK(ipu::load_of(plan, corner).steps == 15);
  CHECK(ipu::fill_buckets<float>(plan, corner, std::span<float const>(values)).steps == 15);
  plan.bucket_blocks = 0;
  CHECK(error_of<option_error>([&] { ipu::load_of(plan, corner); })
            .find("[ipu::load_of] the buckets of part (0, 0) of 4 x 4 overflow by 16 blocks that no other "
                  "bucket can take: metaInfoBucketOversizeProportion = 0.") == 0);
  plan.bucket_blocks = 1, plan.bucket_words = 3;
  CHECK(error_of<option_error>([&] {
          ipu::fill_buckets<float>(plan, corner, std::span<float const>(values));
        }).find("[ipu::fill_buckets] the table of bucket (0, 0, 0) has 3 words, too few for its rows") == 0);
}

}}  // namespace products_test
