// SPDX-License-Identifier: BSD-3-Clause
#ifndef TESSERA_REDUCED_TYPES  // values only: sanitizers see these models in other tests
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/io/file.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/training.hpp>

namespace trajectory_test {

// 20 steps of small models, dense and sparse, beside 20 steps that PyTorch took from the same tensors with
// the same batches: tests/golden/record_gpt.py says which and how. PyTorch itself, in double, differs by less
// than 1e-6. A model of narrow elements, whose masters begin as these tensors, stays as near as its roundings
// let it.

using namespace tessera;

/// The losses and parameters that were recorded of one model.
class recording {
 public:
  explicit recording(std::string const& name)
      : tensors(folder + name + ".safetensors"),
        numbers(io::parse_json(io::read_file(folder + name + ".json"), name + ".json")) {}

  io::safetensors_file tensors;
  io::json numbers;

  template <class T> std::vector<T> values(std::string const& name) const {
    io::safetensor const& tensor = tensors.at(name);
    std::vector<T> all(tensor.bytes.size() / sizeof(T));
    tensors.read_into(name, tensor.shape, std::span(all));
    return all;
  }
  /// The part of a recorded list that belongs to one of its steps.
  std::vector<std::int32_t> of_step(std::string const& name, std::int64_t step) const {
    const auto all = values<std::int32_t>(name);
    const auto each = std::int64_t(all.size()) / numbers.at("steps").as_integer();
    return {all.begin() + step * each, all.begin() + (step + 1) * each};
  }

