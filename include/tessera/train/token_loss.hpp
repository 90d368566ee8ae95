// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/nn/pass.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The sum of the losses of some tokens.
struct token_loss {
  double sum = 0;
  std::int64_t tokens = 0;
  double loss_scale = 1;   // factor of their gradients: nn::pass::loss_scale
  std::int64_t step = -1;  // that the pass was made for; -1: nobody knows

  token_loss() = default;
  token_loss(double sum_of_losses, std::int64_t of_tokens, double scale = 1)
      : sum(sum_of_losses), tokens(of_tokens), loss_scale(scale) {}
  /// Of a pass, which the training step compares with its own scale and number.
  template <element T>
  token_loss(double sum_of_losses, std::int64_t of_tokens, nn::pass<T> const& by)
      : sum(sum_of_losses),
        tokens(of_tokens),
        loss_scale(by.loss_scale),
        step(static_cast<std::int64_t>(by.step)) {}
  token_loss(double sum_of_losses, std::int64_t of_tokens, nn::any_pass const& by)
      : sum(sum_of_losses),
        tokens(of_tokens),
        loss_scale(by.loss_scale),
        step(static_cast<std::int64_t>(by.step)) {}

  double mean() const { return sum / static_cast<double>(tokens); }
  token_loss& operator+=(token_loss const& more) {
    sum += more.sum;
    tokens += more.tokens;
    return *this;
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
