// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/evolve.hpp>
#include <tessera/train/sparsity/policies/deep_rewiring.hpp>
#include <tessera/train/sparsity/policies/evolving_pattern.hpp>
#include <tessera/train/sparsity/policies/gradual_pruning.hpp>
#include <tessera/train/sparsity/policies/rigl.hpp>
#include <tessera/train/sparsity/policies/sparse_evolutionary_training.hpp>
#include <tessera/train/sparsity/policies/sparse_momentum.hpp>
#include <tessera/train/training.hpp>

namespace evolve_test {

using namespace tessera;

/// Replaces a fixed number of blocks of each matrix after every step: the first ones by the first absent
/// ones.
struct fixed_count {
  std::int64_t blocks = 0;
  std::int64_t marked_too_many = 0;
  std::int64_t first_grown = 0;

  bool due(std::int64_t) const { return true; }
  std::int64_t count(pattern const&, std::int64_t) const { return blocks; }
  std::vector<char> prune(train::matrix_at_update const& at, std::int64_t count) const {
    std::vector<char> marks(std::size_t(at.stored().blocks()));
    for (std::int64_t slot = 0; slot < count + marked_too_many; ++slot) marks[std::size_t(slot)] = 1;
    return marks;
  }
  std::vector<std::int64_t> grow(train::matrix_at_update const&, std::int64_t count) const {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < count; ++i) numbers.push_back(first_grown + i);
    return numbers;
  }
};
static_assert(train::sparsity_policy<fixed_count>);
static_assert(!train::sparsity_policy<train::sgd>);

using model = toy::model<float>;
using training = train::training<model, train::sgd, fixed_count>;

/// The error of train_step about an update, or "" if it makes one. Counts the batches that were asked for.
std::string refusal(training& t, int* batches = nullptr) {
  context ctx(1);
  return error_of<option_error>([&] {
    train::train_step(ctx, t, {.rate = 0.01}, [&](int) {
      if (batches) ++*batches;
      return toy::accumulate(ctx, t.model, t.gradients, 1, 70);
    });
  });
}

TEST_CASE("evolve: a count beyond what is stored or absent is refused before anything is computed") {
  for (const double density : {0.2, 0.8}) {  // of 6 x 5 blocks
    model m(1, density);
    const model before = m;
    const std::int64_t stored = m.up.pattern().blocks(), most = std::min(stored, 30 - stored);
    for (const std::int64_t count : {most + 1, std::int64_t{-1}}) {
      training t(m, {}, {.blocks = count});
      int batches = 0;
      CHECK(refusal(t, &batches) == message("[evolve] after step 1 the policy replaces ", count,
                                            " blocks of up, but ", stored, " are stored and ", 30 - stored,
                                            " absent; 0 … ", most, " can be replaced",
                                            count > 0 ? "; a smaller fraction replaces fewer" : ""));
      CHECK(batches == 0);
      CHECK(t.progress.step == 0);
      CHECK(toy::same_bits(m, before));
    }
    training t(m, {}, {.blocks = most});
    CHECK(refusal(t) == "");
    CHECK((before.up.pattern() - m.up.pattern()).blocks() == most);
  }
}

/// A policy of the library, as its count and the number of blocks that grow.
struct asked {
  const char* name;
  std::int64_t count, grown;
};
std::vector<asked> asked_by_all(pattern const& stored, std::int64_t done, std::int64_t steps, double fraction,
                                double density, train::fraction_decay falls) {
  std::vector<asked> all;
  const auto add = [&](const char* name, auto const& policy) {
    policy.check();
    all.push_back({name, policy.count(stored, done), train::growth(policy, stored, done)});
  };
  add("magnitude",
      train::evolving_pattern{.interval = 1, .steps = steps, .fraction = fraction, .falls = falls});
  add("set", train::sparse_evolutionary_training{
                 .interval = 1, .steps = steps, .fraction = fraction, .falls = falls});
  add("rigl", train::rigl{.interval = 1, .steps = steps, .fraction = fraction, .falls = falls});
  add("snfs", train::sparse_momentum{.interval = 1, .steps = steps, .fraction = fraction, .falls = falls});
  add("deep-r", train::deep_rewiring{.interval = 1, .steps = steps, .fraction = fraction});
  add("gradual", train::gradual_pruning{.interval = 1, .end = steps, .density = density});
  return all;
}

TEST_CASE("evolve: no policy replaces more blocks than are stored or absent, whatever the pattern") {
  int nearly_dense = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const random_stream random(seed, random_purpose::test);
    const auto pick = [&](std::uint64_t n, std::uint64_t below) {
      return std::int64_t(random.below(n, below));
    };
    const std::int64_t rows = 1 + pick(0, 9), cols = 1 + pick(1, 9), all = rows * cols;
    // From one stored block to one absent block, and densities of 1/16, 1/8 … 15/16.
    const std::int64_t blocks = std::clamp<std::int64_t>(seed % 4 == 0   ? 1
                                                         : seed % 4 == 1 ? all - 1
                                                         : seed % 4 == 2 ? all * (1 + pick(2, 15)) / 16
                                                                         : 1 + pick(2, std::uint64_t(all)),
                                                         1, std::max<std::int64_t>(1, all - 1));
    std::vector<char> mask(std::size_t(all), 0);
    for (const std::int64_t n : train::random_choice(all, blocks, random)) mask[std::size_t(n)] = 1;
    const pattern stored = pattern_from_mask(int(rows), int(cols), mask);
    const std::int64_t steps = 1 + pick(3, 50), done = 1 + pick(4, std::uint64_t(steps));
    const double fraction = seed % 3 == 0 ? 1 : random.uniform(5), density = 1 - random.uniform(6);
    for (asked const& by :
         asked_by_all(stored, done, steps, fraction, density, train::fraction_decay(pick(7, 3)))) {
      INFO(by.name, ", ", blocks, " of ", all, " blocks, fraction ", fraction, ", step ", done, " of ",
           steps);
      REQUIRE(by.count >= 0);
      REQUIRE(by.count <= stored.blocks());
      REQUIRE(by.grown >= 0);
      REQUIRE(by.grown <= all - stored.blocks());
    }
    nearly_dense += 2 * blocks > all;
  }
  CHECK(nearly_dense > 1000);
}

