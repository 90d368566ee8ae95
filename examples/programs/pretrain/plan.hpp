// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/train/compute_optimal.hpp>
#include <tessera/train/time_budget.hpp>

#include "../common/table.hpp"
#include "check_settings.hpp"
#include "forecast.hpp"
#include "plan_budget.hpp"

// pretrain --plan: which model to train, and for how many steps, with a number of FLOPs or in a time.

namespace pretrain {

/// The shapes among which a plan chooses: the presets, and a few between.
struct plan_shape {
  int layers, hidden, heads;
};
inline constexpr std::array plan_shapes{
    plan_shape{2, 64, 1},     plan_shape{2, 128, 2},    plan_shape{3, 192, 3},   plan_shape{4, 256, 4},
    plan_shape{4, 384, 6},    plan_shape{6, 384, 6},    plan_shape{4, 512, 8},   plan_shape{8, 512, 8},
    plan_shape{10, 640, 10},  plan_shape{12, 768, 12},  plan_shape{16, 896, 14}, plan_shape{24, 1024, 16},
    plan_shape{30, 1152, 18}, plan_shape{36, 1280, 20}, plan_shape{48, 1600, 25}};

/// One way to share FLOPs out between parameters and tokens.
struct plan_rule {
  const char* name;
  train::training_size (*best)(double flops);
};
inline constexpr std::array plan_rules{
    plan_rule{"20 tokens a parameter", [](double flops) { return train::at_tokens_per_parameter(flops); }},
    plan_rule{"Hoffmann et al. 2022", [](double flops) { return train::hoffmann_fit.optimum(flops); }},
    plan_rule{"Besiroglu et al. 2024", [](double flops) { return train::besiroglu_fit.optimum(flops); }}};

inline std::string shape_text(settings const& s) { return tessera::message(s.layers, "x", s.hidden); }

/// What a rule comes to among the shapes.
struct planned_training {
  train::training_size best;  // of any shape
  settings asked;             // with the shape and the steps
  nn::model_size size;
  train::step_times times;  // of its steps, here

  std::int64_t step_tokens() const { return std::int64_t{asked.batch} * asked.context; }
  train::training_size chosen() const {
    return {double(size.live_parameters), double(asked.steps) * double(step_tokens())};
  }
};

/// Plans one model of a run.
class planner {
 public:
  using size_function = std::function<nn::model_size(model_description const&)>;
  using times_function = std::function<train::step_times(settings const&)>;

  /// Throws option_error if no shape can have the density.
  ///   size    of a model
  ///   times   that steps of a run take here
  planner(settings const& s, variant const& v, int symbols, size_function const& size, times_function times)
      : variant_(v), times_(std::move(times)) {
    std::string fault;
    for (plan_shape const& shape : plan_shapes) {
      settings one = s;
      one.layers = shape.layers, one.hidden = shape.hidden, one.heads = shape.heads;
      one.preset.clear(), one.only = v.name, one.steps = 1;
      one.initial_pattern = "random";  // which takes no other time for a step
      try {
        check_sizes(one), check_density(one);
      } catch (tessera::option_error const& why) {
        fault = why.what();
        continue;
      }
      shapes_.push_back(
          {one, size(description_of(one, v, symbols)), size(first_description_of(one, v, symbols))});
    }
    if (shapes_.empty()) throw tessera::option_error(fault);
  }

  /// Throws option_error if the model would not fit into `memory` bytes.
  planned_training plan(plan_rule const& by, plan_budget const& budget, double memory) {
    if (budget.flops > 0) {
      const train::training_size best = by.best(budget.flops);
      const std::size_t i = nearest(best.parameters);
      const double steps = budget.flops / step_flops_of(i);
      return measured(i, best, steps, budget, memory);
    }
    // A shape has a speed, by which the time is a number of FLOPs, for which a shape is best: from a small
    // one on, until it is that shape.
    std::size_t i = nearest(3e6);
    train::training_size best{};
    for (int turn = 0; turn < 4; ++turn) {
      require_fit(i, budget, memory);
      best = by.best(steps_in(i, budget.time) * step_flops_of(i));
      const std::size_t next = nearest(best.parameters);
      if (next == i) break;
      i = next;
    }
    return measured(i, best, steps_in(i, budget.time), budget, memory);
  }

