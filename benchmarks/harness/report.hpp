// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <harness/question.hpp>
#include <harness/timing.hpp>

#include <tessera/io/json.hpp>

namespace bench {

inline std::string block_name(int block) { return message(block, "x", block); }

/// Shares as in tables: .93 rather than 0.93.
inline std::string short_number(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text[0] == '0' ? text + 1 : text;
}

inline std::string short_time(double ns) {
  char text[32];
  if (ns >= 1e9)
    std::snprintf(text, sizeof text, "%.2f s", ns * 1e-9);
  else if (ns >= 1e6)
    std::snprintf(text, sizeof text, "%.2f ms", ns * 1e-6);
  else
    std::snprintf(text, sizeof text, "%.1f us", ns * 1e-3);
  return text;
}

inline bool is_product(workload const& what) {
  return what.operation == "forward" || what.operation == "transposed" || what.operation == "sampled" ||
         what.operation == "dense";
}

/// What a product has to move at least: weights, or their gradient, which is kept in float, with a 32-bit
/// index for each block, and both activations.
inline double least_bytes(workload const& what) {
  const double bytes = what.element == "float" ? 4 : 2;
  const double weights = what.density * double(what.m * what.k);
  const double index = what.density < 1 ? weights / (what.block * what.block) : 0;
  return weights * (what.operation == "sampled" ? 4 : bytes) + 4 * index +
         bytes * double((what.m + what.k) * what.n);
}

/// Goals met and missed so far.
struct score {
  int met = 0, missed = 0;
  std::string judge(double value, double goal) {
    if (goal <= 0) return "";
    const bool reached = value >= goal;
    ++(reached ? met : missed);
    return "  goal " + short_number(goal, 2) + (reached ? " met" : " MISSED");
  }
};

/// Prints a group as lines of a table and appends its records.
inline void report(question const& asked, std::vector<entrant> const& group, score& all,
                   io::json::array& records) {
  for (entrant const& e : group) {
    const quartiles time = e.time_ns(), share = e.share(), peak = e.peak();
    const double best = e.best_share();
    const double goal = asked.goal ? asked.goal(e.what, e.name) : 0;
    const auto beside = asked.compare ? asked.compare(e, group) : std::vector<comparison>();

    std::string line = message("  ", short_number(share.median, 3), "  ", short_number(share.first, 3), "-",
                               short_number(share.third, 3), "  ", short_number(best, 3),
                               e.unsteady() ? " unsteady" : "", all.judge(share.median, goal));
    for (comparison const& c : beside)
      line += message("   ", short_number(c.times, 2), " x ", c.with, all.judge(c.times, c.goal));
    std::printf("%-10s %5lld %5lld %5lld %4g %% %6s %-8s %2d  %-20s %9s %7.1f%s\n", e.what.operation.c_str(),
                static_cast<long long>(e.what.m), static_cast<long long>(e.what.k),
                static_cast<long long>(e.what.n), 100 * e.what.density, block_name(e.what.block).c_str(),
                e.what.element.c_str(), e.what.threads, e.name.c_str(), short_time(time.median).c_str(),
                e.work.useful_flops / time.median, line.c_str());

    io::json record;
    record["question"] = asked.name;
    record["contestant"] = e.name;
    record["operation"] = e.what.operation;
    record["m"] = e.what.m;
    record["k"] = e.what.k;
    record["n"] = e.what.n;
    record["density"] = e.what.density;
    record["block"] = block_name(e.what.block);
    record["element"] = e.what.element;
    record["threads"] = e.what.threads;
    record["time_ns"] = time.median;
    record["time_ns_quartiles"] = io::json::array{time.first, time.third};
    record["useful_gflops"] = e.work.useful_flops / time.median;
    record["peak_gflops"] = peak.median;
    record["share_of_peak"] = share.median;
    record["share_of_peak_quartiles"] = io::json::array{share.first, share.third};
    record["share_of_peak_best"] = best;
    if (is_product(e.what)) record["least_bytes"] = least_bytes(e.what);
    if (!e.work.library.empty()) record["library"] = e.work.library;
    record["rounds"] = std::int64_t(e.samples.size());
    record["unsteady"] = e.unsteady();
    if (goal > 0) record["goal"] = goal;
    io::json::array others;
    for (comparison const& c : beside) {
      io::json other = io::json::object{{"with", c.with}, {"times", c.times}};
      if (c.goal > 0) other["goal"] = c.goal;
      others.push_back(std::move(other));
    }
    if (!others.empty()) record["beside"] = std::move(others);
    records.push_back(std::move(record));
  }
  std::fflush(stdout);
}

inline void print_heading(question const& asked) {
  std::printf("\n%s: %s\n%-10s %5s %5s %5s %6s %6s %-8s %2s  %-20s %9s %7s  %s\n", asked.name.c_str(),
              asked.asks.c_str(), "operation", "m", "k", "n", "stored", "block", "element", "on",
              "contestant", "time", "GFLOP/s", "share of peak, quartiles, best");
  std::fflush(stdout);
}

}  // namespace bench
