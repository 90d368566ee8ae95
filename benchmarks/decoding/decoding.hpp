// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include <harness/contestant.hpp>

#include <tessera/io/json.hpp>
#include <tessera/nn/transformer_config.hpp>

namespace bench {

/// A model in use, which keeps keys and values in 16 bits: GPT-2 small ("gpt2 …"), whose output is the table
/// of tokens, or a LLaMA of as many layers ("llama …") with a key head for three heads. A smaller hidden
/// size, for checks, has fewer layers and tokens in proportion.
///   "… decode"    a pass that appends a token to each of n texts, which have k to k + passes tokens before
///   it "… prefill"   a text of n tokens, of which the last has logits (k is 0) m             hidden size
struct decoder_shape {
  static constexpr std::int64_t passes = 17;  // of a text, before it is again one of k tokens
  static constexpr int passes_of_a_sample = 16;

  bool llama, prefill;
  std::int64_t hidden, cached, tokens;  // m, k, n
  double density;
  std::string element;
  int threads;
  std::int64_t layers, heads, key_heads, inner, vocabulary, context;

  explicit decoder_shape(workload const& what)
      : llama(what.operation.starts_with("llama")),
        prefill(what.operation.ends_with("prefill")),
        hidden(what.m),
        cached(what.k),
        tokens(what.n),
        density(what.density),
        element(what.element),
        threads(what.threads),
        layers(what.m / 64),
        heads(what.m / 64),
        key_heads(llama ? heads / 3 : heads),
        inner(llama ? 8 * what.m / 3 : 4 * what.m),
        vocabulary((llama ? 32000 : 50257) * what.m / 768),
        context(llama ? 4096 : 1024) {}

  std::int64_t sequences() const { return prefill ? 1 : tokens; }
  /// Of the longest text.
  std::int64_t length() const { return prefill ? tokens : cached + passes; }

  nn::transformer_config config() const {
    nn::transformer_config of;
    of.layers = layers, of.hidden = hidden, of.heads = heads, of.key_heads = key_heads;
    of.mlp_features = inner, of.vocabulary = vocabulary, of.context = context;
    of.density = density;
    if (!llama) return of;
    of.positions = nn::position_coding::rotary;
    of.output = nn::output_weight::own;
    of.bias = nn::bias_term::absent;
    return of;
  }
  /// For a peer in another language.
  io::json json() const {
    return io::json::object{{"model", llama ? "llama" : "gpt2"},
                            {"prefill", prefill},
                            {"hidden", hidden},
                            {"cached", cached},
                            {"tokens", tokens},
                            {"passes", passes},
                            {"layers", layers},
                            {"heads", heads},
                            {"key_heads", key_heads},
                            {"inner", inner},
                            {"vocabulary", vocabulary},
                            {"context", context},
                            {"threads", threads}};
  }

  // ---- of a run ----

  std::int64_t key_features() const { return hidden / heads * key_heads; }
  /// Values of the matrices of all layers, and rows.
  std::int64_t layer_weights() const {
    return layers * hidden * (2 * hidden + 2 * key_features() + (llama ? 3 : 2) * inner);
  }
  std::int64_t layer_rows() const {
    return layers * (3 * hidden + 2 * key_features() + (llama ? 2 : 1) * inner);
  }
  /// Of the dense model.
  std::int64_t parameters() const {
    const std::int64_t tables = (llama ? 2 * vocabulary : vocabulary + context) * hidden;
    const std::int64_t vectors =
        llama ? 2 * layers * hidden + hidden : layer_rows() + 4 * layers * hidden + 2 * hidden;
    return layer_weights() + tables + vectors;
  }
  /// Attention of prefill is causal.
  double useful_flops() const {
    const double attended = prefill ? double(tokens + 1) / 2 : double(cached + passes / 2);
    return 2 * double(tokens) * (double(layer_weights()) * density + 2 * attended * double(layers * hidden)) +
           2 * double(sequences() * vocabulary * hidden);
  }
  /// Bytes that a pass has to read: stored weights with an index for each block and, in 8 bits, a scale for
  /// each row; the output weight; keys and values.
  double least_bytes() const {
    const double number = element == "float" ? 4 : 1, stored = double(layer_weights()) * density;
    const double index = density < 1 ? 4 * stored / (16 * 16) : 0;
    const double scales = element == "float" ? 0 : 4 * double(layer_rows() + vocabulary);
    const double cache = 2 * 2 * double(layers * key_features()) *
                         (prefill ? double(tokens) : double(tokens * (cached + passes / 2)));
    return (stored + double(vocabulary * hidden)) * number + index + scales + cache;
  }
};

}  // namespace bench
