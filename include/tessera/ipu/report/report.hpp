// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/decimal.hpp>
#include <tessera/io/json.hpp>
#include <tessera/ipu/profile.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

namespace detail {

/// A number with three digits and the prefix of its unit: "1.23 M".
std::string short_number(double n, char const* unit = "");
/// Bytes in KiB, MiB or GiB.
std::string short_bytes(double n);
std::string percent(double part, double whole);
/// How often `part` goes into `whole`: "2.67".
std::string times(double whole, double part);
std::string padded(std::string text, std::size_t width, bool right = false);
/// Time, of cycles of the emulated clock.
std::string short_time(double seconds);

}  // namespace detail

/// The report as text of at most 100 columns: cycles by activity and by step, balance, memory.
///   most_steps   of the longest that are listed
std::string to_text(profile const& p, std::size_t most_steps = 12);

/// Everything in the report as JSON.
io::json to_json(profile const& p);

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY std::string short_number(double n, char const* unit) {
  constexpr std::array prefixes{"", "k", "M", "G", "T", "P"};
  std::size_t p = 0;
  double scaled = n;
  while (scaled >= 999.5 && p + 1 < prefixes.size()) scaled /= 1000, ++p;
  const int digits = scaled >= 99.95 || (p == 0 && scaled == double(std::int64_t(scaled))) ? 0
                     : scaled >= 9.995                                                     ? 1
                                                                                           : 2;
  const bool spaced = p > 0 || *unit;
  return fixed_text(scaled, digits) + (spaced ? " " : "") + prefixes[p] + unit;
}

TESSERA_BODY std::string short_bytes(double n) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB"};
  std::size_t u = 0;
  while (n >= 1023.5 && u + 1 < units.size()) n /= 1024, ++u;
  return fixed_text(n, u == 0 || n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2) + " " + units[u];
}

TESSERA_BODY std::string percent(double part, double whole) {
  return fixed_text(whole > 0 ? 100 * part / whole : 0.0, 1) + " %";
}

TESSERA_BODY std::string times(double whole, double part) {
  return fixed_text(part > 0 ? whole / part : 0.0, 2);
}

TESSERA_BODY std::string padded(std::string text, std::size_t width, bool right) {
  if (text.size() >= width) return text;
  return right ? std::string(width - text.size(), ' ') + text : text + std::string(width - text.size(), ' ');
}

TESSERA_BODY std::string short_time(double seconds) {
  if (seconds >= 1) return short_number(seconds, "s");
  if (seconds >= 1e-3) return short_number(seconds * 1e3, "ms");
  return short_number(seconds * 1e6, "µs");
}

struct text_lines {
  std::string all;
  void operator()(std::string const& text) { all += text + '\n'; }
};

/// Time, speed, traffic and balance.
TESSERA_BODY std::string overview(profile const& p) {
  const double all = double(p.cycles());
  text_lines line;
  line(message(p.name.empty() ? "A run" : p.name, " on ", p.on.name, ": ", p.on.tiles,
               p.on.measured ? " threads" : " tiles"));
  for (auto const& remark : p.remarks) line("  ! " + remark);
  line("");
  line("  time        " + short_time(p.seconds()) +
       (p.on.measured ? "" : ", " + short_number(all) + " cycles"));
  for (activity a : {activity::compute, activity::exchange, activity::sync})
    if (p.cycles(a) > 0) line("  " + padded(name_of(a), 12) + padded(percent(double(p.cycles(a)), all), 10));
  if (p.multiplies() > 0) {
    const double peak = p.on.peak_flops(precision::half);
    line("  speed       " + short_number(p.flops_per_second(), "FLOP/s") +
         (p.on.measured ? ""
                        : ", " + percent(p.flops_per_second(), peak) + " of the half-precision peak, " +
                              short_number(p.flops_per_cycle()) + " FLOP a cycle"));
  }
  for (comparison const& c : p.compared)
    line("  compared    " + times(double(c.cycles), all) + " times as fast as " + c.name + ", " +
         short_number(double(c.cycles)) + " cycles");
  if (p.exchanged_bytes() > 0)
    line(std::string(p.on.measured ? "  touched     " : "  exchanged   ") +
         short_bytes(double(p.exchanged_bytes())));
  line("  balance     " + percent(p.tile_balance(), 1) + " (mean over greatest of the " +
       (p.on.measured ? "threads'" : "tiles'") + " active cycles), " + std::to_string(p.active_tiles()) +
       " active");
  if (p.estimated_cycles() > 0)
    line("  estimated   " + percent(double(p.estimated_cycles()), all) +
         " of the cycles, by counted instructions (marked *)");
  return line.all;
}

