// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/io/printable.hpp>

#include "../common/format.hpp"

namespace pretrain {

using namespace programs;

/// Points in order of x; a point that is not finite leaves a gap.
struct plot_curve {
  std::string name;
  std::vector<double> x, y;
};

/// A dashed horizontal line with its name beside it.
struct plot_level {
  std::string name;
  double y;
};

struct plot {
  std::string title, x_name, y_name;
  std::vector<plot_curve> curves;
  std::vector<plot_level> levels;
};

/// A stretch of numbers with ticks at multiples of 1, 2 or 5 times a power of ten.
struct plot_axis {
  double low = std::numeric_limits<double>::infinity(), high = -low, step = 1;

  void include(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  /// Chooses the ticks, at most `count` + 1; an axis without any extent gets one.
  void choose_ticks(int count) {
    if (!(low <= high)) low = 0, high = 1;
    if (low == high) low -= 0.5, high += 0.5;
    const double least = (high - low) / count, power = std::pow(10, std::floor(std::log10(least)));
    step = power * (least > 5 * power ? 10 : least > 2 * power ? 5 : least > power ? 2 : 1);
  }
  /// Moves both ends outwards to a tick.
  void round_ends() {
    low = std::floor(low / step) * step;
    high = std::ceil(high / step) * step;
  }
  std::vector<double> ticks() const {
    std::vector<double> all;
    for (double i = std::ceil(low / step - 1e-9); i <= std::floor(high / step + 1e-9); ++i)
      all.push_back(i * step + 0.0);  // never minus zero
    return all;
  }
  /// A tick in as few digits as tell all ticks apart.
  std::string name(double tick) const {
    if (std::max(-low, high) >= 10000) return (tick < 0 ? "-" : "") + quantity(std::abs(tick));
    return fixed(tick, std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9))));
  }
  double fraction(double value) const { return (value - low) / (high - low); }
};

/// Draws a plot as an SVG image. Lengths are in pixels, y downwards.
class plot_drawing {
 public:
  explicit plot_drawing(plot const& p) : right_(p.levels.empty() ? width - 24 : width - 128) {
    x_.include(0);
    for (plot_curve const& curve : p.curves) {
      for (const double value : curve.x) x_.include(value);
      for (const double value : curve.y) y_.include(value);
    }
    for (plot_level const& level : p.levels) y_.include(level.y);
    x_.choose_ticks(8);
    y_.choose_ticks(8);
    y_.round_ends();
    draw_frame(p);
    draw_levels(p.levels);
    draw_curves(p.curves);
  }

  std::string svg() const {
    const std::string size = fixed(width, 0) + "\" height=\"" + fixed(height, 0);
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + size + "\" viewBox=\"0 0 " +
           fixed(width, 0) + " " + fixed(height, 0) +
           "\" font-size=\"12\" fill=\"#555\" font-family=\"system-ui, 'Segoe UI', "
           "'DejaVu Sans', Helvetica, Arial, sans-serif\">\n<rect width=\"100%\" height=\"100%\" "
           "fill=\"#fff\"/>\n" +
           drawn_ + "</svg>\n";
  }

 private:
  static constexpr double width = 800, height = 480, left = 56, top = 80, bottom = 428;

  double across(double x) const { return left + (right_ - left) * x_.fraction(x); }
  double down(double y) const { return bottom - (bottom - top) * y_.fraction(y); }

  void draw_frame(plot const& p) {
    text(24, 30, p.title, "font-size=\"16\" font-weight=\"600\" fill=\"#222\"");
    text(24, top - 16, p.y_name);
    text((left + right_) / 2, bottom + 40, p.x_name, "text-anchor=\"middle\"");
    for (const double tick : y_.ticks()) {
      line(left, down(tick), right_, down(tick), "stroke=\"#e9e9e9\"");
      text(left - 8, down(tick) + 4, y_.name(tick), "text-anchor=\"end\"");
    }
    for (const double tick : x_.ticks()) {
      line(across(tick), bottom, across(tick), bottom + 5, "stroke=\"#999\"");
      text(across(tick), bottom + 20, x_.name(tick), "text-anchor=\"middle\"");
    }
    line(left, bottom, right_, bottom, "stroke=\"#999\"");
  }

  void draw_levels(std::vector<plot_level> levels) {
    std::sort(levels.begin(), levels.end(), [](auto const& a, auto const& b) { return a.y > b.y; });
    double name_at = 0;
    for (plot_level const& level : levels) {
      line(left, down(level.y), right_, down(level.y), "stroke=\"#9a9a9a\" stroke-dasharray=\"5 4\"");
      name_at = std::max(name_at + 14, down(level.y) + 4);  // crowded names move down
      text(right_ + 8, name_at, level.name + " " + fixed(level.y, 2), "fill=\"#777\"");
    }
  }

  /// The first curve on top, their names in a row above the frame.
  void draw_curves(std::vector<plot_curve> const& curves) {
    constexpr std::array colours{"#2f6db5", "#e0702a", "#2f9467", "#8a5bb0", "#b5413f", "#5f6b76"};
    double name_at = right_;
    for (std::size_t c = curves.size(); c-- > 0;) {
      plot_curve const& curve = curves[c];
      const std::string pen = std::string("stroke=\"") + colours[c % colours.size()] +
                              "\" stroke-width=\"2\" stroke-linejoin=\"round\" stroke-linecap=\"round\"";
      std::string path;
      bool gap = true;
      for (std::size_t i = 0; i < std::min(curve.x.size(), curve.y.size()); ++i) {
        const bool point = std::isfinite(curve.x[i]) && std::isfinite(curve.y[i]);
        if (point)
          path += (gap ? "M" : "L") + fixed(across(curve.x[i]), 1) + " " + fixed(down(curve.y[i]), 1);
        gap = !point;
      }
      drawn_ += "<path fill=\"none\" " + pen + " d=\"" + path + "\"/>\n";
      name_at -= 7.2 * static_cast<double>(text_width(curve.name));  // about as wide as letters are
      text(name_at, top - 16, curve.name, "fill=\"#222\"");
      line(name_at - 29, top - 20, name_at - 7, top - 20, pen);
      name_at -= 48;
    }
  }

  void text(double x, double y, std::string_view words, std::string const& style = "") {
    drawn_ += "<text x=\"" + fixed(x, 1) + "\" y=\"" + fixed(y, 1) + "\" " + style + ">";
    for (const char c : tessera::io::printable(words))  // XML has no control characters
      drawn_ += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : std::string(1, c);
    drawn_ += "</text>\n";
  }

  void line(double x1, double y1, double x2, double y2, std::string const& style) {
    drawn_ += "<line x1=\"" + fixed(x1, 1) + "\" y1=\"" + fixed(y1, 1) + "\" x2=\"" + fixed(x2, 1) +
              "\" y2=\"" + fixed(y2, 1) + "\" " + style + "/>\n";
  }

  double right_;
  plot_axis x_, y_;
  std::string drawn_;
};

inline std::string svg(plot const& p) { return plot_drawing(p).svg(); }

}  // namespace pretrain
