// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>

#include <tessera/core/config.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/exec/denormals.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// A reference to a body, valid as long as the body itself is.
using body_ref = function_ref<void(int)>;

/// Something that calls body(0) … body(count-1), each once, on whatever threads and in whatever order it
/// likes, and returns from `run` when all calls have. `concurrency()` is the most calls of one run that may
/// overlap. A `context` hands it bodies that do not throw.
template <class E>
concept executor = requires(E& e, body_ref body) {
  e.run(1, body);
  { e.concurrency() } -> std::convertible_to<int>;
};

/// Calls the bodies in order on the calling thread.
struct serial {
  template <std::invocable<int> Body> void run(int count, Body&& body) const {
    const flush_denormals flushed;
    for (int index = 0; index < count; ++index) body(index);
  }
  int concurrency() const { return 1; }
};

static_assert(executor<serial> && executor<serial const>);

}}}  // namespace tessera::TESSERA_ISA::exec
