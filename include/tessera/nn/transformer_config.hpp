// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/statements/attention_heads.hpp>
#include <tessera/statements/rotary_scaling.hpp>
#include <tessera/tensor/densities.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// How a transformer knows the positions of tokens.
///   learned   a vector for each position is added to the embedding (GPT-2, BERT)
///   rotary    queries and keys are rotated (RoFormer: Su et al. 2021)
///   none      not at all, or by a functor of the attention's scores, such as alibi
enum class position_coding { learned, rotary, none };

/// Whether the norms of a model normalise, or are left out: their value is then their input.
enum class norm_layers { present, absent };

/// The weight of the logits: the table of tokens (tied), or a matrix of its own.
enum class output_weight { tied, own };

/// Which biases attention has in a model without others: none, of queries, keys and values (Qwen2), or of the
/// output, too.
enum class attention_bias { none, inputs, all };

/// How a block adds the result of a branch F to its input.
///   plain         x + F(x)
///   rezero        x + λ F(x), a number λ for each block, 0 at first (Bachlechner et al. 2020)
///   skip_init     a number for each branch, 0 at first (De, Smith 2020)
///   multiplier    a number for each branch, 1 at first (Zhang, Dauphin, Ma 2019)
///   layer_scale   x + λ ∘ F(x), a number for each feature of each branch, small at first (Touvron et al.
///   2021)
enum class residual_form { plain, rezero, skip_init, multiplier, layer_scale };

/// With which values the weights of a model begin: see initialise_transformer.
enum class initial_values { standard, xavier, fixup, t_fixup };

/// λ of layer_scale at first, by the number of layers (Touvron et al. 2021, §3.1).
constexpr double first_layer_scale(std::int64_t layers) {
  return layers <= 18 ? 0.1 : layers <= 24 ? 1e-5 : 1e-6;
}

/// The shape of a transformer.
struct transformer_config {
  std::int64_t layers = 4;
  std::int64_t repeats = 1;  // how often all layers are used, one round after the other: see stack
  std::int64_t hidden = 128;
  std::int64_t embedding = 0;  // features of the token table, projected to hidden; 0: hidden, as they are
  std::int64_t heads = 4;
  std::int64_t key_heads = 0;      // of keys and values, which groups of heads share; 0: one for each head
  std::int64_t context = 128;      // longest sequence
  std::int64_t window = 0;         // keys that a query sees, the newest; 0: all (see visible_keys)
  std::int64_t vocabulary = 256;   // token ids are 0 … vocabulary - 1
  std::int64_t feed_forward = 4;   // inner features of an MLP ÷ hidden
  std::int64_t mlp_features = 0;   // inner features of an MLP; 0: feed_forward times hidden
  std::int64_t segment_types = 0;  // number of segment embeddings of an encoder; 0: none
  bool next_sentence = false;      // an encoder predicts whether a segment follows another, too
  position_coding positions = position_coding::learned;
  double rotary_base = 10000;   // longest wavelength of rotary positions ÷ 2 π
  rotary_scaling scaling = {};  // of rotary positions
  output_weight output = output_weight::tied;
  bias_term bias = bias_term::present;
  attention_bias biases_of_attention = attention_bias::none;  // without the others
  double dropout = 0;
  double density = 1;  // stored blocks ÷ all blocks, in the weights of a transformer block
  density_distribution densities = density_distribution::uniform;  // over these weights
  norm_layers norms = norm_layers::present;                        // in blocks and around them
  residual_form residual = residual_form::plain;
  initial_values start = initial_values::standard;

