// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/memory.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/io/folder_lock.hpp>
#include <tessera/train/any_model.hpp>
#include <tessera/train/interrupt.hpp>
#include <tessera/train/loop.hpp>
#include <tessera/train/sparsity/scores/prune.hpp>
#include <tessera/train/sparsity/scores/saliency.hpp>
#include <tessera/train/sparsity/watching/connectivity.hpp>
#include <tessera/train/sparsity/watching/layer_table.hpp>
#include <tessera/train/sparsity/watching/model_patterns.hpp>
#include <tessera/train/sparsity/watching/pattern_history.hpp>
#include <tessera/train/time_budget.hpp>
#include <tessera/train/training.hpp>

#include "../common/chosen_policy.hpp"
#include "../common/progress.hpp"
#include "average.hpp"
#include "optimizer.hpp"
#include "run_record.hpp"
#include "tensorboard.hpp"
#include "validation.hpp"
#include "windows.hpp"

namespace pretrain {

using namespace programs;

/// The training of one variant: feeds the model, and writes down its losses, patterns and checkpoints.
class training_run final : public train::program {
 public:
  training_run(run_origin const& origin, variant const& v, token_text const& text, std::string folder,
               tessera::context& ctx, tessera::io::folder_lock const& run)
      : origin_(origin),
        variant_(v),
        text_(text),
        folder_(std::move(folder)),
        run_(run),
        windows_(part_of(text.training, text.training_ends)),
        sample_(validation_part(), validation::sample_tokens),
        whole_(validation_part()),
        progress_(v.name, stdout, asked().quiet ? progress_style::none : style_of(stdout)),
        model_{new_model(), ctx} {
    begin_training();
    record_.variant = v.name;
  }

  /// Takes over the weights and patterns of another run.
  void begin_from(train::checkpoint const& earlier) {
    model_.load(earlier);
    begin_training();
  }
  /// The beginning of a new training: prunes a model that is to be pruned first, and finds out how many steps
  /// there are, in the time that evaluations leave, but at least in half of the time.
  void begin() {
    settings const& s = asked();
    if (variant_.density < 1 && s.initial_pattern != "random") {
      prune(s.initial_pattern, evolves() ? patterns_in_few(s, std::int64_t{s.updates} + 1) : chosen_policy{});
      tessera::tensor_memory::reset_peak();
    }
    record_.steps = s.steps;
    if (s.steps > 0) return;
    for (int warm = 0; warm < 2; ++warm) static_cast<void>(evaluate());  // the second one is timed
    const seconds of_sample = evaluation_time(1) - evaluation_time(0);
    record_.evaluations = validation::evaluations(s.time, of_sample);
    const seconds evaluating = evaluation_time(s.eval_every > 0 ? 0 : record_.evaluations);
    const seconds left = std::max(s.time - evaluating, s.time / 2);
    training_->policy = patterns_in_few(s, 1);
    record_.steps = train::steps_within(left.count(), model_.ctx, *training_, planned_run_of(s, variant_),
                                        [this](int i) { return accumulate(0, i); });
    if (s.eval_every > 0) {  // each step takes its share of an evaluation, too
      const double steps = static_cast<double>(record_.steps),
                   shares = steps / s.eval_every * (of_sample / left);
      record_.steps = std::max<std::int64_t>(1, static_cast<std::int64_t>(steps / (1 + shares)));
    }
    tessera::tensor_memory::reset_peak();
  }
  /// Goes on from a checkpoint of a run with other --steps or --time, if they are others now.
  void resume(train::checkpoint const& from, run_record record, settings const& planned) {
    record_ = std::move(record);
    training_->policy = evolves() ? patterns(record_.steps) : chosen_policy{};
    train::resume(*training_, from);
    model_.print_notes(from);
    if (!record_.history.is_null())
      history_ = train::pattern_history::from_json(tessera::io::json_place(record_.history), stored_now());
    if (!record_.points.empty()) write_logs();  // without the evaluations after the checkpoint
    if (planned.steps != asked().steps || planned.time != asked().time) extend(planned);
  }

