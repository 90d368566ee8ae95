// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/alibi.hpp>
#include <tessera/nn/combinators.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/presets.hpp>

namespace gpt_test {

using namespace tessera;
using support::some_ids;
using support::trial;

using model = nn::gpt<double, block_shape<4>>;

constexpr std::int64_t tokens = 87;
const std::vector<std::int64_t> offsets{0, 41, 46, 46, 87};

nn::transformer_config small() {
  nn::transformer_config config;
  config.layers = 2;
  config.hidden = 20;
  config.heads = 2;
  config.context = 50;
  config.vocabulary = 37;
  config.feed_forward = 2;
  return config;
}

std::vector<std::int32_t> targets_ignoring(int all_but_every) {
  auto targets = some_ids(tokens, 37, 2);
  for (std::size_t t = 0; t < targets.size(); ++t)
    if (t % std::size_t(all_but_every) != 0) targets[t] = nn::ignored;
  return targets;
}

template <class Model = model> void check(nn::transformer_config const& config, int all_but_every) {
  trial t(offsets);
  Model m(config, 7);
  support::randomise(m, 1, 0.3);
  const auto ids = some_ids(tokens, 37, 1), targets = targets_ignoring(all_but_every);
  typename Model::saved saved;
  auto gradients = nn::zeros_like(m);
  const auto loss = [&] { return m.forward(ids, targets, saved, t.pass(), double(tokens)); };
  static_cast<void>(loss());
  m.backward(ids, saved, gradients, t.pass());
  support::check_parameter_gradients(m, gradients, loss);
}

TEST_CASE("gpt: gradients are right with rotary positions and heads that share keys") {
  auto config = small();
  config.heads = 5;
  config.key_heads = 1;
  config.positions = nn::position_coding::rotary;
  check(config, 1);
}

TEST_CASE("gpt: gradients are right with layers that are used thrice and a factorised embedding") {
  auto config = small();
  config.repeats = 3, config.embedding = 7;
  config.density = 0.4;
  config.dropout = 0.2;
  check(config, 1);
  check(config, 7);
}

TEST_CASE("gpt: gradients are right with blocks of another kind and without a position embedding") {
  using T = double;
  using block = nn::transformer_block<T, block_shape<4>, nn::norm_order::pre, nn::rms_norm<T>,
                                      nn::gated_mlp<T, block_shape<4>>,
                                      nn::multi_head_attention<T, block_shape<4>, nn::alibi>>;
  auto config = small();
  config.density = 0.5;
  config.positions = nn::position_coding::none;
  check<nn::gpt<T, block_shape<4>, block>>(config, 1);
}

nn::transformer_config small_llama() {
  auto config = nn::as_llama(small());
  config.hidden = 24, config.heads = 4, config.key_heads = 2, config.mlp_features = 27;
  return config;
}

TEST_CASE("llama: gradients are right with an output weight of its own, and with the table of tokens") {
  using llama = nn::llama<double, block_shape<4>>;
  static_assert(std::is_same_v<llama::norm, nn::rms_norm<double>>);
  auto config = small_llama();
  check<llama>(config, 1);
  config.density = 0.5;
  config.output = nn::output_weight::tied;
  config.biases_of_attention = nn::attention_bias::inputs;
  config.scaling = {rotary_scaling_form::linear, 2.5};
  check<llama>(config, 3);
}

TEST_CASE("llama: gradients are right with an output weight and a factorised embedding") {
  auto config = small_llama();
  config.embedding = 7;
  check<nn::gpt<double, block_shape<4>, nn::recomputed<double, nn::llama<double, block_shape<4>>::layer>>>(
      config, 3);
}

TEST_CASE("llama: the parameters are those of the configuration") {
  const auto names_of = [](nn::transformer_config const& config) {
    const nn::llama<float, block_shape<4>> m(config, 1);
    return nn::parameter_list(m).names();
  };
  auto config = small_llama();
  config.layers = 1;
  const std::vector<std::string> plain{"token_embedding",
                                       "block.0.norm1.weight",
                                       "block.0.attention.qkv.weight",
                                       "block.0.attention.out.weight",
                                       "block.0.norm2.weight",
                                       "block.0.mlp.gate.weight",
                                       "block.0.mlp.up.weight",
                                       "block.0.mlp.down.weight",
                                       "final_norm.weight",
                                       "output"};
  CHECK(names_of(config) == plain);
  config.output = nn::output_weight::tied;
  CHECK(names_of(config).back() == "final_norm.weight");
  const auto biases = [&](nn::attention_bias which) {
    config.biases_of_attention = which;
    auto names = names_of(config);
    std::erase_if(names, [](std::string const& name) { return !name.ends_with("bias"); });
    return names;
  };
  CHECK(biases(nn::attention_bias::inputs) == std::vector<std::string>{"block.0.attention.qkv.bias"});
  CHECK(biases(nn::attention_bias::all) ==
        std::vector<std::string>{"block.0.attention.qkv.bias", "block.0.attention.out.bias"});
}

TEST_CASE("gpt: rotary positions of odd heads and keys that do not divide are refused") {
  const auto said = [](auto change) {
    auto config = small();
    change(config);
    try {
      model(config, 1);
    } catch (option_error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(said([](auto& c) {
          c.heads = 4;
          c.positions = nn::position_coding::rotary;
        }) == "[transformer] heads have 5 features, of which rotary positions rotate pairs: make hidden 24");
  CHECK(said([](auto& c) { c.heads = 5, c.key_heads = 2; }) ==
        "[attention] 5 heads of queries and 2 of keys and values: the latter must divide the former: make "
        "them 1 or 5");
  CHECK(said([](auto& c) { c.segment_types = 2; }) ==
        "[gpt] segment_types is 2: a decoder has no segment embeddings, make it 0");
  CHECK(said([](auto& c) { c.next_sentence = true; }) ==
        "[gpt] next_sentence: a decoder predicts tokens alone");
}

/// The bits of a loss and of all gradients.
std::vector<double> step(model const& m, int threads, int all_but_every) {
  context ctx(threads, oversubscribe::allowed);
  const sequences batch(offsets);
  nn::workspace<double> room;
  const nn::pass<double> p{ctx, batch, room, nn::purpose::training, 5, 3};
  const auto ids = some_ids(tokens, 37, 1), targets = targets_ignoring(all_but_every);
  model::saved saved;
  auto gradients = nn::zeros_like(m);
  std::vector<double> all{m.forward(ids, targets, saved, p)};
  m.backward(ids, saved, gradients, p);
  nn::for_each_parameter(gradients, [&](nn::parameter_name const&, auto const& g) {
    all.insert(all.end(), g.begin(), g.end());
  });
  return all;
}

TEST_CASE("gpt: gradients of a dense model are right") { check(small(), 1); }

TEST_CASE("gpt: gradients of a sparse model with dropout and ignored targets are right") {
  auto config = small();
  config.density = 0.4;
  config.dropout = 0.2;
  config.bias = nn::bias_term::absent;
  check(config, 3);
}

TEST_CASE("gpt: a step has the same bits for 1, 2 and 8 threads") {
  auto config = small();
  config.density = 0.4;
  config.dropout = 0.2;
  const model m(config, 7);
  for (const int all_but_every : {1, 3}) {
    const auto one = step(m, 1, all_but_every);
    for (const int threads : {2, 8}) {
      const auto more = step(m, threads, all_but_every);
      REQUIRE(more.size() == one.size());
      CHECK(std::memcmp(more.data(), one.data(), one.size() * sizeof(double)) == 0);
    }
  }
}

TEST_CASE("gpt: micro-batches with the count of the whole add up to its loss") {
  trial t(offsets);
  const model m(small(), 7);
  const auto ids = some_ids(tokens, 37, 1), targets = targets_ignoring(3);
  model::saved saved;
  const double count = 29;
  const double whole = m.forward(ids, targets, saved, t.pass(), count);
  CHECK(count == double(saved.targets.count()));
  double sum = 0;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const std::int64_t length = offsets[i + 1] - offsets[i];
    trial part({0, length});
    const auto of = [&](std::vector<std::int32_t> const& all) {
      return std::span(all).subspan(std::size_t(offsets[i]), std::size_t(length));
    };
    sum += m.forward(of(ids), of(targets), saved, part.pass(), count);
  }
  CHECK(sum == doctest::Approx(whole).epsilon(1e-12));
}

TEST_CASE("gpt: predictions are the logits whose loss forward computes") {
  trial t(offsets);
  const model m(small(), 7);
  const auto ids = some_ids(tokens, 37, 1);
  std::vector<std::int32_t> targets(std::size_t(tokens), nn::ignored);
  const std::vector<std::int32_t> positions{40, 86};
  targets[40] = 3;
  targets[86] = 30;
  model::saved saved;
  const double loss = m.forward(ids, targets, saved, t.pass(nn::purpose::evaluation), 2);
  panel_matrix<double> logits;
  m.predict(ids, positions, logits, saved, t.pass(nn::purpose::evaluation));
  REQUIRE(logits.tokens() == 2);
  double expected = 0;
  for (std::int64_t i = 0; i < 2; ++i) {
    double sum = 0;
    for (std::int64_t f = 0; f < 37; ++f) sum += std::exp(logits(f, i));
    expected += (std::log(sum) - logits(targets[std::size_t(positions[std::size_t(i)])], i)) / 2;
  }
  CHECK(loss == doctest::Approx(expected).epsilon(1e-12));
}

TEST_CASE("gpt: backward without the gradient of a loss is refused") {
  trial t(offsets);
  const model m(small(), 7);
  const auto ids = some_ids(tokens, 37, 1);
  auto gradients = nn::zeros_like(m);
  model::saved saved;
  const auto backward = [&] { m.backward(ids, saved, gradients, t.pass()); };
  CHECK_THROWS_AS(backward(), error);
  static_cast<void>(m.forward(ids, ids, saved, t.pass(nn::purpose::evaluation)));
  CHECK_THROWS_WITH_AS(
      backward(),
      "[cross_entropy] backward without the gradient of a loss: it follows a forward whose pass "
      "has purpose::training",
      error);
  static_cast<void>(m.forward(ids, ids, saved, t.pass()));
  CHECK_NOTHROW(backward());
  panel_matrix<double> logits;
  m.predict(ids, std::vector<std::int32_t>{3}, logits, saved, t.pass(nn::purpose::evaluation));
  CHECK_THROWS_AS(backward(), error);
}

TEST_CASE("gpt: parameters have their names and roles, each once") {
  auto config = small();
  config.layers = 1;
  const model m(config, 7);
  std::string names;
  nn::for_each_parameter(m, [&](nn::parameter_name const& name, auto const&) {
    const char role[] = {'w', 'd', 'v'};
    names += name.text() + ' ' + role[int(name.role())] + '\n';
  });
  CHECK(names ==
        "token_embedding d\nposition_embedding d\n"
        "block.0.norm1.weight v\nblock.0.norm1.bias v\n"
        "block.0.attention.qkv.weight w\nblock.0.attention.qkv.bias v\n"
        "block.0.attention.out.weight w\nblock.0.attention.out.bias v\n"
        "block.0.norm2.weight v\nblock.0.norm2.bias v\n"
        "block.0.mlp.up.weight w\nblock.0.mlp.up.bias v\n"
        "block.0.mlp.down.weight w\nblock.0.mlp.down.bias v\n"
        "final_norm.weight v\nfinal_norm.bias v\n");
}

TEST_CASE("gpt: ids, targets and sequences that do not fit are refused") {
  trial t(offsets);
  const model m(small(), 7);
  model::saved saved;
  const auto ids = some_ids(tokens, 37, 1);
  CHECK_THROWS_AS(m.forward(some_ids(86, 37, 1), ids, saved, t.pass()), shape_error);
  CHECK_THROWS_WITH_AS(m.forward(ids, some_ids(88, 37, 1), saved, t.pass()),
                       "[embedding] 88 targets for a batch of 87 tokens", shape_error);
  CHECK_THROWS_AS(m.forward(some_ids(tokens, 60, 1), ids, saved, t.pass()), shape_error);
  trial long_one({0, 87});
  CHECK_THROWS_WITH_AS(m.forward(ids, ids, saved, long_one.pass()),
                       "[position embedding] sequence 0 has 87 tokens but the context is 50", shape_error);
}

}  // namespace gpt_test
