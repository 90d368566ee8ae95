// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include <tessera/core/block_shape.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/tensor/pattern_sources.hpp>

namespace initialisation_test {

using namespace tessera;
using nn::distribution;
using nn::initialise;

struct moments {
  double mean = 0, deviation = 0, largest = 0;
};
template <class Matrix> moments measure(Matrix const& m) {
  moments all;
  const double count = double(m.rows() * m.cols());
  for (std::int64_t i = 0; i < m.rows(); ++i)
    for (std::int64_t j = 0; j < m.cols(); ++j) {
      all.mean += m(i, j) / count;
      all.deviation += m(i, j) * m(i, j) / count;
      all.largest = std::max(all.largest, double(std::abs(m(i, j))));
    }
  all.deviation = std::sqrt(all.deviation);
  return all;
}

TEST_CASE("initialisation: distributions have their moments") {
  block_sparse_matrix<double, block_shape<4>> m(300, 200);
  const auto of = [&](distribution from) {
    initialise(m, from, 1, "some.weight");
    const moments all = measure(m);
    CHECK(std::abs(all.mean) < 4 * all.deviation / std::sqrt(300.0 * 200));
    return all;
  };
  CHECK(of(distribution::normal).deviation == doctest::Approx(0.02).epsilon(0.01));
  const moments truncated = of(distribution::truncated_normal);
  CHECK(truncated.largest <= 0.04);
  CHECK(truncated.deviation == doctest::Approx(0.02 * 0.8796).epsilon(0.01));
  const moments xavier = of(distribution::xavier);
  CHECK(xavier.largest <= std::sqrt(6.0 / 500));
  CHECK(xavier.deviation == doctest::Approx(std::sqrt(2.0 / 500)).epsilon(0.01));
  CHECK(of(distribution::he).deviation == doctest::Approx(std::sqrt(2.0 / 200)).epsilon(0.01));
}

TEST_CASE("initialisation: a value depends on seed, parameter and place but on no pattern or block") {
  block_sparse_matrix<double, block_shape<4>> sparse(
      50, 30, random_pattern(13, 8, 0.3, random_stream(1, random_purpose::test)));
  block_sparse_matrix<double, block_shape<16>> dense(50, 30), other(50, 30);
  for (const auto from : {distribution::normal, distribution::truncated_normal, distribution::xavier}) {
    initialise(sparse, from, 1, "some.weight");
    initialise(dense, from, 1, "some.weight");
    for (std::int64_t i = 0; i < 50; ++i)
      for (std::int64_t j = 0; j < 30; ++j)
        if (sparse.find(i, j) >= 0) REQUIRE(sparse(i, j) == dense(i, j));
    initialise(other, from, 1, "other.weight");
    CHECK(other(0, 0) != dense(0, 0));
    initialise(other, from, 2, "some.weight");
    CHECK(other(0, 0) != dense(0, 0));
  }
}

TEST_CASE("initialisation: what overhangs the matrix stays zero") {
  block_sparse_matrix<double, block_shape<16>> m(17, 3);
  initialise(m, distribution::normal, 1, "some.weight");
  std::int64_t not_zero = 0;
  for (const double v : m) not_zero += v != 0;
  CHECK(not_zero == 17 * 3);
}

TEST_CASE("initialisation: a vector is refused") {
  feature_vector<float> bias(3);
  CHECK_THROWS_AS(initialise(bias, distribution::normal, 1, "some.bias"), shape_error);
}

/// A user's layer, whose `random` gives one of its vectors and its matrix numbers.
struct own {
  nn::linear<float, block_shape<4>> base{8, 8}, down{8, 8}, chosen{8, 8};
  feature_vector<float> weight = feature_vector<float>(8), diagonal = weight, offset = weight;

