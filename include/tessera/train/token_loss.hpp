// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The sum of the losses of some tokens.
struct token_loss {
  double sum = 0;
  std::int64_t tokens = 0;
  double loss_scale = 1;  // factor of their gradients: nn::pass::loss_scale

  double mean() const { return sum / static_cast<double>(tokens); }
  token_loss& operator+=(token_loss const& more) {
    sum += more.sum;
    tokens += more.tokens;
    return *this;
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