TEST_CASE("evolve: RigL, SET and Deep R replace all absent blocks if they are fewer than the fraction says") {
  model m(1, 0.8);  // 24 of 30 blocks
  for (asked const& by : asked_by_all(m.up.pattern(), 1, 100, 0.5, 0.1, train::fraction_decay::constant))
    if (by.name != std::string("gradual")) CHECK_MESSAGE(by.count == 6, by.name);
  train::training<model, train::sgd, train::deep_rewiring> t(m, {},
                                                             {.interval = 1, .steps = 9, .fraction = 0.5});
  const pattern before = m.up.pattern();
  context ctx(1);
  const auto accumulate = [&](int) { return toy::accumulate(ctx, m, t.gradients, 1, 70); };
  CHECK(train::train_step(ctx, t, {.rate = 0.01}, accumulate).changed.replaced == 6);
  CHECK((m.up.pattern() - before).blocks() == 6);
}

TEST_CASE("evolve: a model without a sparse matrix is refused when its training is made") {
  model dense(1, 1), sparse;
  const auto refused = [](auto&& make) { return error_of<option_error>(make); };
  const std::string after = "[evolve] after step ";
  const std::string why =
      " the policy replaces blocks, but no matrix of the model is sparse and may change; "
      "make one with a pattern that leaves out blocks, leave a sparse weight in a group that is not frozen, "
      "or keep the patterns as they are";
  CHECK(refused([&] { training t(dense, {}, {.blocks = 0}); }) == after + "1" + why);
  using evolving = train::training<model, train::sgd>;
  CHECK(refused([&] { evolving t(dense, {}, {.interval = 30, .steps = 90}); }) == after + "30" + why);
  CHECK(refused([&] { evolving t(dense, {}, {.interval = 90, .steps = 90}); }) == "");  // none is due
  CHECK(refused([&] { evolving t(dense, {}); }) == "");
  evolving t(sparse, {}, {.interval = 30, .steps = 90});
  CHECK(refused([&] { t.group_parameters({{.names = "up", .evolves = false}}); }) == after + "30" + why);
  CHECK(t.groups.evolves(0));
  t.policy = {};
  CHECK(refused([&] { t.group_parameters({{.names = "up", .evolves = false}}); }) == "");
}

TEST_CASE("evolve: choices of a policy that are not as many as its count are refused") {
  model m;
  const std::int64_t stored = m.up.pattern().blocks();
  training marks(m, {}, {.blocks = 3, .marked_too_many = 1});
  CHECK(refusal(marks) == message("[evolve] the policy prunes 4 blocks of up, by ", stored,
                                  " marks; it must be 3, by a mark for each of ", stored, " slots"));
  training outside(m, {}, {.blocks = 3, .first_grown = 30 - stored - 2});
  CHECK(refusal(outside) == message("[evolve] the policy grows 3 blocks of up; it must be 3 different ",
                                    "numbers of 0 … ", 30 - stored - 1, ", ascending"));
}

/// Two sparse matrices, one of which is to stay as it is.
struct half_fixed {
  block_sparse_matrix<float, block_shape<4>> moves, stays;
  using gradients = half_fixed;
  half_fixed() : moves(support::random_matrix<float, block_shape<4>>(24, 20, 0.4, 1)), stays(moves) {}

  static void parts(auto& each, auto&... of) {
    each.dense("stays", of.stays...);
    each("moves", of.moves...);
  }
};

TEST_CASE("evolve: only matrices of the role weight change their pattern") {
  half_fixed m;
  const half_fixed before = m;
  auto gradients = nn::zeros_like(m);
  auto state = train::initial_state(train::sgd{}, m);
  train::explored_blocks explored = train::explore(m);
  CHECK(explored.fraction() == doctest::Approx(m.moves.pattern().density()));
  const train::pattern_change change =
      train::evolve(fixed_count{.blocks = 2}, 1, explored, m, gradients, state);
  CHECK(change.replaced == 2);
  CHECK(change.stored == m.moves.pattern().blocks());
  CHECK(m.stays.pattern().serial() == before.stays.pattern().serial());
  CHECK((m.moves.pattern() - before.moves.pattern()).blocks() == 2);
  CHECK(gradients.moves.pattern().serial() == m.moves.pattern().serial());
  CHECK(state.at(1, "momentum").size() == m.moves.size());
}

}  // namespace evolve_test
