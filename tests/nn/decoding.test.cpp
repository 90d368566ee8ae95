// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <support/allocations.hpp>
#include <support/gradient_check.hpp>

#include <tessera/core/memory.hpp>
#include <tessera/nn/alibi.hpp>
#include <tessera/nn/decoding.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/recurrent_model.hpp>

namespace decoding_test {

using namespace tessera;
using support::some_ids;

template <class T> using gpt = nn::gpt<T, block_shape<4>>;
template <class T>
using alibi_gpt = nn::gpt<T, block_shape<4>,
                          nn::transformer_block<T, block_shape<4>, nn::norm_order::pre, nn::rms_norm<T>,
                                                nn::gated_mlp<T, block_shape<4>>,
                                                nn::multi_head_attention<T, block_shape<4>, nn::alibi>>>;
constexpr int vocabulary = 37;

nn::transformer_config small() {
  nn::transformer_config config;
  config.layers = 2;
  config.hidden = 24;
  config.heads = 4;
  config.context = 150;
  config.vocabulary = vocabulary;
  config.feed_forward = 2;
  config.density = 0.6;
  return config;
}
template <class Model> Model some_model(nn::transformer_config const& config) {
  Model m(config, 7);
  support::randomise(m, 1, 0.3);
  return m;
}

/// The logits after all tokens of a sequence, without a cache.
template <class Model>
std::vector<float> logits_after(context& ctx, Model const& m, std::span<std::int32_t const> ids) {
  using T = typename Model::value_type;
  typename Model::saved saved;
  nn::workspace<T> room;
  panel_matrix<T> logits;
  const sequences layout = sequences::of_equal_length(1, std::ssize(ids));
  const std::int32_t last[]{std::int32_t(ids.size()) - 1};
  m.predict(ids, last, logits, saved, nn::pass<T>{ctx, layout, room, nn::purpose::evaluation});
  std::vector<float> all;
  for (std::int64_t f = 0; f < logits.features(); ++f) all.push_back(float(logits(f, 0)));
  return all;
}
double difference(std::span<float const> a, std::span<float const> b) {
  REQUIRE(a.size() == b.size());
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(double(a[i]) - double(b[i])));
    largest = std::max(largest, std::abs(double(b[i])));
  }
  return worst / largest;
}

/// Sequences that begin and end at different times, and go on in batches: the worst difference from logits
/// without a cache.
template <class Model>
double worst_difference(Model const& m, nn::decoding_options const& options, int threads = 2) {
  context ctx(threads, oversubscribe::allowed);
  nn::decoding<Model> running(m, ctx, options);
  struct sequence {
    std::vector<std::int32_t> ids;
    std::int64_t begins, ends, shown;
    std::int32_t slot = -1;
  };
  std::vector<sequence> all;
  for (const auto& [begins, ends, first] :
       {std::tuple{0, 7, 70}, {0, 3, 1}, {2, 9, 5}, {3, 12, 64}, {5, 12, 129}})
    all.push_back({some_ids(first + 20, vocabulary, unsigned(first)), begins, ends, first});
  double worst = 0;
  for (std::int64_t round = 0; round < 12; ++round) {
    std::vector<std::int32_t> slots, ids;
    std::vector<std::int64_t> lengths;
    std::vector<sequence const*> shown;
    for (sequence& s : all) {
      if (round == s.ends) running.end(s.slot);
      if (round < s.begins || round >= s.ends) continue;
      std::int64_t from = s.shown;
      if (round == s.begins)
        s.slot = running.begin(), from = 0;
      else
        s.shown += round % 3 == 2 ? 3 : 1;
      slots.push_back(s.slot);
      lengths.push_back(s.shown - from);
      ids.insert(ids.end(), s.ids.begin() + from, s.ids.begin() + s.shown);
      shown.push_back(&s);
    }
    const std::span<float const> logits = running.append(slots, lengths, ids);
    for (std::size_t i = 0; i < shown.size(); ++i) {
      CHECK(running.length(slots[i]) == shown[i]->shown);
      const auto alone = logits_after(ctx, m, std::span(shown[i]->ids).first(std::size_t(shown[i]->shown)));
      worst = std::max(worst, difference(logits.subspan(i * vocabulary, vocabulary), alone));
    }
  }
  return worst;
}

