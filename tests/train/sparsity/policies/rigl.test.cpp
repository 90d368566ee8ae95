// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/types.hpp>
#include <train/sparsity/small_mlp.hpp>

#include <tessera/core/memory.hpp>
#include <tessera/io/json.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/policies/rigl.hpp>
#include <tessera/train/training.hpp>

namespace rigl_test {

using namespace tessera;
using train::rigl;

template <class Model> using training_of = train::training<Model, train::sgd, rigl>;

/// One step whose micro-batches have the keys given.
template <class T, class Block, class Optimizer>
train::step_report step(context& ctx, train::training<small_mlp::model<T, Block>, Optimizer, rigl>& t,
                        double rate, std::vector<std::uint64_t> const& keys) {
  return train::train_step(ctx, t, {.rate = rate, .micro_batches = int(keys.size())}, [&](int i) {
    return small_mlp::accumulate(ctx, t.model, t.gradients, t.weight_gradients(), keys[std::size_t(i)], 90,
                                 t.scaling.scale);
  });
}

TEST_CASE("rigl: updates come every so many steps until three quarters of the run") {
  const rigl policy{.interval = 10, .steps = 80};
  std::vector<int> due;
  for (int done = 0; done <= 80; ++done)
    if (policy.due(done)) due.push_back(done);
  CHECK(due == std::vector<int>{10, 20, 30, 40, 50});  // not 60
  CHECK(rigl{.interval = 10, .steps = 80, .until = 1}.due(70));
  CHECK(!rigl{.interval = 0, .steps = 80}.due(10));
}

TEST_CASE("rigl: in time, half of the blocks are replaced at first, and updates go on until the end") {
  const train::rigl itop = train::rigl::in_time(3, 12);
  CHECK(itop.due(9));
  CHECK(!train::rigl{.interval = 3, .steps = 12}.due(9));
  CHECK(!itop.due(12));
  CHECK(itop.count(random_pattern(10, 10, 0.2, 1), 0) == 10);
}

TEST_CASE("rigl: the count falls along a cosine to the end of the updates") {
  const pattern stored = random_pattern(64, 64, 0.1, random_stream(1, random_purpose::test));
  REQUIRE(stored.blocks() == 410);
  const rigl policy{.interval = 1, .steps = 400};
  const auto near = [](std::int64_t count, double share) { return std::abs(double(count) - share) < 1; };
  CHECK(near(policy.count(stored, 0), 123));
  CHECK(near(policy.count(stored, 100), 123 * (1 + std::cos(std::numbers::pi / 3)) / 2));
  CHECK(near(policy.count(stored, 150), 61.5));
  CHECK(near(policy.count(stored, 200), 30.75));
  CHECK(near(policy.count(stored, 299), 0));
  CHECK(near(rigl{.interval = 1, .steps = 400, .fraction = 0.5, .until = 1}.count(stored, 200), 102.5));
}

TEST_CASE_TEMPLATE_DEFINE("rigl: the blocks of an update are those of the whole gradient, sorted", Types,
                          oracle) {
  using T = typename Types::element;
  using block = typename Types::block;
  context ctx(1);
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const random_stream random(seed, random_purpose::test);
    auto m = small_mlp::make<T, block>(seed, 0.1 + 0.4 * random.uniform(0));
    training_of<small_mlp::model<T, block>> t(
        m, {}, {.interval = 1, .steps = 9, .fraction = 0.6 * random.uniform(1)});
    const auto before = m;
    const auto gradients = small_mlp::dense_gradients(ctx, m, seed);
    const train::step_report report = step<T, block>(ctx, t, 0, {seed});  // the weights stay

    std::int64_t replaced = 0, weight = 0;
    for (auto const* now : {&m.up.weight, &m.down.weight}) {
      auto const& old = weight == 0 ? before.up.weight : before.down.weight;
      const std::int64_t count = t.policy.count(old.pattern(), 1);
      replaced += count;
      const auto prune =
          small_mlp::scores<block>(support::to_reference(old), old.pattern(), small_mlp::sum_of_magnitudes);
      const auto growth = small_mlp::scores<block>(gradients[std::size_t(weight)], old.pattern(),
                                                   small_mlp::sum_of_magnitudes);
      REQUIRE(now->pattern() == small_mlp::expected_pattern(old.pattern(), count, prune, growth));
      REQUIRE(now->pattern().blocks() == old.pattern().blocks());
      REQUIRE((now->pattern() - old.pattern()).blocks() == count);
      now->pattern().for_each([&](int i, int j, std::int64_t slot) {
        const std::int64_t was = old.pattern().find(i, j);
        for (int e = 0; e < block::elements; ++e) {
          const T value = now->at_slot(slot)[std::size_t(e)];
          REQUIRE(value == (was < 0 ? T(0) : old.at_slot(was)[std::size_t(e)]));
        }
      });
      ++weight;
    }
    REQUIRE(report.changed.replaced == replaced);
    REQUIRE(!t.weight_gradients());
  }
}
TEST_CASE_TEMPLATE_INVOKE(oracle, support::types<float, block_shape<1>>,
                          support::types<double, block_shape<3, 5>>,
                          support::types<bfloat16, block_shape<4>>);

