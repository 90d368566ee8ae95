// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/evolve.hpp>
#include <tessera/train/training.hpp>

namespace evolve_test {

using namespace tessera;

/// Replaces so many blocks of each matrix after every step: the first ones by the first absent ones.
struct fixed_count {
  std::int64_t blocks = 0;
  std::int64_t marked_too_many = 0;
  std::int64_t first_grown = 0;

  bool due(std::int64_t) const { return true; }
  std::int64_t count(pattern const&, std::int64_t) const { return blocks; }
  template <class At> std::vector<char> prune(At const& at, std::int64_t count) const {
    std::vector<char> marks(std::size_t(at.stored().blocks()));
    for (std::int64_t slot = 0; slot < count + marked_too_many; ++slot) marks[std::size_t(slot)] = 1;
    return marks;
  }
  template <class At> std::vector<std::int64_t> grow(At const&, std::int64_t count) const {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; i < count; ++i) numbers.push_back(first_grown + i);
    return numbers;
  }
};
static_assert(train::sparsity_policy<fixed_count>);
static_assert(!train::sparsity_policy<train::sgd>);

using model = toy::model<float>;
using training = train::training<model, train::sgd, fixed_count>;

/// What train_step says about an update, or "" if it makes one. Counts the batches that were asked for.
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

TEST_CASE("evolve: a model without a sparse matrix is refused before anything is computed") {
  model m(1, 1);
  training t(m, {}, {.blocks = 0});
  int batches = 0;
  CHECK(refusal(t, &batches)
            .find("[evolve] after step 1 the policy replaces blocks, but no matrix of the "
                  "model is sparse") == 0);
  CHECK(batches == 0);
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
  auto state = train::initial_state<train::sgd>(m);
  train::explored_blocks explored = train::explore(m);
  CHECK(explored.fraction() == doctest::Approx(m.moves.pattern().density()));
  const train::pattern_change change =
      train::evolve(fixed_count{.blocks = 2}, 1, explored, m, gradients, state);
  CHECK(change.replaced == 2);
  CHECK(change.stored == m.moves.pattern().blocks());
  CHECK(m.stays.pattern().serial() == before.stays.pattern().serial());
  CHECK((m.moves.pattern() - before.moves.pattern()).blocks() == 2);
  CHECK(gradients.moves.pattern().serial() == m.moves.pattern().serial());
  CHECK(state.tensors[0].moves.pattern().serial() == m.moves.pattern().serial());
}

}  // namespace evolve_test
