// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/io/json.hpp>
#include <tessera/nn/presets.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/checkpoint_folders.hpp>
#include <tessera/train/parameterisation.hpp>
#include <tessera/train/schedules.hpp>
#include <tessera/train/time_budget.hpp>
#include <tessera/train/training.hpp>

#include "../common/chosen_policy.hpp"
#include "../common/element_and_block.hpp"
#include "curves.hpp"
#include "model.hpp"
#include "pattern_points.hpp"
#include "settings.hpp"
#include "text.hpp"

// A run trains one or two models, called variants. Its folder holds
//   settings.json     its settings
//   dense/, sparse/   checkpoints of each, step-N, and a sample of its text
//   and in the end the table and the curves.

namespace pretrain {

using namespace programs;

/// One of the models of a run.
struct variant {
  std::string name;  ///< "dense", "sparse"
  int block;
  double density, lr;
};

/// Dense is the model of 16x16 blocks that stores them all.
inline std::vector<variant> variants_of(settings const& s) {
  std::vector<variant> all;
  const auto scaled = [&](double lr) {
    if (s.reference_batch == 0) return lr;
    return train::scaled_rate(
        lr, s.reference_batch, s.batch,
        s.lr_scaling == "linear" ? train::rate_scaling::linear : train::rate_scaling::square_root);
  };
  if (s.only != "sparse") all.push_back({"dense", 16, 1, scaled(s.lr)});
  if (s.only != "dense") all.push_back({"sparse", s.block, s.density, scaled(s.sparse_lr)});
  return all;
}

/// In the order of training. A model that is pruned first comes first: if it cannot be, nothing else has been
/// trained in vain.
inline std::vector<variant> in_order_of_training(settings const& s) {
  std::vector<variant> all = variants_of(s);
  if (s.initial_pattern != "random") std::reverse(all.begin(), all.end());
  return all;
}

inline model_description description_of(settings const& s, variant const& v, int symbols) {
  model_description what;
  what.family = s.model;
  what.shape.layers = s.layers;
  what.shape.repeats = s.repeats;
  what.shape.hidden = s.hidden;
  what.shape.embedding = s.embedding;
  what.shape.heads = s.model == "rnn" ? 1 : s.heads;
  what.shape.key_heads = s.key_heads;
  what.shape.mlp_features = s.mlp_features;
  if (s.model == "llama") what.shape = nn::as_llama(what.shape);
  what.shape.output = s.output_weight == "own" ? nn::output_weight::own : nn::output_weight::tied;
  what.shape.context = std::max(s.positions, s.context);
  what.shape.window = s.window;
  what.shape.segment_types = s.next_sentence ? 2 : 0;
  what.shape.next_sentence = s.next_sentence;
  what.shape.vocabulary = symbols;
  what.shape.dropout = s.dropout;
  what.shape.density = v.density;
  if (s.densities != "uniform") what.shape.densities = tessera::density_distribution::erdos_renyi;
  if (s.norm == "none") what.shape.norms = nn::norm_layers::absent;
  what.shape.residual = s.residual == "rezero"       ? nn::residual_form::rezero
                        : s.residual == "skipinit"   ? nn::residual_form::skip_init
                        : s.residual == "layerscale" ? nn::residual_form::layer_scale
                                                     : nn::residual_form::plain;
  what.shape.start = s.init == "xavier"    ? nn::initial_values::xavier
                     : s.init == "fixup"   ? nn::initial_values::fixup
                     : s.init == "t-fixup" ? nn::initial_values::t_fixup
                                           : nn::initial_values::standard;
  what.precision = s.precision;
  what.block = v.block;
  what.segments = s.recompute;
  what.seed = s.seed;
  return what;
}

/// The model that is made at first: a training begins with it, or prunes it before.
inline model_description first_description_of(settings const& s, variant const& v, int symbols) {
  model_description what = description_of(s, v, symbols);
  if (v.density < 1) what.shape.density = s.initial_pattern != "random" ? 1 : first_density(s);
  return what;
}

/// How initial values and rates follow the width and the density of a model: --parameterisation.
inline train::parameterisation parameterisation_of(settings const& s) {
  return s.parameterisation == "mup"     ? train::parameterisation::maximal_update
         : s.parameterisation == "supar" ? train::parameterisation::sparse_maximal_update
                                         : train::parameterisation::standard;
}
/// The size of a model, as it begins, ÷ that of the base, which is dense.
inline train::model_scale model_scale_of(settings const& s, variant const& v) {
  return {double(s.hidden) / s.base_hidden, v.density < 1 ? first_density(s) : 1};
}

/// How a policy measures blocks, and how the share that it replaces falls: --block-norm and --prune-decay.
inline tessera::block_norm norm_named(std::string_view name) {
  return name == "l2"    ? tessera::block_norm::l2
         : name == "max" ? tessera::block_norm::max
                         : tessera::block_norm::l1;
}
inline train::fraction_decay decay_named(std::string_view name) {
  return name == "linear"     ? train::fraction_decay::linear
         : name == "constant" ? train::fraction_decay::constant
                              : train::fraction_decay::cosine;
}

inline train::turnover turnover_of(settings const& s) {
  return {.grace = s.grace,
          .score = s.prune_score == "momentum" ? train::prune_score::momentum
                   : s.prune_score == "age"    ? train::prune_score::norm_by_age
                                               : train::prune_score::norm,
          .values = s.newborn_values,
          .seed = s.seed};
}

/// The policy of --policy for a run of `steps` steps, with updates evenly spaced, where blocks grow
/// --period steps apart at least; updates of RigL and of gradual pruning end after three quarters of the run,
/// and the density of GraNet falls until half of it.
inline chosen_policy policy_of(settings const& s, std::int64_t steps) {
  const auto spaced = tessera::ceil_div<std::int64_t>(steps, s.updates + 1);
  const auto interval = s.policy == "gradual" ? spaced : std::max<std::int64_t>(spaced, s.period);
  const auto norm = norm_named(s.block_norm);
  const auto falls = decay_named(s.prune_decay);
  if (s.policy == "set")
    return {train::sparse_evolutionary_training{interval, steps, s.prune_fraction, s.seed}};
  if (s.policy == "deep-r") return {train::deep_rewiring{interval, steps, s.prune_fraction, s.seed}};
  if (s.policy == "snfs")
    return {train::sparse_momentum{
        .interval = interval, .steps = steps, .fraction = s.prune_fraction, .norm = norm, .falls = falls}};
  if (s.policy == "gradual")
    return {
        train::gradual_pruning{interval, 0, tessera::ceil_div<std::int64_t>(3 * steps, 4), s.density, norm}};
  if (s.policy == "granet")
    return {train::granet{.interval = interval,
                          .end = tessera::ceil_div<std::int64_t>(steps, 2),
                          .steps = steps,
                          .initial = s.initial_density,
                          .density = s.density,
                          .fraction = s.prune_fraction,
                          .norm = norm,
                          .falls = falls}};
  if (s.policy == "rigl" || s.policy == "itop")
    return {train::rigl{.interval = interval,
                        .steps = steps,
                        .fraction = s.prune_fraction,
                        .until = s.policy == "itop" ? 1 : train::rigl().until,
                        .norm = norm,
                        .falls = falls}};
  return {train::evolving_pattern{interval, steps, s.prune_fraction, s.seed, norm, falls}};
}

/// Whether the pattern of a model changes while it is trained.
inline bool evolves(settings const& s, variant const& v) {
  return v.density < 1 && !s.static_pattern && s.updates > 0;
}

/// How patterns evolve in so few steps that their period would not fit.
inline chosen_policy patterns_in_few(settings s, std::int64_t steps) {
  s.period = 1;
  return policy_of(s, steps);
}

/// What a run is planned to do, if there is a step for each update.
inline train::planned_run planned_run_of(settings const& s, variant const& v) {
  train::planned_run planned{.clip = s.clip, .rate = v.lr, .watched = patterns_in_few(s, 1).watched()};
  if (!evolves(s, v)) return planned;
  const chosen_policy policy = patterns_in_few(s, std::int64_t{s.updates} + 1);
  for (int done = 1; done <= s.updates; ++done) planned.updates += policy.due(done);
  return planned;
}

/// How the training of a variant went so far: the data of a checkpoint besides the model.
struct run_record {
  std::string variant;
  std::int64_t steps = 0;                ///< of the whole training
  int evaluations = 12;                  ///< in it, unless asked otherwise
  static constexpr int checkpoints = 5;  ///< in it, unless asked otherwise; others follow evaluations
  std::vector<curve_point> points;
  train::token_loss recent;            ///< of the steps since the last evaluation
  std::optional<double> whole_loss;    ///< over the whole validation text; at the end
  std::optional<double> average_loss;  ///< of the average of the weights, over the whole text
  std::optional<double> next_right;    ///< share of its sequences whose next sentence was told; at the end
  std::int64_t peak_bytes = 0;         ///< of tensors
  double explored = 0;                 ///< share of the blocks that were ever stored
  std::vector<pattern_point> updates;
  tessera::io::json history;      ///< of the patterns: train::pattern_history; null if they stay
  std::int64_t framed = 0;        ///< updates before the last picture of the patterns
  std::int64_t extended_at = -1;  ///< step after which a longer plan took over; -1: none did
  double extended_rate = 0;       ///< of the step before
  train::progress reached;        ///< not written: the checkpoint itself has it
};

/// How many checkpoints of a model a run keeps at most: the newest ones (in between, after the best
/// evaluations, at the end), and the best.
inline double most_checkpoints(settings const& s) {
  const auto made = [&](int every, int otherwise) {
    return every == 0    ? otherwise
           : s.steps > 0 ? std::ceil(double(s.steps) / every)
                         : std::numeric_limits<double>::infinity();
  };
  return std::min<double>(s.keep, made(s.checkpoint_every, run_record::checkpoints) +
                                      made(s.eval_every, run_record().evaluations)) +
         1;
}

inline tessera::io::json to_json(run_record const& r) {
  using tessera::io::json;
  json::array points;
  for (curve_point const& p : r.points) {
    json::array point{p.step,          p.tokens,          p.training_time.count(),
                      p.training_loss, p.validation_loss, p.learning_rate};
    if (p.average_loss) point.push_back(*p.average_loss);
    points.push_back(std::move(point));
  }
  return json::object{{"variant", r.variant},
                      {"steps", r.steps},
                      {"evaluations", r.evaluations},
                      {"points", std::move(points)},
                      {"recent_loss", r.recent.sum},
                      {"recent_tokens", r.recent.tokens},
                      {"peak_bytes", r.peak_bytes},
                      {"explored", r.explored},
                      {"updates", to_json(r.updates)},
                      {"history", r.history},
                      {"framed", r.framed},
                      {"extended_at", r.extended_at},
                      {"extended_rate", r.extended_rate},
                      {"whole_loss", r.whole_loss ? json(*r.whole_loss) : json()},
                      {"average_loss", r.average_loss ? json(*r.average_loss) : json()},
                      {"next_right", r.next_right ? json(*r.next_right) : json()}};
}

inline run_record read_record(tessera::io::json_place const& at) {
  run_record r;
  r.variant = at.at("variant").as_string();
  r.steps = at.at("steps").as_integer();
  if (at.contains("evaluations")) r.evaluations = at.at("evaluations").as_integer<int>();
  const auto points = at.at("points");
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto p = points.at(i);
    const auto n = [&](std::size_t k) { return p.at(k).as_number(); };
    r.points.push_back({p.at(0).as_integer<int>(), n(1), seconds(n(2)), n(3), n(4), n(5)});
    if (p.size() > 6) r.points.back().average_loss = n(6);
  }
  r.recent = {at.at("recent_loss").as_number(), at.at("recent_tokens").as_integer()};
  r.peak_bytes = at.at("peak_bytes").as_integer();
  r.explored = at.at("explored").as_number();
  if (at.contains("history")) {  // not in older files
    r.updates = read_pattern_points(at.at("updates"));
    r.history = at.at("history").value();
    r.framed = at.at("framed").as_integer();
  }
  if (at.contains("extended_at")) {
    r.extended_at = at.at("extended_at").as_integer();
    r.extended_rate = at.at("extended_rate").as_number();
  }
  if (at.contains("whole_loss") && !at.at("whole_loss").value().is_null())
    r.whole_loss = at.at("whole_loss").as_number();
  if (at.contains("average_loss") && !at.at("average_loss").value().is_null())
    r.average_loss = at.at("average_loss").as_number();
  if (at.contains("next_right") && !at.at("next_right").value().is_null())
    r.next_right = at.at("next_right").as_number();
  return r;
}

