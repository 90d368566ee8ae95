// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/ops/activation.hpp>
#include <tessera/tensor/matrix_view.hpp>
#include <tessera/train/sparsity/prune.hpp>

// Dense models of Hugging Face, GPT-2 and BERT, as models of nn/: a folder with config.json and
// model.safetensors, or the several files that model.safetensors.index.json lists.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// What a pretrained model is to be besides what its files say.
struct pretrained_settings {
  double density = 1;  // of the weights of each layer: the blocks of greatest magnitude stay
  pruning_scope scope = pruning_scope::each_matrix;
  double dropout = 0;
};

namespace detail {

/// The tensors of a model and its configuration.
class hugging_face {
 public:
  explicit hugging_face(std::string const& folder)
      : path_(folder + "/config.json"),
        config_(io::parse_json(io::read_file(path_), path_)),
        files_(paths(folder)) {}

  io::json_place config() const { return io::json_place(config_, path_); }
  std::int64_t integer(std::string const& key) const { return config().at(key).as_integer(); }

  /// Throws io_error unless a member of the configuration, if it is there, has one of these values.
  void expect(std::string const& key, std::vector<io::json> const& known, char const* why) const {
    if (!config().contains(key)) return;
    io::json const& value = config().at(key).value();
    if (value.is_null() || std::find(known.begin(), known.end(), value) != known.end()) return;
    std::string all;
    for (io::json const& one : known) all += (all.empty() ? "" : " or ") + io::to_text(one);
    config().at(key).fail(message("is ", io::to_text(value), ", but ", why, " ", all));
  }

  /// The common beginning of all names: it is missing where the model was saved without its head.
  void set_prefix(std::string const& prefix, std::string const& probe) {
    if (files_.contains(prefix + probe)) prefix_ = prefix;
  }

  /// Throws io_error unless a tensor is there with this shape: before memory is taken for what the
  /// configuration says.
  void require(std::string const& name, std::initializer_list<std::int64_t> shape) const {
    io::safetensors_file const& file = files_.file_of(full(name));
    io::detail::require_tensor(file, file.at(full(name)), shape);
  }

  template <class Tensor, class... Orientation>
  void read(std::string const& name, Tensor& to, Orientation... stands) const {
    io::read(files_, full(name), to, stands...);
  }
  /// A layer norm; old files call its parts gamma and beta.
  template <class Norm> void read_norm(std::string const& name, double epsilon, Norm& to) const {
    const bool old = files_.contains(full(name + ".gamma"));
    read(name + (old ? ".gamma" : ".weight"), to.weight);
    read(name + (old ? ".beta" : ".bias"), to.bias);
    to.epsilon = epsilon;
  }
  /// W and b of a linear layer: one tensor, or several, one below the other.
  template <class Linear>
  void read_linear(std::vector<std::string> const& names, Linear& to,
                   io::orientation stands = io::orientation::as_it_is) const {
    if (names.size() == 1) {
      read(names[0] + ".weight", to.weight, stands);
      return read(names[0] + ".bias", to.bias);
    }
    using matrix = decltype(to.weight);
    using vector = decltype(to.bias);
    const std::int64_t rows = to.weight.rows() / std::ssize(names), cols = to.weight.cols();
    using T = typename matrix::value_type;
    std::vector<T> all(static_cast<std::size_t>(to.weight.rows() * cols));
    auto next = to.bias.begin();
    for (std::size_t i = 0; i < names.size(); ++i) {
      matrix part(rows, cols);
      vector bias(rows);
      read(names[i] + ".weight", part, stands);
      read(names[i] + ".bias", bias);
      copy(part, row_major(all.data() + std::int64_t(i) * rows * cols, rows, cols));
      next = std::copy(bias.begin(), bias.end(), next);
    }
    copy(row_major(all.data(), to.weight.rows(), cols), to.weight);
  }

