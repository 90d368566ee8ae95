// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/ipu/popsparse/static_plan.hpp>
#include <tessera/ipu/profile.hpp>
#include <tessera/ipu/report/report.hpp>
#include <tessera/tensor/pattern.hpp>

// The report as one HTML page without anything from elsewhere: pictures are SVG, colours follow the reader's
// light or dark setting.

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

namespace detail {

std::string escaped(std::string_view text);
/// The begin of a page, to its headline.
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
/// A coordinate with one digit behind the point.
std::string at(double x);

/// A square for each tile, in columns of pairs, darker for more, and the scale from 0 to the greatest.
std::string heat_map(std::vector<double> const& of_tile, std::string const& title,
                     std::string (*show)(double));

/// A step in a picture of time.
struct drawn_step {
  step_record const* step;
  double x, width;  // pixels; a step is as wide as it is long, but two pixels at least
  bool drawn;       // of many steps the longest are; the others leave their time empty
};
std::vector<drawn_step> drawn_steps(profile const& p);
/// The names of steps that are wide enough to be seen, the longest first, where there is room.
std::string names_above(std::vector<drawn_step> steps, double width);
/// Quarters of the time, each below its place in its step.
std::string times_below(std::vector<drawn_step> const& steps, profile const& p, double y);
/// Time from left to right, tiles from top to bottom: what each did in each step, and pale the time until the
/// slowest was done.
std::string step_trace(profile const& p);

std::string liveness_curve(profile const& p);

}  // namespace detail

/// A picture of a pattern and of the bands and tiles that a static plan cuts it into; "" for a grid without
/// blocks.
std::string picture_of_partition(static_plan const& plan, pattern const& stored);

/// The report as an HTML page.
///   pictures   further figures, such as picture_of_partition
std::string to_page(profile const& p, std::string const& pictures = {});

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

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

TESSERA_BODY std::string at(double x) {
  const std::int64_t tenths = std::lround(x * 10);
  std::string text = std::to_string(tenths / 10);
  if (tenths % 10 != 0) text += '.' + std::to_string(std::abs(tenths % 10));
  return text;
}

TESSERA_BODY std::string heat_map(std::vector<double> const& of_tile, std::string const& title,
                                  std::string (*show)(double)) {
  const double most = of_tile.empty() ? 0 : *std::max_element(of_tile.begin(), of_tile.end());
  if (most <= 0) return {};
  const auto columns = std::size_t(std::max(1.0, std::ceil(std::sqrt(double(of_tile.size()) * 2.2))));
  const std::size_t rows = (of_tile.size() + columns - 1) / columns;
  const double side = std::min(720.0 / double(columns), 60.0);
  std::string svg = message("<figure><figcaption>", title, "</figcaption><svg viewBox=\"0 0 720 ",
                            at(double(rows) * side + 1), "\" role=\"img\">");
  for (std::size_t t = 0; t < of_tile.size(); ++t) {
    const double share = std::clamp(of_tile[t] / most, 0.0, 1.0);
    svg += message("<rect class=\"heat\" x=\"", at(double(t % columns) * side), "\" y=\"",
                   at(double(t / columns) * side), "\" width=\"", at(side * 0.92), "\" height=\"",
                   at(side * 0.92), "\" style=\"opacity:", fixed_text(0.1 + 0.9 * share, 2),
                   "\"><title>tile ", t, ": ", show(of_tile[t]), "</title></rect>");
  }
  return svg + message("</svg><div class=\"scale\">0<i></i>", show(most), "</div></figure>\n");
}

TESSERA_BODY std::vector<drawn_step> drawn_steps(profile const& p) {
  constexpr std::size_t most = 400;
  std::vector<std::int64_t> lengths;
  for (auto const& s : p.steps) lengths.push_back(s.cycles);
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  const std::int64_t least = lengths.size() > most ? lengths[most] : 0;
  std::vector<drawn_step> all;
  double x = 0;
  for (auto const& s : p.steps) {
    const bool drawn = s.cycles > 0 && s.cycles >= least;
    const double share = double(s.cycles) / double(p.cycles()) * 720,
                 width = drawn ? std::max(share, 2.0) : share;
    all.push_back({&s, x, width, drawn});
    x += width;
  }
  return all;
}

