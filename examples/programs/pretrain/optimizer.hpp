// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "../common/chosen_optimizer.hpp"
#include "settings.hpp"

namespace pretrain {

inline chosen_optimizer optimizer_of(settings const& s) {
  if (s.optimizer == "sgd") return {train::sgd{.momentum = s.momentum, .weight_decay = s.weight_decay}};
  if (s.optimizer == "lars")
    return {train::lars{
        .momentum = s.momentum, .weight_decay = s.weight_decay, .trust_coefficient = s.trust_coefficient}};
  if (s.optimizer == "lamb")
    return {train::lamb{.weight_decay = s.weight_decay,
                        .bias_correction = s.bias_correction == "on" ? train::bias_correction::present
                                                                     : train::bias_correction::absent}};
  if (s.optimizer == "lion") return {train::lion{.weight_decay = s.weight_decay}};
  if (s.optimizer == "adamw-8bit")
    return {train::adamw_8_bits{.beta2 = 0.99, .weight_decay = s.weight_decay}};
  if (s.optimizer == "adam-mini") return {train::adam_mini{.beta2 = 0.99, .weight_decay = s.weight_decay}};
  if (s.optimizer == "schedule-free")
    return {train::schedule_free_adamw{.beta2 = 0.99, .weight_decay = s.weight_decay}};
  const auto newborn = s.newborn == "zero"   ? train::newborn_moments::zero
                       : s.newborn == "mean" ? train::newborn_moments::mean
                                             : train::newborn_moments::age;
  return {train::adamw{.beta1 = 0.9,
                       .beta2 = 0.99,
                       .weight_decay = s.weight_decay,
                       .newborn = newborn,
                       .newborn_warmup = s.newborn_warmup}};
}

}  // namespace pretrain
