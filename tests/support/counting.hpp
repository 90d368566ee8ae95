// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <tessera/core/array_ref.hpp>
#include <tessera/exec/executor.hpp>
#include <tessera/exec/phase.hpp>

namespace support {

/// Does everything on one thread, and counts it: `counting work; context ctx(work);`
struct counting {
  std::int64_t multiplies = 0;       // multiply-adds of products
  std::int64_t operations = 0;       // elementwise arithmetic
  std::int64_t blocks = 0;           // of products of weights in blocks, each once a task
  std::map<std::string, int> kinds;  // of steps: how many runs had one

  int concurrency() const { return 1; }
  void run(int count, tessera::exec::body_ref body) {
    ++kinds["unseen"];
    for (int i = 0; i < count; ++i) body(i);
  }
  void run(tessera::array_ref<tessera::exec::phase> phases) {
    for (tessera::exec::phase const& each : phases) {
      each.for_each_kind([&](char const* kind) { ++kinds[kind]; });
      for (int task = 0; task < each.tasks(); ++task) {
        const tessera::exec::task_description its = each.describe(task);
        multiplies += its.multiplies;
        operations += its.operations;
        for (tessera::exec::block_product const& product : its.products) blocks += product.blocks;
        each.compute(task, 0);
      }
    }
  }
  /// Since the last call.
  std::int64_t counted() {
    const std::int64_t now = multiplies;
    multiplies = 0;
    return now;
  }
};
static_assert(tessera::exec::executor<counting> && tessera::exec::phase_executor<counting>);

}  // namespace support