TESSERA_BODY std::string names_above(std::vector<drawn_step> steps, double width) {
  std::sort(steps.begin(), steps.end(), [](drawn_step const& a, drawn_step const& b) {
    return a.width != b.width ? a.width > b.width : a.x < b.x;
  });
  std::vector<std::pair<double, double>> taken;
  std::string svg;
  for (auto const& s : steps) {
    const double end = s.x + 6.5 * double(s.step->name.size()) + 8;
    if (s.width < 10 || end > width) continue;
    if (std::any_of(taken.begin(), taken.end(),
                    [&](auto const& t) { return s.x < t.second && t.first < end; }))
      continue;
    taken.emplace_back(s.x, end);
    svg += message("<text x=\"", at(s.x), "\" y=\"11\">", escaped(s.step->name), "</text>");
  }
  return svg;
}

TESSERA_BODY std::string times_below(std::vector<drawn_step> const& steps, profile const& p, double y) {
  const double all = double(p.cycles());
  constexpr std::array anchors{"start", "middle", "middle", "middle", "end"};
  double begin = 0;
  std::size_t quarter = 0;
  std::string svg;
  for (auto const& s : steps) {
    const double cycles = double(s.step->cycles);
    for (; cycles > 0 && quarter <= 4 && all * double(quarter) / 4 <= begin + cycles; ++quarter)
      svg += message("<text x=\"", at(s.x + (all * double(quarter) / 4 - begin) / cycles * s.width),
                     "\" y=\"", at(y), "\" text-anchor=\"", anchors[quarter], "\">",
                     short_time(p.on.seconds(all * double(quarter) / 4)), "</text>");
    begin += cycles;
  }
  return svg;
}

TESSERA_BODY std::string step_trace(profile const& p) {
  constexpr std::size_t most_rows = 46;
  if (p.cycles() <= 0 || p.on.tiles < 1) return {};
  const auto tiles = std::size_t(p.on.tiles);
  const std::size_t rows = std::min(most_rows, tiles);
  const double top = 16, row_height = rows > 8 ? 5 : 22, height = double(rows) * row_height;
  const std::vector<drawn_step> steps = drawn_steps(p);
  const double width = steps.back().x + steps.back().width;
  std::string svg =
      message("<div class=\"wide\"><svg class=\"trace\" style=\"min-width:", at(width), "px\" viewBox=\"0 0 ",
              at(width), " ", at(top + height + 18), "\" role=\"img\">", names_above(steps, width));
  for (auto const& [step, x, step_width, drawn] : steps) {
    if (!drawn) continue;
    auto const& by_tile = step->by_tile;
    const double w = step_width - 0.5;  // half a pixel between steps
    svg +=
        message("<g class=\"", name_of(step->kind), "\"><title>", escaped(step->name), ", ",
                name_of(step->kind), ": ", short_number(double(step->cycles)),
                p.on.measured ? " ns" : " cycles", "</title><path", by_tile.empty() ? "" : " class=\"pale\"",
                " d=\"M", at(x), " ", at(top), "h", at(w), "v", at(height), "H", at(x), "z\"/><path d=\"");
    for (std::size_t r = 0; r < rows; ++r) {
      const std::size_t tile = r * tiles / rows;
      const double part = tile < by_tile.size() ? w * double(by_tile[tile]) / double(step->cycles) : 0;
      if (part >= 0.05)
        svg += message("M", at(x), " ", at(top + double(r) * row_height), "h", at(part), "v",
                       at(row_height - 1), "H", at(x), "z");
    }
    svg += "\"/></g>";
  }
  return svg + times_below(steps, p, top + height + 14) + "</svg></div>";
}

