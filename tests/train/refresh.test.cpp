// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <support/allocations.hpp>
#include <support/conflicts.hpp>
#include <support/counting.hpp>
#include <support/evaluation.hpp>
#include <support/reference.hpp>

#include <tessera/ipu/runs/machine.hpp>
#include <tessera/nn/edge_popup.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/nm_linear.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/nn/slimmable.hpp>
#include <tessera/nn/top_kast.hpp>
#include <tessera/statements/following.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/training.hpp>

// Layers that follow their weights after each step: on the context of the step, with the bits of any, and
// without an allocation.

namespace refresh_test {

using namespace tessera;
using block = block_shape<4>;
constexpr std::int64_t features = 48, tokens = 130;

nn::transformer_config shape(double density) {
  nn::transformer_config config;
  config.hidden = features;
  config.heads = 3;
  config.feed_forward = 2;
  config.density = density;
  return config;
}
template <class Layer> Layer filled(Layer l) {
  std::uint64_t seed = 5;
  nn::for_each_parameter(l, [&](nn::parameter_name const& name, auto& p) {
    if (name.last() != "coefficients") support::fill(p, ++seed);
  });
  return l;
}

struct of_8_bits {
  using type = nn::mlp<float, block, ops::gelu_polynomial, nn::float8_linear<float, block>>;
  static type make() { return filled(type::random(shape(0.6), 1, "mlp")); }
};
struct of_nm {
  using type = nn::mlp<float, block, ops::gelu_polynomial, nn::nm_linear<float, nm_shape<2, 4>, block>>;
  static type make() { return filled(type::random(shape(1), 1, "mlp")); }
};
struct of_top_kast {
  using type = nn::top_kast<float, nn::mlp<float, block>>;
  static type make() {
    return {filled(nn::mlp<float, block>::random(shape(0.6), 1, "mlp")), 0.2, /*interval*/ 7};
  }
};
struct of_edge_popup {
  using type = nn::edge_popup<float, nn::mlp<float, block>>;
  static type make() { return {filled(nn::mlp<float, block>::random(shape(0.6), 1, "mlp")), 0.2, 1}; }
};
struct of_slimmable_mlp {
  using type = nn::slimmable_mlp<float, block>;
  static type make() { return type(filled(nn::mlp<float, block>::random(shape(0.6), 1, "mlp"))); }
};
struct of_slimmable_attention {
  using type = nn::slimmable_attention<float, block>;
  static type make() { return filled(type::random(shape(0.6), mask::causal, 1, "attention")); }
};
#define TESSERA_REFRESHED \
  of_8_bits, of_nm, of_top_kast, of_edge_popup, of_slimmable_mlp, of_slimmable_attention

/// A training of a layer to become zero, step by step.
template <class Of> struct run_of {
  using model = typename Of::type;
  model m = Of::make();
  train::training<model, train::adamw> t{m, train::adamw{}};
  sequences batch{{0, 70, tokens}};
  nn::workspace<float> room;
  typename model::saved saved;
  panel_matrix<float> x{features, tokens}, y{features, tokens};

  run_of() { support::fill(x, 1); }
  train::token_loss accumulate(context& ctx) {
    const auto p = t.pass(ctx, batch, room);
    m.forward(x, y, saved, p);
    m.backward(x, saved, y, nullptr, t.gradients, p);
    return {1, tokens, p};
  }
  void step(context& ctx) {
    train::train_step(ctx, t, {.rate = 0.01}, [&](int) { return accumulate(ctx); });
  }
};
/// All tensors of a layer, frozen ones too, as bytes.
template <class Layer> std::vector<std::vector<double>> all_values(Layer const& l) {
  const nn::parameter_list list(l);
  std::vector<std::vector<double>> all;
  for (auto const& each : list) all.push_back(each.tensor.values());
  for (auto const& each : list.frozen()) all.push_back(each.tensor.values());
  return all;
}

TEST_CASE_TEMPLATE("refresh: a layer that keeps its patterns allocates nothing after the first step" *
                       doctest::skip(!support::counts_allocations),
                   Of, TESSERA_REFRESHED) {
  context ctx(2, oversubscribe::allowed);
  run_of<Of> r;
  long before = 0;
  for (int step = 1; step <= 4; ++step) {
    if (step == 2) before = support::allocations();
    r.accumulate(ctx);
    nn::for_each_parameter(r.m, [](nn::parameter_name const&, auto& p) {
      for (float& v : p) v *= 0.5f;
    });
    nn::refresh(ctx, r.m, step, r.t.gradients);
  }
  CHECK(support::allocations() == before);
}

TEST_CASE_TEMPLATE("refresh: steps have the same bits on 1, 2 and 3 threads, and on an emulated machine", Of,
                   TESSERA_REFRESHED) {
  run_of<Of> one, two, three, emulated;
  context alone(1), pair(2, oversubscribe::allowed), trio(3, oversubscribe::allowed);
  ipu::machine chip(ipu::bow(), 2);
  context on_chip(chip);
  for (int i = 0; i < 9; ++i) {
    one.step(alone);
    two.step(pair);
    three.step(trio);
    if (i < 2) emulated.step(on_chip);
    if (i == 1) CHECK(all_values(emulated.m) == all_values(one.m));
  }
  CHECK(all_values(one.m) == all_values(two.m));
  CHECK(all_values(one.m) == all_values(three.m));
}

TEST_CASE_TEMPLATE("refresh: a gradient step has the bits of a training step without an update", Of,
                   of_8_bits, of_nm, of_slimmable_mlp) {
  run_of<Of> one, other;
  context ctx(1);
  for (int i = 0; i < 5; ++i) {
    one.step(ctx);
    train::gradient_step(ctx, other.t, {.rate = 0.01}, [&](int) { return other.accumulate(ctx); });
  }
  CHECK(all_values(one.m) == all_values(other.m));
}

TEST_CASE_TEMPLATE("refresh: an executor sees it as steps of a plan, and a machine charges them", Of,
                   of_8_bits, of_nm, of_top_kast, of_edge_popup) {
  run_of<Of> r;
  context alone(1);
  r.step(alone);
  auto changed = r.m;
  nn::for_each_parameter(changed, [](nn::parameter_name const&, auto& p) {
    for (float& v : p) v = 2 * v - 1;
  });
  auto expected = changed;
  nn::refresh(expected, 7);
  support::counting work;
  context ctx(work);
  nn::refresh(ctx, changed, 7);
  CHECK(all_values(changed) == all_values(expected));
  CHECK(work.kinds.count("unseen") == 0);
  CHECK(work.kinds.size() >= 1);
  ipu::machine chip(ipu::bow(), 2);
  context on_chip(chip);
  nn::refresh(on_chip, r.m, 7);
  CHECK(chip.report().cycles() > 0);
}

TEST_CASE("refresh: its tasks do not disturb each other, and its statements compute what they say") {
  machine on = this_machine();
  on.workers = 3;
  const auto w = support::random_matrix<float, block>(50, 44, 0.7, 1);
  auto some = w;
  some.set_pattern(random_pattern(13, 11, 0.4, 3) & w.pattern());
  const auto chosen = some;
  std::fill(some.begin(), some.end(), 0.f);
  nm_sparse_matrix<float, nm_shape<2, 4>> visible(50, 44), expected(50, 44);
  std::vector<float> norms(std::size_t(w.pattern().blocks()));
  const auto norm = [](auto values) { return l1_norm(values); };
  CHECK(support::conflict(on, copied_blocks(some, w)) == "");
  CHECK(support::conflict(on, kept(visible, w)) == "");
  CHECK(support::conflict(on, numbers_of_blocks(std::span(norms), w, norm)) == "");
  context ctx(3, oversubscribe::allowed);
  run(ctx, copied_blocks(some, w), kept(visible, w), numbers_of_blocks(std::span(norms), w, norm));
  CHECK(support::same_bits(some, chosen));
  expected.keep(w);
  CHECK(std::equal(visible.data(), visible.data() + visible.size(), expected.data()));
  CHECK(std::equal(visible.positions().begin(), visible.positions().end(), expected.positions().begin()));
  CHECK(norms == block_norms(w));
  CHECK(amax(ctx, w) == amax(w));
  CHECK(amax(ctx, block_sparse_matrix<float, block>(8, 8, pattern_from_mask(2, 2, std::vector<char>(4)))) ==
        0);
  auto broken = w;
  broken.begin()[17] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(amax(ctx, broken)));
  CHECK_THROWS_AS(static_cast<void>(copied_blocks(broken, chosen)), shape_error);
  CHECK_THROWS_AS(static_cast<void>(kept(visible, block_sparse_matrix<float, block>(8, 44))), shape_error);
  CHECK_THROWS_AS(static_cast<void>(numbers_of_blocks(std::span(norms).first(3), w, norm)), shape_error);
}

TEST_CASE("refresh: a matrix that has changed since its statement was written is refused") {
  context ctx(1);
  auto w = support::random_matrix<float, block>(50, 44, 0.7, 1), some = w;
  nm_sparse_matrix<float, nm_shape<2, 4>> visible(50, 44);
  std::vector<float> norms(std::size_t(w.pattern().blocks()));
  const auto copy = copied_blocks(some, w);
  const auto keep = kept(visible, w);
  const auto numbers = numbers_of_blocks(std::span(norms), w, [](auto values) { return l1_norm(values); });
  visible = nm_sparse_matrix<float, nm_shape<2, 4>>(8, 8);
  CHECK_THROWS_AS(run(ctx, keep), shape_error);
  w.set_pattern(random_pattern(13, 11, 0.4, 3));
  CHECK_THROWS_AS(run(ctx, copy), shape_error);
  CHECK_THROWS_AS(run(ctx, numbers), shape_error);
}

}  // namespace refresh_test
