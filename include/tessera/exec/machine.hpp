// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/cpu.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/amx_permission.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The workers for which a run is cut into tiles, and the engines that multiply.
struct machine {
  int workers = 1;  // tasks that it computes at the same time
  engine_set engines{engine::pairs, engine::quads};
  cpu_family family = cpu_family::other;  // by which it chooses among its engines
  std::int64_t worker_bytes = 0;          // memory of a worker of its own; 0: as much as a task wants
};

/// A worker of `on` that chooses among its engines as another CPU does, of `cpu_models`. Throws option_error
/// if there is none of this name, machine_error if it has a matrix unit that `on` lacks.
machine as_on_cpu(machine on, std::string const& name);

/// A worker on this CPU, with all of its engines; or, if the environment variable TESSERA_CPU names one of
/// `cpu_models`, one that chooses as that does: with the same instruction set it computes the same bits.
machine this_machine();

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY machine as_on_cpu(machine on, std::string const& name) {
  std::string names;
  for (cpu_model const& cpu : cpu_models) {
    if (cpu.name == name) {
      if (cpu.engines.allows(engine::amx) && !on.engines.allows(engine::amx))
        throw machine_error(message("[context] TESSERA_CPU=", name, " multiplies by AMX, which this CPU or ",
                                    "this program lacks"));
      on.family = cpu.family;
      on.engines = cpu.engines;
      return on;
    }
    names.append(names.empty() ? "" : ", ").append(cpu.name);
  }
  throw option_error(message("[context] TESSERA_CPU=", name, ": the CPUs are ", names));
}

TESSERA_COLD TESSERA_BODY machine this_machine() {
  machine m{.family = this_cpu_family()};
  if (exec::amx_permitted()) m.engines.allow(engine::amx);
  char const* const other = std::getenv("TESSERA_CPU");
  return other && *other ? as_on_cpu(m, other) : m;
}

#endif

}}  // namespace tessera::TESSERA_ISA