TESSERA_BODY std::string liveness_curve(profile const& p) {
  std::int64_t most = 0;
  for (auto const& l : p.liveness) most = std::max(most, l.all_tiles);
  if (most == 0) return {};
  const double height = 150;
  std::int64_t always = 0;
  for (std::size_t t = 0; t < p.memory.size(); ++t) always += p.always_live(t);
  const double top = double(std::max(most, always)) * 1.08;
  std::string path = message("M0 ", at(height));
  const double each = 720.0 / double(p.liveness.size());
  for (std::size_t i = 0; i < p.liveness.size(); ++i) {
    const double y = height - double(p.liveness[i].all_tiles) / top * height;
    path += message("L", at(double(i) * each), " ", at(y), "L", at(double(i + 1) * each), " ", at(y));
  }
  path += message("L720 ", at(height), "Z");
  return message("<figure><figcaption>Memory that is live, of all tiles together, step by step: at most ",
                 short_bytes(double(most)),
                 "</figcaption><svg viewBox=\"0 0 720 152\" role=\"img\"><path class=\"live\" d=\"", path,
                 "\"/></svg></figure>\n");
}

}  // namespace detail

TESSERA_BODY std::string picture_of_partition(static_plan const& plan, pattern const& stored) {
  using detail::at;
  if (stored.blocks() == 0) return {};
  const double side = 480, across = side / stored.block_cols(), down = side / stored.block_rows();
  std::vector<int> tile_of(std::size_t(stored.blocks()), 0);
  for (auto const& s : plan.shares)
    if (s.n_first == 0)
      for (std::int64_t i = s.first; i < s.last; ++i)
        tile_of[std::size_t(plan.order[std::size_t(i)])] = s.tile;
  // Larger patterns are drawn in cells, of which each shows one of its blocks.
  const int most = 160, cell_rows = std::min(stored.block_rows(), most),
            cell_cols = std::min(stored.block_cols(), most);
  std::vector<int> shown(std::size_t(cell_rows) * std::size_t(cell_cols), -1);
  stored.for_each([&](int i, int j, std::int64_t slot) {
    const auto cell =
        std::size_t(std::int64_t(i) * cell_rows / stored.block_rows()) * std::size_t(cell_cols) +
        std::size_t(std::int64_t(j) * cell_cols / stored.block_cols());
    shown[cell] = tile_of[std::size_t(slot)];
  });
  std::string svg = message(
      "<figure><figcaption>The pattern: ", plan.bands(), " bands of columns, a colour for each tile's blocks",
      plan.n_parts > 1 ? message(" of the first of ", plan.n_parts, " parts of n") : std::string(),
      "</figcaption><svg class=\"square\" viewBox=\"0 0 480 480\" role=\"img\">");
  const double w = side / cell_cols, h = side / cell_rows;
  for (int i = 0; i < cell_rows; ++i)
    for (int j = 0; j < cell_cols; ++j)
      if (const int tile = shown[std::size_t(i) * std::size_t(cell_cols) + std::size_t(j)]; tile >= 0)
        svg += message("<rect x=\"", at(j * w), "\" y=\"", at(i * h), "\" width=\"", at(w * 0.94),
                       "\" height=\"", at(h * 0.94), "\" fill=\"hsl(", tile * 137 % 360, " 60% 55%)\"/>");
  for (std::size_t b = 1; b + 1 < plan.band_begin.size(); ++b)
    svg += message("<path class=\"band\" d=\"M", at(plan.band_begin[b] * across), " 0V",
                   at(stored.block_rows() * down), "\"/>");
  return svg + "</svg></figure>\n";
}

