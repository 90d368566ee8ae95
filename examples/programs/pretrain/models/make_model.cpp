// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/core/block_shape.hpp>

#include "../model.hpp"
#include "../precision.hpp"

namespace pretrain {

namespace {

template <class Element>
std::unique_ptr<model> with_block(model_description const& what, tessera::context& ctx) {
  using tessera::block_shape;
  switch (what.block) {
    case 1:
      return new_model<Element, block_shape<1, 1>>(what, ctx);
    case 4:
      return new_model<Element, block_shape<4, 4>>(what, ctx);
    case 8:
      return new_model<Element, block_shape<8, 8>>(what, ctx);
    case 16:
      return new_model<Element, block_shape<16, 16>>(what, ctx);
    default:
      throw tessera::option_error(
          tessera::message("[model] blocks of ", what.block, "; there are 1, 4, 8, 16"));
  }
}

}  // namespace

std::unique_ptr<model> make_model(model_description const& what, tessera::context& ctx) {
  return with_element(what.precision, [&]<class Element>(std::type_identity<Element>) {
    return with_block<Element>(what, ctx);
  });
}

}  // namespace pretrain
