// SPDX-License-Identifier: BSD-3-Clause
#include <string>
#include <type_traits>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/nm_linear.hpp>
#include <tessera/nn/relative_bias.hpp>
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

template <template <class> class Mlp, nn::norm_order Order = nn::norm_order::pre>
using block_of = nn::transformer_block<float, block, Order, nn::layer_norm<float>, Mlp<float>>;
template <class T> using relu_mlp = nn::mlp<T, block, ops::relu>;
template <class T> using gelu_mlp = nn::mlp<T, block, ops::gelu>;
using relu_gpt = nn::gpt<float, block, block_of<relu_mlp>>;
using gelu_gpt = nn::gpt<float, block, block_of<gelu_mlp>>;
using post_gpt = nn::gpt<float, block, block_of<relu_mlp, nn::norm_order::post>>;

TEST_CASE("architecture: the settings of all layers by name, none of a model without settings") {
  CHECK(
      io::to_text(train::architecture(relu_gpt(config(2, 0.1), 1))) ==
      R"({"block.0.order":0,"block.0.norm1.epsilon":1e-05,"block.0.attention.heads":2,"block.0.attention.key_heads":2,)"
      R"("block.0.attention.seen":1,"block.0.attention.score":"plain_scores",)"
      R"("block.0.attention.rotary_base":0.0,"block.0.norm2.epsilon":1e-05,)"
      R"("block.0.mlp.activation":"relu","final_norm.epsilon":1e-05})");
  CHECK(train::architecture(toy::model<float>()) == io::json(io::json::object{}));
}

/// Scores that stay within ±cap.
struct capped {
  double cap = 50;
  double term(int, std::int64_t) const { return cap; }
  template <class V> V operator()(V score, V term) const { return min(max(score, -term), term); }
  template <class V> V derivative(V, V) const { return V(1); }
  static void parts(auto& each, auto&... of) { each.setting("cap", of.cap...); }
};

TEST_CASE("architecture: score functors of one type with different numbers differ") {
  nn::multi_head_attention<float, block, capped> limited;
  limited.score.cap = 30;
  CHECK(io::to_text(train::architecture(limited)).find(R"("score":"capped","score.cap":30.0,)") !=
        std::string::npos);
  nn::multi_head_attention<float, block, nn::relative_bias<float>> biased;
  biased.score = {2, mask::causal, 8, 20};
  CHECK(io::to_text(train::architecture(biased)).find(R"("score":"relative_bias","score.farthest":20,)") !=
        std::string::npos);
}

TEST_CASE("architecture: a model of other heads, norms or activation does not resume a checkpoint") {
  const scratch_folder scratch;
  relu_gpt saved(config(2, 0.1), 1);
  train::training trained(saved, train::sgd{});
  train::save(trained, scratch / "c", {});
  const train::checkpoint from(scratch / "c");
  const auto refused = [&](auto model, std::string const& what) {
    const auto before = model.blocks.layers[0].attention.out.weight;
    train::training t(model, train::sgd{});
    CHECK(error_of<io_error>([&] { train::resume(t, from); }) ==
          "[" + scratch / "c" + "/state.json] architecture.block.0." + what);
    CHECK(error_of<io_error>([&] { from.load(model); }) != "");
    CHECK(toy::same_bits(model.blocks.layers[0].attention.out.weight, before));
  };
  refused(relu_gpt(config(4), 2), "attention.heads is 2 in the checkpoint but 4 in this model");
  refused(post_gpt(config(2), 2), "order is 0 in the checkpoint but 1 in this model");
  refused(gelu_gpt(config(2), 2), "mlp.activation is \"relu\" in the checkpoint but \"gelu\" in this model");
  relu_gpt same(config(2), 2);  // dropout belongs to the training, not to the model
  train::training t(same, train::sgd{});
  CHECK_NOTHROW(train::resume(t, from));
  CHECK(toy::same_bits(same.blocks.layers[0].attention.out.weight,
                       saved.blocks.layers[0].attention.out.weight));
}

TEST_CASE("architecture: a model of other N:M sparsity, or none, does not resume a checkpoint") {
  const scratch_folder scratch;
  const auto trained = [&]<class Layer>(std::type_identity<Layer>, auto&& use) {
    nn::mlp<float, block, ops::relu, Layer> m{Layer(nn::linear<float, block>(8, 8)),
                                              Layer(nn::linear<float, block>(8, 8))};
    train::training t(m, train::sgd{});
    use(t);
  };
  using two_of_four = nn::nm_linear<float, nm_shape<2, 4>, block>;
  trained(std::type_identity<two_of_four>(), [&](auto& t) { train::save(t, scratch / "c", {}); });
  const train::checkpoint from(scratch / "c");
  trained(std::type_identity<two_of_four>(), [&](auto& t) { train::resume(t, from); });
  trained(std::type_identity<nn::nm_linear<float, nm_shape<1, 4>, block>>(),
          [&](auto& t) { CHECK_THROWS_AS(train::resume(t, from), io_error); });
  trained(std::type_identity<nn::linear<float, block>>(),
          [&](auto& t) { CHECK_THROWS_AS(train::resume(t, from), io_error); });
}

}  // namespace architecture_test
