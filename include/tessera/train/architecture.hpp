// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/hash.hpp>
#include <tessera/core/random.hpp>
#include <tessera/eval/engines.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/text.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/pattern.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

namespace detail {

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

/// The list that a setting belongs to, and the number of its entry: "block" and 1 of block.1.order; -1 if it
/// belongs to none.
std::pair<std::string_view, std::int64_t> list_of(std::string_view key);
std::int64_t length_of_list(io::json::object const& all, std::string_view list);

/// Compares settings of a checkpoint with those of what is there. Throws io_error with both values.
///   owner    "model" or "training"
///   advice   the end of the error
///   knows    whether the checkpoint can have a setting of this name
template <class Knows>
TESSERA_COLD void require_settings(io::json_place const& written, io::json const& asked, char const* owner,
                                   char const* advice, Knows&& knows) {
  io::json::object const &there = written.members(), &here = *asked.get_if<io::json::object>();
  const auto lists_agree = [&](std::string_view key) {
    const auto [list, number] = list_of(key);
    const std::int64_t in_file = length_of_list(there, list), now = length_of_list(here, list);
    if (number < 0 || in_file == now) return;
    const std::string name = list.empty() ? "its layers" : io::excerpt(list.substr(0, list.size() - 1));
    written.fail(message("has ", in_file, " of ", name, ", but this ", owner, " has ", now, advice));
  };
  for (io::json_member const& setting : here) {
    const std::string now = io::to_text(setting.value);
    if (!written.contains(setting.key)) {
      if (!knows(setting.key)) continue;
      lists_agree(setting.key);
      written.fail(message("has no ", setting.key, ", which is ", now, " in this ", owner, advice));
    }
    if (const std::string in_file = io::to_text(written.at(setting.key).value()); in_file != now)
      written.at(setting.key)
          .fail(message("is ", io::excerpt(in_file), " in the checkpoint but ", now, " in this ", owner,
                        advice));
  }
  for (io::json_member const& setting : there) {
    if (asked.find(setting.key)) continue;
    lists_agree(setting.key);
    written.at(setting).fail(message("is ", io::excerpt(io::to_text(setting.value)),
                                     " in the checkpoint, but this ", owner, " has none", advice));
  }
}

}  // namespace detail

/// The settings of a model that its results depend on and no tensor shows; checkpoints keep and compare them.
/// Also of an optimizer or a policy.
template <class Model> io::json architecture(Model const& model) {
  io::json::object all;
  nn::for_each_setting(model, [&](nn::parameter_name const& name, auto const& value) {
    all.push_back({name.text(), detail::json_of_setting(value)});
  });
  return all;
}

/// The settings of a model that only its training depends on, such as the rates and keys of dropout.
template <class Model> io::json::object training_settings_of(Model const& model) {
  io::json::object all;
  nn::for_each_training_setting(model, [&](nn::parameter_name const& name, auto const& value) {
    all.push_back({"model." + name.text(), detail::json_of_setting(value)});
  });
  return all;
}

/// Calls visit(setting, key) for the keys of random choices among them.
template <class Model, class Visit> void for_each_training_key(Model& model, Visit&& visit) {
  nn::for_each_training_setting(model, [&](nn::parameter_name const& name, auto& value) {
    if constexpr (std::is_same_v<decltype(value), random_key&>) visit("model." + name.text(), value);
  });
}

namespace detail {

/// What decides about the last bits of a model's results: the engines are those of its parameters, and of
/// the elements to which its layers round the factors of products.
template <class Model> std::string arithmetic_of_model(Model const& model, machine const& on) {
  std::set<std::string> engines;
  const auto add = [&](nn::parameter_name const&, auto const& of) {
    if constexpr (element<std::remove_cvref_t<decltype(of)>>) {
      using E = std::remove_cvref_t<decltype(of)>;
      engines.insert({engine_words<E>(on), engine_words<eval::multiplied_as<E, E>>(on)});
    }
  };
  nn::for_each_parameter(model, [&](nn::parameter_name const& name, auto const& parameter) {
    add(name, typename std::remove_cvref_t<decltype(parameter)>::value_type());
  });
  nn::for_each_setting(model, add);
  std::string words = arithmetic_of<>(on);
  for (std::string const& of_one : engines) words += of_one;
  return words;
}

}  // namespace detail

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

TESSERA_BODY std::pair<std::string_view, std::int64_t> list_of(std::string_view key) {
  for (std::size_t begin = 0; begin < key.size();) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    std::int64_t number = -1;
    const auto [last, failure] = std::from_chars(key.data() + begin, key.data() + end, number);
    if (failure == std::errc() && last == key.data() + end) return {key.substr(0, begin), number};
    begin = end + 1;
  }
  return {"", -1};
}

TESSERA_BODY std::int64_t length_of_list(io::json::object const& all, std::string_view list) {
  std::int64_t length = 0;
  for (io::json_member const& one : all)
    if (const auto [its, number] = list_of(one.key); its == list) length = std::max(length, number + 1);
  return length;
}

}  // namespace detail

#endif

}}}  // namespace tessera::TESSERA_ISA::train
