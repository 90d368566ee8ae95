// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/vectors.hpp>
#include <tessera/train/any_layer.hpp>
#include <tessera/train/optimizers/optimizer.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>
#include <tessera/train/step_hook.hpp>

// Averages of the weights of a run, which often have a lower loss than the last ones: the training goes on as
// without them.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// How weights are averaged.
enum class averaging {
  ema,   // exponential moving average (Polyak & Juditsky 1992): average ← d · average + (1 - d) · w, where d
         // is `decay` or, after few samples n, (1 + n) ÷ (10 + n), so that the first weights are soon
         // forgotten
  lawa,  // mean of the last `keep` snapshots (Kaddour 2022, "Stop Wasting My Time! Saving Days of ImageNet
         // and BERT Training with Latest Weight Averaging")
};

/// The samples of before, when an update changes a pattern.
enum class samples_before {
  forgotten,  // another model is trained now: the average begins anew
  united,     // the average is over the union of the patterns, of which the model shows the blocks that it
              // stores: a block that grows was zero, and one that is pruned leaves the average
};

/// A hook that averages the weights, of narrow parameters their masters, into the array "average" of the
/// training's state, which a checkpoint holds: t.keep(average) before the training resumes, and average as a
/// hook of train_step or run_training. The average begins with the weights after the first update.
/// `averaged_weights` evaluates it.
///   memory   of an accumulator for each weight: 1 (ema), keep + 1 (lawa)
struct weight_average : step_hook {
  averaging by = averaging::ema;
  double decay = 0.999;    // of ema, [0, 1)
  std::int64_t every = 1;  // updates from one sample of the weights to the next
  int keep = 10;           // snapshots of lawa
  samples_before before_an_update = samples_before::forgotten;

  static weight_average ema(double decay = 0.999, std::int64_t every = 1) {
    weight_average one;
    one.decay = decay;
    one.every = every;
    return one;
  }
  static weight_average lawa(std::int64_t every, int keep = 10) {
    weight_average one;
    one.by = averaging::lawa;
    one.every = every;
    one.keep = keep;
    return one;
  }

  /// Throws option_error for settings that make no sense.
  void check() const;
  void state(state_list& each, any_tensor const&) const {
    each.elements("average");
    if (by == averaging::lawa)
      for (int i = 0; i < keep; ++i) each.elements("snapshot." + std::to_string(i));
  }
  template <class Training, class Update>
  void around_update(context& ctx, Training& t, Update const& update) const {
    update();
    const bool first = t.state.numbers["average.samples"] == 0;
    if (first || t.state.updates % every == 0) add(ctx, t.listed_model(), t.state);
  }
  template <class Training> void evolved(context& ctx, Training& t) const {
    if (before_an_update == samples_before::united) return;
    t.state.numbers["average.samples"] = 0;
    add(ctx, t.listed_model(), t.state);
  }
  /// Takes a sample of the weights of a model that this state belongs to.
  void add(context& ctx, nn::mutable_parameter_list& model, optimizer_state& state) const;
};

/// While it lives, a model has the weights of an array of its training's state in place of its own, of which
/// it gets every bit back; of an optimizer that keeps the way to an average, "to_average", the sum of both.
/// Layers follow both changes. A step or a checkpoint is refused meanwhile. Throws option_error if no
/// parameter has such an array.
///
///   {
///     const train::averaged_weights shown(ctx, t);
///     loss = evaluate(t.model);
///   }
class averaged_weights {
 public:
  template <class Training>
  averaged_weights(context& ctx, Training& t TESSERA_LIFETIMEBOUND, std::string name = "average")
      : averaged_weights(ctx, t.model, t.state, t.progress.step, t.shows_average, std::move(name)) {}
  averaged_weights(averaged_weights const&) = delete;
  averaged_weights& operator=(averaged_weights const&) = delete;
  ~averaged_weights();

 private:
  averaged_weights(context& ctx, trainable_layer model, optimizer_state const& state, std::int64_t step,
                   bool& shown, std::string const& name);

