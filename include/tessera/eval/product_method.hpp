// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/core/range.hpp>
#include <tessera/exec/machine.hpp>

// Who multiplies in y = tree(W·x): plain facts in, a method out. Lowering, advice and reports ask here, and
// tests/eval/product_method.test.cpp holds the answers in a table.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

enum class product_form : std::uint8_t {
  blocks,     // along the blocks of each line
  ordered,    // single elements, copied into the order of use
  vector,     // few tokens: weights fill the registers
  scattered,  // Wᵀ·x of few tokens: a block is added to the sums of its column
  decoded,    // N:M, line by line
  covered,    // N:M, written in dense blocks before
};

constexpr char const* name_of(product_form form) {
  constexpr char const* names[] = {"blocks", "ordered", "vector", "scattered", "decoded", "covered"};
  return names[int(form)];
}

/// A way to multiply: the loops, the instruction in them, and whether stored numbers are widened before.
struct product_method {
  product_form form = product_form::blocks;
  engine by = engine::fma;
  bool widens_w = false;
  bool widens_x = false;

  friend bool operator==(product_method const&, product_method const&) = default;
};

/// The facts about a product that are known when it is compiled.
struct product_kind {
  // A block, as a line of W or of Wᵀ has it. N:M: one element.
  int rows, cols;
  bool transposed = false;
  int kept = 0, group = 0;  // N:M: `kept` of `group` elements; else 0
  // Whether a number of one byte is widened before it is multiplied by a number that is no integer.
  bool widens_w = false, widens_x = false;
  // Engines that are compiled in for blocks of this shape: for numbers of one byte as they are stored, and
  // for all numbers as they are multiplied if they are widened.
  engine_set by_integers = {}, by_factors = {};
  int vector_tokens = 0;     // most tokens that the loops along weights are worth; 0: there are none
  int scattered_tokens = 0;  // most tokens that the scattered loops are worth; 0: there are none

  constexpr bool is_single() const { return rows * cols == 1; }
};

/// The facts that are known when it runs.
struct product_size {
  std::int64_t tokens, depth, blocks;  // depth: features of x
  int lines;
  bool is_sparse;  // some block is absent
};

/// The methods that there is code for, best first.
struct product_methods {
  product_method all[8] = {};
  int count = 0;

  constexpr void add(product_method const& way) { all[count++] = way; }
  constexpr product_method const* begin() const { return all; }
  constexpr product_method const* end() const { return all + count; }
};

// ---- thresholds ----

/// Fewest panels for which single elements are ordered: for fewer panels the copy costs more than it saves.
inline constexpr std::int64_t fewest_panels_ordered = 4;
/// Fewest tokens for which N:M is written in dense blocks for AMX: that takes as long as the product with
/// some 60 tokens.
inline constexpr std::int64_t fewest_tokens_covered = panel_tokens + 1;
/// Most products of two int8 in a sum of 32 bits, as each may be 2^14.
inline constexpr std::int64_t most_integer_products = (std::int64_t(1) << 31) / (128 * 128) - 1;
/// A panel with fewer weights takes less than 10 µs and is not divided.
inline constexpr std::int64_t fewest_weights_divided = 1 << 14;

/// Most pieces of a panel of the result, of `lines` lines: of a panel of x that does not stay in the L2
/// beside them all lines are computed at once.
inline int most_pieces(std::int64_t x_bytes, int lines) {
  return x_bytes > (1 << 18) ? 1 : std::max(1, lines);
}

/// Rows of a register of AMX. Blocks that have as many rows and columns fill it as they are stored.
inline constexpr int rows_of_amx = 16;
/// Blocks of fewer columns AMX multiplies side by side, as many as have this many columns together.
inline constexpr int narrow_for_amx = 8, columns_beside = 32;

/// Whether numbers of one byte are multiplied as they are stored.
constexpr bool in_integers(product_method const& way, product_kind const& kind) {
  return kind.widens_x && !way.widens_x;
}

