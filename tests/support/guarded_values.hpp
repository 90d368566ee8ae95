// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include <tessera/core/memory.hpp>

namespace support {

/// Values before a page that nothing may read: they end with it but for zeros up to a multiple of 64 bytes.
template <class T> class guarded_values {
 public:
  explicit guarded_values(std::size_t count) {
    const auto page = std::size_t(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = tessera::round_up(count * sizeof(T), std::size_t{64}),
                      pages = tessera::round_up(bytes, page);
    mapped_ = pages + page;
    start_ = static_cast<std::byte*>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(start_ + pages, page, PROT_NONE);
    values_ = {reinterpret_cast<T*>(start_ + (pages - bytes)), bytes / sizeof(T)};
  }
  /// A copy of some values.
  template <class Values> static guarded_values of(Values const& values) {
    guarded_values copy(std::size_t(values.end() - values.begin()));
    std::copy(values.begin(), values.end(), copy.values_.begin());
    return copy;
  }
  guarded_values(guarded_values&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)), mapped_(other.mapped_), values_(other.values_) {}
  ~guarded_values() {
    if (start_) munmap(start_, mapped_);
  }
  std::span<T> span() const { return values_; }

 private:
  std::byte* start_;
  std::size_t mapped_;
  std::span<T> values_;
};

}  // namespace support
