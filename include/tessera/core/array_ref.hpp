// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// A reference to elements in memory, one behind the other. Not a std::span, which takes longer to compile in
/// every file that runs a statement.
template <class T> class array_ref {
 public:
  constexpr array_ref() = default;
  constexpr array_ref(T const* first, std::size_t count) : first_(first), count_(count) {}
  template <std::size_t Count> constexpr array_ref(T const (&array)[Count]) : array_ref(array, Count) {}

  constexpr T const* begin() const { return first_; }
  constexpr T const* end() const { return first_ + count_; }
  constexpr std::size_t size() const { return count_; }
  constexpr T const& operator[](std::size_t i) const { return first_[i]; }

 private:
  T const* first_ = nullptr;
  std::size_t count_ = 0;
};

}}  // namespace tessera::TESSERA_ISA
