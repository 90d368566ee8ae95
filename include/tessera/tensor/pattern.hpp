// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The order of the entries of each line of a compressed index (CSR, CSC, BSR): ascending, or any, as SciPy
/// may leave them; then they are sorted.
enum class index_order { ascending, any };

namespace detail {

void check_grid(const char* operation, int block_rows, int block_cols);

/// Slots are 32-bit, so a pattern stores fewer than 2^31 blocks.
void check_stored(const char* operation, std::int64_t stored);

/// Checks the index of a compressed format (CSR, CSC, BSR) and names the position of the first fault.
///   line, entry    the words of the format: "row" and "column" in CSR, "column" and "row" in CSC
///   start          where each line begins in `index`, lines + 1 numbers, counted in units of `start_unit`
///   index          the entries of each line, in this order, 0 … entries - 1, in units of `index_unit`
template <class Start, class Index>
TESSERA_COLD void check_compressed(const char* operation, const char* line, const char* entry, int lines,
                                   int entries, std::span<Start> start, std::span<Index> index,
                                   std::int64_t start_unit = 1, std::int64_t index_unit = 1,
                                   index_order order = index_order::ascending) {
  const auto fail = [&](std::initializer_list<message_part> parts) {
    throw shape_error(message("[", operation, "] ", message(parts)));
  };
  const auto integer = [](auto n) { return static_cast<std::int64_t>(n); };
  check_grid(operation, lines, entries);
  check_stored(operation, integer(index.size()));
  if (integer(start.size()) != integer(lines) + 1)
    fail(
        {start.size(), " ", line, " starts for ", lines, " ", line, "s: there must be ", integer(lines) + 1});

  std::int64_t previous = 0;
  for (std::size_t l = 0; l < start.size(); ++l) {
    const std::int64_t here = integer(start[l]);
    if (l == 0 && here != 0) fail({line, " start 0 is ", here, ": the first must be 0"});
    if (here < previous)
      fail({line, " start ", l, " is ", here, ", below its predecessor ", previous, ": ", line,
            " starts never decrease"});
    if (here % start_unit != 0)
      fail(
          {line, " start ", l, " is ", here, ", not a multiple of the ", start_unit, " elements of a block"});
    previous = here;
  }
  if (previous / start_unit != integer(index.size()))
    fail({"the last ", line, " start counts ", previous / start_unit, " blocks but there are ", index.size(),
          " ", entry, " numbers: they must be equal"});

  for (std::size_t l = 0, p = 0; l + 1 < start.size(); ++l) {
    const auto first = p, last = static_cast<std::size_t>(integer(start[l + 1]) / start_unit);
    for (; p < last; ++p) {
      const std::int64_t here = integer(index[p]);
      const auto fail_here = [&](std::initializer_list<message_part> why) {
        fail({entry, " ", here, " at position ", p, ", in ", line, " ", l, ", ", message(why)});
      };
      if (here < 0 || here >= integer(entries) * index_unit)
        fail_here({"is outside the grid's ", integer(entries) * index_unit, " ", entry, "s"});
      if (here % index_unit != 0)
        fail_here({"is not a multiple of the block's ", index_unit, " ", entry, "s"});
      if (p == first || order == index_order::any) continue;
      const std::int64_t before = integer(index[p - 1]);
      if (here == before) fail_here({"repeats its predecessor: list each block once"});
      if (here < before)
        fail_here(
            {"is not above its predecessor ", before, ": sort each ", line, " (index_order::any does)"});
    }
  }
}

}  // namespace detail

/// Which blocks of a grid are stored. Integers only: a pattern knows nothing of block sizes or elements.
///   The stored blocks are numbered row by row, columns ascending within a row: a block's number is its slot.
///   An immutable value that is cheap to copy: copies share both indexes and the serial number.
///   A pattern that stores every block of its grid is dense however it was made, and holds
///   2 block_rows + block_cols integers. A grid without blocks is dense.
class pattern {
 public:
  /// The dense pattern of a 0 x 0 grid. Allocates nothing: these are all copies of one.
  pattern() noexcept : data_(std::shared_ptr<const data>(), &no_grid()) {}

  // Only copied, never moved from: every pattern has its data, always.
  pattern(pattern const&) = default;
  pattern& operator=(pattern const&) = default;

  /// Every block. Throws shape_error if there are 2^31 or more, before anything is allocated.
  static pattern dense(int block_rows, int block_cols);

  /// The columns of row i are cols[row_start[i]] … cols[row_start[i + 1] - 1], ascending (CSR). Throws
  /// shape_error, with the position, for anything else.
  static pattern from_rows(int block_rows, int block_cols, std::vector<std::int32_t> row_start,
                           std::vector<std::int32_t> cols);

