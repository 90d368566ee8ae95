// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <simd/archs.hpp>
#include <support/types.hpp>

#include <tessera/core/range.hpp>
#include <tessera/kernels/embedding.hpp>

// All values are small integers, so that sums are exact.

using namespace tessera;

namespace {

constexpr int vocabulary = 37;

/// A table (vocabulary, features) in blocks, all of them stored.
template <class V, class Block> struct table {
  std::int64_t lines;  // block columns
  std::vector<V> values;
  table(int features, int seed)
      : lines(ceil_div(features, Block::cols)),
        values(std::size_t(ceil_div(vocabulary, Block::rows) * lines * Block::elements), V(0)) {
    for (int id = 0; id < vocabulary; ++id)
      for (int f = 0; f < features; ++f) at(id, f) = V((id * seed + f * 5) % 17 - 8);
  }
  V& at(int id, int f) {
    const std::int64_t block = id / Block::rows * lines + f / Block::cols;
    return values[std::size_t(block * Block::elements + id % Block::rows * Block::cols + f % Block::cols)];
  }
};

/// Some tokens more than once.
std::vector<std::int32_t> some_ids() {
  std::vector<std::int32_t> ids;
  for (int t = 0; t < panel_tokens; ++t) ids.push_back((t * t + 3 * t) % vocabulary);
  return ids;
}

/// A panel with a number at every place, also beyond the last feature and token.
template <class T> std::vector<T> some_panel(int features) {
  std::vector<T> y(std::size_t(round_up(features, granule) * panel_tokens));
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = T(int(i * 3 % 11) - 5);
  return y;
}

template <class Arch, class T, class Block, class Value>
void check_gather(int features, int tokens, bool adds) {
  const std::vector<std::int32_t> ids = some_ids();
  table<Value, Block> from(features, 3);
  std::vector<T> y = some_panel<T>(features), exact = y;
  for (int f = 0; f < features; ++f)
    for (int t = 0; t < tokens; ++t) {
      T& to = exact[std::size_t(place_in_panel<T>(f, t))];
      to = T((adds ? double(to) : 0.0) + double(from.at(ids[std::size_t(t)], f)));
    }
  const int lines = int(from.lines);
  for (const auto& [first, last] : {range{lines / 2, lines}, range{0, lines / 2}})
    kernels::embedding<Arch, T, Block>::gather(from.values.data(), lines, ids.data(), tokens, adds, y.data(),
                                               features, first, last);
  REQUIRE(y == exact);
}

template <class Arch, class T, class Block> void check_scatter(int features, int tokens) {
  using sum = accumulator_t<T>;
  const std::vector<std::int32_t> ids = some_ids();
  table<sum, Block> to(features, 3), exact = to;
  const std::vector<T> y = some_panel<T>(features);
  for (int f = 0; f < features; ++f)
    for (int t = 0; t < tokens; ++t)
      exact.at(ids[std::size_t(t)], f) += sum(y[std::size_t(place_in_panel<T>(f, t))]);
  for (std::int64_t line = 0; line < to.lines; ++line)
    kernels::embedding<Arch, T, Block>::scatter(to.values.data(), to.lines, ids.data(), tokens, y.data(),
                                                features, line);
  REQUIRE(to.values == exact.values);
}

template <class Arch, class T, class Block> void check_embedding() {
  for (const int features : {1, 7, 32, 48, 53})
    for (const int tokens : {1, 15, 33, 64}) {
      INFO("blocks of ", Block::rows, " x ", Block::cols, ", ", features, " features, ", tokens, " tokens, ",
           simd::lanes<accumulator_t<T>, Arch>, " lanes");
      for (const bool adds : {false, true}) {
        check_gather<Arch, T, Block, T>(features, tokens, adds);
        if constexpr (!std::is_same_v<T, accumulator_t<T>>)
          check_gather<Arch, T, Block, accumulator_t<T>>(features, tokens, adds);
      }
      check_scatter<Arch, T, Block>(features, tokens);
    }
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("embedding: rows of a table go to tokens, and gradients of tokens to rows", Arch,
                          rows_of_tables) {
  check_embedding<Arch, float, block_shape<16>>();
  check_embedding<Arch, float, block_shape<10, 6>>();
  check_embedding<Arch, double, block_shape<8>>();
  check_embedding<Arch, double, block_shape<1>>();
  check_embedding<Arch, bfloat16, block_shape<4, 16>>();
  check_embedding<Arch, bfloat16, block_shape<5, 3>>();
  check_embedding<Arch, float16, block_shape<32>>();
  check_embedding<Arch, float16, block_shape<4>>();
}
TEST_CASE_TEMPLATE_APPLY(rows_of_tables, support::archs);

TEST_CASE_TEMPLATE("embedding: tokens at some positions are brought together and go back to where they were",
                   T, float, double, bfloat16, float16) {
  constexpr int panels = 3, tokens = 2 * panel_tokens + 17;
  for (const int features : {1, 7, 20}) {
    const std::int64_t stored = round_up(features, granule), stride = stored * panel_tokens;
    std::vector<T> x(std::size_t(panels * stride), T(0));
    const auto at = [&](std::int64_t f, std::int64_t t) {
      return std::size_t(t / panel_tokens * stride + place_in_panel<T>(f, t % panel_tokens));
    };
    for (int f = 0; f < features; ++f)
      for (int t = 0; t < tokens; ++t) x[at(f, t)] = T((f * 7 + t * 5) % 31 - 15);
    // Of one panel none, of one some, of one all: more than fill a panel, and in two pieces of features.
    for (const std::vector<int>& steps : {std::vector{1, 1, 1}, {7, 1, 2}, {64, 2, 3}, {1000, 1000, 1}}) {
      INFO(features, " features, every ", steps[0], ", ", steps[1], ", ", steps[2]);
      std::vector<std::int32_t> positions;
      for (int p = 0; p < panels; ++p)
        for (int t = steps[std::size_t(p)] == 1000 ? panel_tokens : 0;
             t < std::min(panel_tokens, tokens - p * panel_tokens); t += steps[std::size_t(p)])
          positions.push_back(p * panel_tokens + t);
      const int count = int(positions.size());
      const std::int64_t middle = features / 2 / 2 * 2;
      std::vector<T> y(std::size_t(panels * stride), T(-77));
      for (int p = 0; p * panel_tokens < count; ++p)
        for (const auto& [first, last] : {range{0, int(middle)}, range{int(middle), features}})
          kernels::gather_tokens(x.data(), stride, positions.data() + p * panel_tokens,
                                 std::min(panel_tokens, count - p * panel_tokens), y.data() + p * stride,
                                 first, last);
      bool good = true;
      for (std::int64_t f = 0; f < stored; ++f)
        for (int i = 0; i < panels * panel_tokens; ++i)
          good = good &&
                 y[at(f, i)] == (f < features && i < count ? x[at(f, positions[std::size_t(i)])] : T(-77));
      REQUIRE(good);

      std::vector<T> back(std::size_t(panels * stride), T(-77));
      for (int p = 0; p < panels; ++p)
        for (const auto& [first, last] : {range{int(middle), features}, range{0, int(middle)}})
          kernels::scatter_tokens(y.data(), stride, positions.data(), count, p * panel_tokens,
                                  std::min(panel_tokens, tokens - p * panel_tokens), back.data() + p * stride,
                                  first, last);
      for (std::int64_t f = 0; f < stored; ++f)
        for (int t = 0; t < panels * panel_tokens; ++t) {
          const bool chosen = std::binary_search(positions.begin(), positions.end(), t);
          const bool touched = f < round_up(features, element_traits<T>::features_a_lane);
          good = good && back[at(f, t)] == (f < features && chosen ? x[at(f, t)] : T(touched ? 0 : -77));
        }
      REQUIRE(good);
    }
  }
}
