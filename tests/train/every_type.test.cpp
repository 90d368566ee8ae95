// SPDX-License-Identifier: BSD-3-Clause
#ifdef TESSERA_COMPILED  // else each type would be compiled here
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <pretrain/networks.hpp>

#include <tessera/compiled.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/any_model.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/sparsity/policies/evolving_pattern.hpp>
#include <tessera/train/training.hpp>

namespace every_type_test {

// Every element with every size of blocks that tessera::compiled has: a GPT and a BERT of matrices that
// overhang have the loss and the gradients of a dense model of doubles, and are trained, saved and resumed.

using namespace tessera;
using float8 = float8_e4m3;
using model_pointer = std::unique_ptr<train::any_model>;
using maker = model_pointer (*)(double density);

template <class Network> model_pointer make(double density) {
  nn::transformer_config shape;
  shape.layers = 2, shape.hidden = 40, shape.heads = 4, shape.vocabulary = 30, shape.context = 16;
  shape.density = density;
  return std::make_unique<train::model_of<Network>>(Network(shape, 1));
}
template <class Element, int Rows>
using networks = pretrain::transformers<typename pretrain::linear_of<Element, block_shape<Rows>>::type>;
template <class Element, int Rows> using gpt = typename networks<Element, Rows>::gpt;
template <class Element, int Rows> using bert = typename networks<Element, Rows>::bert;

train::token_batch batch() {
  train::token_batch shown;
  shown.lengths = {5, 16, 9, 12, 16, 15};
  for (std::int32_t i = 0; i < 73; ++i) {
    shown.inputs.push_back(i * 7 % 30);
    shown.targets.push_back(i % 3 == 0 ? nn::ignored : i * i % 30);
  }
  return shown;
}

/// Calls each(slot, place): where each stored value stands in a dense matrix, row by row.
template <class Each> void for_each_place(any_tensor const& of, Each const& each) {
  if (!of.is_matrix()) {
    for (std::int64_t i = 0; i < of.rows(); ++i) each(std::size_t(i), std::size_t(i));
    return;
  }
  pattern const& stored = of.pattern();
  std::size_t slot = 0;
  for (int r = 0; r < stored.block_rows(); ++r)
    for (const std::int32_t c : stored.row(r))
      for (int i = 0; i < of.block_rows(); ++i)
        for (int j = 0; j < of.block_cols(); ++j, ++slot) {
          const std::int64_t row = std::int64_t(r) * of.block_rows() + i,
                             col = std::int64_t(c) * of.block_cols() + j;
          if (row < of.rows() && col < of.cols()) each(slot, std::size_t(row * of.cols() + col));
        }
}
/// Row by row, with zeros where nothing is stored.
std::vector<double> dense_values(any_tensor const& of) {
  std::vector<double> all(std::size_t(of.rows() * of.cols()), 0);
  const std::vector<double> values = of.values();
  for_each_place(of, [&](std::size_t slot, std::size_t place) { all[place] = values[slot]; });
  return all;
}
void set_dense_values(any_tensor of, std::vector<double> const& all) {
  std::vector<double> values(std::size_t(of.size()), 0);
  for_each_place(of, [&](std::size_t slot, std::size_t place) { values[slot] = all[place]; });
  of.set_values(values);
}

/// The distance of the gradients of a batch from the gradients of a model of doubles with the same weights,
/// as a share of the latter; and of the losses.
struct distances {
  double loss, gradients;
};
distances from_double(train::any_model& model, train::any_model& exact) {
  context ctx(2, oversubscribe::allowed);
  const train::token_batch shown = batch();
  const nn::parameter_list weights = model.layer();
  nn::mutable_parameter_list dense = exact.layer();
  REQUIRE(weights.size() == dense.size());
  for (std::size_t k = 0; k < weights.size(); ++k)
    set_dense_values(dense[k].tensor, dense_values(weights[k].tensor));
  const nn::any_pass p{ctx};
  train::owned_layer gradients = model.layer().zeros_like(), exact_gradients = exact.layer().zeros_like();
  model.layer().refresh(0);
  const double loss = model.forward(shown, p), exact_loss = exact.forward(shown, p);
  model.backward(shown, gradients, p);
  exact.backward(shown, exact_gradients, p);
  const nn::parameter_list dw = gradients, exact_dw = exact_gradients;
  double difference = 0, norm = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    const std::vector<double> values = dense_values(dw[k].tensor),
                              expected = dense_values(exact_dw[k].tensor);
    for_each_place(dw[k].tensor, [&](std::size_t, std::size_t at) {
      difference += std::pow(values[at] - expected[at], 2);
      norm += std::pow(expected[at], 2);
    });
  }
  return {std::abs(loss - exact_loss) / exact_loss, std::sqrt(difference / norm)};
}

/// All values after some steps of training, in which the patterns change; from a checkpoint in the
/// middle, if that is there, which is written else.
std::vector<std::vector<double>> trained(maker made, int threads, std::string const& folder) {
  context ctx(threads, oversubscribe::allowed);
  const model_pointer model = made(0.4);
  train::any_training t(model->layer(), train::adamw{.weight_decay = 0.1},
                        train::evolving_pattern{.interval = 2, .steps = 8, .fraction = 0.3});
  const train::token_batch shown = batch();
  const auto step = [&] {
    return train::train_step(ctx, t, {.rate = 0.01, .clip = 1},
                             [&](int) { return train::learn(ctx, *model, t, shown); })
        .loss;
  };
  const double before = train::evaluate(ctx, *model, shown).mean();
  if (std::filesystem::exists(folder)) {
    train::resume(t, train::checkpoint(folder));
  } else {
    for (int i = 0; i < 3; ++i) step();
    train::save(t, folder, {});
  }
  for (int i = 0; i < 4; ++i) step();
  CHECK(train::evaluate(ctx, *model, shown).mean() < before - 0.3);
  std::vector<std::vector<double>> values;
  for (nn::any_parameter const& each : nn::parameter_list(model->layer()))
    values.push_back(each.tensor.values());
  return values;
}

///   unit   half of the distance of 1 from the next number, of weights and of sums
void check(std::string_view name, maker made, maker exact, double unit, double unit_of_sums) {
  INFO(std::string(name));
  const distances d = from_double(*made(0.4), *exact(1));
  CHECK(d.gradients <= 2 * unit + 100 * unit_of_sums);
  CHECK(d.loss <= 2 * unit + 100 * unit_of_sums);

  const scratch_folder scratch;
  const auto values = trained(made, 1, scratch / "middle");
  CHECK(trained(made, 3, scratch / "other") == values);
  CHECK(trained(made, 2, scratch / "middle") == values);  // resumes
}

template <class T> constexpr double unit = double(std::numeric_limits<T>::epsilon()) / 2;
template <>
constexpr double unit<int8> = 0.25;  // most weights are a few units: the scale follows the largest

#define CHECK_TYPE(PRECISION, ROWS)                                                                       \
  check("GPT of " #PRECISION ", blocks of " #ROWS, &make<gpt<PRECISION, ROWS>>, &make<gpt<double, 1>>,    \
        unit<PRECISION>, unit<accumulator_t<PRECISION>>);                                                 \
  check("BERT of " #PRECISION ", blocks of " #ROWS, &make<bert<PRECISION, ROWS>>, &make<bert<double, 1>>, \
        unit<PRECISION>, unit<accumulator_t<PRECISION>>);

TEST_CASE("every type: models have the gradients of doubles, and are trained, saved and resumed") {
  TESSERA_COMPILED_TYPES(CHECK_TYPE)
}

}  // namespace every_type_test
#endif