/// What a checkpoint says besides the model and its record: enough to sample without the text.
struct run_origin {
  settings asked;
  vocabulary symbols;
  std::uint64_t text_hash;
};

inline tessera::io::json to_json(run_origin const& o) {
  return tessera::io::json::object{{"settings", to_json(settings_table(), o.asked)},
                                   {"symbols", o.symbols.to_json()},
                                   {"text_hash", o.text_hash}};
}

inline text_level level_of(settings const& s) {
  return s.level == "byte"        ? text_level::byte
         : s.level == "wordpiece" ? text_level::wordpiece
         : s.level == "bpe"       ? text_level::byte_pair
                                  : text_level::character;
}
inline objective objective_of(settings const& s) {
  return s.model == "bert" ? objective::masked_token : objective::next_token;
}

/// What a loss is counted for.
inline std::string unit_of_loss(settings const& s) {
  return objective_of(s) == objective::masked_token ? "masked token"
         : s.level == "byte"                        ? "byte"
         : s.level == "char"                        ? "character"
                                                    : "token";
}

/// The text of a run: its files, or else the project's own.
inline corpus corpus_of(settings const& s) {
  if (s.text.empty()) return read_repository(TESSERA_SOURCE_DIR);
  return read_files(s.text, level_of(s), s.documents == "files" ? documents::files : documents::blank_lines);
}

