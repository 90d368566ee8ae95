// SPDX-License-Identifier: BSD-3-Clause
#include <csignal>

#include <doctest/doctest.h>

#include <tessera/train/interrupt.hpp>

namespace interrupt_test {

using tessera::train::interrupt_guard;

volatile std::sig_atomic_t earlier_handler_calls = 0;
void earlier_handler(int) { earlier_handler_calls = earlier_handler_calls + 1; }

TEST_CASE("interrupt: the first signal sets the flag and the second does what it did before") {
  for (const int signal : {SIGINT, SIGTERM}) {
    auto const before = std::signal(signal, earlier_handler);
    earlier_handler_calls = 0;
    {
      const interrupt_guard guard;
      CHECK(guard.signal() == 0);
      std::raise(signal);
      CHECK(guard.signal() == signal);
      CHECK(earlier_handler_calls == 0);
      std::raise(signal);
      CHECK(earlier_handler_calls == 1);
    }
    std::signal(signal, before);
  }
}

TEST_CASE("interrupt: a signal that nobody looked at does at the end of the guard what it did before") {
  for (const int signal : {SIGINT, SIGTERM})
    for (const bool looks : {true, false}) {
      auto const before = std::signal(signal, earlier_handler);
      earlier_handler_calls = 0;
      {
        const interrupt_guard guard;
        CHECK(guard.signal() == 0);
        std::raise(signal);
        if (looks) CHECK(guard.signal() == signal);
        CHECK(earlier_handler_calls == 0);
      }
      CHECK(earlier_handler_calls == (looks ? 0 : 1));
      std::signal(signal, before);
    }
}

TEST_CASE("interrupt: the second signal may be another one") {
  auto const before = std::signal(SIGTERM, earlier_handler);
  earlier_handler_calls = 0;
  {
    const interrupt_guard guard;
    std::raise(SIGINT);
    std::raise(SIGTERM);
    CHECK(guard.signal() == SIGINT);
    CHECK(earlier_handler_calls == 1);
  }
  std::signal(SIGTERM, before);
}

TEST_CASE("interrupt: a signal that was ignored stays so") {
  auto const before = std::signal(SIGINT, SIG_IGN);
  {
    const interrupt_guard guard;
    std::raise(SIGINT);
    CHECK(guard.signal() == 0);
  }
  std::signal(SIGINT, before);
}

TEST_CASE("interrupt: the handlers from before are back when the guard is gone") {
  auto const before = std::signal(SIGTERM, earlier_handler);
  {
    const interrupt_guard guard;
  }
  earlier_handler_calls = 0;
  std::raise(SIGTERM);
  CHECK(earlier_handler_calls == 1);
  {
    const interrupt_guard again;
    CHECK(again.signal() == 0);
  }
  std::signal(SIGTERM, before);
}

}  // namespace interrupt_test
