// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/popsparse/dynamic_load.hpp>
#include <tessera/ipu/popsparse/dynamic_plan.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_sources.hpp>

// The host's partitioner: a pattern and its values become the buckets of a dynamic plan, and buckets become a
// pattern and values again, exactly.

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// Buckets of all tiles, tile by tile.
///   tables   bucket_words each: the number of parts; for each its x, its y and its number of rows; for each
///            row its number within the part, how many blocks it has here, and their columns in the part
///   values   bucket_blocks each, in the order of the table
template <element T> struct buckets {
  std::vector<std::uint16_t> tables;
  std::vector<T> values;
  std::int32_t steps = 0;  // that they have to travel
};

namespace detail {

struct block_in_part {
  std::int32_t row, column;  // of blocks, within the part
  std::int64_t slot;
};

/// Blocks of one part of W, by its number px * y + py.
struct blocks_of_part {
  std::int64_t of;
  std::vector<block_in_part> blocks;
};

/// The blocks in the buckets of each part of W: the part's own first, then blocks of parts that overflow.
std::vector<std::vector<blocks_of_part>> deal_blocks(dynamic_plan const& p, pattern const& stored,
                                                     std::vector<bucket_overflow> const& moves);

/// Writes the table and the values of one bucket after the other.
template <element T> class bucket_writer {
 public:
  bucket_writer(dynamic_plan const& p, buckets<T>& to) : plan_(p), to_(to) {}

  /// Begins bucket z of a part.
  void open(std::int64_t group, std::int64_t part, std::int64_t z) {
    const auto tile = std::size_t(plan_.tile(group, part / plan_.y, part % plan_.y, z));
    part_ = part, z_ = z;
    words_ = to_.tables.data() + tile * std::size_t(plan_.bucket_words);
    values_ = to_.values.data() + tile * std::size_t(plan_.bucket_blocks) * area();
    used_ = 1, blocks_ = 0;
  }
  /// Begins the blocks of a part in this bucket.
  void begin_part(std::int64_t of) {
    ++words_[0];
    put(of / plan_.y), put(of % plan_.y);
    rows_at_ = used_;
    put(0);
    row_ = -1;
  }
  /// Adds a block behind the others of its part: row by row.
  void add(block_in_part const& one, T const* values) {
    if (one.row != row_) {
      ++words_[rows_at_];
      row_ = one.row;
      put(row_);
      count_at_ = used_;
      put(0);
    }
    ++words_[count_at_];
    put(one.column);
    std::copy_n(values, area(), values_);
    values_ += area(), ++blocks_;
  }
  std::int64_t blocks() const { return blocks_; }

 private:
  std::size_t area() const { return std::size_t(plan_.block) * std::size_t(plan_.block); }

  void put(std::int64_t word) {
    if (std::int64_t(used_) >= plan_.bucket_words)
      throw option_error(message("[ipu::fill_buckets] the table of bucket (", part_ / plan_.y, ", ",
                                 part_ % plan_.y, ", ", z_, ") has ", plan_.bucket_words,
                                 " words, too few for its rows: metaInfoBucketOversizeProportion = ",
                                 plan_.options.oversize * 2 + 0.1, " would do"));
    words_[used_++] = std::uint16_t(word);
  }

  dynamic_plan const& plan_;
  buckets<T>& to_;
  std::int64_t part_ = 0, z_ = 0, blocks_ = 0;
  std::uint16_t* words_ = nullptr;
  T* values_ = nullptr;                                // of the next block
  std::size_t used_ = 0, rows_at_ = 0, count_at_ = 0;  // in words_
  std::int32_t row_ = -1;
};

}  // namespace detail

/// Sorts the blocks of a pattern into the buckets of a plan, for each group one pattern and its values.
/// Throws option_error for more blocks than planned, an overflow without place, or a table that is too small;
/// the message says which head-room would do.
template <element T>
buckets<T> fill_buckets(dynamic_plan const& p, std::span<pattern const> stored,
                        std::span<std::span<T const> const> values) {
  constexpr char const* operation = "[ipu::fill_buckets] ";
  if (std::int64_t(stored.size()) != p.shape.groups || stored.size() != values.size())
    throw shape_error(message(operation, stored.size(), " patterns and ", values.size(),
                              " arrays of values for ", p.shape.groups, " groups"));
  const auto area = std::size_t(p.block) * std::size_t(p.block);
  buckets<T> b;
  b.tables.assign(std::size_t(p.tiles() * p.bucket_words), 0);
  b.values.assign(std::size_t(p.tiles() * p.bucket_blocks) * area, T(0));
  detail::bucket_writer<T> writer(p, b);
  for (std::size_t g = 0; g < stored.size(); ++g) {
    if (values[g].size() != std::size_t(stored[g].blocks()) * area)
      throw shape_error(
          message(operation, values[g].size(), " values for ", stored[g].blocks(), " blocks of ", area));
    std::vector<bucket_overflow> moves;
    b.steps = std::max(b.steps, std::int32_t(load_of(p, stored[g], &moves).steps));
    const auto held = detail::deal_blocks(p, stored[g], moves);
    for (std::size_t part = 0; part < held.size(); ++part) {
      std::int64_t all = 0, z = 0;
      for (auto const& [of, blocks] : held[part]) all += std::int64_t(blocks.size());
      const std::int64_t each = ceil_div(all, p.z);
      writer.open(std::int64_t(g), std::int64_t(part), z);
      for (auto const& [of, blocks] : held[part]) {
        bool begun = false;  // in this bucket
        for (auto const& one : blocks) {
          if (writer.blocks() == each && z + 1 < p.z)
            writer.open(std::int64_t(g), std::int64_t(part), ++z), begun = false;
          if (!begun) writer.begin_part(of), begun = true;
          writer.add(one, &values[g][std::size_t(one.slot) * area]);
        }
      }
    }
  }
  return b;
}
template <element T>
buckets<T> fill_buckets(dynamic_plan const& p, pattern const& stored, std::span<T const> values) {
  return fill_buckets<T>(p, std::span<pattern const>(&stored, 1),
                         std::span<std::span<T const> const>(&values, 1));
}

