// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/recurrent_model.hpp>
#include <tessera/nn/sequence_classifier.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/any_model.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/sparsity/policies/rigl.hpp>
#include <tessera/train/training.hpp>

namespace any_model_test {

using namespace tessera;
using block = block_shape<16>;
using gpt = nn::gpt<float, block>;
using encoder = nn::encoder<float, block>;
using classifier = nn::sequence_classifier<float, block>;
using lstm = nn::recurrent_model<float, block>;

nn::transformer_config shape(bool segments = false) {
  nn::transformer_config s;
  s.layers = 1, s.hidden = 64, s.heads = 2, s.vocabulary = 30, s.context = 16, s.density = 0.5;
  if (segments) s.segment_types = 2, s.next_sentence = true;
  return s;
}

/// Sequences of unequal lengths, the longest not first.
train::token_batch batch(bool labelled) {
  train::token_batch all;
  all.lengths = {5, 9, 7};
  for (std::int32_t i = 0; i < 21; ++i) {
    all.inputs.push_back(i * 7 % 30);
    all.targets.push_back(i % 3 == 0 ? nn::ignored : i * 11 % 30);
    if (labelled) all.segments.push_back(i % 5 > 2);
  }
  if (labelled) all.labels = {0, 1, 1};
  return all;
}

std::vector<std::vector<double>> values_of(nn::parameter_list const& all) {
  std::vector<std::vector<double>> values;
  for (nn::any_parameter const& each : all) values.push_back(each.tensor.values());
  return values;
}

/// Whether a model has the losses, gradients and logits of its network, for which `forward` and `backward`
/// stand, and is trained, saved and resumed as it.
template <class Network, class Forward, class Backward>
void check(Network const& made, train::token_batch const& shown, Forward&& forward, Backward&& backward) {
  context ctx(2);
  Network network = made;
  train::model_of<Network> model(made);
  train::any_model& any = model;
  CHECK(values_of(any.layer()) == values_of(network));

  const train::rigl policy{.interval = 2, .steps = 8, .fraction = 0.3};
  train::training typed(network, train::adamw{.weight_decay = 0.1}, policy);
  train::any_training t(any.layer(), train::adamw{.weight_decay = 0.1}, policy);
  typename Network::saved saved;
  nn::workspace<float> room;
  const auto step = [&](auto& of, auto&& accumulate) {
    return train::train_step(ctx, of, {.rate = 0.01, .clip = 1}, accumulate).loss;
  };
  const auto both = [&] {
    const double expected = step(typed, [&](int) {
      const train::detail::arranged_batch<Network> arranged(shown);
      const nn::pass<float> p = typed.pass(ctx, arranged.sequences, room, 3);
      const double loss = forward(network, arranged, saved, p);
      backward(network, arranged, saved, typed.gradients, p);
      return train::token_loss{loss, shown.counted(), p};
    });
    CHECK(step(t, [&](int) { return train::learn(ctx, any, t, shown, 3); }) == expected);
    CHECK(values_of(any.layer()) == values_of(network));
    CHECK(values_of(t.gradients) == values_of(typed.gradients));
  };
  for (int i = 0; i < 3; ++i) both();
  CHECK(train::evaluate(ctx, any, shown).tokens == shown.counted());

  // What one saves, the other resumes.
  const scratch_folder scratch;
  train::save(typed, scratch / "typed", {});
  train::save(t, scratch / "any", {});
  train::resume(t, train::checkpoint(scratch / "typed"));
  train::resume(typed, train::checkpoint(scratch / "any"));
  both();
}

TEST_CASE("any model: a GPT is trained, saved and resumed with the bits of its type") {
  const train::token_batch shown = batch(false);
  check(
      gpt(shape(), 1), shown,
      [](gpt& m, auto const& b, auto& s, auto const& p) { return m.forward(b.inputs, b.targets, s, p); },
      [](gpt& m, auto const& b, auto& s, auto& g, auto const& p) { m.backward(b.inputs, s, g, p); });
}

TEST_CASE("any model: an encoder with next sentences, and a classifier") {
  const train::token_batch shown = batch(true);
  const auto input = [&](auto const& b) { return encoder::input{b.inputs, shown.segments}; };
  check(
      encoder(shape(true), 1), shown,
      [&](encoder& m, auto const& b, auto& s, auto const& p) {
        return m.forward(input(b), b.targets, shown.labels, s, p);
      },
      [&](encoder& m, auto const& b, auto& s, auto& g, auto const& p) { m.backward(input(b), s, g, p); });
  check(
      classifier(shape(true), 3, 1), shown,
      [&](classifier& m, auto const& b, auto& s, auto const& p) {
        return m.forward({b.inputs, shown.segments}, shown.labels, s, p);
      },
      [&](classifier& m, auto const& b, auto& s, auto& g, auto const& p) {
        m.backward({b.inputs, shown.segments}, s, g, p);
      });
}

TEST_CASE("any model: a recurrent model takes sequences side by side") {
  const train::token_batch shown = batch(false);
  check(
      lstm({.layers = 1, .hidden = 32, .vocabulary = 30, .density = 0.5}, 1), shown,
      [](lstm& m, auto const& b, auto& s, auto const& p) { return m.forward(b.inputs, b.targets, s, p); },
      [](lstm& m, auto const& b, auto& s, auto& g, auto const& p) { m.backward(b.inputs, s, g, p); });

  // A token has the logits that it has alone.
  context ctx(1);
  train::model_of<lstm> model(lstm({.layers = 1, .hidden = 32, .vocabulary = 30}, 1));
  train::token_batch alone;
  alone.lengths = {5};
  alone.inputs.assign(shown.inputs.begin(), shown.inputs.begin() + 5);
  const nn::any_pass p{ctx, nn::purpose::evaluation};
  const std::vector<float> expected = model.token_logits(alone, 4, p),
                           found = model.token_logits(shown, 4, p);
  REQUIRE(expected.size() == 30);
  REQUIRE(found.size() == 30);
  for (std::size_t i = 0; i < 30; ++i) CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-4));
}

