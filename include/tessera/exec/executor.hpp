// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/exec/denormals.hpp>

namespace tessera::inline TESSERA_ISA::exec {

/// A reference to anything callable as body(int), two words long; valid as long as the body itself is.
class body_ref {
 public:
  template <class Body>
    requires(!std::same_as<std::remove_cvref_t<Body>, body_ref> &&
             std::is_object_v<std::remove_reference_t<Body>> && std::invocable<Body&, int>)
  body_ref(Body&& body)
      : body_(const_cast<void*>(static_cast<void const*>(std::addressof(body)))),
        call_(
            [](void* object, int index) { (*static_cast<std::remove_reference_t<Body>*>(object))(index); }) {}

  void operator()(int index) const { call_(body_, index); }

 private:
  void* body_;
  void (*call_)(void*, int);
};

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

}  // namespace tessera::inline TESSERA_ISA::exec
