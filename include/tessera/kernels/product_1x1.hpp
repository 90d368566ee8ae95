// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/product_operands.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The stored elements of a sparse W or Wᵀ in blocks of 1x1, copied once for a run into the order in which
/// ordered_product reads them: by groups of lines, in a group by chunks of features.
template <class T> struct nonzeros {
  static constexpr int group = 64;                                                 // lines
  static constexpr int most_features = std::numeric_limits<std::uint16_t>::max();  // of a chunk
  static constexpr std::int64_t fewest_a_piece = 5;  // on average; if fewer, x is read from the L2

  /// The nonzeros of one line in one chunk. The pieces of a window are sorted by length, so that the branch
  /// at the end of a piece is predicted.
  struct piece {
    std::uint16_t line, count;  // line within the group
  };
  /// The pieces of one group in one chunk.
  struct window {
    piece const* pieces;
    T const* values;
    std::uint16_t const* features;  // of each nonzero, within the chunk
    int lines;
  };

  int lines, chunk, chunks;  // lines, features of a chunk, chunks
  std::int64_t stored;
  std::int32_t* starts = nullptr;  // first nonzero of each window (groups, chunks)
  piece* pieces = nullptr;
  T* values = nullptr;
  std::uint16_t* features = nullptr;

  /// The nonzeros of a matrix, at `memory`; in chunks of at most `most` features if pieces stay long enough
  /// (fewest_a_piece). If `memory` is null, only bytes() may be called.
  nonzeros(block_index const& index, std::int64_t depth, int most, std::byte* memory)
      : nonzeros(index.lines(), index.blocks(), depth, most, memory) {}
  /// Room for `all` nonzeros in `all_lines` lines.
  nonzeros(int all_lines, std::int64_t all, std::int64_t depth, int most, std::byte* memory)
      : lines(all_lines), stored(all) {
    const bool sparse = stored * most < fewest_a_piece * lines * depth;
    depth = std::max<std::int64_t>(1, depth);
    chunks = int(ceil_div<std::int64_t>(depth, sparse ? most_features : most));
    chunk = int(ceil_div<std::int64_t>(depth, chunks));
    if (!memory) return;
    values = reinterpret_cast<T*>(memory);
    starts = reinterpret_cast<std::int32_t*>(memory + value_bytes());
    pieces = reinterpret_cast<piece*>(starts + groups() * chunks);
    features = reinterpret_cast<std::uint16_t*>(pieces + std::int64_t(lines) * chunks);
  }
  std::size_t bytes() const {
    return value_bytes() + std::size_t(groups()) * std::size_t(chunks) * sizeof(std::int32_t) +
           std::size_t(lines) * std::size_t(chunks) * sizeof(piece) +
           std::size_t(stored) * sizeof(std::uint16_t);
  }

  /// The window of chunk c in the group that begins with `line`.
  window at(int line, int c) const {
    const int count = std::min(group, lines - line);
    const std::int32_t start = starts[std::int64_t(line / group) * chunks + c];
    return {pieces + std::int64_t(line) * chunks + std::int64_t(c) * count, values + start, features + start,
            count};
  }

  /// Copies the nonzeros of a group: a pass along the lines prefetches and counts, then chunk by chunk is
  /// copied.
  template <class W> void order(block_index const& index, W const* weights, int first_line) const noexcept {
    const int count = std::min(group, lines - first_line);
    piece* const all = pieces + std::int64_t(first_line) * chunks;
    const block_line all_lines =
        index.line(first_line);  // its pointers serve the group: lines are consecutive
    const auto first_block = std::int32_t(all_lines.first);
    const auto all_blocks = std::int32_t(index.blocks(first_line, first_line + count));
    std::int32_t from[group];  // next nonzero of each line, counted within the group
    for (int l = 0; l < count; ++l) {
      const block_line line = index.line(first_line + l);
      from[l] = std::int32_t(line.first) - first_block;
      fetch(line, weights);
      int at = 0;
      for (int c = 0; c < chunks; ++c) {
        const int first = at;
        at = c + 1 < chunks ? first_from((c + 1) * chunk, line) : line.count;
        all[c * count + l] = {std::uint16_t(l), std::uint16_t(at - first)};
      }
    }
    std::int32_t to = 0;
    for (int c = 0; c < chunks; ++c) {
      starts[std::int64_t(first_line / group) * chunks + c] = first_block + to;
      piece* const here = all + c * count;
      sort(here, count);
      for (int i = 0; i < count; ++i) {
        std::int32_t& first = from[here[i].line];
        // Whole steps may write beyond a piece: the next piece is written over the excess.
        const int length = here[i].count, whole = round_up(length, step);
        if (std::max(first, to) + whole <= all_blocks)
          for (int k = 0; k < whole; k += step) copy<step>(all_lines, weights, first + k, to + k, c * chunk);
        else
          for (int k = 0; k < length; ++k) copy<1>(all_lines, weights, first + k, to + k, c * chunk);
        first += length;
        to += length;
      }
    }
  }

  /// Copies the nonzeros of a group from any other format, to number `start` and on.
  ///   list(c, visit)   calls visit(line, feature, value) for the nonzeros of chunk c, in an order that is
  ///                    ascending in the features of each line; line in the group, feature in the chunk
  template <class List> void order(int first_line, std::int32_t start, List const& list) const noexcept {
    const int count = std::min(group, lines - first_line);
    for (int c = 0; c < chunks; ++c) {
      starts[std::int64_t(first_line / group) * chunks + c] = start;
      std::int32_t at[group] = {};  // nonzeros of each line, then the number of the next one
      list(c, [&](int line, int, auto) TESSERA_INLINE_LAMBDA { ++at[line]; });
      piece* const here = pieces + std::int64_t(first_line) * chunks + c * count;
      for (int l = 0; l < count; ++l) here[l] = {std::uint16_t(l), std::uint16_t(at[l])};
      sort(here, count);
      for (int i = 0; i < count; start += here[i++].count) at[here[i].line] = start;
      list(c, [&](int line, int feature, auto value) TESSERA_INLINE_LAMBDA {
        const std::int32_t to = at[line]++;
        values[to] = T(value);
        features[to] = std::uint16_t(feature);
      });
    }
  }

 private:
  static constexpr int step = 16;  // columns in a cache line of the index

  std::int64_t groups() const { return ceil_div(lines, group); }
  std::size_t value_bytes() const { return round_up<std::size_t>(std::size_t(stored) * sizeof(T), 64); }

  /// Prefetches the index and the weights of a line, which are later read in small pieces. Inlined, because
  /// GCC drops a call that has no effect.
  template <class W> TESSERA_INLINE static void fetch(block_line const& line, W const* weights) {
    for (int first = 0; first < line.count; first += step) {
      simd::prefetch<2>(line.columns + first);
      if (line.slots_in_w)
        for (int b = first; b < std::min(first + step, line.count); ++b)
          simd::prefetch<2>(weights + line.slot(b));
      else
        simd::prefetch<2>(weights + line.first + first);
    }
  }

  /// The first block of a line whose column is at least `limit`: a binary search without branches to
  /// mispredict.
  static int first_from(std::int32_t limit, block_line const& line) {
    int first = 0;
    for (int count = line.count; count > 0;) {
      const int half = (count + 1) / 2;
      first += line.columns[first + half - 1] < limit ? half : 0;
      count -= half;
    }
    return first;
  }

  /// Copies Count nonzeros from number `from` in the matrix to number `to` in the new order, both counted
  /// within the group.
  template <int Count, class W>
  TESSERA_INLINE void copy(block_line const& lines_of, W const* weights, std::int32_t from, std::int32_t to,
                           std::int32_t first_feature) const {
    T* const values_to = values + lines_of.first + to;
    std::uint16_t* const features_to = features + lines_of.first + to;
    for (int i = 0; i < Count; ++i)
      features_to[i] = std::uint16_t(lines_of.columns[from + i] - first_feature);
    if (lines_of.slots_in_w)
      for (int i = 0; i < Count; ++i) values_to[i] = T(weights[lines_of.slot(from + i)]);
    else if constexpr (std::is_same_v<W, T>)
      std::memcpy(values_to, weights + lines_of.first + from, Count * sizeof(T));
    else
      for (int i = 0; i < Count; ++i) values_to[i] = T(weights[lines_of.first + from + i]);
  }

  static void sort(piece* to, int count) {
    constexpr int classes = 128;  // of length; the longest pieces share one
    piece from[group];
    std::copy_n(to, count, from);
    std::int32_t place[classes + 1] = {};
    const auto of = [](piece p) { return std::min<int>(p.count, classes - 1); };
    for (int i = 0; i < count; ++i) ++place[of(from[i]) + 1];
    for (int k = 0; k < classes; ++k) place[k + 1] += place[k];
    for (int i = 0; i < count; ++i) to[place[of(from[i])]++] = from[i];
  }
};

