// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <system_error>
#include <thread>  // and the clock: <chrono> has calendars, too, which take as long to compile as all of exec/

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/available_threads.hpp>
#include <tessera/exec/executor.hpp>
#include <tessera/exec/index_ranges.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// Threads that share the bodies of a run: a contiguous range of indices each, stealing at the end.
///
/// Between runs the threads spin for a while, so that the next one starts within a microsecond, and then
/// sleep, so that they leave the cores to others. `run` waits for bodies, never for threads: one that wakes
/// late finds its range already stolen.
class thread_pool {
 public:
  /// The caller of `run` is one of the threads. More of them than cores do not spin.
  ///   threads   at least 1, else option_error; machine_error if the system starts no more of them
  explicit thread_pool(int threads);
  ~thread_pool();
  thread_pool(thread_pool const&) = delete;
  thread_pool& operator=(thread_pool const&) = delete;

  int concurrency() const { return threads_; }

  /// Calls body(0) … body(count-1), each once, with denormals flushed. If bodies throw, one of their
  /// exceptions arrives here, and bodies not yet begun may be left out. While a run is in progress another
  /// one, begun by a body or by another thread, is done in order on the thread that begins it. Allocates
  /// nothing.
  void run(int count, body_ref body);

 private:
  // Waking a sleeping thread costs 3 to 50 microseconds, the range of the products between which it waits.
  static constexpr std::chrono::microseconds longest_spin{50};

  static int at_least_one(int threads);

  void work(int part);

  // The body is read only after an index has been taken: from then on its run cannot end before this thread
  // has counted that index, however late the thread came.
  void drain(int part);

  template <class Number> Number wait_for_change(std::atomic<Number> const& value, Number old) const {
    using clock = std::chrono::steady_clock;
    const clock::time_point sleep_time = clock::now() + spin_time_;
    do {
      for (int glance = 0; glance < 32; ++glance) {
        if (const Number now = value.load(std::memory_order_acquire); now != old) return now;
        pause();
      }
    } while (clock::now() < sleep_time);
    value.wait(old, std::memory_order_acquire);
    return value.load(std::memory_order_acquire);
  }

  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  void stop();

  std::thread& worker(int part) const { return workers_[static_cast<std::size_t>(part - 1)]; }

  const int threads_;
  const std::chrono::microseconds spin_time_;
  index_ranges ranges_;
  std::unique_ptr<std::thread[]> workers_;  // one less than threads
  std::atomic<bool> running_{false}, stopping_{false};

  // Two cache lines: workers read the first between runs and write the second at the end of one.
  alignas(64) std::atomic<std::uint32_t> runs_{0};
  body_ref const* body_ = nullptr;
  alignas(64) std::atomic<int> remaining_{0};
};

static_assert(executor<thread_pool>);

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY thread_pool::thread_pool(int threads)
    : threads_(at_least_one(threads)),
      spin_time_(threads <= available_threads() ? longest_spin : std::chrono::microseconds(0)),
      ranges_(threads) {
  int part = 1;
  try {
    workers_ = std::make_unique<std::thread[]>(static_cast<std::size_t>(threads - 1));
    for (; part < threads; ++part) worker(part) = std::thread([this, part] { work(part); });
  } catch (std::system_error const& refusal) {
    stop();
    throw machine_error(message("[thread_pool] the system does not start thread ", part + 1, " of ", threads,
                                ": ", refusal.code().message(),
                                "; ask for fewer, or raise its limit (ulimit -u, pids.max of a container)"));
  } catch (...) {
    stop();
    throw;
  }
}

TESSERA_COLD TESSERA_BODY thread_pool::~thread_pool() { stop(); }

TESSERA_COLD TESSERA_BODY void thread_pool::run(int count, body_ref body) {
  const sole_entry entry(running_);
  if (!entry || threads_ == 1 || count <= 1) return serial{}.run(count, body);

  body_ = &body;
  remaining_.store(count, std::memory_order_relaxed);
  ranges_.deal(count);
  runs_.fetch_add(1, std::memory_order_release);
  runs_.notify_all();
  drain(0);
  while (const int left = remaining_.load(std::memory_order_acquire)) wait_for_change(remaining_, left);
  ranges_.rethrow_failure();
}

TESSERA_BODY int thread_pool::at_least_one(int threads) {
  if (threads < 1)
    throw option_error(message("[thread_pool] ", threads,
                               " threads asked for; at least 1 is needed, which is the calling thread"));
  return threads;
}

TESSERA_COLD TESSERA_BODY void thread_pool::work(int part) {
  for (std::uint32_t seen = 0;;) {
    seen = wait_for_change(runs_, seen);
    if (stopping_.load(std::memory_order_relaxed)) return;
    drain(part);
  }
}

TESSERA_BODY void thread_pool::drain(int part) {
  const int done = ranges_.drain(part, [this](int index) { (*body_)(index); });
  if (done > 0 && remaining_.fetch_sub(done, std::memory_order_acq_rel) == done) remaining_.notify_one();
}

TESSERA_COLD TESSERA_BODY void thread_pool::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  runs_.fetch_add(1, std::memory_order_release);
  runs_.notify_all();
  for (int part = 1; workers_ && part < threads_; ++part)
    if (worker(part).joinable()) worker(part).join();
}

#endif

}}}  // namespace tessera::TESSERA_ISA::exec
