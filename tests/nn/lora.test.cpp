// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <nn/lora.hpp>
#include <support/gradient_check.hpp>
#include <support/reference.hpp>

#include <tessera/nn/attention.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/norm.hpp>
#include <tessera/nn/slimmable.hpp>
#include <tessera/nn/transformer_block.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/training.hpp>

// A user's layer wherever a linear layer stands, as linear_like promises.

namespace lora_test {

using namespace tessera;
using lora_layer::lora;
using block = block_shape<4>;
template <element T> using layer = lora<T, block, 3>;

nn::transformer_config small(double density = 0.5) {
  nn::transformer_config config;
  config.layers = 2;
  config.hidden = 20;
  config.heads = 2;
  config.context = 50;
  config.vocabulary = 37;
  config.feed_forward = 2;
  config.density = density;
  return config;
}
template <class Layer> Layer with_base(Layer l) {
  std::uint64_t seed = 40;
  nn::for_each_frozen(l, [&](nn::parameter_name const&, auto& tensor) { support::fill(tensor, ++seed); });
  return l;
}
/// Random numbers in parameters and frozen parts, so that no term of a gradient vanishes.
template <class Layer> Layer randomised(Layer l) {
  support::randomise(l, 1, 0.3);
  return with_base(std::move(l));
}

TEST_CASE("lora: it computes what a linear layer of W + s U D does, and its gradients are right") {
  support::trial t;
  auto l = layer<double>::random(18, 24, 0.5, nn::bias_term::present, 1, "lora");
  l.scale = 0.5;
  l = randomised(l);
  support::check_layer(l, 24, t.pass());
  nn::linear<double, block> merged(18, 24);
  merged.bias = l.base.bias;
  merged.weight.generate([&](std::int64_t i, std::int64_t j) {
    double sum = std::as_const(l.base.weight)(i, j);
    for (std::int64_t k = 0; k < 3; ++k)
      sum += 0.5 * std::as_const(l.up.weight)(i, k) * std::as_const(l.down.weight)(k, j);
    return sum;
  });
  panel_matrix<double> x(24, 83), y(18, 83), expected(18, 83);
  support::fill(x, 1);
  layer<double>::saved saved;
  l.forward(x, y, saved, t.pass());
  run(t.ctx, expected = merged.value(x));
  CHECK(total(t.ctx, square(y - expected)) <= 1e-24 * total(t.ctx, square(expected)));
}

TEST_CASE("lora: it stands in MLPs and attention, slimmable ones, too") {
  support::trial t;
  const auto config = small();
  const auto check = [&](auto l) { support::check_layer(l, config.hidden, t.pass()); };
  using linear = layer<double>;
  check(randomised(nn::mlp<double, block, ops::gelu, linear>::random(config, 1, "mlp")));
  check(randomised(nn::gated_mlp<double, block, ops::silu, linear>::random(config, 1, "mlp")));
  check(randomised(nn::slimmable_mlp<double, block, ops::gelu, linear>::random(config, 1, "mlp")));
  using attention = nn::multi_head_attention<double, block, kernels::plain_scores, linear>;
  check(randomised(attention::random(config, mask::causal, 1, "attention")));
  using slimmable = nn::slimmable_attention<double, block, kernels::plain_scores, linear>;
  check(randomised(slimmable::random(config, mask::causal, 1, "attention")));
  using post = nn::transformer_block_of<linear, nn::norm_order::post>;
  check(randomised(post::random(config, mask::bidirectional, 1, "block")));
}

template <element T> using model = nn::gpt<T, block, nn::transformer_block_of<layer<T>>>;

TEST_CASE("lora: gradients of a gpt of such layers are right, and its base has none") {
  constexpr std::int64_t tokens = 87;
  support::trial t({0, 41, 46, 46, tokens});
  auto m = randomised(model<double>(small(), 7));
  const auto ids = support::some_ids(tokens, 37, 1), targets = support::some_ids(tokens, 37, 2);
  model<double>::saved saved;
  auto gradients = nn::zeros_like(m);
  const auto loss = [&] { return m.forward(ids, targets, saved, t.pass(), double(tokens)); };
  for (const int segments : {0, 2}) {
    m.blocks.segments = segments;
    nn::set_zero(gradients);
    static_cast<void>(loss());
    m.backward(ids, saved, gradients, t.pass());
    support::check_parameter_gradients(m, gradients, loss);
  }
  CHECK(gradients.blocks.layers[0].attention.qkv.base.weight.size() == 0);
  CHECK(gradients.blocks.layers[0].attention.qkv.up.weight.size() > 0);
}

/// A training of a gpt, and steps of it.
template <element T> struct run_of {
  model<T> m;
  train::training<model<T>, train::adamw> t;
  typename model<T>::saved saved;
  nn::workspace<T> room;
  double first = 0, last = 0;

  explicit run_of(std::uint64_t seed) : m(with_base(model<T>(small(), seed))), t(m, train::adamw{}) {}
  void until(context& ctx, std::int64_t end) {
    const sequences batch = sequences::of_equal_length(4, 10);
    while (t.progress.step < end) {
      std::vector<std::int32_t> ids(40);
      for (std::size_t i = 0; i < ids.size(); ++i)
        ids[i] = std::int32_t((i * 5 + std::size_t(t.progress.step)) % 11);
      std::vector<std::int32_t> next(ids.begin() + 1, ids.end());
      next.push_back(nn::ignored);
      last = train::train_step(ctx, t, {.rate = 0.01, .clip = 1}, [&](int) {
               const auto p = t.pass(ctx, batch, room);
               const double sum = m.forward(ids, next, saved, p);
               m.backward(ids, saved, t.gradients, p);
               return train::token_loss{sum, saved.targets.count(), p};
             }).loss;
      if (first == 0) first = last;
    }
  }
};

TEST_CASE("lora: a gpt of bfloat16 learns by it, and a resumed run has equal bits, with other threads") {
  using T = bfloat16;
  context one(1), three(3, oversubscribe::allowed);
  const scratch_folder folder;
  run_of<T> whole(3), resumed(8);
  const auto frozen = whole.m.blocks.layers[1].mlp.up.base.weight;
  const auto up = whole.m.blocks.layers[1].mlp.up.up.weight;
  whole.until(one, 6);
  train::save(whole.t, folder / "run", {});
  whole.until(one, 12);
  CHECK(whole.last < whole.first);
  train::resume(resumed.t, train::checkpoint(folder / "run"));
  resumed.until(three, 12);
  CHECK(resumed.last == whole.last);
  nn::for_each_parameter(
      whole.m,
      [](nn::parameter_name const& name, auto const& a, auto const& b) {
        INFO(name.text());
        CHECK(std::equal(a.begin(), a.end(), b.begin()));
      },
      resumed.m);
  CHECK(std::ranges::equal(whole.m.blocks.layers[1].mlp.up.base.weight, frozen));
  CHECK(std::ranges::equal(resumed.m.blocks.layers[1].mlp.up.base.weight, frozen));
  CHECK(!std::ranges::equal(whole.m.blocks.layers[1].mlp.up.up.weight, up));
}

// A type that is no layer, or lacks a member, stands nowhere.
struct without_random : nn::linear<float, block> {};
struct saves_without_parts : nn::linear<float, block> {
  struct saved {
    panel_matrix<float> inner;
  };
  static saves_without_parts random(std::int64_t, std::int64_t, double, nn::bias_term, std::uint64_t,
                                    nn::parameter_name const&);
  saved unfilled() const;
  auto prepare(auto const&, saved&, nn::pass<float> const&) const { return statements(); }
  auto value(auto const& x, saved const&) const { return weight * x + bias; }
  void add_weight_gradient(auto const&, auto const&, gradients&, nn::pass<float> const&, saved const&) const;
  void forward(auto const&, nn::destination<float>, saved&, nn::pass<float> const&) const;
  void backward(auto const&, saved const&, auto const&, nn::destination<float>, gradients&,
                nn::pass<float> const&) const;
};
struct saves_with_parts : saves_without_parts {
  struct saved : saves_without_parts::saved {
    static void parts(auto& each, auto&... of) { each("inner", of.inner...); }
  };
  static saves_with_parts random(std::int64_t, std::int64_t, double, nn::bias_term, std::uint64_t,
                                 nn::parameter_name const&);
  saved unfilled() const;
};
static_assert(!nn::linear_like<saves_without_parts> && nn::linear_like<saves_with_parts>);
static_assert(!nn::linear_like<int> && !nn::linear_like<nn::layer_norm<float>>);
static_assert(!nn::linear_like<nn::mlp<float, block>> && !nn::linear_like<without_random>);

TEST_CASE("lora: the guide shows the layer that is tested here") {
  const auto text_of = [](std::string const& path) {
    std::ifstream file(std::string(TESSERA_SOURCE_DIR) + path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string all = text_of("/tests/nn/lora.hpp"), guide = text_of("/docs/guide/3_layers.md");
  const std::size_t begin = all.find("/// y = W x"), end = all.find("\n}  // namespace");
  const std::string tested = all.substr(begin, end - begin);
  REQUIRE(tested.size() > 1000);
  CHECK(guide.find(tested) != std::string::npos);
}

}  // namespace lora_test
