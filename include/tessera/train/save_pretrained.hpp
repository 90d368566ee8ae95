// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/transformer_block.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/mask.hpp>
#include <tessera/train/any_layer.hpp>
#include <tessera/train/hugging_face_tensors.hpp>
#include <tessera/train/settings.hpp>

// The way back from pretrained.hpp: models of nn/ as folders of Hugging Face.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// A file of a folder: `write(path)` writes it.
struct added_file {
  std::string name;
  std::function<void(std::string const& path)> write;
};

/// What a folder of Hugging Face has besides weights, shape and ops.
struct pretrained_folder {
  io::json::object configuration = {};  // more members of config.json, or others: {"eos_token_id", 50256}
  std::vector<added_file> files = {};   // tokenizer.json and others
  std::int64_t context = 0;             // of a LLaMA, whose tensors do not show it: its longest sequence
  rotary_order rotary = rotary_order::halves;  // of a LLaMA
};

/// Writes an nn::gpt, nn::llama, nn::encoder or nn::sequence_classifier as save_pretrained of transformers 5
/// does, for from_pretrained of GPT2LMHeadModel, LlamaForCausalLM, with biases of Q, K and V alone
/// Qwen2ForCausalLM, BertForMaskedLM, where the encoder predicts next sentences BertForPreTraining, and
/// BertForSequenceClassification, whose classes `id2label` in the configuration names. The folder gets
/// config.json and model.safetensors, is new or has only files of these names, and appears as a whole.
/// Tensors keep their elements; absent blocks are zeros in them, so that memory for the dense model is
/// needed. Weights that are multiplied in 8 bits here are not rounded to them.
/// A LLaMA with a window is written as MistralForCausalLM.
///   Throws option_error, with the name of a tensor or a setting, for a model that is none of these: rotary
/// positions or norms without bias in a GPT, a gated MLP beside layer norms, scaled residual connections,
/// layers that are used several times, a factorised embedding, adapters that are not merged. Throws io_error
/// for a folder that cannot be written.
void save_pretrained(std::string const& folder, any_layer const& model, pretrained_folder const& more = {});

#ifdef TESSERA_BODY

namespace detail {

/// A model, as GPT-2, BERT or LLaMA.
class outgoing_hugging_face {
 public:
  outgoing_hugging_face(any_layer const& model, std::int64_t context, rotary_order rotary)
      : list_(model),
        tensors_(list_),
        settings_(model),
        is_classifier_(tensors_.find("classifier.weight") != nullptr),
        family_(is_classifier_ || tensors_.find("head.bias") ? hugging_face_model::bert
                : tensors_.find("block.0.mlp.gate.weight")   ? hugging_face_model::llama
                                                             : hugging_face_model::gpt2) {
    shape_.vocabulary = need("token_embedding").rows();
    shape_.context = is_llama() ? context : need("position_embedding").rows();
    shape_.layers = 0;
    while (tensors_.find(message("block.", shape_.layers, ".mlp.up.weight"))) ++shape_.layers;
    shape_.hidden = need("block.0.mlp.up.weight").cols();
    shape_.mlp_features = need("block.0.mlp.up.weight").rows();
    any_tensor const* const segments = tensors_.find("segment_embedding");
    if (is_bert()) shape_.segment_types = segments ? segments->rows() : 2;
    shape_.next_sentence = tensors_.find("next_sentence.pooler.weight") != nullptr;
    if (is_llama()) find_parts_of_llama();
    settings_.for_each([&](nn::parameter_name const& name, any_setting const& each) {
      take(name.text(), std::string(name.last()), each);
    });
    shape_.heads = number("heads"), shape_.key_heads = number(is_llama() ? "key_heads" : "heads");
    if (is_llama()) require_llama();
    const auto visit = [&](hugging_face_tensor const& each) {
      if (!is_classifier_ || !each.ours.starts_with("head.")) add(each);
    };
    for_each_tensor(family_, shape_, visit, rotary);
    if (is_classifier_) add_classifier();
    refuse_others();
  }

