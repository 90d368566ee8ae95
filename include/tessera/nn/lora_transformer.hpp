// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/lora.hpp>
#include <tessera/nn/lora_settings.hpp>
#include <tessera/nn/parameter.hpp>

// Adapters for a whole nn::gpt, nn::encoder or nn::sequence_classifier, whose layers are made of nn::lora:
//
//   nn::gpt<float, Block, nn::transformer_block_of<nn::lora<float, Block>>> model(config, 1);
//   // … its weights are read …
//   nn::add_lora(model, {.rank = 8}, {.query = true, .value = true}, 1);
//   train::training t(model, train::adamw{});
//   t.group_parameters({{.names = "*.down.weight"}, {.names = "*.up.weight"}, {.names = "*", .rate = 0}});

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

namespace detail {
/// Calls visit(layer, rows, name) for each target, in one order; without rows all of them are meant.
template <class Model, class Visit>
void for_each_target(Model& model, lora_targets const& where, Visit&& visit) {
  for (std::size_t i = 0; i < model.blocks.layers.size(); ++i) {
    auto& layer = model.blocks.layers[i];
    const parameter_name blocks("block"), block = blocks.child(int(i)), attention = block.child("attention"),
                                          mlp = block.child("mlp");
    std::vector<row_range> rows;
    const auto heads = layer.attention.heads;
    const std::int64_t all = layer.attention.qkv.plain().weight.rows(),
                       head = all / (heads.queries + 2 * heads.keys), keys = heads.queries * head,
                       values = keys + heads.keys * head;
    if (where.query) rows.push_back({0, keys});
    if (where.key) rows.push_back({keys, values});
    if (where.value) rows.push_back({values, all});
    if (where.of_rows() || where.qkv) visit(layer.attention.qkv, rows, attention.child("qkv"));
    if (where.out) visit(layer.attention.out, {}, attention.child("out"));
    if (where.up) visit(layer.mlp.up, {}, mlp.child("up"));
    if constexpr (requires { layer.mlp.gate; }) {
      if (where.gate) visit(layer.mlp.gate, {}, mlp.child("gate"));
    } else if (where.gate) {
      throw option_error("[lora] the target gate is of gated MLPs, and this model has others");
    }
    if (where.down) visit(layer.mlp.down, {}, mlp.child("down"));
  }
}
}  // namespace detail

/// Gives new adapters to the targets of each layer; what the model computes does not change. Throws
/// option_error for settings without meaning, for no targets, and for a rank above the width of a matrix or
/// the rows of its target, before anything is changed.
template <class Model>
void add_lora(Model& model, lora_settings const& how, lora_targets const& where, std::uint64_t seed) {
  how.check();
  where.check();
  const auto visit = [&](auto const& act) { detail::for_each_target(model, where, act); };
  visit([&](auto& layer, std::vector<row_range> const& rows, parameter_name const& name) {
    auto const& w = layer.plain().weight;
    std::int64_t least = std::min(w.rows(), w.cols());
    for (row_range const& each : rows) least = std::min(least, each.end - each.first);
    if (how.rank > least)
      throw option_error(message("[lora] rank is ", how.rank, ", but ", name.text(), " has ", least,
                                 rows.empty() ? " rows or columns" : " rows of a target, or columns"));
  });
  visit([&](auto& layer, std::vector<row_range> rows, parameter_name const& name) {
    layer.adapt(how, std::move(rows), seed, name.child("down.weight").key());
  });
}

/// Adds the adapters of all layers to their weights, and drops them; then the model has the parameters and
/// settings of one without. Returns the norm of what the weights do not store (Frobenius). Layers of 8 bits
/// are to be refreshed.
template <class Model> double merge_lora(Model& model, merge_blocks into) {
  double squares = 0;
  const auto merge = [&](auto& layer) {
    if (layer.ranks() == 0) return;
    const double lost = layer.merge(into);
    squares += lost * lost;
  };
  for (auto& layer : model.blocks.layers) {
    merge(layer.attention.qkv), merge(layer.attention.out), merge(layer.mlp.up), merge(layer.mlp.down);
    if constexpr (requires { layer.mlp.gate; }) merge(layer.mlp.gate);
  }
  return std::sqrt(squares);
}

}}}  // namespace tessera::TESSERA_ISA::nn
