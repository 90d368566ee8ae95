// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/tensor/any_tensor.hpp>

// The tensors of nn::gpt, nn::encoder and nn::llama, and the names that Hugging Face has for them: for
// reading and writing.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Which features of a head of d are rotated together in the files of a model: i and i + d ÷ 2
/// (transformers), or 2 i and 2 i + 1, as here (Meta's own files).
enum class rotary_order { halves, neighbours };

namespace detail {

/// The models of Hugging Face that have a counterpart here.
enum class hugging_face_model { gpt2, bert, llama };

/// A tensor of Hugging Face, whose rows are some of a tensor here.
struct hugging_face_part {
  std::string name;
  std::int64_t rows;
  std::int64_t turned_head = 0;  // features of a head whose rotated pairs are its halves there; 0: as here

  /// The row there of a row here, among the rows of this part.
  std::int64_t row_of(std::int64_t row) const {
    if (turned_head == 0) return row;
    const std::int64_t feature = row % turned_head;
    return row - feature + feature / 2 + (feature % 2) * (turned_head / 2);
  }
};

/// A tensor here, and the tensors of Hugging Face that hold its values.
struct hugging_face_tensor {
  std::string ours;                       // the name of a parameter, "block.3.mlp.up.weight"
  std::vector<hugging_face_part> theirs;  // one below the other
  std::int64_t cols;                      // 0 of a vector
  io::orientation theirs_stand;           // transposed: (cols, rows)

  bool is_matrix() const { return cols > 0; }
  std::int64_t width() const { return is_matrix() ? cols : 1; }
  std::int64_t rows() const {
    std::int64_t all = 0;
    for (hugging_face_part const& part : theirs) all += part.rows;
    return all;
  }
  /// The shape of a part.
  std::vector<std::int64_t> shape(hugging_face_part const& part) const {
    if (!is_matrix()) return {part.rows};
    if (theirs_stand == io::orientation::transposed) return {cols, part.rows};
    return {part.rows, cols};
  }
  /// Which number of a part is that of a row of it, in the order of ours, and a column.
  std::int64_t place(hugging_face_part const& part, std::int64_t row, std::int64_t col) const {
    const std::int64_t there = part.row_of(row);
    return theirs_stand == io::orientation::transposed ? col * part.rows + there : there * width() + col;
  }
};

/// Calls visit(tensor) for each tensor of such a model.
///   rotary   of LLaMA
void for_each_tensor(hugging_face_model model, nn::transformer_config const& shape,
                     function_ref<void(hugging_face_tensor const&)> visit,
                     rotary_order rotary = rotary_order::halves);

/// Where a tensor stands in a list of parameters: as `name` or, of a layer whose W and b are frozen and stand
/// deeper, such as LoRA's, as the frozen tensor of that layer. Null if it is nowhere.
class tensors_by_name {
 public:
  explicit tensors_by_name(nn::parameter_list const& of);
  any_tensor const* find(std::string const& name) const;

 private:
  nn::parameter_list const& list_;
  std::vector<std::string> names_, frozen_;
};

#ifdef TESSERA_BODY

/// Tells of the tensors of a model.
struct tensor_teller {
  function_ref<void(hugging_face_tensor const&)> visit;
  io::orientation weights_stand;

  void table(char const* ours, std::string const& theirs, std::int64_t rows, std::int64_t cols) const {
    visit({ours, {{theirs + ".weight", rows}}, cols, io::orientation::as_it_is});
  }
  void norm(std::string const& ours, std::string const& theirs, std::int64_t features) const {
    vector(ours + ".weight", theirs + ".weight", features);
    vector(ours + ".bias", theirs + ".bias", features);
  }
  void vector(std::string const& ours, std::string const& theirs, std::int64_t features) const {
    visit({ours, {{theirs, features}}, 0, io::orientation::as_it_is});
  }
  /// A layer whose W and b are several.
  void linear(std::string const& ours, std::vector<hugging_face_part> const& theirs, std::int64_t cols,
              nn::bias_term bias = nn::bias_term::present) const {
    hugging_face_tensor w{ours + ".weight", theirs, cols, weights_stand};
    hugging_face_tensor b{ours + ".bias", theirs, 0, io::orientation::as_it_is};
    for (std::size_t i = 0; i < theirs.size(); ++i)
      w.theirs[i].name += ".weight", b.theirs[i].name += ".bias";
    visit(w);
    if (bias == nn::bias_term::present) visit(b);
  }
  void linear(std::string const& ours, std::string const& theirs, std::int64_t rows, std::int64_t cols,
              nn::bias_term bias = nn::bias_term::present) const {
    linear(ours, {{theirs, rows}}, cols, bias);
  }
};

TESSERA_BODY void tell_gpt2(nn::transformer_config const& c, tensor_teller const& tell) {
  const std::string all = "transformer.";
  tell.table("token_embedding", all + "wte", c.vocabulary, c.hidden);
  tell.table("position_embedding", all + "wpe", c.context, c.hidden);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string ours = message("block.", i, "."), at = message(all, "h.", i, ".");
    tell.norm(ours + "norm1", at + "ln_1", c.hidden);
    tell.linear(ours + "attention.qkv", at + "attn.c_attn", 3 * c.hidden, c.hidden);
    tell.linear(ours + "attention.out", at + "attn.c_proj", c.hidden, c.hidden);
    tell.norm(ours + "norm2", at + "ln_2", c.hidden);
    tell.linear(ours + "mlp.up", at + "mlp.c_fc", c.inner(), c.hidden);
    tell.linear(ours + "mlp.down", at + "mlp.c_proj", c.hidden, c.inner());
  }
  tell.norm("final_norm", all + "ln_f", c.hidden);
}

