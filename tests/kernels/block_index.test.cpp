// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>
#include <kernels/arrays.hpp>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/range.hpp>
#include <tessera/kernels/block_index.hpp>

using namespace tessera;
using kernels::block_index;
using kernels::block_line;

namespace {

using numbers = std::vector<std::int32_t>;

/// The index of a dense matrix of blocks, of W or Wᵀ, as one line for all and line by line.
struct dense_matrix {
  int lines, width;
  numbers columns, slots_of_line, starts{0}, all_columns{}, all_slots{};

  dense_matrix(int line_count, int columns_of_each)
      : lines(line_count), width(columns_of_each), columns(std::size_t(width)), slots_of_line(columns) {
    std::iota(columns.begin(), columns.end(), 0);
    for (int b = 0; b < width; ++b) slots_of_line[std::size_t(b)] = b * lines;
    for (int i = 0; i < lines; ++i) {
      all_columns.insert(all_columns.end(), columns.begin(), columns.end());
      for (int b = 0; b < width; ++b) all_slots.push_back(b * lines + i);
      starts.push_back(std::int32_t(all_columns.size()));
    }
  }
  block_index by_one_line(bool transposed) const {
    return block_index::dense(lines, width, columns.data(), transposed ? slots_of_line.data() : nullptr);
  }
  block_index line_by_line(bool transposed) const {
    return block_index::sparse(lines, width, starts.data(), all_columns.data(),
                               transposed ? all_slots.data() : nullptr);
  }
};

/// Lines with no, few and many blocks.
struct uneven_matrix {
  static constexpr int lines = 23, width = 40;
  numbers starts{0}, columns{};
  uneven_matrix() {
    for (int i = 0; i < lines; ++i) {
      const int count = i == 7 ? width : i % 5 == 2 ? 0 : i % 4 + 1;
      for (int j = 0; j < count; ++j) columns.push_back(j);
      starts.push_back(std::int32_t(columns.size()));
    }
  }
  block_index index() const { return block_index::sparse(lines, width, starts.data(), columns.data()); }
};

/// Each line falls to one part; each part begins where one group of lines does, and no part has more than its
/// share of blocks and lines and one group.
void check_parts(block_index const& index, int parts, int together) {
  INFO(index.lines(), " lines, ", parts, " parts, ", together, " lines together");
  const auto work = [&](int first, int last) { return index.blocks(first, last) + last - first; };
  std::int64_t largest_group = 0;
  for (int line = 0; line < index.lines(); line += together)
    largest_group = std::max(largest_group, work(line, std::min(index.lines(), line + together)));
  int next = 0;
  for (int part = 0; part < parts; ++part) {
    const range lines = index.lines_of_part(part, parts, together);
    REQUIRE(lines.first == next);
    REQUIRE(lines.last >= lines.first);
    REQUIRE((lines.first % together == 0 || lines.first == index.lines()));
    REQUIRE(work(lines.first, lines.last) <= work(0, index.lines()) / parts + largest_group + 1);
    next = lines.last;
  }
  REQUIRE(next == index.lines());
}

}  // namespace

