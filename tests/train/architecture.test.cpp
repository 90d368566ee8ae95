// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/nn/combinators.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/nm_linear.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/nn/relative_bias.hpp>
#include <tessera/train/architecture.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/policies/deep_rewiring.hpp>
#include <tessera/train/sparsity/policies/gradual_pruning.hpp>
#include <tessera/train/sparsity/policies/granet.hpp>
#include <tessera/train/sparsity/policies/rigl.hpp>
#include <tessera/train/sparsity/policies/sparse_evolutionary_training.hpp>
#include <tessera/train/sparsity/policies/sparse_momentum.hpp>

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
      R"("block.0.attention.rotary_base":0.0,"block.0.attention.visible_blocks":"all",)"
      R"("block.0.norm2.epsilon":1e-05,)"
      R"("block.0.mlp.activation":"relu","final_norm.epsilon":1e-05})");
  CHECK(train::architecture(toy::model<float>()) == io::json(io::json::object{}));
}

TEST_CASE("architecture: 8-bit numbers of one template are told apart, in products and in gradients") {
  const auto settings = []<class E, class Gradient>(std::type_identity<E>, std::type_identity<Gradient>) {
    return io::to_text(train::architecture(nn::quantised_linear<float, block, E, Gradient>()));
  };
  const std::type_identity<float8_e4m3> e4m3;
  const std::type_identity<float8_e5m2> e5m2;
  CHECK(settings(e4m3, e5m2) == R"({"products_in":"float8","fraction_bits":3,"gradient_fraction_bits":2})");
  CHECK(settings(e4m3, e4m3) == R"({"products_in":"float8","fraction_bits":3,"gradient_fraction_bits":3})");
  CHECK(settings(e5m2, e4m3) == R"({"products_in":"float8","fraction_bits":2,"gradient_fraction_bits":3})");
  CHECK(settings(std::type_identity<int8>(), std::type_identity<void>()) == R"({"products_in":"int8"})");
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
  CHECK_NOTHROW(from.load(same));
  CHECK_NOTHROW(train::resume(t, from, train::other_settings::allowed));
  CHECK(toy::same_bits(same.blocks.layers[0].attention.out.weight,
                       saved.blocks.layers[0].attention.out.weight));
}

TEST_CASE("architecture: layers that are used several times are compared, and a training of them goes on") {
  const scratch_folder scratch;
  auto shape = config(2, 0.3);
  shape.context = 40;
  using model = nn::encoder<float, block>;
  const std::vector<std::int32_t> ids(40, 3);
  const auto train_on = [&](auto& t) {
    context ctx(1);
    const sequences batch({0, 40});
    nn::workspace<float> room;
    model::saved saved;
    for (int i = 0; i < 2; ++i)
      train::train_step(ctx, t, {.rate = 0.01}, [&](int) {
        const nn::pass<float> p = t.pass(ctx, batch, room, 1);
        const double loss = t.model.forward({ids}, ids, saved, p);
        t.model.backward({ids}, saved, t.gradients, p);
        return train::token_loss{loss, 40, p};
      });
  };
  const auto once = io::to_text(train::architecture(model(shape, 1)));
  CHECK(once.find("times") == once.npos);
  shape.repeats = 3, shape.embedding = 6;
  model m(shape, 1), again(shape, 2);
  train::training t(m, train::adamw{}), other(again, train::adamw{});
  train_on(t);
  train::save(t, scratch / "c", {});
  train::resume(other, train::checkpoint(scratch / "c"));
  train_on(t), train_on(other);
  const nn::parameter_list of_t(m), of_other(again);
  for (std::size_t i = 0; i < of_t.size(); ++i) {
    INFO(of_t.name(i));
    CHECK(of_t[i].tensor.values() == of_other[i].tensor.values());
  }
  const auto refusal = [&](std::int64_t repeats) {
    auto changed = shape;
    changed.repeats = repeats;
    model read(changed, 1);
    return error_of<io_error>([&] { train::checkpoint(scratch / "c").load(read); });
  };
  const std::string where = "[" + scratch / "c" + "/state.json] architecture";
  CHECK(refusal(2) == where + ".block.times is 3 in the checkpoint but 2 in this model");
  CHECK(refusal(1) == where + ".block.times is 3 in the checkpoint, but this model has none");
}

