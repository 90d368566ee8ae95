// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/unroll.hpp>
#include <tessera/exec/amx_permission.hpp>
#include <tessera/kernels/amx_panel_times_panel.hpp>
#include <tessera/kernels/engine.hpp>
#include <tessera/kernels/quads.hpp>
#include <tessera/simd/int8.hpp>
#include <tessera/simd/regroup.hpp>
#include <tessera/simd/simd.hpp>

namespace bench {

using namespace tessera;

inline double now_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// A number in all lanes, as often as one holds it.
template <class T> auto in_all_lanes(T value) {
  const T lane[] = {value, value, value, value};
  return simd::broadcast_lane<simd::native>(lane);
}

/// The rate of multiply-adds on registers alone, in GFLOP/s: the most of this core at this moment, the median
/// of 64 pieces of about 30 us, so that it is not less while something else interrupts. 24 independent
/// chains hide the latency of every core so far (6 cycles, 2 a cycle).
template <class T> [[gnu::noinline]] double peak_of_one_thread() {
  using arch = simd::native;
  using sums = typename kernels::sum_of<engine::quads, T>::type;
  using lane = simd::stored_lane<T>;
  constexpr int chains = 24, pieces = 64, steps = 10000;
  simd::reg<sums, arch> sum[chains];
  unroll<chains>([&](auto i) TESSERA_INLINE_LAMBDA { sum[i] = simd::broadcast<arch>(sums(i)); });
  simd::reg<lane, arch> left = in_all_lanes(T(0.999)), right = in_all_lanes(T(0.001));
  simd::pin(left);
  simd::pin(right);
  std::array<double, pieces> elapsed;
  for (double& piece : elapsed) {
    const double start = now_ns();
    for (int step = 0; step < steps; ++step)
      unroll<chains>([&](auto i) TESSERA_INLINE_LAMBDA {
        sum[i] = simd::multiply_add<lane, arch>(left, right, sum[i]);
        simd::pin(sum[i]);  // or GCC moves sums that are integers through memory
      });
    piece = now_ns() - start;
  }
  simd::batch<sums> total(sums(0));
  unroll<chains>([&](auto i) TESSERA_INLINE_LAMBDA { total += simd::batch<sums>(sum[i]); });
  [[maybe_unused]] volatile sums used = simd::sum_lanes(total);  // or the compiler would leave it all out
  std::ranges::nth_element(elapsed, elapsed.begin() + pieces / 2);
  constexpr int terms = simd::lanes<lane, arch> * simd::elements_a_lane<lane>;
  return 2.0 * chains * terms * steps / elapsed[pieces / 2];
}

/// The peak of AMX, by the four registers of sums that kernels have.
inline double amx_peak_of_one_thread() {
  constexpr int chains = 4, pieces = 64, steps = 1500;
  kernels::amx_unit unit;
  unroll<6>([&](auto i) TESSERA_INLINE_LAMBDA { unit.zero<i>(); });
  std::array<double, pieces> elapsed;
  for (double& piece : elapsed) {
    const double start = now_ns();
    for (int step = 0; step < steps; ++step)
      unroll<chains>([&](auto i) TESSERA_INLINE_LAMBDA { unit.multiply_add<i, 4, 5>(); });
    piece = now_ns() - start;
  }
  kernels::amx_unit::release();
  std::ranges::nth_element(elapsed, elapsed.begin() + pieces / 2);
  constexpr int terms = simd::amx_rows * simd::amx_columns * simd::amx_row_bytes / 2;
  return 2.0 * chains * terms * steps / elapsed[pieces / 2];
}

/// Whether bfloat16 is multiplied by AMX, whose blocks may be of 32 too.
inline bool multiplies_by_amx() { return simd::has_amx && exec::amx_permitted(); }

/// A peak on `threads` threads at one time, summed.
inline double peak_of(double (*one_thread)(), int threads) {
  if (threads == 1) return one_thread();
  std::atomic<int> arrived{0};
  std::atomic<double> sum{0};
  const auto body = [&] {
    for (++arrived; arrived.load() < threads;) {
    }
    sum += one_thread();
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(body);
  body();
  for (std::thread& other : others) other.join();
  return sum;
}

inline double peak_gflops(std::string const& element, int threads) {
  const auto of_pairs = []<class E>(E) {
    return peak_of_one_thread<kernels::factor_of<engine::pairs, E, simd::native>>;
  };
  if (element == "float" || element == "float8_e4m3")  // which is widened to float
    return peak_of(peak_of_one_thread<float>, threads);
  if (element == "double") return peak_of(peak_of_one_thread<double>, threads);
  if (element == "bfloat16" && multiplies_by_amx()) return peak_of(amx_peak_of_one_thread, threads);
  if (element == "bfloat16") return peak_of(of_pairs(bfloat16()), threads);
  if (element == "int8") {
    if constexpr (kernels::has_engine<engine::quads, int8, simd::native>)
      return peak_of(peak_of_one_thread<int8>, threads);
    return peak_gflops("bfloat16", threads);  // as which it is multiplied elsewhere
  }
  if (element == "float16") return peak_of(of_pairs(float16()), threads);
  throw option_error("[peak] no peak is known for " + element +
                     ", but for float, double, bfloat16, float16, int8 and float8_e4m3");
}

}  // namespace bench
