// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/gradient_check.hpp>
#include <support/reference.hpp>

#include <tessera/nn/adapter.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/save_checkpoint.hpp>
#include <tessera/train/training.hpp>

namespace adapter_test {

using namespace tessera;
using block = block_shape<4>;

nn::transformer_config small() {
  nn::transformer_config c;
  c.layers = 2, c.hidden = 24, c.heads = 2, c.context = 16, c.vocabulary = 17, c.feed_forward = 2;
  c.density = 0.5;
  return c;
}

TEST_CASE_TEMPLATE("adapter: gradients are right behind attention and MLP", Order,
                   std::integral_constant<nn::norm_order, nn::norm_order::pre>,
                   std::integral_constant<nn::norm_order, nn::norm_order::post>) {
  support::trial t;
  using layer = nn::adapted_block_of<nn::linear<double, block>, Order::value>;
  auto l = layer::random(small(), mask::causal, 1, nn::parameter_name("block"));
  const auto fill = [&] {
    support::randomise(l, 1, 0.3);
    std::uint64_t seed = 40;
    nn::for_each_frozen(l, [&](nn::parameter_name const&, auto& tensor) { support::fill(tensor, ++seed); });
  };
  fill();
  support::check_layer(l, 24, t.pass());
  l.attention.insert(6, 1, "a"), l.mlp.insert(5, 1, "b");
  fill();
  support::check_layer(l, 24, t.pass());
}

template <class Linear> using plain = nn::gpt<float, block, nn::transformer_block_of<Linear>>;
template <class Linear> using adapted = nn::gpt<float, block, nn::adapted_block_of<Linear>>;

template <class Model> std::vector<float> logits(Model const& m) {
  context ctx(1);
  const sequences one({0, 5});
  nn::workspace<float> room;
  typename Model::saved saved;
  panel_matrix<float> y(17, 1);
  const std::int32_t ids[]{1, 5, 2, 9, 16}, at[]{4};
  m.predict(ids, at, y, saved, {ctx, one, room});
  std::vector<float> all;
  for (std::int64_t i = 0; i < 17; ++i) all.push_back(y(i, 0));
  return all;
}

TEST_CASE_TEMPLATE("adapter: a model begins as its base, learns by adapters and norms alone, and resumes",
                   Linear, nn::linear<float, block>, nn::int8_linear<float, block>) {
  const scratch_folder folder;
  plain<Linear> base(small(), 3);
  nn::refresh(base, 0);
  train::save_weights(folder / "base", {}, base);
  const auto made = [&] {
    adapted<Linear> m(small(), 7);
    train::checkpoint(folder / "base").load(m);
    nn::refresh(m, 0);
    nn::add_adapters(m, 6, 1);
    return m;
  };
  adapted<Linear> m = made(), other = made();
  const auto expected = logits(base), begun = logits(m);
  for (std::size_t i = 0; i < 17; ++i) CHECK(begun[i] == doctest::Approx(expected[i]).epsilon(1e-6));
  CHECK(nn::parameter_list(m).size() == 2 * 8 + 2 + 2 + 2 * 4);  // adapters, tables, last norm, norms
  const auto weight = m.blocks.layers[1].mlp.layer.up.weight;
  context ctx(1);
  const sequences batch = sequences::of_equal_length(2, 16);
  nn::workspace<float> room;
  typename adapted<Linear>::saved saved;
  const auto train_until = [&](auto& t, auto const& of, std::int64_t end) {
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
  const auto grouped = [](auto& t) {
    t.group_parameters({{.names = "*.adapter.*"}, {.names = "*norm*"}, {.names = "*", .rate = 0}});
  };
  train::training t(m, train::adamw{});
  grouped(t);
  const auto table = m.token_embedding.table;
  const double first = train_until(t, m, 1);
  train_until(t, m, 5);
  train::save(t, folder / "run", {});
  const double last = train_until(t, m, 12);
  CHECK(last < first - 0.05);
  CHECK(std::ranges::equal(m.blocks.layers[1].mlp.layer.up.weight, weight));
  CHECK(std::ranges::equal(m.token_embedding.table, table));
  train::training again(other, train::adamw{});
  grouped(again);
  train::resume(again, train::checkpoint(folder / "run"));
  CHECK(train_until(again, other, 12) == last);
}

TEST_CASE("adapter: a width that makes no sense is refused") {
  adapted<nn::linear<float, block>> m(small(), 1);
  for (const std::int64_t width : {0, 25}) {
    const auto says = error_of<option_error>([&] { nn::add_adapters(m, width, 1); });
    CHECK(says == message("[adapter] width is ", width, ": it is from 1 to the 24 features of the layer"));
  }
  CHECK(m.blocks.layers[0].attention.width() == 0);
}

}  // namespace adapter_test