/// How a model is shown a part of a text.
///   ends   of the documents in `tokens`
inline window_text windows_of(settings const& s, std::span<token const> tokens,
                              std::span<std::size_t const> ends, vocabulary const& symbols) {
  if (objective_of(s) == objective::next_token) return {tokens, s.context};
  auto const& words = *symbols.words();
  masked_task task{words.classification(), words.separator(), symbols.masking()};
  task.rule.chosen = s.mask_share;
  task.rule.whole_words = s.mask == "words";
  task.next_sentence = s.next_sentence;
  return {tokens, ends, s.context, task};
}

/// The data that pretrain wrote with a checkpoint. Throws io_error if another program wrote it.
inline tessera::io::json_place program_of(train::checkpoint const& from, std::string const& folder) {
  const auto state = from.state();
  if (!state.contains("program") || !state.at("program").contains("settings") ||
      !state.at("program").contains("record"))
    throw tessera::io_error(
        "[checkpoint] " + folder +
        " was not written by pretrain: it has no settings and no vocabulary; a program of "
        "your own reads it by tessera::train::checkpoint");
  return state.at("program");
}

inline run_origin read_origin(tessera::io::json_place const& at, std::string const& document) {
  const settings asked = settings_of_run(at.at("settings").value(), document);
  return {asked, vocabulary::from_json(level_of(asked), at.at("symbols")),
          at.at("text_hash").as_integer<std::uint64_t>()};
}

}  // namespace pretrain