/// One chunk of features of the product of ordered nonzeros.
template <class Arch, class Types> struct chunk_of_nonzeros {
  using operands = panel_operands<Types>;
  using X = typename Types::activation;
  using T = typename Types::accumulator;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int registers = std::min(8, panel_tokens / lanes);
  static constexpr int sets = std::max(1, 8 / registers);
  static constexpr int features_a_lane = element_traits<X>::features_a_lane;

  /// Adds the chunk's products to the sums of all lines and calls store_sums(sums, line, register, total) for
  /// each.
  template <class Store>
  TESSERA_INLINE static void walk(operands const& a, nonzeros<T> const& w, int c, int token,
                                  Store const& store_sums) {
    const std::int64_t first = std::int64_t(c) * w.chunk;
    T const* x;
    if constexpr (std::is_same_v<X, T>)
      x = a.x + first * panel_tokens + token;
    else
      x = widened(a, w, first, token);
    const std::size_t chunk_bytes = std::size_t(w.chunk) * panel_tokens * sizeof(X);
    const bool more = c + 1 < w.chunks;
    prefetcher next{
        more ? reinterpret_cast<std::byte const*>(a.x + first * panel_tokens) + chunk_bytes : a.next,
        nullptr};
    next.end = next.at + (more ? chunk_bytes : std::min(chunk_bytes, a.next_bytes));
    for (int line = a.first_line; line < a.last_line; line += w.group)
      walk_window(w.at(line, c), c == 0, x, a.sums + std::int64_t(line) * panel_tokens + token, line, next,
                  store_sums);
  }

  [[gnu::noinline]] static void store(operands const& a, nonzeros<T> const& w, int c, int token) {
    walk(a, w, c, token,
         [](T* sum, int, int, batch total) TESSERA_INLINE_LAMBDA { total.store_unaligned(sum); });
  }

  /// Elements of product_arguments::sums behind the sums of the lines: the widened chunk of x, if x is
  /// narrow.
  static std::int64_t room(nonzeros<T> const& w) {
    return std::is_same_v<X, T> ? 0 : std::int64_t(w.chunk + 2 * (features_a_lane - 1)) * panel_tokens;
  }

 private:
  struct prefetcher {
    std::byte const *at, *end;
  };

  /// The features of a chunk for some tokens, widened to the accumulator.
  [[gnu::noinline]] static T const* widened(operands const& a, nonzeros<T> const& w, std::int64_t first,
                                            int token) {
    T* const room = a.sums + std::int64_t(w.lines) * panel_tokens;
    const std::int64_t begin = first / features_a_lane * features_a_lane,
                       end = std::min(a.depth, first + w.chunk);
    simd::widen_features<Arch>(a.x, begin, end, token, token + registers * lanes, room);
    return room + (first - begin) * panel_tokens + token;
  }

  template <class Store>
  TESSERA_INLINE static void walk_window(typename nonzeros<T>::window const& w, bool begins, T const* x,
                                         T* sums, int first_line, prefetcher& next, Store const& store_sums) {
    std::size_t n = 0;
    for (int i = 0; i < w.lines; ++i) {
      const auto piece = w.pieces[i];
      if (next.at < next.end) {
        simd::prefetch<2>(next.at);
        next.at += 64;
      }
      T* const sum = sums + std::size_t(piece.line) * panel_tokens;
      reg acc[unsigned(sets)][1][unsigned(registers)];  // (sets, one row, registers of tokens)
      unroll<registers>([&](auto r) TESSERA_INLINE_LAMBDA {
        acc[0][0][r] = begins ? simd::zero<Arch, T>() : simd::load<Arch>(sum + r * lanes);
        if constexpr (sets > 1) acc[1][0][r] = simd::zero<Arch, T>();
      });
      n = add(w.values, w.features, n, piece.count, x, acc);
      unroll<registers>([&](auto r) TESSERA_INLINE_LAMBDA {
        store_sums(sum + r * lanes, first_line + piece.line, int(r),
                   sets > 1 ? batch(acc[0][0][r]) + batch(acc[sets - 1][0][r]) : batch(acc[0][0][r]));
      });
    }
  }

  /// Nonzeros alternate between two sets of accumulators where one set would wait for its own latency.
  TESSERA_INLINE static std::size_t add(T const* values, std::uint16_t const* features, std::size_t n,
                                        std::size_t count, T const* x,
                                        reg (&acc)[unsigned(sets)][1][unsigned(registers)]) {
    const auto one = [&](reg weight, std::size_t offset, int set) TESSERA_INLINE_LAMBDA {
      T const* const from = x + offset;
      multiply_registers<T, Arch>(
          acc[set], [&](auto) TESSERA_INLINE_LAMBDA { return weight; },
          [&](auto r) TESSERA_INLINE_LAMBDA { return simd::load<Arch>(from + r * lanes); });
    };
    const std::size_t end = n + count, last_four = end - count % 4;
    for (; n < last_four; n += 4) {
      std::uint64_t four;
      std::memcpy(&four, features + n, sizeof four);
      reg weight[4];
      simd::broadcast_four<Arch>(values + n, weight);
      unroll<4>([&](auto i) TESSERA_INLINE_LAMBDA {
        one(weight[i], (four >> (16 * i) & 0xffff) * panel_tokens, i % sets);
      });
    }
    for (; n < end; ++n) one(simd::broadcast<Arch>(values[n]), std::size_t(features[n]) * panel_tokens, 0);
    return n;
  }
};