 private:
  struct sized {
    settings asked;
    nn::model_size size, first;  // as it ends, and as it begins
  };

  double step_flops_of(std::size_t i) const {
    settings const& s = shapes_[i].asked;
    return 6.0 * double(shapes_[i].size.live_parameters) * s.batch * s.context;
  }
  std::size_t nearest(double parameters) const {
    const auto distance = [&](sized const& one) {
      return std::abs(std::log(double(one.size.live_parameters) / parameters));
    };
    const auto found = std::min_element(shapes_.begin(), shapes_.end(), [&](sized const& a, sized const& b) {
      return distance(a) < distance(b);
    });
    return std::size_t(found - shapes_.begin());
  }
  train::step_times const& times_of(std::size_t i) {
    const auto known = measured_.find(i);
    return known != measured_.end() ? known->second
                                    : measured_.emplace(i, times_(shapes_[i].asked)).first->second;
  }
  double steps_in(std::size_t i, seconds time) {
    return double(
        train::steps_that_fit(time.count(), planned_run_of(shapes_[i].asked, variant_), times_of(i)));
  }
  void require_fit(std::size_t i, plan_budget const& budget, double memory) const {
    settings const& s = shapes_[i].asked;
    if (const double bytes = training_bytes(s, shapes_[i].first); bytes > memory)
      refuse("--plan", (budget.flops > 0 ? number(budget.flops) + " FLOPs" : duration_text(budget.time)) +
                           " ask for a " + variant_.name + " model of " + shape_text(s) + ", which needs " +
                           quantity(bytes) + "B, but this machine has " + quantity(memory) +
                           "B; plan less, or make --batch or --context smaller");
  }
  planned_training measured(std::size_t i, train::training_size best, double steps, plan_budget const& budget,
                            double memory) {
    require_fit(i, budget, memory);
    planned_training all{best, shapes_[i].asked, shapes_[i].size, times_of(i)};
    all.asked.steps = int(std::clamp(std::round(steps), 1.0, 2e9));
    return all;
  }

