// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/nn/gradient_check.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/penalties.hpp>
#include <tessera/train/training.hpp>

namespace penalties_test { namespace {

using namespace tessera;
constexpr std::int64_t tokens = 40;

/// Both penalties without strength, by plain loops.
template <class Matrix> double l1_of(Matrix const& w) {
  double sum = 0;
  for (const auto v : w) sum += std::abs(double(v));
  return sum;
}
template <class Matrix> double group_lasso_of(Matrix const& w) {
  double sum = 0;
  for (std::int64_t slot = 0; slot < w.pattern().blocks(); ++slot) {
    double squares = 0;
    for (const auto v : w.at_slot(slot)) squares += double(v) * double(v);
    sum += std::sqrt(Matrix::block::elements * squares);
  }
  return sum;
}

/// The gradients after one hook, of a step whose own gradients are zero.
template <class Training, class Hook> void only_penalty(context& ctx, Training& t, Hook& hook) {
  nn::set_zero(t.gradients);
  train::token_loss loss{1, tokens, t.scaling.scale};
  hook.accumulated(ctx, t, loss);
}

template <class Hook, class Block, class Penalty> void check_gradient(Penalty&& penalty) {
  context ctx(1);
  toy::model<double, Block> m(3);
  train::training t(m, train::sgd{});
  t.scaling.scale = 8;
  Hook hook(0.3);
  only_penalty(ctx, t, hook);
  CHECK(hook.value == doctest::Approx(0.3 * (penalty(m.up) + penalty(m.down))).epsilon(1e-12));
  // The optimizer gets the gradient of the mean.
  run(ctx, t.gradients.up = t.gradients.up * (1 / (8.0 * tokens)),
      t.gradients.down = t.gradients.down * (1 / (8.0 * tokens)));
  const auto worst =
      nn::check_gradients_of(m, t.gradients, [&] { return 0.3 * (penalty(m.up) + penalty(m.down)); }, 60);
  INFO(worst.where);
  CHECK(worst.relative < 1e-6);
}

TEST_CASE_TEMPLATE("penalties: gradients of L1 and group lasso are those of the mean loss", Block,
                   block_shape<1>, block_shape<4>, block_shape<3, 5>) {
  check_gradient<train::l1_penalty, Block>([](auto const& w) { return l1_of(w); });
  check_gradient<train::group_lasso, Block>([](auto const& w) { return group_lasso_of(w); });
}

TEST_CASE("penalties: a block of zeros gets no gradient, nor does an element that is zero under L1") {
  context ctx(1);
  toy::model<float> m(3);
  std::ranges::fill(m.up.at_slot(2), 0.0f);
  train::training t(m, train::sgd{});
  train::l1_penalty l1(1);
  train::group_lasso groups(1);
  const auto zeros = [](auto block) { return std::ranges::count(block, 0.0f); };
  only_penalty(ctx, t, l1);
  CHECK(zeros(t.gradients.up.at_slot(2)) == 16);
  CHECK(zeros(t.gradients.up.at_slot(1)) == 0);
  for (const float g : t.gradients.up.at_slot(1)) CHECK(std::abs(g) == tokens);
  only_penalty(ctx, t, groups);
  CHECK(zeros(t.gradients.up.at_slot(2)) == 16);
  // Every other block gets a gradient of the norm √elements.
  double squares = 0;
  for (const float g : t.gradients.up.at_slot(1)) squares += double(g) * double(g);
  CHECK(std::sqrt(squares) == doctest::Approx(4.0 * tokens));
}

TEST_CASE("penalties: of blocks of one element, group lasso is L1") {
  context ctx(1);
  toy::model<double, block_shape<1>> a(3), b(3);
  train::training ta(a, train::sgd{}), tb(b, train::sgd{});
  train::l1_penalty l1(0.1);
  train::group_lasso groups(0.1);
  only_penalty(ctx, ta, l1);
  only_penalty(ctx, tb, groups);
  for (std::int64_t k = 0; k < ta.gradients.up.size(); ++k)
    CHECK(ta.gradients.up.data()[k] == doctest::Approx(tb.gradients.up.data()[k]).epsilon(1e-14));
}

TEST_CASE("penalties: vectors and frozen weights are left out") {
  context ctx(1);
  toy::model<float> m(3);
  train::training t(m, train::sgd{});
  t.group_parameters({{.names = "down", .rate = 0}});
  train::l1_penalty l1(1);
  train::group_lasso groups(1);
  for (int i = 0; i < 2; ++i) {
    if (i == 0)
      only_penalty(ctx, t, l1);
    else
      only_penalty(ctx, t, groups);
    CHECK(std::ranges::count(t.gradients.bias, 0.0f) == m.hidden);
    CHECK(std::ranges::count(t.gradients.down, 0.0f) == t.gradients.down.size());
  }
  CHECK(l1.value == doctest::Approx(l1_of(m.up)).epsilon(1e-6));
  CHECK(groups.value == doctest::Approx(group_lasso_of(m.up)).epsilon(1e-6));
}

TEST_CASE_TEMPLATE("penalties: bits do not depend on threads, and narrow weights train", T, float, bfloat16) {
  using model = toy::model<T>;
  model m1(3), m3(3);
  train::training<model, train::adamw> one(m1, {}), three(m3, {});
  const auto steps = [](auto& t, int threads) {
    context ctx(threads, oversubscribe::allowed);
    train::l1_penalty l1(1e-3);
    train::group_lasso groups(1e-3);
    for (int i = 0; i < 3; ++i)
      train::train_step(
          ctx, t, {.rate = 0.01},
          [&](int) {
            return toy::accumulate(ctx, t.model, t.gradients, std::uint64_t(i), tokens, t.scaling.scale);
          },
          l1, groups);
    return l1.value + groups.value;
  };
  CHECK(steps(one, 1) == steps(three, 3));
  CHECK(toy::same_bits(one, three));
}

TEST_CASE("penalties: without a gradient of the data, group lasso shrinks every block") {
  context ctx(1);
  toy::model<float> m(3);
  train::training t(m, train::sgd{.momentum = 0});
  const double before = group_lasso_of(m.up);
  train::group_lasso groups(0.01);
  for (int i = 0; i < 5; ++i)
    train::train_step(ctx, t, {.rate = 0.1}, [](int) { return train::token_loss{1, tokens}; }, groups);
  // Each of five steps takes rate · strength · √elements off the norm of a block.
  const double blocks = double(m.up.pattern().blocks());
  CHECK(group_lasso_of(m.up) == doctest::Approx(before - blocks * 4 * 5 * 0.1 * 0.01 * 4).epsilon(1e-5));
}

TEST_CASE("penalties: a strength that is no number or negative is refused") {
  CHECK(error_of<option_error>([] { train::l1_penalty(-1); }) ==
        "[l1_penalty] strength is -1: it must be a number, at least 0");
  const double no_number = std::numeric_limits<double>::quiet_NaN();
  CHECK(error_of<option_error>([&] { train::group_lasso{no_number}; }) ==
        "[group_lasso] strength is nan: it must be a number, at least 0");
}

}}  // namespace penalties_test
