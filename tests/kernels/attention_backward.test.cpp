// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <doctest/doctest.h>
#include <kernels/attention_arrays.hpp>
#include <simd/archs.hpp>
#include <support/fading_scores.hpp>

#include <tessera/exec/amx_permission.hpp>
#include <tessera/kernels/attention_backward.hpp>

using namespace tessera;
using support::attention_head;
using support::head_panels;
using support::visible_keys;

namespace {

/// The head, and what the pass forward gave.
template <class Arch, class E, class Score = kernels::plain_scores, engine By = engine::pairs>
struct backward_head : attention_head<Arch, E, Score, By> {
  using T = accumulator_t<E>;
  head_panels<E> y, dy;
  std::vector<T> log_sums;

  backward_head(int head_size, visible_keys const& seen)
      : attention_head<Arch, E, Score, By>(head_size, seen),
        y(head_size, 1, 4),
        dy(head_size, 1, 5),
        log_sums(panel_tokens, T(0)) {
    this->clear_padding(dy);
    for (int lane = 0; lane < panel_tokens; ++lane) {
      const bool none = this->sees_none(lane);
      const double log_sum = none ? 0 : this->log_sum(lane).value;
      if (lane < seen.tokens)
        log_sums[std::size_t(lane)] = none ? -std::numeric_limits<T>::infinity() : T(log_sum);
      for (int f = 0; f < head_size; ++f) {
        double sum = 0;
        for (std::int64_t key = seen.keys.low[lane]; key < seen.keys.high[lane]; ++key)
          sum += std::exp(this->score(lane, key).value - log_sum) * this->v(f, key);
        y.at(f, lane) = E(sum);
      }
    }
  }
};

template <class E> struct gradients {
  head_panels<E> dq;
  head_panels<accumulator_t<E>> dk, dv;  // gradients are added to numbers that were there
  accumulator_t<E> drate = 2;            // of fading scores: so is this
  gradients(int head_size, int key_panels)
      : dq(head_size, 1, 6), dk(head_size, key_panels, 7), dv(head_size, key_panels, 8) {}
};

/// Sums for the keys of as few panels as are seen.
template <class Arch, class E, class Score, engine By>
gradients<E> compute(backward_head<Arch, E, Score, By> const& head) {
  using T = accumulator_t<E>;
  gradients<E> got(head.size, head.visible.key_panels);
  const auto scratch_size = std::size_t(kernels::attention_backward_scratch<E>(head.size));
  constexpr T sentinel(12345);
  std::vector<T> scratch(scratch_size + 1, std::numeric_limits<T>::quiet_NaN());
  scratch[scratch_size] = sentinel;
  const int panels = head.visible.keys.panels();
  const std::int64_t stride = got.dk.stride(), first = head.visible.keys.first_panel();
  // Panel p has place p modulo `panels`.
  const auto to_places = [&](std::vector<T> const& all) {
    std::vector<T> places(std::size_t(panels * stride));
    for (std::int64_t p = first; p < first + panels; ++p)
      std::copy_n(all.begin() + p * stride, stride, places.begin() + p % panels * stride);
    return places;
  };
  const auto from_places = [&](std::vector<T> const& places, std::vector<T>& all) {
    for (std::int64_t p = first; p < first + panels; ++p)
      std::copy_n(places.begin() + p % panels * stride, stride, all.begin() + p * stride);
  };
  std::vector<T> dk = to_places(got.dk.stored), dv = to_places(got.dv.stored);
  kernels::attention_backward_arguments<E, Score> a{head.operands(),
                                                    head.y.stored.data(),
                                                    head.dy.stored.data(),
                                                    head.log_sums.data(),
                                                    got.dq.stored.data(),
                                                    {dk.data(), stride, panels},
                                                    {dv.data(), stride, panels},
                                                    scratch.data(),
                                                    {},
                                                    &got.drate};
  kernels::attention_backward_panel<Arch, E, By, Score>::run(a);
  REQUIRE(scratch[scratch_size] == sentinel);
  from_places(dk, got.dk.stored);
  from_places(dv, got.dv.stored);
  return got;
}

/// With P = e^(score - log sum) and D = Σ dy∘y: dV = dY Pᵀ, dS = scale P∘(Vᵀ dY - D), dQ = K dS, dK = Q dSᵀ;
/// of a score functor, dS has a factor, and the parameter has the sum of what its terms give.
template <class Arch, class E, class Score, engine By> struct expected_gradients {
  using number = typename attention_head<Arch, E, Score, By>::number;
  std::vector<number> dq, dk, dv;  // token by token
  number drate{2, 0};

  explicit expected_gradients(backward_head<Arch, E, Score, By> const& head) {
    const int size = head.size;
    const std::int64_t keys = head.visible.key_panels * panel_tokens;
    const gradients<E> before(size, head.visible.key_panels);
    const double sum_error = head.gamma(keys + panel_tokens + 8);
    dq.resize(std::size_t(size * panel_tokens));
    dk.resize(std::size_t(size * keys));
    dv = dk;
    for (std::int64_t key = 0; key < keys; ++key)
      for (int f = 0; f < size; ++f) {
        dk[std::size_t(key * size + f)] = {before.dk(f, key), sum_error * std::abs(before.dk(f, key))};
        dv[std::size_t(key * size + f)] = {before.dv(f, key), sum_error * std::abs(before.dv(f, key))};
      }
    // Products a · b of a factor that has an error and a number.
    const auto add = [&](number& to, number a, double b) {
      const double rounded = a.bound + head.rounding * (std::abs(a.value) + a.bound);
      to.value += a.value * b;
      to.bound += (sum_error * std::abs(a.value) + rounded) * std::abs(b) + std::numeric_limits<float>::min();
    };
    for (int lane = 0; lane < panel_tokens; ++lane) {
      number d;
      for (int f = 0; f < size; ++f) {
        const double x = head.dy(f, lane) * head.y(f, lane);
        d.value += x;
        d.bound += head.gamma(size + 2) * std::abs(x);
      }
      for (std::int64_t key = head.visible.keys.low[lane]; key < head.visible.keys.high[lane]; ++key) {
        const number s = head.score(lane, key);
        const double log_sum = double(head.log_sums[std::size_t(lane)]);
        const double p_error = s.bound + head.gamma(4) * (std::abs(log_sum) + std::abs(s.value) + 1);
        const double p = std::exp(s.value - log_sum);
        number dp;
        for (int f = 0; f < size; ++f) {
          const double x = head.dy(f, lane) * head.v(f, key);
          dp.value += x;
          dp.bound += head.gamma(size + 2) * std::abs(x);
        }
        const double scale = double(head.scale) * head.slope(lane, key),
                     ds = scale * p * (dp.value - d.value);
        const double ds_bound =
            std::abs(ds) * (p_error + head.gamma(8)) + scale * p * (1 + p_error) * (dp.bound + d.bound);
        if constexpr (kernels::changes_scores<Score>) {
          // In a block one diagonal after the other, 64 at most of each, and all blocks.
          const number plain = head.plain_score(lane, key);
          double factor = 0;
          head.change.add_gradient(1, head.distance(lane, key), 1.0, &factor);
          const double dterm = ds / scale * plain.value * factor;
          drate.value += dterm;
          drate.bound += (ds_bound / scale) * (std::abs(plain.value) + plain.bound) * std::abs(factor) +
                         std::abs(ds / scale * factor) * plain.bound +
                         head.gamma(2 * panel_tokens + 8 + 2 * keys) * std::abs(dterm);
        }
        for (int f = 0; f < size; ++f) {
          const auto at_key = std::size_t(key * size + f);
          add(dq[std::size_t(lane * size + f)], {ds, ds_bound}, head.k(f, key));
          add(dk[at_key], {ds, ds_bound}, head.q(f, lane));
          add(dv[at_key], {p, p * p_error}, head.dy(f, lane));
        }
      }
    }
    for (number& x : dq) x.bound = head.stored_bound(x.value, x.bound);
  }
};

template <class Panels, class Number>
double worst_excess(Panels const& got, std::vector<Number> const& exact) {
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    worst = std::max(worst,
                     support::excess(got(std::int64_t(i) % got.size, std::int64_t(i) / got.size), exact[i]));
  return worst;
}

template <class Arch, class E, class Score, engine By = engine::pairs>
void check_backward(int head_size, visible_keys const& visible) {
  INFO(visible.name, ", head size ", head_size, ", ", sizeof(E), " bytes, ",
       simd::lanes<accumulator_t<E>, Arch>, " lanes");
  const backward_head<Arch, E, Score, By> head(head_size, visible);
  const gradients<E> got = compute(head);
  const expected_gradients<Arch, E, Score, By> exact(head);
  CHECK(worst_excess(got.dq, exact.dq) <= 1);
  CHECK(worst_excess(got.dk, exact.dk) <= 1);
  CHECK(worst_excess(got.dv, exact.dv) <= 1);
  if constexpr (kernels::changes_scores<Score>) CHECK(support::excess(double(got.drate), exact.drate) <= 1);
}

template <class Arch, class E, class Score = kernels::plain_scores> void check_heads() {
  for (const int head_size : {2, 16, 20})
    for (visible_keys const& visible : support::all_visible_keys())
      check_backward<Arch, E, Score>(head_size, visible);
  if (element_traits<E>::features_a_lane == 1)
    for (visible_keys const& visible : support::all_visible_keys())
      check_backward<Arch, E, Score>(3, visible);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("attention_backward: the gradients of one head of a panel equal the loops", Arch,
                          heads) {
  check_heads<Arch, float>();
  check_heads<Arch, bfloat16>();
}
TEST_CASE_TEMPLATE_APPLY(heads, support::archs);

TEST_CASE_TEMPLATE_DEFINE(
    "attention_backward: the gradients of scores that a functor changes equal the loops, and so does that of "
    "its parameter",
    Arch, changed) {
  check_heads<Arch, float, support::fading_scores>();
}
TEST_CASE_TEMPLATE_APPLY(changed, support::archs);

// In registers of one width, for compile time is dear: other flags bring others.
TEST_CASE_TEMPLATE("attention_backward: the gradients of one head of other elements equal the loops", E,
                   double, float16) {
  check_heads<simd::native, E>();
}

TEST_CASE_TEMPLATE_DEFINE("attention_backward: AMX computes the same", Arch, by_amx) {
  using kernels::plain_scores;
  using support::fading_scores;
  if (simd::has_amx && !exec::amx_permitted()) {
    MESSAGE("this process may not use AMX");
    return;
  }
  for (const int head_size : {32, 64})
    for (visible_keys const& visible : support::all_visible_keys()) {
      check_backward<Arch, bfloat16, plain_scores, engine::amx>(head_size, visible);
      if (head_size == 32) check_backward<Arch, bfloat16, fading_scores, engine::amx>(head_size, visible);
    }
}
TEST_CASE_TEMPLATE_APPLY(by_amx, support::wide_archs);