  variant variant_;
  times_function times_;
  std::vector<sized> shapes_;
  std::map<std::size_t, train::step_times> measured_;
};

/// The table of a plan: a column for each rule.
///   epoch   tokens of the text that is trained on
inline table plan_table(variant const& v, std::vector<planned_training> const& all, double epoch,
                        int symbols) {
  table t{{v.name + " model"}, {}};
  for (plan_rule const& rule : plan_rules) t.header.push_back(rule.name);
  const auto add = [&](std::string const& name, auto&& cell) {
    t.rows.push_back({name});
    for (planned_training const& one : all) t.rows.back().push_back(cell(one));
  };
  using one = planned_training const&;
  add("best: stored parameters", [](one p) { return quantity(p.best.parameters); });
  add("best: tokens", [](one p) { return quantity(p.best.tokens); });
  add("shape, layers x hidden", [](one p) { return shape_text(p.asked); });
  add("stored parameters", [](one p) { return quantity(p.chosen().parameters); });
  add("tokens", [](one p) { return quantity(p.chosen().tokens); });
  add("tokens a parameter", [](one p) { return number(p.chosen().tokens_per_parameter(), 3); });
  add("epochs of the text", [&](one p) { return number(p.chosen().tokens / epoch, 3); });
  add("steps", [](one p) { return std::to_string(p.asked.steps); });
  add("FLOPs, 6 N D", [](one p) { return number(p.chosen().flops(), 3); });
  add("FLOPs by the model's account",
      [&](one p) { return number(step_flops(p.asked, p.size, symbols) * p.asked.steps, 3); });
  add("time of a step, measured", [](one p) { return time_text(p.times.step); });
  add("minutes, without evaluations", [&](one p) {
    const double time = train::time_of_steps(p.asked.steps, planned_run_of(p.asked, v), p.times) / 60;
    return time < 100 ? number(time, 3) : fixed(time, 0);
  });
  return t;
}

/// The warning of a plan whose shapes are too few; "" if none is. A shape is one of neighbours if it has half
/// to twice the parameters.
inline std::string shapes_warning(std::vector<planned_training> const& all) {
  for (planned_training const& one : all) {
    const double share = one.chosen().parameters / one.best.parameters;
    if (share < 0.5 || share > 2 || one.asked.steps == 1 || one.asked.steps == 2000000000)
      return "warning: no shape of the list is near; the nearest has " + number(share, 2) +
             " times the parameters that would be best\n";
  }
  return "";
}

/// The warning of a plan that shows the text more often than pays; "" if none does.
inline std::string epochs_warning(std::vector<planned_training> const& all, double epoch) {
  double most = 0;
  for (planned_training const& one : all) most = std::max(most, one.chosen().tokens / epoch);
  if (most <= 4) return "";
  return "warning: up to " + number(most, 3) +
         " epochs of the text; beyond four, tokens that are shown again are worth less and less\n"
         "(Muennighoff et al. 2023): more text would be better, or a smaller plan\n";
}

/// A word as a shell reads it.
inline std::string shell_word(std::string const& word) {
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
           std::string_view("._/-+,=:@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// Options that have no meaning for a dense model.
inline constexpr std::string_view sparse_options =
    "policy|frames|period|newborn|newborn-warmup|newborn-values|grace|prune-score|prune-fraction|prune-decay|"
    "block-norm|initial-density|initial-pattern";

/// The command that trains the planned model, with the other options as they were given.
inline std::string plan_command(std::string const& typed, std::vector<given_option> const& given,
                                settings const& planned) {
  std::string command = typed;
  for (given_option const& option : given) {
    if (among("plan|only|preset|layers|hidden|heads|steps|time|name", option.name)) continue;
    if (planned.only == "dense" && among(sparse_options, option.name)) continue;
    command += " --" + option.name;
    if (find_option(settings_table(), option.name, option.where).holds<bool>())
      command += option.values[0] == "true" ? "" : "=" + option.values[0];
    else
      for (std::string const& value : option.values) command += " " + shell_word(value);
  }
  return command + tessera::message(" --only ", planned.only, " --layers ", planned.layers, " --hidden ",
                                    planned.hidden, " --heads ", planned.heads, " --steps ", planned.steps);
}

/// Times of the steps of a model, from a few of them.
inline train::step_times measured_times(settings const& s, variant const& v, token_text const& text,
                                        tessera::context& ctx) {
  constexpr double time = 2;  // seconds, at least
  constexpr int steps = 4;    // at least, which may be minutes of a large model
  const model made{make_model(first_description_of(s, v, text.symbols.size())), ctx};
  train::any_training<chosen_optimizer, chosen_policy> t(made.network->layer(), optimizer_of(s),
                                                         chosen_policy{}, turnover_of(s));
  t.policy = patterns_in_few(s, 1);
  if (s.precision == "float16") t.scaling = train::loss_scaling::adaptive();
  batch shown;
  windows_of(s, text.training, text.training_ends, text.symbols).sample(seed_of_data(s), 0, s.batch, shown);
  const auto accumulate = [&](int) { return train::learn(ctx, *made.network, t, shown, seed_of_data(s)); };
  return train::measured_steps(time, ctx, t, planned_run_of(s, v), accumulate, train::steady_clock(), steps);
}

/// The text of --plan. Throws option_error if a model would not fit the memory of this machine.
///   typed, given   how the program was called
inline std::string plan_text(settings const& s, token_text const& text, tessera::context& ctx,
                             std::string const& typed, std::vector<given_option> const& given) {
  const plan_budget budget = plan_budget_of(s.plan);
  const double epoch = double(text.training.size()), memory = double(all_memory().bytes);
  std::string all;
  for (variant const& v : variants_of(s)) {
    planner of(
        s, v, text.symbols.size(), [](model_description const& what) { return size_of(what); },
        [&](settings const& one) { return measured_times(one, v, text, ctx); });
    std::vector<planned_training> plans;
    for (plan_rule const& rule : plan_rules) plans.push_back(of.plan(rule, budget, memory));
    all += "\n" + aligned(plan_table(v, plans, epoch, text.symbols.size())) + "\n";
    for (std::size_t i = 0; i < plans.size(); ++i)
      all += std::string(plan_rules[i].name) + "\n  " + plan_command(typed, given, plans[i].asked) + "\n";
    all += shapes_warning(plans) + epochs_warning(plans, epoch);
  }
  std::string shapes;
  for (plan_shape const& shape : plan_shapes)
    shapes += (shapes.empty() ? "" : ", ") + tessera::message(shape.layers, "x", shape.hidden);
  return all + "\nShapes: " + shapes + ".\n";
}

}  // namespace pretrain
