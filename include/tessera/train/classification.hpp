// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/io/folder_lock.hpp>
#include <tessera/io/json.hpp>
#include <tessera/nn/cross_entropy.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/matrix_view.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/sequences.hpp>
#include <tessera/tensor/token_rows.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/checkpoint_folders.hpp>
#include <tessera/train/interrupt.hpp>
#include <tessera/train/loop.hpp>
#include <tessera/train/token_loss.hpp>
#include <tessera/train/training.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Examples in the user's memory, and the class of each.
struct labelled_set {
  std::span<float const> inputs;         // (examples, features), row by row
  std::span<std::int32_t const> labels;  // (examples), 0 … classes - 1

  std::int64_t count() const { return std::ssize(labels); }
  std::int64_t features() const { return count() == 0 ? 0 : std::ssize(inputs) / count(); }
};

struct classification_settings {
  std::int64_t batch = 64;                      // examples of a step
  std::uint64_t seed = 0;                       // of the choice of examples, and of dropout
  std::string checkpoints = {};                 // their folder; none if empty
  std::ptrdiff_t keep = 2;                      // newest checkpoints that are kept, besides the best one
  interrupt_guard const* interrupts = nullptr;  // a signal ends the run with a checkpoint
};

namespace detail {
template <class Model, class T>
concept takes = requires(Model const& m, panel_matrix<T> const& x, nn::destination<T> y,
                         typename Model::saved& s, nn::pass<T> const& p) { m.forward(x, y, s, p); };
template <class Model> auto element_of_model() {
  if constexpr (takes<Model, float>)
    return float();
  else if constexpr (takes<Model, bfloat16>)
    return bfloat16();
  else if constexpr (takes<Model, float16>)
    return float16();
  else
    return double();
}
}  // namespace detail

