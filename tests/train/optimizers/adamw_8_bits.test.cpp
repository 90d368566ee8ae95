// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/reference.hpp>
#include <train/golden.hpp>
#include <train/optimizers/trajectory.hpp>

#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/adamw_8_bits.hpp>
#include <tessera/train/optimizers/moved_state.hpp>

namespace adamw_8_bits_test {

using namespace tessera;

/// The magnitudes of the table of bitsandbytes: create_dynamic_map(signed, 7, 8).
std::vector<double> published(bool with_signs) {
  std::vector<double> all{0, 1};
  for (int i = 0; i < 7; ++i)
    for (int k = 0, count = (with_signs ? 1 : 2) << i; k < count; ++k)
      all.push_back(std::pow(10.0, i - 6) * (0.1 + 0.9 * (k + 0.5) / count));
  return all;
}

/// Of shares from `low` to `high`, evenly spaced by their logarithm.
double relative_error(double low, double high, auto const& rounded) {
  double sum = 0;
  for (int i = 0; i < 1000; ++i) {
    const double share = low * std::pow(high / low, i / 1000.0);
    sum += std::pow(rounded(share) / share - 1, 2);
  }
  return std::sqrt(sum / 1000);
}

TEST_CASE("adamw_8_bits: codes are nearer to moments than those of the published table") {
  const auto to = [](train::eight_bits const& code) {
    return [&](double share) { return double(code.value(code.nearest(float(share)))); };
  };
  const auto to_published = [](bool with_signs) {
    return [table = published(with_signs)](double share) {
      double best = 0;
      for (const double value : table)
        if (std::abs(value - share) < std::abs(best - share)) best = value;
      return best;
    };
  };
  for (double high = 1; high > 0.05; high /= 10)
    CHECK(relative_error(high / 10, high, to(train::signed_roots)) <
          relative_error(high / 10, high, to_published(true)));
  for (double high = 1; high > 5e-6; high /= 10)
    CHECK(relative_error(high / 10, high, to(train::fourth_roots)) <
          relative_error(high / 10, high, to_published(false)));
}

TEST_CASE("adamw_8_bits: each code stands for itself, in the order of its values") {
  for (int code = -127; code <= 127; ++code) {
    const auto byte = std::uint8_t(code);
    REQUIRE(train::signed_roots.nearest(train::signed_roots.value(byte)) == byte);
    REQUIRE(train::signed_roots.value(byte) >
            (code > -127 ? train::signed_roots.value(std::uint8_t(code - 1)) : -2));
  }
  for (int code = -128; code <= 127; ++code) {
    const auto byte = std::uint8_t(code);
    REQUIRE(train::fourth_roots.nearest(train::fourth_roots.value(byte)) == byte);
    REQUIRE(train::fourth_roots.value(byte) >
            (code > -128 ? train::fourth_roots.value(std::uint8_t(code - 1)) : 0));
  }
  CHECK(train::signed_roots.value(train::signed_roots.nearest(0)) == 0);
  CHECK(train::fourth_roots.nearest(0) == std::uint8_t(-128));
}

struct one_matrix {
  block_sparse_matrix<float, block_shape<16>> w{70, 65};
  using gradients = one_matrix;
  static void parts(auto& each, auto&... of) { each("w", of.w...); }
};

/// Gradients with a mean and a deviation of its own for each element, zero beyond the matrix.
one_matrix gradient(int step) {
  one_matrix g, noise;
  support::fill(noise.w, std::uint64_t(step));
  for (int i = 0; i < 70; ++i)
    for (int j = 0; j < 65; ++j)
      g.w(i, j) = float(std::pow(10.0, -((i + j) % 5) / 4.0)) * (noise.w(i, j) + float(std::sin(i * 65 + j)));
  return g;
}

const train::adamw_8_bits recorded{.weight_decay = 0.1};

TEST_CASE("adamw_8_bits: a step is one of AdamW from the moments that are stored") {
  context ctx(1);
  one_matrix model = gradient(77);
  auto state = train::initial_state(recorded, model);
  for (int step = 0; step < 20; ++step) {
    const one_matrix g = gradient(step), before = model;
    const std::vector<float> m = [&] {
      std::vector<float> all;
      train::scaled_values of{state.at(0, "first_moment"), state.at(0, "first_moment.scale")};
      for (std::int64_t i = 0; i < model.w.size(); ++i) all.push_back(of[i]);
      return all;
    }();
    const std::vector<float> v = [&] {
      std::vector<float> all;
      train::scaled_values of{state.at(0, "second_moment"), state.at(0, "second_moment.scale")};
      for (std::int64_t i = 0; i < model.w.size(); ++i) all.push_back(of[i]);
      return all;
    }();
    train::update_parameters(ctx, recorded, model, g, state, 1e-2, 0.5);
    for (std::int64_t i = 0; i < model.w.size(); ++i) {
      const auto k = std::size_t(i);
      const double dw = 0.5 * double(g.w.data()[k]), first = 0.9 * double(m[k]) + 0.1 * dw,
                   second = 0.999 * double(v[k]) + 0.001 * dw * dw, by1 = 1 - std::pow(0.9, step + 1),
                   by2 = 1 - std::pow(0.999, step + 1);
      const double expected = double(before.w.data()[k]) * (1 - 1e-2 * 0.1) -
                              1e-2 * first / by1 / (std::sqrt(second / by2) + 1e-8);
      REQUIRE(double(model.w.data()[k]) == doctest::Approx(expected).epsilon(1e-5));
    }
  }
}

TEST_CASE("adamw_8_bits: goes where AdamW goes, with a quarter of the bytes") {
  context ctx(2, oversubscribe::allowed);
  one_matrix start = gradient(77), in_8_bits = start, in_floats = start;
  const train::adamw exact{.weight_decay = 0.1};
  auto state = train::initial_state(recorded, in_8_bits), wide = train::initial_state(exact, in_floats);
  for (int step = 0; step < 100; ++step) {
    train::update_parameters(ctx, recorded, in_8_bits, gradient(step), state, 1e-3);
    train::update_parameters(ctx, exact, in_floats, gradient(step), wide, 1e-3);
  }
  double moved = 0, apart = 0;
  for (std::int64_t i = 0; i < start.w.size(); ++i) {
    moved += std::pow(double(in_floats.w.data()[i]) - double(start.w.data()[i]), 2);
    apart += std::pow(double(in_floats.w.data()[i]) - double(in_8_bits.w.data()[i]), 2);
  }
  CHECK(std::sqrt(apart / moved) < 0.05);
  CHECK(apart > 0);
  CHECK(double(state.size_bytes()) <= 0.26 * double(wide.size_bytes()));
  CHECK(train::state_bytes(recorded, nn::model_size::of<float>().matrix(70, 65, 1, {16, 16})) ==
        doctest::Approx(double(state.size_bytes())).epsilon(0.01));
}

TEST_CASE("adamw_8_bits: a small matrix and a vector are those of AdamW") {
  CHECK(distance_from_torch("adamw", train::adamw_8_bits{.beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1}) <=
        1e-6);
}

TEST_CASE("adamw_8_bits: padding stays zero, and threads change no bit") {
  CHECK(same_bits_on_threads(recorded));
  context ctx(1);
  one_matrix model = gradient(3);
  auto state = train::initial_state(recorded, model);
  for (int step = 0; step < 3; ++step)
    train::update_parameters(ctx, recorded, model, gradient(step), state, 0.1);
  double all = 0, inside = 0;
  for (const float w : model.w) all += std::abs(double(w));
  for (int i = 0; i < 70; ++i)
    for (int j = 0; j < 65; ++j) inside += std::abs(double(model.w(i, j)));
  CHECK(all == doctest::Approx(inside).epsilon(1e-12));
}

TEST_CASE(
    "adamw_8_bits: moments that stay keep their bits, and a block that grows begins with the mean second "
    "one") {
  block_sparse_matrix<float, block_shape<16>> w(80, 64,
                                                pattern::from_rows(5, 4, {0, 2, 3, 3, 3, 3}, {0, 1, 0}));
  const nn::any_parameter parameter{any_tensor(w), nn::parameter_role::weight, {}, nullptr};
  std::vector<train::state_array> state = train::detail::declared_state(recorded, parameter);
  for (train::state_array& each : state) each.reset(train::parameter_sizes::of(parameter.tensor));
  train::scaled_values second{state[2], state[3]};
  for (int block = 0; block < 3; ++block) {
    std::vector<float> values(256, float(block + 1));
    values[5] = 0.01F;
    second.store(block, values.data());
  }
  const std::vector<double> codes = state[2].values();
  const pattern next = pattern::from_rows(5, 4, {0, 2, 3, 3, 3, 3}, {0, 1, 1});
  train::detail::move_state(state, pattern_moves(w.pattern(), next),
                            train::parameter_sizes::with(parameter.tensor, next), 256, 7);
  const std::vector<double> moved = state[2].values();
  CHECK(std::equal(codes.begin(), codes.begin() + 512, moved.begin()));
  const train::scaled_values now{state[2], state[3]};
  for (int k = 512; k < 768; ++k)
    REQUIRE(double(now[k]) == doctest::Approx((255 * 3 + 0.02) / 512).epsilon(1e-3));
}

struct five_blocks {
  block_sparse_matrix<float, block_shape<4>> w{
      20, 1024, pattern::from_rows(5, 256, {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4})};
  using gradients = five_blocks;
  static void parts(auto& each, auto&... of) { each("w", of.w...); }
};

TEST_CASE("adamw_8_bits: the scale of a last group, which is shorter, is that of its own values") {
  context ctx(1);
  five_blocks model, none;
  auto state = train::initial_state(recorded, model);
  train::state_array& scale = state.at(0, "second_moment.scale");
  REQUIRE(scale.size() == 1);
  scale.data<float>()[0] = 1;  // and all codes are the least
  train::update_parameters(ctx, recorded, model, none, state, 1e-3);
  CHECK(scale.data<float>()[0] < 1e-9);
  CHECK(scale.data<float>()[0] > 0);
}

TEST_CASE("adamw_8_bits: settings out of range are refused") {
  CHECK(error_of<option_error>([] { train::adamw_8_bits{.beta1 = 1}.check(); }) ==
        "[adamw_8_bits.beta1] is 1: it must be in [0, 1)");
}

}  // namespace adamw_8_bits_test