 private:
  inline static const std::string folder = TESSERA_SOURCE_DIR "/tests/golden/";
};

nn::transformer_config shape(recording const& recorded) {
  const io::json_place model = recorded.numbers.at("model");
  nn::transformer_config config;
  config.layers = model.at("layers").as_integer();
  config.hidden = model.at("hidden").as_integer();
  config.heads = model.at("heads").as_integer();
  config.context = model.at("context").as_integer();
  config.vocabulary = model.at("vocabulary").as_integer();
  config.bias = model.at("bias").as_bool() ? nn::bias_term::present : nn::bias_term::absent;
  return config;
}

/// Gives a model the recorded initial tensors, and the patterns of that trajectory.
template <class Model> void load(recording const& from, std::string const& trajectory, Model& model) {
  std::set<std::string> initial, loaded;
  for (auto const& [name, tensor] : from.tensors.tensors())
    if (name.starts_with("initial.")) initial.insert(name);
  nn::for_each_parameter(model, [&](nn::parameter_name const& name, auto& parameter) {
    const std::string value_name = "initial." + name.text();
    loaded.insert(value_name);
    const auto values = from.values<float>(value_name);
    if constexpr (nn::is_matrix<decltype(parameter)>) {
      using matrix = std::remove_cvref_t<decltype(parameter)>;
      const std::string index = "pattern." + trajectory + "." + name.text();
      if (pattern const dense = parameter.pattern(); from.tensors.contains(index + ".cols"))
        parameter = matrix(parameter.rows(), parameter.cols(),
                           pattern::from_rows(dense.block_rows(), dense.block_cols(),
                                              from.values<std::int32_t>(index + ".row_start"),
                                              from.values<std::int32_t>(index + ".cols")));
      copy(row_major(values.data(), parameter.rows(), parameter.cols()), parameter);
    } else {
      REQUIRE(std::int64_t(values.size()) == parameter.size());
      std::ranges::copy(values, parameter.begin());
    }
  });
  CHECK(loaded == initial);
}

/// The batch of a step: sequences of the context's length, of which an encoder sees the first tokens only.
sequences batch_of(recording const& recorded, std::int64_t step) {
  const io::json_place model = recorded.numbers.at("model");
  const auto count = std::size_t(model.at("sequences").as_integer());
  const std::vector<std::int64_t> lengths(count, model.at("context").as_integer());
  if (!recorded.tensors.contains("lengths")) return sequences::from_lengths(lengths);
  const auto keys = recorded.of_step("lengths", step);
  return sequences::from_lengths(lengths, {keys.begin(), keys.end()});
}

double norm(auto const& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

/// Trains a model as recorded and compares every loss, every gradient and the final parameters.
template <class Model> void follow(std::string const& name, std::string const& trajectory) {
  INFO(name, ", ", trajectory);
  const recording recorded(name);
  const io::json_place optimizer = recorded.numbers.at("optimizer"),
                       expected = recorded.numbers.at("trajectories").at(trajectory);

  constexpr double u = nn::is_narrow<Model> ? unit_roundoff<typename Model::value_type> : 0;
  context ctx(2, oversubscribe::allowed);
  Model model(shape(recorded), 0);
  auto initial = nn::widened(model);
  load(recorded, trajectory, initial);
  nn::for_each_parameter(
      model,
      [&](nn::parameter_name const&, auto& parameter, auto const& exact) {
        if constexpr (nn::is_matrix<decltype(parameter)>) parameter.set_pattern(exact.pattern());
        run(ctx, parameter = converted(exact));
      },
      initial);
  train::training t(
      model, train::adamw{optimizer.at("beta1").as_number(), optimizer.at("beta2").as_number(),
                          optimizer.at("epsilon").as_number(), optimizer.at("weight_decay").as_number()});
  if constexpr (nn::is_narrow<Model>) train::set_elements(t.state, "master", initial);
  nn::workspace<typename Model::value_type> room;
  typename Model::saved saved;
  const std::size_t steps = expected.at("losses").size();
  REQUIRE(steps == 20);
  for (std::size_t step = 0; step < steps; ++step) {
    INFO("step ", step);
    const auto inputs = recorded.of_step("inputs", std::int64_t(step)),
               targets = recorded.of_step("targets", std::int64_t(step));
    const sequences batch = batch_of(recorded, std::int64_t(step));
    const nn::pass<typename Model::value_type> pass{ctx, batch, room};
    const train::step_report report = train::train_step(
        ctx, t, {optimizer.at("learning_rate").as_number(), optimizer.at("clip").as_number()}, [&](int) {
          const double loss = model.forward({inputs}, targets, saved, pass);
          model.backward({inputs}, saved, t.gradients, pass);
          return train::token_loss{loss, saved.targets.count()};
        });
    CHECK(std::abs(report.loss - expected.at("losses").at(step).as_number()) < 1e-5 + 2 * u);
    CHECK(report.gradient_norm ==
          doctest::Approx(expected.at("gradient_norms").at(step).as_number()).epsilon(1e-5 + 16 * u));
  }
  nn::for_each_parameter(model, [&](nn::parameter_name const& parameter_name, auto const& parameter) {
    INFO(parameter_name.text());
    CHECK(norm(parameter) == doctest::Approx(expected.at("final_norms").at(parameter_name.text()).as_number())
                                 .epsilon(1e-3 + 4 * u));
  });
}

/// The dense model and models with blocks of these sizes.
template <template <class, class> class Model, int... Size> void follow_all(std::string const& name) {
  follow<Model<float, block_shape<16>>>(name, "dense");
  (follow<Model<float, block_shape<Size>>>(name, message(Size, "x", Size)), ...);
}

template <class T, class Block> using gpt = nn::gpt<T, Block>;
template <class T, class Block> using encoder = nn::encoder<T, Block>;

TEST_CASE("trajectory: a GPT trains as in PyTorch") { follow_all<gpt, 16, 1>("gpt_bias"); }

TEST_CASE("trajectory: a GPT without biases whose sequences cross panels trains as in PyTorch") {
  follow_all<gpt, 16, 1>("gpt_no_bias");
}

TEST_CASE("trajectory: a GPT of narrow elements trains nearly as one in float") {
  follow<gpt<bfloat16, block_shape<4>>>("gpt_bias", "4x4");
}

TEST_CASE("trajectory: an encoder with padded sequences and masked tokens trains as in PyTorch") {
  follow_all<encoder, 16>("encoder");
}

#ifdef TESSERA_ALL_TYPES
TEST_CASE("trajectory: the models with the other block and element") {
  follow<gpt<float, block_shape<4>>>("gpt_bias", "4x4");
  follow<gpt<float, block_shape<4>>>("gpt_no_bias", "4x4");
  follow<gpt<float16, block_shape<4>>>("gpt_bias", "4x4");
  follow<encoder<float, block_shape<4>>>("encoder", "4x4");
}
#endif

}  // namespace trajectory_test

#endif
