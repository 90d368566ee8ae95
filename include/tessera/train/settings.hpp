// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/core/hash.hpp>
#include <tessera/core/random.hpp>
#include <tessera/io/json.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// A setting of a layer, an optimizer or a policy: its `parts` list it, and no tensor shows it.
struct any_setting {
  io::json value;
  bool of_training;             // only training depends on it: the rate of a dropout and the key of its masks
  element_type const* element;  // the element that it names, or null
  random_key* key;              // the setting itself, if it is a key of random choices, or null
  bool frozen;                  // of a part that is not trained, such as a copy of one that is
};

namespace detail {

using setting_visitor = function_ref<void(nn::parameter_name const&, any_setting const&)>;
using settings_walk = void (*)(void* object, setting_visitor visit);

/// The name of a type without namespaces, equal for all compilers: "gelu" for ops::gelu.
template <class T> std::string name_of_type() {
  std::string_view name = __PRETTY_FUNCTION__;  // "… [T = tessera::ops::gelu]", "… [with T = …::gelu; …]"
  name.remove_prefix(name.find("T = ") + 4);
  name = name.substr(0, name.find_first_of(";]<"));
  return std::string(name.substr(name.rfind(':') + 1));
}

/// "all" of no patterns; else their size and a hash.
std::string text_of_patterns(std::vector<pattern> const& of);

/// Numbers and enumerations are written as numbers, patterns as their size and hash, other settings as their
/// setting_name() or, if they have none, as the names of their types.
template <class Value> io::json json_of_setting([[maybe_unused]] Value const& value) {
  if constexpr (std::is_enum_v<Value>)
    return static_cast<std::int64_t>(value);
  else if constexpr (std::is_arithmetic_v<Value>)
    return value;
  else if constexpr (std::is_same_v<Value, std::string>)
    return value;
  else if constexpr (std::is_same_v<Value, random_key>)
    return value.value;
  else if constexpr (std::is_same_v<Value, std::vector<pattern>>)
    return text_of_patterns(value);
  else if constexpr (requires { value.setting_name(); })
    return value.setting_name();
  else
    return name_of_type<Value>();
}

struct visit_settings {
  setting_visitor visit;

  void parameter(nn::parameter_name const&, auto&...) {}
  void optional(nn::parameter_name const&, auto&...) {}
  void frozen(nn::parameter_name const&, auto&...) {}
  void lists(auto&...) {}
  void hyperparameter(auto&...) {}
  template <class Value> void setting(nn::parameter_name const& name, Value const& value) {
    element_type const* names = nullptr;
    if constexpr (element<Value>) names = &element_type_of<Value>;
    visit(name, {json_of_setting(value), false, names, nullptr, false});
  }
  template <class Value>
  void training_setting(nn::parameter_name const& name, Value& value, bool frozen = false) {
    random_key* key = nullptr;
    if constexpr (std::is_same_v<Value, random_key>) key = &value;
    visit(name, {json_of_setting(value), true, nullptr, key, frozen});
  }
  void frozen_training_setting(nn::parameter_name const& name, auto& value) {
    training_setting(name, value, true);
  }
};

template <class Layer> void walk_settings(void* layer, setting_visitor visit) {
  visit_settings action{visit};
  nn::detail::walk(nn::parameter_name(), action, *static_cast<Layer*>(layer));
}

}  // namespace detail

/// The settings of a layer, an optimizer or a policy, which must live longer.
class setting_list {
 public:
  template <class Layer>
    requires nn::detail::has_parts<Layer>
  setting_list(Layer const& of TESSERA_LIFETIMEBOUND)
      : setting_list(const_cast<Layer*>(&of), detail::walk_settings<Layer>) {}
  /// Of one whose type `walk` alone knows: any_layer.
  setting_list(void* object, detail::settings_walk walk) : object_(object), walk_(walk) {}

  /// Calls visit(name, setting) for each of them.
  void for_each(detail::setting_visitor visit) const { walk_(object_, visit); }

 private:
  void* object_;
  detail::settings_walk walk_;
};

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY std::string text_of_patterns(std::vector<pattern> const& of) {
  if (of.empty()) return "all";
  std::int64_t stored = 0, grid = 0;
  std::uint64_t hash = content_hash("");
  for (pattern const& one : of) {
    stored += one.blocks();
    grid += std::int64_t{one.block_rows()} * one.block_cols();
    const auto add = [&](int number) {
      const auto n = static_cast<std::uint32_t>(number);
      const std::array bytes{char(n), char(n >> 8), char(n >> 16), char(n >> 24)};
      hash = content_hash({bytes.data(), bytes.size()}, hash);
    };
    add(one.block_rows());
    add(one.block_cols());
    one.for_each([&](int i, int j, std::int64_t) { add(i), add(j); });
  }
  return message(stored, " of ", grid, " in ", of.size(), of.size() == 1 ? " pattern" : " patterns",
                 " of hash ", hash);
}

}  // namespace detail

#endif

}}}  // namespace tessera::TESSERA_ISA::train
