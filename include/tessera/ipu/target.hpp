// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>

// A machine of many cores, each with a memory of its own, that works in bulk-synchronous steps (Valiant
// 1990): every core computes on its memory, all wait for each other, and data is exchanged by a schedule that
// was fixed before. The numbers of Graphcore's machines are from its data sheets, its library poplibs
// (release 3.4) and Jia et al. 2019, "Dissecting the Graphcore IPU Architecture via Microbenchmarking".

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// The elements that the emulated machine multiplies.
enum class precision : std::uint8_t { half, single };

constexpr int bytes_of(precision p) { return p == precision::half ? 2 : 4; }
constexpr char const* name_of(precision p) { return p == precision::half ? "half" : "float"; }
template <element T>
inline constexpr precision precision_of = sizeof(T) == 2 ? precision::half : precision::single;

/// A machine, as numbers; every one can be changed. Cycles are a tile's.
struct target {
  std::string name = "Bow";
  int tiles = 1472;
  static constexpr int most_workers = 64;
  int workers = 6;                       // threads of a tile; each issues one instruction in `workers` cycles
  double clock_hz = 1.85e9;              // Bow-2000 data sheet
  std::int64_t bytes_per_tile = 638976;  // 624 KiB

  int load_bytes_per_cycle = 8;  // 64-bit datapath; 16 from interleaved memory (poplibs, ConvModel.cpp)
  int store_bytes_per_cycle = 8;
  /// Received by a tile. Bow: 11 TB/s from all to all (data sheet) / 1472 / 1.85 GHz = 4.04.
  double exchange_bytes_per_cycle = 4;
  bool pairs_share_exchange = true;  // two neighbours that receive the same data receive it at twice the rate
  int coefficient_bytes_per_cycle = 8;  // into the multiplier's registers (poplibs, StaticMatMulPartitioner)

  // Accumulating multiplier: 16 inputs (half) or 8 (float), times `units` outputs, in 4 or 8 cycles: 64 and
  // 16 multiply-adds a cycle, and 32 where half is summed in float.
  int units_half = 16, units_half_in_float = 8, units_single = 16;

  // Not in a data sheet: constants of a third-party compiler for this machine, in Rust, and of Jia et al. The
  // sync is the least certain (docs/results.md).
  int sync_cycles = 600;           // from the last tile's end of compute to the first byte
  int launch_cycles = 11;          // a supervisor starts its workers
  int exchange_message_bytes = 8;  // of code in the sender's and in the receiver's memory, for each message
  int vertex_bytes = 16;           // of state, besides its fields

  bool measured = false;  // the host itself: its threads are the tiles, a cycle is a nanosecond

  double flops_per_cycle(precision p) const {
    return p == precision::half ? 8 * units_half : 2 * units_single;
  }
  double peak_flops(precision p) const { return flops_per_cycle(p) * tiles * clock_hz; }
  int vector_width(precision p) const { return load_bytes_per_cycle / bytes_of(p); }
  int units(precision p, precision sums) const {
    return p == precision::single ? units_single : sums == precision::half ? units_half : units_half_in_float;
  }
  double seconds(double cycles) const { return cycles / clock_hz; }
  std::int64_t exchange_cycles(double bytes, bool shared_by_pairs = false) const {
    const double rate = exchange_bytes_per_cycle * (shared_by_pairs && pairs_share_exchange ? 2 : 1);
    return std::int64_t(bytes / rate + 0.999999);
  }
  std::int64_t memory_bytes() const { return bytes_per_tile * tiles; }

  /// Throws option_error for numbers that no machine can have.
  void check() const {
    const auto require = [&](bool holds, char const* what) {
      if (!holds) throw option_error(message("[ipu::target] ", name, ": ", what));
    };
    require(tiles >= 1 && tiles <= 65535, "the number of tiles is between 1 and 65535");
    static_assert(most_workers == 64, "as the message says");
    require(workers >= 1 && workers <= most_workers, "the number of workers of a tile is between 1 and 64");
    require(clock_hz > 0, "the clock must be positive");
    require(bytes_per_tile > 0, "a tile must have memory");
    require(exchange_bytes_per_cycle > 0 && load_bytes_per_cycle > 0 && store_bytes_per_cycle > 0 &&
                coefficient_bytes_per_cycle > 0,
            "loads, stores and exchange need a positive number of bytes a cycle");
    require(units_half >= 1 && units_half_in_float >= 1 && units_single >= 1,
            "the multiplier needs a positive number of units");
    require(sync_cycles >= 0 && launch_cycles >= 0 && exchange_message_bytes >= 0 && vertex_bytes >= 0,
            "costs cannot be negative");
  }
};

/// Bow, 2022: Mk2 at a higher clock. Bow-2000 data sheet: 350 TFLOP/s in half precision, 897 MiB.
target bow();

/// Mk2, 2020: GC200. 250 TFLOP/s in half precision at 1.33 GHz.
target gc200();

/// Mk1, 2018: GC2. 1216 tiles of 256 KiB at 1.6 GHz, half of Mk2's multiplier (Jia et al. 2019, chapter 1).
target gc2();

/// The target of that name: "bow", "gc200" or "gc2". Throws option_error for another name.
target target_named(std::string const& name);

#ifdef TESSERA_BODY

TESSERA_BODY target bow() { return {}; }

TESSERA_BODY target gc200() {
  target t;
  t.name = "GC200";
  t.clock_hz = 1.33e9;
  return t;
}

TESSERA_BODY target gc2() {
  target t;
  t.name = "GC2";
  t.tiles = 1216;
  t.clock_hz = 1.6e9;
  t.bytes_per_tile = 262144;
  t.units_half = t.units_half_in_float = 8;
  t.units_single = 8;
  return t;
}

TESSERA_BODY target target_named(std::string const& name) {
  if (name == "bow") return bow();
  if (name == "gc200") return gc200();
  if (name == "gc2") return gc2();
  throw option_error(message("[ipu::target_named] \"", name, "\": there are bow, gc200 and gc2"));
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
