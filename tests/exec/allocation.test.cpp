// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include <doctest/doctest.h>

#include <tessera/exec/context.hpp>

// Sanitizers bring operators of their own, which cannot be replaced everywhere.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif
#if !defined(SANITIZED) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// The allocations of the whole program are counted: these replace the operators of every file linked with
// this one.
namespace {
std::atomic<long> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  if (void* memory = std::aligned_alloc(alignment, whole ? whole : alignment)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

TEST_CASE("context: a run allocates nothing once scratch is reserved") {
  for (int threads : {1, 2, 3}) {
    tessera::context ctx(threads, tessera::oversubscribe::allowed);
    const auto step = [&] {
      ctx.reserve_scratch(5000);
      ctx.shared_scratch(5000);
      ctx.run(100, [](int, std::byte* scratch) { *scratch = std::byte{1}; });
    };
    const long before_first = allocations;
    step();
    CHECK(allocations > before_first);
    const long before_second = allocations;
    step();
    CHECK(allocations == before_second);
  }
}

}  // namespace

#endif
