// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/nn/lora_settings.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/train/any_layer.hpp>
#include <tessera/train/hugging_face_tensors.hpp>
#include <tessera/train/settings.hpp>

// The modules of Hugging Face that have adapters of PEFT, and where their values stand here: for reading and
// writing.

namespace tessera { inline namespace TESSERA_ISA { namespace train { namespace detail {

/// A module of Hugging Face that may have an adapter, and the rows of a matrix here that are its weight.
struct peft_module {
  std::string ours, theirs;  // "block.3.attention.qkv", "bert.encoder.layer.3.attention.self.key"
  bool nn::lora_targets::* target;
  std::int64_t first_row, end_row, inputs;

  std::int64_t outputs() const { return end_row - first_row; }
  /// Whether a name of target_modules means it.
  bool is_meant_by(std::string const& name) const { return theirs == name || theirs.ends_with("." + name); }
};

/// The matrices of PEFT's adapters: our D and U.
///   A (rank, inputs)   B (outputs, rank)
enum class peft_part { a, b };

/// The name of a tensor of a file.
std::string peft_key(std::string const& module, peft_part part);

/// A model as GPT-2 or BERT, without its heads.
class peft_base {
 public:
  /// Throws option_error for another model.
  explicit peft_base(any_layer const& model);
  peft_base(peft_base const&) = delete;  // tensors_ refers to list_

  any_tensor const* find(std::string const& name) const { return tensors_.find(name); }

  hugging_face_model family = hugging_face_model::gpt2;
  std::vector<peft_module> modules;

 private:
  any_tensor const& need(std::string const& name) const;
  void add(hugging_face_tensor const& each);

  nn::parameter_list list_;
  tensors_by_name tensors_;
};

/// The adapter of a module in a model. D has groups of rows, one for each range of rows of W that has an
/// adapter of its own, and U as many groups of columns.
struct peft_adapter {
  peft_module const* module;
  any_tensor down, up;
  std::int64_t first, end;  // the groups that meet rows of the module

