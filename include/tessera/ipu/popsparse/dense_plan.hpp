// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/cost.hpp>
#include <tessera/ipu/target.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

struct dense_options {
  precision partials = precision::single;  // of sums, between tiles too
  double available_memory_proportion = 0.6;
};

/// How a dense product is cut: m, k and n into parts, a tile for each combination.
struct dense_plan {
  enum class method { weights_stationary, activations_stationary, dot_products };
  std::int64_t m_parts = 1, k_parts = 1, n_parts = 1;
  std::int64_t serial = 1;  // parts of m computed one after the other, where one is too much for the memory
  method by = method::weights_stationary;
  cost_estimate cost;

  std::int64_t tiles() const { return m_parts * k_parts * n_parts; }  // of a group
  std::string explain() const;
};

/// Cycles of a tile that multiplies `rows` x `depth` of W by `columns` of X.
std::int64_t multiply_cycles(target const& on, dense_plan::method by, std::int64_t rows, std::int64_t depth,
                             std::int64_t columns, precision of, precision partials);

/// The cost of one way of cutting. Groups are side by side, each on tiles of its own.
cost_estimate cost_of(target const& on, product_shape const& shape, precision of, dense_plan const& plan,
                      dense_options const& options);

/// The plan of the fewest cycles whose temporaries fit `available_memory_proportion` of a tile. Throws
/// option_error if there is none.
dense_plan plan_dense(target const& on, product_shape const& shape, precision of,
                      dense_options const& options = {});

#ifdef TESSERA_BODY

TESSERA_BODY std::int64_t multiply_cycles(target const& on, dense_plan::method by, std::int64_t rows,
                                          std::int64_t depth, std::int64_t columns, precision of,
                                          precision partials) {
  switch (by) {
    case dense_plan::method::weights_stationary:
      return codelets::dense_multiply(on, depth, rows, columns, of, partials);
    case dense_plan::method::activations_stationary:
      return codelets::dense_multiply(on, depth, columns, rows, of, partials);
    case dense_plan::method::dot_products:
      break;
  }
  return std::min(codelets::dense_dot_products(on, depth, rows, columns, of),
                  codelets::dense_dot_products(on, depth, columns, rows, of));
}

TESSERA_BODY cost_estimate cost_of(target const& on, product_shape const& shape, precision of,
                                   dense_plan const& plan, dense_options const& options) {
  using codelets::int64_t;
  const int64_t m = ceil_div(ceil_div(shape.m, plan.serial), plan.m_parts),
                k = ceil_div(shape.k, plan.k_parts), n = ceil_div(shape.n, plan.n_parts);
  const int bytes = bytes_of(of), partial_bytes = bytes_of(options.partials);
  const bool x_stationary = plan.by == dense_plan::method::activations_stationary;
  cost_estimate c;
  // A tile holds its share of an operand already; neighbours differ in the part of the outputs, so they
  // receive the same streamed operand.
  const int64_t weights = m * k * bytes, activations = k * n * bytes;
  const int64_t outputs_parts = x_stationary ? plan.n_parts : plan.m_parts;
  const bool shared = outputs_parts % 2 == 0;
  const auto receive = [&](int64_t operand, int64_t holders, bool pairs) {
    return on.exchange_cycles(double(operand - operand / holders), pairs);
  };
  const int64_t serial = plan.serial;
  if (x_stationary) {
    // Operands are created in the order that stationary weights want; to stream W, all of it is brought into
    // rows of inputs first (poplin, ConvPlan.cpp: plans with swapped operands have lower costs of
    // transforms).
    const auto all = int64_t(double(shape.m) * double(shape.k) * double(shape.groups) * bytes / on.tiles);
    c.add("rearrange W, exchange", activity::exchange, on.exchange_cycles(double(all)));
    c.add("rearrange W", activity::compute, on.launch_cycles + codelets::copy(on, all));
  }
  c.add("exchange X", activity::exchange,
        receive(activations, plan.m_parts, shared && !x_stationary) * serial);
  c.add("exchange W", activity::exchange, receive(weights, plan.n_parts, shared && x_stationary) * serial);
  const int64_t multiply = multiply_cycles(on, plan.by, m, k, n, of, options.partials);
  c.add("multiply", activity::compute, (on.launch_cycles + multiply) * serial);
  const int64_t sums = m * n, kept = ceil_div(sums, plan.k_parts);
  if (plan.k_parts > 1)
    c.add("exchange partials", activity::exchange, on.exchange_cycles(double(sums * partial_bytes)) * serial);
  if (const int64_t reduce = codelets::reduce(on, kept, plan.k_parts, options.partials, of))
    c.add("reduce", activity::compute, (on.launch_cycles + reduce) * serial);
  c.add("sync", activity::sync, on.sync_cycles * (plan.k_parts > 1 ? 2 : 1) * serial);
  const int64_t at_product = weights + activations + sums * partial_bytes;
  const int64_t at_reduction = plan.k_parts > 1 ? 2 * sums * partial_bytes : 0;
  c.temporary_bytes = std::max(at_product, at_reduction);
  const double held = double(shape.m) * double(shape.k) + double(shape.k) * double(shape.n) +
                      double(shape.m) * double(shape.n);
  c.always_live_bytes = int64_t(held * double(shape.groups) * bytes / on.tiles) + 1;
  return c;
}