  /// The first signal ends it with a checkpoint. Before and after it, a signal ends the program at once, and
  /// nothing is lost.
  train::stop_reason train() {
    signals_.emplace();
    settings const& s = asked();
    const std::int64_t steps = record_.steps;
    const auto share = [&](int count) { return tessera::ceil_div<std::int64_t>(steps, count); };
    train::loop_settings how;
    how.steps = steps;
    how.tokens = static_cast<std::int64_t>(s.until_tokens);
    how.loss = s.until_loss;
    how.clip = s.clip;
    how.evaluate_every = evaluation_interval();
    how.save_every = s.checkpoint_every > 0 ? s.checkpoint_every : share(run_record::checkpoints);
    training_->policy = evolves() ? patterns(steps) : chosen_policy{};
    if (evolves()) {
      if (history_.now().empty()) history_ = train::pattern_history(stored_now());
    }
    average_ = average_of(s, steps);
    train::stop_reason why = train::run_training(model_.ctx, *training_, how, rates(), *this, average_);
    record_.reached = training_->progress;
    if (why != train::stop_reason::interrupted) conclude();
    ended_by_ = signals_->signal();
    signals_.reset();
    progress_.end_line();
    return ended_by_ != 0 ? train::stop_reason::interrupted : why;
  }
  /// The signal that interrupted the training, or 0.
  int ended_by() const { return ended_by_; }

  run_record const& record() const { return record_; }
  model& trained() { return model_; }
  window_text validation_part() const { return part_of(text_.validation, text_.validation_ends); }

  train::token_loss accumulate(std::int64_t step, int) {
    const std::uint64_t seed = seed_of_data(asked());
    windows_.sample(seed, static_cast<std::uint64_t>(step), asked().batch, shown_);
    return train::learn(model_.ctx, *model_.network, *training_, shown_, seed);
  }

  train::token_loss evaluate() {
    const auto go_on = [] { return false; };
    const auto shown = evaluated_weights();
    average_loss_ = average_loss_over(sample_, go_on);
    return loss_over(sample_, go_on);  // takes less time than a step
  }

  void stepped(train::step_report const& report) {
    record_.recent += {report.loss * static_cast<double>(shown_.counted()), shown_.counted()};
    record_.whole_loss.reset(), record_.average_loss.reset(),
        record_.next_right.reset();  // of an earlier end
    train::progress const& now = training_->progress;
    if (report.changed.stored > 0) patterns_changed(now.step);
    if (evolves()) draw_patterns(now.step);
    progress_.show({static_cast<int>(now.step), static_cast<int>(record_.steps),
                    static_cast<double>(now.tokens), seconds(now.seconds), report.loss, report.learning_rate,
                    evaluation_time((record_.steps - now.step) / evaluation_interval()),
                    objective_of(asked()) == objective::masked_token ? "masked tokens" : "tokens"});
  }

  void evaluated(double loss) {
    train::progress const& now = training_->progress;
    record_.points.push_back({static_cast<int>(now.step), static_cast<double>(now.tokens),
                              seconds(now.seconds), record_.recent.mean(), loss, rates().rate(now.step - 1),
                              average_loss_});
    record_.recent = {};
    write_logs();
  }

  void save() {
    train::progress const& now = training_->progress;
    record_.peak_bytes =
        std::max(record_.peak_bytes, static_cast<std::int64_t>(tessera::tensor_memory::peak()));
    record_.explored = training_->explored.fraction();
    if (evolves()) record_.history = history_.to_json();
    tessera::io::json kept = to_json(origin_);
    kept["record"] = to_json(record_);
    run_.keep_in_place([&] {
      train::save(*training_, train::checkpoint_folder(folder_, now.step), std::move(kept));
      train::keep_checkpoints(folder_, asked().keep, now.best_step);
    });
  }

  bool interrupted() { return signals_->signal() != 0; }

