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

/// Where lines that are written stay: in the caches, or past them in memory, for tensors that would not be
/// found there when they are read.
enum class lines_go { to_caches, to_memory };

/// Brings rows of tokens into a panel, and back. A word is a lane of the panel: one feature of a token, or
/// several, which stand together in a row, too. Squares of words are transposed in registers, whole cache
/// lines of rows and panel at a time; words at the edges one by one.
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
                       int tokens, lines_go go) noexcept {
    const std::int64_t square_features = last - (last - first) % line_features;
    const int square_tokens = stride % features_a_word == 0 ? tokens / side * side : 0;
    const auto bring = [&]<int squares>(std::integral_constant<int, squares>, int t, lines_go where) {
      for (std::int64_t f = first; f < square_features; f += line_features)
        transpose<squares, squares_a_line>(words(rows + t * stride + f), stride / features_a_word,
                                           words(panel + place_in_panel<E>(f, t)), panel_tokens, where);
    };
    const int line_tokens = square_tokens / line_words * line_words;
    for (int t = 0; t < line_tokens; t += line_words)
      bring(std::integral_constant<int, squares_a_line>(), t, go);
    for (int t = line_tokens; t < square_tokens; t += side)
      bring(std::integral_constant<int, 1>(), t, lines_go::to_caches);
    finish(first, last, tokens, square_features, square_tokens, go,
           [&](std::int64_t f, int t) { panel[place_in_panel<E>(f, t)] = rows[t * stride + f]; });
    for (std::int64_t f = first; tokens < panel_tokens && f < last; ++f)
      for (int t = tokens; t < panel_tokens; ++t) panel[place_in_panel<E>(f, t)] = E(0);
  }

  /// Features [first, last) of a panel into the rows.
  static void to_rows(E const* panel, E* rows, std::int64_t stride, std::int64_t first, std::int64_t last,
                      int tokens, lines_go go) noexcept {
    const std::int64_t square_features = last - (last - first) % line_features;
    const int square_tokens = stride % features_a_word == 0 ? tokens / side * side : 0;
    // More rows at once are written slower past the caches, so that a pass takes parts of lines out of all of
    // the panel. It has to be near by then: past the caches, the panel behind is asked for while this one
    // goes.
    auto next = reinterpret_cast<std::byte const*>(panel + last * panel_tokens);
    constexpr int square_bytes = line_features * side * int(sizeof(E));
    for (int t = 0; t < square_tokens; t += side)
      for (std::int64_t f = first; f < square_features; f += line_features) {
        if (go == lines_go::to_memory) prefetch(next, square_bytes);
        next += square_bytes;
        transpose<squares_a_line, 1>(words(panel + place_in_panel<E>(f, t)), panel_tokens,
                                     words(rows + t * stride + f), stride / features_a_word, go);
      }
    finish(first, last, tokens, square_features, square_tokens, go,
           [&](std::int64_t f, int t) { rows[t * stride + f] = panel[place_in_panel<E>(f, t)]; });
  }

 private:
  static word const* words(E const* at) { return reinterpret_cast<word const*>(at); }
  static word* words(E* at) { return reinterpret_cast<word*>(at); }
  static void prefetch(std::byte const* from, int bytes) {
    for (int byte = 0; byte < bytes; byte += 64) simd::prefetch<2>(from + byte);
  }

  /// Squares of registers, `Down` below each other and `Across` beside each other, by way of whole lines:
  /// rows whose distance is a power of two drive each other's lines out of the L1.
  template <int Down, int Across>
  static void transpose(word const* from, std::int64_t from_stride, word* to, std::int64_t to_stride,
                        lines_go go) noexcept {
    alignas(64) word lines[unsigned(Across * side)][unsigned(Down * side)];
    unroll<Down * Across>([&](auto square) TESSERA_INLINE_LAMBDA {
      constexpr int i = square / Across * side, j = square % Across * side;
      simd::transpose_square<word, Arch>(from + i * from_stride + j, from_stride, lines[j] + i, Down * side);
    });
    const bool stream = go == lines_go::to_memory && to_stride * std::int64_t(sizeof(word)) % 64 == 0 &&
                        reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
    for (int i = 0; i < Across * side; ++i)
      unroll<Down>([&](auto j) TESSERA_INLINE_LAMBDA {
        const auto part = simd::load<Arch>(lines[i] + j * side);
        word* const at = to + i * to_stride + j * side;
        stream ? simd::stream<Arch>(at, part) : simd::store<Arch>(at, part);
      });
  }

  /// The features and tokens that no square covers, and the end of the streams.
  template <class Visit>
  static void finish(std::int64_t first, std::int64_t last, int tokens, std::int64_t square_features,
                     int square_tokens, lines_go go, Visit&& visit) {
    for (int t = 0; t < tokens; ++t)
      for (std::int64_t f = t < square_tokens ? square_features : first; f < last; ++f) visit(f, t);
    if (go == lines_go::to_memory) simd::streams_end();
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
