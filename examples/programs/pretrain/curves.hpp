// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <tessera/io/json.hpp>

#include "../common/format.hpp"
#include "../common/table.hpp"
#include "ngram.hpp"
#include "plot.hpp"

namespace pretrain {

using namespace programs;

/// One evaluation of a run.
struct curve_point {
  int step;
  double tokens;  ///< trained on so far
  seconds training_time;
  double training_loss, validation_loss;  ///< nats per token
  double learning_rate;
  std::optional<double> average_loss =
      {};  ///< validation loss of the average of the weights, if there is one
};

struct loss_curve {
  std::string name;  ///< "dense"
  std::vector<curve_point> points;
};

inline bool have_averages(std::vector<loss_curve> const& curves) {
  return std::any_of(curves.begin(), curves.end(), [](loss_curve const& curve) {
    return !curve.points.empty() && curve.points.back().average_loss;
  });
}

inline table curve_table(std::vector<loss_curve> const& curves) {
  table all{{"model", "step", "tokens", "seconds", "training_loss", "validation_loss", "learning_rate"}, {}};
  const bool averages = have_averages(curves);
  if (averages) all.header.push_back("average_loss");
  for (loss_curve const& curve : curves)
    for (curve_point const& p : curve.points) {
      all.rows.push_back({curve.name, std::to_string(p.step), number(p.tokens, 17),
                          fixed(p.training_time.count(), 3), number(p.training_loss, 7),
                          number(p.validation_loss, 7), number(p.learning_rate)});
      if (averages) all.rows.back().push_back(p.average_loss ? number(*p.average_loss, 7) : "");
    }
  return all;
}

/// Curves as lines, each an object of JSON.
inline std::string json_lines(std::vector<loss_curve> const& curves) {
  using tessera::io::json;
  std::string all;
  for (loss_curve const& curve : curves)
    for (curve_point const& p : curve.points) {
      json line = json::object{{"model", curve.name},
                               {"step", p.step},
                               {"tokens", p.tokens},
                               {"seconds", p.training_time.count()},
                               {"training_loss", p.training_loss},
                               {"validation_loss", p.validation_loss},
                               {"learning_rate", p.learning_rate}};
      if (p.average_loss) line["average_loss"] = *p.average_loss;
      all += tessera::io::to_text(line) + "\n";
    }
  return all;
}

/// The validation loss of a run when it had reached `x` of some quantity of its points: along lines between
/// evaluations, and NaN before the first.
template <class Quantity>
double loss_at(std::vector<curve_point> const& points, Quantity quantity, double x) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double here = quantity(points[i]);
    if (here < x) continue;
    if (here == x) return points[i].validation_loss;
    if (i == 0) return std::numeric_limits<double>::quiet_NaN();
    const double before = quantity(points[i - 1]), share = (x - before) / (here - before);
    return std::lerp(points[i - 1].validation_loss, points[i].validation_loss, share);
  }
  return points.empty() ? std::numeric_limits<double>::quiet_NaN() : points.back().validation_loss;
}

/// The step at which a validation loss was first reached, on the line between two evaluations; NaN if never.
inline double step_to_loss(std::vector<curve_point> const& points, double loss) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double here = points[i].validation_loss;
    if (here > loss) continue;
    if (i == 0) return points[i].step;
    const double before = points[i - 1].validation_loss;
    return std::lerp(double(points[i - 1].step), double(points[i].step), (before - loss) / (before - here));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

enum class plot_over { time, tokens };

/// Validation losses of all curves, with the floors that are not above all of them.
inline plot loss_plot(std::string const& title, std::vector<loss_curve> const& curves,
                      std::vector<ngram_floor> const& floors, plot_over over) {
  plot p{title,
         over == plot_over::time ? "seconds of training" : "tokens of training",
         "validation loss, nats per token",
         {},
         {}};
  double highest = 0;
  for (loss_curve const& curve : curves) {
    plot_curve& drawn = p.curves.emplace_back(plot_curve{curve.name, {}, {}});
    for (curve_point const& point : curve.points) {
      drawn.x.push_back(over == plot_over::time ? point.training_time.count() : point.tokens);
      drawn.y.push_back(point.validation_loss);
      highest = std::max(highest, point.validation_loss);
    }
    if (!have_averages({curve})) continue;
    plot_curve& average = p.curves.emplace_back(plot_curve{curve.name + ", average", {}, {}});
    for (curve_point const& point : curve.points) {
      average.x.push_back(over == plot_over::time ? point.training_time.count() : point.tokens);
      average.y.push_back(point.average_loss.value_or(point.validation_loss));
    }
  }
  for (ngram_floor const& floor : floors)
    if (floor.loss <= highest) p.levels.push_back({floor.name, floor.loss});
  return p;
}

}  // namespace pretrain
