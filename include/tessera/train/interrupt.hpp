// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <csignal>

#include <signal.h>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// During its lifetime the first SIGINT or SIGTERM only sets a flag, so that a program can end with a
/// checkpoint; the second signal, of either kind, has its earlier effect, and so has, at the end of the
/// lifetime, a signal that `signal()` has not told: none is lost. An ignored signal stays ignored. Only one
/// guard may live at a time, because signals belong to the process; let it live while the flag is looked at.
class interrupt_guard {
 public:
  interrupt_guard() {
    received_ = told_ = 0;
    struct sigaction action{};
    action.sa_handler = [](int signal) {
      received_ = signal;
      reinstate(SIGINT);
      reinstate(SIGTERM);
    };
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &before_interrupt_);
    sigaction(SIGTERM, &action, &before_termination_);
    if (before_interrupt_.sa_handler == SIG_IGN) reinstate(SIGINT);
    if (before_termination_.sa_handler == SIG_IGN) reinstate(SIGTERM);
  }
  interrupt_guard(interrupt_guard const&) = delete;
  interrupt_guard& operator=(interrupt_guard const&) = delete;
  ~interrupt_guard() {
    reinstate(SIGINT);
    reinstate(SIGTERM);
    if (const int received = received_; received != told_) ::raise(received);
  }

  /// The signal that was received, or 0.
  int signal() const { return told_ = received_.load(); }

 private:
  // May be called in a signal handler: sigaction is async-signal-safe (POSIX.1-2017, 2.4.3).
  static void reinstate(int signal) {
    sigaction(signal, signal == SIGINT ? &before_interrupt_ : &before_termination_, nullptr);
  }

  static_assert(std::atomic<int>::is_always_lock_free, "else a signal handler may not write it");
  inline static std::atomic<int> received_{0}, told_{0};
  inline static struct sigaction before_interrupt_{}, before_termination_{};
};

}}}  // namespace tessera::TESSERA_ISA::train
