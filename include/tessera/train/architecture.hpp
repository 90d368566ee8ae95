// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/nn/parameter.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

namespace detail {

/// The name of a type without namespaces, equal for all compilers: "gelu" for ops::gelu.
template <class T> std::string name_of_type() {
  std::string_view name = __PRETTY_FUNCTION__;  // "… [T = tessera::ops::gelu]", "… [with T = …::gelu; …]"
  name.remove_prefix(name.find("T = ") + 4);
  name = name.substr(0, name.find_first_of(";]<"));
  return std::string(name.substr(name.rfind(':') + 1));
}

}  // namespace detail

/// The settings of a model that its results depend on and no tensor shows; checkpoints keep and compare them.
/// Numbers and enumerations are written as numbers, other settings as the names of their types.
template <class Model> io::json architecture(Model const& model) {
  io::json::object all;
  nn::for_each_setting(model, [&](nn::parameter_name const& name, auto const& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_enum_v<Value>)
      all.push_back({name.text(), static_cast<std::int64_t>(value)});
    else if constexpr (std::is_arithmetic_v<Value>)
      all.push_back({name.text(), value});
    else
      all.push_back({name.text(), detail::name_of_type<Value>()});
  });
  return all;
}

}}}  // namespace tessera::TESSERA_ISA::train