/// The product of ordered nonzeros. A single row reuses nothing in registers, so x must come from the L1: a
/// panel is walked in chunks of features, and the sums of all lines are carried from chunk to chunk. Loads
/// limit the speed: features and values are loaded four at a time. A narrow x is widened once for each chunk,
/// and results that share a lane are rounded after the last sum.
template <class Arch, class Types, class Tree> struct ordered_product {
  using chunk = chunk_of_nonzeros<Arch, Types>;
  using T = typename Types::accumulator;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;

  static constexpr int results_a_lane = element_traits<typename Types::result>::features_a_lane;

  /// Bytes of product_arguments::sums.
  static std::size_t sums_bytes(nonzeros<T> const& w) {
    return std::size_t(std::int64_t(w.lines) * panel_tokens + chunk::room(w)) * sizeof(T);
  }

  /// The lines must be whole groups. a.sums may be y if both have one type, x is not widened and the tree
  /// does not read y.
  static void run(product_arguments<Types, Tree> const& a, nonzeros<T> const& w) noexcept {
    for (int token = 0; token < a.tokens; token += chunk::registers * lanes) {
      for (int c = 0; c + 1 < w.chunks; ++c) chunk::store(a, w, c, token);
      const auto store_sums = [&](T* sum, int line, int r, batch total) TESSERA_INLINE_LAMBDA {
        if constexpr (results_a_lane > 1) {
          total.store_unaligned(sum);
        } else if constexpr (Tree::costly) {
          total.store_unaligned(sum);
          if (r + 1 == chunk::registers) store_line(a, sum - r * lanes, line, token);
        } else {
          store_result<true>(a, &total, line, token + r * lanes);
        }
      };
      chunk::walk(a, w, w.chunks - 1, token, store_sums);
      if constexpr (results_a_lane > 1)
        for (int line = a.first_line; line < a.last_line; line += results_a_lane) store_lines(a, line, token);
    }
  }

 private:
  [[gnu::noinline]] static void store_line(product_arguments<Types, Tree> const& a, T const* sums, int line,
                                           int token) {
    for (int r = 0; r < chunk::registers; ++r) {
      const batch total = batch::load_unaligned(sums + r * lanes);
      store_result<true>(a, &total, line, token + r * lanes);
    }
  }

  /// Stores line … line + results_a_lane - 1, which share lanes of y.
  [[gnu::noinline]] static void store_lines(product_arguments<Types, Tree> const& a, int line, int token) {
    for (int r = 0; r < chunk::registers; ++r) {
      batch sums[unsigned(results_a_lane)];
      for (int i = 0; i < results_a_lane; ++i)
        sums[i] =
            line + i < a.last_line
                ? batch::load_unaligned(a.sums + std::int64_t(line + i) * panel_tokens + token + r * lanes)
                : batch(T(0));
      store_result<true>(a, sums, line, token + r * lanes);
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
