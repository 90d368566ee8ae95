// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sums of one block row of a matrix at a time, in the accumulator, found by block column (Gustavson
/// 1978). Blocks of a matrix of accumulators are summed where they stand. Single elements are summed by
/// column: a sum of a column that is not stored is never read.
///   Elements   of a block
///   C          the matrix's
template <class Arch, class C, int Elements> class row_sums {
 public:
  using T = accumulator_t<C>;
  static constexpr bool by_column = Elements == 1;
  static constexpr bool in_place = !by_column && std::is_same_v<C, T>;

  /// Bytes of scratch for the rows of an index.
  static std::size_t scratch_bytes(block_index const& c) {
    if constexpr (by_column) return std::size_t(c.width()) * sizeof(T);
    std::int64_t widest = 0;
    if constexpr (!in_place)
      for (int i = 0; i < c.lines(); ++i) widest = std::max<std::int64_t>(widest, c.line(i).count);
    return place_bytes(c.width()) + std::size_t(widest) * Elements * sizeof(T);
  }

  row_sums(block_index const& c, C* values, std::byte* scratch) noexcept : c_(c), values_(values) {
    if constexpr (by_column) {
      sums_ = reinterpret_cast<T*>(scratch);
    } else {
      place_ = reinterpret_cast<std::int32_t*>(scratch);
      std::fill_n(place_, c.width(), -1);
      if constexpr (!in_place) sums_ = reinterpret_cast<T*>(scratch + place_bytes(c.width()));
    }
  }

  /// Begins a row with zeros, or with the values of the matrix.
  void begin(int line, bool accumulates) noexcept {
    line_ = c_.line(line);
    C* const values = first_value();
    if constexpr (by_column) {
      for (int b = 0; b < line_.count; ++b) sums_[line_.columns[b]] = accumulates ? T(values[b]) : T(0);
    } else {
      for (int b = 0; b < line_.count; ++b) place_[line_.columns[b]] = b;
      if constexpr (in_place) sums_ = values;
      if (!accumulates)
        std::fill_n(sums_, size(), T(0));
      else if constexpr (!in_place)
        for (std::int64_t v = 0; v < size(); ++v) sums_[v] = T(values[v]);
    }
  }
  /// The sums of a block column; null if the row does not store it.
  T* at(std::int32_t column) noexcept {
    if constexpr (by_column) return sums_ + column;
    const std::int32_t b = place_[column];
    return b < 0 ? nullptr : sums_ + std::int64_t(b) * Elements;
  }
  /// Ends the row: each sum is rounded once.
  void end() noexcept {
    C* const values = first_value();
    if constexpr (by_column) {
      for (int b = 0; b < line_.count; ++b) values[b] = C(sums_[line_.columns[b]]);
    } else {
      for (int b = 0; b < line_.count; ++b) place_[line_.columns[b]] = -1;
      if constexpr (!in_place) {
        constexpr int lanes = simd::lanes<T, Arch>;
        std::int64_t v = 0;
        for (; v + lanes <= size(); v += lanes)
          simd::store_values<Arch>(values + v, simd::batch<T, Arch>::load_unaligned(sums_ + v));
        for (; v < size(); ++v) values[v] = C(sums_[v]);
      }
    }
  }

 private:
  static std::size_t place_bytes(int width) {
    return round_up<std::size_t>(std::size_t(width) * sizeof(std::int32_t), 64);
  }
  C* first_value() const { return values_ + line_.first * Elements; }
  std::int64_t size() const { return std::int64_t(line_.count) * Elements; }

  block_index c_;
  C* values_;
  block_line line_{};
  std::int32_t* place_ = nullptr;  // of a block in the row, by its column; -1 elsewhere
  T* sums_ = nullptr;
};

}}}  // namespace tessera::TESSERA_ISA::kernels
