// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>
#include <tessera/ipu/popsparse/dense_plan.hpp>
#include <tessera/ipu/popsparse/dynamic_load.hpp>
#include <tessera/ipu/popsparse/dynamic_plan.hpp>
#include <tessera/ipu/popsparse/static_plan.hpp>
#include <tessera/ipu/report/report.hpp>
#include <tessera/tensor/pattern_sources.hpp>

#include "../common/progress.hpp"
#include "commands.hpp"
#include "products.hpp"

namespace ipu_program {

using namespace tessera;

namespace {

template <class Number>
std::vector<Number> read_list(char const* option, string_list const& all, char const* interval) {
  std::vector<Number> numbers;
  for (std::string const& one : all)
    if (const std::string wanted = programs::read_value_of(interval, one, numbers.emplace_back());
        !wanted.empty())
      programs::refuse(message("--", option), message("'", one, "' is not ", wanted));
  return numbers;
}

struct cell {
  int block;
  double density;
  std::int64_t size, n;
  double dense, sparse;  // cycles; 0: it does not fit
  std::string why;
  double speed_up() const { return sparse > 0 && dense > 0 ? dense / sparse : 0; }
};

/// Calls visit(cell) for every product that is asked for.
template <class Visit> void for_each_cell(settings const& s, Visit&& visit) {
  const ipu::target on = asked_target(s);
  const ipu::precision of = asked_type(s);
  const auto sizes = read_list<std::int64_t>("sizes", s.sizes, "[1, 65536]"),
             columns = read_list<std::int64_t>("columns", s.columns, "[1, 65536]"),
             blocks = read_list<std::int64_t>("blocks", s.blocks, "[1, 16]");
  const auto densities = read_list<double>("densities", s.densities, "(0, 1]");
  for (std::int64_t block : blocks) {
    ipu::detail::require_block("[--blocks] ", int(block));
    for (std::int64_t size : sizes)
      if (size % block != 0)
        throw option_error(message("[--sizes] ", size, " is no multiple of a block of ", block));
  }
  const bool dynamic = s.mode == "dynamic";
  const auto flags = asked_options(s);
  const auto static_flags = dynamic ? ipu::static_options{} : ipu::static_options::from(flags);
  const auto dynamic_flags = dynamic ? ipu::dynamic_options::from(flags) : ipu::dynamic_options{};
  for (std::int64_t side : blocks)
    for (double density : densities)
      for (std::int64_t size : sizes) {
        const auto block = int(side);
        const pattern stored = random_pattern(int(size / block), int(size / block), density, s.seed);
        for (std::int64_t n : columns) {
          cell c{block, density, size, n, 0, 0, ""};
          const ipu::product_shape shape{size, size, c.n};
          try {
            c.dense = double(ipu::plan_dense(on, shape, of, {of}).cost.with_sync());
            if (dynamic)
              c.sparse = double(
                  ipu::cost_of(on, ipu::plan_dynamic(on, shape, stored.blocks(), block, of, dynamic_flags),
                               stored)
                      .with_sync());
            else
              c.sparse =
                  double(ipu::plan_static(on, shape, stored, block, of, static_flags).cost.with_sync());
          } catch (option_error const& none) {
            c.why = none.what();
          }
          visit(c);
        }
      }
}

void show_progress(settings const& s, std::size_t done) {
  if (programs::style_of(stderr) != programs::progress_style::terminal) return;
  const std::size_t all = s.blocks.size() * s.densities.size() * s.sizes.size() * s.columns.size();
  std::fprintf(stderr, done < all ? "\r%zu of %zu products" : "\r%zu of %zu products\n", done, all);
}

/// Of all cells, in their order, the first of a block and a density.
std::size_t first_of(settings const& s, std::size_t block, std::size_t density) {
  return (block * s.densities.size() + density) * s.sizes.size() * s.columns.size();
}

/// The speed-ups of a block and a density, as a table: sizes by columns.
void print_panel(settings const& s, std::vector<cell> const& cells, std::size_t block, std::size_t density) {
  std::printf("\nblocks of %s, density %s\n  m = k \\ n", s.blocks[block].c_str(),
              s.densities[density].c_str());
  for (auto const& n : s.columns) std::printf("%8s", n.c_str());
  std::size_t i = first_of(s, block, density);
  for (auto const& size : s.sizes) {
    std::printf("\n%11s", size.c_str());
    for (std::size_t q = 0; q < s.columns.size(); ++q, ++i) {
      const double up = cells[i].speed_up();
      std::printf(up > 0 ? "%8.2f" : "       -", up);
    }
  }
  std::printf("\n");
}

/// The speed-ups as a picture: a square for each product.
std::string drawn_panel(settings const& s, std::vector<cell> const& cells, std::size_t block,
                        std::size_t density) {
  const std::size_t across = s.columns.size(), down = s.sizes.size();
  const double side = 28, left = 36, top = 20, width = left + double(across) * side,
               height = top + double(down) * side + 18;
  std::string svg = message("<svg viewBox=\"0 0 ", width, " ", height, "\" width=\"", width,
                            "\" role=\"img\">", "<text class=\"axis\" x=\"", left,
                            "\" y=\"14\">b = ", s.blocks[block], ", d = ", s.densities[density], "</text>");
  const auto square = [&](cell const& c, double x, double y) {
    const double up = c.speed_up(), strength = up > 0 ? std::clamp(std::log10(up), -1.0, 1.0) : 0;
    svg += message("<rect class=\"",
                   up <= 0        ? "none"
                   : strength > 0 ? "faster"
                                  : "slower",
                   "\" x=\"", x, "\" y=\"", y, "\" width=\"", side - 1, "\" height=\"", side - 1,
                   "\" style=\"opacity:", up > 0 ? 0.08 + 0.92 * std::abs(strength) : 0.5, "\"><title>",
                   c.size, " x ", c.size, " x ", c.n, ": ",
                   up > 0 ? message(up, " times dense") : std::string("does not fit"), "</title></rect>");
  };
  std::size_t i = first_of(s, block, density);
  for (std::size_t r = 0; r < down; ++r) {
    svg += message("<text class=\"axis\" text-anchor=\"end\" x=\"", left - 5, "\" y=\"",
                   top + (double(r) + 0.65) * side, "\">", s.sizes[r], "</text>");
    for (std::size_t q = 0; q < across; ++q, ++i) {
      square(cells[i], left + double(q) * side, top + double(r) * side);
      if (r + 1 == down)
        svg += message("<text class=\"axis\" text-anchor=\"middle\" x=\"", left + (double(q) + 0.5) * side,
                       "\" y=\"", top + double(down) * side + 13, "\">", s.columns[q], "</text>");
    }
  }
  return svg + "</svg>";
}

/// A page of pictures: a row for each block, which wraps where the page is narrow.
std::string map_page(settings const& s, std::vector<cell> const& cells) {
  std::string panels;
  for (std::size_t b = 0; b < s.blocks.size(); ++b) {
    panels += "<div class=\"row\">";
    for (std::size_t d = 0; d < s.densities.size(); ++d) panels += drawn_panel(s, cells, b, d);
    panels += "</div>";
  }
  return message(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>Speed-up over "
      "dense</title><style>:root{--back:#fcfcfb;--ink:#1c1f24;--faster:#2f6fb2;--slower:#c8552c}"
      "@media(prefers-color-scheme:dark){:root{--back:#15171b;--ink:#e6e8ec;--faster:#6ea8e0;--"
      "slower:#ee8a5e}}body{margin:0;background:var(--back);color:var(--ink);font:16px/1.5 "
      "system-ui,sans-serif}main{max-width:60rem;margin:auto;padding:1.5rem 1rem}"
      ".row{display:flex;flex-wrap:wrap;gap:.5rem;margin-bottom:.8rem}svg{max-width:100%;height:auto}"
      ".faster{fill:var(--faster)}.slower{fill:var(--slower)}.none{fill:"
      "none;stroke:var(--ink);stroke-dasharray:2 "
      "3}.axis{fill:var(--ink);font-size:12px}</style></head><body><main><h1>Speed-up of the ",
      s.mode, " product over dense</h1><p>", s.type, " on ", asked_target(s).name,
      ". Columns are n, rows m = k. Blue: faster than dense, up to 10 times; red: slower; dashed: "
      "does not fit.</p>",
      panels, "</main></body></html>\n");
}

}  // namespace

int sweep_products(settings const& s) {
  std::string csv = "mode,type,block,density,m,k,n,dense_cycles,sparse_cycles,speed_up,note\n";
  std::size_t done = 0;
  for_each_cell(s, [&](cell const& c) {
    std::string why = c.why;
    std::replace(why.begin(), why.end(), ',', ';');
    csv += message(s.mode, ",", s.type, ",", c.block, ",", c.density, ",", c.size, ",", c.size, ",", c.n, ",",
                   std::int64_t(c.dense), ",", std::int64_t(c.sparse), ",", c.speed_up(), ",", why, "\n");
    show_progress(s, ++done);
  });
  if (s.csv.empty())
    std::printf("%s", csv.c_str());
  else
    io::write_atomically(s.csv, csv), print_written(s.csv);
  return 0;
}

int map_products(settings const& s) {
  std::vector<cell> cells;
  for_each_cell(s, [&](cell const& c) { cells.push_back(c), show_progress(s, cells.size()); });
  std::printf("speed-up of the %s product over dense, %s, on %s (-: does not fit)\n", s.mode.c_str(),
              s.type.c_str(), asked_target(s).name.c_str());
  for (std::size_t b = 0; b < s.blocks.size(); ++b)
    for (std::size_t d = 0; d < s.densities.size(); ++d) print_panel(s, cells, b, d);
  if (s.html.empty()) return 0;
  io::write_atomically(s.html, map_page(s, cells));
  std::printf("\n"), print_written(s.html);
  return 0;
}

}  // namespace ipu_program
