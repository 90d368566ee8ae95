// SPDX-License-Identifier: BSD-3-Clause

// Tutorial 10: a sparse layer on an emulated machine of 1472 tiles.
//
//   g++ -std=c++20 -O3 -march=native -I include examples/tutorials/10_emulated_machine.cpp -pthread &&
//   ./a.out

#include <cstdio>
#include <fstream>
#include <span>
#include <vector>

#include <tessera/core/float16.hpp>
#include <tessera/ipu/graph/engine.hpp>
#include <tessera/ipu/popsparse/dense_plan.hpp>
#include <tessera/ipu/popsparse/dynamic_product.hpp>
#include <tessera/ipu/popsparse/static_product.hpp>
#include <tessera/ipu/report/report_page.hpp>
#include <tessera/ipu/runs/machine.hpp>
#include <tessera/tessera.hpp>

using namespace tessera;

int main() {
  // Graphcore's Bow: 1472 cores, each with 624 KiB of memory of its own, that work in supersteps: all
  // compute, all wait, all exchange data. Every number of a target can be changed; each has its source in its
  // comment.
  const ipu::target on = ipu::bow();
  std::printf("%s: %d tiles, %.0f MiB, %.0f TFLOP/s\n", on.name.c_str(), on.tiles,
              double(on.memory_bytes()) / (1 << 20), on.peak_flops(ipu::precision::half) / 1e12);

  // 1. A context on the machine. Runs, layers and training steps are written as always; they are cut for 1472
  // tiles, computed on the host's threads with the same bits, and charged.
  ipu::machine bow(on);
  context emulated(bow), plain;
  block_sparse_matrix<bfloat16, block_shape<16>> w(1024, 768, random_pattern(64, 48, 0.1, /*seed*/ 1));
  panel_matrix<bfloat16> x(768, 512), y(1024, 512), z(1024, 512);
  w.fill(bfloat16(0.01f));
  run(plain, x = feature_number() * 0.01f);
  run(plain, z = relu(w * x));
  run(emulated, y = relu(w * x));
  bool equal = true;
  for (int i = 0; i < 1024; ++i) equal &= float(y(i, 100)) == float(z(i, 100));
  const ipu::profile report = bow.report("a layer");
  std::printf("%s bits, %d tiles were active\n", equal ? "the same" : "other", report.active_tiles());

  // Where the cycles and the memory went: as text, as JSON, or as a page with pictures.
  std::ofstream("layer.html") << ipu::to_page(report);
  std::remove("layer.html");

  // 2. popsparse's products. A plan says how a product is cut; its cost is what the machine would need.
  const pattern stored = random_pattern(256, 256, 1.0 / 16, /*seed*/ 1);
  const ipu::product_shape shape{4096, 4096, 256};
  const auto half = ipu::precision::half;
  const auto dense = ipu::plan_dense(on, shape, half, {half});
  const auto fixed = ipu::plan_static(on, shape, stored, 16, half);
  const auto dynamic = ipu::plan_dynamic(on, shape, stored.blocks(), 16, half);
  const double base = double(dense.cost.with_sync());
  std::printf("static: %s, %.1f times dense\n", fixed.explain().c_str(),
              base / double(fixed.cost.with_sync()));
  std::printf("dynamic: %s, %.1f times dense\n", dynamic.explain().c_str(),
              base / double(ipu::cost_of(on, dynamic, stored).with_sync()));

  // 3. The static product, run tile by tile: a graph of variables and codelets, a program, an engine.
  ipu::graph g(on);
  const ipu::static_product<float16> product(g, fixed, stored, "W");
  const auto a = g.add_variable<float16>("X", 4096 * 256), b = g.add_variable<float16>("Y", 4096 * 256);
  g.map_linearly(a), g.map_linearly(b);
  ipu::program steps = product.multiply(g, a, b);
  ipu::engine machine(std::move(g), std::move(steps));
  machine.write(a, std::vector<float16>(std::size_t(a.size()), float16(1)));
  machine.write(product.values(), std::vector<float16>(std::size_t(product.values().size()), float16(0.01f)));
  machine.run();
  const std::vector<float16> result = machine.read<float16>(b);
  std::printf("Y(0, 0) = %.2f, of %d blocks in row 0\n", float(result[0]), int(stored.row_count(0)));
  std::printf("%d supersteps, at most %.0f KiB of a tile\n", int(machine.profile().steps.size()),
              double(machine.profile().peak(machine.profile().fullest_tile())) / 1024);

  // 4. A new pattern: the dynamic product takes it while the machine runs, the static one has to be planned
  // anew.
  ipu::graph h(on);
  const ipu::dynamic_product<float16> moving(h, dynamic, "W");
  const auto c = h.add_variable<float16>("X", 4096 * 256), d = h.add_variable<float16>("Y", 4096 * 256);
  h.map_linearly(c), h.map_linearly(d);
  ipu::program again = moving.multiply(h, c, d);
  ipu::engine second(std::move(h), std::move(again));
  second.write(c, std::vector<float16>(std::size_t(c.size()), float16(1)));
  for (const std::uint64_t seed : {1u, 2u}) {
    const pattern now = random_pattern(256, 256, 1.0 / 16, seed);
    moving.write(second, now, std::vector<float16>(std::size_t(now.blocks() * 256), float16(0.01f)));
    second.run();
    std::printf("pattern %d: Y(0, 0) = %.2f\n", int(seed), float(second.read<float16>(d.part(0, 1))[0]));
  }
}

// Prints
//   Bow: 1472 tiles, 897 MiB, 349 TFLOP/s
//   the same bits, 512 tiles were active
//   static: … bands of columns x … parts of n on … tiles, 3.… times dense
//   dynamic: 52 x 7 x 4 parts of rows, columns and n on 1456 tiles, buckets of 4 blocks, 1.… times dense
//   Y(0, 0) = …, of … blocks in row 0
//   … supersteps, at most … KiB of a tile
//   pattern 1: Y(0, 0) = …
//   pattern 2: Y(0, 0) = …