TEST_CASE("any model: logits are one list for each token or sequence, and refused where there are none") {
  context ctx(1);
  const nn::any_pass p{ctx, nn::purpose::evaluation};
  train::model_of<gpt> decoder(gpt(shape(), 1));
  train::model_of<encoder> plain(encoder(shape(), 1)), pairs(encoder(shape(true), 1));
  train::model_of<classifier> classes(classifier(shape(true), 3, 1));
  const train::token_batch shown = batch(true);
  train::token_batch unlabelled = batch(false);
  CHECK(decoder.token_logits(unlabelled, 2, p).size() == 30);
  CHECK(pairs.token_logits(shown, 2, p).size() == 30);
  CHECK(pairs.sequence_logits(shown, p).size() == 2 * 3);
  CHECK(classes.sequence_logits(shown, p).size() == 3 * 3);
  CHECK_THROWS_WITH_AS(decoder.sequence_logits(unlabelled, p), doctest::Contains("no classes of sequences"),
                       option_error);
  CHECK_THROWS_WITH_AS(plain.sequence_logits(unlabelled, p), doctest::Contains("no head for next sentences"),
                       option_error);
  CHECK_THROWS_WITH_AS(classes.token_logits(shown, 2, p), doctest::Contains("says nothing of tokens"),
                       option_error);
}

TEST_CASE("any model: a batch of which something is missing is refused, by recurrent models, too") {
  context ctx(1);
  const nn::any_pass p{ctx};
  train::model_of<gpt> decoder(gpt(shape(), 1));
  train::model_of<lstm> recurrent(lstm({.layers = 1, .hidden = 32, .vocabulary = 30}, 1));
  for (train::any_model* model :
       {static_cast<train::any_model*>(&decoder), static_cast<train::any_model*>(&recurrent)}) {
    const auto refused = [&](auto const& change) {
      train::token_batch shown = batch(false);
      change(shown);
      CHECK_THROWS_AS(model->forward(shown, p), shape_error);
    };
    refused([](train::token_batch& shown) { shown.lengths.push_back(1); });
    refused([](train::token_batch& shown) { shown.lengths.pop_back(); });
    refused([](train::token_batch& shown) { shown.lengths = {-1, 22}; });
    refused([](train::token_batch& shown) { shown.inputs.pop_back(); });
    refused([](train::token_batch& shown) { shown.targets.pop_back(); });
    refused([](train::token_batch& shown) { shown.targets.push_back(0); });
    refused([](train::token_batch& shown) { shown.targets.clear(); });
    CHECK(model->forward({}, p) == 0);
    const train::token_batch shown = batch(false);
    for (const std::int64_t place : {std::int64_t{-1}, std::int64_t{5}, std::int64_t{1} << 32})
      CHECK_THROWS_AS(model->token_logits(shown, place, p), shape_error);
    CHECK_THROWS_AS(model->token_logits({}, 0, p), shape_error);
  }
}

TEST_CASE("any model: gradients of another model are refused, before anything is computed with them") {
  context ctx(1);
  train::model_of<gpt> model(gpt(shape(), 1));
  train::model_of<lstm> other(lstm({.layers = 1, .hidden = 32, .vocabulary = 30}, 1));
  train::owned_layer gradients = other.layer().zeros_like();
  const nn::any_pass p{ctx};
  const train::token_batch shown = batch(false);
  model.forward(shown, p);
  CHECK_THROWS_WITH_AS(model.backward(shown, gradients, p), doctest::Contains("a layer of another type"),
                       option_error);
  CHECK_THROWS_AS(model.layer().refresh(ctx, 1, gradients), option_error);

  train::any_training t(model.layer(), train::adamw{});
  std::swap(t.gradients, gradients);
  CHECK_THROWS_AS(train::train_step(ctx, t, {.rate = 0.1}, [&](int) { return train::token_loss{1, 1}; }),
                  error);
}

TEST_CASE("any_model: a decoder goes on with tokens, and other models refuse") {
  context ctx(1);
  const auto check = [&](train::any_model& model) {
    const auto running = model.decoding(ctx, {.tokens = 16});
    train::token_batch shown = batch(false);
    shown.lengths = {9}, shown.inputs.resize(9), shown.targets.clear();
    const std::int32_t slot = running->begin();
    static_cast<void>(running->prefill(slot, std::span(shown.inputs).first(8)));
    const std::span<float const> logits = running->next({&slot, 1}, std::span(shown.inputs).last(1));
    const std::vector<float> alone = model.token_logits(shown, 8, {ctx, nn::purpose::evaluation});
    REQUIRE(logits.size() == alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i)
      CHECK(logits[i] == doctest::Approx(alone[i]).epsilon(1e-5));
  };
  train::model_of<gpt> by_keys(gpt(shape(), 1));
  train::model_of<lstm> by_state(lstm({1, 64, 30, 0, 0.5}, 1));
  check(by_keys), check(by_state);
  train::model_of<encoder> other(encoder(shape(), 1));
  CHECK_THROWS_WITH_AS(static_cast<void>(other.decoding(ctx, {})),
                       "[any_model] the model does not predict the token that follows others", option_error);
}

}  // namespace any_model_test
