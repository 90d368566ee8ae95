// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/decimal.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/popsparse/static_plan.hpp>
#include <tessera/ipu/profile.hpp>
#include <tessera/ipu/report/report.hpp>
#include <tessera/tensor/pattern.hpp>

// Figures of a report, as SVG in HTML.

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

namespace detail {

std::string escaped(std::string_view text);
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
/// Time from left to right, tiles from top to bottom: in each step the time that each tile took, and pale the
/// time until the slowest was done.
std::string step_trace(profile const& p);

std::string liveness_curve(profile const& p);

}  // namespace detail

/// A picture of a pattern and of the bands and tiles that a static plan cuts it into; "" for a grid without
/// blocks.
std::string picture_of_partition(static_plan const& plan, pattern const& stored);

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

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