  own() {
    for (int i = 0; i < 8; ++i) diagonal[i] = chosen.weight(i, i) = float(i + 1);
  }
  static void parts(auto& each, auto&... of) {
    each.frozen("base", of.base...), each("down", of.down...), each("chosen", of.chosen...);
    each("weight", of.weight...), each("diagonal", of.diagonal...), each("offset", of.offset...);
  }
};
struct own_branches {
  own qkv, out;
  static void parts(auto& each, auto&... of) { each("qkv", of.qkv...), each("out", of.out...); }
};
struct own_model {
  own_branches attention;
  static void parts(auto& each, auto&... of) { each("attention", of.attention...); }
};

TEST_CASE("initialisation: of a transformer, all that its layers left at zero, and by their parts") {
  own_model m;
  nn::initialise_transformer(m, 8, 1);
  auto const &qkv = m.attention.qkv, &out = m.attention.out;
  dense_matrix<float> expected(8, 8);
  const auto check = [&](auto const& layer, std::string const& name, double factor) {
    INFO(name);
    initialise(expected, distribution::normal, 1, name, 0.02, factor);
    for (int i = 0; i < 8; ++i) CHECK(layer.weight(i, i) == expected(i, i));
  };
  check(qkv.base, "attention.qkv.base.weight", 1);
  check(qkv.down, "attention.qkv.down.weight", 1);
  check(out.base, "attention.out.base.weight", 0.25);
  check(out.down, "attention.out.down.weight", 0.25);
  for (int i = 0; i < 8; ++i) {
    CHECK(out.chosen.weight(i, i) == float(i + 1));
    CHECK(out.chosen.weight(i, (i + 1) % 8) == 0);
    CHECK(out.diagonal[i] == float(i + 1));
    CHECK(out.weight[i] == 1);
    CHECK(out.offset[i] == 0);
    CHECK(out.base.bias[i] == 0);
  }
}

// ---- initial values that a configuration asks for ----

/// The parts of a transformer's block, by their names.
struct own_block {
  nn::linear<double, block_shape<16>> qkv{3 * 480, 480}, out{480, 480}, up{4 * 480, 480}, down{480, 4 * 480};
  static void parts(auto& each, auto&... of) {
    each.stacked("attention.qkv", {4, 4, 4}, of.qkv...);
    each("attention.out", of.out...), each("mlp.up", of.up...), each("mlp.down", of.down...);
  }
};
struct own_transformer {
  dense_matrix<double> token_embedding{2100, 480};
  own_block block;
  nn::linear<double, block_shape<16>> transform{480, 480};
  static void parts(auto& each, auto&... of) {
    each.dense("token_embedding", of.token_embedding...);
    each("block.0", of.block...);
    each.dense("head.transform", of.transform...);
  }
};
own_transformer started(nn::initial_values start, std::int64_t layers) {
  nn::transformer_config of;
  of.layers = layers, of.hidden = 480, of.start = start, of.norms = nn::norm_layers::absent;
  of.check();
  own_transformer m;
  nn::initialise_transformer(m, of, 1);
  return m;
}
/// The deviation of some rows.
template <class Matrix> double deviation(Matrix const& m, std::int64_t first, std::int64_t last) {
  double sum = 0;
  for (std::int64_t i = first; i < last; ++i)
    for (std::int64_t j = 0; j < m.cols(); ++j) sum += m(i, j) * m(i, j);
  return std::sqrt(sum / double((last - first) * m.cols()));
}
/// The deviation that torch.nn.init.xavier_uniform_ gives.
double of_xavier(double rows, double cols) { return std::sqrt(2 / (rows + cols)); }

TEST_CASE("initialisation: T-Fixup has the deviations of its formula, also V above others in one matrix") {
  const own_transformer m = started(nn::initial_values::t_fixup, 24);
  const auto near = [](double value) { return doctest::Approx(value).epsilon(0.02); };
  const double share = 0.67 * std::pow(24, -0.25);
  auto const& b = m.block;
  CHECK(deviation(m.token_embedding, 0, 2100) == near(std::pow(9 * 24, -0.25) / std::sqrt(480)));
  CHECK(deviation(b.qkv.weight, 0, 480) == near(of_xavier(480, 480) / std::sqrt(2)));
  CHECK(deviation(b.qkv.weight, 480, 960) == near(of_xavier(480, 480) / std::sqrt(2)));
  CHECK(deviation(b.qkv.weight, 960, 1440) == near(share * of_xavier(480, 480)));
  CHECK(deviation(b.out.weight, 0, 480) == near(share * of_xavier(480, 480)));
  CHECK(deviation(b.up.weight, 0, 1920) == near(share * of_xavier(480, 1920)));
  CHECK(deviation(b.down.weight, 0, 480) == near(share * of_xavier(480, 1920)));
  CHECK(deviation(m.transform.weight, 0, 480) == near(of_xavier(480, 480)));
  CHECK(std::all_of(b.up.bias.begin(), b.up.bias.end(), [](double v) { return v == 0; }));
}

TEST_CASE("initialisation: Fixup has zeros at the end of each branch and its deviations before them") {
  const own_transformer m = started(nn::initial_values::fixup, 50);
  const auto near = [](double value) { return doctest::Approx(value).epsilon(0.02); };
  CHECK(deviation(m.token_embedding, 0, 2100) == near(1 / std::sqrt(480)));
  CHECK(deviation(m.block.qkv.weight, 0, 1440) == near(of_xavier(1440, 480) * std::pow(100, -1.0 / 6)));
  CHECK(deviation(m.block.up.weight, 0, 1920) == near(of_xavier(480, 1920) / 10));
  CHECK(deviation(m.block.out.weight, 0, 480) == 0);
  CHECK(deviation(m.block.down.weight, 0, 480) == 0);
  CHECK(deviation(m.transform.weight, 0, 480) == near(of_xavier(480, 480)));
  const own_transformer plain = started(nn::initial_values::xavier, 50);
  CHECK(deviation(plain.block.qkv.weight, 0, 1440) == near(of_xavier(1440, 480)));
  CHECK(deviation(plain.block.down.weight, 0, 480) == near(of_xavier(480, 1920)));
}

TEST_CASE(
    "initialisation: Fixup and T-Fixup of models with norms, λ or, for Fixup, without biases are refused") {
  const auto refused = [](nn::transformer_config of) {
    of.hidden = 16, of.heads = 2;
    try {
      of.check();
    } catch (option_error const& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  nn::transformer_config of;
  of.start = nn::initial_values::fixup;
  CHECK(refused(of) ==
        "[transformer] the initial values of Fixup are for models without norms: make norms absent");
  of.norms = nn::norm_layers::absent;
  CHECK(refused(of) == "");
  CHECK(of.connection() == nn::residual_form::multiplier);
  of.bias = nn::bias_term::absent;
  CHECK(refused(of) == "[transformer] Fixup has biases: make bias present");
  of.start = nn::initial_values::t_fixup;
  CHECK(refused(of) == "");
  CHECK(of.connection() == nn::residual_form::plain);
  of.residual = nn::residual_form::rezero;
  CHECK(refused(of) ==
        "[transformer] the initial values of T-Fixup are for plain residual connections, which need no "
        "multipliers: make residual plain");
}

}  // namespace initialisation_test
