// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/io/json.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/train/any_layer.hpp>
#include <tessera/train/settings.hpp>

// Random choices while training have a name as key: that of the parameter whose pattern or value changes, or
// of the dropout in its model. Before version 5 of checkpoints the keys were numbers; a run that goes on from
// one of these keeps them, and its checkpoints say so.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The keys of a training's random choices for matrices.
///   numbers   of the matrix among all matrices of the model
///   names     of the parameter
enum class stream_keys { numbers, names };

/// The key for a matrix of a model.
inline random_key key_of(stream_keys keys, std::string const& name, std::uint64_t number) {
  return keys == stream_keys::names ? random_key(name) : random_key(number);
}

namespace detail {

inline char const* text_of(stream_keys keys) { return keys == stream_keys::names ? "names" : "numbers"; }

/// The keys of a checkpoint, by its state.
stream_keys stream_keys_in(io::json_place const& state);

/// Throws option_error if two layers that draw, such as dropouts whose rate is not 0, have one key. A frozen
/// copy may have that of its original.
void require_own_keys(setting_list const& of);

/// A key that a layer of a model keeps, as a dropout does.
struct kept_key {
  std::string setting, in_file;  // its name among the settings of the training, here and in a checkpoint
  random_key key;                // of the checkpoint, or of the model if the checkpoint has none
};

/// The keys of a model that goes on from a checkpoint, in their order.
std::vector<kept_key> kept_keys(io::json_place const& state, mutable_any_layer const& model);

/// Puts the keys of a checkpoint into the settings that are compared with its own.
void put_keys(io::json& settings, std::vector<kept_key> const& keys);
/// And into the model.
void put_keys(mutable_any_layer const& model, std::vector<kept_key> const& keys);

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY stream_keys stream_keys_in(io::json_place const& state) {
  if (!state.contains("random_keys")) return stream_keys::numbers;
  const io::json_place keys = state.at("random_keys");
  for (const auto known : {stream_keys::numbers, stream_keys::names})
    if (keys.as_string() == text_of(known)) return known;
  keys.fail("should be \"names\" or \"numbers\"");
}

/// Calls visit(setting, key) for the keys that the layers of a model keep.
template <class Visit> void for_each_key(mutable_any_layer const& model, Visit&& visit) {
  setting_list(model).for_each([&](nn::parameter_name const& name, any_setting const& each) {
    if (each.key) visit("model." + name.text(), *each.key);
  });
}

TESSERA_COLD TESSERA_BODY std::vector<kept_key> kept_keys(io::json_place const& state,
                                                          mutable_any_layer const& model) {
  std::vector<kept_key> all;
  std::map<std::uint64_t, random_key> before;  // for keys of the model, which a frozen copy has, too
  for_each_key(model, [&](std::string const& setting, random_key& key) {
    const std::string layer = setting.substr(0, setting.rfind('.'));
    const std::string numbered = layer + ".layer";  // before version 5
    kept_key its{setting, setting, key};
    if (!state.contains("settings")) {  // before version 4, which numbered dropouts in their order
      const std::uint64_t place = before.size();
      const auto [number, is_new] = before.try_emplace(key.value, key);
      // One that the program has numbered itself keeps its number. In a head for sequences it was number
      // 1 + 4 layers, where the layers have two each.
      if (is_new && key == random_key(layer.substr(std::string_view("model.").size())))
        number->second = setting.ends_with("pooled_dropout.key") ? 2 * place - 1 : place;
      its.key = number->second;
    } else if (const io::json_place settings = state.at("settings"); settings.contains(setting)) {
      its.key = settings.at(setting).as_integer<std::uint64_t>();
    } else if (settings.contains(numbered)) {
      its.in_file = numbered;
      its.key = settings.at(numbered).as_integer<std::uint64_t>();
    }
    all.push_back(its);
  });
  return all;
}

TESSERA_COLD TESSERA_BODY void put_keys(io::json& settings, std::vector<kept_key> const& keys) {
  for (io::json_member& one : *settings.get_if<io::json::object>())
    for (kept_key const& its : keys)
      if (one.key == its.setting) {
        one = {its.in_file, its.key.value};
        break;
      }
}

TESSERA_COLD TESSERA_BODY void put_keys(mutable_any_layer const& model, std::vector<kept_key> const& keys) {
  auto next = keys.begin();
  for_each_key(model, [&](std::string const&, random_key& key) { key = (next++)->key; });
}

TESSERA_BODY void require_own_keys(setting_list const& of) {
  std::map<std::uint64_t, std::string> drawing;
  std::string idle;  // the last layer of rate 0
  of.for_each([&](nn::parameter_name const& name, any_setting const& each) {
    const std::string setting = name.text(), layer = setting.substr(0, setting.rfind('.'));
    if (double const* rate = each.value.get_if<double>(); rate && *rate == 0 && name.last() == "rate")
      idle = setting;
    if (!each.key || each.frozen || layer + ".rate" == idle) return;
    const auto [first, is_new] = drawing.try_emplace(each.key->value, layer);
    if (!is_new)
      throw option_error(message("[training] ", first->second, " and ", layer,
                                 " would drop the same features, because they have one key: construct each ",
                                 "with its own name in the model, nn::dropout(rate, \"", layer, "\")"));
  });
}

#endif

}  // namespace detail

}}}  // namespace tessera::TESSERA_ISA::train