  io::json::object configuration() const {
    io::json::object all{{"architectures", io::json::array{class_name()}},
                         {"model_type", is_bert()    ? "bert"
                                        : is_qwen2() ? "qwen2"
                                        : window()   ? "mistral"
                                        : is_llama() ? "llama"
                                                     : "gpt2"},
                         {"dtype", dtype()},
                         {"vocab_size", shape_.vocabulary},
                         {"tie_word_embeddings", shape_.output == nn::output_weight::tied}};
    const auto add = [&](char const* key, char const* key_of_gpt2, io::json value) {
      all.push_back({family_ == hugging_face_model::gpt2 ? key_of_gpt2 : key, std::move(value)});
    };
    add("hidden_size", "n_embd", shape_.hidden);
    add("num_hidden_layers", "n_layer", shape_.layers);
    add("num_attention_heads", "n_head", shape_.heads);
    add("intermediate_size", "n_inner", shape_.inner());
    add("max_position_embeddings", "n_positions", shape_.context);
    add("hidden_act", "activation_function", noted("activation"));
    add(is_llama() ? "rms_norm_eps" : "layer_norm_eps", "layer_norm_epsilon", noted("epsilon"));
    if (is_llama()) return add_llama(std::move(all));
    add("attention_probs_dropout_prob", "attn_pdrop", 0.0);
    add("hidden_dropout_prob", "resid_pdrop", dropout_);
    if (is_bert())
      all.push_back({"type_vocab_size", shape_.segment_types});
    else
      all.push_back({"embd_pdrop", dropout_});
    return all;
  }
  std::span<io::safetensor const> tensors() const { return written_; }

 private:
  bool is_bert() const { return family_ == hugging_face_model::bert; }
  bool is_llama() const { return family_ == hugging_face_model::llama; }
  /// Keys that a token sees; 0: all.
  std::int64_t window() const {
    io::json const* const value = noted_.find("window");
    return value ? *value->get_if<std::int64_t>() : 0;
  }
  bool is_qwen2() const { return shape_.biases_of_attention == nn::attention_bias::inputs; }
  char const* class_name() const {
    return is_qwen2()             ? "Qwen2ForCausalLM"
           : window()             ? "MistralForCausalLM"
           : is_llama()           ? "LlamaForCausalLM"
           : !is_bert()           ? "GPT2LMHeadModel"
           : is_classifier_       ? "BertForSequenceClassification"
           : shape_.next_sentence ? "BertForPreTraining"
                                  : "BertForMaskedLM";
  }