  /// A pattern from an index that is right by the way it was made: nothing is checked.
  static pattern from_right_rows(int block_rows, int block_cols, std::vector<std::int32_t> row_start,
                                 std::vector<std::int32_t> cols);

  int block_rows() const { return data_->block_rows; }
  int block_cols() const { return data_->block_cols; }
  std::int64_t blocks() const { return data_->stored; }
  bool is_dense() const { return data_->is_dense(); }
  /// Stored blocks ÷ all blocks; 1 for a grid without blocks.
  double density() const {
    return is_dense() ? 1.0 : static_cast<double>(blocks()) / block_rows() / block_cols();
  }

  /// Slot of the first block of each row, and blocks() at the end (block_rows + 1); empty when dense.
  std::span<const std::int32_t> row_start() const { return span_of(data_->row_start); }
  /// Column of each slot (stored); when dense 0 … block_cols - 1, shared by all rows.
  std::span<const std::int32_t> cols() const { return span_of(data_->cols); }
  /// Where each column begins in rows() and col_slots(), and blocks() at the end (block_cols + 1); empty when
  /// dense.
  std::span<const std::int32_t> col_start() const { return span_of(data_->col_start); }
  /// Rows of each column, ascending (stored); when dense 0 … block_rows - 1, shared by all columns.
  std::span<const std::int32_t> rows() const { return span_of(data_->rows); }
  /// The slot that belongs to each entry of rows(); when dense that of column 0, to which the column is
  /// added.
  std::span<const std::int32_t> col_slots() const { return span_of(data_->col_slots); }

  /// Columns stored in row i, ascending; their slots are first_slot(i), first_slot(i) + 1, …
  std::span<const std::int32_t> row(int i) const {
    TESSERA_ASSERT(i >= 0 && i < block_rows(), "callers loop over the rows of the grid");
    if (is_dense()) return cols();
    const std::int32_t* const start = data_->row_start.data() + i;
    return {data_->cols.data() + start[0], data_->cols.data() + start[1]};
  }
  std::int64_t first_slot(int i) const {
    return is_dense() ? std::int64_t{i} * block_cols() : data_->row_start.data()[i];
  }

  /// Stored blocks of a row, of a column.
  int row_count(int i) const { return static_cast<int>(row(i).size()); }
  int col_count(int j) const {
    TESSERA_ASSERT(j >= 0 && j < block_cols(), "callers loop over the columns of the grid");
    if (is_dense()) return block_rows();
    const std::int32_t* const start = data_->col_start.data() + j;
    return start[1] - start[0];
  }

  /// The slot of block (i, j), or -1 if it is not stored or outside the grid.
  std::int64_t find(int i, int j) const {
    if (i < 0 || i >= block_rows() || j < 0 || j >= block_cols()) return -1;
    if (is_dense()) return first_slot(i) + j;
    const std::span<const std::int32_t> columns = row(i);
    const auto at = std::lower_bound(columns.begin(), columns.end(), j);
    return at != columns.end() && *at == j ? first_slot(i) + (at - columns.begin()) : -1;
  }

  /// Calls visit(i, j, slot) for every stored block, in the order of slots.
  template <class Visit> void for_each(Visit&& visit) const {
    std::int64_t slot = 0;
    for (int i = 0; i < block_rows(); ++i)
      for (const int j : row(i)) visit(i, j, slot++);
  }

  /// Unlike that of any other pattern of this process except copies of this one; never 0.
  std::uint64_t serial() const { return data_->serial; }
  /// A function of the content alone, equal on all machines: of the grid and, unless dense, the index by
  /// rows, which it reads. FNV-1a on 32-bit words, with a shift that lets high bits reach low ones.
  std::uint64_t hash() const;
  /// Memory of both indexes, shared by all copies.
  std::size_t size_bytes() const {
    return sizeof(data) + sizeof(std::int32_t) * (row_start().size() + cols().size() + col_start().size() +
                                                  rows().size() + col_slots().size());
  }

  /// By content.
  friend bool operator==(pattern const& a, pattern const& b) {
    if (a.data_ == b.data_) return true;
    return a.block_rows() == b.block_rows() && a.block_cols() == b.block_cols() &&
           a.data_->row_start == b.data_->row_start && a.data_->cols == b.data_->cols;
  }

 private:
  /// A span from a pointer: that from a vector takes longer to compile, for its concept of ranges.
  static std::span<const std::int32_t> span_of(std::vector<std::int32_t> const& numbers) {
    return {numbers.data(), numbers.size()};
  }

  struct data {
    data(int row_number, int col_number, std::int64_t stored_number)
        : block_rows(row_number), block_cols(col_number), stored(stored_number) {}

