// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include <support/allocations.hpp>

// Every test program is linked with this file: its operators replace the operators of the standard library.

namespace {
std::atomic<long> count{0};
}

long support::allocations() { return count; }

#ifndef TESSERA_SANITIZED

namespace {
void* counted(std::size_t bytes, std::size_t alignment) {
  ++count;
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

#endif
