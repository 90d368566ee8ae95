// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/profile.hpp>
#include <tessera/ipu/report/pictures.hpp>
#include <tessera/ipu/report/report.hpp>

// The report as one HTML page without anything from elsewhere: pictures are SVG, colours follow the reader's
// light or dark setting.

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

namespace detail {

/// A page up to its headline.
std::string page_begin(std::string const& title);
std::string card(std::string const& value, std::string const& what);
std::string colour_of(activity a);
/// A bar of the shares of the activities, and its key.
///   cycles_of   by activity
template <class CyclesOf> std::string shares_of_activities(CyclesOf&& cycles_of) {
  double all = 0;
  std::string bars = "<div class=\"bars\">", key = "</div><p class=\"key note\">";
  for (activity a : {activity::compute, activity::exchange, activity::sync}) all += cycles_of(a);
  for (activity a : {activity::compute, activity::exchange, activity::sync}) {
    if (cycles_of(a) <= 0) continue;
    bars += message("<span class=\"bar ", name_of(a), "\" style=\"width:", 100 * cycles_of(a) / all,
                    "%\"></span>");
    key += message("<span><i class=\"bar ", name_of(a), "\"></i>", name_of(a), " ",
                   percent(cycles_of(a), all), "</span> ");
  }
  return bars + key + "</p>\n";
}

}  // namespace detail

