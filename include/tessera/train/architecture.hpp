// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

namespace detail {

/// The last part of a type's name, by every compiler: "gelu" of ops::gelu.
template <class T> std::string last_name() {
  std::string_view name = __PRETTY_FUNCTION__;  // "… [T = tessera::ops::gelu]", "… [with T = …::gelu; …]"
  name.remove_prefix(name.find("T = "));
  name = name.substr(0, name.find_first_of(";]<"));
  return std::string(name.substr(name.rfind(':') + 1));
}

}  // namespace detail

/// What a model's results depend on and none of its tensors shows: text of any kind, which checkpoints keep
/// and compare. A model says it by a member `architecture()`; of transformers it is the heads, mask, order of
/// norms, activation and dropout of their blocks; of others nothing.
template <class Model> std::string architecture(Model const& model) {
  if constexpr (requires {
                  { model.architecture() } -> std::convertible_to<std::string>;
                }) {
    return model.architecture();
  } else if constexpr (requires {
                         model.config.heads;
                         model.blocks.layers;
                       }) {
    if (model.blocks.layers.empty()) return "";
    auto const& block = model.blocks.layers.front();
    using mask = std::remove_cvref_t<decltype(block.attention.seen)>;
    using norm_order = std::remove_cvref_t<decltype(block.order)>;
    return message(model.config.heads, " heads, ",
                   block.attention.seen == mask::causal ? "causal" : "bidirectional", ", ",
                   block.order == norm_order::pre ? "pre" : "post", "-norm, ",
                   detail::last_name<typename decltype(block.mlp)::activation>(), ", dropout ",
                   io::to_text(model.config.dropout));
  } else {
    return "";
  }
}

}}}  // namespace tessera::TESSERA_ISA::train
