// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <vector>

#include <tessera/core/memory.hpp>
#include <tessera/tensor/sequences.hpp>

#include "format.hpp"
#include "model.hpp"
#include "windows.hpp"

namespace pretrain {

/// The windows of the validation text that an evaluation takes: all of them, or a fixed sample, evenly
/// spread, of about so many tokens.
class validation {
 public:
  static constexpr std::size_t sample_tokens = 8192;  // of the evaluations while a run goes on

  /// The number of evaluations in a run, unless asked otherwise: twelve, but fewer if they would take more
  /// than a tenth of its time.
  static int evaluations(seconds time, seconds of_sample) {
    return static_cast<int>(std::clamp(time / 10 / std::max(of_sample, seconds(1e-6)), 2.0, 12.0));
  }

  validation(std::span<token const> text, int context, std::size_t tokens)
      : text_(text),
        context_(context),
        windows_(window_count(text, context)),
        chosen_(std::min(windows_, tessera::ceil_div(tokens, static_cast<std::size_t>(context)))) {}

  std::size_t tokens() const {
    return std::min(text_.size() - 1, chosen_ * static_cast<std::size_t>(context_));
  }

  /// The loss of a model, `batch` windows at a time; that of no tokens if `stopped` says so before the end.
  train::token_loss loss_of(model& of, int batch, std::function<bool()> const& stopped) const {
    train::token_loss all;
    std::vector<token> inputs, targets;
    for (std::size_t first = 0; first < chosen_; first += static_cast<std::size_t>(batch)) {
      if (stopped()) return {};
      std::vector<std::int64_t> lengths;
      inputs.clear();
      targets.clear();
      for (std::size_t i = first; i < std::min(chosen_, first + static_cast<std::size_t>(batch)); ++i) {
        const window w = window_at(text_, context_, i * windows_ / chosen_);
        lengths.push_back(std::ssize(w.inputs));
        inputs.insert(inputs.end(), w.inputs.begin(), w.inputs.end());
        targets.insert(targets.end(), w.targets.begin(), w.targets.end());
      }
      const auto windows = tessera::sequences::from_lengths(lengths);
      all += {of.evaluate({windows, inputs, targets}), windows.tokens()};
    }
    return all;
  }

 private:
  std::span<token const> text_;
  int context_;
  std::size_t windows_, chosen_;
};

}  // namespace pretrain