  /// Throws option_error for the first field that makes no sense.
  void check() const {
    const auto at_least_one = [](const char* name, std::int64_t value, std::int64_t most) {
      if (value < 1 || value > most)
        throw option_error(message("[transformer] ", name, " is ", value, ": it must be in 1 … ", most));
    };
    constexpr std::int64_t most = std::int64_t(1) << 31, most_ids = std::int64_t(1) << 24;
    at_least_one("layers", layers, most - 1);
    at_least_one("repeats", repeats, (most - 1) / layers);
    at_least_one("hidden", hidden, most);
    if (embedding != 0) at_least_one("embedding", embedding, most);
    at_least_one("heads", heads, most);
    at_least_one("context", context, most - 1);
    if (window != 0) at_least_one("window", window, most - 1);
    at_least_one("vocabulary", vocabulary, most_ids);  // ids are compared as floats
    at_least_one("feed_forward", feed_forward, most);
    if (mlp_features != 0) at_least_one("mlp_features", mlp_features, most);
    if (segment_types != 0) at_least_one("segment_types", segment_types, most_ids);
    if (hidden % heads != 0)
      throw option_error(message("[transformer] hidden is ", hidden, ", which ", heads,
                                 " heads do not divide: make it ", round_up(hidden, heads)));
    if (key_heads != 0) static_cast<void>(attention_heads(int(heads), int(std::min(key_heads, most))));
    if (positions == position_coding::rotary && hidden / heads % 2 != 0)
      throw option_error(message("[transformer] heads have ", hidden / heads,
                                 " features, of which rotary positions rotate pairs: make hidden ",
                                 heads * round_up<std::int64_t>(hidden / heads, 2)));
    if (!(rotary_base > 0))
      throw option_error(message("[transformer] rotary_base is ", rotary_base, ": it must be positive"));
    scaling.check();
    if (!(dropout >= 0 && dropout < 1))
      throw option_error(message("[transformer] dropout is ", dropout, ": it must be in [0, 1)"));
    if (!(density > 0 && density <= 1))
      throw option_error(message("[transformer] density is ", density, ": it must be in (0, 1]"));
    check_start();
  }

  /// The form of residual connections: Fixup brings multipliers.
  residual_form connection() const {
    return start == initial_values::fixup ? residual_form::multiplier : residual;
  }

  /// The density of a weight (rows, cols). Together the weights of queries, keys and values, of the output
  /// and of an MLP have the `density` of the configuration.
  double density_of(std::int64_t rows, std::int64_t cols) const {
    if (densities == density_distribution::uniform || density == 1) return density;
    const matrix_shape all[] = {
        {qkv_features(), hidden}, {hidden, hidden}, {inner(), hidden}, {hidden, inner()}};
    const std::vector<double> shared = erdos_renyi_densities(all, density);
    std::size_t i = 0;
    while (i < 3 && !(all[i].rows == rows && all[i].cols == cols)) ++i;
    return shared[i];
  }

  /// The number of layers that a token passes.
  std::int64_t depth() const { return layers * repeats; }
  /// Whether a factor of the token table is a matrix of its own (Lan et al. 2020, §3.1).
  bool is_factorised() const { return embedding != 0; }
  std::int64_t embedding_features() const { return is_factorised() ? embedding : hidden; }
  std::int64_t heads_of_keys() const { return key_heads == 0 ? heads : key_heads; }
  /// Of queries, keys and values.
  std::int64_t qkv_features() const { return detail::product(heads + 2 * heads_of_keys(), hidden / heads); }
  std::int64_t inner() const {
    return mlp_features != 0 ? mlp_features : detail::product(feed_forward, hidden);
  }
  bias_term qkv_bias() const {
    return biases_of_attention == attention_bias::none ? bias : bias_term::present;
  }
  bias_term out_bias() const {
    return biases_of_attention == attention_bias::all ? bias_term::present : bias;
  }

 private:
  void check_start() const {
    if (start != initial_values::fixup && start != initial_values::t_fixup) return;
    const char* const name = start == initial_values::fixup ? "Fixup" : "T-Fixup";
    if (norms == norm_layers::present)
      throw option_error(message("[transformer] the initial values of ", name,
                                 " are for models without norms: make norms absent"));
    if (residual != residual_form::plain)
      throw option_error(message(
          "[transformer] the initial values of ", name, " are for plain residual connections, which ",
          start == initial_values::fixup ? "get" : "need no", " multipliers: ", "make residual plain"));
    if (start == initial_values::fixup && bias == bias_term::absent)
      throw option_error("[transformer] Fixup has biases: make bias present");
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
