// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/exec/context.hpp>
#include <tessera/train/optimizers/optimizer.hpp>

#include "average.hpp"
#include "disk_room.hpp"
#include "optimizer.hpp"
#include "report.hpp"
#include "text.hpp"
#include "validation.hpp"

namespace pretrain {

/// Bytes of the optimizer's state.
inline double state_bytes(settings const& s, nn::model_size const& size) {
  return train::state_bytes(optimizer_of(s), size, turnover_of(s).knows_age(), average_of(s, s.steps));
}

/// Bytes of all tensors of a training.
inline double training_bytes(settings const& s, nn::model_size const& size) {
  const std::int64_t tokens = std::int64_t{s.batch} * s.context;
  return double(size.weight_bytes()) + double(size.gradient_bytes()) + state_bytes(s, size) +
         double(size.saved_bytes(tokens)) + double(size.room_bytes(tokens));
}

/// Bytes of the tensors that score blocks for --initial-pattern, beside the tensors of a training.
inline double scoring_bytes(settings const& s, variant const& v, nn::model_size const& size) {
  if (v.density == 1) return 0;
  const double gradient = double(size.gradient_bytes());
  return s.initial_pattern == "snip"    ? gradient
         : s.initial_pattern == "grasp" ? 3 * gradient + double(size.weight_bytes())
                                        : 0;
}

/// Throws option_error if a variant does not fit the memory of this machine.
inline void require_memory(settings const& s, int symbols) {
  const double memory = double(all_memory().bytes);
  for (variant const& v : variants_of(s)) {
    const nn::model_size size = size_of(first_description_of(s, v, symbols));
    const double bytes = training_bytes(s, size) + scoring_bytes(s, v, size);
    if (bytes > memory)
      refuse("memory", "the " + v.name + " model needs " + quantity(bytes) + "B, but this machine has " +
                           quantity(memory) + "B; make --hidden, --layers, --batch or --context smaller");
  }
}

/// Bytes on disk that the checkpoints of some models of a run will take at most, one of them just being
/// written, beyond the present ones.
///   run   the folder of a run that goes on; empty for a new one
inline double checkpoint_bytes(settings const& s, std::vector<variant> const& of, int symbols,
                               std::string const& run) {
  double bytes = 0, written = 0;
  for (variant const& v : of) {
    const nn::model_size size =
        size_of(density_falls(s) ? first_description_of(s, v, symbols) : description_of(s, v, symbols));
    const double first = double(size.weight_bytes()) + state_bytes(s, size);
    const auto [kept, one] = run.empty() ? checkpoints_to_come{most_checkpoints(s) * first, first}
                                         : bytes_to_come(run + "/" + v.name, most_checkpoints(s), first);
    bytes += kept;
    written = std::max(written, one);
    if (run.empty() && s.densify) bytes += double(size.weight_bytes());  // with which it begins
  }
  return bytes + written;
}

/// Bytes of the keys and values of a text that fills the context, when a decoder goes on with it.
inline std::int64_t text_bytes(settings const& s, nn::model_size const& size) {
  if (objective_of(s) == objective::masked_token) return 0;
  return size.cache_bytes(s.window > 0 ? std::min(s.window, s.context) : s.context, size.element_bytes);
}

/// What a row of the table of --dry-run shows.
inline std::vector<table_row> forecast_rows() {
  return {{"parameters, were it dense"},
          {"live parameters"},
          {"multiply-adds per token"},
          {"FLOPs of a step"},
          {"bytes of weights"},
          {"  gradients and optimizer"},
          {"  activations"},
          {"  all"},
          {"bytes of a text's keys and values"},
          {"steps, about"},
          {"time of evaluations, about"},
          {"expected time, about"}};
}

/// The table of --dry-run.
inline std::string forecast(settings const& s, token_text const& text, tessera::context& ctx) {
  const int symbols = text.symbols.size();
  const auto [speed, by_amx] = speed_of(description_of(s, variants_of(s)[0], symbols), ctx);
  // A step's share of the speed of a product, measured with the default settings on two cores of a Zen 5, and
  // of a Xeon with AMX, where products take less of a step.
  const double dense_share = by_amx ? 0.43 : 0.7, sparse_share = by_amx ? 0.14 : 0.45;
  const std::int64_t tokens = std::int64_t{s.batch} * s.context;
  table t{{""}, {}};
  const validation sample(windows_of(s, text.validation, text.validation_ends, text.symbols),
                          validation::sample_tokens);
  std::vector<table_row> rows = forecast_rows();
  for (variant const& v : variants_of(s)) {
    const nn::model_size size = size_of(description_of(s, v, symbols));
    const bool falls = v.density < 1 && density_falls(s);
    variant shown = v;  // in a step of the mean density
    if (falls) shown.density = mean_density(s);
    const nn::model_size of_step = size_of(description_of(s, shown, symbols)),
                         of_bytes = falls ? size_of(first_description_of(s, v, symbols)) : size;
    const double flops = step_flops(s, of_step, symbols);
    const double step = flops / (speed * (v.density < 1 ? sparse_share : dense_share));
    // A forward pass is a third of a step; evaluations of the sample, and of the whole text once.
    const seconds of_token(step / 3 / double(tokens)), of_sample = of_token * double(sample.tokens());
    const double planned = s.steps > 0 ? 12 : validation::evaluations(s.time, of_sample);
    const auto evaluation = [&](double steps) {
      const double samples = s.eval_every > 0 ? steps / s.eval_every : planned;
      return of_sample * samples + of_token * double(text.validation.size());
    };
    const seconds asked = s.time;
    const double left = std::max(asked - evaluation(0), asked / 2).count();
    const double share = s.eval_every > 0 ? of_sample.count() / s.eval_every : 0;  // of an evaluation
    const double steps = s.steps > 0 ? s.steps : std::max(1.0, left / (step + share));
    const auto bytes = [](auto n) { return quantity(double(n)) + "B"; };
    const std::string cells[] = {quantity(double(size.parameters)),
                                 quantity(double(size.live_parameters)),
                                 quantity(double(size.multiply_adds)),
                                 quantity(flops),
                                 bytes(of_bytes.weight_bytes()),
                                 bytes(double(of_bytes.gradient_bytes()) + state_bytes(s, of_bytes)),
                                 bytes(of_bytes.saved_bytes(tokens) + of_bytes.room_bytes(tokens)),
                                 bytes(training_bytes(s, of_bytes)),
                                 bytes(text_bytes(s, of_bytes)),
                                 quantity(steps),
                                 duration_text(evaluation(steps)),
                                 duration_text(seconds(steps * step) + evaluation(steps))};
    t.header.push_back(v.name);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].push_back(cells[i]);
  }
  t.rows = rows;
  // Layers that multiply in 8 bits have other products, and all else, in float.
  const bool in_8_bits = s.precision == "float8" || s.precision == "int8";
  const std::string element = in_8_bits ? "float" : s.precision;
  const std::string falling = "Bytes of the first step; FLOPs and time at the mean density of the run.\n";
  return aligned(t) + "\n" + (s.only != "dense" && density_falls(s) ? falling : "") + "Times from the " +
         quantity(speed) + "FLOP/s that a dense product in " + element + " reaches here.\n";
}

}  // namespace pretrain
