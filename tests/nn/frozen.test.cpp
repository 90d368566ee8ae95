// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/gradient_check.hpp>

#include <tessera/core/memory.hpp>
#include <tessera/nn/decoding.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/freeze.hpp>
#include <tessera/nn/frozen_linear.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/lora.hpp>
#include <tessera/statements/quantised.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/save_checkpoint.hpp>

namespace frozen_test {

using namespace tessera;
using block = block_shape<4>;
template <class E> using frozen = nn::frozen_linear<float, E, block>;
template <class Linear> using gpt = nn::gpt<float, block, nn::transformer_block_of<Linear>>;

nn::transformer_config small() {
  nn::transformer_config c;
  c.layers = 2, c.hidden = 24, c.heads = 2, c.context = 16, c.vocabulary = 37, c.feed_forward = 2;
  c.density = 0.5;
  return c;
}
template <class Model> Model trained(nn::transformer_config const& of) {
  Model m(of, 3);
  support::randomise(m, 1, 0.3);
  return m;
}
std::map<std::string, any_tensor> tensors_of(nn::mutable_parameter_list const& list) {
  std::map<std::string, any_tensor> all;
  const auto names = list.names(), frozen_names = list.frozen_names();
  for (std::size_t i = 0; i < names.size(); ++i) all.emplace(names[i], list[i].tensor);
  for (std::size_t i = 0; i < frozen_names.size(); ++i)
    all.emplace(frozen_names[i], nn::parameter_list(list).frozen()[i].tensor);
  return all;
}
/// The values of a frozen model, in a model of float.
template <class Model, class Frozen> Model restored(Model model, Frozen& of) {
  auto given = tensors_of(of);
  auto taken = tensors_of(model);
  for (auto& [name, tensor] : taken) {
    any_tensor const& from = given.at(name);
    std::vector<double> values = from.values();
    if (const auto scale = given.find(name + ".scale"); scale != given.end()) {
      const std::vector<double> scales = scale->second.values();
      for_each_value(from, reinterpret_cast<std::byte*>(values.data()), sizeof(double),
                     [&](std::byte* at, std::int64_t row, std::int64_t) {
                       *reinterpret_cast<double*>(at) *= scales[std::size_t(row)];
                     });
    }
    tensor.set_values(values);
  }
  return model;
}
double difference(std::vector<double> const& a, std::vector<double> const& b) {
  REQUIRE(a.size() == b.size());
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    most = std::max(most, std::abs(a[i] - b[i])), largest = std::max(largest, std::abs(b[i]));
  return most / largest;
}
/// Logits of all tokens of a batch.
template <class Model> std::vector<double> logits(Model const& m, std::vector<std::int32_t> const& ids) {
  context ctx(1);
  const sequences batch = sequences::of_equal_length(1, std::ssize(ids));
  nn::workspace<float> room;
  typename Model::saved saved;
  panel_matrix<float> y;
  std::vector<std::int32_t> at;
  for (std::size_t i = 0; i < ids.size(); ++i) at.push_back(std::int32_t(i));
  if constexpr (requires { typename Model::input; })
    m.predict({ids}, at, y, saved, {ctx, batch, room});
  else
    m.predict(ids, at, y, saved, {ctx, batch, room});
  std::vector<double> all;
  for (std::int64_t t = 0; t < y.tokens(); ++t)
    for (std::int64_t i = 0; i < y.features(); ++i) all.push_back(double(y(i, t)));
  return all;
}

TEST_CASE_TEMPLATE("frozen: a row is rounded by a scale of its own, to half a step of its largest value", E,
                   int8, float8_e4m3) {
  nn::linear<float, block> l(22, 35, support::some_blocks(22, 35, 0.5, 1));
  support::randomise(l);
  for (std::int64_t c = 0; c < 35; ++c)
    if (l.weight.find(5, c) >= 0) l.weight(5, c) = 1000 * float(l.weight(5, c));
  auto f = frozen<E>::random(22, 35, 0.5, nn::bias_term::present, 1, "");
  CHECK(f.weight.values.size() == 0);
  nn::freeze(l, f);
  CHECK(f.weight.pattern() == l.weight.pattern());
  for (std::int64_t r = 0; r < 22; ++r) {
    float largest = 0;
    for (std::int64_t c = 0; c < 35; ++c) largest = std::max(largest, std::abs(float(l.weight(r, c))));
    const float scale = f.weight.scale[r], most = float(std::numeric_limits<E>::max());
    CHECK(scale == (largest == 0 ? 1 : doctest::Approx(largest / most).epsilon(1e-6)));
    for (std::int64_t c = 0; c < 35; ++c) {
      const float exact = std::as_const(l.weight)(r, c), step = std::is_same_v<E, int8> ? 1 : 32;
      REQUIRE(std::abs(scale * float(std::as_const(f.weight.values)(r, c)) - exact) <=
              0.5001f * step * scale);
    }
  }
  CHECK(std::equal(f.bias.begin(), f.bias.end(), l.bias.begin()));
}

TEST_CASE_TEMPLATE("frozen: forward and backward are those of the restored weights", E, bfloat16, int8,
                   float8_e4m3) {
  support::trial t;
  nn::linear<float, block> l(22, 35, support::some_blocks(22, 35, 0.5, 1));
  support::randomise(l);
  auto f = frozen<E>::random(22, 35, 0.5, nn::bias_term::present, 1, "");
  nn::freeze(l, f);
  const auto exact = restored(l, f);
  for (const std::int64_t tokens : {1, 3, 70}) {
    const sequences batch = sequences::of_equal_length(1, tokens);
    nn::workspace<float> room;
    context ctx(2, oversubscribe::allowed);
    const nn::pass<float> p{ctx, batch, room};
    panel_matrix<float> x(35, tokens), y(22, tokens), z(22, tokens), dx(35, tokens), dz(35, tokens);
    support::fill(x, 2);
    typename frozen<E>::saved none;
    typename nn::linear<float, block>::saved none_of_linear;
    f.forward(x, y, none, p);
    exact.forward(x, z, none_of_linear, p);
    auto g = nn::zeros_like(f);
    auto of_exact = nn::zeros_like(exact);
    CHECK_FALSE(nn::any_wanted(g));
    f.backward(x, none, y, dx, g, p);
    exact.backward(x, none_of_linear, y, dz, of_exact, p);
    const auto values = [](panel_matrix<float> const& m) {
      std::vector<double> all;
      for (std::int64_t i = 0; i < m.tokens(); ++i)
        for (std::int64_t k = 0; k < m.features(); ++k) all.push_back(double(m(k, i)));
      return all;
    };
    CHECK(difference(values(y), values(z)) < 1e-6);
    CHECK(difference(values(dx), values(dz)) < 1e-6);
  }
}

template <class Model, class Frozen> void check_model(nn::transformer_config const& of) {
  const auto model = trained<Model>(of);
  Frozen f(of, 1);
  nn::freeze(model, f);
  const auto exact = restored(model, f);
  const std::vector<std::int32_t> ids = support::some_ids(11, 37, 5);
  CHECK(difference(logits(f, ids), logits(exact, ids)) < 2e-6);
  CHECK(difference(logits(f, ids), logits(model, ids)) > 1e-5);  // it was rounded
}

TEST_CASE("frozen: a LLaMA and a BERT compute what their restored weights do, tables in 8 bits too") {
  nn::transformer_config c = small();
  c.positions = nn::position_coding::rotary, c.output = nn::output_weight::own, c.key_heads = 1;
  check_model<nn::llama<float, block>, nn::llama<float, block, frozen<float8_e4m3>>>(c);
  c = small();
  c.segment_types = 2;
  using bert = nn::encoder<float, block>;
  check_model<bert, nn::encoder<float, block, nn::transformer_block_of<frozen<int8>, nn::norm_order::post>>>(
      c);
}

TEST_CASE("frozen: it decodes as it predicts, and its size is forecast") {
  const auto model = trained<gpt<nn::linear<float, block>>>(small());
  using network = gpt<frozen<int8>>;
  network f(small(), 1);
  nn::freeze(model, f);
  context ctx(1);
  nn::decoding<network> running(f, ctx);
  const std::vector<std::int32_t> ids = support::some_ids(9, 37, 5);
  const std::int32_t slot = running.begin();
  auto found = running.prefill(slot, std::span(ids).first(6));
  for (std::size_t i = 6; i < ids.size(); ++i) found = running.next({&slot, 1}, {&ids[i], 1});
  const auto all = logits(f, ids);
  CHECK(difference({found.begin(), found.end()}, {all.end() - 37, all.end()}) < 1e-6);
  CHECK(difference(all, logits(restored(model, f), ids)) < 2e-6);

  std::size_t bytes = 0;
  for (auto const& [name, tensor] : tensors_of(f))
    bytes += round_up(std::size_t(tensor.size()) * tensor.element().bytes, std::size_t(64));
  const nn::model_size size = network::size(small());
  CHECK(double(size.weight_bytes()) == doctest::Approx(double(bytes)).epsilon(0.02));
  const nn::model_size of_trained = gpt<nn::linear<float, block>>::size(small());
  CHECK(size.parameters == of_trained.parameters);
  CHECK(size.live_parameters == of_trained.live_parameters);
  CHECK(size.multiply_adds == of_trained.multiply_adds);
  CHECK(size.weight_bytes() < of_trained.weight_bytes() / 2);
}

TEST_CASE("frozen: adapters over it are trained as over its restored weights") {
  nn::linear<float, block> l(24, 36, support::some_blocks(24, 36, 0.5, 1));
  support::randomise(l);
  nn::lora<float, block, frozen<int8>> f;
  f.base = frozen<int8>::random(24, 36, 0.5, nn::bias_term::present, 1, "");
  nn::freeze(l, f.base);
  nn::lora<float, block> exact;
  exact.base = restored(l, f.base);
  const auto adapt = [](auto& layer) {
    layer.adapt({.rank = 4}, {}, 1, nn::parameter_name("down.weight").key());
    support::randomise(layer, 9, 0.5);
  };
  adapt(f), adapt(exact);
  context ctx(1);
  const sequences batch = sequences::of_equal_length(1, 11);
  nn::workspace<float> room;
  const nn::pass<float> p{ctx, batch, room};
  panel_matrix<float> x(36, 11), y(24, 11), dx(36, 11);
  support::fill(x, 2);
  const auto gradients_of = [&](auto const& layer) {
    auto saved = layer.unfilled();
    auto g = nn::zeros_like(layer);
    layer.forward(x, y, saved, p);
    layer.backward(x, saved, y, dx, g, p);
    std::vector<double> all = any_tensor(g.down.weight).values();
    for (const double value : any_tensor(g.up.weight).values()) all.push_back(value);
    for (std::int64_t t = 0; t < 11; ++t)
      for (std::int64_t i = 0; i < 36; ++i) all.push_back(double(dx(i, t)));
    return all;
  };
  CHECK(difference(gradients_of(f), gradients_of(exact)) < 1e-5);
}

TEST_CASE("frozen: what does not fit is refused by its name, and nothing changes") {
  nn::linear<float, block> l(8, 12);
  auto f = frozen<int8>::random(8, 12, 1, nn::bias_term::present, 1, "");
  auto longer = frozen<int8>::random(8, 16, 1, nn::bias_term::present, 1, "");
  CHECK_THROWS_WITH_AS(nn::freeze(l, longer),
                       "[freeze] weight is 8 x 12 in blocks of 4 x 4, and becomes 8 x 16 in blocks of 4 x 4",
                       error);
  l.weight(3, 5) = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_WITH_AS(nn::freeze(l, f),
                       "[freeze] row 3 of weight has a value that is infinite or not a number", error);
  CHECK(f.weight.values.size() == 0);
  const nn::lora<float, block> adapted = [] {
    nn::lora<float, block> with(nn::lora<float, block>::random(8, 12, 1, nn::bias_term::present, 1, ""));
    with.adapt({.rank = 4}, {}, 1, nn::parameter_name("down.weight").key());
    return with;
  }();
  CHECK_THROWS_WITH_AS(
      nn::freeze(adapted, f),
      "[freeze] there is no place for the parameter down.weight of the trained model; adapters "
      "are to be merged before",
      error);
  auto wider = frozen<bfloat16>::random(8, 12, 1, nn::bias_term::present, 1, "");
  CHECK_THROWS_WITH_AS(nn::freeze(f, wider),
                       "[freeze] weight.scale has no place: the model is in 8 bits already", error);
  const nn::linear<float, block> none(8, 12, nn::bias_term::absent);
  CHECK_THROWS_WITH_AS(nn::freeze(none, f), "[freeze] the trained model has no parameter bias", error);
}

nn::linear<float, block> trained_linear(std::int64_t out, std::int64_t in) {
  nn::linear<float, block> l(out, in, nn::bias_term::absent);
  support::randomise(l);
  return l;
}

TEST_CASE("frozen: a file of weights is mapped, and the model borrows its matrices") {
  const scratch_folder folder;
  using wide = block_shape<8>;
  using network = nn::gpt<float, wide, nn::transformer_block_of<nn::frozen_linear<float, int8, wide>>>;
  auto c = small();
  c.density = 0.4, c.hidden = 48;
  const auto model = trained<nn::gpt<float, wide>>(c);
  network f(c, 1);
  nn::freeze(model, f);
  train::save_weights(folder / "frozen", {}, f);
  const std::vector<std::int32_t> ids = support::some_ids(11, 37, 5);

  network loaded(c, 2);
  train::checkpoint(folder / "frozen").load(loaded);
  CHECK(logits(loaded, ids) == logits(f, ids));
  CHECK_FALSE(loaded.token_embedding.table.values.borrows());

  const train::checkpoint file(folder / "frozen");
  network mapped(c, 3);
  const std::size_t before = tensor_memory::live();
  file.map(mapped);
  CHECK(tensor_memory::live() <= before);  // the position table is there already
  CHECK(mapped.token_embedding.table.values.borrows());
  CHECK(mapped.blocks.layers[1].mlp.up.weight.values.borrows());
  CHECK(logits(mapped, ids) == logits(f, ids));
  // Changes stay in this process.
  mapped.token_embedding.table.values(3, 4) = int8(99);
  CHECK(logits(mapped, ids) != logits(f, ids));
  train::checkpoint(folder / "frozen").load(loaded);
  CHECK(logits(loaded, ids) == logits(f, ids));

  // Blocks of 16 bytes: a matrix that does not end at 64 bytes is copied.
  using narrow = frozen<int8>;
  auto odd = narrow::random(4, 20, 1, nn::bias_term::absent, 1, ""), read = odd;
  nn::freeze(trained_linear(4, 20), odd);
  train::save_weights(folder / "odd", {}, odd);
  const train::checkpoint odd_file(folder / "odd");
  odd_file.map(read);
  CHECK_FALSE(read.weight.values.borrows());
  CHECK(std::ranges::equal(read.weight.values, odd.weight.values));
  CHECK(std::ranges::equal(read.weight.scale, odd.weight.scale));

  // A number beyond the last column, in a file whose checksums are not compared.
  auto beyond = narrow::random(16, 15, 1, nn::bias_term::absent, 1, ""), fits = beyond;
  nn::freeze(trained_linear(16, 15), beyond);
  beyond.weight.values.data()[3 * 16 + 3] = int8(7);
  train::save_weights(folder / "beyond", {}, beyond);
  const train::checkpoint beyond_file(folder / "beyond");
  CHECK_THROWS_WITH_AS(beyond_file.map(fits),
                       ("[read " + folder / "beyond" +
                        "/tensors.safetensors] matrix \"weight\" has numbers beyond "
                        "its rows or columns")
                           .c_str(),
                       io_error);
  CHECK(fits.weight.values.size() == 0);

  // A trained model's weights, and dense ones, too.
  train::save_weights(folder / "float", {}, model);
  nn::gpt<float, wide> again(c, 4);
  const train::checkpoint floats(folder / "float");
  floats.map(again);
  CHECK(again.token_embedding.table.borrows());
  CHECK(logits(again, ids) == logits(model, ids));
}

}  // namespace frozen_test