 private:
  static std::vector<std::string> paths(std::string const& folder) {
    const std::string index = folder + "/model.safetensors.index.json";
    if (!std::filesystem::exists(index)) return {folder + "/model.safetensors"};
    const io::json document = io::parse_json(io::read_file(index), index);
    std::set<std::string> names;
    const io::json_place map = io::json_place(document, index).at("weight_map");
    for (io::json_member const& tensor : map.members()) {
      std::string const& name = map.at(tensor).as_string();
      if (name.find('/') != name.npos) map.at(tensor).fail("is no file of this folder");
      names.insert(name);
    }
    std::vector<std::string> all;
    for (std::string const& name : names) all.push_back(folder + "/" + name);
    return all;
  }
  std::string full(std::string const& name) const { return name.starts_with("cls.") ? name : prefix_ + name; }

  std::string path_;
  io::json config_;
  io::safetensors_files files_;
  std::string prefix_;
};

/// The names that Hugging Face gives to an op.
template <class Op> std::vector<io::json> names_of_activation() {
  if constexpr (std::is_same_v<Op, ops::gelu_tanh>)
    return {"gelu_new", "gelu_pytorch_tanh"};
  else if constexpr (std::is_same_v<Op, ops::gelu> || std::is_same_v<Op, ops::gelu_polynomial>)
    return {"gelu"};
  else if constexpr (std::is_same_v<Op, ops::relu>)
    return {"relu"};
  else if constexpr (std::is_same_v<Op, ops::silu>)
    return {"silu", "swish"};
  else
    return {};
}

inline std::int64_t times_hidden(hugging_face const& from, std::string const& key, std::int64_t hidden) {
  if (!from.config().contains(key) || from.config().at(key).value().is_null()) return 4;
  const std::int64_t inner = from.integer(key);
  if (hidden < 1 || inner < 1 || inner % hidden != 0)
    from.config().at(key).fail(
        message("is ", inner, ", but should be a multiple of the ", hidden, " hidden features"));
  return inner / hidden;
}

template <class T, class Block, class Layer>
void read_model(hugging_face& from, double dropout, nn::gpt<T, Block, Layer>& model) {
  from.expect("model_type", {"gpt2"}, "nn::gpt is the model");
  from.expect("activation_function", names_of_activation<typename decltype(Layer::mlp)::activation>(),
              "the activation of this model is");
  for (char const* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    from.expect(key, {false}, "nn::gpt has");
  from.expect("scale_attn_weights", {true}, "nn::gpt has");
  from.expect("tie_word_embeddings", {true}, "nn::gpt has");
  nn::transformer_config c;
  c.layers = from.integer("n_layer");
  c.hidden = from.integer("n_embd");
  c.heads = from.integer("n_head");
  c.context = from.integer("n_positions");
  c.vocabulary = from.integer("vocab_size");
  c.feed_forward = times_hidden(from, "n_inner", c.hidden);
  c.dropout = dropout;
  const double epsilon = from.config().at("layer_norm_epsilon").as_number();
  c.check();
  from.set_prefix("transformer.", "wte.weight");
  from.require("wte.weight", {c.vocabulary, c.hidden});
  from.require("wpe.weight", {c.context, c.hidden});
  from.require("h." + std::to_string(c.layers - 1) + ".mlp.c_fc.weight", {c.hidden, c.inner()});
  model = nn::gpt<T, Block, Layer>(c, 0);
  from.read("wte.weight", model.token_embedding.table);
  from.read("wpe.weight", model.position_embedding.table);
  constexpr auto stands = io::orientation::transposed;
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string at = "h." + std::to_string(i) + ".";
    auto& layer = model.blocks.layers[std::size_t(i)];
    from.read_norm(at + "ln_1", epsilon, layer.norm1);
    from.read_linear({at + "attn.c_attn"}, layer.attention.qkv, stands);
    from.read_linear({at + "attn.c_proj"}, layer.attention.out, stands);
    from.read_norm(at + "ln_2", epsilon, layer.norm2);
    from.read_linear({at + "mlp.c_fc"}, layer.mlp.up, stands);
    from.read_linear({at + "mlp.c_proj"}, layer.mlp.down, stands);
  }
  from.read_norm("ln_f", epsilon, model.final_norm);
}

template <class T, class Block, class Layer, class Op>
void read_model(hugging_face& from, double dropout, nn::encoder<T, Block, Layer, Op>& model) {
  from.expect("model_type", {"bert"}, "nn::encoder is the model");
  from.expect("hidden_act", names_of_activation<typename decltype(Layer::mlp)::activation>(),
              "the activation of this model is");
  from.expect("hidden_act", names_of_activation<Op>(), "the activation of this model's head is");
  from.expect("position_embedding_type", {"absolute"}, "nn::encoder has");
  from.expect("is_decoder", {false}, "nn::encoder has");
  from.expect("tie_word_embeddings", {true}, "nn::encoder has");
  nn::transformer_config c;
  c.layers = from.integer("num_hidden_layers");
  c.hidden = from.integer("hidden_size");
  c.heads = from.integer("num_attention_heads");
  c.context = from.integer("max_position_embeddings");
  c.vocabulary = from.integer("vocab_size");
  c.segment_types = from.integer("type_vocab_size");
  c.feed_forward = times_hidden(from, "intermediate_size", c.hidden);
  c.dropout = dropout;
  const double epsilon = from.config().at("layer_norm_eps").as_number();
  c.check();
  from.set_prefix("bert.", "embeddings.word_embeddings.weight");
  from.require("embeddings.word_embeddings.weight", {c.vocabulary, c.hidden});
  from.require("embeddings.position_embeddings.weight", {c.context, c.hidden});
  from.require("encoder.layer." + std::to_string(c.layers - 1) + ".intermediate.dense.weight",
               {c.inner(), c.hidden});
  model = nn::encoder<T, Block, Layer, Op>(c, 0);
  from.read("embeddings.word_embeddings.weight", model.token_embedding.table);
  from.read("embeddings.position_embeddings.weight", model.position_embedding.table);
  if (c.segment_types > 0)
    from.read("embeddings.token_type_embeddings.weight", model.segment_embedding.table);
  from.read_norm("embeddings.LayerNorm", epsilon, model.embedding_norm);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string at = "encoder.layer." + std::to_string(i) + ".";
    auto& layer = model.blocks.layers[std::size_t(i)];
    const std::string self = at + "attention.self.";
    from.read_linear({self + "query", self + "key", self + "value"}, layer.attention.qkv);
    from.read_linear({at + "attention.output.dense"}, layer.attention.out);
    from.read_norm(at + "attention.output.LayerNorm", epsilon, layer.norm1);
    from.read_linear({at + "intermediate.dense"}, layer.mlp.up);
    from.read_linear({at + "output.dense"}, layer.mlp.down);
    from.read_norm(at + "output.LayerNorm", epsilon, layer.norm2);
  }
  const std::string head = "cls.predictions.";
  from.read_linear({head + "transform.dense"}, model.head.transform);
  from.read_norm(head + "transform.LayerNorm", epsilon, model.head.norm);
  from.read(head + "bias", model.head.bias);
}

}  // namespace detail

/// A model of Hugging Face: `pretrained<nn::gpt2<float, block_shape<16>>>("gpt2")`, or an nn::encoder of BERT
/// with its masked-language-model head. Its weights are pruned to blocks if `density` is below 1.
///   Throws io_error, with the file and the place, if a file or a tensor is missing, has another shape, or
///   the configuration asks for a model that Model is not; option_error for settings, and for a
///   configuration, without meaning.
template <class Model> Model pretrained(std::string const& folder, pretrained_settings const& settings = {}) {
  static_cast<void>(tessera::detail::blocks_at("pretrained", settings.density, 1));
  detail::hugging_face from(folder);
  Model model;
  detail::read_model(from, settings.dropout, model);
  if (settings.density < 1) prune(model, settings.density, settings.scope);
  model.config.density = settings.density;
  return model;
}

}}}  // namespace tessera::TESSERA_ISA::train
