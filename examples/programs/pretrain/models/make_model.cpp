// SPDX-License-Identifier: BSD-3-Clause
#include <type_traits>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/float16.hpp>

#include "../element_and_block.hpp"
#include "../fine_tuning.hpp"
#include "../model.hpp"
#include "../networks.hpp"

namespace pretrain {

// A build for tests alone has fewer, see CMakeLists.txt.
#ifdef TESSERA_REDUCED_TYPES
template <class Element, class Block>
constexpr bool is_compiled =
    std::is_same_v<Element, float> ? Block::rows == 4 || Block::rows == 16
                                   : Block::rows == 16 && !std::is_same_v<Element, tessera::float16>;
#else
template <class Element, class Block> constexpr bool is_compiled = true;
#endif

[[noreturn]] void refuse(model_description const& what) {
  throw tessera::option_error(tessera::message("[model] this build (TESSERA_REDUCED_TYPES) has no --block ",
                                               what.block, " with --precision ", what.precision));
}

/// Calls visit(std::type_identity<Element>(), std::type_identity<Block>()) for what a model is made of.
template <class Visit> auto with_types(model_description const& what, Visit&& visit) {
  return with_element(what.precision, [&]<class Element>(std::type_identity<Element> element) {
    return with_block(what.block, [&]<class Block>(std::type_identity<Block> block) {
      if constexpr (is_compiled<Element, Block>) {
        return visit(element, block);
      } else {
        refuse(what);
        return visit(std::type_identity<float>(), std::type_identity<tessera::block_shape<16>>());
      }
    });
  });
}

std::unique_ptr<model> make_model(model_description const& what, tessera::context& ctx) {
  return with_types(what,
                    [&]<class Element, class Block>(std::type_identity<Element>, std::type_identity<Block>) {
                      return new_model<Element, Block>(what, ctx);
                    });
}

std::unique_ptr<fine_tuning> make_fine_tuning(model_description const& what, train::checkpoint const* from,
                                              int classes, train::adamw const& optimizer,
                                              tessera::context& ctx) {
  return with_block(what.block, [&]<class Block>(std::type_identity<Block>) {
    if constexpr (is_compiled<float, Block>)
      return new_fine_tuning<Block>(what, from, classes, optimizer, ctx);
    else
      refuse(what);
    return std::unique_ptr<fine_tuning>();
  });
}

tessera::nn::model_size size_of(model_description const& what) {
  return with_types(
      what, [&]<class Element, class Block>(std::type_identity<Element>, std::type_identity<Block>) {
        const auto size = [&]<class Network>(std::type_identity<Network>) {
          return Network::size(shape_for<Network>(what), what.segments);
        };
        using networks = transformers<Element, Block>;
        using value = typename networks::gpt::value_type;
        return what.family == "bert"  ? size(std::type_identity<typename networks::bert>())
               : what.family == "rnn" ? size(std::type_identity<nn::recurrent_model<value, Block>>())
                                      : size(std::type_identity<typename networks::gpt>());
      });
}

}  // namespace pretrain