 private:
  settings const& asked() const { return origin_.asked; }
  /// From now on the run is the rest of one that was planned for the asked steps or time.
  void extend(settings const& planned) {
    const std::int64_t now = training_->progress.step;
    const double before = now > 0 ? rates().rate(now - 1) : 0,
                 longer = asked().steps > 0 ? double(asked().steps) / double(record_.steps)
                                            : asked().time / planned.time;
    const double steps = std::round(double(record_.steps) * longer);
    if (steps <= double(now))
      refuse(asked().steps > 0 ? "--steps" : "--time",
             tessera::message("ends after ", steps, " steps, but the checkpoint is of step ", now,
                              "; say more"));
    record_.evaluations = int(std::clamp(std::round(record_.evaluations * longer), 1.0, 1e6));
    record_.steps = std::int64_t(std::min(steps, 2e9));
    record_.extended_at = now, record_.extended_rate = before;
    record_.whole_loss.reset(), record_.average_loss.reset(), record_.next_right.reset();
  }
  std::unique_ptr<train::any_model> new_model() const {
    tessera::tensor_memory::reset_peak();
    auto made = make_model(first_description_of(asked(), variant_, text_.symbols.size()));
    if (const auto how = parameterisation_of(asked()); how != train::parameterisation::standard)
      train::scale_initial_values(made->layer(), how, model_scale_of(asked(), variant_));
    return made;
  }
  /// Makes gradients and moments.
  void begin_training() {
    training_.emplace(model_.network->layer(), optimizer_of(asked()), chosen_policy{}, turnover_of(asked()));
    training_->keep(average_of(asked(), 1));
    if (const auto how = parameterisation_of(asked()); how != train::parameterisation::standard)
      training_->group_parameters(
          train::rate_groups(model_.network->layer(), how, model_scale_of(asked(), variant_)));
    // Its gradients would vanish, or overflow.
    if (asked().precision == "float16") training_->scaling = train::loss_scaling::adaptive();
  }
  /// Prunes a dense model to a share of its blocks, by --initial-pattern and the batches of the first steps.
  /// Throws option_error if `patterns` could not update the blocks that are left.
  void prune(std::string const& by, chosen_policy const& patterns) {
    constexpr int scored_batches = 8;
    train::trainable_layer layer = model_.network->layer();
    const auto add_gradient = [&](train::owned_layer& gradients) {
      std::swap(gradients, training_->gradients);
      for (int step = 0; step < scored_batches; ++step) accumulate(step, 0);
      std::swap(gradients, training_->gradients);
    };
    if (by == "magnitude") train::prune(layer, variant_.density);
    if (by == "snip") train::prune(layer, variant_.density, train::snip_scores(layer, add_gradient));
    if (by == "grasp") train::prune(layer, variant_.density, train::grasp_scores(layer, add_gradient));
    if (patterns.due(1)) train::require_possible(patterns, 1, layer);
    begin_training();
  }
  window_text part_of(std::span<token const> tokens, std::span<std::size_t const> ends) const {
    return windows_of(asked(), tokens, ends, text_.symbols);
  }

  train::model_patterns stored_now() const {
    return train::patterns_of(model_.network->layer(), density_falls(asked()));
  }

  void patterns_changed(std::int64_t step) {
    const train::pattern_turnover turnover = history_.follow(stored_now());
    record_.updates.push_back({step, turnover.stored, turnover.grown, turnover.grown_survivors(),
                               history_.survivors(), training_->explored.fraction(),
                               history_.expected_exploration()});
  }

  /// Draws the patterns if one of the evenly spaced frames is due; its number follows from the step.
  void draw_patterns(std::int64_t step) {
    const std::int64_t steps = record_.steps, frame = step * asked().frames / steps;
    if (frame == (step - 1) * asked().frames / steps) return;
    const std::string number = std::to_string(10000 + frame).substr(1);
    run_.keep_in_place([&] {
      tessera::io::make_folder(folder_ + "/frames");
      tessera::io::write_atomically(
          folder_ + "/frames/frame-" + number + ".svg",
          train::to_svg(history_.now(), history_.stored_since(record_.framed),
                        tessera::message(variant_.name, " after step ", step, " of ", steps)));
    });
    record_.framed = history_.updates();
  }

  /// The evaluations and updates of patterns so far, as CSV, JSON lines and, if asked for, an event file of
  /// TensorBoard.
  void write_logs() const {
    using tessera::io::write_atomically;
    const std::vector<loss_curve> curve{{variant_.name, record_.points}};
    run_.keep_in_place([&] {
      tessera::io::make_folder(folder_);
      write_atomically(folder_ + "/log.csv", csv(curve_table(curve)));
      write_atomically(folder_ + "/log.jsonl", json_lines(curve));
      if (!record_.updates.empty()) {
        write_atomically(folder_ + "/updates.csv", csv(pattern_table(record_.updates)));
        write_atomically(folder_ + "/updates.jsonl", json_lines(record_.updates));
      }
      if (asked().tensorboard)
        write_atomically(folder_ + "/events.out.tfevents.0." + variant_.name,
                         tensorboard_events(record_.points));
    });
  }

  /// Evaluates the whole text, once, at the end, unless a signal comes first.
  void conclude() {
    // A limit that was set only now ends it where it had been interrupted.
    if (record_.points.empty() || record_.points.back().step != record_.reached.step) {
      evaluated(evaluate().mean());
    } else if (record_.whole_loss) {
      return;
    }
    const auto stopped = [this] { return interrupted(); };
    train::token_loss all;
    std::optional<double> next_right;
    {
      const auto shown = evaluated_weights();
      all = loss_over(whole_, stopped);
      if (asked().next_sentence && all.tokens > 0)
        next_right = whole_.next_right(model_, asked().batch, stopped);
    }
    const std::optional<double> of_average = average_loss_over(whole_, stopped);
    if (all.tokens == 0 || (asked().next_sentence && !next_right) || (averages() && !of_average)) return;
    record_.whole_loss = all.mean();
    record_.average_loss = of_average;
    record_.next_right = next_right;
    run_.keep_in_place([&] {
      tessera::io::write_atomically(folder_ + "/layers.csv",
                                    train::to_csv(train::layer_table(model_.network->layer())));
    });
    save();
  }

