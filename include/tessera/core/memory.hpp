// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// Bytes held by tensors of this process, now and at most so far. A statistic: nothing depends on it.
struct tensor_memory {
  static std::size_t live() { return live_.load(std::memory_order_relaxed); }
  static std::size_t peak() { return peak_.load(std::memory_order_relaxed); }
  /// Starts a new measurement of the peak from the live bytes.
  static void reset_peak() { peak_.store(live(), std::memory_order_relaxed); }

  static void add(std::size_t bytes) {
    const std::size_t now = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::size_t seen = peak();
    while (seen < now && !peak_.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }
  static void remove(std::size_t bytes) { live_.fetch_sub(bytes, std::memory_order_relaxed); }

  /// Bytes that were copied so far because they could not be borrowed: see borrowing::or_copied.
  static std::size_t copied() { return copied_.load(std::memory_order_relaxed); }
  static void add_copied(std::size_t bytes) { copied_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  inline static std::atomic<std::size_t> live_{0}, peak_{0}, copied_{0};
};

/// How values that cannot be borrowed are treated: an error, or a copy, which tensor_memory::copied counts.
/// Who writes the copy does not change the values of the owner.
enum class borrowing { strict, or_copied };

/// a * b, or shape_error if it does not fit: sizes are checked before anything is allocated.
std::size_t checked_multiply(std::size_t a, std::size_t b);

/// A fixed number of values at an address that is a multiple of 64, zero at first. A register may be read,
/// and written, at any of them: the array has memory, with zeros, up to the next multiple of 64 bytes. Large
/// arrays ask the system for huge pages: a deep panel would else need more pages of 4 KiB than the TLB holds.
template <class T> class aligned_array {
  static_assert(std::is_trivially_copyable_v<T>, "values are moved as bytes");

 public:
  static constexpr std::size_t alignment = 64;

  aligned_array() = default;
  TESSERA_COLD explicit aligned_array(std::size_t size) : size_(size) {
    if (size == 0) return;
    const std::size_t bytes = round_up(checked_multiply(size, sizeof(T)), alignment);
    data_ = static_cast<T*>(::operator new(bytes, page_of(bytes)));
#ifdef __linux__
    if (bytes >= huge_page) madvise(data_, bytes, MADV_HUGEPAGE);  // advice: small pages serve as well
#endif
    tensor_memory::add(size_bytes());
    std::memset(static_cast<void*>(data_), 0, bytes);
  }
  /// `size` values that another owns, and keeps for longer than this array; values from `used` on are zero.
  /// `lent` begins at a multiple of 64 bytes, and has zeros behind its values up to the next multiple. Throws
  /// shape_error if it is shorter than `used`, ends behind that multiple, or has another value there;
  /// option_error if it cannot be borrowed. Copies of this array own their values.
  TESSERA_COLD static aligned_array over(std::span<T> lent, std::size_t used, std::size_t size,
                                         borrowing how = borrowing::strict) {
    const std::size_t whole = round_up(checked_multiply(size, sizeof(T)), alignment) / sizeof(T);
    if (lent.size() < used || lent.size() > whole)
      throw shape_error(message("[borrow] ", lent.size(), " values, but ", used, " are needed"));
    for (std::size_t i = used; i < lent.size(); ++i)
      if (double(lent[i]) != 0)
        throw shape_error(message("[borrow] value ", i, ", behind the last one of ", used, ", must be zero"));
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(lent.data()) % alignment;
    if (how == borrowing::strict && (beyond != 0 || lent.size() < whole))
      throw option_error(message(
          "[borrow] ",
          beyond != 0 ? message("the values begin ", beyond, " bytes behind a multiple of ", alignment)
                      : message(whole - lent.size(), " zeros behind ", lent.size(), " values are missing"),
          ", and kernels read whole registers: borrowing::or_copied copies such values"));
    if (beyond != 0 || lent.size() < whole) {
      aligned_array copy(size);
      std::copy_n(lent.data(), used, copy.data_);
      tensor_memory::add_copied(copy.size_bytes());
      return copy;
    }
    aligned_array array;
    array.data_ = lent.data();
    array.size_ = size;
    array.borrows_ = true;
    return array;
  }
  bool borrows() const { return borrows_; }
  /// The values of another array, whose tail it shares.
  static aligned_array at(T* data, std::size_t size) {
    aligned_array array;
    array.data_ = data;
    array.size_ = size;
    array.borrows_ = true;
    return array;
  }

  aligned_array(aligned_array const& other) : aligned_array(other.size_) {
    std::copy_n(other.data_, size_, data_);
  }
  aligned_array(aligned_array&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        borrows_(std::exchange(other.borrows_, false)) {}
  aligned_array& operator=(aligned_array other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(borrows_, other.borrows_);
    return *this;
  }
  ~aligned_array() {
    if (!data_ || borrows_) return;
    tensor_memory::remove(size_bytes());
    ::operator delete(data_, page_of(size_bytes()));
  }

  T* data() { return data_; }
  T const* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t size_bytes() const { return size_ * sizeof(T); }
  T& operator[](std::size_t i) { return data_[i]; }
  T const& operator[](std::size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  T const* begin() const { return data_; }
  T const* end() const { return data_ + size_; }
  std::span<T> span() { return {data_, size_}; }
  std::span<T const> span() const { return {data_, size_}; }

 private:
  // Arrays share no 256 bytes, the unit of accounts, which therefore do not depend on addresses
  // (ipu/runs/homes.hpp).
  static constexpr std::size_t huge_page = std::size_t(2) << 20, small_page = 256;
  static std::align_val_t page_of(std::size_t bytes) {
    return std::align_val_t{round_up(bytes, alignment) >= huge_page ? huge_page : small_page};
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
  bool borrows_ = false;
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY std::size_t checked_multiply(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) ||
      product > std::size_t(std::numeric_limits<std::ptrdiff_t>::max()))
    throw shape_error(message("[allocate] ", a, " times ", b, " does not fit the address space"));
  return product;
}

#endif

}}  // namespace tessera::TESSERA_ISA
