// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/io/file.hpp>
#include <tessera/io/json.hpp>
#include <tessera/ipu/popsparse/dense_plan.hpp>
#include <tessera/ipu/popsparse/dynamic_load.hpp>
#include <tessera/ipu/popsparse/dynamic_plan.hpp>
#include <tessera/ipu/popsparse/static_plan.hpp>
#include <tessera/ipu/report/report_page.hpp>

#include "commands.hpp"
#include "products.hpp"

namespace ipu_program {

using namespace tessera;

namespace {

/// A way to compute the product, as its planner sees it.
struct way {
  std::string name, explained, why_not;  // why_not: "" for one that fits
  ipu::cost_estimate cost;
  double seconds = 0;  // of planning

  double cycles() const { return double(cost.with_sync()); }
};

struct all_ways {
  std::string title;
  double flops;  // of non-zeros
  ipu::target on;
  std::vector<way> ways;    // to be shown
  double dense_cycles = 0;  // 0: the dense product does not fit

  double speed_up(way const& of) const { return of.why_not.empty() ? dense_cycles / of.cycles() : 0; }
};

all_ways plan_all(settings const& s) {
  const sparse_product p = asked_product(s);
  const ipu::precision of = asked_type(s);
  all_ways all{message("W ", p.shape.m, " x ", p.shape.k, ", ", p.stored.blocks(), " blocks of ", s.block,
                       " (density ", p.stored.density(), "), X ", p.shape.k, " x ", p.shape.n,
                       p.shape.groups > 1 ? message(", ", p.shape.groups, " groups") : std::string(), ", ",
                       ipu::name_of(of)),
               2 * double(p.stored.blocks()) * s.block * s.block * double(p.shape.n) * double(p.shape.groups),
               asked_target(s),
               {}};
  const auto planned = [&](char const* name, auto&& make) {
    way w;
    w.name = name;
    const auto begin = std::chrono::steady_clock::now();
    try {
      std::tie(w.explained, w.cost) = make();
    } catch (option_error const& none) {
      w.why_not = none.what();
    }
    w.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return w;
  };
  const auto is_shown = [&](char const* name) { return !s.one_mode || s.mode == name; };
  ipu::target const& on = all.on;
  const way dense = planned("dense", [&] {
    const auto plan = ipu::plan_dense(on, p.shape, of, {of});
    return std::pair(plan.explain(), plan.cost);
  });
  if (dense.why_not.empty()) all.dense_cycles = dense.cycles();
  if (is_shown("dense")) all.ways.push_back(dense);
  // Options are of the mode that is asked for; the other one is planned as it is by default.
  const ipu::option_flags flags = asked_options(s);
  const auto fixed = s.mode == "static" ? ipu::static_options::from(flags) : ipu::static_options{};
  const auto moving = s.mode == "dynamic" ? ipu::dynamic_options::from(flags) : ipu::dynamic_options{};
  if (is_shown("static") && (p.shape.groups == 1 || s.one_mode))
    all.ways.push_back(planned("static", [&] {
      const auto plan = ipu::plan_static(on, p.shape, p.stored, s.block, of, fixed);
      return std::pair(plan.explain(), plan.cost);
    }));
  if (is_shown("dynamic"))
    all.ways.push_back(planned("dynamic", [&] {
      const auto plan = ipu::plan_dynamic(on, p.shape, p.stored.blocks(), s.block, of, moving);
      return std::pair(plan.explain(), ipu::cost_of(on, plan, p.stored));
    }));
  return all;
}

void print(all_ways const& all) {
  using ipu::detail::short_number, ipu::detail::short_bytes;
  std::printf("%s, on %s\n", all.title.c_str(), all.on.name.c_str());
  for (way const& w : all.ways) {
    std::printf("\n%s: %s\n", w.name.c_str(), (w.explained + w.why_not).c_str());
    if (!w.why_not.empty()) continue;
    std::printf("  %s cycles, %s of non-zeros", short_number(w.cycles()).c_str(),
                short_number(all.flops / all.on.seconds(w.cycles()), "FLOP/s").c_str());
    if (const double up = all.speed_up(w); up > 0 && w.name != "dense") std::printf(", %.2f times dense", up);
    std::printf("  (planned in %.3f s)\n", w.seconds);
    for (auto const& p : w.cost.phases)
      std::printf("    %-32s %-9s %12s cycles  %6s\n", p.name, ipu::name_of(p.kind),
                  short_number(double(p.cycles)).c_str(),
                  ipu::detail::percent(double(p.cycles), w.cycles()).c_str());
    std::printf("    %-32s %-9s %12s cycles\n    temporaries %s of a tile, always live %s\n", "all", "",
                short_number(w.cycles()).c_str(), short_bytes(double(w.cost.temporary_bytes)).c_str(),
                short_bytes(double(w.cost.always_live_bytes)).c_str());
  }
}

io::json to_json(all_ways const& all) {
  io::json document;
  document["product"] = all.title, document["machine"] = all.on.name;
  document["flops_of_non_zeros"] = all.flops;
  io::json::array ways;
  for (way const& w : all.ways) {
    io::json one;
    one["name"] = w.name;
    if (!w.why_not.empty()) {
      one["why_not"] = w.why_not;
      ways.push_back(std::move(one));
      continue;
    }
    one["plan"] = w.explained, one["cycles"] = w.cost.with_sync();
    if (all.speed_up(w) > 0) one["times_dense"] = all.speed_up(w);
    one["temporary_bytes"] = w.cost.temporary_bytes, one["always_live_bytes"] = w.cost.always_live_bytes;
    io::json::array phases;
    for (auto const& p : w.cost.phases) {
      io::json phase;
      phase["name"] = p.name, phase["kind"] = ipu::name_of(p.kind), phase["cycles"] = p.cycles;
      phases.push_back(std::move(phase));
    }
    one["phases"] = std::move(phases);
    ways.push_back(std::move(one));
  }
  document["products"] = std::move(ways);
  return document;
}

std::string to_csv(all_ways const& all) {
  std::string csv =
      "mode,cycles,compute_cycles,exchange_cycles,sync_cycles,times_dense,temporary_bytes,always_live_bytes,"
      "note\n";
  for (way const& w : all.ways) {
    std::string why = w.why_not;
    std::replace(why.begin(), why.end(), ',', ';');
    csv +=
        message(w.name, ",", w.cost.with_sync(), ",", w.cost.cycles(ipu::activity::compute), ",",
                w.cost.cycles(ipu::activity::exchange), ",", w.cost.cycles(ipu::activity::sync), ",",
                all.speed_up(w), ",", w.cost.temporary_bytes, ",", w.cost.always_live_bytes, ",", why, "\n");
  }
  return csv;
}

std::string to_page(all_ways const& all) {
  using namespace ipu::detail;
  std::string page = page_begin(message("A product planned for ", escaped(all.on.name)));
  page += "<p>" + escaped(all.title) + "</p>\n<div class=\"cards\">";
  for (way const& w : all.ways)
    page += w.why_not.empty() ? card(short_number(w.cycles()) + " cycles",
                                     w.name + (w.name != "dense" && all.speed_up(w) > 0
                                                   ? ": " + times(all.speed_up(w), 1) + " times dense"
                                                   : std::string()))
                              : card("–", w.name + ": does not fit");
  page += "</div>\n";
  for (way const& w : all.ways) {
    page += "<h2>" + w.name + "</h2>\n<p class=\"note\">" + escaped(w.explained + w.why_not) + "</p>\n";
    if (!w.why_not.empty()) continue;
    page += shares_of_activities([&](ipu::activity a) { return double(w.cost.cycles(a)); });
    page += "<table><thead><tr><th>phase</th><th>cycles</th><th>share</th></tr></thead><tbody>\n";
    for (auto const& p : w.cost.phases)
      page += message("<tr><td>", colour_of(p.kind), p.name, "</td><td>", short_number(double(p.cycles)),
                      "</td><td>", percent(double(p.cycles), w.cycles()), "</td></tr>\n");
    page += "</tbody></table>\n";
  }
  return page + "</main></body></html>\n";
}

}  // namespace

int plan_product(settings const& s) {
  const all_ways all = plan_all(s);
  print(all);
  const auto write = [](std::string const& path, auto&& make) {
    if (path.empty()) return;
    io::write_atomically(path, make());
    std::printf("\n"), print_written(path);
  };
  write(s.json, [&] { return io::to_text(to_json(all), 1) + "\n"; });
  write(s.csv, [&] { return to_csv(all); });
  write(s.html, [&] { return to_page(all); });
  return 0;
}

}  // namespace ipu_program
