// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#if defined(__linux__)
#include <sched.h>
#endif

namespace bench {

/// Keeps the calling thread on one of the cores it may use, as long as it lives; the number counts round
/// them. Only on Linux: elsewhere the thread stays where it is put.
class on_core {
 public:
  explicit on_core([[maybe_unused]] int number) {
#if defined(__linux__)
    if (sched_getaffinity(0, sizeof all_, &all_) != 0) return;
    number %= CPU_COUNT(&all_);
    int core = 0;
    while (!CPU_ISSET(core, &all_) || number-- > 0) ++core;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    pinned_ = sched_setaffinity(0, sizeof one, &one) == 0;
#endif
  }
  ~on_core() {
#if defined(__linux__)
    if (pinned_) sched_setaffinity(0, sizeof all_, &all_);
#endif
  }
  on_core(on_core const&) = delete;
  on_core& operator=(on_core const&) = delete;

 private:
#if defined(__linux__)
  cpu_set_t all_{};
  bool pinned_ = false;
#endif
};

}  // namespace bench