template <class Model>
double worst_difference(nn::transformer_config const& config, nn::decoding_options options = {}) {
  options.sequences = 4;
  return worst_difference(some_model<Model>(config), options);
}

TEST_CASE("decoding: logits are those without a cache, with learned positions") {
  CHECK(worst_difference<gpt<float>>(small()) < 1e-6);
#ifndef TESSERA_REDUCED_TYPES
  CHECK(worst_difference<gpt<double>>(small()) < 1e-7);  // logits are floats
#endif
}

TEST_CASE("decoding: logits are those without a cache, with rotary positions and shared keys") {
  auto config = small();
  config.positions = nn::position_coding::rotary;
  for (const int keys : {1, 2}) {
    config.key_heads = keys;
    CHECK(worst_difference<gpt<float>>(config) < 1e-6);
  }
}

TEST_CASE("decoding: logits are those without a cache, with windows") {
  auto config = small();
  config.positions = nn::position_coding::rotary;
  for (const int window : {1, 17, 64, 100}) {
    config.window = window;
    INFO("window of ", window);
    CHECK(worst_difference<gpt<float>>(config) < 1e-6);
  }
}

TEST_CASE(
    "decoding: logits are those without a cache, with a score functor, layers used twice and a "
    "factorised embedding") {
  auto config = small();
  config.positions = nn::position_coding::none;
  CHECK(worst_difference<alibi_gpt<float>>(config) < 1e-6);
  config = small();
  config.repeats = 2, config.embedding = 10;
  CHECK(worst_difference<gpt<float>>(config) < 1e-6);
}

TEST_CASE("decoding: logits are those without a cache where layers keep only their input") {
  auto model = some_model<gpt<float>>(small());
  model.blocks.segments = 2;
  nn::decoding_options options;
  options.sequences = 4;
  CHECK(worst_difference(model, options) < 1e-6);
}

TEST_CASE("decoding: narrow elements differ by their roundings, a narrow cache by its own") {
  CHECK(worst_difference<gpt<float16>>(small()) < 0.004);
#ifndef TESSERA_REDUCED_TYPES
  CHECK(worst_difference<gpt<bfloat16>>(small()) < 0.03);
#endif
  nn::decoding_options options;
  options.cache = cached_as::bfloat16;
  const double rounded = worst_difference<gpt<float>>(small(), options);
  CHECK(rounded < 0.01);
  CHECK(rounded > 1e-6);
}

