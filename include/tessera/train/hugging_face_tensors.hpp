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
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/tensor/any_tensor.hpp>

// The tensors of nn::gpt and nn::encoder, and the names that Hugging Face has for them: for reading and
// writing.

namespace tessera { inline namespace TESSERA_ISA { namespace train { namespace detail {

/// The models of Hugging Face that have a counterpart here.
enum class hugging_face_model { gpt2, bert };

/// A tensor here, and the tensors of Hugging Face that hold its values.
struct hugging_face_tensor {
  std::string ours;                 // the name of a parameter, "block.3.mlp.up.weight"
  std::vector<std::string> theirs;  // of equal size, one below the other
  std::int64_t rows, cols;          // of ours; cols is 0 of a vector
  io::orientation theirs_stand;     // transposed: (cols, rows)

  bool is_matrix() const { return cols > 0; }
  std::int64_t rows_of_each() const { return rows / std::int64_t(theirs.size()); }
  /// Of each of theirs.
  std::vector<std::int64_t> shape() const {
    if (!is_matrix()) return {rows_of_each()};
    if (theirs_stand == io::orientation::transposed) return {cols, rows_of_each()};
    return {rows_of_each(), cols};
  }
};

/// Calls visit(tensor) for each tensor of such a model.
void for_each_tensor(hugging_face_model model, nn::transformer_config const& shape,
                     function_ref<void(hugging_face_tensor const&)> visit);

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
    visit({ours, {theirs + ".weight"}, rows, cols, io::orientation::as_it_is});
  }
  void norm(std::string const& ours, std::string const& theirs, std::int64_t features) const {
    for (char const* part : {".weight", ".bias"})
      visit({ours + part, {theirs + part}, features, 0, io::orientation::as_it_is});
  }
  void linear(std::string const& ours, std::vector<std::string> const& theirs, std::int64_t rows,
              std::int64_t cols) const {
    hugging_face_tensor weight{ours + ".weight", theirs, rows, cols, weights_stand};
    hugging_face_tensor bias{ours + ".bias", theirs, rows, 0, io::orientation::as_it_is};
    for (std::size_t i = 0; i < theirs.size(); ++i) weight.theirs[i] += ".weight", bias.theirs[i] += ".bias";
    visit(weight), visit(bias);
  }
};

TESSERA_BODY void tell_gpt2(nn::transformer_config const& c, tensor_teller const& tell) {
  const std::string all = "transformer.";
  tell.table("token_embedding", all + "wte", c.vocabulary, c.hidden);
  tell.table("position_embedding", all + "wpe", c.context, c.hidden);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string ours = message("block.", i, "."), at = message(all, "h.", i, ".");
    tell.norm(ours + "norm1", at + "ln_1", c.hidden);
    tell.linear(ours + "attention.qkv", {at + "attn.c_attn"}, 3 * c.hidden, c.hidden);
    tell.linear(ours + "attention.out", {at + "attn.c_proj"}, c.hidden, c.hidden);
    tell.norm(ours + "norm2", at + "ln_2", c.hidden);
    tell.linear(ours + "mlp.up", {at + "mlp.c_fc"}, c.inner(), c.hidden);
    tell.linear(ours + "mlp.down", {at + "mlp.c_proj"}, c.hidden, c.inner());
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
    tell.linear(ours + "attention.qkv", {self + "query", self + "key", self + "value"}, 3 * c.hidden,
                c.hidden);
    tell.linear(ours + "attention.out", {at + "attention.output.dense"}, c.hidden, c.hidden);
    tell.norm(ours + "norm1", at + "attention.output.LayerNorm", c.hidden);
    tell.linear(ours + "mlp.up", {at + "intermediate.dense"}, c.inner(), c.hidden);
    tell.linear(ours + "mlp.down", {at + "output.dense"}, c.hidden, c.inner());
    tell.norm(ours + "norm2", at + "output.LayerNorm", c.hidden);
  }
  tell.linear("head.transform", {head + "transform.dense"}, c.hidden, c.hidden);
  tell.norm("head.norm", head + "transform.LayerNorm", c.hidden);
  tell.visit({"head.bias", {head + "bias"}, c.vocabulary, 0, io::orientation::as_it_is});
  if (!c.next_sentence) return;
  tell.linear("next_sentence.pooler", {"bert.pooler.dense"}, c.hidden, c.hidden);
  tell.linear("next_sentence.classifier", {"cls.seq_relationship"}, 2, c.hidden);
}

TESSERA_BODY void for_each_tensor(hugging_face_model model, nn::transformer_config const& shape,
                                  function_ref<void(hugging_face_tensor const&)> visit) {
  if (model == hugging_face_model::gpt2)
    tell_gpt2(shape, {visit, io::orientation::transposed});
  else
    tell_bert(shape, {visit, io::orientation::as_it_is});
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

}}}}  // namespace tessera::TESSERA_ISA::train::detail