TEST_CASE("architecture: attention to other blocks does not resume a checkpoint, nor does a model without") {
  const scratch_folder scratch;
  const pattern some = random_pattern(2, 2, 0.5, 1), others = random_pattern(2, 2, 0.5, 2);
  REQUIRE(!(some == others));
  const auto model_of = [&](std::vector<pattern> const& blocks) {
    relu_gpt model(config(2), 1);
    model.blocks.layers[0].attention.blocks = blocks;
    return model;
  };
  relu_gpt saved = model_of({some});
  train::training trained(saved, train::sgd{});
  train::save(trained, scratch / "c", {});
  const train::checkpoint from(scratch / "c");
  const auto refusal = [&](relu_gpt model) {
    train::training t(model, train::sgd{});
    const std::string refused = error_of<io_error>([&] { train::resume(t, from); });
    CHECK(refused == error_of<io_error>([&] { from.load(model); }));
    return refused;
  };
  CHECK(refusal(model_of({some})) == "");
  const std::string dense = refusal(model_of({}));
  CHECK(dense.find("architecture.block.0.attention.visible_blocks is \"2 of 4 in 1 pattern of hash ") !=
        dense.npos);
  CHECK(dense.ends_with("\" in the checkpoint but \"all\" in this model"));
  CHECK(refusal(model_of({others})) != "");
  CHECK(refusal(model_of({some, some})) != "");
}

TEST_CASE("architecture: a model with a residual connection does not resume one without") {
  const scratch_folder scratch;
  using layer = nn::linear<float, block>;
  layer plain(8, 8);
  nn::residual<float, layer> around{layer(8, 8)};
  train::training without(plain, train::sgd{});
  train::training with(around, train::sgd{});
  train::save(without, scratch / "without", {});
  train::save(with, scratch / "with", {});
  CHECK(error_of<io_error>([&] { train::resume(with, train::checkpoint(scratch / "without")); }) ==
        "[" + scratch / "without" + "/state.json] architecture has no residual, which is true in this model");
  CHECK(error_of<io_error>([&] { train::resume(without, train::checkpoint(scratch / "with")); }) ==
        "[" + scratch / "with" +
            "/state.json] architecture.residual is true in the checkpoint, but this model has none");
}

TEST_CASE(
    "architecture: scaled branches and norms that are absent are compared, and a plain model says nothing") {
  const scratch_folder scratch;
  const auto model_of = [](nn::residual_form residual, nn::norm_layers norms) {
    auto of = config(2);
    of.residual = residual, of.norms = norms;
    return relu_gpt(of, 1);
  };
  using enum nn::residual_form;
  using enum nn::norm_layers;
  const auto refusal = [&](relu_gpt const& saved, relu_gpt into) {
    train::save_weights(scratch / "c", {}, saved);
    const std::string said = error_of<io_error>([&] { train::checkpoint(scratch / "c").load(into); });
    return said.substr(std::min(said.size(), said.find("architecture")));
  };
  CHECK(refusal(model_of(rezero, absent), model_of(rezero, absent)) == "");
  CHECK(refusal(model_of(plain, present), model_of(plain, absent)) ==
        "architecture has no block.0.norm1.absent, which is true in this model");
  CHECK(refusal(model_of(rezero, present), model_of(plain, present)) ==
        "architecture.block.0.attention_scale.numbers is 1 in the checkpoint, but this model has none");
  CHECK(refusal(model_of(skip_init, present), model_of(layer_scale, present)) ==
        "architecture.block.0.attention_scale.numbers is 1 in the checkpoint but 16 in this model");
}

TEST_CASE("architecture: a checkpoint of more layers or fewer says how many") {
  const scratch_folder scratch;
  nn::transformer_config deep = config(2);
  deep.layers = 3;
  relu_gpt three(deep, 1), one(config(2), 1);
  train::save_weights(scratch / "three", {}, three);
  train::save_weights(scratch / "one", {}, one);
  const auto refusal = [&](char const* from, relu_gpt& into) {
    return error_of<io_error>([&] { train::checkpoint(scratch / from).load(into); });
  };
  CHECK(refusal("three", one) ==
        "[" + scratch / "three" + "/state.json] architecture has 3 of block, but this model has 1");
  CHECK(refusal("one", three) ==
        "[" + scratch / "one" + "/state.json] architecture has 1 of block, but this model has 3");
}

/// Anything that a member may be made of.
struct anything {
  template <class T> operator T() const;
};
/// The number of members of an aggregate.
template <class T, class... Members> constexpr int members() {
  if constexpr (requires { T{Members{}..., anything()}; })
    return members<T, Members..., anything>();
  else
    return sizeof...(Members);
}

/// Changes setting `number` of the layer that is walked.
struct changing {
  int number;
  std::string name = {};
  void parameter(nn::parameter_name const&, auto&...) {}
  void optional(nn::parameter_name const&, auto&...) {}
  void frozen(nn::parameter_name const&, auto&...) {}
  void lists(auto&...) {}
  void hyperparameter(auto&...) {}
  template <class Value> void setting(nn::parameter_name const& of, Value& value) {
    if (number-- != 0) return;
    name = of.text();
    if constexpr (std::is_enum_v<Value>)
      value = Value(int(value) == 0 ? 1 : 0);
    else if constexpr (std::is_integral_v<Value>)
      ++value;
    else
      value /= 2;
  }
};

