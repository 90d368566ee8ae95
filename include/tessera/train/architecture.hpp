// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/int8.hpp>
#include <tessera/eval/engines.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/text.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/statements/quantised.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/train/settings.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

namespace detail {

/// The list that a setting belongs to, and the number of its entry: "block" and 1 of block.1.order; -1 if it
/// belongs to none.
std::pair<std::string_view, std::int64_t> list_of(std::string_view key);
std::int64_t length_of_list(io::json::object const& all, std::string_view list);

/// Compares settings of a checkpoint with settings of the model or training in memory. Throws io_error with
/// both values.
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
    const bool groups = list == "group.";  // whose last is that of all other parameters, if there are any
    const auto given = [&](std::int64_t length) { return groups && length > 0 ? length - 1 : length; };
    const std::string name = list.empty() ? "of its layers"
                             : groups     ? given(in_file) == 1 ? "parameter group" : "parameter groups"
                                          : "of " + io::excerpt(list.substr(0, list.size() - 1));
    written.fail(
        message("has ", given(in_file), " ", name, ", but this ", owner, " has ", given(now), advice));
  };
  for (io::json_member const& setting : here) {
    const std::string now = io::to_text(setting.value);
    if (!written.contains(setting.key)) {
      if (!knows(setting.key)) continue;
      lists_agree(setting.key);
      written.fail(message("has no ", setting.key, ", which is ", now, " in this ", owner, advice));
    }
    const std::string in_file = io::to_text(written.at(setting.key).value());
    if (in_file == now) continue;
    lists_agree(setting.key);
    written.at(setting.key)
        .fail(
            message("is ", io::excerpt(in_file), " in the checkpoint but ", now, " in this ", owner, advice));
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
io::json architecture(setting_list const& of);

/// The settings of a model that only its training depends on, such as the rates and keys of dropout.
io::json::object training_settings(setting_list const& of);

/// The arithmetic that decides about the last bits of a model's results: the instruction set, and the engines
/// for its parameters and for the elements to which its layers round the factors of products.
std::string arithmetic_of_model(nn::parameter_list const& parameters, setting_list const& settings,
                                machine const& on);

#ifdef TESSERA_BODY

namespace detail {

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

TESSERA_BODY io::json architecture(setting_list const& of) {
  io::json::object all;
  of.for_each([&](nn::parameter_name const& name, any_setting const& each) {
    if (!each.of_training) all.push_back({name.text(), each.value});
  });
  return all;
}

TESSERA_BODY io::json::object training_settings(setting_list const& of) {
  io::json::object all;
  of.for_each([&](nn::parameter_name const& name, any_setting const& each) {
    if (each.of_training) all.push_back({"model." + name.text(), each.value});
  });
  return all;
}

TESSERA_BODY std::string arithmetic_of_model(nn::parameter_list const& parameters,
                                             setting_list const& settings, machine const& on) {
  std::set<std::string> engines;
  const auto add = [&](element_type const& of) {
    const auto add_if = [&]<class E>(std::type_identity<E>) {
      if (of.is<E>()) engines.insert({engine_words<E>(on), engine_words<eval::multiplied_as<E, E>>(on)});
    };
    add_if(std::type_identity<float>()), add_if(std::type_identity<double>());
    add_if(std::type_identity<bfloat16>()), add_if(std::type_identity<float16>());
    add_if(std::type_identity<float8_e4m3>()), add_if(std::type_identity<float8_e5m2>());
    add_if(std::type_identity<int8>());
  };
  for (nn::any_parameter const& each : parameters) add(each.tensor.element());
  settings.for_each([&](nn::parameter_name const&, any_setting const& each) {
    if (each.element) add(*each.element);
  });
  std::string words = arithmetic_of<>(on);
  for (std::string const& of_one : engines) words += of_one;
  return words;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