  std::int64_t groups() const { return end - first; }
  /// Calls visit(value, row, col) for each stored value of A or B, and padding(value) for values beyond
  /// the rank of their group.
  void for_each_value(peft_part part, std::int64_t rank, auto&& visit, auto&& padding) const {
    const bool is_a = part == peft_part::a;
    any_tensor of = is_a ? down : up;
    const std::int64_t each = round_up<std::int64_t>(rank, 4);
    tessera::for_each_value(
        of, of.data(), of.element().bytes, [&](std::byte* value, std::int64_t row, std::int64_t col) {
          const std::int64_t group = (is_a ? row : col) / each, within = (is_a ? row : col) % each,
                             at = (group - first) * rank + within;
          if (!is_a && (row < module->first_row || row >= module->end_row)) return;
          if (group < first || group >= end) return;
          if (within >= rank)
            padding(value);
          else if (is_a)
            visit(value, at, col);
          else
            visit(value, row - module->first_row, at);
        });
  }
};

/// The adapters of a model. Throws option_error unless they are as `how` says, and all of them adapters of
/// modules.
std::vector<peft_adapter> adapters_of(any_layer const& model, peft_base const& base,
                                      nn::lora_settings const& how);

#ifdef TESSERA_BODY

TESSERA_BODY std::string peft_key(std::string const& module, peft_part part) {
  return "base_model.model." + module + (part == peft_part::a ? ".lora_A.weight" : ".lora_B.weight");
}

/// A name without its last part.
TESSERA_BODY std::string layer_of(std::string const& name) { return name.substr(0, name.rfind('.')); }

TESSERA_BODY bool nn::lora_targets::* target_of(std::string const& layer, bool is_one, std::size_t part) {
  using where = nn::lora_targets;
  if (layer.ends_with(".mlp.up")) return &where::up;
  if (layer.ends_with(".mlp.down")) return &where::down;
  if (layer.ends_with(".out")) return &where::out;
  return is_one ? &where::qkv : std::array{&where::query, &where::key, &where::value}[part];
}

TESSERA_BODY peft_base::peft_base(any_layer const& model) : list_(model), tensors_(list_) {
  if (tensors_.find("embedding_norm.weight")) family = hugging_face_model::bert;
  nn::transformer_config shape;
  shape.hidden = need("position_embedding").cols();
  shape.feed_forward = need("block.0.mlp.up.weight").rows() / shape.hidden;
  shape.layers = 1;
  while (tensors_.find(message("block.", shape.layers, ".mlp.up.weight"))) ++shape.layers;
  for_each_tensor(family, shape, [&](hugging_face_tensor const& each) {
    if (each.is_matrix() && each.ours.starts_with("block.")) add(each);
  });
}

TESSERA_BODY any_tensor const& peft_base::need(std::string const& name) const {
  if (any_tensor const* const found = find(name)) return *found;
  throw option_error(message("[peft] the model has no ", name, ", which GPT-2 and BERT have"));
}

TESSERA_BODY void peft_base::add(hugging_face_tensor const& each) {
  any_tensor const& weight = need(each.ours);
  if (weight.rows() != each.rows() || weight.cols() != each.cols)
    throw option_error(message("[peft] ", each.ours, " is ", weight.rows(), " x ", weight.cols(),
                               ", but would be ", each.rows(), " x ", each.cols, " in GPT-2 and BERT"));
  const std::string ours = layer_of(each.ours);
  std::int64_t first = 0;
  for (std::size_t i = 0; i < each.theirs.size(); ++i) {
    hugging_face_part const& part = each.theirs[i];
    modules.push_back({ours, layer_of(part.name), target_of(ours, each.theirs.size() == 1, i), first,
                       first + part.rows, each.cols});
    first += part.rows;
  }
}

/// The scale of each layer that has adapters.
TESSERA_BODY std::map<std::string, double> scales_of(any_layer const& model) {
  std::map<std::string, double> all;
  setting_list(model).for_each([&](nn::parameter_name const& name, any_setting const& each) {
    double const* const scale = each.value.get_if<double>();
    if (scale && name.last() == "scale") all[layer_of(name.text())] = *scale;
  });
  return all;
}

/// The first group of columns of U, `each` columns a group, that meets rows of a module, and the end of
/// the last.
TESSERA_BODY std::pair<std::int64_t, std::int64_t> groups_at(peft_module const& module, any_tensor const& up,
                                                             std::int64_t each) {
  std::int64_t first = up.cols(), end = 0;
  up.pattern().for_each([&](int block_row, int block_col, std::int64_t) {
    const std::int64_t row = std::int64_t{block_row} * up.block_rows(),
                       group = std::int64_t{block_col} * up.block_cols() / each;
    if (row < module.end_row && row + up.block_rows() > module.first_row)
      first = std::min(first, group), end = std::max(end, group + 1);
  });
  return {first, end};
}

TESSERA_COLD TESSERA_BODY std::vector<peft_adapter> adapters_of(any_layer const& model, peft_base const& base,
                                                                nn::lora_settings const& how) {
  const std::map<std::string, double> scales = scales_of(model);
  for (auto const& [layer, scale] : scales)
    if (std::ranges::find(base.modules, layer, &peft_module::ours) == base.modules.end())
      throw option_error(message("[peft] the model has adapters of ", layer,
                                 ", which is not one of the matrices of nn::lora_targets"));
  std::vector<peft_adapter> all;
  const std::int64_t each = round_up<std::int64_t>(how.rank, 4);
  for (peft_module const& module : base.modules) {
    const auto scale = scales.find(module.ours);
    if (scale == scales.end()) continue;
    any_tensor const* const down = base.find(module.ours + ".down.weight");
    any_tensor const* const up = base.find(module.ours + ".up.weight");
    if (!down || !up) throw option_error(message("[peft] ", module.ours, " has a scale, but no adapters"));
    if (down->rows() % each != 0 || scale->second != how.scale())
      throw option_error(message("[peft] ", module.ours, " has adapters of ", down->rows(),
                                 " rows and the scale ", scale->second, ", but of rank ", how.rank,
                                 " they would have ", each, " rows each and the scale ", how.scale()));
    const auto [first, end] = groups_at(module, *up, each);
    if (first < end) all.push_back({&module, *down, *up, first, end});
  }
  return all;
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::train::detail
