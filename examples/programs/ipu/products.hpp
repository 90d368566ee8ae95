// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/ipu/cost.hpp>
#include <tessera/ipu/options.hpp>
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

}  // namespace ipu_program