/// Every member of an optimizer or a policy is a setting, and each of them is compared.
template <class Optimizer, class Policy> void check_settings(Optimizer const& by, Policy const& patterns) {
  const scratch_folder scratch;
  toy::model<float> model;
  const train::turnover replacing{.values = 0.5};
  const train::training saved(model, by, patterns, replacing);
  train::save(saved, scratch / "c", {});
  const train::checkpoint from(scratch / "c");
  const auto check = [&](auto const& one, char const* owner, auto make) {
    using One = std::remove_cvref_t<decltype(one)>;
    for (int i = 0; i < members<One>(); ++i) {
      One other = one;
      changing action{i};
      nn::detail::walk(nn::parameter_name(), action, other);
      REQUIRE_MESSAGE(action.name != "", owner, " lists fewer settings than it has members");
      auto training = make(other);
      const std::string refused = error_of<io_error>([&] { train::resume(training, from); });
      const std::string place =
          "[" + scratch / "c" + "/state.json] state.settings." + owner + "." + action.name;
      CHECK_MESSAGE(refused.starts_with(place + " is "), refused);
      CHECK(refused.find(" in the checkpoint but ") != refused.npos);
      CHECK(
          refused.ends_with(" in this training; set it back, or resume with train::other_settings::allowed"));
      CHECK_NOTHROW(train::resume(training, from, train::other_settings::allowed));
    }
  };
  check(by, "optimizer",
        [&](Optimizer const& other) { return train::training(model, other, patterns, replacing); });
  check(patterns, "policy",
        [&](Policy const& other) { return train::training(model, by, other, replacing); });
  check(replacing, "turnover",
        [&](train::turnover const& other) { return train::training(model, by, patterns, other); });
  train::training same(model, by, patterns, replacing);
  CHECK_NOTHROW(train::resume(same, from));
}

TEST_CASE("architecture: every setting of an optimizer and of a policy is compared when a training resumes") {
  check_settings(train::adamw{}, train::rigl{.interval = 2, .steps = 9});
  check_settings(train::sgd{.weight_decay = 0.1}, train::sparse_momentum{.interval = 2, .steps = 9});
  check_settings(train::sgd{.weight_decay = 0.1}, train::evolving_pattern{.interval = 2, .steps = 9});
  check_settings(train::adamw{}, train::sparse_evolutionary_training{.interval = 2, .steps = 9});
  check_settings(train::adamw{}, train::deep_rewiring{.interval = 2, .steps = 9});
  check_settings(train::adamw{}, train::gradual_pruning{.interval = 2, .begin = 1, .end = 9});
  check_settings(train::adamw{}, train::granet{.interval = 2, .begin = 1, .end = 8, .steps = 9});
}

TEST_CASE("architecture: another optimizer, policy, dropout or group of parameters is refused by name") {
  const scratch_folder scratch;
  relu_gpt saved(config(2, 0.1), 1);
  train::training trained(saved, train::sgd{}, train::rigl{});
  trained.group_parameters({{.names = "*.bias", .decay = 0.5}});
  train::save(trained, scratch / "c", {});
  const train::checkpoint from(scratch / "c");
  const auto refusal = [&](auto policy, double dropout, std::vector<train::parameter_group> const& groups) {
    relu_gpt model(config(2, dropout), 1);
    train::training t(model, train::sgd{}, policy);
    if (!groups.empty()) t.group_parameters(groups);
    std::string refused = error_of<io_error>([&] { train::resume(t, from); });
    const std::size_t place = refused.find("state.settings"), end = refused.find("; set it back");
    return place == refused.npos ? refused : refused.substr(place + 14, end - place - 14);
  };
  const std::vector<train::parameter_group> same{{.names = "*.bias", .decay = 0.5}};
  CHECK(refusal(train::rigl{}, 0.1, same) == "");
  CHECK(refusal(train::deep_rewiring{}, 0.1, same) ==
        ".policy is \"rigl\" in the checkpoint but \"deep_rewiring\" in this training");
  CHECK(refusal(train::rigl{}, 0, same) ==
        ".model.embedding_dropout.rate is 0.1 in the checkpoint but 0.0 in this training");
  CHECK(refusal(train::rigl{}, 0.1, {{.names = "*.bias"}}) ==
        ".group.0.decay is 0.5 in the checkpoint but 1.0 in this training");
  CHECK(refusal(train::rigl{}, 0.1, {}) == " has 1 parameter group, but this training has 0");
  CHECK(refusal(train::rigl{}, 0.1, {same[0], {.names = "*.weight"}}) ==
        " has 1 parameter group, but this training has 2");
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