TESSERA_BODY std::string to_page(profile const& p, std::string const& pictures) {
  using namespace detail;
  const double all = double(std::max<std::int64_t>(p.cycles(), 1));
  const std::string title = message(p.name.empty() ? "A run" : escaped(p.name), " on ", escaped(p.on.name));
  std::string page = page_begin(title);
  for (auto const& r : p.remarks) page += "<p class=\"remark\">" + escaped(r) + "</p>\n";
  page += "<div class=\"cards\">";
  page += card(short_time(p.seconds()), p.on.measured ? "time" : short_number(all) + " cycles");
  for (comparison const& c : p.compared)
    page += card(times(double(c.cycles), all) + " times",
                 "as fast as " + c.name + ", " + short_number(double(c.cycles)) + " cycles");
  if (p.multiplies() > 0)
    page += card(short_number(p.flops_per_second(), "FLOP/s"),
                 p.on.measured ? "multiply-adds twice"
                               : percent(p.flops_per_second(), p.on.peak_flops(precision::half)) +
                                     " of the half-precision peak");
  page += card(percent(p.tile_balance(), 1), p.on.measured ? "balance of threads" : "balance of tiles");
  page += card(std::to_string(p.active_tiles()),
               message("of ", p.on.tiles, p.on.measured ? " threads were active" : " tiles were active"));
  if (p.exchanged_bytes() > 0)
    page += card(short_bytes(double(p.exchanged_bytes())), p.on.measured ? "touched" : "exchanged");
  if (!p.memory.empty())
    page += card(percent(double(p.peak(p.fullest_tile())), double(p.on.bytes_per_tile)),
                 message("of the memory of tile ", p.fullest_tile(), ", the fullest"));
  page += "</div>\n<h2>Where the time went</h2>";
  page += shares_of_activities([&](activity a) { return double(p.cycles(a)); });
  page += "<figure><figcaption>Time from left to right, ";
  page += p.on.measured ? "threads" : "tiles";
  page +=
      " from top to bottom. Pale: waiting for the slowest. Short steps are drawn two pixels "
      "wide</figcaption>" +
      step_trace(p) +
      "</figure>\n<div "
      "class=\"wide\"><table><thead><tr><th>step</th><th>cycles</th><th>share</th><th>times</"
      "th><th>bytes</th><th>FLOP a cycle</th></tr></thead><tbody>\n";
  bool any_estimated = false;
  std::size_t listed = 0;
  for (auto const& s : p.by_name()) {
    if (listed++ == 40) break;
    const bool marked = s.estimated && s.kind == activity::compute;
    any_estimated |= marked;
    page += message(
        "<tr><td>", colour_of(s.kind), escaped(s.name), marked ? " *" : "", "</td><td>",
        short_number(double(s.cycles)), "</td><td>", percent(double(s.cycles), all), "</td><td>", s.times,
        "</td><td>", s.bytes > 0 ? short_bytes(double(s.bytes)) : std::string(), "</td><td>",
        s.multiplies > 0 ? short_number(2 * s.multiplies / double(std::max<std::int64_t>(s.cycles, 1)))
                         : std::string(),
        "</td></tr>\n");
  }
  page += "</tbody></table></div>\n";
  if (any_estimated)
    page += "<p class=\"note\">* charged by counted instructions: no formula is published</p>\n";
  std::vector<double> active, held;
  for (std::int64_t c : p.active_cycles()) active.push_back(double(c));
  if (!active.empty() && !p.on.measured) {
    page += "<h2>Tiles</h2>\n" + heat_map(active, "Cycles in which each tile computed",
                                          [](double c) { return short_number(c) + " cycles"; });
  }
  if (!p.memory.empty()) {
    for (std::size_t t = 0; t < p.memory.size(); ++t) held.push_back(double(p.peak(t)));
    page += "<h2>Memory</h2>\n" +
            heat_map(held, "Peak of each tile, which has " + short_bytes(double(p.on.bytes_per_tile)),
                     [](double b) { return short_bytes(b); });
    page +=
        "<div class=\"wide\"><table><thead><tr><th>kind</th><th>all tiles</th><th>the "
        "fullest</th><th>live</th></tr></thead><tbody>";
    for (std::size_t k = 0; k < storage_kinds; ++k)
      if (p.memory_of(storage(k)) > 0)
        page += message("<tr><td>", name_of(storage(k)), "</td><td>",
                        short_bytes(double(p.memory_of(storage(k)))), "</td><td>",
                        short_bytes(double(p.memory[p.fullest_tile()][k])), "</td><td>",
                        is_always_live(storage(k)) ? "always" : "in some steps", "</td></tr>");
    page += "</tbody></table></div>\n" + liveness_curve(p);
  }
  if (!pictures.empty()) page += "<h2>Partition</h2>\n" + pictures;
  return page + "</main></body></html>\n";
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
