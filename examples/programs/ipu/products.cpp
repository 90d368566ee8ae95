// SPDX-License-Identifier: BSD-3-Clause

#include "products.hpp"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/float16.hpp>
#include <tessera/exec/available_threads.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/matrix_market.hpp>
#include <tessera/io/printable.hpp>
#include <tessera/io/smtx.hpp>
#include <tessera/ipu/graph/engine.hpp>
#include <tessera/ipu/popsparse/dense_plan.hpp>
#include <tessera/ipu/popsparse/dense_product.hpp>
#include <tessera/ipu/popsparse/dynamic_product.hpp>
#include <tessera/ipu/popsparse/static_product.hpp>
#include <tessera/ipu/report/report_page.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/pattern_sources.hpp>

#include "commands.hpp"

namespace ipu_program {

using namespace tessera;
namespace fs = std::filesystem;

ipu::target asked_target(settings const& s) {
  ipu::target on = ipu::target_named(s.target);
  if (s.tiles > 0) on.tiles = s.tiles;
  if (s.clock > 0) on.clock_hz = s.clock * 1e9;
  if (s.memory > 0) on.bytes_per_tile = std::int64_t(s.memory * 1024);
  if (s.exchange > 0) on.exchange_bytes_per_cycle = s.exchange;
  on.check();
  return on;
}

int asked_threads(settings const& s) { return s.threads > 0 ? s.threads : exec::available_threads(); }

void print_written(std::string const& path) { std::printf("written: %s\n", io::printable(path).c_str()); }

void deliver(settings const& s, ipu::profile const& report, std::string const& pictures) {
  std::printf("%s", ipu::to_text(report).c_str());
  if (!s.json.empty()) io::write_atomically(s.json, io::to_text(ipu::to_json(report), 1) + "\n");
  if (!s.html.empty()) io::write_atomically(s.html, ipu::to_page(report, pictures));
  for (auto const* path : {&s.json, &s.html})
    if (!path->empty()) std::printf("\n"), print_written(*path);
}

ipu::precision asked_type(settings const& s) {
  return s.type == "half" ? ipu::precision::half : ipu::precision::single;
}

ipu::option_flags asked_options(settings const& s) {
  ipu::option_flags flags;
  for (std::string const& one : s.option) {
    const std::size_t equals = one.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw option_error("[--option] " + one + ": NAME=VALUE is meant");
    flags[one.substr(0, equals)] = one.substr(equals + 1);
  }
  return flags;
}

sparse_product asked_product(settings const& s) {
  sparse_product p{{s.m, s.k, s.n, s.groups}, {}, s.block};
  ipu::detail::require_block("[--block] ", s.block);
  if (!s.pattern.empty()) {
    const pattern elements = fs::path(s.pattern).extension() == ".smtx"
                                 ? io::read_smtx(s.pattern)
                                 : io::read_matrix_market<float, block_shape<1>>(s.pattern).pattern();
    const int m = elements.block_rows(), k = elements.block_cols();
    if (m % s.block != 0 || k % s.block != 0)
      throw option_error(message("[--pattern] ", s.pattern, " is ", m, " x ", k,
                                 ": both must be multiples of --block ", s.block));
    p.stored = reblocked(elements, m, k, {1, 1}, {s.block, s.block});
    p.shape.m = m, p.shape.k = k;
  } else {
    if (s.m % s.block != 0 || s.k % s.block != 0)
      throw option_error(
          message("[--m, --k] ", s.m, " x ", s.k, ": both must be multiples of --block ", s.block));
    p.stored = random_pattern(s.m / s.block, s.k / s.block, s.density, s.seed);
  }
  return p;
}

namespace {

template <element T> std::vector<T> random_values(std::int64_t count, std::uint64_t seed) {
  std::vector<T> all(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = T(random_value(seed, i));
  return all;
}

/// A sum in double, and how far a result may be from it.
struct exact_sum {
  double value = 0, magnitude = 0;  // of the sum of the absolute terms
  void add(double term) { value += term, magnitude += std::abs(term); }
  /// The difference of a result of type T from it, in units of the rounding that is expected of `terms`
  /// terms.
  template <element T> double error(T result, double terms) const {
    const double unit = sizeof(T) == 2 ? 0x1p-11 : 0x1p-24;
    return std::abs(double(float(result)) - value) / ((terms * 0x1p-24 + 8 * unit) * magnitude + 1e-30);
  }
};

template <element T> using values_of = std::span<T const>;

/// The pattern of a dense product: blocks are for its check alone.
sparse_product all_blocks(settings const& s) {
  const int block = s.m % 16 == 0 && s.k % 16 == 0 ? 16 : 1;
  return {{s.m, s.k, s.n, s.groups}, pattern::dense(s.m / block, s.k / block), block};
}
std::int64_t place_in_blocks(sparse_product const& p, std::int64_t i, std::int64_t j) {
  const std::int64_t b = p.block;
  return ((i / b * p.stored.block_cols() + j / b) * b + i % b) * b + j % b;
}

/// The worst error of Y = W·X, of 16 rows of blocks.
template <element T>
double error_of_product(sparse_product const& p, values_of<T> w, values_of<T> x, values_of<T> y) {
  const auto b = std::size_t(p.block), n = std::size_t(p.shape.n);
  double worst = 0;
  const int rows = p.stored.block_rows(), step = std::max(1, rows / 16);
  std::vector<exact_sum> sums(b * n);
  for (int i = 0; i < rows; i += step) {
    std::fill(sums.begin(), sums.end(), exact_sum{});
    for (auto slot = std::size_t(p.stored.first_slot(i)); int j : p.stored.row(i)) {
      for (std::size_t a = 0; a < b; ++a)
        for (std::size_t c = 0; c < b; ++c)
          for (std::size_t q = 0; q < n; ++q)
            sums[a * n + q].add(double(float(w[(slot * b + a) * b + c])) *
                                double(float(x[(std::size_t(j) * b + c) * n + q])));
      ++slot;
    }
    for (std::size_t q = 0; q < b * n; ++q)
      worst =
          std::max(worst, sums[q].error(y[std::size_t(i) * b * n + q], p.stored.row_count(i) * p.block + 2));
  }
  return worst;
}

/// The worst error of dX = transposed(W)·dY, of 16 tokens.
template <element T>
double error_of_activations(sparse_product const& p, values_of<T> w, values_of<T> dy, values_of<T> dx) {
  const auto b = std::size_t(p.block), n = std::size_t(p.shape.n), step = std::max<std::size_t>(1, n / 16);
  double worst = 0;
  std::vector<exact_sum> sums(dx.size() / n);
  for (std::size_t q = 0; q < n; q += step) {
    std::fill(sums.begin(), sums.end(), exact_sum{});
    std::size_t slot = 0;
    for (int i = 0; i < p.stored.block_rows(); ++i)
      for (int j : p.stored.row(i)) {
        for (std::size_t a = 0; a < b; ++a)
          for (std::size_t c = 0; c < b; ++c)
            sums[std::size_t(j) * b + c].add(double(float(w[(slot * b + a) * b + c])) *
                                             double(float(dy[(std::size_t(i) * b + a) * n + q])));
        ++slot;
      }
    for (std::size_t f = 0; f < sums.size(); ++f)
      worst = std::max(worst, sums[f].error(dx[f * n + q], double(p.shape.m)));
  }
  return worst;
}

/// The worst error of dW = dY·transposed(X) at the blocks of W, of one in 16 of them.
template <element T>
double error_of_weights(sparse_product const& p, values_of<T> dy, values_of<T> x, values_of<float> dw) {
  const auto b = std::size_t(p.block), n = std::size_t(p.shape.n);
  double worst = 0;
  std::size_t slot = 0;
  for (int i = 0; i < p.stored.block_rows(); ++i)
    for (int j : p.stored.row(i)) {
      for (std::size_t at = 0; slot % 16 == 0 && at < b * b; ++at) {
        exact_sum sum;
        for (std::size_t q = 0; q < n; ++q)
          sum.add(double(float(dy[(std::size_t(i) * b + at / b) * n + q])) *
                  double(float(x[(std::size_t(j) * b + at % b) * n + q])));
        worst = std::max(worst, sum.error(dw[slot * b * b + at], double(n)));
      }
      ++slot;
    }
  return worst;
}

/// Cycles of the dense product, and of its gradients if they are asked for, as they are planned.
std::int64_t planned_dense(settings const& s, ipu::target const& on, ipu::product_shape const& shape,
                           ipu::precision of) {
  const auto cycles = [&](std::int64_t m, std::int64_t k, std::int64_t n) {
    return ipu::plan_dense(on, {m, k, n, shape.groups}, of, {of}).cost.with_sync();
  };
  const auto [m, k, n, groups] = shape;
  return cycles(m, k, n) + (s.pass == "all" ? cycles(k, m, n) + cycles(m, n, k) : 0);
}

/// A product on a graph, with its gradients if they are asked for: it is planned, run, reported and checked.
template <element T> class emulation {
 public:
  emulation(settings const& asked, ipu::target const& on, sparse_product const& product)
      : s_(asked),
        on_(on),
        p_(product),
        g_(on),
        x_(add_matrix("X", p_.shape.k)),
        y_(add_matrix("Y", p_.shape.m)),
        dx_(all_passes() ? add_matrix("dX", p_.shape.k) : ipu::slice{}),
        values_(random_values<T>(p_.stored.blocks() * area() * p_.shape.groups, s_.seed)),
        xs_(random_values<T>(x_.size(), s_.seed + 1)) {}

  /// Returns the exit code: whether all errors are in their bounds.
  int run() {
    const auto begin = std::chrono::steady_clock::now();
    if (is_dense())
      run_dense();
    else if (s_.mode == "static")
      run_static();
    else
      run_dynamic();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    report();
    const double error = worst_error();
    std::printf(
        "\nchecked against sums in double: the worst error%s is %.2f of the bound; emulated in %.1f s\n",
        all_passes() ? " of Y, dX and dW" : "", error, seconds);
    return error <= 1 ? 0 : 1;
  }

 private:
  static constexpr ipu::precision of_ = ipu::precision_of<T>;

  bool is_dense() const { return s_.mode == "dense"; }
  bool all_passes() const { return s_.pass == "all"; }
  std::int64_t area() const { return std::int64_t(p_.block) * p_.block; }
  ipu::slice add_matrix(char const* name, std::int64_t rows) {
    const ipu::slice all = g_.template add_variable<T>(name, rows * p_.shape.n * p_.shape.groups);
    if (!is_dense()) g_.map_linearly(all, on_.vector_width(of_));
    return all;
  }

  /// Runs the steps. The weights are written, and their gradients read, by functions of the engine.
  template <class Write, class ReadGradients> void run_steps(Write&& write, ReadGradients&& read_gradients) {
    ipu::engine machine(std::move(g_), ipu::sequence(std::move(steps_)), asked_threads(s_),
                        s_.charge ? ipu::overflow::charged : ipu::overflow::refused);
    write(machine);
    machine.write(x_, xs_);
    machine.run();
    ys_ = machine.template read<T>(y_);
    if (all_passes()) dxs_ = machine.template read<T>(dx_), dws_ = read_gradients(machine);
    report_ = machine.profile();
  }

  void run_dense() {
    const ipu::dense_options options{of_};
    auto plan = ipu::plan_dense(on_, p_.shape, of_, options);
    explained_ = plan.explain(), planned_ = plan.cost.with_sync();
    const ipu::dense_product<T> w(g_, std::move(plan), p_.shape, options, "W");
    w.map_operand(g_, x_), w.map_result(g_, y_);
    steps_.push_back(w.multiply(g_, x_, y_));
    run_steps(
        [&](ipu::engine& machine) {
          const auto [m, k, n, groups] = p_.shape;
          std::vector<T> row_major(values_.size());
          for (std::int64_t group = 0; group < groups; ++group)
            for (std::int64_t i = 0; i < m; ++i)
              for (std::int64_t j = 0; j < k; ++j)
                row_major[std::size_t((group * m + i) * k + j)] =
                    values_[std::size_t(group * m * k + place_in_blocks(p_, i, j))];
          machine.write(w.values(), w.in_order_of_plan(std::span<T const>(row_major)));
        },
        [](ipu::engine&) { return std::vector<std::vector<float>>{}; });
  }

  void run_static() {
    auto plan = ipu::plan_static(on_, p_.shape, p_.stored, p_.block, of_,
                                 ipu::static_options::from(asked_options(s_)));
    explained_ = plan.explain(), planned_ = plan.cost.with_sync();
    pictures_ = ipu::picture_of_partition(plan, p_.stored);
    const ipu::static_product<T> w(g_, std::move(plan), p_.stored, "W");
    steps_.push_back(w.multiply(g_, x_, y_));
    ipu::slice dw;
    if (all_passes()) {
      const pattern turned = transposed(p_.stored);
      const ipu::product_shape shape{p_.shape.k, p_.shape.m, p_.shape.n};
      const auto wt =
          w.transposed(g_, ipu::plan_static(on_, shape, turned, p_.block, of_, {}), turned, "W transposed");
      dw = g_.template add_variable<float>("dW", w.values().size());
      g_.map_linearly(dw, area());
      steps_.push_back(wt.multiply(g_, y_, dx_)), steps_.push_back(w.gradient_of_values(g_, y_, x_, dw));
    }
    run_steps(
        [&](ipu::engine& machine) {
          machine.write(w.values(), w.in_order_of_plan(std::span<T const>(values_)));
        },
        [&](ipu::engine& machine) {
          const std::vector<float> by_plan = machine.template read<float>(dw);
          return std::vector<std::vector<float>>{w.in_order_of_pattern(std::span<float const>(by_plan))};
        });
  }

  void run_dynamic() {
    auto options = ipu::dynamic_options::from(asked_options(s_));
    options.gradient_of_activations = options.gradient_of_weights = all_passes();
    auto plan = ipu::plan_dynamic(on_, p_.shape, p_.stored.blocks(), p_.block, of_, options);
    explained_ = plan.explain(), planned_ = ipu::cost_of(on_, plan, p_.stored).with_sync();
    const ipu::dynamic_product<T> w(g_, std::move(plan), "W");
    steps_.push_back(w.multiply(g_, x_, y_));
    ipu::slice dw;
    if (all_passes()) {
      dw = w.add_gradients(g_);
      steps_.push_back(w.gradient_of_activations(g_, y_, dx_));
      steps_.push_back(w.gradient_of_values(g_, y_, x_, dw));
    }
    run_steps(
        [&](ipu::engine& machine) {
          std::vector<pattern> patterns(std::size_t(p_.shape.groups), p_.stored);
          std::vector<values_of<T>> parts;
          for (std::int64_t i = 0; i < p_.shape.groups; ++i) parts.push_back(of_group(values_, i));
          w.write(machine, ipu::fill_buckets<T>(w.plan(), patterns, parts));
        },
        [&](ipu::engine& machine) {
          std::vector<std::vector<float>> all;
          for (std::int64_t i = 0; i < p_.shape.groups; ++i) all.push_back(w.read_gradients(machine, dw, i));
          return all;
        });
  }

  void report() {
    report_.name = message(s_.mode, " product, ", p_.shape.m, " x ", p_.shape.k, " x ", p_.shape.n,
                           is_dense() ? std::string() : message(" in blocks of ", p_.block));
    try {
      if (!is_dense()) report_.compared.push_back({"dense, planned", planned_dense(s_, on_, p_.shape, of_)});
    } catch (option_error const&) {  // the dense product does not fit
    }
    if (!all_passes()) report_.compared.push_back({"its own plan", planned_});
    std::printf("%s\n", explained_.c_str());
    deliver(s_, report_, pictures_);
  }

  values_of<T> of_group(std::vector<T> const& all, std::int64_t i) const {
    const auto each = all.size() / std::size_t(p_.shape.groups);
    return values_of<T>(all).subspan(std::size_t(i) * each, each);
  }
  double worst_error() const {
    double error = 0;
    for (std::int64_t i = 0; i < p_.shape.groups; ++i) {
      const auto w = of_group(values_, i), in = of_group(xs_, i), out = of_group(ys_, i);
      error = std::max(error, error_of_product<T>(p_, w, in, out));
      if (!all_passes()) continue;
      error = std::max(error, error_of_activations<T>(p_, w, out, of_group(dxs_, i)));
      error = std::max(error, error_of_weights<T>(p_, out, in, dws_[std::size_t(i)]));
    }
    return error;
  }

  settings const& s_;
  ipu::target const& on_;
  sparse_product const& p_;
  ipu::graph g_;
  ipu::slice x_, y_, dx_;
  std::vector<T> values_, xs_;
  std::vector<ipu::program> steps_;
  std::vector<T> ys_, dxs_;
  std::vector<std::vector<float>> dws_;  // of every group, in the order of the pattern
  std::string explained_, pictures_;
  std::int64_t planned_ = 0;
  ipu::profile report_;
};

}  // namespace

int emulate_product(settings const& s) {
  const ipu::target on = asked_target(s);
  sparse_product p = s.mode == "dense" ? all_blocks(s) : asked_product(s);
  return s.type == "half" ? emulation<float16>(s, on, p).run() : emulation<float>(s, on, p).run();
}

}  // namespace ipu_program
