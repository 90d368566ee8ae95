// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/pattern.hpp>

// The gradient dy xᵀ of the absent blocks of a weight. It is as large as a dense weight, so it is computed a
// few rows at a time, and each block is visited and then dropped.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

namespace detail {

/// Some rows of dy xᵀ, with all columns. They are computed in blocks of 16 x 16, the fastest ones, whatever
/// the blocks of the weight.
template <element Sum> class gradient_rows {
  static constexpr int side = granule;

 public:
  /// Rows [first, last), extended to whole blocks.
  template <element T>
  gradient_rows(context& ctx, panel_matrix<T> const& dy, panel_matrix<T> const& x, std::int64_t first,
                std::int64_t last)
      : first_(static_cast<int>(first / side)),
        values_(dy.features(), x.features(),
                lines(dy.features(), x.features(), first_,
                      static_cast<int>(ceil_div<std::int64_t>(last, side)))) {
    run(ctx, values_ = sampled(dy * transposed(x)));
  }

  /// Copies the elements of a block, row by row, to `to`; elements that overhang the matrix are zero.
  void read(std::int64_t first_row, std::int64_t first_col, int rows, int cols, Sum* to) const {
    const std::int64_t width = values_.pattern().block_cols();
    for (std::int64_t i = first_row; i < first_row + rows; ++i)
      for (std::int64_t j = first_col; j < first_col + cols; ++j) {
        const bool inside = i < values_.rows() && j < values_.cols();
        const std::int64_t block = (i / side - first_) * width + j / side;
        *to++ = inside ? values_.data()[block * side * side + i % side * side + j % side] : Sum{};
      }
  }

 private:
  /// The pattern of a matrix that stores all blocks of block rows [first, last) and no others.
  static pattern lines(std::int64_t rows, std::int64_t cols, int first, int last) {
    const auto height = static_cast<int>(ceil_div<std::int64_t>(rows, side)),
               width = static_cast<int>(ceil_div<std::int64_t>(cols, side));
    std::vector<std::int32_t> start{0}, columns;
    for (int i = 0; i < height; ++i) {
      for (int j = 0; i >= first && i < last && j < width; ++j) columns.push_back(j);
      start.push_back(static_cast<std::int32_t>(columns.size()));
    }
    return pattern::from_right_rows(height, width, std::move(start), std::move(columns));
  }

  int first_;
  block_sparse_matrix<Sum, block_shape<side>> values_;
};

}  // namespace detail

/// Calls visit(number, gradient) for each absent block of a weight: the numbers are 0, 1, 2, … row by row,
/// and `gradient` (std::span) holds the elements of this block of dy xᵀ, row by row, valid during the call.
///   stored             the pattern of the weight, in blocks of (block_rows, block_cols)
///   dy (rows, tokens)  x (cols, tokens)
///   Computes 128 rows at a time, or a quarter of all rows if that is less, and needs no more memory than
///   this. At 3072 x 768 and 4096 tokens it takes 1.4 times the time of the whole product at once, at 768 x
///   3072 equal time. Any number of threads gives the same bits.
template <element T, class Visit>
void for_each_absent_gradient(context& ctx, pattern const& stored, int block_rows, int block_cols,
                              panel_matrix<T> const& dy, panel_matrix<T> const& x, Visit&& visit) {
  using sum = accumulator_t<T>;
  if (ceil_div<std::int64_t>(dy.features(), block_rows) != stored.block_rows() ||
      ceil_div<std::int64_t>(x.features(), block_cols) != stored.block_cols())
    throw shape_error(message("[for_each_absent_gradient] dy * transposed(x) is ", dy.features(), " x ",
                              x.features(), ", but the pattern has ", stored.block_rows(), " x ",
                              stored.block_cols(), " blocks of ", block_rows, " x ", block_cols));
  const std::int64_t height =
      std::min<std::int64_t>(128, round_up<std::int64_t>(ceil_div<std::int64_t>(dy.features(), 4), granule));
  const int lines = static_cast<int>(ceil_div<std::int64_t>(height, block_rows));
  std::vector<sum> block(static_cast<std::size_t>(block_rows) * static_cast<std::size_t>(block_cols));
  std::int64_t number = 0;
  for (int first = 0; first < stored.block_rows(); first += lines) {
    const int last = std::min(first + lines, stored.block_rows());
    const detail::gradient_rows<sum> rows(
        ctx, dy, x, std::int64_t{first} * block_rows,
        std::min<std::int64_t>(std::int64_t{last} * block_rows, dy.features()));
    for (int i = first; i < last; ++i) {
      const std::span<std::int32_t const> present = stored.row(i);
      auto next = present.begin();
      for (int j = 0; j < stored.block_cols(); ++j)
        if (next != present.end() && *next == j) {
          ++next;
        } else {
          rows.read(std::int64_t{i} * block_rows, std::int64_t{j} * block_cols, block_rows, block_cols,
                    block.data());
          visit(number++, std::span<sum const>(block));
        }
    }
  }
}

/// The `wanted` numbers of greatest score among all offered ones; of equal scores the lower number wins.
/// Keeps at most 1.5 times the wanted numbers.
class greatest_scores {
 public:
  explicit greatest_scores(std::int64_t wanted);

  /// Numbers must ascend. Not-a-number counts as infinite.
  void offer(double score, std::int64_t number) {
    if (bounded_ && score <= bound_) return;
    best_.push_back({score == score ? score : std::numeric_limits<double>::infinity(), number});
    if (best_.size() == most_) shrink();
  }
  /// The numbers of greatest score, ascending: `wanted` of them, or all offered ones if they are fewer.
  std::vector<std::int64_t> numbers();

 private:
  struct scored {
    double score;
    std::int64_t number;
  };
  /// Keeps the `wanted` best. Later numbers whose score is not above the last of these are rejected at once.
  void shrink();

  std::size_t wanted_, most_;
  bool bounded_ = false;
  double bound_ = 0;
  std::vector<scored> best_;
};

#ifdef TESSERA_BODY

TESSERA_BODY greatest_scores::greatest_scores(std::int64_t wanted)
    : wanted_(static_cast<std::size_t>(wanted)), most_(wanted_ + wanted_ / 2 + 1) {
  best_.reserve(most_);
}

TESSERA_BODY std::vector<std::int64_t> greatest_scores::numbers() {
  if (best_.size() > wanted_) shrink();
  std::vector<std::int64_t> all;
  all.reserve(best_.size());
  for (scored const& each : best_) all.push_back(each.number);
  std::sort(all.begin(), all.end());
  return all;
}

TESSERA_BODY void greatest_scores::shrink() {
  const auto last = best_.begin() + static_cast<std::ptrdiff_t>(wanted_);
  std::nth_element(best_.begin(), last, best_.end(), [](scored const& a, scored const& b) {
    return a.score != b.score ? a.score > b.score : a.number < b.number;
  });
  bound_ = last->score;
  bounded_ = true;
  best_.resize(wanted_);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
