// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/simd/lane.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Brings rows of tokens into a panel, and back. A word is a lane of the panel: one feature of a token, or
/// two, which stand together in a row, too. Squares of words are transposed in registers, whole cache lines
/// of rows and panel at a time; words at the edges one by one.
template <class Arch, element E> struct row_transposition {
  static constexpr int features_a_word = element_traits<E>::features_a_lane;
  using word = std::conditional_t<sizeof(E) * features_a_word == 8, double, float>;
  static constexpr int side = simd::lanes<word, Arch>;
  static constexpr int line_words = std::max<int>(side, 64 / int(sizeof(word))),
                       squares_a_line = line_words / side,
                       line_features = line_words * features_a_word;  // of a cache line

  /// Features [first, last) of the rows into a panel; tokens beyond the last one become zero. `first` begins
  /// a word.
  ///   rows    of the panel's first token   stride   elements from one row to the next
  static void to_panel(E const* rows, std::int64_t stride, E* panel, std::int64_t first, std::int64_t last,
                       int tokens) noexcept {
    const std::int64_t square_features = last - (last - first) % line_features;
    const int square_tokens = stride % features_a_word == 0 ? tokens / side * side : 0;
    for (int begin = 0; begin < square_tokens; begin += line_words)
      for (std::int64_t f = first; f < square_features; f += line_features)
        for (int t = begin; t < std::min(begin + line_words, square_tokens); t += side)
          unroll<squares_a_line>([&](auto q) TESSERA_INLINE_LAMBDA {
            const std::int64_t feature = f + q * (side * features_a_word);
            simd::transpose_square<word, Arch>(words(rows + t * stride + feature), stride / features_a_word,
                                               words(panel + place_in_panel<E>(feature, t)), panel_tokens);
          });
    for_each_edge(first, last, tokens, square_features, square_tokens,
                  [&](std::int64_t f, int t) { panel[place_in_panel<E>(f, t)] = rows[t * stride + f]; });
    for (std::int64_t f = first; tokens < panel_tokens && f < last; ++f)
      for (int t = tokens; t < panel_tokens; ++t) panel[place_in_panel<E>(f, t)] = E(0);
  }

  /// Features [first, last) of a panel into the rows.
  static void to_rows(E const* panel, E* rows, std::int64_t stride, std::int64_t first, std::int64_t last,
                      int tokens) noexcept {
    const std::int64_t square_features = last - (last - first) % line_features;
    const int square_tokens = stride % features_a_word == 0 ? tokens / side * side : 0;
    for (int t = 0; t < square_tokens; t += side)
      for (std::int64_t f = first; f < square_features; f += line_features) {
        // A line of the rows is written at once: rows whose distance is a power of two drive each other's
        // lines out of the L1.
        alignas(64) word lines[unsigned(side)][unsigned(line_words)];
        unroll<squares_a_line>([&](auto q) TESSERA_INLINE_LAMBDA {
          simd::transpose_square<word, Arch>(
              words(panel + place_in_panel<E>(f + q * (side * features_a_word), t)), panel_tokens,
              lines[0] + q * side, line_words);
        });
        for (int i = 0; i < side; ++i) std::memcpy(rows + (t + i) * stride + f, lines[i], sizeof lines[i]);
      }
    for_each_edge(first, last, tokens, square_features, square_tokens,
                  [&](std::int64_t f, int t) { rows[t * stride + f] = panel[place_in_panel<E>(f, t)]; });
  }

 private:
  static word const* words(E const* at) { return reinterpret_cast<word const*>(at); }
  static word* words(E* at) { return reinterpret_cast<word*>(at); }

  /// The features and tokens that no square covers.
  template <class Visit>
  static void for_each_edge(std::int64_t first, std::int64_t last, int tokens, std::int64_t square_features,
                            int square_tokens, Visit&& visit) {
    for (int t = 0; t < tokens; ++t)
      for (std::int64_t f = t < square_tokens ? square_features : first; f < last; ++f) visit(f, t);
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
