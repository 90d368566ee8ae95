// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <nn/wanted.hpp>
#include <support/counting.hpp>
#include <support/gradient_check.hpp>

#include <tessera/nn/gpt.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/sparsity/policies/rigl.hpp>
#include <tessera/train/training.hpp>

// Nobody asks, nothing is computed: gradients that are not wanted, in a gpt.

namespace wanted_test {

using namespace tessera;
using model = nn::gpt<float, block_shape<16>>;
constexpr std::int64_t tokens = 90, hidden = 48, vocabulary = 64;

nn::transformer_config small(std::int64_t layers, double density = 1) {
  nn::transformer_config config;
  config.layers = layers;
  config.hidden = hidden;
  config.heads = 3;
  config.context = 50;
  config.vocabulary = vocabulary;
  config.density = density;
  return config;
}

/// A forward of a gpt, and its backward on an executor that counts.
struct counted_run {
  model m;
  support::counting work;
  context ctx{work};
  sequences batch{{0, 41, tokens}};
  nn::workspace<float> room;
  std::vector<std::int32_t> ids = support::some_ids(tokens, vocabulary, 1),
                            targets = support::some_ids(tokens, vocabulary, 2);
  model::saved saved;

  explicit counted_run(std::int64_t layers) : counted_run(small(layers)) {}
  explicit counted_run(nn::transformer_config const& of) : m(of, 7) {
    static_cast<void>(m.forward(ids, targets, saved, {ctx, batch, room}));
  }
  void backward(model::gradients& g) {
    work.counted();
    work.kinds.clear();
    m.backward(ids, saved, g, {ctx, batch, room});
  }
  /// The multiply-adds of a backward.
  template <class Wants> std::int64_t cost(Wants&& wants) {
    auto g = support::wanted_gradients(m, wants);
    backward(g);
    auto all = nn::zeros_like(m);
    const std::int64_t its = work.counted();
    const auto kinds = work.kinds;
    backward(all);
    support::check_wanted(g, all);
    work.kinds = kinds;
    return its;
  }
};
constexpr auto everything = [](std::string_view) { return true; };
constexpr std::int64_t head_product = vocabulary * hidden * tokens;  // Eᵀ dlogits, or dE

TEST_CASE("wanted: if all of a gpt but its last norm is frozen, backward is one product of the head") {
  counted_run r(3);
  CHECK(r.cost([](std::string_view name) { return name.starts_with("final_norm"); }) == head_product);
  CHECK(r.work.kinds.count("attention backward") == 0);
  CHECK(r.cost([](std::string_view) { return false; }) == 0);
  CHECK(r.work.kinds.empty());
  CHECK(r.cost(everything) > 20 * head_product);
  CHECK(r.work.kinds.count("unseen") == 0);
}

TEST_CASE("wanted: of a gpt whose lower half is frozen, backward ends with the upper half") {
  counted_run r(4), shorter(3);
  const std::int64_t all = r.cost(everything), block = all - shorter.cost(everything);
  CHECK(all == 2 * head_product + 4 * block);
  const auto upper = [](std::string_view name) {
    return name.starts_with("block.2") || name.starts_with("block.3") || name.starts_with("final_norm");
  };
  CHECK(r.cost(upper) == head_product + 2 * block);
  // The input gradient of Q, K, V is for the norm before them.
  const auto without_norm = [&](std::string_view name) {
    return upper(name) && !name.starts_with("block.2.norm1");
  };
  CHECK(r.cost(without_norm) == head_product + 2 * block - 3 * hidden * hidden * tokens);
  // In segments the lower one is not computed again either: forward's products of a block, without
  // attention's.
  r.m.blocks.segments = 2;
  static_cast<void>(r.m.forward(r.ids, r.targets, r.saved, {r.ctx, r.batch, r.room}));
  const std::int64_t again = r.cost(everything) - all;
  CHECK(again > 0);
  CHECK(r.cost(upper) == head_product + 2 * block + again / 2);
}

TEST_CASE("wanted: weight gradients of a frozen layer in the middle are left out, and nothing else") {
  counted_run r(3);
  const std::int64_t all = r.cost(everything);
  const std::int64_t weights = (3 + 1 + 4 + 4) * hidden * hidden * tokens;
  CHECK(r.cost([](std::string_view name) { return !name.starts_with("block.1"); }) == all - weights);
}

void check_each_alone(counted_run&& r) {
  for (const int segments : {0, 2})
    for (const bool ignores : {false, true}) {
      r.m.blocks.segments = segments;
      if (ignores) r.targets[3] = r.targets[70] = nn::ignored;
      static_cast<void>(r.m.forward(r.ids, r.targets, r.saved, {r.ctx, r.batch, r.room}));
      support::check_each_wanted(r.m, [&](auto& g) { r.backward(g); });
    }
}
TEST_CASE("wanted: every parameter of a gpt alone, and all without it, has the bits of all") {
  check_each_alone(counted_run(2));
  nn::transformer_config shared = small(2);
  shared.repeats = 2, shared.embedding = 20;
  check_each_alone(counted_run(shared));
  CHECK(counted_run(shared).cost([](std::string_view) { return false; }) == 0);
}

/// A training of a gpt by RigL whose embeddings and first block are frozen.
struct run_of {
  model m;
  train::training<model, train::adamw, train::rigl> t;
  model::saved saved;
  nn::workspace<float> room;
  double norm = 0;

