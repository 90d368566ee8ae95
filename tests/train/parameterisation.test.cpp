// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/nn/gpt.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/parameterisation.hpp>
#include <tessera/train/sparsity/policies/evolving_pattern.hpp>
#include <tessera/train/training.hpp>

namespace parameterisation_test {

using namespace tessera;
using train::model_scale;
using train::parameter_place;
using train::parameter_scale;
using train::parameterisation;
using model = nn::gpt<float, block_shape<4>>;

constexpr std::int64_t base = 64, tokens = 32, sequences_of_batch = 2, symbols = 50;

nn::transformer_config shape_of(std::int64_t hidden, double density) {
  nn::transformer_config shape;
  shape.layers = 2, shape.hidden = hidden, shape.heads = hidden / 32, shape.context = tokens;
  shape.vocabulary = symbols, shape.density = density;
  return shape;
}

TEST_CASE("parameterisation: the factors are those of table 1 of SuPar") {
  const model_scale of{.width = 4, .density = 0.25};
  const auto check = [&](parameterisation how, parameter_place where, double values, double rate) {
    const parameter_scale scale = train::scale_of(how, where, of);
    CHECK(scale.values == values);
    CHECK(scale.rate == rate);
  };
  for (const parameter_place where :
       {parameter_place::embedding, parameter_place::hidden, parameter_place::output})
    check(parameterisation::standard, where, 1, 1);
  for (const parameterisation how :
       {parameterisation::maximal_update, parameterisation::sparse_maximal_update}) {
    check(how, parameter_place::embedding, 1, 1);
    check(how, parameter_place::output, 0.25, 0.25);
  }
  check(parameterisation::maximal_update, parameter_place::hidden, 0.5, 0.25);
  check(parameterisation::sparse_maximal_update, parameter_place::hidden, 1,
        1);  // four times as wide, a quarter
  CHECK_THROWS_AS(
      static_cast<void>(train::scale_of(parameterisation::standard, parameter_place::hidden, {0, 1})),
      option_error);
}

TEST_CASE("parameterisation: weights from features to features are scaled, and the norm before the logits") {
  const model_scale of{.width = 2, .density = 0.125};
  const model plain(shape_of(128, 0.125), 1);
  model scaled = plain;
  train::scale_initial_values(scaled, parameterisation::sparse_maximal_update, of);
  const nn::parameter_list before(plain), after(scaled);
  const auto groups = train::rate_groups(after, parameterisation::sparse_maximal_update, of);
  const auto rate_of = [&](std::string const& name) {
    const auto found =
        std::find_if(groups.begin(), groups.end(), [&](auto const& g) { return g.names == name; });
    return found == groups.end() ? 1 : found->rate;
  };
  int hidden = 0;
  const std::vector<std::string> names = before.names();
  for (std::size_t i = 0; i < before.size(); ++i) {
    const bool last = names[i].starts_with("final_norm."), weight = before[i].is_weight();
    hidden += weight;
    const double values = last ? 0.5 : weight ? 2 : 1, rate = last ? 0.5 : weight ? 4 : 1;
    CHECK(rate_of(names[i]) == rate);
    const std::vector<double> x = before[i].tensor.values(), y = after[i].tensor.values();
    bool all = x.size() == y.size();
    for (std::size_t k = 0; k < x.size(); ++k) all = all && float(values * x[k]) == float(y[k]);
    CHECK_MESSAGE(all, names[i]);
  }
  CHECK(hidden == 8);
  CHECK(train::rate_groups(before, parameterisation::standard, of).empty());
}

/// Root mean squares, after some steps: of the features that the blocks add to the embeddings, and of the
/// change of the logits in these steps.
struct coordinates {
  double features, logits;
};

coordinates after_steps(context& ctx, parameterisation how, std::int64_t hidden, double density, bool moves) {
  model m(shape_of(hidden, density), 1);
  const model_scale of{double(hidden) / double(base), density};
  train::scale_initial_values(m, how, of);
  train::training t(
      m, train::adamw{},
      train::evolving_pattern{.interval = moves && density < 1 ? 2 : 0, .steps = 9, .fraction = 0.3});
  if (how != parameterisation::standard) t.group_parameters(train::rate_groups(m, how, of));
  const sequences batch = sequences::of_equal_length(sequences_of_batch, tokens);
  std::vector<std::int32_t> ids, targets;
  const random_stream random(1, random_purpose::test);
  for (std::uint64_t i = 0; i < tokens * sequences_of_batch; ++i)
    ids.push_back(std::int32_t(random.below(i, symbols))), targets.push_back((ids.back() * 7 + 3) % symbols);
  nn::workspace<float> room;
  model::saved saved;
  panel_matrix<float> first, logits;
  std::vector<std::int32_t> places(ids.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = std::int32_t(i);
  const auto predict = [&](panel_matrix<float>& to) {
    m.predict(ids, places, to, saved, {ctx, batch, room, nn::purpose::evaluation});
  };
  predict(first);
  for (int step = 0; step < 8; ++step)
    train::train_step(ctx, t, {.rate = 0.004}, [&](int) {
      const nn::pass<float> pass = t.pass(ctx, batch, room);
      const double loss = m.forward(ids, targets, saved, pass);
      m.backward(ids, saved, t.gradients, pass);
      return train::token_loss{loss, std::ssize(ids), pass};
    });
  predict(logits);
  const double added = total(ctx, square(saved.top - saved.embedded)),
               changed = total(ctx, square(logits - first));
  const double count = double(ids.size());
  return {std::sqrt(added / count / double(hidden)), std::sqrt(changed / count / double(symbols))};
}

/// The greatest features and logits, ÷ the least, over widths and densities.
coordinates spread(context& ctx, parameterisation how, bool moves = false) {
  coordinates least{1e30, 1e30}, greatest{0, 0};
  for (const std::int64_t hidden : {64, 128, 256})
    for (const double density : {1.0, 0.25, 0.0625}) {
      const coordinates now = after_steps(ctx, how, hidden, density, moves);
      least = {std::min(least.features, now.features), std::min(least.logits, now.logits)};
      greatest = {std::max(greatest.features, now.features), std::max(greatest.logits, now.logits)};
    }
  return {greatest.features / least.features, greatest.logits / least.logits};
}

TEST_CASE("parameterisation: with SuPar activations do not depend on width and density, otherwise they do") {
  context ctx(1);
  const coordinates standard = spread(ctx, parameterisation::standard),
                    by_width = spread(ctx, parameterisation::maximal_update),
                    by_both = spread(ctx, parameterisation::sparse_maximal_update),
                    moving = spread(ctx, parameterisation::sparse_maximal_update, true);
  CHECK(standard.features > 50);
  CHECK(standard.logits > 2.2);
  CHECK(by_width.features > 8);  // by density
  CHECK(by_both.features < 3);
  CHECK(by_both.logits < 1.4);
  CHECK(moving.features < 4);
  CHECK(moving.logits < 1.4);
}

}  // namespace parameterisation_test
