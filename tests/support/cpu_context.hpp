// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/exec/context.hpp>

namespace support { inline namespace TESSERA_ISA {

/// A pool whose runs choose engines as another CPU does.
struct cpu_pool : tessera::exec::thread_pool {
  tessera::machine as;

  cpu_pool(char const* cpu, int threads) : thread_pool(threads) {
    tessera::machine any{.workers = threads};
    any.engines.allow(tessera::engine::amx);
    as = as_on_cpu(any, cpu);
  }
  tessera::machine stands_for() const { return as; }
};

/// A context that chooses engines as a CPU of tessera::cpu_models does, on whichever this is. One with a
/// matrix unit needs TESSERA_EMULATED_AMX.
class cpu_context : cpu_pool, public tessera::context {
 public:
  explicit cpu_context(char const* cpu, int threads = 1)
      : cpu_pool(cpu, threads), context(static_cast<cpu_pool&>(*this)) {}
};

}}  // namespace support::TESSERA_ISA
