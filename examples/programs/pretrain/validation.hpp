// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <tessera/core/memory.hpp>

#include "../common/format.hpp"
#include "model.hpp"
#include "windows.hpp"

namespace pretrain {

using namespace programs;

/// The windows of the validation text that an evaluation takes: all of them, or a fixed sample, evenly
/// spread, of a given number of tokens.
class validation {
 public:
  static constexpr std::size_t sample_tokens = 8192;  // of the evaluations while a run goes on

  /// The number of evaluations in a run, unless asked otherwise: twelve, but fewer if they would take more
  /// than a tenth of its time.
  static int evaluations(seconds time, seconds of_sample) {
    return static_cast<int>(std::clamp(time / 10 / std::max(of_sample, seconds(1e-6)), 2.0, 12.0));
  }

  explicit validation(window_text text) : text_(std::move(text)), chosen_(text_.windows()) {}
  validation(window_text text, std::size_t tokens) : validation(std::move(text)) {
    chosen_ =
        std::min(chosen_, tessera::ceil_div(tokens * chosen_, std::max<std::size_t>(1, text_.tokens())));
  }

  /// That it shows, about.
  std::size_t tokens() const { return chosen_ * text_.tokens() / std::max<std::size_t>(1, text_.windows()); }

  /// Shows `at_once` windows at a time; false if `stopped` says so before the end.
  template <class Show>
  bool show(int at_once, std::function<bool()> const& stopped, Show&& show_batch) const {
    batch shown;
    for (std::size_t first = 0; first < chosen_; first += static_cast<std::size_t>(at_once)) {
      if (stopped()) return false;
      shown.clear();
      for (std::size_t i = first; i < std::min(chosen_, first + static_cast<std::size_t>(at_once)); ++i)
        text_.add_window(i * text_.windows() / chosen_, shown);
      show_batch(shown);
    }
    return true;
  }
  /// The loss of a model; that of no tokens if `stopped` says so before the end.
  train::token_loss loss_of(model& of, int at_once, std::function<bool()> const& stopped) const {
    train::token_loss all;
    const auto add = [&](batch const& shown) { all += train::evaluate(of.ctx, *of.network, shown); };
    return show(at_once, stopped, add) ? all : train::token_loss{};
  }
  /// The share of the sequences of which a model says rightly whether their halves follow each other; nothing
  /// if `stopped` says so before the end.
  std::optional<double> next_right(model& of, int at_once, std::function<bool()> const& stopped) const {
    std::int64_t right = 0, sequences = 0;
    const auto add = [&](batch const& shown) {
      const std::vector<float> logits = of.network->sequence_logits(shown, {of.ctx, nn::purpose::evaluation});
      for (std::size_t i = 0; i < shown.labels.size(); ++i)
        right += (logits[2 * i + 1] > logits[2 * i]) == (shown.labels[i] == 1);
      sequences += std::ssize(shown.lengths);
    };
    if (!show(at_once, stopped, add)) return {};
    return static_cast<double>(right) / static_cast<double>(sequences);
  }

 private:
  window_text text_;
  std::size_t chosen_;
};

}  // namespace pretrain
