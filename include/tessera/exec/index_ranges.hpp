// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/exec/denormals.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// The indices 0 … count-1 of one run, dealt to a fixed number of parts as contiguous ranges. The thread that
/// drains a part takes its indices from the front, one by one, and when it is empty indices of other parts
/// from the back: neighbouring indices stay on one thread, and only the tail of a run moves between threads.
class index_ranges {
 public:
  explicit index_ranges(int parts) : parts_(parts), ranges_(static_cast<std::size_t>(parts)) {}

  /// Deals out 0 … count-1 and returns how many parts got some: the first ones. No body of the previous run
  /// may be running any more, but threads may still be looking for one in `drain`. Whatever the caller wrote
  /// before is visible to whoever takes an index.
  int deal(int count);

  /// Calls the body for the indices of a part, then for indices of other parts until none is left, with
  /// denormals flushed. The first exception of a run is kept for `rethrow_failure`, and the indices nobody
  /// has taken are given up. Returns how many indices were taken or given up here.
  template <class Body> int drain(int part, Body const& body) noexcept {
    const flush_denormals flushed;
    int done = 0;
    try {
      for (int index; (index = take(part)) != none;) {
        ++done;
        body(index);
      }
    } catch (...) {
      if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::current_exception();
      done += give_up();
    }
    return done;
  }

  /// Throws the first exception of a body of the run, if any. To be called when every drain is over.
  void rethrow_failure();

 private:
  static constexpr int none = -1;

  // Begin in the lower half, end in the upper: both ends change in one compare-and-exchange. A thread that
  // read a range of one run may exchange it in the next if the numbers agree; it then owns an index of the
  // next run, which is as good.
  struct alignas(64) range {
    std::atomic<std::uint64_t> packed{0};
  };
  static std::uint64_t pack(std::uint32_t begin, std::uint32_t end) {
    return std::uint64_t{end} << 32 | begin;
  }
  static std::uint32_t bound(int count, int part, int parts) {
    return static_cast<std::uint32_t>(std::int64_t{count} * part / parts);
  }
  std::atomic<std::uint64_t>& at(int part) { return ranges_[static_cast<std::size_t>(part)].packed; }

  int take(int part) {
    for (int step = 0; step < parts_; ++step) {
      std::atomic<std::uint64_t>& packed = at((part + step) % parts_);
      std::uint64_t seen = packed.load(std::memory_order_relaxed);
      for (;;) {
        const auto begin = static_cast<std::uint32_t>(seen), end = static_cast<std::uint32_t>(seen >> 32);
        if (begin == end) break;
        const bool own = step == 0;
        const std::uint64_t rest = own ? pack(begin + 1, end) : pack(begin, end - 1);
        if (packed.compare_exchange_weak(seen, rest, std::memory_order_acquire, std::memory_order_relaxed))
          return static_cast<int>(own ? begin : end - 1);
      }
    }
    return none;
  }

  int give_up();

  int parts_;
  std::vector<range> ranges_;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
};

/// Enters a place that holds one run at a time, or finds it occupied: by a run further up this thread's
/// stack, or by another thread's.
class sole_entry {
 public:
  explicit sole_entry(std::atomic<bool>& occupied)
      : occupied_(occupied.exchange(true, std::memory_order_acquire) ? nullptr : &occupied) {}
  ~sole_entry() {
    if (occupied_) occupied_->store(false, std::memory_order_release);
  }
  sole_entry(sole_entry const&) = delete;
  sole_entry& operator=(sole_entry const&) = delete;

  explicit operator bool() const { return occupied_ != nullptr; }

 private:
  std::atomic<bool>* occupied_;
};

#ifdef TESSERA_BODY

TESSERA_BODY int index_ranges::deal(int count) {
  const int used = std::min(parts_, count);
  failed_.store(false, std::memory_order_relaxed);
  for (int part = 0; part < parts_; ++part) {
    const bool empty = part >= used;
    at(part).store(empty ? 0 : pack(bound(count, part, used), bound(count, part + 1, used)),
                   std::memory_order_release);
  }
  return used;
}

TESSERA_BODY void index_ranges::rethrow_failure() {
  if (failed_.exchange(false, std::memory_order_relaxed))
    std::rethrow_exception(std::exchange(failure_, nullptr));
}

TESSERA_BODY int index_ranges::give_up() {
  int count = 0;
  for (int part = 0; part < parts_; ++part) {
    const std::uint64_t rest = at(part).exchange(0, std::memory_order_relaxed);
    count += static_cast<int>((rest >> 32) - (rest & 0xffffffffu));
  }
  return count;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::exec