TESSERA_BODY dense_plan plan_dense(target const& on, product_shape const& shape, precision of,
                                   dense_options const& options) {
  using method = dense_plan::method;
  const std::int64_t tiles = on.tiles / std::max<std::int64_t>(shape.groups, 1);
  if (shape.groups < 1 || tiles < 1)
    throw option_error(message("[ipu::plan_dense] ", shape.groups, " groups for ", on.tiles,
                               " tiles: a group needs a tile"));
  dense_plan best;
  std::int64_t best_cycles = -1, least_bytes = -1;
  const double bound = options.available_memory_proportion * double(on.bytes_per_tile);
  for (std::int64_t serial = 1; serial <= 64 && best_cycles < 0; serial *= 2)
    for (method by : {method::weights_stationary, method::activations_stationary, method::dot_products}) {
      const int grain_m = by == method::weights_stationary ? 16 : 1;
      const int grain_n = by == method::activations_stationary ? 16 : 1;
      const int grain_k = by == method::dot_products ? 4 : of == precision::half ? 16 : 8;
      for (std::int64_t pk : part_counts(shape.k, tiles, grain_k))
        for (std::int64_t pn : part_counts(shape.n, tiles / pk, grain_n))
          for (std::int64_t pm : part_counts(ceil_div(shape.m, serial), tiles / (pk * pn), grain_m)) {
            dense_plan plan{pm, pk, pn, serial, by, {}};
            plan.cost = cost_of(on, shape, of, plan, options);
            const std::int64_t bytes = plan.cost.temporary_bytes;
            if (least_bytes < 0 || bytes < least_bytes) least_bytes = bytes;
            if (double(bytes) > bound || (best_cycles >= 0 && plan.cost.cycles() >= best_cycles)) continue;
            best_cycles = plan.cost.cycles();
            best = plan;
          }
    }
  if (best_cycles < 0) detail::refuse_temporaries("[ipu::plan_dense] ", on, shape, "", least_bytes, bound);
  return best;
}

TESSERA_BODY std::string dense_plan::explain() const {
  return message(m_parts, " x ", k_parts, " x ", n_parts, " parts of m, k, n on ", tiles(), " tiles, ",
                 by == method::weights_stationary       ? "weights stationary"
                 : by == method::activations_stationary ? "activations stationary"
                                                        : "dot products",
                 serial > 1 ? message(", ", serial, " times") : std::string());
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
