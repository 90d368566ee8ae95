// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/printable.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/train/sparsity/watching/model_patterns.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The picture of all patterns of a model, as SVG of less than 200 kB: a square for each stored block or, in
/// models of more than 16 000 stored blocks, for some of them together, darker where more are stored. Blocks
/// that `before` does not store are orange (as in the frames of Graphcore's dynamic sparsity examples). A
/// browser shows it.
///   before   patterns of an earlier moment; none: no block counts as new
///   Throws shape_error if `before` is of another model.
std::string to_svg(model_patterns const& now, model_patterns const& before = {},
                   std::string const& title = {});

#ifdef TESSERA_BODY

namespace detail {

/// Draws the patterns of a model. The unit of a grid is a cell of `side` x `side` blocks. A cell has one of
/// `ages` colours, from grey to orange by the share of new blocks among its own, and one of `shades`, which
/// follow the root of its density, so that a tenth can still be seen. Cells of one colour and shade are one
/// path of strokes, each as wide as the cells that it passes.
class connectivity_drawing {
 public:
  static constexpr int width = 960;                               // of the picture, in pixels
  static constexpr std::int64_t most_cells = 16000;               // drawn: about 10 bytes each
  static constexpr std::int64_t most_places = width * width / 4;  // of cells: at least about a pixel each

  connectivity_drawing(model_patterns const& now, model_patterns const& before) {
    if (!before.empty()) check_same_model("to_svg", now, before);
    choose_side(now);
    for (std::size_t m = 0; m < now.size(); ++m)
      place(now[m],
            before.empty() ? pattern_without_blocks(now[m].stored) : now[m].stored - before[m].stored);
  }

  std::string svg(std::string const& title) const {
    const int height = y_ + shelf_ + 8;
    return message("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
                   "\" viewBox=\"0 0 ", width, " ", height,
                   "\" font-family=\"sans-serif\" font-size=\"10\" fill=\"#444\">\n<rect width=\"100%\" "
                   "height=\"100%\" fill=\"#fff\"/>\n<text x=\"8\" y=\"18\" font-size=\"14\">",
                   escaped(title), side_ > 1 ? message(" (a cell is ", side_, " x ", side_, " blocks)") : "",
                   "</text>\n", drawn_, "</svg>\n");
  }

 private:
  static constexpr int ages = 4, shades = 16;

  static pattern pattern_without_blocks(pattern const& like) {
    return pattern::from_right_rows(like.block_rows(), like.block_cols(),
                                    std::vector<std::int32_t>(std::size_t(like.block_rows()) + 1), {});
  }
  static std::string escaped(std::string const& text) {
    std::string all;
    for (const char c : io::printable(text))  // XML has no control characters
      all += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
    return all;
  }
  static std::string colour(int age, int shade) {
    constexpr std::array grey{50, 54, 60}, orange{224, 100, 20};
    std::string text = "#";
    for (std::size_t c = 0; c < 3; ++c) {
      const int full = grey[c] + (orange[c] - grey[c]) * age / (ages - 1),
                value = 255 + (full - 255) * (shade + 1) / shades;
      for (const int digit : {value / 16, value % 16}) text += "0123456789abcdef"[digit];
    }
    return text;
  }
  int cells(int blocks) const { return ceil_div(blocks, side_); }

  /// The smallest cells of which not too many are drawn, and the pixels of each.
  void choose_side(model_patterns const& now) {
    std::int64_t places = 0;
    int largest = 1, widest = 1;
    for (named_pattern const& matrix : now)
      largest = std::max({largest, matrix.stored.block_rows(), matrix.stored.block_cols()});
    for (side_ = 1;; ++side_) {
      std::int64_t drawn = places = 0;
      for (named_pattern const& matrix : now) {
        const std::int64_t here =
            std::int64_t{cells(matrix.stored.block_rows())} * cells(matrix.stored.block_cols());
        places += here;
        drawn += std::min(here, matrix.stored.blocks());
        widest = std::max(widest, matrix.stored.block_cols());
      }
      if ((drawn <= most_cells && places <= most_places) || side_ >= largest) break;
    }
    const double fills =
        std::sqrt(0.5 * width * width / static_cast<double>(std::max<std::int64_t>(1, places)));
    tenths_ = std::clamp(static_cast<int>(10 * std::min(fills, (width - 16.0) / cells(widest))), 1, 80);
  }

