// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/io/safetensors.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tessera.hpp>

/// What the scripts in tests/golden move: a matrix (24, 20), stored where a pattern says, and a bias (24).
/// The matrix may be several above each other.
template <class Block> struct weight_and_bias_in {
  tessera::block_sparse_matrix<float, Block> weight{24, 20};
  tessera::feature_vector<float> bias = tessera::feature_vector<float>(24);

  tessera::nn::row_shares stacked{};

  using gradients = weight_and_bias_in;

  static void parts(auto& each, auto& first, auto&... others) {
    each.stacked("weight", first.stacked, first.weight, others.weight...);
    each("bias", first.bias, others.bias...);
    each.hyperparameter(first.stacked, others.stacked...);
  }
};
using weight_and_bias = weight_and_bias_in<tessera::block_shape<16>>;

/// Tensors recorded by PyTorch.
class golden_tensors {
 public:
  explicit golden_tensors(std::string const& name)
      : file_(std::string(TESSERA_SOURCE_DIR) + "/tests/golden/" + name) {}

  std::vector<float> numbers(std::string const& name) const {
    std::vector<float> all(file_.at(name).bytes.size() / sizeof(float));
    file_.read_into(name, file_.at(name).shape, std::span(all));
    return all;
  }
  /// PREFIXweight and PREFIXbias, the weight at the blocks of a pattern.
  template <class Block>
  weight_and_bias_in<Block> pair_in(std::string const& prefix, tessera::pattern const& stored) const {
    weight_and_bias_in<Block> both;
    both.weight = tessera::block_sparse_matrix<float, Block>(24, 20, stored);
    const std::vector<float> weight = numbers(prefix + "weight");
    copy(tessera::row_major(weight.data(), 24, 20), both.weight);
    file_.read_into(prefix + "bias", {24}, std::span(both.bias.begin(), 24));
    return both;
  }
  weight_and_bias pair(std::string const& prefix) const {
    return pair_in<tessera::block_shape<16>>(prefix, tessera::pattern::dense(2, 2));
  }

 private:
  tessera::io::safetensors_file file_;
};