TESSERA_BODY void tell_bert(nn::transformer_config const& c, tensor_teller const& tell) {
  const std::string embeddings = "bert.embeddings.", head = "cls.predictions.";
  tell.table("token_embedding", embeddings + "word_embeddings", c.vocabulary, c.hidden);
  tell.table("position_embedding", embeddings + "position_embeddings", c.context, c.hidden);
  if (c.segment_types > 0)
    tell.table("segment_embedding", embeddings + "token_type_embeddings", c.segment_types, c.hidden);
  tell.norm("embedding_norm", embeddings + "LayerNorm", c.hidden);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string ours = message("block.", i, "."), at = message("bert.encoder.layer.", i, ".");
    const std::string self = at + "attention.self.";
    tell.linear(ours + "attention.qkv",
                {{self + "query", c.hidden}, {self + "key", c.hidden}, {self + "value", c.hidden}}, c.hidden);
    tell.linear(ours + "attention.out", at + "attention.output.dense", c.hidden, c.hidden);
    tell.norm(ours + "norm1", at + "attention.output.LayerNorm", c.hidden);
    tell.linear(ours + "mlp.up", at + "intermediate.dense", c.inner(), c.hidden);
    tell.linear(ours + "mlp.down", at + "output.dense", c.hidden, c.inner());
    tell.norm(ours + "norm2", at + "output.LayerNorm", c.hidden);
  }
  tell.linear("head.transform", head + "transform.dense", c.hidden, c.hidden);
  tell.norm("head.norm", head + "transform.LayerNorm", c.hidden);
  tell.vector("head.bias", head + "bias", c.vocabulary);
  if (!c.next_sentence) return;
  tell.linear("next_sentence.pooler", "bert.pooler.dense", c.hidden, c.hidden);
  tell.linear("next_sentence.classifier", "cls.seq_relationship", 2, c.hidden);
}

TESSERA_BODY void tell_llama(nn::transformer_config const& c, rotary_order rotary,
                             tensor_teller const& tell) {
  const std::int64_t head = c.hidden / c.heads, keys = c.heads_of_keys() * head,
                     turned = rotary == rotary_order::halves ? head : 0;
  const auto norm = [&](std::string const& ours, std::string const& theirs) {
    tell.vector(ours + ".weight", theirs + ".weight", c.hidden);
  };
  tell.table("token_embedding", "model.embed_tokens", c.vocabulary, c.hidden);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string ours = message("block.", i, "."), at = message("model.layers.", i, ".");
    const std::string self = at + "self_attn.";
    norm(ours + "norm1", at + "input_layernorm");
    tell.linear(
        ours + "attention.qkv",
        {{self + "q_proj", c.hidden, turned}, {self + "k_proj", keys, turned}, {self + "v_proj", keys}},
        c.hidden, c.qkv_bias());
    tell.linear(ours + "attention.out", self + "o_proj", c.hidden, c.hidden, c.out_bias());
    norm(ours + "norm2", at + "post_attention_layernorm");
    tell.linear(ours + "mlp.gate", at + "mlp.gate_proj", c.inner(), c.hidden, c.bias);
    tell.linear(ours + "mlp.up", at + "mlp.up_proj", c.inner(), c.hidden, c.bias);
    tell.linear(ours + "mlp.down", at + "mlp.down_proj", c.hidden, c.inner(), c.bias);
  }
  norm("final_norm", "model.norm");
  if (c.output == nn::output_weight::own) tell.table("output", "lm_head", c.vocabulary, c.hidden);
}

TESSERA_BODY void for_each_tensor(hugging_face_model model, nn::transformer_config const& shape,
                                  function_ref<void(hugging_face_tensor const&)> visit, rotary_order rotary) {
  if (model == hugging_face_model::gpt2)
    tell_gpt2(shape, {visit, io::orientation::transposed});
  else if (model == hugging_face_model::bert)
    tell_bert(shape, {visit, io::orientation::as_it_is});
  else
    tell_llama(shape, rotary, {visit, io::orientation::as_it_is});
}

TESSERA_BODY tensors_by_name::tensors_by_name(nn::parameter_list const& of)
    : list_(of), names_(of.names()), frozen_(of.frozen_names()) {}

TESSERA_BODY any_tensor const* tensors_by_name::find(std::string const& name) const {
  const auto at = [](std::vector<std::string> const& all, auto const& is_it) {
    return std::size_t(std::find_if(all.begin(), all.end(), is_it) - all.begin());
  };
  if (const std::size_t i = at(names_, [&](auto const& one) { return one == name; }); i < names_.size())
    return &list_[i].tensor;
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos) return nullptr;
  const std::string layer = name.substr(0, dot + 1), part = name.substr(dot);
  const auto is_deeper = [&](auto const& one) { return one.starts_with(layer) && one.ends_with(part); };
  const std::size_t i = at(frozen_, is_deeper);
  return i < frozen_.size() ? &list_.frozen()[i].tensor : nullptr;
}

#endif

}  // namespace detail
}}}  // namespace tessera::TESSERA_ISA::train
