// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/gradient_check.hpp>
#include <support/reference.hpp>

#include <tessera/nn/gpt.hpp>
#include <tessera/nn/lora.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/training.hpp>

// nn::lora; tests/nn/lora.test.cpp is of a layer of the guide.

namespace lora_layer_test {

using namespace tessera;
using block = block_shape<4>;
template <element T> using layer = nn::lora<T, block>;

template <class Layer> Layer random_layer(std::int64_t out, std::int64_t in, double density = 0.5) {
  auto l = Layer::random(out, in, density, nn::bias_term::present, 1, "lora");
  std::uint64_t seed = 40;
  nn::for_each_frozen(l, [&](nn::parameter_name const&, auto& tensor) { support::fill(tensor, ++seed); });
  return l;
}
/// U gets random numbers, too, but where a rank was rounded up.
template <class Layer> void randomise_up(Layer& l, std::int64_t rank) {
  const std::int64_t each = round_up<std::int64_t>(rank, 4);
  l.up.weight.generate([&](std::int64_t i, std::int64_t k) {
    using T = typename Layer::value_type;
    return k % each < rank ? T(0.1f * float((i * 7 + k * 3) % 11 - 5)) : T(0.0f);
  });
}
template <class T> panel_matrix<T> result(auto const& l, panel_matrix<T> const& x, nn::pass<T> const& p) {
  panel_matrix<T> y(l.outputs(x.features()), x.tokens());
  auto s = l.unfilled();
  l.forward(x, y, s, p);
  return y;
}
template <class T> double difference(panel_matrix<T> const& a, panel_matrix<T> const& b) {
  double worst = 0;
  for (std::int64_t f = 0; f < a.features(); ++f)
    for (std::int64_t t = 0; t < a.tokens(); ++t)
      worst = std::max(worst, std::abs(double(float(a(f, t))) - double(float(b(f, t)))));
  return worst;
}

TEST_CASE_TEMPLATE("lora layer: without adapters, and with new ones, it has the bits of its base", T, float,
                   double, bfloat16) {
  context ctx(2);
  const sequences one({0, 37});
  nn::workspace<T> room;
  const nn::pass<T> pass{ctx, one, room};
  auto l = random_layer<layer<T>>(18, 24);
  panel_matrix<T> x(24, 37), expected(18, 37);
  support::fill(x, 1);
  run(ctx, expected = l.base.value(x));
  CHECK(l.ranks() == 0);
  CHECK(difference(result(l, x, pass), expected) == 0);
  CHECK(nn::parameter_list(l).size() == 0);
  l.adapt({.rank = 3}, {}, 1, "lora");
  CHECK(l.ranks() == 4);
  CHECK(nn::parameter_list(l).size() == 2);
  CHECK(difference(result(l, x, pass), expected) == 0);
}

TEST_CASE("lora layer: gradients are right, and those of padding are zero") {
  support::trial t;
  auto l = random_layer<layer<double>>(24, 20);
  const auto check = [&](std::vector<nn::row_range> parts) {
    l.adapt({.rank = 3, .alpha = 2}, std::move(parts), 1, "lora");
    randomise_up(l, 3);
    support::check_layer(l, 20, t.pass());
    panel_matrix<double> x(20, 83), dy(24, 83), dx(20, 83), y(24, 83);
    support::fill(x, 1), support::fill(dy, 2);
    auto s = l.unfilled();
    l.forward(x, y, s, t.pass());
    auto g = nn::zeros_like(l);
    l.backward(x, s, dy, dx, g, t.pass());
    for (std::int64_t row = 3; row < l.ranks(); row += 4) {
      for (std::int64_t col = 0; col < 20; ++col) CHECK(std::as_const(g.down.weight)(row, col) == 0);
      for (std::int64_t out = 0; out < 24; ++out) CHECK(std::as_const(g.up.weight)(out, row) == 0);
    }
    CHECK(g.base.weight.size() == 0);
  };
  check({});
  check({{0, 8}, {16, 24}});
}

TEST_CASE("lora layer: adapters of some rows leave the others alone, and merge into W") {
  context ctx(1);
  const sequences one({0, 37});
  nn::workspace<double> room;
  const nn::pass<double> pass{ctx, one, room};
  panel_matrix<double> x(20, 37);
  support::fill(x, 1);
  for (const bool stabilised : {false, true}) {
    auto l = random_layer<layer<double>>(24, 20);
    const auto before = result(l, x, pass);
    l.adapt({.rank = 5, .alpha = 10, .rank_stabilised = stabilised}, {{0, 8}, {16, 24}}, 1, "lora");
    CHECK(l.scale == doctest::Approx(stabilised ? 10 / std::sqrt(5) : 2));
    randomise_up(l, 5);
    const auto after = result(l, x, pass);
    for (std::int64_t row = 0; row < 24; ++row) {
      double changed = 0;
      for (std::int64_t i = 0; i < 37; ++i)
        changed = std::max(changed, std::abs(after(row, i) - before(row, i)));
      CHECK((changed > 0) == (row < 8 || row >= 16));
    }
    auto stored = l;
    CHECK(l.merge(nn::merge_blocks::all) == 0);
    CHECK(l.ranks() == 0);
    CHECK(l.base.weight.pattern().is_dense());
    CHECK(difference(result(l, x, pass), after) < 1e-12);
    const auto w = stored.base.weight;
    const double lost = stored.merge(nn::merge_blocks::stored);
    CHECK(lost > 0);
    CHECK(stored.base.weight.pattern() == w.pattern());
    double squares = 0;  // of what the other one stores beyond
    for (std::int64_t i = 0; i < 24; ++i)
      for (std::int64_t j = 0; j < 20; ++j) {
        const double dense = std::as_const(l.base.weight)(i, j);
        if (w.find(i, j) < 0)
          squares += dense * dense;
        else
          CHECK(std::as_const(stored.base.weight)(i, j) == doctest::Approx(dense));
      }
    CHECK(lost == doctest::Approx(std::sqrt(squares)));
  }
}

TEST_CASE("lora layer: what makes no sense is refused") {
  auto l = random_layer<layer<float>>(24, 20);
  const auto says = [&](nn::lora_settings how, std::vector<nn::row_range> parts) {
    try {
      l.adapt(how, std::move(parts), 1, "lora");
    } catch (error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(says({.rank = 0}, {}) == "[lora] rank is 0: it must be at least 1");
  CHECK(says({}, {{0, 25}}).find("rows 0 to 25 of 24") != std::string::npos);
  CHECK(says({}, {{0, 8}, {4, 12}}).find("rows 4 to 12") != std::string::npos);
  CHECK(says({}, {{0, 6}}).find("multiples of four") != std::string::npos);
  CHECK(says({}, {{0, 6}, {8, 12}}).find("multiples of four") != std::string::npos);
  CHECK(l.ranks() == 0);
}

template <class Linear> using adapted = nn::gpt<float, block, nn::transformer_block_of<Linear>>;

/// Adapters in Q and V of each block.
template <class Model> void adapt(Model& m) {
  const std::int64_t hidden = m.config.hidden;
  for (std::size_t i = 0; i < m.blocks.layers.size(); ++i)
    m.blocks.layers[i].attention.qkv.adapt({.rank = 2}, {{0, hidden}, {2 * hidden, 3 * hidden}}, 1,
                                           std::uint64_t(i));
}

TEST_CASE_TEMPLATE("lora layer: a gpt learns by adapters of Q and V alone, over any base, and resumes",
                   Linear, nn::lora<float, block>, nn::lora<float, block, nn::int8_linear<float, block>>) {
  using model = adapted<Linear>;
  nn::transformer_config c;
  c.layers = 2, c.hidden = 24, c.heads = 2, c.context = 16, c.vocabulary = 17, c.feed_forward = 2;
  const auto made = [&] {
    model m(c, 1);
    adapt(m);
    return m;
  };
  model m = made(), other = made();
  CHECK(nn::parameter_list(m).size() == 2 * 2 + 2 + 2 + 2 * 4);  // adapters, tables, last norm, norms
  const auto before = m.blocks.layers[1].attention.qkv.base.weight;
  context ctx(1);
  const sequences batch = sequences::of_equal_length(2, 16);
  nn::workspace<float> room;
  typename model::saved saved;
  const auto train_until = [&](auto& t, model const& of, std::int64_t end) {
    double loss = 0;
    while (t.progress.step < end) {
      std::vector<std::int32_t> ids(32), next(32);
      for (std::size_t i = 0; i < 32; ++i)
        ids[i] = std::int32_t(i * 5 % 11), next[i] = std::int32_t((i + 1) * 5 % 11);
      loss = train::train_step(ctx, t, {.rate = 0.02, .clip = 1}, [&](int) {
               const auto p = t.pass(ctx, batch, room);
               const double sum = of.forward(ids, next, saved, p);
               of.backward(ids, saved, t.gradients, p);
               return train::token_loss{sum, saved.targets.count(), p};
             }).loss;
    }
    return loss;
  };
  train::training t(m, train::adamw{});
  const double first = train_until(t, m, 1);
  train_until(t, m, 5);
  const scratch_folder folder;
  train::save(t, folder / "run", {});
  const double last = train_until(t, m, 12);
  CHECK(last < first);
  CHECK(std::ranges::equal(m.blocks.layers[1].attention.qkv.base.weight, before));
  train::training again(other, train::adamw{});
  train::resume(again, train::checkpoint(folder / "run"));
  CHECK(train_until(again, other, 12) == last);
}

}  // namespace lora_layer_test