/// Whether AMX multiplies a single token too: nothing else reads large blocks as fast. It takes them as they
/// stand in W.
constexpr bool takes_single_tokens(product_method const& way, product_kind const& kind) {
  return way.by == engine::amx && !way.widens_w && !kind.transposed && kind.rows >= rows_of_amx &&
         kind.cols >= rows_of_amx;
}

/// Whether lines have enough blocks for AMX. It multiplies several narrow blocks at once, which pays if a
/// line has at least half as many on average; other engines are faster where zeros fill more.
constexpr bool fills_amx(product_kind const& kind, product_size const& size) {
  if (kind.cols >= narrow_for_amx || kind.rows >= rows_of_amx) return true;
  return 2 * size.blocks >= columns_beside / kind.cols * std::int64_t(size.lines);
}

// ---- the choice ----

constexpr product_methods methods_of(product_kind const& kind) {
  using enum product_form;
  product_methods ways;
  if (kind.kept > 0) {
    // In dense blocks AMX takes a fifth of the time of multiply-adds, of all elements.
    if (kind.by_factors.allows(engine::amx) && 8 * kind.kept >= kind.group)
      ways.add({covered, engine::amx, false, kind.widens_x});
    ways.add({kind.transposed ? ordered : decoded, engine::fma, false, kind.widens_x});
    return ways;
  }
  // In integers narrower blocks fill less of AMX than of registers.
  if (kind.by_integers.allows(engine::amx) && kind.cols >= 16) ways.add({blocks, engine::amx, false, false});
  if (kind.by_integers.allows(engine::quads)) ways.add({blocks, engine::quads, false, false});
  if (kind.by_factors.allows(engine::amx)) ways.add({blocks, engine::amx, kind.widens_w, kind.widens_x});
  if (kind.vector_tokens > 0) ways.add({vector, engine::fma, false, kind.widens_x});
  if (kind.scattered_tokens > 0) ways.add({scattered, engine::fma, kind.widens_w, kind.widens_x});
  if (kind.is_single()) ways.add({ordered, engine::fma, kind.widens_w, kind.widens_x});
  if (kind.by_factors.allows(engine::pairs)) ways.add({blocks, engine::pairs, kind.widens_w, kind.widens_x});
  ways.add({blocks, engine::fma, kind.widens_w, kind.widens_x});
  return ways;
}

/// Whether a method suits a product on a machine, provided that no better one does.
TESSERA_INLINE constexpr bool suits(product_method const& way, product_kind const& kind,
                                    product_size const& size, machine const& on) {
  using enum product_form;
  if (way.by != engine::fma && (!on.engines.allows(way.by) || rate_of(way.by, on.family) <= 1)) return false;
  const std::int64_t panels = ceil_div<std::int64_t>(size.tokens, panel_tokens);
  switch (way.form) {
    case blocks:
      if (way.by == engine::fma || way.by == engine::pairs) return true;
      if (size.tokens == 1 && !takes_single_tokens(way, kind)) return false;
      return in_integers(way, kind) ? size.depth <= most_integer_products : fills_amx(kind, size);
    case ordered:
      return kind.kept > 0 || (size.is_sparse && panels >= fewest_panels_ordered);
    case vector:
      return size.tokens <= kind.vector_tokens;
    case scattered:
      // Single elements are ordered where that pays.
      return kind.is_single() ? size.is_sparse && panels < fewest_panels_ordered
                              : size.tokens <= kind.scattered_tokens;
    case decoded:
      return true;
    case covered:
      return size.tokens >= fewest_tokens_covered;
  }
  return false;
}

/// The first of methods_of(kind) that suits.
constexpr product_method choose_product_method(product_methods const& ways, product_kind const& kind,
                                               product_size const& size, machine const& on) {
  for (product_method const& way : ways)
    if (suits(way, kind, size, on)) return way;
  return {};  // never: the last of the methods suits every product
}

}}}  // namespace tessera::TESSERA_ISA::eval
