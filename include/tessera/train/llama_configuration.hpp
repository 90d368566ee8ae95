// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/nn/presets.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/train/hugging_face.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train { namespace detail {

/// The configuration of a LLaMA, a Mistral or a Qwen2 by config.json.
struct llama_configuration {
  nn::transformer_config shape;
  double epsilon;
};
/// Throws io_error, with its name, for a member that asks for another model.
llama_configuration read_llama_configuration(hugging_face const& from);

#ifdef TESSERA_BODY

/// The window of all layers, or 0 if they see all of the context. Throws io_error if some have one and others
/// have not.
///   is_mistral, is_qwen2   whose configurations mean 4096 if they say nothing; that of Qwen2 has one of the
///                          layers from max_window_layers on, if it is to be used
TESSERA_BODY std::int64_t read_window(hugging_face const& from, nn::transformer_config const& c,
                                      bool is_mistral, bool is_qwen2) {
  const auto is_there = [](auto const& place) { return place && !place->value().is_null(); };
  bool is_used = !is_qwen2;
  if (const auto at = from.setting("use_sliding_window")) is_used = at->as_bool();
  if (const auto types = from.setting("layer_types"); is_there(types)) {
    const std::string first = types->size() > 0 ? types->at(std::size_t{0}).as_string() : "full_attention";
    if (first != "full_attention" && first != "sliding_attention")
      types->at(std::size_t{0}).fail("is " + io::in_quotes(first) + ", which nn::llama has not");
    from.expect_all("layer_types", io::json(first), "layers of nn::llama have one kind of attention,");
    is_used = first == "sliding_attention";
  } else if (is_qwen2 && is_used) {
    const std::int64_t full = from.integer("max_window_layers", "", 28, 0);
    if (full > 0 && full < c.layers)
      from.fail("max_window_layers", message("is ", full, " of ", c.layers,
                                             " layers, but layers of nn::llama have one kind of attention"));
    is_used = full == 0;
  }
  if (!is_used) return 0;
  const auto at = from.setting("sliding_window");
  if (at && at->value().is_null()) return 0;
  const std::int64_t window = at ? at->as_integer() : is_mistral || is_qwen2 ? 4096 : c.context;
  if (window < 1) at->fail(message("is ", window, ", but should be at least 1"));
  return window < c.context ? window : 0;
}

TESSERA_BODY rotary_scaling read_rotary_scaling(io::json_place const& at) {
  const char* const key = at.contains("rope_type") ? "rope_type" : "type";
  const std::string form = at.contains(key) ? at.at(key).as_string() : "default";
  if (form != "default" && form != "linear" && form != "llama3")
    at.at(key).fail(message("is ", io::in_quotes(form),
                            ", but rotary positions are scaled as \"linear\" or \"llama3\", or not, as "
                            "\"default\""));
  constexpr std::array<std::string_view, 8> known{"rope_theta",
                                                  "rope_type",
                                                  "type",
                                                  "factor",
                                                  "low_freq_factor",
                                                  "high_freq_factor",
                                                  "partial_rotary_factor",
                                                  "original_max_position_embeddings"};
  for (io::json_member const& member : at.members())
    if (std::find(known.begin(), known.end(), member.key) == known.end())
      at.at(member).fail("is not known to nn::llama");
  rotary_scaling scaling;
  if (form == "default") return scaling;
  scaling.form = form == "linear" ? rotary_scaling_form::linear : rotary_scaling_form::llama3;
  scaling.factor = at.at("factor").as_number();
  if (!(scaling.factor >= 1)) at.at("factor").fail("should be at least 1");
  if (form == "linear") return scaling;
  scaling.long_part = at.at("low_freq_factor").as_number();
  scaling.short_part = at.at("high_freq_factor").as_number();
  scaling.trained = at.at("original_max_position_embeddings").as_integer();
  if (!(scaling.long_part > 0)) at.at("low_freq_factor").fail("should be above 0");
  if (!(scaling.short_part > scaling.long_part))
    at.at("high_freq_factor").fail("should be above low_freq_factor");
  if (scaling.trained < 1) at.at("original_max_position_embeddings").fail("should be at least 1");
  return scaling;
}

