// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/kernels/block_index.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/kernels/panel_prefetcher.hpp>
#include <tessera/kernels/product_operands.hpp>
#include <tessera/kernels/register_block.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/simd.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The kernel for one panel. A register block of `rows` rows × C registers of tokens walks along the blocks
/// of a line, and the weights of the next line are prefetched. A deep x is walked in chunks of features, so
/// that a chunk and the prefetched data fit the caches; sums are carried from chunk to chunk.
template <class Arch, class Types, class Shape, class Tree> struct sparse_product {
  using W = typename Types::weight;
  using X = typename Types::activation;
  using Y = typename Types::result;
  using T = typename Types::accumulator;
  using arguments = product_arguments<Types, Tree>;
  using S = typename Types::sum;
  using reg = simd::reg<S, Arch>;
  using batch = simd::batch<T, Arch>;
  using sums_batch = simd::batch<S, Arch>;
  using sizes = register_block<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int line_rows = Shape::rows;
  static constexpr int block_depth = Shape::cols;
  static constexpr int rows = power_of_two_divisor(sizes::rows, line_rows);
  static constexpr int registers = sizes::registers;
  /// The engine multiplies lanes as they are stored if W and x have one element type and every block begins
  /// at a lane. Otherwise it multiplies accumulators.
  static constexpr bool in_lanes =
      std::is_same_v<W, X> && block_depth % element_traits<X>::features_a_lane == 0;
  using factor = std::conditional_t<in_lanes, factor_of<Types::by, X, Arch>, T>;
  using policy = engine_policy<Types::by>;
  /// Whether x is brought into another form, a chunk at a time: widened, or offset.
  static constexpr bool prepares_x = !std::is_same_v<X, factor> || policy::offsets_x;
  static constexpr int feature_bytes = panel_tokens * sizeof(factor);
  static constexpr bool ragged = granule % block_depth != 0;  // a block may reach beyond the stored features
  /// Features of x in one lane of the engine.
  static constexpr int factors_a_lane = element_traits<factor>::features_a_lane;
  /// Features of y in one lane.
  static constexpr int results_a_lane = element_traits<Y>::features_a_lane;
  /// Whether several lines share a lane of y: one thread stores them, after the last of their sums.
  static constexpr bool shares_lanes = line_rows % results_a_lane != 0;
  static constexpr bool sums_in_memory = Tree::costly || rows % results_a_lane != 0;
  static constexpr int results_at_once = sums_in_memory ? 1 : results_a_lane;

  /// Bytes of product_arguments::sums: the sums of one line, or the sums and the position of every line; then
  /// the prepared chunk of x, if it is prepared.
  static std::size_t sums_bytes(block_index const& index, std::int64_t depth) {
    const std::int64_t blocks =
        ceil_div(ceil_div<std::int64_t>(depth, block_depth), std::int64_t(chunks(index, depth)));
    return room_at(index, depth) +
           (prepares_x ? std::size_t(blocks * block_depth + 2 * (stored_x - 1)) * feature_bytes : 0);
  }

  /// The number of chunks of a panel: the smallest that meets every condition.
  ///   a panel longer than whole_panel_bytes        a chunk and the prefetched data fit the L2
  ///   several register blocks a line               a line's part of a chunk fits the L1
  ///   else, lines of many blocks (fewest_steps)    a chunk fits the L1
  /// Since every chunk loads and stores the sums, there are no more chunks than for which these are fewer
  /// bytes than are read of x.
  static int chunks(block_index const& index, std::int64_t depth) {
    if (index.lines() == 0) return 1;
    const std::int64_t panel = depth * feature_bytes, used = index.blocks() * block_depth / index.lines(),
                       line_sums = line_rows * panel_tokens * std::int64_t(sizeof(S));
    std::int64_t kept = 0;  // bytes of x that should pass through the L1
    if (line_rows > rows)
      kept = used * feature_bytes;
    else if (used * sizes::line_bytes >= fewest_steps * factors_a_lane * panel)
      kept = panel;
    const std::int64_t fitting =
        1 + std::max(panel > sizes::whole_panel_bytes ? (panel - 1) / sizes::chunk_bytes : 0,
                     kept / sizes::line_bytes);
    return int(std::max<std::int64_t>(1, std::min(fitting, used * feature_bytes / (2 * line_sums))));
  }

  static void run(arguments const& a) noexcept {
    const int count = chunks(a.index, a.depth), lines = a.last_line - a.first_line;
    const bool keeps_all = count > 1 || shares_lanes;
    const std::int64_t blocks = ceil_div<std::int64_t>(a.depth, block_depth);
    S* const all_sums = a.sums;
    auto* const walked =
        reinterpret_cast<std::int32_t*>(all_sums + std::int64_t(lines) * (line_rows * panel_tokens));
    const std::int64_t weights_bytes = a.index.blocks() * int(Shape::elements * sizeof(W));
    panel_prefetcher next = fetch_plan(a, count);
    for (int c = 0; c < count; ++c) {
      chunk now{.column = nullptr,
                .end = nullptr,
                .weights = nullptr,
                .prefetch_distance = 0,
                .limit = std::int32_t((c + 1) * blocks / count),
                .begins = c == 0,
                .ends = c + 1 == count,
                .fetches = weights_bytes > sizes::fitting_weights_bytes,
                .x = {},
                .first_feature = 0};
      if constexpr (prepares_x)
        prepare(a, c * blocks / count * block_depth, now);
      else
        now.x = a.x;
      const auto first_of = [&](int line) { return c > 0 ? walked[line - a.first_line] : 0; };
      S* sums = all_sums;
      for (int line = a.first_line; line < a.last_line; ++line) {
        const block_line blocks_of_line = a.index.line(line);
        const std::int32_t first = first_of(line);
        const std::int64_t before = blocks_of_line.first + first;
        now.column = blocks_of_line.columns + first;
        now.end = blocks_of_line.columns + blocks_of_line.count;
        if (now.column < now.end) now.weights = a.weights + before * Shape::elements;
        if (now.fetches && line + 1 < a.last_line)
          now.prefetch_distance = a.index.blocks_before(line + 1) + first_of(line + 1) - before;
        else
          now.prefetch_distance = 0;
        std::int32_t const* last = now.column;
        for (int token = 0; token < a.tokens;)
          if (token + registers * lanes <= a.tokens) {
            last = compute_line<registers>(a, line, token, now, sums, next);
            token += registers * lanes;
          } else {
            last = compute_last_tokens(a, line, token, now, sums, next);
            token += lanes;
          }
        if (!keeps_all) continue;
        walked[line - a.first_line] = std::int32_t(last - blocks_of_line.columns);
        sums += line_rows * panel_tokens;
      }
    }
    if constexpr (shares_lanes)
      for (int token = 0; token < a.tokens; token += lanes)
        store_sums<Arch, true, 1>(a, all_sums, a.first_line * line_rows, lines * line_rows, token);
  }

 private:
  struct chunk {
    std::int32_t const *column, *end;  // block columns of the line from this chunk on
    W const* weights;                  // of the block at `column`
    std::int64_t prefetch_distance;    // distance to the prefetched weights, in blocks
    std::int32_t limit;                // block column of the line where the chunk ends
    bool begins, ends;                 // whether it is the first, the last chunk
    bool fetches;                      // whether weights of the next line are prefetched
    factor const* x;                   // at first_feature
    std::int64_t first_feature;
  };

  static constexpr int stored_x = element_traits<X>::features_a_lane;

  /// Offset in product_arguments::sums of the prepared chunk of x, in bytes.
  static std::size_t room_at(block_index const& index, std::int64_t depth) {
    constexpr std::size_t line_bytes = line_rows * panel_tokens * sizeof(S);
    if (chunks(index, depth) == 1 && !shares_lanes) return line_bytes;
    return round_up<std::size_t>(std::size_t(index.lines()) * (line_bytes + sizeof(std::int32_t)), 64);
  }

  /// Prepares the features of a chunk, which begins at feature `first`.
  [[gnu::noinline]] static void prepare(arguments const& a, std::int64_t first, chunk& now) {
    auto* const room = reinterpret_cast<factor*>(a.sums + room_at(a.index, a.depth) / sizeof(S));
    const std::int64_t begin = first / stored_x * stored_x;
    const std::int64_t end = std::min(a.depth, std::int64_t(now.limit) * block_depth);
    policy::template prepare<Arch>(a.x, begin, end, a.tokens, room);
    now.x = room;
    now.first_feature = begin;
  }

  /// Steps along the depth, of a line in a chunk, that are worth loading and storing its sums.
  static constexpr int fewest_steps = 48;

  static panel_prefetcher fetch_plan(arguments const& a, int count) {
    constexpr int tile_tokens = registers * lanes;
    const int tiles_a_row = a.tokens / tile_tokens + ceil_div(a.tokens % tile_tokens, lanes);
    return panel_prefetcher::plan(
        a.next, a.next_bytes, count,
        a.index.blocks(a.first_line, a.last_line) * (line_rows / rows) * tiles_a_row,
        block_depth * tile_tokens * int(sizeof(X)));
  }

  /// compute_line for one register of tokens. Not inlined, so that the compiler has more registers for the
  /// other tokens.
  [[gnu::noinline]] static std::int32_t const* compute_last_tokens(arguments const& a, int line, int token,
                                                                   chunk const& now, S* sums,
                                                                   panel_prefetcher& next) {
    return compute_line<1>(a, line, token, now, sums, next);
  }

  /// Returns where the line's blocks of the next chunk begin.
  template <int C>
  TESSERA_INLINE static std::int32_t const* compute_line(arguments const& a, int line, int token,
                                                         chunk const& now, S* sums, panel_prefetcher& next) {
    std::int32_t const* last = now.column;
    for (int row = 0; row < line_rows; row += rows)
      last = compute_tile<C>(a, line, row, token, now, sums, next);
    if constexpr (!shares_lanes)
      if (now.ends && (sums_in_memory || overhangs(a, line))) {
        constexpr int at_once = sums_in_memory ? C : 1;
        for (int c = 0; c < C; c += at_once)
          store_sums<Arch, at_once == 1, at_once>(a, sums, line * line_rows, line_rows, token + c * lanes);
      }
    return last;
  }

  /// Whether a line has rows beyond the last feature.
  TESSERA_INLINE static bool overhangs(arguments const& a, int line) {
    return std::int64_t(line + 1) * line_rows > a.rows;
  }

  template <int C>
  TESSERA_INLINE static std::int32_t const* compute_tile(arguments const& a, int line, int row, int token,
                                                         chunk const& now, S* sums, panel_prefetcher& next) {
    constexpr int sets = C == 1 ? 2 : 1;
    reg set[unsigned(sets)][unsigned(rows)]
           [unsigned(C)];  // (steps of the depth in turn, rows of W, registers of tokens)
    auto& acc = set[0];
    // An offset: without chunks `sums` may be null.
    const std::ptrdiff_t carried = row * panel_tokens + token;
    unroll<rows * C>([&](auto i) TESSERA_INLINE_LAMBDA {
      acc[i / C][i % C] =
          now.begins
              ? policy::template begin_sum<Arch>(a.row_offsets, std::int64_t(line) * line_rows + row + i / C)
              : simd::load<Arch>(sums + carried + i / C * panel_tokens + i % C * lanes);
    });
    unroll<(sets - 1) * rows>([&](auto i) TESSERA_INLINE_LAMBDA { set[1][i][0] = simd::zero<Arch, S>(); });
    panel_prefetcher fetching = next;  // in registers
    std::int32_t const* column = now.column;
    W const* w = nullptr;  // a matrix without blocks has no weights
    if (column < now.end) w = now.weights + row * Shape::cols;
    for (; column < now.end && *column < now.limit; ++column, w += Shape::elements) {
      fetching.fetch();
      if (now.fetches) fetch_rows(w + now.prefetch_distance * Shape::elements);
      const std::int64_t feature = std::int64_t(*column) * block_depth;
      int depth = block_depth;
      if constexpr (ragged) depth = int(std::min<std::int64_t>(depth, a.depth - feature));
      multiply_block<C>(set, w, now.x + place_in_panel<factor>(feature - now.first_feature, token), depth);
    }
    next = fetching;
    unroll<(sets - 1) * rows>([&](auto i) TESSERA_INLINE_LAMBDA {
      acc[i][0] = (sums_batch(acc[i][0]) + sums_batch(set[1][i][0])).data;
    });
    const auto carry = [&]() TESSERA_INLINE_LAMBDA {
      unroll<rows * C>([&](auto i) TESSERA_INLINE_LAMBDA {
        simd::store<Arch>(sums + carried + i / C * panel_tokens + i % C * lanes, acc[i / C][i % C]);
      });
    };
    if constexpr (sums_in_memory) {
      carry();
    } else if (!now.ends || overhangs(a, line)) {
      carry();
    } else {
      const std::int64_t feature = std::int64_t(line) * line_rows + row;
      Y* const to = a.y + place_in_panel<Y>(feature, token);
      unroll<rows / results_at_once * C>([&](auto i) TESSERA_INLINE_LAMBDA {
        constexpr int r = i / C * results_at_once, c = i % C;
        const batch sum[2] = {simd::as<T>(sums_batch(acc[r][c])),
                              simd::as<T>(sums_batch(acc[r + results_at_once - 1][c]))};
        store_result<C == 1>(a, sum, feature + r, token + c * lanes,
                             to + r * panel_tokens + c * lanes * results_at_once, false);
      });
    }
    return column;
  }

  /// Prefetches the rows of a block that one register block reads.
  TESSERA_INLINE static void fetch_rows(W const* w) {
    unroll<ceil_div<int>(rows * Shape::cols * sizeof(W), 64)>([&](auto l) TESSERA_INLINE_LAMBDA {
      simd::prefetch<1>(reinterpret_cast<std::byte const*>(w) + l * 64);
    });
  }

  /// The steps of a block go to several sets of sums in turn: one register of tokens gives too few
  /// sums to hide the latency of a multiply-add.
  template <int C, unsigned Sets>
  TESSERA_INLINE static void multiply_block(reg (&sums)[Sets][unsigned(rows)][unsigned(C)], W const* w,
                                            factor const* x, int depth) {
    using lane = simd::stored_lane<factor>;
    const auto step = [&](auto s) TESSERA_INLINE_LAMBDA {
      multiply_registers<lane, Arch>(
          sums[s], [&](auto r) TESSERA_INLINE_LAMBDA { return weight_of(w + r * Shape::cols); },
          [&](auto c)
              TESSERA_INLINE_LAMBDA { return simd::load_lanes<Arch>(x + c * lanes * factors_a_lane); });
      w += factors_a_lane;
      x += factors_a_lane * panel_tokens;
    };
    // Mostly not unrolled: the multiply-adds of one step hide the loop, and the code compiles in 75 % of the
    // time.
    int k = 0;
    if constexpr (policy::unrolls_blocks && Sets == 1 && !ragged)
      return unroll<block_depth / factors_a_lane>(
          [&](auto) TESSERA_INLINE_LAMBDA { step(std::integral_constant<int, 0>()); });
    if constexpr (Sets > 1)
      for (; k + int(Sets) * factors_a_lane <= depth; k += int(Sets) * factors_a_lane)
        unroll<int(Sets)>(step);
    for (; k < depth; k += factors_a_lane) step(std::integral_constant<int, 0>());
  }

  /// The weight of one row, broadcast to all lanes.
  TESSERA_INLINE static simd::reg<simd::stored_lane<factor>, Arch> weight_of(W const* w) {
    if constexpr (std::is_same_v<W, factor>)
      return simd::broadcast_lane<Arch>(w);
    else
      return simd::broadcast_value<Arch>(*w).data;
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