TEST_CASE("decoding: recurrent models keep their states") {
  const nn::recurrent_model<float, block_shape<4>> lstm({2, 24, vocabulary, 0, 0.6}, 3);
  const nn::recurrent_model<float, block_shape<4>, nn::gru<float, block_shape<4>>> gru(
      {1, 24, vocabulary, 0, 1}, 3);
  context ctx(1);
  const auto check = [&](auto const& model) {
    nn::decoding<std::remove_cvref_t<decltype(model)>> running(model, ctx, {.sequences = 2});
    const auto ids = some_ids(90, vocabulary, 1);
    for (const int begin : {0, 40}) {  // the second one begins with zeros again
      const std::int32_t slot = running.begin();
      static_cast<void>(running.prefill(slot, std::span(ids).subspan(std::size_t(begin), 20)));
      for (std::size_t t = 20; t < 40; ++t) {
        const auto logits = running.next({&slot, 1}, std::span(ids).subspan(std::size_t(begin) + t, 1));
        panel_matrix<float> alone;
        typename std::remove_cvref_t<decltype(model)>::saved saved;
        nn::workspace<float> room;
        const sequences steps = nn::time_steps(std::int64_t(t) + 1, 1);
        std::vector<std::int32_t> padded(std::size_t(steps.tokens()), 0);
        for (std::size_t i = 0; i <= t; ++i) padded[i * panel_tokens] = ids[std::size_t(begin) + i];
        const std::int32_t last[]{std::int32_t(t * panel_tokens)};
        model.predict(padded, last, alone, saved, {ctx, steps, room, nn::purpose::evaluation});
        double worst = 0;
        for (int f = 0; f < vocabulary; ++f)
          worst = std::max(worst, std::abs(double(logits[std::size_t(f)]) - double(alone(f, 0))));
        CHECK(worst < 1e-6);
      }
      running.end(slot);
    }
  };
  check(lstm);
  check(gru);
  auto segmented = lstm;
  segmented.cells.segments = 2;
  check(segmented);
  nn::decoding running(lstm, ctx, {.sequences = 2});
  const std::int32_t slots[]{running.begin(), running.begin()}, ids[]{1, vocabulary}, good[]{1};
  CHECK_THROWS_WITH_AS(running.next(slots, ids), "[decoding] token 37 of a vocabulary of 37", shape_error);
  const std::span<float const> now = running.next(std::span(slots).first(1), good);
  const std::vector<float> first(now.begin(), now.end());
  const std::span<float const> again = running.next(std::span(slots).last(1), good);
  CHECK(std::ranges::equal(first, again));
}

TEST_CASE("decoding: any number of threads gives the same bits") {
  const auto model = some_model<gpt<float>>(small());
  const auto by = [&](int threads) {
    context ctx(threads, oversubscribe::allowed);
    nn::decoding<gpt<float>> running(model, ctx, {.sequences = 2});
    const std::int32_t slots[]{running.begin(), running.begin()};
    std::vector<float> all;
    const auto add = [&](std::span<float const> logits) {
      all.insert(all.end(), logits.begin(), logits.end());
    };
    const auto ids = some_ids(100, vocabulary, 1);
    const std::int64_t lengths[]{20, 80};
    add(running.append(slots, lengths, ids));
    for (std::size_t t = 0; t < 40; t += 2) add(running.next(slots, std::span(ids).subspan(t, 2)));
    return all;
  };
  const std::vector<float> one = by(1);
  CHECK(std::memcmp(by(2).data(), one.data(), one.size() * sizeof(float)) == 0);
  CHECK(std::memcmp(by(3).data(), one.data(), one.size() * sizeof(float)) == 0);
}

TEST_CASE("decoding: ten thousand tokens allocate nothing, and a window's cache stays as large as it is") {
  nn::transformer_config config = small();
  config.layers = 1;
  config.positions = nn::position_coding::rotary;
  config.context = 10100;
  config.window = 70;
  const auto model = some_model<gpt<float>>(config);
  context ctx(1);
  nn::decoding<gpt<float>> running(model, ctx);
  const std::int32_t slot = running.begin();
  std::int32_t id = 1;
  std::size_t bytes = 0;
  long allocations = 0;
  for (int t = 0; t < 10100; ++t) {
    static_cast<void>(running.next({&slot, 1}, {&id, 1}));
    id = (id * 7 + t) % vocabulary;
    if (t == 100) bytes = tensor_memory::live(), allocations = support::allocations();
  }
  CHECK(tensor_memory::live() == bytes);
  if (support::counts_allocations) CHECK(support::allocations() == allocations);
  CHECK(running.cache_bytes() == 128 * 4 * (6 + 16) * sizeof(float));
  CHECK_THROWS_WITH_AS(
      running.next({&slot, 1}, {&id, 1}),
      "[decoding] the sequence in slot 0 has 10100 tokens, and gets 1: there is room for 10100", shape_error);
}