  train::token_loss loss_over(validation const& windows, std::function<bool()> const& stopped) {
    const train::steady_clock now;
    const double start = now();
    const train::token_loss all = windows.loss_of(model_, asked().batch, stopped);
    if (all.tokens > 0) seconds_a_token_ = (now() - start) / static_cast<double>(all.tokens);
    return all;
  }
  /// The loss of the average of the weights; nothing if there is none, or `stopped` says so before the end.
  std::optional<double> average_loss_over(validation const& windows, std::function<bool()> const& stopped) {
    if (!averages() || training_->state.updates == 0) return {};
    const train::averaged_weights shown(model_.ctx, *training_);
    const train::token_loss all = windows.loss_of(model_, asked().batch, stopped);
    if (all.tokens == 0) return {};
    return all.mean();
  }
  bool averages() const { return asked().average != "none"; }
  /// Puts the average of an optimizer that is evaluated there in place of the weights, while it lives.
  std::unique_ptr<train::averaged_weights> evaluated_weights() {
    if (asked().optimizer != "schedule-free") return nullptr;
    return std::make_unique<train::averaged_weights>(model_.ctx, *training_);
  }
  /// The time of `samples` evaluations of the sample, and one of the whole text.
  seconds evaluation_time(std::int64_t samples) const {
    const int models = averages() ? 2 : 1;
    return seconds(seconds_a_token_ * models *
                   (static_cast<double>(samples) * static_cast<double>(sample_.tokens()) +
                    static_cast<double>(whole_.tokens())));
  }
  std::int64_t evaluation_interval() const {
    if (asked().eval_every > 0) return asked().eval_every;
    return tessera::ceil_div<std::int64_t>(record_.steps, record_.evaluations);
  }
  bool evolves() const { return pretrain::evolves(asked(), variant_); }

  /// How patterns evolve in a run of `steps` steps.
  chosen_policy patterns(std::int64_t steps) const { return policy_of(asked(), steps); }

  std::int64_t warmup() const {
    settings const& s = asked();
    if (s.warmup_tokens > 0)
      return std::min(record_.steps, tessera::ceil_div(static_cast<std::int64_t>(s.warmup_tokens),
                                                       std::int64_t{s.batch} * s.context));
    return static_cast<std::int64_t>(s.warmup * static_cast<double>(record_.steps));
  }
  train::extended<train::warmed_up<chosen_decay>> rates() const {
    const std::int64_t added = record_.steps - record_.extended_at;
    if (record_.extended_at < 0) return {0, 0, 0, planned_rates()};
    return {record_.extended_at, std::min(warmup(), added / 2), record_.extended_rate, planned_rates()};
  }
  train::warmed_up<chosen_decay> planned_rates() const {
    const std::int64_t warmup = this->warmup(), rest = std::max<std::int64_t>(1, record_.steps - warmup);
    const double highest = variant_.lr, lowest = highest * asked().final_lr;
    if (asked().decay == "linear") return {warmup, {train::linear{highest, lowest, rest}}};
    if (asked().decay == "wsd") return {warmup, {train::stable_decay{highest, lowest, rest}}};
    if (asked().decay == "constant") return {warmup, {train::constant{highest}}};
    if (asked().decay == "power")
      return {warmup, {train::inverse_power{highest, std::max<std::int64_t>(1, warmup)}}};
    return {warmup, {train::cosine{highest, lowest, rest}}};
  }

  run_origin const& origin_;
  variant variant_;
  token_text const& text_;
  std::string folder_;
  tessera::io::folder_lock const& run_;
  std::optional<train::interrupt_guard> signals_;
  int ended_by_ = 0;
  window_text windows_;
  batch shown_;
  validation sample_, whole_;
  double seconds_a_token_ = 0;  // of the newest evaluation
  progress progress_;
  run_record record_;
  model model_;
  std::optional<train::any_training<chosen_optimizer, chosen_policy>> training_;
  chosen_average average_;
  std::optional<double> average_loss_;  // of the newest evaluation
  train::pattern_history history_;      // followed only if patterns evolve
};

}  // namespace pretrain
