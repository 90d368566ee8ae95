// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/statements/run.hpp>

// Counts the bytes and multiplications of the tiles of a run from its plan, without computing them.

namespace tessera { inline namespace TESSERA_ISA {

/// Sums over exec::task_description.
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

cost cost_of(exec::task_description const& task);

/// The cost of one kernel call of a run.
struct task : cost {
  int stage;              // number of the phase, between two barriers
  int step;               // in the order of the program
  std::string_view kind;  // kind of step: "product", "elementwise", "sum of rows", …
  std::int64_t tile;      // number within its step
};

struct workload {
  std::vector<task> tasks;  // stage by stage
  cost total;
};

/// The tasks that `run` would give to the workers of a machine, and their costs, which do not depend on the
/// host. Throws the errors of `run`, and option_error for a machine without workers or with more than 2^20.
template <class... Statement> workload account(machine const& on, Statement const&... statement) {
  static_assert((runnable<Statement> && ...), "account takes what run takes: statements such as `y = w * x`");
  constexpr int most = 1 << 20;
  if (on.workers < 1 || on.workers > most)
    throw option_error(
        message("[account] a machine of ", on.workers, " workers: 1 … ", most, " are possible"));
  workload all;
  if constexpr ((runnable<Statement> && ...)) {
    eval::plan plan(on);
    (eval::lower_statement(plan, statement), ...);
    plan.schedule();
    plan.for_each_tile([&](int stage, int /*task*/, int step, eval::tile const& t) {
      const cost c = cost_of(plan.describe(step, t));
      all.tasks.push_back({c, stage, step, plan.at(step).kind, t.index * t.parts + t.part});
      all.total += c;
    });
  }
  return all;
}

/// The account for the threads of a context.
template <class... Statement> workload account(context& ctx, Statement const&... statement) {
  return account(ctx.runs_on(), statement...);
}

#ifdef TESSERA_BODY

TESSERA_BODY cost cost_of(exec::task_description const& task) {
  cost c{0, 0, task.multiplies};
  for (auto const& read : task.reads) c.bytes_read += read.all();
  for (auto const& written : task.writes) c.bytes_written += written.all();
  return c;
}

#endif

}}  // namespace tessera::TESSERA_ISA