/// A program for run_training that teaches a network, any layer from features to a number for each class, the
/// classes of a labelled set. Examples of a step are drawn at random by (seed, step, micro-batch) alone.
///   train::training t(network, train::adamw{});
///   train::classification task(ctx, t, digits, held_out, {.batch = 100, .checkpoints = "runs/digits"});
///   train::run_training(ctx, t, {.steps = 2000, .evaluate_every = 200, .save_every = 500}, rates, task);
/// From `resume` or its first step on it keeps the folder of its checkpoints (io::folder_lock): these throw
/// io_error if another process or task writes there, or nothing can be written, and `save` if the folder has
/// been moved since.
template <class Training> class classification : public program {
  using model = std::remove_cvref_t<decltype(std::declval<Training&>().model)>;
  using T = decltype(detail::element_of_model<model>());

 public:
  std::function<void(step_report const&)> on_step;                  // after each step
  std::function<void(double loss, double accuracy)> on_evaluation;  // after each evaluation

  /// The sets must outlive it. Throws shape_error for a set whose rows do not fit the network, or whose
  /// labels are no classes of it; option_error for a batch of no examples, or of more than the training set
  /// has.
  classification(context& ctx, Training& t, labelled_set training_set, labelled_set validation_set,
                 classification_settings settings = {})
      : ctx_(ctx),
        t_(t),
        training_(training_set),
        validation_(validation_set),
        settings_(std::move(settings)) {
    if (settings_.batch < 1)
      throw option_error(
          message("[classification] a batch of ", settings_.batch, " examples: there must be some"));
    classes_ = t.model.outputs(training_.features());
    require_set("training", training_);
    require_set("validation", validation_);
    if (settings_.batch > training_.count())
      throw option_error(message("[classification] a batch of ", settings_.batch,
                                 " examples is more than the training set has: at most ", training_.count(),
                                 " are possible"));
    if (training_.features() != validation_.features())
      throw shape_error(message("[classification] the training set has ", training_.features(),
                                " features but the validation set ", validation_.features()));
  }

  token_loss accumulate(std::int64_t step, int micro_batch) {
    keep_folder();
    const random_stream random(settings_.seed, random_purpose::batches, std::uint64_t(micro_batch),
                               std::uint64_t(step));
    const auto count = std::uint64_t(training_.count());
    gather(training_, settings_.batch,
           [&](std::int64_t i) { return std::int64_t(random.below(std::uint64_t(i), count)); });
    const nn::pass<T> pass = t_.pass(ctx_, batch_, room_, settings_.seed);
    t_.model.forward(x_, y_, saved_, pass);
    const double sum = loss_.forward(y_, labels_, 1, &y_, loss_saved_, pass);
    t_.model.backward(x_, saved_, y_, nullptr, t_.gradients, pass);
    return {sum, settings_.batch, pass};
  }

  /// The loss over the whole validation set; sets the accuracy.
  token_loss evaluate() {
    token_loss all;
    std::int64_t right = 0;
    for (std::int64_t first = 0; first < validation_.count(); first += settings_.batch) {
      const std::int64_t size = std::min(settings_.batch, validation_.count() - first);
      gather(validation_, size, [&](std::int64_t i) { return first + i; });
      const nn::pass<T> pass{ctx_, batch_, room_, nn::purpose::evaluation};
      t_.model.forward(x_, y_, saved_, pass);
      all += {loss_.forward(y_, labels_, 1, nullptr, loss_saved_, pass), size};
      for (std::int64_t i = 0; i < size; ++i) right += predicted(i) == labels_[std::size_t(i)];
    }
    accuracy_ = double(right) / double(validation_.count());
    return all;
  }
  /// The share of the validation set whose class had the largest output in the last evaluation; evaluates
  /// the network if there was none since it began or was resumed.
  double accuracy() {
    if (!accuracy_) evaluate();
    return *accuracy_;
  }

  void stepped(step_report const& report) {
    if (on_step) on_step(report);
  }
  void evaluated(double loss) {
    if (on_evaluation) on_evaluation(loss, accuracy());
  }
  void save() {
    if (settings_.checkpoints.empty()) return;
    keep_folder();
    sole_writer_->keep_in_place([&] {
      train::save(t_, checkpoint_folder(settings_.checkpoints, t_.progress.step), settings_to_compare());
      keep_checkpoints(settings_.checkpoints, settings_.keep, t_.progress.best_step);
    });
  }
  bool interrupted() { return settings_.interrupts && settings_.interrupts->signal() != 0; }

  /// Goes on from the newest checkpoint, if there is one. Throws io_error if it is not of this network, or
  /// unless `allowed` if another batch, seed, number of examples or setting of the training is in it: see
  /// train::resume.
  bool resume(other_settings settings = other_settings::refused) {
    if (settings_.checkpoints.empty()) return false;
    keep_folder();
    io::remove_unfinished(settings_.checkpoints);
    const auto steps = checkpoint_steps(settings_.checkpoints);
    if (steps.empty()) return false;
    const checkpoint from(checkpoint_folder(settings_.checkpoints, steps.back()));
    from.require_architecture(t_.model);
    if (settings == other_settings::refused &&
        !program_state(from).value().is_null())  // not before version 4
      detail::require_settings(program_state(from), settings_to_compare(), "classification",
                               "; set it back, or resume with train::other_settings::allowed",
                               [](std::string const& setting) { return setting != "examples"; });
    train::resume(t_, from, settings);
    accuracy_.reset();
    return true;
  }

 private:
  /// The folder of the checkpoints, which is made, is this task's alone.
  void keep_folder() {
    if (sole_writer_ || settings_.checkpoints.empty()) return;
    io::make_folder(settings_.checkpoints);
    sole_writer_.emplace(settings_.checkpoints);
  }
  io::json settings_to_compare() const {
    return io::json::object{
        {"batch", settings_.batch}, {"seed", settings_.seed}, {"examples", training_.count()}};
  }
  void require_set(const char* name, labelled_set const& set) const {
    if (set.count() == 0) throw shape_error(message("[classification] the ", name, " set has no examples"));
    if (set.count() * set.features() != std::ssize(set.inputs))
      throw shape_error(message("[classification] the ", name, " set has ", set.inputs.size(),
                                " numbers for ", set.count(),
                                " labels: each example must have as many features"));
    for (std::int64_t i = 0; i < set.count(); ++i)
      if (const std::int32_t label = set.labels[std::size_t(i)]; label < 0 || label >= classes_)
        throw shape_error(message("[classification] label ", i, " of the ", name, " set is ", label,
                                  ", but the network has ", classes_, " outputs: 0 … ", classes_ - 1));
  }

  /// Makes a batch of the examples example(0), example(1), …
  template <class Example> void gather(labelled_set const& set, std::int64_t size, Example&& example) {
    const std::int64_t features = set.features();
    if (batch_.tokens() != size)
      batch_ = sequences::of_equal_length(size, 1);  // examples do not see each other
    nn::fit(x_, features, size);
    nn::fit(y_, classes_, size);
    rows_.resize(std::size_t(size * features));
    labels_.resize(std::size_t(size));
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t from = example(i);
      std::copy_n(set.inputs.begin() + from * features, features, rows_.begin() + i * features);
      labels_[std::size_t(i)] = set.labels[std::size_t(from)];
    }
    if constexpr (std::is_same_v<accumulator_t<T>, float>)
      run(ctx_, x_ = token_rows<float const>(rows_.data(), size, features));
    else
      copy(matrix_view<float const>{rows_.data(), features, size, 1, features}, x_);
  }
  std::int32_t predicted(std::int64_t token) const {
    std::int32_t best = 0;
    for (std::int32_t c = 1; c < classes_; ++c)
      if (accumulator_t<T>(y_(c, token)) > accumulator_t<T>(y_(best, token))) best = c;
    return best;
  }

  context& ctx_;
  Training& t_;
  labelled_set training_, validation_;
  classification_settings settings_;
  std::int64_t classes_ = 0;
  std::optional<double> accuracy_;  // of the last evaluation
  std::optional<io::folder_lock> sole_writer_;

  sequences batch_;
  nn::workspace<T> room_;
  std::vector<float> rows_;
  std::vector<std::int32_t> labels_;
  panel_matrix<T> x_, y_;
  typename model::saved saved_;
  nn::cross_entropy<T> loss_;
  typename nn::cross_entropy<T>::saved loss_saved_;
};

}}}  // namespace tessera::TESSERA_ISA::train
