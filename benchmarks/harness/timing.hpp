// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <harness/contestant.hpp>
#include <harness/on_core.hpp>
#include <harness/peak.hpp>

namespace bench {

/// One run's time, averaged over a sample of repeated runs, and the peak measured just before the sample.
struct sample {
  double time_ns, peak_gflops;
};

struct quartiles {
  double first, median, third;
};

inline quartiles quartiles_of(std::vector<double> values) {
  std::ranges::sort(values);
  const auto at = [&](double part) {
    const double place = part * double(values.size() - 1);
    const auto below = std::size_t(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - double(below)) * (values[above] - values[below]);
  };
  return {at(0.25), at(0.5), at(0.75)};
}

/// A contestant at one workload, and how long it took.
struct entrant {
  workload what;
  std::string name;
  job work;
  std::vector<sample> samples;

  template <class Of> quartiles over_samples(Of&& of) const {
    std::vector<double> values;
    for (sample const& s : samples) values.push_back(of(s));
    return quartiles_of(std::move(values));
  }
  quartiles time_ns() const {
    return over_samples([](sample const& s) { return s.time_ns; });
  }
  quartiles peak() const {
    return over_samples([](sample const& s) { return s.peak_gflops; });
  }
  /// Of the peak of that many threads, round by round.
  double share_of(sample const& s) const { return work.useful_flops / s.time_ns / s.peak_gflops; }
  quartiles share() const {
    return over_samples([&](sample const& s) { return share_of(s); });
  }
  /// The mean of the samples between the quartiles: where there are two kinds of samples, between the two.
  double middle_share() const {
    const quartiles q = share();
    double sum = 0, count = 0;
    for (sample const& s : samples)
      if (const double here = share_of(s); here >= q.first && here <= q.third) {
        sum += here;
        ++count;
      }
    return sum / count;
  }
  double best_share() const {
    double best = 0;
    for (sample const& s : samples) best = std::max(best, share_of(s));
    return best;
  }
  bool unsteady() const {
    const quartiles q = share();
    return q.third - q.first > 0.1 * q.median;
  }
};

/// How long to measure.
struct effort {
  int rounds = 5;          // at least
  double seconds = 0.25;   // for each entrant, at least
  double sample_ns = 1e7;  // of a sample, at least
};

/// The time of `times` runs, in ns.
inline double time_of(job const& work, int times) {
  if (work.timed) return work.timed(times);
  const double start = now_ns();
  for (int r = 0; r < times; ++r) work.run();
  return now_ns() - start;
}

/// Times jobs in turn, round by round, so that whatever disturbs the machine disturbs all alike, and in
/// another order each round, as a job also finds the caches as the one before it left them. A job that is run
/// several times in a sample is run once before it, so that it finds its own data there. While results are
/// unsteady up to twice as many rounds are made. Beside jobs of several threads, jobs of one thread run on
/// each core in turn: cores are not always equally fast.
inline void time_in_turn(std::vector<entrant>& entrants, effort const& most,
                         std::function<void(int round, int rounds)> const& progress) {
  std::vector<int> repeats;
  double round_ns = 0;
  for (entrant& e : entrants) {
    const double once = std::max(1.0, time_of(e.work, 1));
    repeats.push_back(
        std::max(e.work.least_runs, int(std::clamp(std::ceil(most.sample_ns / once), 1.0, 1e6))));
    round_ns += once * repeats.back();
  }
  const double wanted_ns = most.seconds * 1e9 * double(entrants.size());
  int rounds = std::max(most.rounds, int(std::min(wanted_ns / round_ns, 100.0)));
  const int limit = most.rounds == 1 ? 1 : 2 * rounds;
  std::vector<std::size_t> order(entrants.size());
  std::iota(order.begin(), order.end(), std::size_t(0));
  const bool each_core = std::ranges::any_of(entrants, [](entrant const& e) { return e.what.threads > 1; });
  std::minstd_rand random;
  for (int round = 0; round < rounds; ++round) {
    progress(round, rounds);
    std::ranges::shuffle(order, random);
    for (const std::size_t i : order) {
      entrant& e = entrants[i];
      std::optional<on_core> here;
      if (each_core && e.what.threads == 1) here.emplace(round);
      const double peak = peak_gflops(e.what.element, e.what.threads);
      if (repeats[i] > 1) time_of(e.work, 1);
      e.samples.push_back({time_of(e.work, repeats[i]) / repeats[i], peak});
    }
    if (round + 1 == rounds && rounds < limit && round_ns < 2e9 &&
        std::ranges::any_of(entrants, &entrant::unsteady))
      ++rounds;
  }
}

}  // namespace bench
