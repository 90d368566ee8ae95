// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/evaluation.hpp>
#include <support/types.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/policies/rigl.hpp>
#include <tessera/train/sparsity/policies/sparse_evolutionary_training.hpp>
#include <tessera/train/training.hpp>

// The beginning of blocks that grow, and their grace.

namespace newborn_blocks_test {

using namespace tessera;
using train::newborn_moments;
using train::prune_score;
using train::turnover;

/// AdamW of one matrix in double, element by element.
struct reference {
  struct element {
    double w = 0, m = 0, v = 0, born = 0;
  };
  std::map<std::pair<int, int>, element> of;

  template <class Matrix> void step(train::adamw const& by, double rate, double number, Matrix const& g) {
    for (auto& [at, e] : of) {
      const double gradient = g(at.first, at.second), age = number - e.born;
      const double corrected = by.newborn == newborn_moments::age ? age : number;
      e.m = by.beta1 * e.m + (1 - by.beta1) * gradient;
      e.v = by.beta2 * e.v + (1 - by.beta2) * gradient * gradient;
      const double warm = by.newborn_warmup > 0 ? std::min(1.0, age / by.newborn_warmup) : 1;
      e.w = e.w * (1 - rate * by.weight_decay) -
            warm * rate * e.m / (1 - std::pow(by.beta1, corrected)) /
                (std::sqrt(e.v / (1 - std::pow(by.beta2, corrected))) + by.epsilon);
    }
  }
  /// Takes the pattern of a matrix after `number` updates.
  template <class Matrix> void follow(train::adamw const& by, double number, Matrix const& now) {
    std::map<std::pair<int, int>, element> next;
    double sum = 0, stay = 0;
    for (auto const& [at, e] : of)
      if (now.find(at.first, at.second) >= 0) sum += e.v, stay += 1;
    // The mean is over stored values, also values that overhang.
    const double overhang = overhanging(now, [&](int i, int j) { return of.contains({i, j}); });
    for (int i = 0; i < now.rows(); ++i)
      for (int j = 0; j < now.cols(); ++j)
        if (now.find(i, j) >= 0) {
          const auto before = of.find({i, j});
          next[{i, j}] = before != of.end() ? before->second
                         : by.newborn == newborn_moments::mean
                             ? element{0, 0, sum / (stay + overhang), number}
                             : element{0, 0, 0, number};
        }
    of = std::move(next);
  }
  /// How many stored values of blocks that stay lie beyond the last row or column.
  template <class Matrix, class Stayed> static double overhanging(Matrix const& now, Stayed const& stayed) {
    using Block = typename Matrix::block;
    double count = 0;
    now.pattern().for_each([&](int i, int j, std::int64_t) {
      if (!stayed(i * Block::rows, j * Block::cols)) return;
      for (int r = 0; r < Block::rows; ++r)
        for (int c = 0; c < Block::cols; ++c)
          count += i * Block::rows + r >= now.rows() || j * Block::cols + c >= now.cols();
    });
    return count;
  }
};

const train::evolving_pattern evolving{.interval = 1, .steps = 1000, .fraction = 0.3, .seed = 5};

/// The greatest difference from the reference after 30 updates, before five of which the pattern changes.
template <class T, class Block> double distance(train::adamw const& by) {
  context ctx(2, oversubscribe::allowed);
  toy::model<T, Block> m(3);
  train::training t(m, by, evolving);
  reference expected;
  for (int i = 0; i < m.hidden; ++i)
    for (int j = 0; j < m.inputs; ++j)
      if (m.up.find(i, j) >= 0) expected.of[{i, j}].w = double(m.up(i, j));
  for (int step = 0; step < 30; ++step) {
    support::fill(t.gradients.up, std::uint64_t(100 + step));
    expected.step(by, 1e-3, step + 1, t.gradients.up);
    train::update_parameters(ctx, by, m, t.gradients, t.state, 1e-3);
    if (step % 6 == 5) {
      train::evolve(t.policy, step + 1, t.explored, m, t.gradients, t.state);
      expected.follow(by, step + 1, m.up);
    }
  }
  const auto master =
      train::elements_of(t.state, m, m.up.size() > 0 && sizeof(T) == 2 ? "master" : "first_moment");
  double worst = 0;
  for (auto const& [at, e] : expected.of) {
    const double w =
        sizeof(T) == 2 ? double(master.up(at.first, at.second)) : double(m.up(at.first, at.second));
    worst = std::max(worst, std::abs(w - e.w));
  }
  CHECK(support::padding_is_zero(m.up));
  return worst;
}

const std::vector<train::adamw> rules{
    {.beta2 = 0.99, .newborn = newborn_moments::zero},
    {.beta2 = 0.99, .newborn = newborn_moments::mean},
    {.beta2 = 0.99, .newborn = newborn_moments::age},
    {.beta2 = 0.99, .newborn = newborn_moments::age, .newborn_warmup = 10},
    {.beta2 = 0.99, .newborn = newborn_moments::mean, .newborn_warmup = 4},
    {.beta1 = 0, .beta2 = 0.999, .newborn = newborn_moments::zero, .newborn_warmup = 7},
};

TEST_CASE_TEMPLATE("newborn blocks: AdamW is that of its formula", Types,
                   support::types<float, block_shape<1>>, support::types<float, block_shape<4>>,
                   support::types<double, block_shape<8>>, support::types<bfloat16, block_shape<4>>,
                   support::types<double, block_shape<3, 5>>) {
  using T = typename Types::element;
  for (train::adamw const& by : rules) {
    INFO("newborn ", int(by.newborn), ", warm-up ", by.newborn_warmup);
    CHECK(distance<T, typename Types::block>(by) <= (sizeof(T) == 8 ? 1e-12 : 2e-6));
  }
}

TEST_CASE("newborn blocks: a matrix that stores all blocks has the bits of any rule") {
  context ctx(1);
  toy::model<float> a(3), b = a;
  auto state_a = train::initial_state(rules[0], a), state_b = train::initial_state(rules[3], b);
  toy::model<float> g(4);
  for (int i = 0; i < 5; ++i) {
    train::update_parameters(ctx, rules[0], a, g, state_a, 1e-3);
    train::update_parameters(ctx, rules[3], b, g, state_b, 1e-3);
  }
  CHECK(toy::same_bits(a.down, b.down));
  CHECK(toy::same_bits(a.bias, b.bias));
}

template <class Training> train::step_report step(context& ctx, Training& t) {
  const auto key = std::uint64_t(t.progress.step);
  return train::train_step(ctx, t, {1e-2, 1},
                           [&](int) { return toy::accumulate(ctx, t.model, t.gradients, key, 90); });
}

TEST_CASE_TEMPLATE("newborn blocks: a run is saved and goes on with the same bits", T, float, bfloat16) {
  const scratch_folder scratch;
  context one(1), three(3, oversubscribe::allowed);
  const train::evolving_pattern patterns{.interval = 3, .steps = 40, .fraction = 0.3, .seed = 5};
  for (const turnover how : {turnover{.grace = 2, .values = 0.5}, turnover{.score = prune_score::norm_by_age},
                             turnover{.score = prune_score::momentum}}) {
    toy::model<T> m, other(77);
    train::training whole(m, rules[4], patterns, how), resumed(other, rules[4], patterns, how);
    for (int i = 0; i < 10; ++i) step(one, whole);
    train::save(whole, scratch / std::to_string(int(how.score)), io::json());
    for (int i = 0; i < 10; ++i) step(one, whole);
    train::resume(resumed, train::checkpoint(scratch / std::to_string(int(how.score))));
    for (int i = 0; i < 10; ++i) step(three, resumed);
    CHECK(toy::same_bits(resumed, whole));
  }
}

TEST_CASE("newborn blocks: the grace keeps them, until all others are gone") {
  context ctx(1);
  for (const int grace : {0, 1, 2}) {
    INFO("grace ", grace);
    toy::model<float> m(3);
    const train::evolving_pattern patterns{.interval = 2, .steps = 1000, .fraction = 0.3, .seed = 5};
    train::training t(m, train::sgd{}, patterns, turnover{.grace = grace});
    pattern before = m.up.pattern();
    std::vector<pattern> grown;
    int lost = 0;
    for (int update = 0; update < 4; ++update) {
      for (int i = 0; i < 2; ++i) ++t.state.updates;
      train::evolve(t.policy, 2 * (update + 1), t.explored, m, t.gradients, t.state, {}, {}, t.keys,
                    t.turnover);
      for (int ago = 1; ago <= grace && ago <= int(grown.size()); ++ago)
        lost += int((grown[grown.size() - std::size_t(ago)] - m.up.pattern()).blocks());
      grown.push_back(m.up.pattern() - before);
      before = m.up.pattern();
    }
    if (grace == 0) {  // they are zero, and nothing is smaller
      CHECK((grown[0] - m.up.pattern()).blocks() == grown[0].blocks());
    } else {
      CHECK(lost == 0);
    }
  }
  // A matrix of which more is replaced than is old.
  toy::model<float> m(3);
  train::training t(m, train::sgd{}, train::evolving_pattern{.interval = 1, .steps = 1000, .fraction = 0.9},
                    turnover{.grace = 5});
  for (int update = 1; update < 5; ++update) {
    ++t.state.updates;
    train::evolve(t.policy, update, t.explored, m, t.gradients, t.state, {}, {}, t.keys, t.turnover);
  }
  CHECK(m.up.pattern().blocks() == toy::model<float>(3).up.pattern().blocks());
}

TEST_CASE("newborn blocks: random values have the deviation that is asked for") {
  toy::model<float, block_shape<1>> m(3);
  train::training t(m, train::sgd{}, evolving, turnover{.values = 0.5, .seed = 3});
  const pattern before = m.up.pattern();
  ++t.state.updates;
  train::evolve(t.policy, 1, t.explored, m, t.gradients, t.state, {}, {}, t.keys, t.turnover);
  double old = 0, fresh = 0, olds = 0, freshes = 0;
  for (int i = 0; i < m.hidden; ++i)
    for (int j = 0; j < m.inputs; ++j)
      if (m.up.find(i, j) >= 0) {
        const double square = double(m.up(i, j)) * double(m.up(i, j));
        before.find(i, j) >= 0 ? (old += square, ++olds) : (fresh += square, ++freshes);
      }
  REQUIRE(freshes > 40);
  CHECK(std::sqrt(fresh / freshes) / std::sqrt(old / olds) == doctest::Approx(0.5).epsilon(0.3));
}

TEST_CASE("newborn blocks: the least momentum, or norm for an age, is pruned") {
  toy::model<float> m(3);
  train::training t(m, train::sgd{}, evolving, turnover{.score = prune_score::momentum});
  // The largest block has the least momentum.
  const auto norms = block_norms(m.up);
  const auto largest = std::max_element(norms.begin(), norms.end()) - norms.begin();
  auto& moment = t.state.at(0, "momentum");
  for (std::int64_t k = 0; k < moment.size(); ++k) moment.data<float>()[k] = k / 16 == largest ? 0.1F : 1.0F;
  train::matrix_at_update at{any_tensor(m.up), any_tensor(t.gradients.up), 1, "up", {},
                             t.turnover,       t.state.parameters[0],      1};
  std::vector<char> pruned = at.weakest_blocks(1);
  CHECK(pruned[std::size_t(largest)] == 1);

  // Of 8 bits: all codes are greatest in their group, so that its scale alone tells.
  std::vector<train::state_array> in_8_bits;
  {
    train::state_list list{any_tensor(m.up)};
    list.scaled("momentum", 16, train::linear_eight_bits);
    in_8_bits = list.take();
    for (train::state_array& array : in_8_bits) array.reset(train::parameter_sizes::of(any_tensor(m.up)));
    std::ranges::fill(in_8_bits[0].bytes, std::byte{127});
    for (std::int64_t slot = 0; slot < in_8_bits[1].size(); ++slot)
      in_8_bits[1].data<float>()[slot] = slot == largest ? 0.1F : float(1 + slot);
    at.state = in_8_bits;
    pruned = at.weakest_blocks(1);
    CHECK(pruned[std::size_t(largest)] == 1);
    CHECK(at.block_scores(block_norm::l1)[0] == doctest::Approx(largest == 0 ? 1.6 : 16));
  }

  toy::model<float> aged(3);
  train::training by_age(aged, train::sgd{}, evolving, turnover{.score = prune_score::norm_by_age});
  auto& born = by_age.state.at(0, "born");
  // All but one have just grown: it is divided by ten.
  for (std::int64_t slot = 0; slot < born.size(); ++slot) born.data<float>()[slot] = slot == largest ? 0 : 99;
  train::matrix_at_update old{any_tensor(aged.up), any_tensor(by_age.gradients.up), 1,  "up", {},
                              by_age.turnover,     by_age.state.parameters[0],      100};
  CHECK(old.block_scores(block_norm::l1)[std::size_t(largest)] ==
        doctest::Approx(double(norms[std::size_t(largest)]) / 10));
}

/// An optimizer with a moment for each block.
struct moment_of_blocks {
  void state(train::state_list& each, any_tensor const&) const { each.blocks("momentum"); }
  template <element T> void step(context&, train::update const&, train::parameter_values<T>&) const {}
};

TEST_CASE(
    "newborn blocks: a momentum that an optimizer has not is asked for in vain, before the first step") {
  toy::model<float> m(3);
  CHECK_THROWS_WITH_AS(
      (train::training(m, moment_of_blocks{}, evolving, turnover{.score = prune_score::momentum})),
      doctest::Contains("has none for each stored value"), option_error);
  CHECK_NOTHROW((train::training(m, moment_of_blocks{}, evolving)));
}

TEST_CASE("newborn blocks: settings that make no sense are refused") {
  toy::model<float> m(3);

  CHECK(error_of<option_error>([&] { train::training(m, train::sgd{}, evolving, turnover{.grace = -1}); }) ==
        "[turnover] grace is -1: it must be a number of updates, or 0");
  CHECK(error_of<option_error>([&] { train::training(m, train::sgd{}, evolving, turnover{.values = 2}); }) ==
        "[turnover] values is 2: it must be in [0, 1]");
  CHECK(error_of<option_error>([&] { train::training(m, train::adamw{.newborn_warmup = -1}, evolving); }) ==
        "[adamw.newborn_warmup] is -1: it must be at least 0");
  auto state = train::initial_state(train::sgd{}, m);
  auto gradients = nn::zeros_like(m);
  train::explored_blocks explored = train::explore(m);
  CHECK(error_of<option_error>([&] {
          train::evolve(evolving, 1, explored, m, gradients, state, {}, {}, train::stream_keys::names,
                        turnover{.grace = 1});
        }) ==
        "[evolve] the state of the optimizer does not tell when blocks grew: initial_state with births");
}

}  // namespace newborn_blocks_test
