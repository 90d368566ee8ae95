// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/random.hpp>
#include <tessera/ipu/cost.hpp>
#include <tessera/ipu/popsparse/options.hpp>
#include <tessera/ipu/target.hpp>
#include <tessera/tensor/pattern.hpp>

#include "settings.hpp"

namespace ipu_program {

struct sparse_product {
  tessera::ipu::product_shape shape;
  tessera::pattern stored;
  int block;
};
sparse_product asked_product(settings const& s);
tessera::ipu::precision asked_type(settings const& s);
tessera::ipu::option_flags asked_options(settings const& s);
/// Number i of the program's operands, uniform in [-1, 1).
inline float random_value(std::uint64_t seed, std::uint64_t i) {
  return float(2 * tessera::random_stream(seed, tessera::random_purpose::initial_values).uniform(i) - 1);
}

}  // namespace ipu_program