/// Calls visit(px, py, row, column, block in the bucket) for the blocks of one bucket's table. Throws
/// option_error for one that does not end within its words.
template <class Visit> void for_each_block(std::span<std::uint16_t const> table, Visit&& visit) {
  std::size_t at = 1, block = 0;
  const auto need = [&](std::size_t words) {
    if (at + words > table.size())
      throw option_error(message("[ipu::for_each_block] a bucket's table of ", table.size(),
                                 " words goes on behind its end"));
  };
  need(0);
  for (std::size_t part = 0; part < table[0]; ++part) {
    need(3);
    const int px = table[at], py = table[at + 1];
    const std::size_t rows = table[at + 2];
    at += 3;
    for (std::size_t r = 0; r < rows; ++r) {
      need(2);
      const int row = table[at];
      const std::size_t count = table[at + 1];
      at += 2;
      need(count);
      for (std::size_t k = 0; k < count; ++k) visit(px, py, row, int(table[at++]), block++);
    }
  }
}

template <element T> struct pattern_and_values {
  pattern stored;
  std::vector<T> values;  // by slot
};

/// The pattern and the values of one group. Throws shape_error if sizes, option_error if tables are not
/// as the plan has them.
template <element T, class Number>
pattern_and_values<T> empty_buckets(dynamic_plan const& p, std::span<std::uint16_t const> tables,
                                    std::span<Number const> values, std::int64_t group = 0) {
  constexpr char const* operation = "[ipu::empty_buckets] ";
  const auto area = std::size_t(p.block) * std::size_t(p.block);
  if (std::int64_t(tables.size()) != p.tiles() * p.bucket_words ||
      values.size() != std::size_t(p.tiles() * p.bucket_blocks) * area)
    throw shape_error(message(operation, tables.size(), " words and ", values.size(),
                              " values: the plan has ", p.tiles() * p.bucket_words, " and ",
                              p.tiles() * p.bucket_blocks * std::int64_t(area)));
  struct found {
    std::int32_t row, column;
    Number const* at;
  };
  std::vector<found> all;
  const std::int64_t rows = p.shape.m / p.block, columns = p.shape.k / p.block;
  for (std::int64_t t = group * p.x * p.y * p.z; t < (group + 1) * p.x * p.y * p.z; ++t) {
    const auto table = tables.subspan(std::size_t(t * p.bucket_words), std::size_t(p.bucket_words));
    Number const* const first = &values[std::size_t(t * p.bucket_blocks) * area];
    for_each_block(table, [&](int px, int py, int row, int column, std::size_t block) {
      const std::int64_t i = px * p.rows_each() + row, j = py * p.columns_each() + column;
      if (px >= p.x || py >= p.y || i >= rows || j >= columns || std::int64_t(block) >= p.bucket_blocks)
        throw option_error(message(operation, "bucket ", t, ": block ", block, " is at (", i, ", ", j,
                                   ") of ", rows, " x ", columns));
      all.push_back({std::int32_t(i), std::int32_t(j), first + block * area});
    });
  }
  std::sort(all.begin(), all.end(), [](found const& a, found const& b) {
    return a.row != b.row ? a.row < b.row : a.column < b.column;
  });
  std::vector<std::int32_t> start(std::size_t(rows) + 1), cols;
  pattern_and_values<T> result;
  for (found const& f : all) {
    ++start[std::size_t(f.row) + 1];
    cols.push_back(f.column);
    for (std::size_t k = 0; k < area; ++k) result.values.push_back(T(f.at[k]));
  }
  for (std::size_t i = 0; i + 1 < start.size(); ++i) start[i + 1] += start[i];
  result.stored = pattern::from_rows(int(rows), int(columns), std::move(start), std::move(cols));
  return result;
}

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY std::vector<std::vector<blocks_of_part>> deal_blocks(dynamic_plan const& p,
                                                                  pattern const& stored,
                                                                  std::vector<bucket_overflow> const& moves) {
  std::vector<std::vector<block_in_part>> home(std::size_t(p.x * p.y));
  stored.for_each([&](int i, int j, std::int64_t slot) {
    const std::int64_t x = i / p.rows_each(), y = j / p.columns_each();
    home[std::size_t(x * p.y + y)].push_back(
        {std::int32_t(i - x * p.rows_each()), std::int32_t(j - y * p.columns_each()), slot});
  });
  std::vector<std::vector<blocks_of_part>> held(home.size());
  std::vector<std::int64_t> leaving(home.size());
  for (auto const& m : moves) leaving[std::size_t(m.from)] += m.blocks;
  for (std::size_t part = 0; part < home.size(); ++part) {
    const auto kept = home[part].end() - leaving[part];
    held[part].push_back({std::int64_t(part), {home[part].begin(), kept}});
  }
  for (auto const& m : moves) {
    auto& from = home[std::size_t(m.from)];
    held[std::size_t(m.to)].push_back({m.from, {from.end() - m.blocks, from.end()}});
    from.resize(from.size() - std::size_t(m.blocks));
  }
  return held;
}

}  // namespace detail

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