TEST_CASE("rigl: of several micro-batches the last one alone says what grows") {
  using block = block_shape<4>;
  context ctx(1);
  const auto patterns_after = [&](std::vector<std::uint64_t> const& keys) {
    auto m = small_mlp::make<float, block>(1, 0.2);
    training_of<small_mlp::model<float, block>> t(m, {}, {.interval = 1, .steps = 9, .fraction = 0.5});
    step<float, block>(ctx, t, 0, keys);
    return std::pair(m.up.weight.pattern(), m.down.weight.pattern());
  };
  CHECK(patterns_after({3, 4}) == patterns_after({4}));
  CHECK(patterns_after({3, 4}) != patterns_after({3}));
}

TEST_CASE("rigl: the bits are the same for 1, 2 and 8 threads, and after a resumption") {
  using block = block_shape<4>;
  using training = train::training<small_mlp::model<float, block>, train::adamw, rigl>;
  const scratch_folder scratch;
  const rigl policy{.interval = 3, .steps = 20, .fraction = 0.4};
  const auto same = [](training const& a, training const& b) {
    bool all = a.explored == b.explored;
    const auto compare = [&](nn::parameter_name const&, auto const& x, auto const& y) {
      if constexpr (requires { x.pattern(); }) all = all && x.pattern() == y.pattern();
      all = all && std::equal(x.begin(), x.end(), y.begin(), y.end());
    };
    nn::for_each_parameter(a.model, compare, b.model);
    return all && a.state == b.state;
  };
  const auto go_on = [](training& t, int threads, auto&& before_step) {
    context ctx(threads, oversubscribe::allowed);
    std::int64_t replaced = 0;
    while (t.progress.step < 20) {
      before_step();
      const auto key = std::uint64_t(2 * t.progress.step);
      replaced += step<float, block>(ctx, t, 0.01, {key, key + 1}).changed.replaced;
    }
    return replaced;
  };

  auto m = small_mlp::make<float, block>(1, 0.2);
  training whole(m, {}, policy);
  const std::int64_t replaced = go_on(whole, 1, [&] {
    for (const int i : {5, 6})  // before an update and right after it
      if (whole.progress.step == i) train::save(whole, scratch / std::to_string(i), io::json());
  });
  CHECK(replaced > 0);
  for (const int threads : {2, 8}) {
    auto other = small_mlp::make<float, block>(1, 0.2);
    training t(other, {}, policy);
    go_on(t, threads, [] {});
    CHECK(same(t, whole));
  }
  for (const int i : {5, 6}) {
    auto other = small_mlp::make<float, block>(7, 0.2);
    training t(other, {}, policy);
    train::resume(t, train::checkpoint(scratch / std::to_string(i)));
    go_on(t, 2, [] {});
    CHECK(same(t, whole));
  }
}