  void find_parts_of_llama() {
    const auto has = [&](char const* name) { return tensors_.find(name) != nullptr; };
    if (has("output")) shape_.output = nn::output_weight::own;
    if (!has("block.0.mlp.up.bias")) shape_.bias = nn::bias_term::absent;
    if (has("block.0.attention.out.bias"))
      shape_.biases_of_attention = nn::attention_bias::all;
    else if (has("block.0.attention.qkv.bias"))
      shape_.biases_of_attention = nn::attention_bias::inputs;
  }
  /// Throws for what no tensor shows.
  void require_llama() const {
    if (*noted("rotary_base").get_if<double>() == 0)
      refuse(message("the model has no rotary positions, which ", class_name(), " has"));
    for (std::string const& norm : norms_)
      if (!not_centred_.contains(norm))
        refuse(message(norm, " subtracts the mean, and a norm of ", class_name(), " does not"));
    if (window() && !is_qwen2() && shape_.qkv_bias() == nn::bias_term::present)
      refuse("the model has a window and biases, and MistralForCausalLM has none of these");
    if (shape_.context < 1)
      refuse(message("pretrained_folder::context is ", shape_.context,
                     ": make it the longest sequence, which ", class_name(), " has in its configuration"));
  }
  io::json::object add_llama(io::json::object all) const {
    all.push_back({"num_key_value_heads", shape_.key_heads});
    io::json rotary = io::json::object{{"rope_theta", noted("rotary_base")}, {"rope_type", "default"}};
    if (noted_.find("rotary_scaling")) {
      const bool linear =
          noted("rotary_scaling") == io::json(static_cast<std::int64_t>(rotary_scaling_form::linear));
      rotary["rope_type"] = linear ? "linear" : "llama3";
      rotary["factor"] = noted("rotary_factor");
      if (!linear) {
        rotary["low_freq_factor"] = noted("rotary_long_part");
        rotary["high_freq_factor"] = noted("rotary_short_part");
        rotary["original_max_position_embeddings"] = noted("rotary_trained");
      }
      all.push_back({"rope_scaling", rotary});  // of transformers 4, as the next one
    }
    all.push_back({"rope_theta", noted("rotary_base")});
    all.push_back({"rope_parameters", std::move(rotary)});
    if (window()) all.push_back({"sliding_window", window()});
    if (is_qwen2()) {
      all.push_back({"use_sliding_window", window() > 0});
      if (window()) {
        all.push_back({"max_window_layers", 0});
        all.push_back({"layer_types", io::json::array(std::size_t(shape_.layers), "sliding_attention")});
      }
    } else if (!window()) {
      all.push_back({"attention_bias", shape_.qkv_bias() == nn::bias_term::present});
      all.push_back({"mlp_bias", shape_.bias == nn::bias_term::present});
    }
    return all;
  }
  char const* dtype() const {
    const std::string_view name = need("token_embedding").element().name;
    return name == "BF16" ? "bfloat16" : name == "F16" ? "float16" : name == "F64" ? "float64" : "float32";
  }
  [[noreturn]] void refuse(std::string const& what) const {
    throw option_error(message("[save_pretrained] ", what));
  }
  any_tensor const& need(std::string const& name) const {
    if (any_tensor const* const found = tensors_.find(name)) return *found;
    refuse(message("the model has no ", name, ", which ", class_name(), " has"));
  }

  /// Takes note of a setting, or throws for one that the other model does not have.
  void take(std::string const& name, std::string const& last, any_setting const& each) {
    const auto must_be = [&](io::json const& value) {
      if (!(each.value == value))
        refuse(message(name, " is ", io::to_text(each.value), ", but in ", class_name(), " it is ",
                       io::to_text(value)));
    };
    const auto note = [&](std::string const& key, io::json const& value) {
      if (!noted_.find(key)) noted_[key] = value;
      if (!(noted(key) == value))
        refuse(message(name, " is ", io::to_text(value), ", but it is ", io::to_text(noted(key)),
                       " elsewhere in the model, and ", class_name(), " has one"));
    };
    const std::string owner = name.substr(0, name.rfind('.'));
    if (each.of_training) {
      if (name == "embedding_dropout.rate") dropout_ = *each.value.get_if<double>();
    } else if (last == "order") {
      must_be(static_cast<std::int64_t>(is_bert() ? nn::norm_order::post : nn::norm_order::pre));
    } else if (last == "seen") {
      must_be(static_cast<std::int64_t>(is_bert() ? mask::bidirectional : mask::causal));
    } else if (last == "heads" || (last == "key_heads" && !is_llama())) {
      note("heads", each.value);
    } else if (last == "score") {
      must_be("plain_scores");
    } else if (last == "rotary_base" && !is_llama()) {
      must_be(0.0);
    } else if (last == "key_heads" || last.starts_with("rotary_") || (last == "window" && is_llama())) {
      note(last, each.value);
    } else if (last == "visible_blocks") {
      must_be("all");
    } else if (last == "epsilon") {
      note(last, each.value);
      norms_.insert(owner);
    } else if (last == "centred") {
      not_centred_.insert(owner);
    } else if (last == "activation") {
      const std::string op = *each.value.get_if<std::string>();
      note(last, op == "gelu_polynomial" ? "gelu" : op == "gelu_tanh" ? "gelu_new" : op);
    } else if (last != "products_in" && !last.ends_with("fraction_bits")) {
      refuse(message("the model has ", name, ", and ", class_name(), " has not"));
    }
  }

  /// A setting that all layers of the model share.
  io::json const& noted(char const* name) const {
    if (io::json const* const value = noted_.find(name)) return *value;
    refuse(message("no layer of the model has ", name, ", which ", class_name(), " has"));
  }
  io::json const& noted(std::string const& name) const { return noted(name.c_str()); }
  std::int64_t number(char const* name) const { return *noted(name).get_if<std::int64_t>(); }

