// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <harness/operands.hpp>

#include <tessera/nn/parameter.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/sparsity/evolve.hpp>
#include <tessera/train/sparsity/policies/evolving_pattern.hpp>

// A whole update of a pattern as a training makes it: 30 % of the blocks are pruned by norm, as many grow at
// random, and weights, gradient, both moments and both indexes follow.

namespace bench { namespace {

template <class Block> struct weights {
  block_sparse_matrix<float, Block> w;
  using gradients = weights;

  static void parts(auto& each, auto&... of) { each("w", of.w...); }
};

template <class Block> struct evolving_weights {
  train::evolving_pattern policy{.interval = 1, .steps = 1'000'000'000, .fraction = 0.3, .seed = 5};
  weights<Block> first, model, gradient;
  train::optimizer_state state;
  train::explored_blocks explored;
  std::vector<char> stays;  // by slot of `first`
  std::int64_t done = 0;

  explicit evolving_weights(workload const& what)
      : first{weights_of<Block>(what)},
        model(first),
        gradient(first),
        state(train::initial_state(train::adamw{}, first)),
        explored(train::explore(model)),
        stays(remaining()) {
    for (char const* moment : {"first_moment", "second_moment"}) train::set_elements(state, moment, first);
  }

  void update() { train::evolve(policy, done++, explored, model, gradient, state); }

  /// What the first update leaves, by sorting.
  std::vector<char> remaining() const {
    const pattern& stored = first.w.pattern();
    std::vector<std::pair<double, std::int64_t>> norms;
    for (std::int64_t slot = 0; slot < stored.blocks(); ++slot) {
      const auto block = first.w.at_slot(slot);
      norms.emplace_back(std::accumulate(block.begin(), block.end(), 0.0,
                                         [](double sum, float v) { return sum + std::abs(double(v)); }),
                         slot);
    }
    std::ranges::sort(norms);
    std::vector<char> all(norms.size(), 1);
    for (std::int64_t i = 0; i < policy.count(stored, 0); ++i)
      all[std::size_t(norms[std::size_t(i)].second)] = 0;
    return all;
  }

  /// An element of all four arrays together after the first update; grown blocks are zero.
  checked_value element(std::int64_t i, std::int64_t j) const {
    const std::int64_t slot = first.w.pattern().find(int(i / Block::rows), int(j / Block::cols));
    double sum = 0;
    for (auto const* of : {&model, &gradient}) sum += double(of->w(i, j));
    if (const std::int64_t at = model.w.find(i, j); at >= 0)
      for (char const* moment : {"first_moment", "second_moment"})
        sum += double(state.at(0, moment).data<float>()[at]);
    return {sum, slot >= 0 && stays[std::size_t(slot)] ? 4 * double(first.w(i, j)) : 0, 0};
  }
};

template <class Block> job update_job(workload const& what) {
  auto p = std::make_shared<evolving_weights<Block>>(what);
  return {0, [p] { p->update(); }, what.m * what.k + 1,
          [p, what](std::int64_t r) {
            if (r < what.m * what.k) return p->element(r / what.k, r % what.k);
            return checked_value{double(p->model.w.pattern().blocks()), double(p->first.w.pattern().blocks()),
                                 0};
          }};
}

const registered here({"tessera", "pattern", [](workload const& what) {
                         return with_block(
                             what.block, [&]<class Block> { return std::optional(update_job<Block>(what)); });
                       }});

}}  // namespace bench