TEST_CASE("block_index: a dense matrix has the same lines as its blocks listed one by one") {
  for (const auto& [lines, width] : {range{1, 1}, range{1, 9}, range{9, 1}, range{7, 5}}) {
    const dense_matrix m(lines, width);
    for (const bool transposed : {false, true}) {
      const block_index dense = m.by_one_line(transposed), sparse = m.line_by_line(transposed);
      CHECK_FALSE(dense.is_sparse());
      CHECK(sparse.is_sparse());
      for (const block_index& index : {dense, sparse, dense.in_order(), sparse.in_order()}) {
        CHECK(index.lines() == lines);
        CHECK(index.width() == width);
        CHECK(index.blocks() == lines * width);
        CHECK(index.blocks(1, lines) == (lines - 1) * width);
        for (int i = 0; i <= lines; ++i) CHECK(index.blocks_before(i) == i * width);
        for (int block = 0; block < lines * width; ++block) CHECK(index.line_of(block) == block / width);
        for (int i = 0; i < lines; ++i) {
          const block_line line = index.line(i);
          CHECK(line.count == width);
          CHECK(line.first == i * width);
          CHECK(std::equal(line.all_columns().begin(), line.all_columns().end(), m.columns.begin()));
        }
      }
      for (int i = 0; i < lines; ++i)
        for (int b = 0; b < width; ++b)
          if (transposed) {
            CHECK(dense.line(i).slot(b) == b * lines + i);
            CHECK(sparse.line(i).slot(b) == b * lines + i);
            CHECK(dense.in_order().line(i).slots_in_w == nullptr);
            CHECK(sparse.in_order().line(i).slots_in_w == nullptr);
          } else {
            CHECK(dense.line(i).slots_in_w == nullptr);
            CHECK(sparse.line(i).slots_in_w == nullptr);
          }
      for (const int parts : {1, 2, 5, 13})
        for (const int together : {1, 2, 4})
          for (int part = 0; part < parts; ++part) {
            const range a = dense.lines_of_part(part, parts, together);
            const range b = sparse.lines_of_part(part, parts, together);
            CHECK(a.first == b.first);
            CHECK(a.last == b.last);
          }
    }
  }
}

TEST_CASE("block_index: lines with gaps are apart by as much in memory, and store the same blocks") {
  const std::vector<std::int32_t> starts{0, 3, 3, 5}, columns{0, 2, 3, 1, 2};
  for (const block_index tight :
       {block_index::sparse(3, 4, starts.data(), columns.data()), block_index::dense(3, 4, columns.data())}) {
    const block_index spread = tight.with_gaps(7);
    for (int i = 0; i <= 3; ++i) {
      CHECK(tight.place_of(i) == tight.blocks_before(i));
      CHECK(spread.place_of(i) == tight.blocks_before(i) + 7 * i);
      CHECK(spread.blocks_before(i) == tight.blocks_before(i));
      if (i < 3) CHECK(spread.line(i).first == spread.place_of(i));
    }
    CHECK(spread.in_order().place_of(3) == spread.place_of(3));
  }
}

TEST_CASE("block_index: a block's line is the one that stores it, also beside empty lines") {
  const uneven_matrix m;
  const block_index index = m.index();
  CHECK(index.blocks() == std::int64_t(m.columns.size()));
  for (int line = 0; line < index.lines(); ++line) {
    const block_line blocks = index.line(line);
    CHECK(blocks.first == index.blocks_before(line));
    CHECK(blocks.count == index.blocks(line, line + 1));
    for (int b = 0; b < blocks.count; ++b) {
      CHECK(index.line_of(blocks.first + b) == line);
      CHECK(blocks.columns[b] == b);
    }
  }
}

TEST_CASE("block_index: parts cover all lines once and have about as many blocks each") {
  const uneven_matrix uneven;
  const dense_matrix dense(23, 6);
  const numbers starts(24, 0);
  const block_index empty = block_index::sparse(23, 6, starts.data(), nullptr);
  const block_index without_lines = block_index::sparse(0, 6, starts.data(), nullptr);
  for (const block_index& index : {uneven.index(), dense.by_one_line(false), empty, without_lines})
    for (const int parts : {1, 2, 3, 7, 23, 60})
      for (const int together : {1, 2, 5, 30}) check_parts(index, parts, together);
}

TEST_CASE("block_index: a slot of the transpose is where the block stands in the matrix") {
  using block = block_shape<4, 8>;
  const support::blocks<float, block> w;
  const block_index rows = block_index::sparse(w.lines, w.columns, w.row_start.data(), w.col.data());
  const block_index columns =
      block_index::sparse(w.columns, w.lines, w.col_start.data(), w.row.data(), w.slot.data());
  CHECK(columns.blocks() == rows.blocks());
  for (int j = 0; j < columns.lines(); ++j)
    for (int b = 0; b < columns.line(j).count; ++b) {
      const std::int64_t slot = columns.line(j).slot(b);
      const int i = rows.line_of(slot);
      CHECK(i == columns.line(j).columns[b]);
      CHECK(rows.line(i).columns[slot - rows.line(i).first] == j);
    }
}
