// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/ops/activation.hpp>
#include <tessera/train/hugging_face.hpp>
#include <tessera/train/hugging_face_tensors.hpp>
#include <tessera/train/llama_configuration.hpp>
#include <tessera/train/sparsity/scores/prune.hpp>

// Dense models of Hugging Face, GPT-2, BERT, LLaMA, Mistral and Qwen2, as models of nn/: a folder with
// config.json and model.safetensors, or the several files that model.safetensors.index.json lists.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Choices for a pretrained model that its files do not make.
struct pretrained_settings {
  double density = 1;  // of the weights of each layer: the blocks of greatest magnitude stay
  pruning_scope scope = pruning_scope::each_matrix;
  double dropout = 0;
  rotary_order rotary = rotary_order::halves;  // of the files of a LLaMA
  std::vector<std::string>* unused = nullptr;  // gets the names of tensors that the model has no place for
};

namespace detail {

/// The names that Hugging Face gives to an op.
template <class Op> std::vector<io::json> names_of_activation() {
  if constexpr (std::is_same_v<Op, ops::gelu_tanh>)
    return {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"};
  else if constexpr (std::is_same_v<Op, ops::gelu> || std::is_same_v<Op, ops::gelu_polynomial>)
    return {"gelu", "gelu_python"};
  else if constexpr (std::is_same_v<Op, ops::relu>)
    return {"relu"};
  else if constexpr (std::is_same_v<Op, ops::silu>)
    return {"silu", "swish"};
  else
    return {};
}

/// A layer with a gated MLP, as nn::llama has.
template <class Layer>
concept gated_layer = requires(Layer& layer) { layer.mlp.gate; };

/// The folder of a model, by the class of transformers that has its head.
template <class T, class Block, class Layer>
hugging_face folder_of(std::string const& folder, nn::gpt<T, Block, Layer> const&) {
  hugging_face from(folder, {{"gpt2", "GPT2LMHeadModel"}}, "transformer.");
  from.tie("transformer.wte.weight", "lm_head.weight");
  return from;
}
template <class T, class Block, gated_layer Layer>
hugging_face folder_of(std::string const& folder, nn::gpt<T, Block, Layer> const&) {
  return {folder,
          {{"llama", "LlamaForCausalLM"}, {"mistral", "MistralForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}},
          "model."};
}
template <class T, class Block, class Layer, class Op>
hugging_face folder_of(std::string const& folder, nn::encoder<T, Block, Layer, Op> const&) {
  hugging_face from(folder, {{"bert", "BertForMaskedLM"}}, "bert.");
  from.tie("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight");
  from.tie("cls.predictions.bias", "cls.predictions.decoder.bias");
  return from;
}

/// A model whose values are still to be read.
template <class Model>
nn::mutable_parameter_list made(Model& model, nn::transformer_config const& c, double epsilon) {
  model = Model(c, 0);
  nn::for_each_layer(model, [&](auto& layer) {
    if constexpr (requires { layer.epsilon; }) layer.epsilon = epsilon;
  });
  return model;
}

template <class T, class Block, class Layer>
void read_model(hugging_face& from, pretrained_settings const& settings, nn::gpt<T, Block, Layer>& model) {
  from.expect("model_type", {"gpt2"}, "BERT is an nn::encoder, and nn::gpt2 is the model");
  from.expect_activation("activation_function",
                         names_of_activation<typename decltype(Layer::mlp)::activation>(), "gelu_new",
                         "the activation of this model (nn::gpt has gelu, nn::gpt2 gelu_new) is");
  for (char const* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    from.expect(key, {false}, "nn::gpt has");
  for (char const* key : {"scale_attn_weights", "tie_word_embeddings"})
    from.expect(key, {true}, "nn::gpt has");
  nn::transformer_config c;
  c.layers = from.integer("n_layer", "num_hidden_layers", 12);
  c.hidden = from.integer("n_embd", "hidden_size", 768);
  c.heads = from.integer("n_head", "num_attention_heads", 12);
  c.context = from.integer("n_positions", "max_position_embeddings", 1024);
  c.vocabulary = from.integer("vocab_size", "", 50257, 1, most_ids);
  require_divisible(from, "n_head", c.hidden, "hidden features", c.heads);
  const auto inner = from.setting("n_inner");
  if (inner && !inner->value().is_null()) c.feed_forward = from.times_hidden("n_inner", 0, c.hidden);
  c.dropout = settings.dropout;
  const double epsilon = from.epsilon("layer_norm_epsilon", 1e-5);
  c.check();
  from.read(hugging_face_model::gpt2, c, settings.unused, [&] { return made(model, c, epsilon); });
}

template <class T, class Block, gated_layer Layer>
void read_model(hugging_face& from, pretrained_settings const& settings, nn::gpt<T, Block, Layer>& model) {
  from.expect_activation("hidden_act", names_of_activation<typename decltype(Layer::mlp)::activation>(),
                         "silu", "the activation of this model is");
  auto [shape, epsilon] = read_llama_configuration(from);
  if (shape.output == nn::output_weight::tied) from.tie("model.embed_tokens.weight", "lm_head.weight");
  shape.dropout = settings.dropout;
  shape.check();
  from.read(
      hugging_face_model::llama, shape, settings.unused, [&] { return made(model, shape, epsilon); },
      settings.rotary);
}

template <class T, class Block, class Layer, class Op>
void read_model(hugging_face& from, pretrained_settings const& settings,
                nn::encoder<T, Block, Layer, Op>& model) {
  from.expect("model_type", {"bert"}, "nn::encoder is the model");
  from.expect_activation("hidden_act", names_of_activation<typename decltype(Layer::mlp)::activation>(),
                         "gelu", "the activation of this model is");
  from.expect_activation("hidden_act", names_of_activation<Op>(), "gelu",
                         "the activation of this model's head is");
  from.expect("position_embedding_type", {"absolute"}, "nn::encoder has");
  for (char const* key : {"is_decoder", "add_cross_attention"}) from.expect(key, {false}, "nn::encoder has");
  from.expect("tie_word_embeddings", {true}, "nn::encoder has");
  nn::transformer_config c;
  c.layers = from.integer("num_hidden_layers", "", 12);
  c.hidden = from.integer("hidden_size", "", 768);
  c.heads = from.integer("num_attention_heads", "", 12);
  c.context = from.integer("max_position_embeddings", "", 512);
  c.vocabulary = from.integer("vocab_size", "", 30522, 1, most_ids);
  c.segment_types = from.integer("type_vocab_size", "", 2, 0, most_ids);
  require_divisible(from, "num_attention_heads", c.hidden, "hidden features", c.heads);
  c.feed_forward = from.times_hidden("intermediate_size", 3072, c.hidden);
  c.dropout = settings.dropout;
  const std::string pooler = "bert.pooler.dense", next = "cls.seq_relationship";
  c.next_sentence = from.has(pooler + ".weight") && from.has(next + ".weight");
  const double epsilon = from.epsilon("layer_norm_eps", 1e-12);
  c.check();
  from.read(hugging_face_model::bert, c, settings.unused, [&] { return made(model, c, epsilon); });
}

}  // namespace detail

/// A model of Hugging Face: `pretrained<nn::gpt2<float, block_shape<16>>>("gpt2")`, or an nn::encoder of BERT
/// with its masked-language-model head, and with next-sentence prediction if the files have it. Its weights
/// are pruned to blocks if `density` is below 1. Memory follows the size of the files.
///   Reads as from_pretrained of GPT2LMHeadModel and BertForMaskedLM (transformers 5): names with or without
///   "transformer." or "bert." before them, a table that is there only as the weight of the head, gamma and
///   beta of old files, and the defaults of members that the configuration lacks.
///   Throws io_error, with the file and the place, if a file or a tensor is missing (tensors of the head, in
///   a folder of a class with another head), has another shape, or is there twice with other values; if a
///   tensor has no place in the model (see pretrained_settings::unused; position_ids and the masks attn.bias
///   and attn.masked_bias are no weights); or if the configuration asks for a model that Model is not. Throws
///   option_error for settings without meaning, and for a layer that has none of the tensors.
///   Of a layer that is an adapter, the frozen tensors called weight and bias get the values.
template <class Model> Model pretrained(std::string const& folder, pretrained_settings const& settings = {}) {
  static_cast<void>(tessera::detail::blocks_at("pretrained", settings.density, 1));
  Model model;
  auto from = detail::folder_of(folder, model);
  detail::read_model(from, settings, model);
  if (settings.density < 1) prune(model, settings.density, settings.scope);
  model.config.density = settings.density;
  return model;
}

}}}  // namespace tessera::TESSERA_ISA::train