/// By `rope_parameters`, as transformers 5 writes it, or by the members of its earlier versions.
TESSERA_BODY void read_rotary(hugging_face const& from, nn::transformer_config& c) {
  const auto is_there = [](auto const& place) { return place && !place->value().is_null(); };
  const auto base = [&](io::json_place const& at) {
    c.rotary_base = at.as_number();
    if (!(c.rotary_base > 0)) at.fail("should be above 0");
  };
  if (const auto at = from.setting("rope_theta"); is_there(at)) base(*at);
  from.expect("partial_rotary_factor", {1.0, 1, io::json()}, "nn::llama has");
  auto at = from.setting("rope_parameters");
  if (!is_there(at)) at = from.setting("rope_scaling");
  if (!is_there(at)) return;
  c.scaling = read_rotary_scaling(*at);
  if (at->contains("rope_theta")) base(at->at("rope_theta"));
  if (at->contains("partial_rotary_factor") && at->at("partial_rotary_factor").as_number() != 1)
    at->at("partial_rotary_factor").fail("should be 1: nn::llama rotates all features of a head");
}

TESSERA_BODY void read_biases(hugging_face const& from, nn::transformer_config& c) {
  const auto is_true = [&](char const* key) {
    const auto at = from.setting(key);
    return at && at->as_bool();
  };
  const bool of_mlp = is_true("mlp_bias");
  if (is_true("attention_bias")) {
    c.biases_of_attention = nn::attention_bias::all;
    if (of_mlp) c.bias = nn::bias_term::present;
  } else if (of_mlp) {
    from.fail("mlp_bias",
              "is true without attention_bias, but nn::llama has biases of both, or of attention alone");
  }
}

TESSERA_BODY llama_configuration read_llama_configuration(hugging_face const& from) {
  from.expect("model_type", {"llama", "mistral", "qwen2"}, "nn::llama is the model");
  const auto type = from.setting("model_type");
  const bool is_mistral = type && type->value() == io::json("mistral"),
             is_qwen2 = type && type->value() == io::json("qwen2");
  const auto by_type = [&](std::int64_t llama, std::int64_t mistral, std::int64_t qwen2) {
    return is_mistral ? mistral : is_qwen2 ? qwen2 : llama;
  };
  nn::transformer_config c = nn::as_llama({});
  c.layers = from.integer("num_hidden_layers", "", 32);
  c.hidden = from.integer("hidden_size", "", 4096);
  c.heads = from.integer("num_attention_heads", "", 32);
  c.context = from.integer("max_position_embeddings", "", by_type(2048, 131072, 32768));
  c.vocabulary = from.integer("vocab_size", "", by_type(32000, 32000, 151936), 1, most_ids);
  c.mlp_features = from.integer("intermediate_size", "", by_type(11008, 14336, 22016));
  require_divisible(from, "num_attention_heads", c.hidden, "hidden features", c.heads);
  const auto keys = from.setting("num_key_value_heads");
  c.key_heads = keys && keys->value().is_null()
                    ? c.heads
                    : from.integer("num_key_value_heads", "", by_type(c.heads, 8, 32));
  require_divisible(from, "num_key_value_heads", c.heads, "heads of queries", c.key_heads);
  const std::int64_t head = c.hidden / c.heads;
  if (head % 2 != 0)
    from.fail("hidden_size", message("makes heads of ", head, " features, of which pairs are rotated"));
  if (const auto at = from.setting("head_dim"); at && !at->value().is_null() && at->as_integer() != head)
    at->fail(message("is ", at->as_integer(),
                     ", but heads of nn::llama have the hidden features ÷ heads: ", head));
  read_rotary(from, c);
  c.window = read_window(from, c, is_mistral, is_qwen2);
  if (is_qwen2)
    c.biases_of_attention = nn::attention_bias::inputs;
  else
    read_biases(from, c);
  const auto tied = from.setting("tie_word_embeddings");
  if (tied && tied->as_bool()) c.output = nn::output_weight::tied;
  return {c, from.epsilon("rms_norm_eps", 1e-6)};
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::train::detail