  explicit run_of(std::uint64_t seed)
      : m(small(2, 0.4), seed),
        t(m, train::adamw{}, train::rigl{.interval = 3, .steps = 20, .fraction = 0.3}) {
    t.group_parameters({{.names = "*_embedding", .rate = 0}, {.names = "block.0.*", .rate = 0}});
  }
  void until(context& ctx, std::int64_t end) {
    const sequences batch = sequences::of_equal_length(3, 30);
    while (t.progress.step < end) {
      const auto ids = support::some_ids(90, vocabulary, std::uint64_t(t.progress.step));
      norm = train::train_step(ctx, t, {.rate = 0.01, .clip = 0.5}, [&](int) {
               const auto p = t.pass(ctx, batch, room);
               const double sum = m.forward(ids, ids, saved, p);
               m.backward(ids, saved, t.gradients, p);
               return train::token_loss{sum, 90, p};
             }).gradient_norm;
    }
  }
};
bool same_model(model const& a, model const& b) {
  const nn::parameter_list first(a), second(b);
  bool same = true;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i].tensor.is_matrix()) same = same && first[i].tensor.pattern() == second[i].tensor.pattern();
    same = same && support::same_bytes(first[i].tensor, second[i].tensor);
  }
  return same;
}

TEST_CASE(
    "wanted: a training drops the gradients of frozen groups, and has the bits of one that computes all") {
  context one(1), three(3, oversubscribe::allowed);
  run_of lean(3), whole(3);
  CHECK(lean.t.gradients.blocks.layers[0].mlp.up.weight.size_bytes() == 0);
  CHECK(lean.t.gradients.token_embedding.table.size_bytes() == 0);
  CHECK(lean.t.gradients.blocks.layers[1].mlp.up.weight.size_bytes() > 0);
  whole.t.gradients = nn::zeros_like(whole.m);
  const auto first = lean.m.blocks.layers[0].mlp.up.weight;
  const pattern of_first = first.pattern(), of_second = lean.m.blocks.layers[1].mlp.up.weight.pattern();
  lean.until(three, 8);
  whole.until(one, 8);
  CHECK(lean.norm == whole.norm);
  CHECK(same_model(lean.m, whole.m));
  CHECK(lean.m.blocks.layers[0].mlp.up.weight.pattern() == of_first);
  CHECK_FALSE(lean.m.blocks.layers[1].mlp.up.weight.pattern() == of_second);
  CHECK(std::equal(first.begin(), first.end(), lean.m.blocks.layers[0].mlp.up.weight.begin()));

  const scratch_folder folder;
  train::save(lean.t, folder / "run", {});
  run_of resumed(8);
  train::resume(resumed.t, train::checkpoint(folder / "run"));
  lean.until(one, 13);
  resumed.until(one, 13);
  CHECK(same_model(lean.m, resumed.m));

  // Groups of another kind bring gradients back.
  lean.t.group_parameters({{.names = "final_norm.*", .rate = 0}});
  CHECK(lean.t.gradients.blocks.layers[0].mlp.up.weight.pattern() == of_first);
  CHECK(lean.t.gradients.final_norm.weight.size() == 0);
  lean.until(one, 14);
  CHECK_FALSE(std::equal(first.begin(), first.end(), lean.m.blocks.layers[0].mlp.up.weight.begin()));
}

}  // namespace wanted_test
