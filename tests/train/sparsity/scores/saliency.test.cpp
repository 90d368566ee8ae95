// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/reference.hpp>
#include <train/sparsity/small_mlp.hpp>

#include <tessera/nn/combinators.hpp>
#include <tessera/train/sparsity/scores/saliency.hpp>

namespace saliency_test { namespace {

using namespace tessera;
using support::multiply, support::reference, support::transposed;

template <class T, class Block> auto gradient_of(context& ctx, small_mlp::model<T, Block> const& m) {
  return [&](auto& gradients) { small_mlp::accumulate(ctx, m, gradients, {}, 1); };
}

/// The sum of the elements of each block of two weights, whose matrices are dense: of `up`, then of `down`.
template <class T, class Block>
std::vector<double> block_sums(small_mlp::model<T, Block> const& m, reference const& up,
                               reference const& down) {
  const auto sum = [](std::span<double const> block) {
    double all = 0;
    for (const double v : block) all += v;
    return all;
  };
  std::vector<double> all = small_mlp::scores<Block>(up, m.up.weight.pattern(), sum);
  const std::vector<double> more = small_mlp::scores<Block>(down, m.down.weight.pattern(), sum);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
reference products(reference a, reference const& b) {
  for (std::size_t k = 0; k < a.values.size(); ++k) a.values[k] *= b.values[k];
  return a;
}

/// Whether exactly the blocks of the highest scores are left, with the bits that they had; the best block of
/// each matrix always.
template <class T, class Block>
void check_highest(small_mlp::model<T, Block> const& before, small_mlp::model<T, Block> const& after,
                   std::vector<double> scores, double density) {
  const auto down = scores.begin() + before.up.weight.pattern().blocks();
  *std::max_element(scores.begin(), down) = *std::max_element(down, scores.end()) =
      std::numeric_limits<double>::infinity();
  const auto count = std::size_t(std::llround(density * double(scores.size())));
  std::vector<double> sorted = scores;
  std::ranges::sort(sorted, std::greater());
  const double least = sorted[count - 1];
  std::size_t place = 0, left = 0;
  const auto check = [&](auto const& old, auto const& now) {
    pattern const& grid = old.pattern();
    for (int i = 0; i < grid.block_rows(); ++i)
      for (int j = 0; j < grid.block_cols(); ++j) {
        const std::int64_t slot = now.pattern().find(i, j);
        REQUIRE((slot >= 0) == (scores[place++] >= least));
        if (slot < 0) continue;
        ++left;
        REQUIRE(std::ranges::equal(now.at_slot(slot), old.at_slot(grid.find(i, j))));
      }
  };
  check(before.up.weight, after.up.weight);
  check(before.down.weight, after.down.weight);
  CHECK(left == count);
}

template <class Model> std::vector<double> values_of(Model const& m) {
  std::vector<double> all;
  nn::for_each_parameter(
      m, [&](nn::parameter_name const&, auto const& p) { all.insert(all.end(), p.begin(), p.end()); });
  return all;
}

/// H g of both weights: the derivative of the gradients as the weights move along them (Pearlmutter 1994).
template <class Block>
std::pair<reference, reference> hessian_times_gradient(context& ctx,
                                                       small_mlp::model<double, Block> const& m) {
  const auto g = small_mlp::dense_gradients(ctx, m, 1);
  const std::int64_t tokens = 90;  // as small_mlp::accumulate has it
  panel_matrix<double> input(small_mlp::inputs, tokens), target(small_mlp::outputs, tokens);
  support::fill(input, 1001);
  support::fill(target, 2001);
  const reference x = support::to_reference(input), w1 = support::to_reference(m.up.weight),
                  w2 = support::to_reference(m.down.weight);
  const auto relu_of = [](reference a, reference const& z) {  // a where z is positive
    for (std::size_t k = 0; k < a.values.size(); ++k) a.values[k] = z.values[k] > 0 ? a.values[k] : 0;
    return a;
  };
  const auto plus = [](reference a, reference const& b, double factor = 1) {
    for (std::size_t k = 0; k < a.values.size(); ++k) a.values[k] += factor * b.values[k];
    return a;
  };
  const reference z = multiply(w1, x), h = relu_of(z, z),
                  dy = plus(multiply(w2, h), support::to_reference(target), -1);
  const reference moved_h = relu_of(multiply(g[0], x), z);
  const reference moved_y = plus(multiply(g[1], h), multiply(w2, moved_h));
  const reference moved_dz =
      relu_of(plus(multiply(transposed(g[1]), dy), multiply(transposed(w2), moved_y)), z);
  return {multiply(moved_dz, transposed(x)),
          plus(multiply(moved_y, transposed(h)), multiply(dy, transposed(moved_h)))};
}

TEST_CASE_TEMPLATE("saliency: SNIP keeps the blocks where gradient times weight is greatest", Block,
                   block_shape<1>, block_shape<4>) {
  context ctx(2);
  const auto before = small_mlp::make<double, Block>(1, 1);
  const auto g = small_mlp::dense_gradients(ctx, before, 1);
  const auto expected =
      block_sums(before, support::magnitudes(products(g[0], support::to_reference(before.up.weight))),
                 support::magnitudes(products(g[1], support::to_reference(before.down.weight))));
  for (const double density : {0.05, 0.3, 1.0}) {
    auto after = before;
    train::prune(after, density, train::snip_scores(after, gradient_of(ctx, after)));
    check_highest(before, after, expected, density);
  }
}

TEST_CASE_TEMPLATE("saliency: GraSP keeps the blocks where weight times H g is greatest", Block,
                   block_shape<1>, block_shape<4>) {
  context ctx(2);
  const auto before = small_mlp::make<double, Block>(1, 1);
  const auto [up, down] = hessian_times_gradient(ctx, before);
  const auto expected = block_sums(before, products(up, support::to_reference(before.up.weight)),
                                   products(down, support::to_reference(before.down.weight)));
  CHECK(std::ranges::min(expected) < 0);
  auto after = before;
  const auto got = train::grasp_scores(after, gradient_of(ctx, after));
  CHECK(values_of(after) == values_of(before));
  double largest = 0, worst = 0;
  for (std::size_t k = 0; k < got.size(); ++k) {
    largest = std::max(largest, std::abs(expected[k]));
    worst = std::max(worst, std::abs(got[k] * Block::elements - expected[k]));
  }
  CHECK(worst < 1e-8 * largest);
  train::prune(after, 0.2, got);
  check_highest(before, after, expected, 0.2);

  auto narrower = small_mlp::make<float, Block>(1, 1);
  const auto of_float = train::grasp_scores(narrower, gradient_of(ctx, narrower));
  worst = 0;
  for (std::size_t k = 0; k < got.size(); ++k)
    worst = std::max(worst, std::abs(of_float[k] * Block::elements - expected[k]));
  CHECK(worst < 1e-4 * largest);
}

// Two MLPs one after the other: four weights without biases.
template <class T, class Block>
using deep = nn::sequence<T, small_mlp::model<T, Block>, small_mlp::model<T, Block>>;

template <class T, class Block> deep<T, Block> make_deep(std::uint64_t seed) {
  deep<T, Block> m;
  const auto fill = [&](auto& layer, std::int64_t out, std::int64_t in) {
    layer = {out, in, nn::bias_term::absent};
    layer.weight = support::random_matrix<T, Block>(out, in, 1, seed++);
  };
  fill(std::get<0>(m.layers).up, 48, 30);
  fill(std::get<0>(m.layers).down, 40, 48);
  fill(std::get<1>(m.layers).up, 33, 40);
  fill(std::get<1>(m.layers).down, 10, 33);
  return m;
}

/// Adds the gradient of the sum of outputs for an input of ones, and returns the sum.
template <class T, class Model>
double add_flow(context& ctx, Model const& m, typename Model::gradients& gradients) {
  const sequences batch = sequences::of_equal_length(1, 1);
  nn::workspace<T> room;
  const nn::pass<T> pass{ctx, batch, room};
  panel_matrix<T> ones(30, 1), y(10, 1), dy(10, 1);
  run(ctx, ones = ones + 1, dy = dy + 1);
  typename Model::saved saved;
  m.forward(ones, y, saved, pass);
  m.backward(ones, saved, dy, nullptr, gradients, pass);
  return total(ctx, y);
}

TEST_CASE_TEMPLATE("saliency: SynFlow's scores have the same sum in each layer", T, double, float) {
  context ctx(2);
  auto m = make_deep<T, block_shape<4>>(3);
  const auto before = values_of(m);
  double flow = 0;
  const auto scores =
      train::synflow_scores(m, [&](auto& gradients) { flow = add_flow<T>(ctx, m, gradients); });
  CHECK(values_of(m) == before);
  auto score = scores.begin();
  nn::for_each_parameter(m, [&](nn::parameter_name const&, auto const& w) {
    if constexpr (nn::is_matrix<decltype(w)>) {
      double sum = 0;
      for (std::int64_t slot = 0; slot < w.pattern().blocks(); ++slot) sum += 16 * *score++;
      CHECK(sum == doctest::Approx(flow).epsilon(std::is_same_v<T, double> ? 1e-12 : 1e-6));
    }
  });
  CHECK(score == scores.end());
}

TEST_CASE_TEMPLATE("saliency: SynFlow keeps paths through all layers where one block in 1000 is left", Block,
                   block_shape<1>, block_shape<4>) {
  context ctx(1);
  auto m = make_deep<double, Block>(3);
  const auto before = m;
  std::int64_t rounds = 0;
  const auto flow = [&](auto& gradients) {
    ++rounds;
    add_flow<double>(ctx, m, gradients);
  };
  const double density = Block::rows == 1 ? 1e-3 : 0.02;  // 5 of 5010, 7 of 338 blocks
  train::prune_by_synflow(m, density, flow);
  CHECK(rounds == 100);
  std::int64_t left = 0, grid = 0;
  nn::for_each_parameter(
      m,
      [&](nn::parameter_name const&, auto const& w, auto const& old) {
        if constexpr (nn::is_matrix<decltype(w)>) {
          CHECK(w.pattern().blocks() > 0);
          left += w.pattern().blocks();
          grid += old.pattern().blocks();
          for (std::int64_t i = 0; i < w.rows(); ++i)
            for (std::int64_t j = 0; j < w.cols(); ++j)
              if (w.find(i, j) >= 0) REQUIRE(w(i, j) == old(i, j));
        }
      },
      before);
  CHECK(left == std::llround(density * double(grid)));
  const auto scores = train::synflow_scores(m, flow);
  CHECK(std::ranges::max(scores) > 0);
}

TEST_CASE("saliency: each matrix may keep its share, and the patterns do not depend on threads") {
  const auto pruned_by = [](int threads) {
    context ctx(threads, oversubscribe::allowed);
    auto m = small_mlp::make<float, block_shape<4>>(5, 1);
    train::prune(m, 0.5, train::snip_scores(m, gradient_of(ctx, m)));
    train::prune(m, 0.25, train::grasp_scores(m, gradient_of(ctx, m)), train::pruning_scope::each_matrix);
    return m;
  };
  const auto one = pruned_by(1), three = pruned_by(3);
  CHECK(one.up.weight.pattern() == three.up.weight.pattern());
  CHECK(one.down.weight.pattern() == three.down.weight.pattern());
  CHECK(one.up.weight.pattern().blocks() <= std::llround(0.25 * 18 * 12));
  CHECK(values_of(one) == values_of(three));
}

TEST_CASE("saliency: what cannot be pruned is refused, and nothing is changed") {
  context ctx(1);
  auto m = small_mlp::make<float, block_shape<4>>(1, 1);
  const auto before = values_of(m);
  const auto add = gradient_of(ctx, m);
  const std::vector<double> scores = train::snip_scores(m, add);  // of 18 x 12 and 9 x 18 blocks
  const auto refusal = [&](double density, std::vector<double> of) {
    return error_of<error>([&] { train::prune(m, density, of); });
  };
  CHECK(refusal(0, scores) == "[prune] density 0 is outside (0, 1]");
  CHECK(
      refusal(0.001, scores) ==
      "[prune] density 0.001 leaves 1 of 378 blocks, but each of 2 matrices keeps at least one: the density "
      "must be at least 0.005291005291");
  CHECK(refusal(0.5, std::vector<double>(377, 1.0)) ==
        "[prune] there are 377 scores for the 378 stored blocks of the weights: each must have one");
  std::vector<double> infinite = scores;
  infinite[216 + 5] = std::numeric_limits<double>::infinity();
  CHECK(refusal(0.5, infinite) == "[prune] the score of slot 5 of down.weight is inf: scores must be finite");
  bool called = false;
  const auto must_not = [&](auto&) { called = true; };
  CHECK(error_of<option_error>([&] { train::prune_by_synflow(m, 0.5, must_not, 0); }) ==
        "[prune_by_synflow] rounds is 0: it must be at least 1");
  CHECK_THROWS_AS(train::prune_by_synflow(m, 0.001, must_not), option_error);
  CHECK_FALSE(called);
  CHECK(error_of<error>([&] {
          train::grasp_scores(m, must_not);
        }).ends_with(" and that of their gradient 0: both must be finite and not zero"));
  const auto fails = [&](auto&) { throw io_error("no batch"); };
  CHECK_THROWS_AS(train::synflow_scores(m, fails), io_error);
  int rounds = 0;
  const auto fails_later = [&](auto& gradients) {
    for (float& g : gradients.up.weight) g = ++rounds > 3 * 216 * 16 ? std::nanf("") : 1.0f;
  };
  CHECK_THROWS_AS(train::prune_by_synflow(m, 0.5, fails_later), error);
  CHECK(m.up.weight.pattern().blocks() == 216);
  const auto replaces = [](auto& gradients) { gradients.up.weight = {8, 8}; };
  CHECK(error_of<shape_error>([&] {
          train::snip_scores(m, replaces);
        }).starts_with("[prune] the gradient of up.weight has 64 values for 3456 of the weight"));
  CHECK(values_of(m) == before);
}

}}  // namespace saliency_test