  context& ctx_;
  trainable_layer model_;
  std::int64_t step_;
  bool& shown_;
  std::vector<aligned_array<std::byte>> own_;  // values of each parameter
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void weight_average::check() const {
  if (!(decay >= 0 && decay < 1))
    throw option_error(message("[weight_average] decay is ", decay, ": it must be in [0, 1)"));
  if (every < 1)
    throw option_error(message("[weight_average] every is ", every, ": it must be a number of updates"));
  if (keep < 1)
    throw option_error(message("[weight_average] keep is ", keep, ": it must be a number of snapshots"));
}

namespace detail {

/// The mean of snapshots, in double.
template <class T>
void take_mean(context& ctx, T* average, std::int64_t size, state_array const* snapshots, int count) {
  constexpr std::int64_t share = 1 << 14;
  ctx.run(static_cast<int>(ceil_div(size, share)), [&](int part, std::byte*) {
    for (std::int64_t k = part * share; k < std::min(size, (part + 1) * share); ++k) {
      double sum = 0;
      for (int i = 0; i < count; ++i) sum += double(snapshots[i].data<T>()[k]);
      average[k] = T(sum / count);
    }
  });
}

/// One sample of the weights of a parameter, after `samples` others.
template <class T>
void add_sample(context& ctx, weight_average const& how, T const* weights, std::vector<state_array>& arrays,
                std::int64_t samples) {
  const auto found = std::find_if(arrays.begin(), arrays.end(),
                                  [](state_array const& array) { return array.name == "average"; });
  if (found == arrays.end())
    throw option_error("[weight_average] the state of the training has no average: t.keep(average) first");
  state_array* const first = &*found;  // snapshots follow
  const auto copy_to = [&](state_array& array) {
    std::memcpy(array.bytes.data(), weights, array.bytes.size());
  };
  if (how.by == averaging::lawa) {
    copy_to(first[1 + samples % how.keep]);
    take_mean(ctx, first->data<T>(), first->size(), first + 1,
              int(std::min<std::int64_t>(samples + 1, how.keep)));
  } else if (samples == 0) {
    copy_to(*first);
  } else {  // weights that stay keep their bits
    auto average = feature_vector<T>::of_values(first->data<T>(), first->size());
    const auto w = feature_vector<T>::of_values(const_cast<T*>(weights), first->size());
    const double decay = std::min(how.decay, double(1 + samples) / double(10 + samples));
    run(ctx, average = average + (w - average) * (1 - decay));
  }
}

}  // namespace detail

TESSERA_BODY void weight_average::add(context& ctx, nn::mutable_parameter_list& model,
                                      optimizer_state& state) const {
  check();
  double& samples = state.numbers["average.samples"];
  for (std::size_t i = 0; i < model.size(); ++i) {
    std::vector<state_array>& arrays = state.parameters.at(i);
    void const* const weights = model[i].is_narrow() ? arrays.at(0).bytes.data() : model[i].tensor.data();
    if (model[i].tensor.element().accumulator->is<float>())
      detail::add_sample(ctx, *this, static_cast<float const*>(weights), arrays, std::int64_t(samples));
    else
      detail::add_sample(ctx, *this, static_cast<double const*>(weights), arrays, std::int64_t(samples));
  }
  ++samples;
}

namespace detail {

/// The array of that name or, of "average", of the way to it.
inline state_array const& average_array(optimizer_state const& state, std::size_t i,
                                        std::string const& name) {
  const bool is_way = name == "average" && !state.has(i, name) && state.has(i, "to_average");
  return state.at(i, is_way ? "to_average" : name);
}

inline std::vector<double> averaged_values(optimizer_state const& state, std::size_t i,
                                           nn::any_parameter const& of, std::string const& name) {
  state_array const& array = average_array(state, i, name);
  std::vector<double> values = array.values();
  if (array.name == name) return values;
  const std::vector<double> from = of.is_narrow() ? state.at(i, "master").values() : of.tensor.values();
  for (std::size_t k = 0; k < values.size(); ++k) values[k] += from[k];
  return values;
}

}  // namespace detail

TESSERA_BODY averaged_weights::averaged_weights(context& ctx, trainable_layer model,
                                                optimizer_state const& state, std::int64_t step, bool& shown,
                                                std::string const& name)
    : ctx_(ctx), model_(model), step_(step), shown_(shown) {
  if (shown) throw option_error("[averaged_weights] the model has other weights than its own already");
  nn::mutable_parameter_list all(model_);
  require_state("averaged_weights", all, state);
  for (std::size_t i = 0; i < all.size(); ++i) detail::average_array(state, i, name);
  for (std::size_t i = 0; i < all.size(); ++i) {
    any_tensor& tensor = all[i].tensor;
    aligned_array<std::byte>& own = own_.emplace_back(tensor.size_bytes());
    std::memcpy(own.data(), tensor.data(), own.size());
    tensor.set_values(detail::averaged_values(state, i, all[i], name));
  }
  shown_ = true;
  model_.refresh(ctx_, step_);
}

TESSERA_BODY averaged_weights::~averaged_weights() {
  nn::mutable_parameter_list all(model_);
  for (std::size_t i = 0; i < all.size(); ++i)
    std::memcpy(all[i].tensor.data(), own_[i].data(), own_[i].size());
  shown_ = false;
  model_.refresh(ctx_, step_);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