  /// Puts the next matrix beside the last one, or below.
  void place(named_pattern const& matrix, pattern const& fresh) {
    pattern const& stored = matrix.stored;
    const int rows = cells(stored.block_rows()), cols = cells(stored.block_cols()),
              name_width = 6 * static_cast<int>(matrix.name.size()),
              its_width = std::max(ceil_div(cols * tenths_, 10), name_width) + 12,
              its_height = ceil_div(rows * tenths_, 10) + 24;
    if (x_ > 8 && x_ + its_width > width) {
      x_ = 8;
      y_ += shelf_;
      shelf_ = 0;
    }
    const std::string scale = message(tenths_ / 10, ".", tenths_ % 10);
    drawn_ += message("<text x=\"", x_, "\" y=\"", y_ + 12, "\">", escaped(matrix.name),
                      "</text>\n<g transform=\"translate(", x_, " ", y_ + 16, ") scale(", scale,
                      ")\" fill=\"none\"><title>", escaped(matrix.name), ": ", stored.blocks(), " of ",
                      stored.block_rows(), " x ", stored.block_cols(), " blocks, ", fresh.blocks(),
                      " of them new</title><rect width=\"", cols, "\" height=\"", rows,
                      "\" fill=\"#f4f4f4\"/><g transform=\"translate(0 .5)\">");
    draw(stored, fresh, rows, cols);
    drawn_ += "</g></g>\n";
    x_ += its_width;
    shelf_ = std::max(shelf_, its_height);
  }

  void draw(pattern const& stored, pattern const& fresh, int rows, int cols) {
    struct pen {
      std::string path;
      int x = 0, y = 0;  // where the last stroke ended
    };
    std::vector<pen> pens(ages * shades);
    std::vector<std::int64_t> all(static_cast<std::size_t>(cols)), young(all);
    for (int row = 0; row < rows; ++row) {
      std::fill(all.begin(), all.end(), 0);
      std::fill(young.begin(), young.end(), 0);
      const int last =
          static_cast<int>(std::min<std::int64_t>(stored.block_rows(), (std::int64_t{row} + 1) * side_));
      for (int i = row * side_; i < last; ++i) {
        for (const int j : stored.row(i)) ++all[static_cast<std::size_t>(j / side_)];
        for (const int j : fresh.row(i)) ++young[static_cast<std::size_t>(j / side_)];
      }
      const auto pen_of = [&](int col) {  // -1 for an empty cell
        const auto n = all[static_cast<std::size_t>(col)], its_young = young[static_cast<std::size_t>(col)];
        if (n == 0) return -1;
        const std::int64_t of =
            std::int64_t{last - row * side_} *
            std::min<std::int64_t>(side_, stored.block_cols() - std::int64_t{col} * side_);
        const double share = std::sqrt(static_cast<double>(n) / static_cast<double>(of));
        const int shade = std::clamp(static_cast<int>(std::ceil(shades * share)) - 1, 0, shades - 1);
        const int age =
            its_young == 0 ? 0 : 1 + std::min(ages - 2, static_cast<int>((ages - 1) * its_young / n));
        return age * shades + shade;
      };
      for (int col = 0; col < cols;) {
        const int chosen = pen_of(col), first = col;
        do ++col;
        while (col < cols && pen_of(col) == chosen);
        if (chosen < 0) continue;
        pen& its = pens[static_cast<std::size_t>(chosen)];
        its.path += message("m", first - its.x, " ", row - its.y, "h", col - first);
        its.x = col;
        its.y = row;
      }
    }
    for (int p = 0; p < ages * shades; ++p)
      if (std::string const& path = pens[static_cast<std::size_t>(p)].path; !path.empty())
        drawn_ += message("<path stroke=\"", colour(p / shades, p % shades), "\" d=\"", path, "\"/>");
  }

  int side_ = 1, tenths_ = 10;  // blocks along a cell, and its tenths of a pixel
  int x_ = 8, y_ = 26, shelf_ = 0;
  std::string drawn_;
};

}  // namespace detail

TESSERA_BODY std::string to_svg(model_patterns const& now, model_patterns const& before,
                                std::string const& title) {
  return detail::connectivity_drawing(now, before).svg(title);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