/// The report as an HTML page.
///   pictures   further figures, such as picture_of_partition
std::string to_page(profile const& p, std::string const& pictures = {});

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY std::string page_begin(std::string const& title) {
  return message(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>",
      title, R"(</title><style>
:root{--back:#fcfcfb;--ink:#1c1f24;--soft:#69707a;--line:#e2e4e8;--compute:#2f6fb2;--exchange:#e08a2e;--sync:#c5c9d0;--live:#6a8f5b}
@media(prefers-color-scheme:dark){:root{--back:#15171b;--ink:#e6e8ec;--soft:#98a0ab;--line:#2d3138;--compute:#6ea8e0;--exchange:#eda55a;--sync:#4a4f58;--live:#8db57c}}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.5 system-ui,sans-serif}main{max-width:60rem;margin:auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.5rem;margin:.2rem 0 1rem}h2{font-size:1.1rem;margin:2.2rem 0 .6rem}.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(10.5rem,1fr));gap:.6rem}
.cards div{border:1px solid var(--line);border-radius:.5rem;padding:.5rem .8rem}.cards b{display:block;font-size:1.2rem;white-space:nowrap}.cards span,figcaption,.note{color:var(--soft);font-size:.9rem}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}th,td{padding:.25rem .5rem;border-bottom:1px solid var(--line);text-align:right}
th,td{white-space:nowrap}th:first-child,td:first-child{text-align:left;white-space:normal;min-width:9rem}.wide{overflow-x:auto}figure{margin:1rem 0}svg{width:100%;height:auto;display:block}svg.square{max-width:34rem}
.compute,.bar.compute{fill:var(--compute);background:var(--compute)}.exchange,.bar.exchange{fill:var(--exchange);background:var(--exchange)}.sync,.bar.sync{fill:var(--sync);background:var(--sync)}
.heat{fill:var(--compute)}.live{fill:var(--live);opacity:.8}.band{stroke:var(--ink);stroke-width:1;opacity:.6}.pale{opacity:.2}.trace text{fill:var(--soft);font-size:11px}
.scale{display:flex;gap:.6rem;color:var(--soft);font-size:.8rem;margin-top:.3rem;align-items:center}.scale i{width:9rem;height:.7rem;border-radius:.2rem;background:linear-gradient(90deg,color-mix(in srgb,var(--compute) 10%,transparent),var(--compute))}
.bars{display:flex;height:1.1rem;border-radius:.3rem;overflow:hidden;margin:.6rem 0}.key span{white-space:nowrap}.key i{display:inline-block;width:.8rem;height:.8rem;border-radius:.2rem;margin:0 .3rem 0 .9rem;vertical-align:-1px}
.mark{display:inline-block;width:.6rem;height:.6rem;border-radius:.15rem;margin-right:.4rem}
@media(max-width:36rem){table{font-size:.78rem}th,td{padding:.25rem .2rem;white-space:normal}th:first-child,td:first-child{min-width:0;overflow-wrap:anywhere}td+td{white-space:nowrap}}
.remark{border-left:4px solid var(--exchange);padding:.3rem .8rem;margin:.6rem 0}</style></head><body><main>
<h1>)",
      title, "</h1>\n");
}

TESSERA_BODY std::string card(std::string const& value, std::string const& what) {
  return "<div><b>" + escaped(value) + "</b><span>" + escaped(what) + "</span></div>";
}

TESSERA_BODY std::string colour_of(activity a) {
  return message("<i class=\"bar mark ", name_of(a), "\"></i>");
}

/// The numbers that matter most.
TESSERA_BODY std::string cards(profile const& p) {
  const double all = double(std::max<std::int64_t>(p.cycles(), 1));
  std::string html = "<div class=\"cards\">";
  html += card(short_time(p.seconds()), p.on.measured ? "time" : short_number(all) + " cycles");
  for (comparison const& c : p.compared)
    html += card(times(double(c.cycles), all) + " times",
                 "as fast as " + c.name + ", " + short_number(double(c.cycles)) + " cycles");
  if (p.multiplies() > 0)
    html += card(short_number(p.flops_per_second(), "FLOP/s"),
                 p.on.measured ? "multiply-adds twice"
                               : percent(p.flops_per_second(), p.on.peak_flops(precision::half)) +
                                     " of the half-precision peak");
  html += card(percent(p.tile_balance(), 1), p.on.measured ? "balance of threads" : "balance of tiles");
  html += card(std::to_string(p.active_tiles()),
               message("of ", p.on.tiles, p.on.measured ? " threads were active" : " tiles were active"));
  if (p.exchanged_bytes() > 0)
    html += card(short_bytes(double(p.exchanged_bytes())), p.on.measured ? "touched" : "exchanged");
  if (!p.memory.empty())
    html += card(percent(double(p.peak(p.fullest_tile())), double(p.on.bytes_per_tile)),
                 message("of the memory of tile ", p.fullest_tile(), ", the fullest"));
  return html + "</div>\n";
}

/// A table of the 40 longest steps.
TESSERA_BODY std::string table_of_longest(profile const& p) {
  const double all = double(std::max<std::int64_t>(p.cycles(), 1));
  std::string html =
      "<div class=\"wide\"><table><thead><tr><th>step</th><th>cycles</th><th>share</th><th>times</th>"
      "<th>bytes</th><th>FLOP a cycle</th></tr></thead><tbody>\n";
  bool any_estimated = false;
  std::size_t listed = 0;
  for (auto const& s : p.by_name()) {
    if (listed++ == 40) break;
    const bool marked = s.estimated && s.kind == activity::compute;
    any_estimated |= marked;
    html += message(
        "<tr><td>", colour_of(s.kind), escaped(s.name), marked ? " *" : "", "</td><td>",
        short_number(double(s.cycles)), "</td><td>", percent(double(s.cycles), all), "</td><td>", s.times,
        "</td><td>", s.bytes > 0 ? short_bytes(double(s.bytes)) : std::string(), "</td><td>",
        s.multiplies > 0 ? short_number(2 * s.multiplies / double(std::max<std::int64_t>(s.cycles, 1)))
                         : std::string(),
        "</td></tr>\n");
  }
  html += "</tbody></table></div>\n";
  if (any_estimated)
    html += "<p class=\"note\">* charged by counted instructions: no formula is published</p>\n";
  return html;
}

/// The peak of each tile, and each kind of memory.
TESSERA_BODY std::string memory_of_tiles(profile const& p) {
  if (p.memory.empty()) return {};
  std::vector<double> held;
  for (std::size_t t = 0; t < p.memory.size(); ++t) held.push_back(double(p.peak(t)));
  std::string html =
      "<h2>Memory</h2>\n" +
      heat_map(held, "Peak of each tile, which has " + short_bytes(double(p.on.bytes_per_tile)),
               [](double b) { return short_bytes(b); });
  html +=
      "<div class=\"wide\"><table><thead><tr><th>kind</th><th>all tiles</th><th>the "
      "fullest</th><th>live</th></tr></thead><tbody>";
  for (std::size_t k = 0; k < storage_kinds; ++k)
    if (p.memory_of(storage(k)) > 0)
      html +=
          message("<tr><td>", name_of(storage(k)), "</td><td>", short_bytes(double(p.memory_of(storage(k)))),
                  "</td><td>", short_bytes(double(p.memory[p.fullest_tile()][k])), "</td><td>",
                  is_always_live(storage(k)) ? "always" : "in some steps", "</td></tr>");
  return html + "</tbody></table></div>\n" + liveness_curve(p);
}

}  // namespace detail

TESSERA_BODY std::string to_page(profile const& p, std::string const& pictures) {
  using namespace detail;
  std::string page =
      page_begin(message(p.name.empty() ? "A run" : escaped(p.name), " on ", escaped(p.on.name)));
  for (auto const& r : p.remarks) page += "<p class=\"remark\">" + escaped(r) + "</p>\n";
  page += cards(p) + "<h2>Where the time went</h2>";
  page += shares_of_activities([&](activity a) { return double(p.cycles(a)); });
  page += message("<figure><figcaption>Time from left to right, ", p.on.measured ? "threads" : "tiles",
                  " from top to bottom. Pale: waiting for the slowest. Short steps are drawn two pixels "
                  "wide</figcaption>",
                  step_trace(p), "</figure>\n", table_of_longest(p));
  std::vector<double> active;
  for (std::int64_t c : p.active_cycles()) active.push_back(double(c));
  if (!active.empty() && !p.on.measured)
    page += "<h2>Tiles</h2>\n" + heat_map(active, "Cycles in which each tile computed",
                                          [](double c) { return short_number(c) + " cycles"; });
  page += memory_of_tiles(p);
  if (!pictures.empty()) page += "<h2>Partition</h2>\n" + pictures;
  return page + "</main></body></html>\n";
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
