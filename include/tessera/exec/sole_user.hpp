// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// A place that one thread uses at a time, by itself and by threads that work for it. A thread of these may
/// come in again, from the work that it does; any other thread is refused.
class sole_user {
 public:
  /// From when a thread has come in until it has left.
  class entry {
   public:
    entry(sole_user* left, std::thread::id thread) : left_(left), thread_(thread) {}
    ~entry() {
      if (left_) left_->user_.store({}, std::memory_order_release);
    }
    entry(entry const&) = delete;
    entry& operator=(entry const&) = delete;

    /// Whether the thread came from outside, not again.
    explicit operator bool() const { return left_ != nullptr; }
    std::thread::id thread() const { return thread_; }

   private:
    sole_user* left_;
    std::thread::id thread_;
  };

  /// While a thread does a part of the work of an entry.
  class work {
   public:
    work(sole_user const& place, int part, std::thread::id user) : worker_(nullptr) {
      const std::thread::id self = std::this_thread::get_id();
      if (self == user) return;  // known already
      worker_ = &place.workers_[std::size_t(part)].thread;
      worker_->store(self, std::memory_order_relaxed);
    }
    ~work() {
      if (worker_) worker_->store({}, std::memory_order_relaxed);
    }
    work(work const&) = delete;
    work& operator=(work const&) = delete;

   private:
    std::atomic<std::thread::id>* worker_;
  };

  /// For as many parts of work as may be done at the same time.
  explicit sole_user(int parts) : parts_(parts), workers_(std::make_unique<worker[]>(std::size_t(parts))) {}

  /// Throws error, `[operation] …`, if another thread is there.
  entry enter(char const* operation) {
    const std::thread::id self = std::this_thread::get_id();
    std::thread::id user;
    if (user_.compare_exchange_strong(user, self, std::memory_order_acquire)) return {this, self};
    if (user != self) require_worker(operation, self);
    return {nullptr, self};
  }

 private:
  struct alignas(64) worker {
    std::atomic<std::thread::id> thread;
  };

  void require_worker(char const* operation, std::thread::id self) const;

  std::atomic<std::thread::id> user_;
  int parts_;
  std::unique_ptr<worker[]> workers_;
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void sole_user::require_worker(char const* operation, std::thread::id self) const {
  for (int part = 0; part < parts_; ++part)
    if (workers_[std::size_t(part)].thread.load(std::memory_order_relaxed) == self) return;
  throw error(message("[", operation,
                      "] the context is in use by another thread: a context is used by one thread at a time. "
                      "Give each thread one of its own, as context(1)"));
}

#endif

}}}  // namespace tessera::TESSERA_ISA::exec