TEST_CASE("rigl: a backward without the observer is an error that leaves the model as it was") {
  using block = block_shape<4>;
  context ctx(1);
  auto m = small_mlp::make<float, block>(1, 0.2);
  training_of<small_mlp::model<float, block>> t(m, {}, {.interval = 2, .steps = 9});
  const auto blind = [&](int) { return small_mlp::accumulate(ctx, m, t.gradients, {}, 1); };
  train::train_step(ctx, t, {.rate = 0.01}, blind);  // no update follows
  const auto before = m;
  CHECK(error_of<error>([&] { train::train_step(ctx, t, {.rate = 0.01}, blind); }) ==
        "[evolve] the policy grows blocks by their gradients, but that of up.weight was not seen; give the "
        "pass of a step's last backward its observer, pass.weight_gradients = training.weight_gradients()");
  CHECK(t.progress.step == 1);
  CHECK(std::equal(m.up.weight.begin(), m.up.weight.end(), before.up.weight.begin()));

  // In a loop of one's own there is no step to go back to.
  auto state = train::initial_state(train::sgd{}, m);
  CHECK_THROWS_AS(train::evolve(t.policy, 2, t.explored, m, t.gradients, state), error);
}

TEST_CASE("rigl: nothing grows in a step whose gradients are not finite") {
  using block = block_shape<4>;
  context ctx(1);
  auto m = small_mlp::make<float16, block>(1, 0.2);
  training_of<small_mlp::model<float16, block>> t(m, {}, {.interval = 1, .steps = 9, .fraction = 0.5});
  t.scaling = train::loss_scaling::adaptive();
  const auto before = m;
  const train::step_report report = train::train_step(ctx, t, {.rate = 0}, [&](int) {
    const auto loss =
        small_mlp::accumulate(ctx, m, t.gradients, t.weight_gradients(), 1, 90, t.scaling.scale);
    t.gradients.up.bias[0] = std::numeric_limits<float>::infinity();
    return loss;
  });
  CHECK(report.skipped);
  CHECK(report.changed.replaced == 0);
  CHECK(m.up.weight.pattern().serial() == before.up.weight.pattern().serial());
  CHECK(step<float16, block>(ctx, t, 0, {1}).changed.replaced > 0);
}

TEST_CASE("rigl: a step that makes an update never holds a dense gradient") {
  using model = small_mlp::model<float, block_shape<1>>;
  context ctx(1);
  const std::int64_t size = 1024, tokens = 64;
  model m;
  m.up = {size, size, random_pattern(int(size), int(size), 0.02, 1)};
  m.down = {size, size, random_pattern(int(size), int(size), 0.02, 2)};
  training_of<model> t(m, {}, {.interval = 2, .steps = 100});
  const sequences batch = sequences::of_equal_length(1, tokens);
  nn::workspace<float> room;
  panel_matrix<float> x(size, tokens), y(size, tokens);
  support::fill(x, 1);
  support::fill(m.up.weight, 2);
  support::fill(m.down.weight, 3);
  model::saved saved;
  const auto peak_of_step = [&] {
    tensor_memory::reset_peak();
    const std::size_t before = tensor_memory::live();
    const auto report = train::train_step(ctx, t, {.rate = 0}, [&](int) {
      nn::pass<float> pass{ctx, batch, room};
      pass.weight_gradients = t.weight_gradients();
      m.forward(x, y, saved, pass);
      m.backward(x, saved, y, nullptr, t.gradients, pass);
      return train::token_loss{1, tokens};
    });
    return std::pair(report.changed.replaced, tensor_memory::peak() - before);
  };
  for (int i = 0; i < 4; ++i) peak_of_step();  // buffers get their sizes
  CHECK(peak_of_step() == std::pair(std::int64_t{0}, std::size_t{0}));
  const auto [replaced, bytes] = peak_of_step();
  CHECK(replaced > 2 * 6000);
  CHECK(bytes == 128 * std::size_t(size) * sizeof(float));  // an eighth
}

}  // namespace rigl_test