  void add_classifier() {
    const std::int64_t classes = need("classifier.weight").rows();
    const auto linear = [&](std::string const& ours, std::string const& theirs, std::int64_t rows) {
      add({ours + ".weight", {{theirs + ".weight", rows}}, shape_.hidden, io::orientation::as_it_is});
      add({ours + ".bias", {{theirs + ".bias", rows}}, 0, io::orientation::as_it_is});
    };
    linear("pooler", "bert.pooler.dense", shape_.hidden);
    linear("classifier", "classifier", classes);
  }
  void add(hugging_face_tensor const& each) {
    const bool is_new = each.ours == "segment_embedding" && !tensors_.find(each.ours);  // zeros
    any_tensor const& tensor = need(is_new ? "token_embedding" : each.ours);
    element_type const& element = tensor.element();
    if (!is_new && (tensor.rows() != each.rows() || tensor.cols() != each.width()))
      refuse(message(each.ours, " is ", tensor.rows(), " x ", tensor.cols(), ", but would be ", each.rows(),
                     " x ", each.width(), " in ", class_name()));
    if (!is_new) have_places_.insert(tensor.address());
    std::int64_t first = 0;
    for (hugging_face_part const& part : each.theirs) {
      std::vector<std::byte>& values =
          values_.emplace_back(std::size_t(part.rows * each.width()) * element.bytes);
      written_.push_back({part.name, element.name, each.shape(part), values});
      if (is_new) return;
      for_each_value(tensor, tensor.data(), element.bytes,
                     [&](std::byte const* value, std::int64_t row, std::int64_t col) {
                       if (row < first || row >= first + part.rows) return;
                       const std::int64_t at = each.place(part, row - first, col);
                       std::memcpy(values.data() + std::size_t(at) * element.bytes, value, element.bytes);
                     });
      first += part.rows;
    }
  }

  /// Throws for a tensor that was not written, but for scales of activations in 8 bits.
  void refuse_others() const {
    const auto refuse_if = [&](std::string const& name, any_tensor const& tensor) {
      const bool is_scale = name.ends_with(".amax_x") || name.ends_with(".amax_dy");
      if (!is_scale && !have_places_.contains(tensor.address()))
        refuse(message("the model has ", name, ", and ", class_name(), " has not"));
    };
    const std::vector<std::string> names = list_.names(), frozen = list_.frozen_names();
    for (std::size_t i = 0; i < names.size(); ++i) refuse_if(names[i], list_[i].tensor);
    for (std::size_t i = 0; i < frozen.size(); ++i) refuse_if(frozen[i], list_.frozen()[i].tensor);
  }

  nn::parameter_list list_;
  tensors_by_name tensors_;
  setting_list settings_;
  bool is_classifier_;
  hugging_face_model family_;
  nn::transformer_config shape_;
  double dropout_ = 0;
  io::json noted_ = io::json::object{};
  std::set<std::string> norms_, not_centred_;
  std::vector<std::vector<std::byte>> values_;
  std::vector<io::safetensor> written_;
  std::set<void const*> have_places_;
};

}  // namespace detail

TESSERA_COLD TESSERA_BODY void save_pretrained(std::string const& folder, any_layer const& model,
                                               pretrained_folder const& more) {
  const detail::outgoing_hugging_face out(model, more.context, more.rotary);
  io::json configuration = out.configuration();
  for (io::json_member const& member : more.configuration) configuration[member.key] = member.value;
  std::vector<std::string> names{"config.json", "model.safetensors"};
  for (added_file const& file : more.files) names.push_back(file.name);
  io::write_folder_atomically(folder, names, [&](std::string const& partial) {
    io::write_atomically(partial + "/config.json", io::to_text(std::move(configuration), 2) + "\n");
    io::write_safetensors(partial + "/model.safetensors", out.tensors(), {{"format", "pt"}});
    for (added_file const& file : more.files) file.write(partial + "/" + file.name);
  });
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
