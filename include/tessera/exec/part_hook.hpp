// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include <tessera/core/array_ref.hpp>
#include <tessera/core/config.hpp>
#include <tessera/exec/denormals.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// Two functions around each part of a run, on the thread that takes it: they set and restore state that a
/// kernel needs of its thread. Neither function throws.
struct part_hook {
  void (*enter)();
  void (*leave)();
  friend bool operator==(part_hook const&, part_hook const&) = default;
};

/// Around one part: denormals are flushed, and hooks are entered in order and left in reverse.
class part_scope {
 public:
  explicit part_scope(array_ref<part_hook> hooks) : hooks_(hooks) {
    for (part_hook const& hook : hooks_) hook.enter();
  }
  part_scope(part_scope const&) = delete;
  part_scope& operator=(part_scope const&) = delete;
  ~part_scope() {
    for (std::size_t i = hooks_.size(); i > 0; --i) hooks_[i - 1].leave();
  }

 private:
  flush_denormals flushed_;
  array_ref<part_hook> hooks_;
};

}}}  // namespace tessera::TESSERA_ISA::exec
