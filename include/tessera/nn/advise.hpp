// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/engine.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/eval/engines.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/product.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/panel_slice.hpp>
#include <tessera/tensor/pattern_sources.hpp>

// Which block size, before anything is built: the three products of a linear layer are timed on this machine,
// with as few tokens as tell the rest.

namespace tessera { inline namespace TESSERA_ISA {

/// Seconds of the three products with a weight W (rows, cols) and some tokens.
struct product_seconds {
  double forward = 0;   // y = W x
  double backward = 0;  // dx = Wᵀ dy
  double gradient = 0;  // dW = dy xᵀ, sampled at the blocks of W
  double training() const { return forward + backward + gradient; }
};

/// The times to expect of a weight in blocks of one size.
struct block_advice {
  int block_rows, block_cols;
  engine by;  // of y = W x
  product_seconds seconds;
};

/// The block sizes for a weight, fastest training first, and the dense weight to compare with.
struct advice {
  std::vector<block_advice> blocks;
  block_advice dense;
};

namespace detail {

constexpr product_seconds never() {
  const double infinite = std::numeric_limits<double>::infinity();
  return {infinite, infinite, infinite};
}

/// The three products of a weight, timed with some of the tokens: the next ones each time, so that as much
/// is in the caches as if the products were of all tokens.
template <element T, class Block> class timed_products {
  using clock = std::chrono::steady_clock;

 public:
  timed_products(context& ctx, std::int64_t rows, std::int64_t cols, pattern const& stored,
                 std::int64_t tokens)
      : ctx_(ctx), w_(rows, cols, stored), dw_(rows, cols, stored), x_(cols, tokens), y_(rows, tokens) {
    w_.fill(T(0.01));
    run(ctx_, x_ = x_ + 1, y_ = y_ + 1);  // memory that was never written is faster to read than any other
  }
  void time(std::int64_t tokens, product_seconds& least) {
    time(tokens, least.forward, [&](auto x, auto y) { run(ctx_, y = w_ * x); });
    time(tokens, least.backward, [&](auto x, auto y) { run(ctx_, x = transposed(w_) * y); });
    time(tokens, least.gradient, [&](auto x, auto y) { run(ctx_, dw_ = sampled(y * transposed(x))); });
  }

 private:
  template <class Work> void time(std::int64_t tokens, double& least, Work&& work) {
    if (next_ + tokens > x_.tokens()) next_ = 0;
    const auto x = slice_tokens(x_, next_, next_ + tokens), y = slice_tokens(y_, next_, next_ + tokens);
    next_ += tokens;
    const auto begin = clock::now();
    work(x, y);
    least = std::min(least, std::chrono::duration<double>(clock::now() - begin).count());
  }

  context& ctx_;
  block_sparse_matrix<T, Block> w_;
  block_sparse_matrix<accumulator_t<T>, Block> dw_;
  panel_matrix<T> x_, y_;
  std::int64_t next_ = 0;
};

/// Calls round() seven times and more, for 200 ms.
template <class Round> void repeat(Round&& round) {
  using clock = std::chrono::steady_clock;
  const auto begin = clock::now();
  for (int i = 0; i < 7 || clock::now() - begin < std::chrono::milliseconds(200); ++i) round();
}

inline void require_tokens_to_time(std::int64_t tokens) {
  if (tokens < 1) throw shape_error(message("[advise] ", tokens, " tokens: there must be at least one"));
}

}  // namespace detail

/// The seconds of the three products of a weight with this pattern on the threads of ctx: the least of seven
/// times each.
///   T            element of weight and activations; dW is in its accumulator
///   rows, cols   of the weight; the pattern is that of its blocks
/// Throws shape_error if the pattern does not fit, or there is no token.
template <element T, class Block>
product_seconds measured_seconds(context& ctx, std::int64_t rows, std::int64_t cols, pattern const& stored,
                                 std::int64_t tokens) {
  detail::require_tokens_to_time(tokens);
  detail::timed_products<T, Block> products(ctx, rows, cols, stored, tokens);
  product_seconds all = detail::never();
  detail::repeat([&] { products.time(tokens, all); });
  return all;
}

/// As measured_seconds, but of at most 16 panels a thread: it measures 4 and 16, and extrapolates linearly,
/// since beyond 4 panels each token takes equally long.
template <element T, class Block>
product_seconds expected_seconds(context& ctx, std::int64_t rows, std::int64_t cols, pattern const& stored,
                                 std::int64_t tokens) {
  const std::int64_t few = 4 * panel_tokens * ctx.concurrency(), more = 4 * few;
  if (tokens <= more) return measured_seconds<T, Block>(ctx, rows, cols, stored, tokens);
  detail::timed_products<T, Block> products(ctx, rows, cols, stored, tokens);
  product_seconds a = detail::never(), b = a;
  detail::repeat([&] { products.time(few, a), products.time(more, b); });  // in turns: clocks change
  const double times = double(tokens - more) / double(more - few);
  const auto all = [&](double of_few, double of_more) {
    return of_more + times * std::max(0.0, of_more - of_few);
  };
  return {all(a.forward, b.forward), all(a.backward, b.backward), all(a.gradient, b.gradient)};
}

/// Which block size to take for a weight of this density, by products with random patterns: see
/// expected_seconds. The engine follows from element, blocks and CPU.
///   Blocks   shapes to choose from
/// Throws option_error if the density is not in (0, 1], shape_error if a size is not positive.
template <element T, class... Blocks>
advice advise(context& ctx, std::int64_t rows, std::int64_t cols, double density, std::int64_t tokens) {
  if (!(density > 0 && density <= 1))
    throw option_error(message("[advise] density is ", density, ": it must be in (0, 1]"));
  if (rows < 1 || cols < 1)
    throw shape_error(
        message("[advise] a weight (", rows, ", ", cols, "): there must be a row and a column"));
  const auto of = [&]<class Block>(std::type_identity<Block>, double share) {
    block_advice a{Block::rows, Block::cols, engine::fma, {}};
    const pattern stored = random_pattern(int(ceil_div<std::int64_t>(rows, Block::rows)),
                                          int(ceil_div<std::int64_t>(cols, Block::cols)), share,
                                          random_stream(0, random_purpose::initial_pattern));
    using products = eval::product_of<block_sparse_matrix<T, Block>, false, T>;
    a.by = eval::choose_product_method(eval::methods<products>, products::kind,
                                       products::size(stored, cols, tokens), ctx.runs_on())
               .by;
    a.seconds = expected_seconds<T, Block>(ctx, rows, cols, stored, tokens);
    return a;
  };
  advice all{{of(std::type_identity<Blocks>(), density)...},
             of(std::type_identity<block_shape<granule>>(), 1)};
  std::ranges::sort(all.blocks, {}, [](block_advice const& a) { return a.seconds.training(); });
  return all;
}

}}  // namespace tessera::TESSERA_ISA
