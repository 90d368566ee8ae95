// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <tessera/nn/presets.hpp>

#include "run_record.hpp"

namespace pretrain {

inline std::string time_text(double time) {
  return time < 60 ? number(time, 3) + "s" : duration_text(seconds(time));
}

inline double bits_per_byte(double nats_per_token, token_text const& text) {
  return nats_per_token / std::log(2) / text.bytes_per_token;
}

/// A row of the table for all variants: `cell(record)` for each.
template <class Cell> table_row row(std::string const& name, std::vector<run_record> const& runs, Cell cell) {
  table_row cells{name};
  for (run_record const& r : runs) cells.push_back(cell(r));
  return cells;
}

/// FLOPs of a training step: three products for each weight, and attention at three times its forward pass.
inline double step_flops(settings const& s, nn::model_size const& size, int symbols) {
  const bool masks = objective_of(s) == objective::masked_token;
  // Only tokens that are predicted meet the head: embedding x hidden, and the vocabulary.
  const double features = s.embedding > 0 ? s.embedding : s.hidden;
  const double left_out = masks ? (1 - s.mask_share) * features * (s.hidden + double(symbols)) : 0;
  const double weights = 3 * (double(size.multiply_adds) - left_out) * s.context;
  const double attention =
      3.0 * double(size.attention_multiply_adds_of(
                s.context, masks ? tessera::mask::bidirectional : tessera::mask::causal));
  return 2.0 * s.batch * (weights + attention);
}

/// The cost of a sparse FLOP in dense ones, and the one below which sparse training took less time.
struct flop_costs {
  double loss;            ///< validation loss that both models reached
  double cost, critical;  ///< nn::flop_cost, nn::critical_flop_cost to this loss
};

/// Of a dense and a sparse run of some FLOPs a step.
inline flop_costs flop_costs_of(run_record const& dense, double dense_step, run_record const& sparse,
                                double sparse_step) {
  const auto best = [](run_record const& r) {
    double least = std::numeric_limits<double>::infinity();
    for (curve_point const& p : r.points) least = std::min(least, p.validation_loss);
    return least;
  };
  const double loss = std::max(best(dense), best(sparse));
  const auto steps = [](run_record const& r) { return double(r.reached.step); };
  return {loss,
          nn::flop_cost(sparse.reached.seconds, sparse_step * steps(sparse), dense.reached.seconds,
                        dense_step * steps(dense)),
          nn::critical_flop_cost(dense_step * step_to_loss(dense.points, loss),
                                 sparse_step * step_to_loss(sparse.points, loss))};
}

inline nn::model_size size_of(run_record const& r, settings const& s, int symbols) {
  for (variant const& v : variants_of(s))
    if (v.name == r.variant) return size_of(description_of(s, v, symbols));
  return {};
}

/// Sparse beside dense; every variant has been evaluated at least once.
inline table comparison(settings const& s, std::vector<run_record> const& runs, token_text const& text) {
  const auto time = [](curve_point const& p) { return p.training_time.count(); };
  const auto tokens = [](curve_point const& p) { return p.tokens; };
  const auto least = [&](auto quantity) {
    double all = std::numeric_limits<double>::infinity();
    for (run_record const& r : runs) all = std::min(all, quantity(r.points.back()));
    return all;
  };
  const auto size = [&](run_record const& r) { return size_of(r, s, text.symbols.size()); };
  const bool masks = objective_of(s) == objective::masked_token;
  table t{{""}, {}};
  for (run_record const& r : runs) t.header.push_back(r.variant);
  const auto add = [&](std::string const& name, auto cell) { t.rows.push_back(row(name, runs, cell)); };
  const auto add_loss = [&](std::string const& when, auto loss) {
    const auto shown = [](double value) { return std::isnan(value) ? std::string("–") : fixed(value, 3); };
    add("validation loss at " + when, [&](run_record const& r) { return shown(loss(r)); });
    if (!masks)
      add("  bits per byte", [&](run_record const& r) { return shown(bits_per_byte(loss(r), text)); });
  };
  add("parameters, were it dense", [&](run_record const& r) { return quantity(double(size(r).parameters)); });
  add("live parameters", [&](run_record const& r) { return quantity(double(size(r).live_parameters)); });
  add("blocks ever stored", [](run_record const& r) { return fixed(100 * r.explored, 0) + " %"; });
  if (std::any_of(runs.begin(), runs.end(), [](run_record const& r) { return !r.updates.empty(); })) {
    const auto add_share = [&](std::string const& name, double pattern_point::* share) {
      add(name, [&](run_record const& r) {
        return r.updates.empty() ? std::string("–") : fixed(100 * (r.updates.back().*share), 0) + " %";
      });
    };
    add_share("  if they grew at random", &pattern_point::expected);
    add_share("first blocks never pruned", &pattern_point::survivors);
  }
  add("multiply-adds per token",
      [&](run_record const& r) { return quantity(double(size(r).multiply_adds)); });
  add("peak memory of tensors", [](run_record const& r) { return quantity(double(r.peak_bytes)) + "B"; });
  add("steps", [](run_record const& r) { return std::to_string(r.reached.step); });
  add("training time", [](run_record const& r) { return time_text(r.reached.seconds); });
  add(masks ? "masked tokens trained on" : "training tokens",
      [](run_record const& r) { return quantity(double(r.reached.tokens)); });
  add(masks ? "masked tokens per second" : "tokens per second",
      [](run_record const& r) { return quantity(double(r.reached.tokens) / r.reached.seconds); });
  add_loss("the end",
           [](run_record const& r) { return r.whole_loss.value_or(r.points.back().validation_loss); });
  if (s.average != "none")
    add_loss("the end, of the average", [](run_record const& r) {
      return r.average_loss.value_or(std::numeric_limits<double>::quiet_NaN());
    });
  if (s.next_sentence)
    add("next sentences told rightly",
        [](run_record const& r) { return fixed(100 * r.next_right.value_or(0), 1) + " %"; });
  if (runs.size() > 1) {
    const double at_time = least(time), at_tokens = least(tokens);
    add_loss(time_text(at_time), [&](run_record const& r) { return loss_at(r.points, time, at_time); });
    add_loss(quantity(at_tokens) + " tokens",
             [&](run_record const& r) { return loss_at(r.points, tokens, at_tokens); });
    if (!density_falls(s)) {  // whose steps do not take the same FLOPs
      const int symbols = text.symbols.size();
      const flop_costs costs = flop_costs_of(runs[0], step_flops(s, size(runs[0]), symbols), runs[1],
                                             step_flops(s, size(runs[1]), symbols));
      t.rows.push_back({"time of a FLOP, of the dense model's (ε)", "1", fixed(costs.cost, 2)});
      t.rows.push_back({"  at most, to be worth it (ε critical)", "–", fixed(costs.critical, 2)});
    }
  }
  return t;
}

/// The results of each variant for programs: sizes, FLOPs, times in seconds and bytes, and the curve, whose
/// points are [step, tokens, seconds, training loss, validation loss, learning rate], and the validation loss
/// of the average, if there is one.
inline tessera::io::json summary(settings const& s, std::vector<run_record> const& runs,
                                 token_text const& text) {
  using tessera::io::json;
  json all = json::object{};
  for (run_record const& r : runs) {
    const nn::model_size size = size_of(r, s, text.symbols.size());
    json record = to_json(r);
    all[r.variant] = json::object{{"parameters", size.parameters},
                                  {"live_parameters", size.live_parameters},
                                  {"step_flops", step_flops(s, size, text.symbols.size())},
                                  {"peak_bytes", r.peak_bytes},
                                  {"steps", r.reached.step},
                                  {"seconds", r.reached.seconds},
                                  {"tokens", r.reached.tokens},
                                  {"explored", r.explored},
                                  {"loss", r.whole_loss ? json(*r.whole_loss) : json()},
                                  {"average_loss", r.average_loss ? json(*r.average_loss) : json()},
                                  {"points", std::move(record["points"])}};
  }
  return all;
}

/// For masked tokens, which no n-gram of the tokens before predicts, uniform and unigram alone.
inline table floor_table(std::vector<ngram_floor> const& floors, token_text const& text, bool masks) {
  table t{{"without a network", "validation loss"}, {}};
  if (!masks) t.header.push_back("bits per byte");
  for (std::size_t i = 0; i < (masks ? std::min<std::size_t>(2, floors.size()) : floors.size()); ++i) {
    t.rows.push_back({floors[i].name, fixed(floors[i].loss, 3)});
    if (!masks) t.rows.back().push_back(fixed(bits_per_byte(floors[i].loss, text), 3));
  }
  return t;
}

/// What the table shows, for people.
inline std::string report(settings const& s, std::vector<run_record> const& runs, token_text const& text,
                          std::vector<ngram_floor> const& floors) {
  const bool masks = objective_of(s) == objective::masked_token;
  std::string all = aligned(comparison(s, runs, text));
  all +=
      "\nLosses in nats per " + unit_of_loss(s) +
      ", at the end over the whole validation text, before over a fixed sample of it.\nMultiply-adds of the "
      "weights, forward.\n";
  if (runs.size() > 1)
    all +=
        "At equal time and at equal tokens, what a run had reached when the other one ended, on the line\n"
        "between its two nearest evaluations; where its learning rate falls until the end, it was higher "
        "then.\n";
  if (runs.size() > 1 && !density_falls(s))
    all +=
        "A sparse model takes less time to a loss if its ε is below the critical one, which is the FLOPs of\n"
        "the dense model to the least loss that both reached, ÷ those of the sparse one (Dietrich et al. "
        "2021).\n";
  all += "\n" + aligned(floor_table(floors, text, masks));
  if (masks)
    for (run_record const& r : runs)
      if (r.whole_loss && *r.whole_loss > floors.at(1).loss - 0.02)
        all += "\nwarning: the " + r.variant +
               " model has learned no more than how often each token occurs (unigram); it needs more steps "
               "(a thousand are usual), another learning rate, or sequences that are longer\n";
  return all;
}

}  // namespace pretrain
