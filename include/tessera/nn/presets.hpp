// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/transformer_config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// A published model by its name.
struct preset {
  char const* name;
  std::int64_t layers, hidden, heads, key_heads = 0, mlp_features = 0;
};
/// BERT (Devlin et al. 2019) and its smaller relatives (Turc et al. 2019, "Well-Read Students Learn Better").
inline constexpr std::array bert_presets{preset{"tiny", 2, 128, 2}, preset{"mini", 4, 256, 4},
                                         preset{"small", 4, 512, 8}, preset{"medium", 8, 512, 8},
                                         preset{"base", 12, 768, 12}};
/// GPT-2 (Radford et al. 2019), and small ones for a CPU.
inline constexpr std::array gpt_presets{preset{"tiny", 2, 128, 2},     preset{"mini", 4, 256, 4},
                                        preset{"small", 12, 768, 12},  preset{"medium", 24, 1024, 16},
                                        preset{"large", 36, 1280, 20}, preset{"xl", 48, 1600, 25}};
/// Small LLaMAs for a CPU, two of Miao et al. 2023 (SpecInfer), TinyLlama (Zhang et al. 2024), and the
/// smallest of Touvron et al. 2023.
inline constexpr std::array llama_presets{
    preset{"tiny", 2, 128, 2, 0, 352},   preset{"mini", 4, 256, 4, 0, 704},
    preset{"68m", 2, 768, 12, 0, 3072},  preset{"160m", 12, 768, 12, 0, 3072},
    preset{"1b", 22, 2048, 32, 4, 5632}, preset{"7b", 32, 4096, 32, 0, 11008}};

namespace detail {
template <std::size_t Count>
transformer_config config_of(std::array<preset, Count> const& all, char const* family,
                             std::string const& name) {
  std::string names;
  for (preset const& p : all) {
    if (name == p.name) {
      transformer_config config;
      config.layers = p.layers, config.hidden = p.hidden, config.heads = p.heads;
      config.key_heads = p.key_heads, config.mlp_features = p.mlp_features;
      return config;
    }
    names += (names.empty() ? "" : ", ") + std::string(p.name);
  }
  throw option_error(message("[", family, "] \"", name, "\": there are ", names));
}
}  // namespace detail

/// The shape of a published BERT: tiny, mini, small, medium or base, with its uncased vocabulary. Dropout is
/// 0.1 beyond small, as in Dietrich et al. 2021. Throws option_error for another name.
inline transformer_config bert_config(std::string const& name) {
  transformer_config config = detail::config_of(bert_presets, "bert_config", name);
  config.vocabulary = 30522, config.context = 512, config.segment_types = 2;
  config.dropout = name == "medium" || name == "base" ? 0.1 : 0;
  return config;
}
/// The shape of a published GPT-2: small, medium, large or xl, or of a tiny or mini relative. Throws
/// option_error for another name.
inline transformer_config gpt2_config(std::string const& name) {
  transformer_config config = detail::config_of(gpt_presets, "gpt2_config", name);
  config.vocabulary = 50257, config.context = 1024, config.dropout = 0.1;
  return config;
}
/// A configuration of an nn::llama, for one of a GPT: with rotary positions, an output weight of its own, no
/// biases, and MLPs of 8 ÷ 3 the features, rounded up to a multiple of 32, if it says nothing of them.
inline transformer_config as_llama(transformer_config of) {
  of.positions = position_coding::rotary;
  of.output = output_weight::own;
  of.bias = bias_term::absent;
  if (of.mlp_features == 0)
    of.mlp_features = round_up<std::int64_t>(ceil_div<std::int64_t>(8 * of.hidden, 3), 32);
  return of;
}
/// The shape of a published LLaMA: 68m, 160m, 1b (TinyLlama) or 7b, or of a tiny or mini relative. Throws
/// option_error for another name.
inline transformer_config llama_config(std::string const& name) {
  transformer_config config = as_llama(detail::config_of(llama_presets, "llama_config", name));
  config.vocabulary = 32000, config.context = 2048;
  return config;
}

/// FLOPs of a training step for one sequence of `tokens` tokens in the blocks of a transformer, embeddings
/// and head left out: 3 (2 · 12 T H² L d + 4 T² H L), as Dietrich et al. 2021 count them (appendix A.2).
inline double training_flops(transformer_config const& of, std::int64_t tokens) {
  const double t = double(tokens), h = double(of.hidden), l = double(of.depth());
  const double weights = (4 + 2 * double(of.inner()) / h) * h * h * of.density;
  return 3 * (2 * t * weights + 4 * t * t * h) * l;
}

/// The time that a FLOP takes in a sparse model, ÷ that in a dense one: ε of Dietrich et al. 2021 (appendix
/// A.3). Times in seconds and FLOPs are of any number of steps each, above 0.
inline double flop_cost(double sparse_seconds, double sparse_flops, double dense_seconds,
                        double dense_flops) {
  return (sparse_seconds / sparse_flops) / (dense_seconds / dense_flops);
}
/// The ε below which sparse training takes less time than dense training to the same loss, from the FLOPs
/// that each takes until then, above 0; in the paper 1.2 for BERT-Base in blocks of 16 x 16.
inline double critical_flop_cost(double dense_flops, double sparse_flops) {
  return dense_flops / sparse_flops;
}

}}}  // namespace tessera::TESSERA_ISA::nn
