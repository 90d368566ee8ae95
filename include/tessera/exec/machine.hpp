// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/cpu.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/exec/amx_permission.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The workers for which a run is cut into tiles, and the engines that multiply.
struct machine {
  int workers = 1;  // tasks that it computes at the same time
  engine_set engines{engine::pairs, engine::quads};
  cpu_family family = cpu_family::other;  // by which it chooses among its engines
  std::int64_t worker_bytes = 0;          // memory of a worker of its own; 0: as much as a task wants
};

/// A worker on this CPU, with all of its engines.
inline machine this_machine() {
  machine m{.family = this_cpu_family()};
  if (exec::amx_permitted()) m.engines.allow(engine::amx);
  return m;
}

}}  // namespace tessera::TESSERA_ISA
