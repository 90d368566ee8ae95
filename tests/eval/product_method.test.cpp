// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <doctest/doctest.h>

#include <tessera/core/engine.hpp>
#include <tessera/eval/product_method.hpp>
#include <tessera/exec/machine.hpp>

// The choice as a table. Whatever this CPU and its compiler have, the engines of a kind are the ones of a
// program for a Xeon with AMX.

namespace product_method_test {

using namespace tessera;
using eval::product_kind, eval::product_size;

product_kind with_tokens_kernels(product_kind kind) {
  kind.vector_tokens = kind.transposed ? 1 : 16;
  kind.scattered_tokens = kind.transposed ? 32 : 0;
  return kind;
}
product_kind of_floats(int rows, int cols, bool transposed = false) {
  return with_tokens_kernels({.rows = rows, .cols = cols, .transposed = transposed});
}
product_kind of_bfloat16(int rows, int cols, bool transposed = false) {
  product_kind kind = of_floats(rows, cols, transposed);
  if (rows * cols > 1) kind.by_factors = {engine::pairs, engine::amx};
  kind.scattered_tokens = rows * cols > 1 ? 0 : kind.scattered_tokens;
  return kind;
}
product_kind of_int8(int rows, int cols, bool transposed = false) {
  product_kind kind = of_bfloat16(rows, cols, transposed);
  kind.widens_w = kind.widens_x = true;
  kind.by_integers = {engine::quads, engine::amx};
  return kind;
}
product_kind int8_by_bfloat16(int rows, int cols, bool transposed = false) {
  product_kind kind = of_bfloat16(rows, cols, transposed);
  kind.widens_w = true;
  return kind;
}
product_kind n_of_m(int kept, int group, bool narrow, bool transposed = false) {
  product_kind kind{.rows = 1, .cols = 1, .transposed = transposed, .kept = kept, .group = group};
  if (narrow) kind.by_factors = {engine::pairs, engine::amx};
  return kind;
}
/// 96 lines of which each stores 12 of 96 blocks, or all.
product_size tokens(std::int64_t count) { return {count, 1536, 12 * 96, 96, true}; }
product_size dense(std::int64_t count) { return {count, 1536, 96 * 96, 96, false}; }
product_size blocks_a_line(std::int64_t blocks) { return {64, 1536, 96 * blocks, 96, true}; }
product_size deep(std::int64_t depth) { return {64, depth, 12 * 96, 96, true}; }

/// "ordered", "blocks by amx", "blocks by pairs, W widened"
std::string choice(product_kind const& kind, product_size const& size, char const* cpu) {
  machine all;
  all.engines = {engine::pairs, engine::quads, engine::amx};
  const auto way = eval::choose_product_method(eval::methods_of(kind), kind, size, as_on_cpu(all, cpu));
  std::string words = name_of(way.form);
  if (way.by != engine::fma) words += std::string(" by ") + name_of(way.by);
  if (way.widens_w || way.widens_x)
    words += std::string(", ") + (way.widens_w ? "W" : "") + (way.widens_w && way.widens_x ? " and " : "") +
             (way.widens_x ? "x" : "") + " widened";
  return words;
}

TEST_CASE("product_method: the table of choices") {
  struct row {
    char const* what;
    product_kind kind;
    product_size size;
    char const *cpu, *expected;
  };
  const row rows[] = {
      {"float, 16x16", of_floats(16, 16), tokens(512), "znver4", "blocks"},
      {"float, 16x16, a token", of_floats(16, 16), tokens(1), "znver4", "vector"},
      {"float, 16x16, few tokens", of_floats(16, 16), tokens(16), "znver4", "vector"},
      {"float, 16x16, more tokens", of_floats(16, 16), tokens(17), "znver4", "blocks"},
      {"float, 16x16 of Wᵀ, a token", of_floats(16, 16, true), tokens(1), "znver4", "vector"},
      {"float, 16x16 of Wᵀ, few tokens", of_floats(16, 16, true), tokens(32), "znver4", "scattered"},
      {"float, 16x16 of Wᵀ, more tokens", of_floats(16, 16, true), tokens(33), "znver4", "blocks"},
      {"float, single", of_floats(1, 1), tokens(193), "znver4", "ordered"},
      {"float, single, three panels", of_floats(1, 1), tokens(192), "znver4", "blocks"},
      {"float, single and dense", of_floats(1, 1), dense(512), "znver4", "blocks"},
      {"float, single of Wᵀ", of_floats(1, 1, true), tokens(193), "znver4", "ordered"},
      {"float, single of Wᵀ, three panels", of_floats(1, 1, true), tokens(192), "znver4", "scattered"},
      {"float, single of Wᵀ, dense", of_floats(1, 1, true), dense(64), "znver4", "blocks"},

      {"bfloat16, 16x16", of_bfloat16(16, 16), tokens(512), "znver3", "blocks"},
      {"bfloat16, 16x16", of_bfloat16(16, 16), tokens(512), "znver4", "blocks by pairs"},
      {"bfloat16, 16x16: Intel is slow by pairs", of_bfloat16(16, 16), tokens(512), "cooperlake", "blocks"},
      {"bfloat16, 16x16", of_bfloat16(16, 16), tokens(512), "sapphirerapids", "blocks by amx"},
      {"bfloat16, 16x16, a token", of_bfloat16(16, 16), tokens(1), "znver4", "vector"},
      {"bfloat16, 16x16, a token", of_bfloat16(16, 16), tokens(1), "sapphirerapids", "blocks by amx"},
      {"bfloat16, 8x8, a token", of_bfloat16(8, 8), tokens(1), "sapphirerapids", "vector"},
      {"bfloat16, 16x16 of Wᵀ, a token", of_bfloat16(16, 16, true), tokens(1), "sapphirerapids", "vector"},
      {"bfloat16, 16x16 of Wᵀ, 2 tokens", of_bfloat16(16, 16, true), tokens(2), "sapphirerapids",
       "blocks by amx"},
      {"bfloat16, 8x8, a block a line", of_bfloat16(8, 8), blocks_a_line(1), "sapphirerapids",
       "blocks by amx"},
      {"bfloat16, 4x4, 4 blocks a line", of_bfloat16(4, 4), blocks_a_line(4), "sapphirerapids",
       "blocks by amx"},
      {"bfloat16, 4x4, 3 blocks a line", of_bfloat16(4, 4), blocks_a_line(3), "sapphirerapids", "blocks"},
      {"bfloat16, 16x4, a block a line", of_bfloat16(16, 4), blocks_a_line(1), "sapphirerapids",
       "blocks by amx"},
      {"bfloat16, single", of_bfloat16(1, 1), tokens(512), "sapphirerapids", "ordered"},

      {"int8, 16x16", of_int8(16, 16), tokens(512), "znver3", "blocks, W and x widened"},
      {"int8, 16x16", of_int8(16, 16), tokens(512), "znver4", "blocks by quads"},
      {"int8, 16x16", of_int8(16, 16), tokens(512), "icelake-server", "blocks by quads"},
      {"int8, 16x16", of_int8(16, 16), tokens(512), "sapphirerapids", "blocks by amx"},
      {"int8, 16x16, a token", of_int8(16, 16), tokens(1), "znver4", "vector, x widened"},
      {"int8, 16x16, a token", of_int8(16, 16), tokens(1), "sapphirerapids", "blocks by amx"},
      {"int8, 8x8", of_int8(8, 8), tokens(64), "sapphirerapids", "blocks by quads"},
      {"int8, 16x16 of Wᵀ, a token", of_int8(16, 16, true), tokens(1), "sapphirerapids", "vector, x widened"},
      {"int8, the deepest sum of integers", of_int8(16, 16), deep(131071), "znver4", "blocks by quads"},
      {"int8, a deeper one", of_int8(16, 16), deep(131072), "znver4", "blocks by pairs, W and x widened"},
      {"int8 by bfloat16, 16x16", int8_by_bfloat16(16, 16), tokens(64), "znver4",
       "blocks by pairs, W widened"},
      {"int8 by bfloat16, a token", int8_by_bfloat16(16, 16), tokens(1), "sapphirerapids", "vector"},

      {"2:4 of float", n_of_m(2, 4, false), tokens(512), "sapphirerapids", "decoded"},
      {"2:4 of float, Wᵀ", n_of_m(2, 4, false, true), tokens(1), "sapphirerapids", "ordered"},
      {"2:4 of bfloat16", n_of_m(2, 4, true), tokens(512), "znver4", "decoded"},
      {"2:4 of bfloat16", n_of_m(2, 4, true), tokens(65), "sapphirerapids", "covered by amx"},
      {"2:4 of bfloat16, a panel", n_of_m(2, 4, true), tokens(64), "sapphirerapids", "decoded"},
      {"1:16 of bfloat16", n_of_m(1, 16, true), tokens(512), "sapphirerapids", "decoded"},
      {"2:4 of bfloat16, Wᵀ", n_of_m(2, 4, true, true), tokens(512), "sapphirerapids", "covered by amx"},
  };
  for (row const& r : rows) {
    INFO(r.what, ", on ", r.cpu, ", ", r.size.tokens, " tokens");
    CHECK(choice(r.kind, r.size, r.cpu) == r.expected);
  }
}

TEST_CASE("product_method: some method suits every product, and is one that there is code for") {
  int asked = 0;
  for (product_kind const& kind :
       {of_floats(1, 1), of_floats(8, 8, true), of_bfloat16(4, 4), of_int8(16, 16),
        int8_by_bfloat16(16, 16, true), n_of_m(2, 4, true), product_kind{.rows = 10, .cols = 6}})
    for (const std::int64_t count : {1, 2, 63, 64, 65, 256, 257})
      for (product_size const& size : {tokens(count), dense(count), product_size{count, 0, 0, 0, true}})
        for (cpu_model const& cpu : cpu_models) {
          const machine on{.engines = cpu.engines, .family = cpu.family};
          const auto way = eval::choose_product_method(eval::methods_of(kind), kind, size, on);
          const auto ways = eval::methods_of(kind);
          bool is_one = false;
          for (auto const& known : ways) is_one |= known == way && eval::suits(known, kind, size, on);
          CHECK(is_one);
          ++asked;
        }
  CHECK(asked == 7 * 7 * 3 * 6);
}

}  // namespace product_method_test
