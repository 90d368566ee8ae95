// SPDX-License-Identifier: BSD-3-Clause

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <harness/operands.hpp>

#include <tessera/core/memory.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/simd/simd.hpp>
#include <tessera/statements/quantised.hpp>
#include <tessera/tessera.hpp>

// Products with one matrix after the other, as the layers of a model have them: together they are beyond all
// caches. Beside them their weights and indexes, read and nothing else.

namespace bench { namespace {

constexpr std::int64_t all_bytes = 192 << 20;

template <class T, class Block> struct matrices {
  using result = result_of<T>;
  context ctx;
  std::vector<block_sparse_matrix<T, Block>> w;
  panel_matrix<result> x, y;

  explicit matrices(workload const& what)
      : ctx(what.threads), x(activation<result>(what.k, what.n, 4)), y(what.m, what.n) {
    const bool quick = what.m * what.k < 1 << 20;
    for (std::int64_t bytes = 0; bytes < (quick ? 1 : all_bytes); bytes += bytes_of(w.back()))
      w.push_back(weights_of<Block, T>(what, w.size()));
  }
  static std::int64_t bytes_of(block_sparse_matrix<T, Block> const& one) {
    return std::int64_t(one.size_bytes() + one.pattern().cols().size_bytes());
  }
  double flops() const {
    double sum = 0;
    for (auto const& one : w) sum += useful_flops(one, x.tokens());
    return sum;
  }

  void multiply() {
    for (auto const& one : w) run(ctx, y = one * x);
  }
  void read() {
    ctx.run(ctx.concurrency(), [&](int part, std::byte*) {
      for (auto const& one : w) {
        read_part(std::as_bytes(std::span(one.data(), std::size_t(one.size()))), part);
        read_part(std::as_bytes(one.pattern().cols()), part);
      }
    });
  }

 private:
  void read_part(std::span<std::byte const> bytes, int part) const {
    using batch = simd::batch<float>;
    constexpr int chains = 8;
    constexpr std::size_t step = chains * sizeof(batch);
    const std::size_t steps = bytes.size() / step, parts = std::size_t(ctx.concurrency());
    batch sum[chains];
    for (batch& one : sum) one = batch(0.f);
    for (std::size_t s = steps * std::size_t(part) / parts; s < steps * std::size_t(part + 1) / parts; ++s)
      unroll<chains>([&](auto i) TESSERA_INLINE_LAMBDA {
        sum[i] += batch::load_unaligned(reinterpret_cast<float const*>(bytes.data() + s * step) +
                                        i * int(batch::size));
      });
    for (int i = 1; i < chains; ++i) sum[0] += sum[i];
    [[maybe_unused]] volatile float used = simd::sum_lanes(sum[0]);  // or nothing would be read
  }
};

template <class T, class Block> job job_of(workload const& what, bool only_read) {
  auto p = std::make_shared<matrices<T, Block>>(what);
  if (only_read) return {0, [p] { p->read(); }, 0, {}};
  return {p->flops(), [p] { p->multiply(); }, what.m * what.n,
          [p, n = what.n](std::int64_t r) {
            const std::int64_t i = r / n, t = r % n;
            return beside_sum(
                p->y(i, t), p->x.features(), [&](std::int64_t j) { return p->w.back()(i, j); },
                [&](std::int64_t j) { return p->x(j, t); });
          }};
}

std::optional<job> prepare(workload const& what, bool only_read) {
  return with_block(what.block, [&]<class Block>() -> std::optional<job> {
    if (what.element == "float") return job_of<float, Block>(what, only_read);
    if (what.element == "bfloat16") return job_of<bfloat16, Block>(what, only_read);
    if (what.element == "int8") return job_of<int8, Block>(what, only_read);
#ifndef TESSERA_REDUCED_TYPES
    if (what.element == "float16") return job_of<float16, Block>(what, only_read);
    if (what.element == "double") return job_of<double, Block>(what, only_read);
    if (what.element == "float8_e4m3") return job_of<float8_e4m3, Block>(what, only_read);
#endif
    return std::nullopt;
  });
}

const registered products({"tessera", "weights", [](workload const& what) { return prepare(what, false); }});
const registered reading({"stream", "weights", [](workload const& what) { return prepare(what, true); }});

}}  // namespace bench
