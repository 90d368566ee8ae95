// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/nn/presets.hpp>

#include "check_settings.hpp"
#include "plan_budget.hpp"
#include "settings.hpp"

// The settings of a run from the arguments of its command.

namespace pretrain {

/// The shape of the preset, where `says` does not say otherwise. Throws option_error if there is no such
/// preset; `where` it was said.
inline void take_preset(settings& s, std::string const& where, auto const& says) {
  using tessera::nn::preset;
  const auto all = s.model == "bert"    ? std::span<preset const>(tessera::nn::bert_presets)
                   : s.model == "llama" ? std::span<preset const>(tessera::nn::llama_presets)
                                        : std::span<preset const>(tessera::nn::gpt_presets);
  const auto named =
      std::find_if(all.begin(), all.end(), [&](preset const& p) { return p.name == s.preset; });
  if (named == all.end()) {
    std::string names;
    for (preset const& p : all) names += (names.empty() ? "" : "|") + std::string(p.name);
    refuse(where, "'" + tessera::io::excerpt(s.preset) + "' is not one of " + names);
  }
  if (!says("layers")) s.layers = static_cast<int>(named->layers);
  if (!says("hidden")) s.hidden = static_cast<int>(named->hidden);
  if (!says("heads")) s.heads = static_cast<int>(named->heads);
  if (!says("key-heads")) s.key_heads = static_cast<int>(named->key_heads);
  if (!says("mlp-features")) s.mlp_features = static_cast<int>(named->mlp_features);
}

/// Throws option_error unless a run that begins --from another has its model.
inline void require_same_model(settings const& earlier, settings const& s) {
  const tessera::io::json before = to_json(settings_table(), earlier), now = to_json(settings_table(), s);
  for (const char* name :
       {"model",     "layers",       "repeats",       "hidden",           "embedding",    "heads",
        "key-heads", "mlp-features", "output-weight", "positions",        "window",       "precision",
        "block",     "density",      "densities",     "parameterisation", "base-hidden",  "norm",
        "residual",  "level",        "vocabulary",    "vocabulary-file",  "next-sentence"})
    if (*before.find(name) != *now.find(name))
      refuse("--" + std::string(name),
             "is " + tessera::io::to_text(*before.find(name)) + " in the run of --from, not " +
                 tessera::io::to_text(*now.find(name)) + ", which would be another model; leave it out");
}

/// Throws option_error unless a run that branches off another is the same training, but for the order of its
/// data, and its length.
inline void require_same_training(settings const& earlier, settings const& s) {
  settings same = earlier;
  same.data_seed = s.data_seed, same.only = s.only;
  same.from = s.from, same.branch = s.branch, same.densify = s.densify;
  same.name = s.name, same.initial_pattern = s.initial_pattern;
  require_unchanged(settings_table(), with_length_of(same, s), s);
}

/// Throws option_error for options that each say with which settings a run begins.
inline void require_one_beginning(settings const& s, std::vector<given_option> const& given) {
  const auto says = [&](const char* name) { return is_said(given, name); };
  for (const auto& [name, value] : {std::pair{"resume", s.resume}, {"config", s.config}, {"from", s.from}})
    if (says(name) && value.empty())
      refuse("--" + std::string(name), "is empty; give a path, or leave it out");
  if (s.steps > 0 && says("time")) refuse("--time", "and --steps both say when to end; give one of them");
  if (!s.config.empty() && !s.resume.empty())
    refuse("--config", "has no meaning with --resume, which goes on with the stored settings; leave it out");
  if (says("from") && !s.resume.empty())
    refuse("--from",
           "has no meaning with --resume, which goes on with the run's own models; leave one of them out");
  if (says("from") && !s.config.empty())
    refuse("--config", "has no meaning with --from, which has settings of its own; leave it out");
  if (says("from") && !std::filesystem::exists(s.from + "/settings.json"))
    refuse("--from",
           s.from + " is not the folder of a run, with dense/ or sparse/ in it: it has no settings.json");
}

/// The settings in --config, or of the run in --from, and over them the arguments. Adds the options that they
/// state.
inline settings begun_settings(settings const& asked, std::vector<given_option> const& given,
                               std::vector<given_option>& stated) {
  const auto says = [&](const char* name) { return is_said(given, name); };
  const bool begins_from = says("from");
  const std::string path = begins_from ? asked.from + "/settings.json" : asked.config;
  const tessera::io::json file = tessera::io::read_json(path);
  settings s = begins_from ? settings_of_run(file, path) : stored_settings(file, path);
  for (given_option const& one : read_json(settings_table(), file, path)) stated.push_back(one);
  if (!begins_from && !s.from.empty())
    refuse("--config", path + " is of a run that began from another: begin with --from " + s.from +
                           ", or take out \"from\" and \"densify\"");
  if (s.sparse_lr == suggested_sparse_lr(s)) s.sparse_lr = 0;
  const int stored_steps = s.steps;
  if (says("time")) s.steps = 0;
  if (begins_from && s.positions == 0 && s.model != "rnn") s.positions = s.context;
  const settings earlier = s;
  if (begins_from) {
    s.name.clear(), s.initial_pattern = "random";  // the other run has patterns
    s.densify = false, s.branch = 0;
    if (asked.branch > 0) {
      if (says("time") && stored_steps > 0)
        refuse("--time", "the run of --from was planned by --steps; say how many in all");
      s.until_loss = 0, s.until_tokens = 0;  // where the other one ended
    }
  }
  if (begins_from && says("preset"))
    refuse("--preset", "has no meaning with --from, which has a model; leave it out");
  assign(settings_table(), s, given);
  if (begins_from) {
    require_same_model(earlier, s);
    if (s.branch > 0) require_same_training(earlier, s);
    s.from = std::filesystem::absolute(s.from).string();
  }
  return s;
}

/// Throws option_error unless a plan is left to choose.
inline void require_plan(settings const& s, std::vector<given_option> const& given) {
  const auto refuse_said = [&](const char* name, const char* why) {
    if (is_said(given, name))
      refuse("--" + std::string(name), "has no meaning with --plan, " + std::string(why) + "; leave it out");
  };
  static_cast<void>(plan_budget_of(s.plan));
  if (s.model == "rnn") refuse("--plan", "has no meaning with --model rnn: its shapes are of transformers");
  if (s.repeats > 1)
    refuse("--plan", "has no meaning with --repeats, by which a parameter has more than one product a token");
  if (density_falls(s) && s.only != "dense")
    refuse("--plan", "has no meaning with --policy " + s.policy +
                         ", whose steps take less and less time; --dry-run of a run says how much in all");
  for (const char* name :
       {"preset", "layers", "hidden", "heads", "key-heads", "mlp-features", "steps", "time"})
    refuse_said(name, "which chooses it");
  for (const char* name : {"from", "resume"}) refuse_said(name, "which begins with no other run");
  refuse_said("dry-run", "which trains nothing either");
}

/// Throws option_error for a parameterisation of which the run knows nothing.
inline void require_parameterisation(settings const& s, std::vector<given_option> const& given) {
  const bool standard = s.parameterisation == "standard";
  if (standard && is_said(given, "base-hidden"))
    refuse("--base-hidden", "has no meaning with --parameterisation standard; say --parameterisation supar");
  const auto refuse_with = [&](std::string const& where) {
    refuse("--parameterisation", s.parameterisation + " has no meaning with " + where);
  };
  if (standard) return;
  if (s.model != "gpt") refuse_with("--model " + s.model + "; say --model gpt");
  if (s.embedding > 0) refuse_with("--embedding, of whose projections it says nothing");
  if (s.optimizer != "adamw" && s.optimizer != "lion")
    refuse_with("--optimizer " + s.optimizer + ": its factors are for adamw and lion");
  if (s.parameterisation == "supar" && s.densities != "uniform")
    refuse_with("--densities, by which matrices differ");
}

/// Throws option_error for arguments without meaning beside the other settings.
inline void require_meaning(settings const& s, std::vector<given_option> const& given) {
  const auto says = [&](const char* name) { return is_said(given, name); };
  const auto refuse_if_said = [&](const char* name, std::string const& where, std::string const& advice) {
    if (says(name)) refuse("--" + std::string(name), "has no meaning with " + where + "; " + advice);
  };
  for (const char* name :
       {"policy", "initial-density", "frames", "period", "newborn", "newborn-warmup", "newborn-values",
        "grace", "prune-score", "prune-fraction", "prune-decay", "block-norm"}) {
    const char* const where = s.only == "dense"  ? "--only dense, which trains no sparse model"
                              : s.density == 1   ? "--density 1, which leaves no block to grow"
                              : s.static_pattern ? "--static, which keeps the first pattern"
                              : s.updates == 0   ? "--updates 0, which keeps the first pattern"
                                                 : nullptr;
    if (where) refuse_if_said(name, where, "leave one of them out");
  }
  if (s.branch > 0 && (s.densify || !says("from")))
    refuse("--branch", s.densify ? "goes on with a training, and --densify begins one; leave one of them out"
                                 : "goes on with a checkpoint of another run: say --from, too");
  if (s.densify && !(says("from") && s.only == "dense"))
    refuse("--densify", "makes a dense model of a sparse one: say --from and --only dense, too");
  for (const char* name : {"mask-share", "mask", "next-sentence"})
    if (s.model != "bert") refuse_if_said(name, "--model " + s.model, "say --model bert");
  if (says("from")) refuse_if_said("init", "--from, which has weights", "leave it out");
  if (s.decay == "power" || s.decay == "constant")
    refuse_if_said("final-lr", "--decay " + s.decay, "leave it out");
  if (s.reference_batch == 0)
    refuse_if_said("lr-scaling", "--reference-batch 0", "say --reference-batch, for which --lr is good");
  if (s.warmup_tokens > 0) refuse_if_said("warmup", "--warmup-tokens", "leave one of them out");
  if (s.optimizer == "schedule-free" && s.average != "none")
    refuse("--average", s.average +
                            " has no meaning with --optimizer schedule-free, which has an average of "
                            "its own; say --average none");
  if (s.optimizer == "schedule-free" && s.prune_score == "momentum")
    refuse("--prune-score",
           "momentum has no meaning with --optimizer schedule-free, which keeps none; say norm");
  if (const double shown = double(s.batch) * s.context;
      s.steps > 0 && double(s.warmup_tokens) >= shown * s.steps)
    refuse("--warmup-tokens", tessera::message(s.warmup_tokens, " are not less than the ", shown * s.steps,
                                               " that the run shows; say less"));
  if (!s.from.empty() && s.branch == 0)
    refuse_if_said("initial-density", "--from, which has a pattern", "leave it out");
  std::vector<const char*> meaningless;
  if (s.policy == "set") meaningless = {"prune-decay", "block-norm"};
  if (s.policy == "deep-r") meaningless = {"prune-decay", "block-norm", "grace", "prune-score"};
  if (s.policy == "gradual")
    meaningless = {"prune-decay",    "prune-fraction", "grace",       "newborn",
                   "newborn-warmup", "newborn-values", "prune-score", "period"};
  if (s.policy == "granet") meaningless = {"densities"};
  for (const char* name : meaningless) refuse_if_said(name, "--policy " + s.policy, "leave it out");
  if (s.policy != "granet") refuse_if_said("initial-density", "--policy " + s.policy, "say --policy granet");
  if (s.optimizer != "adamw")
    for (const char* name : {"newborn", "newborn-warmup"})
      refuse_if_said(name,
                     "--optimizer " + s.optimizer +
                         (s.optimizer == "sgd" || s.optimizer == "lion" || s.optimizer == "lars"
                              ? ", which does not divide by a second moment"
                              : ", whose new blocks begin with the mean"),
                     "leave it out");
  const auto belongs_to = [&](const char* name, std::string const& optimizer, std::string const& other) {
    if (s.optimizer != optimizer && s.optimizer != other)
      refuse_if_said(name, "--optimizer " + s.optimizer, "say --optimizer " + optimizer);
  };
  belongs_to("momentum", "sgd", "lars");
  belongs_to("trust-coefficient", "lars", "lars");
  belongs_to("bias-correction", "lamb", "lamb");
  for (const char* name : {"average-every", "average-patterns"})
    if (s.average == "none") refuse_if_said(name, "--average none", "say --average ema, or lawa");
  if (s.average != "lawa") refuse_if_said("average-keep", "--average " + s.average, "say --average lawa");
  if (s.average != "ema") refuse_if_said("average-decay", "--average " + s.average, "say --average ema");
  if (s.average != "none" && s.steps > 0 && s.average_every > s.steps)
    refuse("--average-every", tessera::message(s.average_every, " steps are more than the ", s.steps,
                                               " of the run, so that nothing would be averaged; say less"));
  const bool evolves = s.only != "dense" && s.density < 1 && !s.static_pattern && s.updates > 0;
  if (!evolves) refuse_if_said("average-patterns", "patterns that stay", "leave it out");
  if (evolves && s.grace > 0 && s.grace >= s.updates)
    refuse("--grace", tessera::message(s.grace, " updates of the pattern outlast the run, which has ",
                                       s.updates, "; say less"));
}

/// The value of an option that stands in a file; "" if there is none. The arguments come first in `stated`.
inline std::string stated_in_file(std::vector<given_option> const& stated, std::size_t arguments,
                                  std::string const& name) {
  for (std::size_t i = arguments; i < stated.size(); ++i)
    if (stated[i].name == name) return stated[i].values.at(0);
  return "";
}

/// The settings of a new run: the defaults, over them --config or the settings of the run in --from, over
/// these the arguments. A learning rate that was taken from the suggestion is suggested anew, after the
/// arguments.
inline settings new_settings(string_list const& arguments) {
  const std::vector<given_option> given = read_arguments(settings_table(), arguments);
  const auto says = [&](const char* name) { return is_said(given, name); };
  settings s;
  std::vector<given_option> stated = given;  // by the arguments, or the file
  const auto is_stated = [&](const char* name) { return is_said(stated, name); };
  assign(settings_table(), s, given);
  require_one_beginning(s, given);
  if (says("plan")) require_plan(s, given);
  if (says("from") || !s.config.empty()) s = begun_settings(s, given, stated);
  const auto preset =
      std::find_if(stated.begin(), stated.end(), [](given_option const& g) { return g.name == "preset"; });
  if (s.model != "rnn" && (says("preset") || !s.preset.empty()))
    take_preset(s, preset->where,
                [&](const char* name) { return is_said(says("preset") ? given : stated, name); });
  if (s.model == "rnn" && !s.preset.empty())
    refuse("--preset", "has no meaning with --model rnn; say --layers and --hidden");
  // Series fill the lanes of a time step.
  if (s.model == "rnn" && !is_stated("batch")) s.batch = std::max<int>(s.batch, tessera::panel_tokens);
  if (s.model == "bert" && s.level == "char" && !is_stated("level")) s.level = "wordpiece";
  // That of Dietrich et al. 2021: with post-norm layers a sparse model needs its rate from the suggestion.
  if (s.model == "bert" && !is_stated("lr")) s.lr = 2e-4;
  if (s.model == "llama" && !is_stated("output-weight")) s.output_weight = "own";
  // A file states all.
  if (!says("decay") && (says("optimizer") || !is_stated("decay"))) {
    const bool was_schedule_free = stated_in_file(stated, given.size(), "optimizer") == "schedule-free";
    if (s.optimizer == "schedule-free") s.decay = "constant";
    if (s.optimizer != "schedule-free" && was_schedule_free) s.decay = settings().decay;
  }
  const bool other_start = says("residual") || says("init") || says("model");
  if (!is_stated("norm") || (other_start && !says("norm") && !says("from"))) s.norm = usual_norm(s);
  if (!says("newborn-warmup") && (says("newborn") || !is_stated("newborn-warmup")))
    s.newborn_warmup = s.newborn == "smet" ? 100 : 0;
  if (!says("period") && (says("updates") || (is_stated("updates") && !is_stated("period")))) s.period = 1;
  require_meaning(s, given);
  require_parameterisation(s, given);
  if (s.sparse_lr == 0) s.sparse_lr = suggested_sparse_lr(s);
  if (!std::isfinite(s.sparse_lr))
    refuse("--lr", "is too large: what is suggested for the sparse model is no number any more");
  return s;
}

/// The settings of a run to be resumed: the stored ones, over them the arguments, which may change settings
/// that leave the results alone, and make the run longer.
inline settings resumed_settings(settings const& stored, string_list const& arguments) {
  settings s = stored;
  const std::vector<given_option> given = read_arguments(settings_table(), arguments);
  assign(settings_table(), s, given);
  const bool by_steps = stored.steps > 0;
  if (is_said(given, by_steps ? "time" : "steps"))
    refuse(by_steps ? "--time" : "--steps", by_steps ? "the run was planned by --steps; say how many in all"
                                                     : "the run was planned by --time; say how much in all");
  if (by_steps ? s.steps < stored.steps : s.time < stored.time)
    refuse(by_steps ? "--steps" : "--time",
           "is " + (by_steps ? std::to_string(stored.steps) : duration_text(stored.time)) +
               " in the run to be resumed, and may only be more; --until-tokens ends it earlier");
  require_unchanged(settings_table(), with_length_of(stored, s), s);
  return s;
}

}  // namespace pretrain
