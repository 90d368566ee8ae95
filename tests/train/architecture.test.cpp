// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/train/architecture.hpp>
#include <tessera/train/optimizers/sgd.hpp>

namespace architecture_test {

using namespace tessera;
using block = block_shape<4>;

nn::transformer_config config(int heads, double dropout = 0) {
  nn::transformer_config of;
  of.layers = 1;
  of.hidden = 16;
  of.heads = heads;
  of.context = 4;
  of.vocabulary = 5;
  of.dropout = dropout;
  return of;
}

TEST_CASE("architecture: transformers say what no tensor shows, other models nothing") {
  CHECK(train::architecture(nn::gpt<float, block>(config(2, 0.1), 1)) ==
        "2 heads, causal, pre-norm, gelu_polynomial, dropout 0.1");
  CHECK(train::architecture(nn::gpt<bfloat16, block, ops::relu>(config(4), 1)) ==
        "4 heads, causal, pre-norm, relu, dropout 0.0");
  CHECK(train::architecture(nn::encoder<float, block, ops::gelu>(config(1), 1)) ==
        "1 heads, bidirectional, post-norm, gelu, dropout 0.0");
  CHECK(train::architecture(nn::gpt<float, block>()).empty());
  CHECK(train::architecture(toy::model<float>()).empty());
}

TEST_CASE("architecture: a model of other heads, dropout or activation does not resume a checkpoint") {
  const scratch_folder scratch;
  using relu_gpt = nn::gpt<float, block, ops::relu>;
  using gelu_gpt = nn::gpt<float, block, ops::gelu>;
  relu_gpt saved(config(2, 0.1), 1);
  train::training trained(saved, train::sgd{});
  train::save(trained, scratch / "c", {});
  const train::checkpoint from(scratch / "c");
  const auto refused = [&](auto model, std::string const& other) {
    const auto before = model.blocks.layers[0].attention.out.weight;
    train::training t(model, train::sgd{});
    CHECK(
        error_of<io_error>([&] { train::resume(t, from); }) ==
        "[" + scratch / "c" +
            "/state.json] architecture is \"2 heads, causal, pre-norm, relu, dropout 0.1\" but should be \"" +
            other + "\"");
    CHECK(error_of<io_error>([&] { from.load(model); }) != "");
    CHECK(toy::same_bits(model.blocks.layers[0].attention.out.weight, before));
  };
  refused(relu_gpt(config(4, 0.1), 2), "4 heads, causal, pre-norm, relu, dropout 0.1");
  refused(relu_gpt(config(2), 2), "2 heads, causal, pre-norm, relu, dropout 0.0");
  refused(gelu_gpt(config(2, 0.1), 2), "2 heads, causal, pre-norm, gelu, dropout 0.1");
  relu_gpt same(config(2, 0.1), 2);
  train::training t(same, train::sgd{});
  CHECK_NOTHROW(train::resume(t, from));
  CHECK(toy::same_bits(same.blocks.layers[0].attention.out.weight,
                       saved.blocks.layers[0].attention.out.weight));
}

}  // namespace architecture_test