TEST_CASE("decoding: the size of a model says the bytes of its cache") {
  for (const int window : {0, 40}) {
    auto config = small();
    config.key_heads = 2;
    config.window = window;
    const auto model = some_model<gpt<float>>(config);
    context ctx(1);
    nn::decoding<gpt<float>> running(model, ctx, {.sequences = 3, .tokens = 100});
    const auto ids = some_ids(10, vocabulary, 1);
    static_cast<void>(running.prefill(running.begin(), ids));
    CHECK(std::size_t(3 * gpt<float>::size(config).cache_bytes(window == 0 ? 100 : window, sizeof(float))) ==
          running.cache_bytes());
  }
}

TEST_CASE("decoding: what does not fit is refused, and the sequences stay as they were") {
  const auto model = some_model<gpt<float>>(small());
  context ctx(1);
  CHECK_THROWS_WITH_AS(nn::decoding<gpt<float>>(model, ctx, {.tokens = 151}),
                       "[decoding] sequences of 151 tokens, but the model has 150 positions", option_error);
  CHECK_THROWS_WITH_AS(nn::decoding<gpt<float>>(model, ctx, {.sequences = 0}),
                       "[decoding] 0 sequences of 150 tokens: each must be at least 1", option_error);
  nn::decoding<gpt<float>> running(model, ctx, {.sequences = 2, .tokens = 30});
  const std::int32_t slot = running.begin(), other = running.begin();
  const auto ids = some_ids(30, vocabulary, 1);
  const auto refuses = [&](std::vector<std::int32_t> slots, std::vector<std::int64_t> lengths,
                           std::size_t count, char const* why) {
    CHECK_THROWS_WITH_AS(running.append(slots, lengths, std::span(ids).first(count)), why, shape_error);
  };
  CHECK_THROWS_WITH_AS(running.begin(), "[decoding] all 2 slots are taken: end() one, or have more", error);
  static_cast<void>(running.prefill(slot, std::span(ids).first(20)));
  refuses({}, {}, 0, "[decoding] no sequence to go on with: give at least one");
  refuses({slot}, {0}, 0,
          "[decoding] no token for the sequence in slot 0: a model goes on with at least one");
  refuses({slot, slot}, {1, 1}, 2, "[decoding] slot 0 is given twice");
  refuses({2}, {1}, 1, "[decoding] there is no sequence in slot 2: begin() gives slots");
  refuses({slot, other}, {1}, 1, "[decoding] 1 numbers of tokens for 2 sequences: give one for each");
  refuses({slot}, {2}, 1, "[decoding] 1 ids, but the sequences get 2 tokens");
  refuses({other, slot}, {1, 11}, 12,
          "[decoding] the sequence in slot 0 has 20 tokens, and gets 11: there is room for 30");
  const std::int32_t unknown = vocabulary;
  CHECK_THROWS_AS(running.next({&slot, 1}, {&unknown, 1}), shape_error);
  CHECK(running.length(slot) == 20);
  running.end(other);
  CHECK_THROWS_AS(running.end(other), shape_error);
  const auto after = running.next({&slot, 1}, std::span(ids).subspan(20, 1));
  CHECK(difference(after, logits_after(ctx, model, std::span(ids).first(21))) < 1e-6);
}

/// Bytes of a decoding beside its cache after a prompt of 128 tokens.
std::size_t bytes_beside_cache(int layers) {
  auto config = small();
  config.layers = layers;
  config.positions = nn::position_coding::rotary;
  const auto model = some_model<gpt<float>>(config);
  context ctx(1);
  const std::size_t before = tensor_memory::live();
  nn::decoding<gpt<float>> running(model, ctx);
  const auto ids = some_ids(128, vocabulary, 1);
  static_cast<void>(running.prefill(running.begin(), ids));
  return tensor_memory::live() - before - running.cache_bytes();
}

TEST_CASE("decoding: a prompt takes the memory of one layer's values, however many layers there are") {
  const std::size_t of_three = bytes_beside_cache(3);
  CHECK(of_three > 128 * 24 * sizeof(float));
  CHECK(bytes_beside_cache(6) == of_three);
}

