// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include <tessera/io/json.hpp>
#include <tessera/io/text.hpp>
#include <tessera/train/peft.hpp>

#include "../common/options.hpp"
#include "model.hpp"
#include "settings.hpp"

// The adapters of a fine-tuned model: as options, and in its checkpoint.

namespace pretrain {

using namespace programs;

/// The targets of a list such as "q,v"; "all" is every matrix. Throws option_error for a name that is none.
///   where    what the list was given by, for the error
///   family   of the model
inline nn::lora_targets targets_of(std::string_view list, std::string const& where,
                                   std::string_view family = "gpt") {
  nn::lora_targets targets;
  if (list == "all") list = family == "llama" ? "q,k,v,out,up,down,gate" : "q,k,v,out,up,down";
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), name.size() + 1));
    const auto known = [&](auto const& each) { return each.first == name; };
    const auto found = std::find_if(targets.names.begin(), targets.names.end(), known);
    if (found == targets.names.end())
      refuse(
          where,
          "has no target " + tessera::io::in_quotes(std::string(name)) +
              "; there are q, k, v, qkv, out, up, down and, of a LLaMA, gate, with commas between, and all");
    targets.*found->second = true;
  }
  return targets;
}
inline std::string text_of(nn::lora_targets const& targets) {
  std::string text;
  for (auto const& [name, member] : targets.names)
    if (targets.*member) text += (text.empty() ? "" : ",") + std::string(name);
  return text;
}

inline tessera::io::json to_json(adapter_description const& of) {
  if (of.method == "prompt")
    return tessera::io::json::object{
        {"method", of.method},
        {"tokens", tessera::io::json::array(of.prompt.ids.begin(), of.prompt.ids.end())},
        {"first", of.prompt.first}};
  if (of.method == "adapter") return tessera::io::json::object{{"method", of.method}, {"width", of.width}};
  return tessera::io::json::object{{"method", of.method},
                                   {"rank", of.settings.rank},
                                   {"alpha", of.settings.alpha},
                                   {"rank_stabilised", of.settings.rank_stabilised},
                                   {"targets", text_of(of.targets)}};
}
inline adapter_description read_adapters(tessera::io::json_place const& at) {
  adapter_description read{.method = at.at("method").as_string()};
  if (read.method == "adapter") {
    read.width = at.at("width").as_integer<int>();
  } else if (read.method == "prompt") {
    read.prompt.first = at.at("first").as_integer();
    const auto tokens = at.at("tokens");
    for (std::size_t i = 0; i < tokens.size(); ++i)
      read.prompt.ids.push_back(tokens.at(i).as_integer<std::int32_t>());
  } else if (read.method == "lora") {
    read.settings = {at.at("rank").as_integer(), at.at("alpha").as_number(),
                     at.at("rank_stabilised").as_bool()};
    read.targets = targets_of(at.at("targets").as_string(), "checkpoint");
  } else {
    at.at("method").fail("should be lora, adapter or prompt");
  }
  return read;
}

/// Gives a model of `what`, which is of method lora, the adapters of a folder of PEFT.
inline adapter_description read_peft_into(train::any_model& model, model_description const& what,
                                          std::string const& folder) {
  const train::trainable_layer layer = model.layer();
  const train::peft_adapters found = train::read_peft(folder, layer);
  const adapter_description its{.settings = found.settings, .targets = found.targets};
  add_adapters(what, model, its);
  train::load_peft(folder, layer);
  return its;
}

/// The tokens of a sequence besides a prompt. Throws option_error if one leaves no room for eight.
inline int room_beside(train::prompt_tokens const& prompt, settings const& asked) {
  const std::int64_t room = std::max(asked.positions, asked.context) - prompt.size();
  if (prompt.size() > 0 && room < 8)
    refuse("--prompt-tokens", tessera::message(prompt.size(), " leave ", std::max<std::int64_t>(room, 0),
                                               " of the model's positions to the texts; 8 is the least"));
  return int(std::min<std::int64_t>(asked.context, room));
}

}  // namespace pretrain
