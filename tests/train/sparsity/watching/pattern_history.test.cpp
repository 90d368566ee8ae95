// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/io/json_parser.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/evolve.hpp>
#include <tessera/train/sparsity/policies/evolving_pattern.hpp>
#include <tessera/train/sparsity/watching/layer_table.hpp>
#include <tessera/train/sparsity/watching/model_patterns.hpp>
#include <tessera/train/sparsity/watching/pattern_history.hpp>

namespace pattern_history_test { namespace {

using namespace tessera;
using train::model_patterns;

pattern random(int rows, int cols, double density, std::uint64_t seed) {
  return random_pattern(rows, cols, density, random_stream(seed, random_purpose::test));
}

/// Two sparse weights of different size and density, in single elements.
struct two_weights {
  block_sparse_matrix<float, block_shape<1>> small, large;
  using gradients = two_weights;
  explicit two_weights()
      : small(support::random_matrix<float, block_shape<1>>(60, 70, 0.3, 1)),
        large(support::random_matrix<float, block_shape<1>>(300, 200, 0.1, 2)) {}
  static void parts(auto& each, auto&... of) {
    each("small", of.small...);
    each("large", of.large...);
  }
};

using places = std::set<std::pair<int, int>>;
places places_of(pattern const& p) {
  places all;
  p.for_each([&](int i, int j, std::int64_t) { all.insert({i, j}); });
  return all;
}

TEST_CASE("mask distance: is the share of the places that one of two masks has") {
  const pattern a = random(7, 9, 0.4, 1), b = random(7, 9, 0.6, 2), dense = pattern::dense(7, 9);
  const places in_a = places_of(a), in_b = places_of(b);
  int different = 0;
  for (int i = 0; i < 7; ++i)
    for (int j = 0; j < 9; ++j) different += in_a.contains({i, j}) != in_b.contains({i, j});
  CHECK(train::mask_distance(a, b) == different / 63.0);
  CHECK(train::mask_distance(b, a) == different / 63.0);
  CHECK(train::mask_distance(a, a) == 0);
  CHECK(train::mask_distance(a, dense) == doctest::Approx(1 - a.density()));
  CHECK(train::mask_distance(a, dense - a) == 1);
  CHECK(train::mask_distance(pattern(), pattern()) == 0);

  const pattern c = random(3, 4, 0.5, 3);
  CHECK(train::mask_distance(model_patterns{{"x", a}, {"y", c}}, {{"x", b}, {"y", c}}) == different / 75.0);
  CHECK(error_of<shape_error>([&] {
          (void)train::mask_distance(a, c);
        }).find("[mask_distance] the left pattern has a grid of 7 x 9 blocks") == 0);
  CHECK(error_of<shape_error>([&] { (void)train::mask_distance(model_patterns{{"x", a}}, {{"y", a}}); }) ==
        "[mask_distance] pattern 0 is of x and of y: they must be of one model");
  CHECK(error_of<shape_error>([&] { (void)train::mask_distance(model_patterns{{"x", a}}, {}); }) ==
        "[mask_distance] patterns of 1 matrices and of 0: they must be of one model");
}

TEST_CASE("pattern history: grown, survivors and ages are those of a list of all places") {
  model_patterns now{{"a", random(9, 11, 0.3, 1)}, {"b", random(5, 6, 0.5, 2)}};
  const auto all_places = [](model_patterns const& of) {
    std::set<std::pair<std::string, std::pair<int, int>>> all;
    for (auto const& [name, stored] : of)
      for (auto const& place : places_of(stored)) all.insert({name, place});
    return all;
  };
  train::pattern_history history(now);
  const auto first = all_places(now);
  auto survivors = first;
  auto before = first;
  decltype(survivors) grown_last;
  std::map<std::pair<std::string, std::pair<int, int>>, int> grown_by;
  for (auto const& place : first) grown_by[place] = 0;
  CHECK(history.survivors() == 1);
  for (int update = 1; update <= 5; ++update) {
    // Any patterns, of other densities, too.
    const auto seed = static_cast<std::uint64_t>(10 * update);
    now = {{"a", random(9, 11, 0.2 + 0.05 * update, seed) | (now[0].stored & random(9, 11, 0.6, seed + 1))},
           {"b", update == 3 ? now[1].stored : random(5, 6, 0.5, seed + 2)}};
    const auto after = all_places(now);
    train::pattern_turnover expected;
    decltype(survivors) grown;
    for (auto const& place : after)
      if (!before.contains(place)) grown.insert(place), grown_by[place] = update;
    for (auto const& place : before) expected.pruned += !after.contains(place);
    std::erase_if(survivors, [&](auto const& place) { return !after.contains(place); });
    std::erase_if(grown_by, [&](auto const& known) { return !after.contains(known.first); });
    for (auto const& place : grown_last) expected.grown_left += after.contains(place);

    const train::pattern_turnover change = history.follow(now);
    CHECK(change.stored == std::ssize(after));
    CHECK(change.grown == std::ssize(grown));
    CHECK(change.pruned == expected.pruned);
    CHECK(change.grown_before == std::ssize(grown_last));
    CHECK(change.grown_left == expected.grown_left);
    CHECK(history.updates() == update);
    CHECK(history.survivors() == double(survivors.size()) / double(first.size()));
    for (int since = 0; since <= update; ++since) {
      decltype(survivors) old;
      for (auto const& [place, by] : grown_by)
        if (by <= since) old.insert(place);
      CHECK(all_places(history.stored_since(since)) == old);
    }
    const std::string text = io::to_text(history.to_json());
    const io::json read = io::parse_json(text);
    history = train::pattern_history::from_json(io::json_place(read), now);
    CHECK(io::to_text(history.to_json()) == text);
    before = after;
    grown_last = grown;
  }
  CHECK(train::pattern_turnover{}.grown_survivors() == 1);
  CHECK(train::pattern_turnover{0, 0, 0, 8, 2}.grown_survivors() == 0.25);
  CHECK(error_of<shape_error>([&] {
          history.follow({});
        }).find("[pattern_history] patterns of 2 matrices and of 0") == 0);
}

TEST_CASE("pattern history: a file of another pattern is refused") {
  const io::json few = io::parse_json(
      R"({"updates": 1, "first": 3, "matrices": {"w": {"never_expected": 1, "grown_by": [0, 1]}}})");
  const auto refusal = [&](pattern const& stored) {
    return error_of<io_error>(
        [&] { (void)train::pattern_history::from_json(io::json_place(few), {{"w", stored}}); });
  };
  CHECK(refusal(pattern::dense(1, 2)) == "");
  CHECK(refusal(pattern::dense(1, 3)).find("is of 2 blocks, but 3 are stored") != std::string::npos);
  const io::json late = io::parse_json(
      R"({"updates": 1, "first": 1, "matrices": {"w": {"never_expected": 1, "grown_by": [2]}}})");
  CHECK(error_of<io_error>([&] {
          (void)train::pattern_history::from_json(io::json_place(late), {{"w", pattern::dense(1, 1)}});
        }).find("is no update of 0 … 1") != std::string::npos);
}

TEST_CASE("exploration: random growth explores within 1 % of what is predicted") {
  for (const double fraction : {0.1, 0.5}) {
    two_weights m;
    const train::evolving_pattern policy{.interval = 3, .steps = 120, .fraction = fraction, .seed = 5};
    train::training<two_weights, train::sgd> t(m, {}, policy);
    const model_patterns first = train::patterns_of(m);
    train::pattern_history history(first);
    CHECK(train::predicted_exploration(policy, first, 0) == doctest::Approx(t.explored.fraction()));
    for (int done = 1; done <= 120; ++done) {
      if (!policy.due(done)) continue;
      // Pruned at random, too: the prediction does not depend on the blocks that are pruned.
      support::fill(m.small, static_cast<std::uint64_t>(done));
      support::fill(m.large, static_cast<std::uint64_t>(done) + 1000);
      const auto change = train::evolve(policy, done, t.explored, t.model, t.gradients, t.state);
      const train::pattern_turnover turnover = history.follow(train::patterns_of(m));
      REQUIRE(turnover.grown == change.replaced);
      REQUIRE(turnover.pruned == change.replaced);
      REQUIRE(turnover.stored == change.stored);
      const double predicted = train::predicted_exploration(policy, first, done);
      REQUIRE(history.expected_exploration() == doctest::Approx(predicted).epsilon(1e-12));
      REQUIRE(std::abs(t.explored.fraction() - predicted) < 0.01 * predicted);
    }
    CHECK(t.explored.fraction() > (fraction > 0.3 ? 0.65 : 0.25));
  }
  // By hand: of 12 absent blocks, 3 and then 3 grow.
  const model_patterns one{{"w", random(4, 4, 0.25, 1)}};
  const train::evolving_pattern twice{
      .interval = 1, .steps = 3, .fraction = 0.75, .falls = train::fraction_decay::constant};
  CHECK(train::predicted_exploration(twice, one, 9) == doctest::Approx(1 - 12 * 0.75 * 0.75 / 16));
  CHECK(train::predicted_exploration(twice, {}, 9) == 1);
  CHECK(train::predicted_exploration(twice, {{"w", pattern::dense(2, 2)}}, 9) == 1);
}

TEST_CASE("layer table: has a row for each weight, with its norms") {
  toy::model<float> m;
  for (float& v : m.up) v = 0;
  m.up.at_slot(0)[0] = 3;
  m.up.at_slot(1)[5] = -4;
  const auto rows = train::layer_table(m);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].name == "up");
  CHECK(rows[0].rows == 24);
  CHECK(rows[0].cols == 20);
  CHECK(rows[0].blocks == 12);
  CHECK(rows[0].all == 30);
  CHECK(rows[0].density == 0.4);
  CHECK(rows[0].l1 == 7);
  CHECK(rows[0].l2 == 5);
  CHECK(rows[1].name == "down");
  CHECK(rows[1].density == 1);
  const std::string text = train::to_csv(rows);
  CHECK(text.find("weight,rows,cols,blocks,all_blocks,density,l1,l2\nup,24,20,12,30,0.4,7,5\ndown,5,24,") ==
        0);
}

}}  // namespace pattern_history_test