/// A table of the longest steps.
TESSERA_BODY std::string table_of_steps(profile const& p, std::size_t most_steps) {
  const double all = double(p.cycles());
  text_lines line;
  line("");
  line("  " + padded("step", 46) + padded("cycles", 12, true) + padded("share", 9, true) +
       padded("times", 7, true) + padded("FLOP/cycle", 12, true));
  std::size_t listed = 0;
  const auto steps = p.by_name();
  for (auto const& s : steps) {
    if (listed++ == most_steps) {
      line(message("  … and ", steps.size() - most_steps, " more"));
      break;
    }
    std::string name = s.name;
    if (s.kind == activity::compute && s.estimated) name += " *";
    line("  " + padded(name.substr(0, 45), 46) + padded(short_number(double(s.cycles)), 12, true) +
         padded(percent(double(s.cycles), all), 9, true) + padded(std::to_string(s.times), 7, true) +
         padded(s.multiplies > 0
                    ? short_number(2 * s.multiplies / double(std::max<std::int64_t>(s.cycles, 1)))
                    : "",
                12, true));
  }
  return line.all;
}

/// What the fullest tile holds, and all tiles together.
TESSERA_BODY std::string table_of_memory(profile const& p) {
  if (p.memory.empty()) return {};
  text_lines line;
  const std::size_t fullest = p.fullest_tile();
  line("");
  line("  memory      tile " + std::to_string(fullest) + " is the fullest: " +
       short_bytes(double(p.peak(fullest))) + " of " + short_bytes(double(p.on.bytes_per_tile)) + ", " +
       short_bytes(double(p.always_live(fullest))) + " always live");
  for (std::size_t k = 0; k < storage_kinds; ++k)
    if (p.memory_of(storage(k)) > 0)
      line("  " + padded(name_of(storage(k)), 20) +
           padded(short_bytes(double(p.memory_of(storage(k)))), 12, true) + " on all tiles" +
           padded(short_bytes(double(p.memory[fullest][k])), 12, true) + " on the fullest");
  std::vector<std::size_t> by_peak(p.memory.size());
  for (std::size_t t = 0; t < by_peak.size(); ++t) by_peak[t] = t;
  std::sort(by_peak.begin(), by_peak.end(), [&](std::size_t a, std::size_t b) {
    return p.peak(a) != p.peak(b) ? p.peak(a) > p.peak(b) : a < b;
  });
  std::string fullest_tiles;
  for (std::size_t i = 0; i < std::min<std::size_t>(by_peak.size(), 5); ++i)
    fullest_tiles +=
        message(i > 0 ? ", " : "", by_peak[i], " (", short_bytes(double(p.peak(by_peak[i]))), ")");
  line("  fullest tiles       " + fullest_tiles);
  std::int64_t most = 0;
  for (auto const& l : p.liveness) most = std::max(most, l.all_tiles);
  if (most > 0)
    line("  peak of liveness    " + padded(short_bytes(double(most)), 12, true) + " on all tiles");
  return line.all;
}

}  // namespace detail

TESSERA_BODY std::string to_text(profile const& p, std::size_t most_steps) {
  return detail::overview(p) + detail::table_of_steps(p, most_steps) + detail::table_of_memory(p);
}

TESSERA_BODY io::json to_json(profile const& p) {
  io::json all;
  all["name"] = p.name;
  io::json machine;
  machine["name"] = p.on.name, machine["tiles"] = p.on.tiles, machine["clock_hz"] = p.on.clock_hz,
  machine["bytes_per_tile"] = p.on.bytes_per_tile;
  all["machine"] = machine;
  all["cycles"] = p.cycles();
  for (activity a : {activity::compute, activity::exchange, activity::sync})
    all[std::string(name_of(a)) + "_cycles"] = p.cycles(a);
  all["estimated_cycles"] = p.estimated_cycles();
  all["seconds"] = p.seconds();
  all["flops"] = 2 * p.multiplies();
  all["flops_per_cycle"] = p.flops_per_cycle();
  all["share_of_half_peak"] = p.flops_per_second() / p.on.peak_flops(precision::half);
  all["exchanged_bytes"] = p.exchanged_bytes();
  all["tile_balance"] = p.tile_balance();
  all["active_tiles"] = p.active_tiles();
  io::json::array remarks, compared, steps, active, memory, liveness;
  for (comparison const& c : p.compared) {
    io::json one;
    one["name"] = c.name, one["cycles"] = c.cycles;
    compared.push_back(std::move(one));
  }
  all["compared"] = std::move(compared);
  for (auto const& r : p.remarks) remarks.push_back(r);
  all["remarks"] = std::move(remarks);
  for (auto const& s : p.steps) {
    io::json one;
    one["name"] = s.name, one["kind"] = name_of(s.kind), one["cycles"] = s.cycles, one["bytes"] = s.bytes,
    one["multiplies"] = s.multiplies;
    one["estimated"] = s.estimated;
    steps.push_back(std::move(one));
  }
  all["steps"] = std::move(steps);
  for (std::int64_t c : p.active_cycles()) active.push_back(c);
  all["active_cycles_by_tile"] = std::move(active);
  for (auto const& tile : p.memory) {
    io::json one;
    for (std::size_t k = 0; k < storage_kinds; ++k) one[name_of(storage(k))] = tile[k];
    memory.push_back(std::move(one));
  }
  all["memory_by_tile"] = std::move(memory);
  for (auto const& l : p.liveness) liveness.push_back(l.all_tiles);
  all["live_bytes_by_step"] = std::move(liveness);
  return all;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
