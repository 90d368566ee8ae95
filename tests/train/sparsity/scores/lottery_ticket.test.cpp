// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/reference.hpp>
#include <train/sparsity/small_mlp.hpp>

#include <tessera/nn/initialisation.hpp>
#include <tessera/train/classification.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/schedules.hpp>
#include <tessera/train/sparsity/scores/lottery_ticket.hpp>
#include <tessera/train/sparsity/watching/model_patterns.hpp>

namespace lottery_ticket_test { namespace {

using namespace tessera;
using block = block_shape<4>;
using model = small_mlp::model<float, block>;

/// The sums of magnitudes of the stored blocks, ascending.
template <class Matrix> std::vector<double> sorted_sums(Matrix const& w) {
  std::vector<double> sums;
  for (std::int64_t slot = 0; slot < w.pattern().blocks(); ++slot)
    sums.push_back(double(l1_norm(w.at_slot(slot))));
  std::ranges::sort(sums);
  return sums;
}

TEST_CASE("prune_share: the weakest fifth of each matrix goes, round by round") {
  model m = small_mlp::make<float, block>(1, 0.7);
  std::int64_t up = m.up.weight.pattern().blocks(), down = m.down.weight.pattern().blocks();
  for (int round = 0; round < 3; ++round) {
    const auto before = sorted_sums(m.up.weight);
    const pattern earlier = m.up.weight.pattern();
    train::prune_share(m, 0.2);
    CHECK(m.up.weight.pattern().blocks() == up - std::llround(0.2 * double(up)));
    CHECK(m.down.weight.pattern().blocks() == down - std::llround(0.2 * double(down)));
    up = m.up.weight.pattern().blocks(), down = m.down.weight.pattern().blocks();
    CHECK(sorted_sums(m.up.weight) == std::vector<double>(before.end() - up, before.end()));
    CHECK((m.up.weight.pattern() - earlier).blocks() == 0);
  }
}

TEST_CASE("prune_share: of the whole model the weakest go, and no matrix loses its last block") {
  model m = small_mlp::make<float, block>(1, 0.7);
  for (float& v : m.up.weight) v *= 100;
  const std::int64_t up = m.up.weight.pattern().blocks(), down = m.down.weight.pattern().blocks();
  const auto weak = std::llround(0.5 * double(up + down));
  REQUIRE(weak > down);
  train::prune_share(m, 0.2, train::pruning_scope::whole_model);
  CHECK(m.up.weight.pattern().blocks() == up);
  CHECK(m.down.weight.pattern().blocks() == down - std::llround(0.2 * double(up + down)));
  m = small_mlp::make<float, block>(1, 0.7);
  for (float& v : m.up.weight) v *= 100;
  train::prune_share(m, 0.5, train::pruning_scope::whole_model);
  CHECK(m.down.weight.pattern().blocks() == 1);
  CHECK(m.up.weight.pattern().blocks() == up - (weak - (down - 1)));
}

TEST_CASE(
    "rewind_to: kept blocks and biases have the bits of the early step, and an impossible one is refused") {
  model m = small_mlp::make<float, block>(3, 1);
  m.up.bias[5] = 0.25f;
  const model early = m;
  for (float& v : m.up.weight) v = -2 * v + 1;
  for (float& v : m.down.weight) v *= v;
  m.up.bias[5] = 7;
  model ticket = m;
  train::prune_share(m, 0.4);
  train::next_ticket(ticket, early, 0.4);
  CHECK(ticket.up.weight.pattern() == m.up.weight.pattern());
  CHECK(ticket.down.weight.pattern() == m.down.weight.pattern());
  ticket.up.weight.pattern().for_each([&](int i, int j, std::int64_t slot) {
    const auto then = early.up.weight.at_slot(early.up.weight.pattern().find(i, j));
    CHECK(std::ranges::equal(ticket.up.weight.at_slot(slot), then));
  });
  CHECK(ticket.up.bias[5] == 0.25f);

  model full = early;
  CHECK(error_of<shape_error>([&] {
          train::rewind_to(m, full);
        }).starts_with("[rewind_to] up.weight was without 86 of its blocks"));
  CHECK(error_of<shape_error>([&] { train::next_ticket(full, m); }) != "");
  CHECK(full.up.weight.pattern() == early.up.weight.pattern());
  CHECK(std::ranges::equal(full.up.weight, early.up.weight));
  for (const double share : {-0.1, 1.0, std::nan("")})
    CHECK(error_of<option_error>([&] {
            train::prune_share(full, share);
          }).starts_with("[prune_share] the share of the blocks to prune is "));
  full.up.weight(0, 0) = std::nanf("");
  CHECK_THROWS_AS(train::prune_share(full, 0.2), error);
}

/// The class of an example is the largest of its first features.
struct examples {
  std::vector<float> inputs;
  std::vector<std::int32_t> labels;
  examples(int count, std::uint64_t seed) {
    const random_stream random(seed, random_purpose::test);
    constexpr int features = 32, classes = 4;
    for (int i = 0; i < count; ++i) {
      for (int f = 0; f < features; ++f)
        inputs.push_back(float(random.normal(std::uint64_t(i * features + f))));
      const auto row = inputs.end() - features;
      labels.push_back(std::int32_t(std::max_element(row, row + classes) - row));
    }
  }
  operator train::labelled_set() const { return {inputs, labels}; }
};

TEST_CASE("next_ticket: after rounds of training, a fifth of the blocks learns from the early values") {
  const examples learned(1000, 1), held_out(300, 2);
  context ctx(1);
  model net;
  net.up = {64, 32};
  net.down = {4, 64};
  nn::initialise(net.up.weight, nn::distribution::he, 1, "up.weight");
  nn::initialise(net.down.weight, nn::distribution::xavier, 1, "down.weight");
  const model early = net;
  const auto accuracy = [&] {
    train::training t(net, train::adamw{});
    train::classification task(ctx, t, learned, held_out, {.batch = 50});
    train::run_training(ctx, t, {.steps = 200}, train::constant{0.01}, task);
    return task.accuracy();
  };
  double last = accuracy();
  CHECK(last > 0.8);
  for (int round = 0; round < 7; ++round) {
    train::next_ticket(net, early);
    last = accuracy();
  }
  CHECK(net.up.weight.pattern().blocks() == 27);   // 128 102 82 66 53 42 34 27
  CHECK(net.down.weight.pattern().blocks() == 3);  // 16 13 10 8 6 5 4 3
  CHECK(last > 0.9);
}

}}  // namespace lottery_ticket_test