    int block_rows, block_cols;
    std::int64_t stored;
    std::vector<std::int32_t> row_start, cols, col_start, rows, col_slots;  // as the accessors say
    std::uint64_t serial = 1;                                               // unless it gets its own

    bool is_dense() const { return row_start.empty(); }

    /// Derives the index by columns from that by rows: a counting sort, which keeps rows ascending.
    void index_columns();
  };

  explicit pattern(data&& content);

  static data const& no_grid() noexcept;

  /// 0, step, 2 step, …
  static std::vector<std::int32_t> counting(int count, std::int32_t step);

  inline static std::atomic<std::uint64_t> next_serial_{2};
  std::shared_ptr<const data> data_;
};

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY void check_grid(const char* operation, int block_rows, int block_cols) {
  if (block_rows < 0 || block_cols < 0)
    throw shape_error(message("[", operation, "] a grid of ", block_rows, " x ", block_cols,
                              ": neither number may be negative"));
}

TESSERA_COLD TESSERA_BODY void check_stored(const char* operation, std::int64_t stored) {
  if (stored > std::numeric_limits<std::int32_t>::max())
    throw shape_error(message("[", operation, "] ", stored,
                              " stored blocks are more than 2147483647: use larger blocks, or fewer"));
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY pattern pattern::dense(int block_rows, int block_cols) {
  detail::check_grid("pattern::dense", block_rows, block_cols);
  const std::int64_t stored = std::int64_t{block_rows} * block_cols;
  detail::check_stored("pattern::dense", stored);
  data all(block_rows, block_cols, stored);
  all.cols = counting(block_cols, 1);
  all.rows = counting(block_rows, 1);
  all.col_slots = counting(block_rows, block_cols);
  return pattern(std::move(all));
}

TESSERA_BODY pattern pattern::from_rows(int block_rows, int block_cols, std::vector<std::int32_t> row_start,
                                        std::vector<std::int32_t> cols) {
  detail::check_compressed("pattern::from_rows", "row", "column", block_rows, block_cols, span_of(row_start),
                           span_of(cols));
  return from_right_rows(block_rows, block_cols, std::move(row_start), std::move(cols));
}

TESSERA_BODY pattern pattern::from_right_rows(int block_rows, int block_cols,
                                              std::vector<std::int32_t> row_start,
                                              std::vector<std::int32_t> cols) {
  const auto stored = static_cast<std::int64_t>(cols.size());
  if (stored == std::int64_t{block_rows} * block_cols) return dense(block_rows, block_cols);
  data some(block_rows, block_cols, stored);
  some.row_start = std::move(row_start);
  some.cols = std::move(cols);
  some.index_columns();
  return pattern(std::move(some));
}

TESSERA_COLD TESSERA_BODY std::uint64_t pattern::hash() const {
  std::uint64_t h = 0xcbf29ce484222325u;
  const auto add = [&h](std::int32_t n) {
    h = (h ^ static_cast<std::uint32_t>(n)) * 0x100000001b3u;
    h ^= h >> 32;
  };
  add(block_rows());
  add(block_cols());
  if (is_dense()) return h;
  for (const std::int32_t n : row_start()) add(n);
  for (const std::int32_t n : cols()) add(n);
  return h;
}

TESSERA_BODY void pattern::data::index_columns() {
  col_start = std::vector<std::int32_t>(static_cast<std::size_t>(block_cols) + 1);
  rows = std::vector<std::int32_t>(cols.size());
  col_slots = std::vector<std::int32_t>(cols.size());
  std::int32_t* const start = col_start.data();
  for (const std::int32_t j : cols) ++start[j + 1];
  for (int j = 0; j < block_cols; ++j) start[j + 1] += start[j];
  std::vector<std::int32_t> next(col_start);
  for (int i = 0; i < block_rows; ++i)
    for (std::int32_t slot = row_start.data()[i]; slot < row_start.data()[i + 1]; ++slot) {
      const std::int32_t at = next.data()[cols.data()[slot]]++;
      rows.data()[at] = i;
      col_slots.data()[at] = slot;
    }
}

TESSERA_COLD TESSERA_BODY pattern::pattern(data&& content) {
  content.serial = next_serial_.fetch_add(1, std::memory_order_relaxed);
  data_ = std::make_shared<const data>(std::move(content));
}

TESSERA_BODY pattern::data const& pattern::no_grid() noexcept {
  static const data none(0, 0, 0);
  return none;
}

TESSERA_BODY std::vector<std::int32_t> pattern::counting(int count, std::int32_t step) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  std::int32_t i = 0;
  for (std::int32_t& n : numbers) n = step * i++;
  return numbers;
}

#endif

}}  // namespace tessera::TESSERA_ISA