TEST_CASE("decoding: after a pass with a cache there is no backward") {
  const auto model = some_model<gpt<float>>(small());
  context ctx(1);
  nn::token_cache<float> cache(1, 20);
  const std::int32_t slot = 0, last = 9;
  cache.begin_pass({&slot, 1}, true);
  gpt<float>::saved saved;
  nn::workspace<float> room;
  const auto layout = sequences::of_equal_length(1, 10);
  nn::pass<float> p{ctx, layout, room, nn::purpose::evaluation};
  p.cache = &cache;
  panel_matrix<float> logits, dy(24, 10), dx(24, 10);
  model.predict(some_ids(10, vocabulary, 1), {&last, 1}, logits, saved, p);
  gpt<float>::gradients gradients;
  CHECK_THROWS_AS(model.blocks.backward(dy, saved.blocks, dy, dx, gradients.blocks, p), error);
}

TEST_CASE("decoding: a cache of another model is refused") {
  auto config = small();
  config.positions = nn::position_coding::rotary;
  const auto refusal = [&](nn::transformer_config const& other) {
    context ctx(1);
    nn::token_cache<float> cache(1, 150);
    nn::workspace<float> room;
    const std::int32_t slot = 0, last = 0, id = 1;
    sequences layout = sequences::of_equal_length(1, 1);
    const auto show = [&](gpt<float> const& m, std::int64_t start) {
      layout.start_at(std::span(&start, 1));
      cache.begin_pass({&slot, 1}, start == 0);
      gpt<float>::saved saved;
      panel_matrix<float> logits;
      nn::pass<float> p{ctx, layout, room, nn::purpose::evaluation};
      p.cache = &cache;
      m.predict({&id, 1}, {&last, 1}, logits, saved, p);
    };
    show(some_model<gpt<float>>(config), 0);
    try {
      show(some_model<gpt<float>>(other), 1);
    } catch (shape_error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(refusal(config) == "");
  auto other = config;
  other.heads = 2;
  CHECK(refusal(other) ==
        "[token_cache] layer 0 has 2 heads of 12, but had 4 of 6 before: a cache is of one model");
  other = config;
  other.layers = 3;
  CHECK(
      refusal(other) ==
      "[token_cache] 2 layers have keys of earlier tokens, but the model has more: a cache is of one model");
  other = config;
  other.window = 64;
  CHECK(refusal(other) ==
        "[token_cache] layer 0 sees 64 tokens, but there is room for 192 as it was before: a cache is of one "
        "model");
}

TEST_CASE("decoding: a cache that the memory does not hold is refused before it is made, with the numbers") {
  CHECK_NOTHROW(nn::detail::require_cache_memory(2, 1000, 6400, 2 * 16 * 6400));
  CHECK_THROWS_WITH_AS(nn::detail::require_cache_memory(2, 1000, 6400, 2 * 16 * 6400 - 1),
                       "[decoding] keys and values of 2 x 1000 tokens take 204800 bytes, but 204799 are "
                       "available: 2 x 960 tokens fit",
                       machine_error);
  auto config = small();
  config.positions = nn::position_coding::none;  // whose tables need no memory
  config.context = 2'000'000'000;
  const auto model = some_model<gpt<float>>(config);
  context ctx(1);
  const std::size_t before = tensor_memory::live();
  CHECK_THROWS_AS(nn::decoding<gpt<float>>(model, ctx, {.sequences = 1000}), machine_error);  // 1.4 PB
  CHECK(tensor_memory::live() == before);
  CHECK_NOTHROW(nn::decoding<gpt<float>>(model, ctx, {.sequences = 1000, .tokens = 100}));
  config.window = 100;
  const auto narrow = some_model<gpt<float>>(config);
  CHECK_NOTHROW(nn::decoding<gpt<float>>(narrow, ctx, {.sequences = 1000}));
}

}  // namespace decoding_test
