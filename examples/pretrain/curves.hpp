// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "format.hpp"
#include "ngram.hpp"
#include "plot.hpp"
#include "table.hpp"

namespace pretrain {

/// One evaluation of a run.
struct curve_point {
  int step;
  double tokens;  ///< trained on so far
  seconds training_time;
  double training_loss, validation_loss;  ///< nats per token
  double learning_rate;
};

struct loss_curve {
  std::string name;  ///< "dense"
  std::vector<curve_point> points;
};

inline table curve_table(std::vector<loss_curve> const& curves) {
  table all{{"model", "step", "tokens", "seconds", "training_loss", "validation_loss", "learning_rate"}, {}};
  for (loss_curve const& curve : curves)
    for (curve_point const& p : curve.points)
      all.rows.push_back({curve.name, std::to_string(p.step), number(p.tokens, 17),
                          fixed(p.training_time.count(), 3), number(p.training_loss, 7),
                          number(p.validation_loss, 7), number(p.learning_rate)});
  return all;
}

enum class plot_over { time, tokens };

/// Validation losses of all curves, with the floors (the uniform one only says where losses begin).
inline plot loss_plot(std::string const& title, std::vector<loss_curve> const& curves,
                      std::vector<ngram_floor> const& floors, plot_over over) {
  plot p{title,
         over == plot_over::time ? "seconds of training" : "tokens of training",
         "validation loss, nats per token",
         {},
         {}};
  for (loss_curve const& curve : curves) {
    plot_curve& drawn = p.curves.emplace_back(plot_curve{curve.name, {}, {}});
    for (curve_point const& point : curve.points) {
      drawn.x.push_back(over == plot_over::time ? point.training_time.count() : point.tokens);
      drawn.y.push_back(point.validation_loss);
    }
  }
  for (ngram_floor const& floor : floors) p.levels.push_back({floor.name, floor.loss});
  return p;
}

}  // namespace pretrain
