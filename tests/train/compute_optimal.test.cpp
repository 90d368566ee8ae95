// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include <tessera/core/error.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/presets.hpp>
#include <tessera/train/compute_optimal.hpp>

namespace compute_optimal_test {

using namespace tessera;

bool near(double x, double right, double share) { return std::abs(x - right) <= share * right; }

TEST_CASE("compute optimal: twenty tokens a parameter, and the published fits, by name") {
  const train::training_size rule = train::at_tokens_per_parameter(1e15);
  CHECK(near(rule.parameters, std::sqrt(1e15 / 120), 1e-12));
  CHECK(near(rule.tokens_per_parameter(), 20, 1e-12));
  // Chinchilla: 70 G parameters, 1.4 T tokens (Hoffmann et al. 2022).
  CHECK(near(train::at_tokens_per_parameter(5.88e23).parameters, 70e9, 0.01));
  CHECK(near(train::at_tokens_per_parameter(5.88e23).tokens, 1.4e12, 0.01));

  const auto ratio = [](train::loss_fit const& fit, double flops) {
    return fit.optimum(flops).tokens_per_parameter();
  };
  CHECK(near(ratio(train::hoffmann_fit, 1e15), 13, 0.02));
  CHECK(near(ratio(train::hoffmann_fit, 1e21), 50, 0.02));
  // With the FLOPs of Gopher the paper's approach 3 has 40 G parameters, by exponents of four digits.
  const train::loss_fit four_digits{1.6934, 406.4, 0.3392, 410.7, 0.2849};
  CHECK(near(four_digits.optimum(5.76e23).parameters, 40e9, 0.02));
  // "20 tokens per parameter" at that scale (Besiroglu et al. 2024).
  CHECK(near(ratio(train::besiroglu_fit, 5.76e23), 20, 0.1));
}

TEST_CASE("compute optimal: an optimum has the FLOPs it was given, and no other size of them a lower loss") {
  for (train::loss_fit const& fit : {train::hoffmann_fit, train::besiroglu_fit})
    for (const double flops : {1e12, 1e15, 1e18, 1e21, 1e24}) {
      const train::training_size best = fit.optimum(flops);
      CHECK(near(best.flops(), flops, 1e-12));
      double least = std::numeric_limits<double>::infinity(), at = 0;
      for (double factor = 0.25; factor < 4; factor *= 1.001) {
        const double parameters = best.parameters * factor;
        const double loss = fit.loss({parameters, flops / 6 / parameters});
        if (loss < least) least = loss, at = parameters;
      }
      CHECK(near(at, best.parameters, 0.01));
      CHECK(fit.loss(best) <= least);
      // More FLOPs, more of both.
      CHECK(fit.optimum(2 * flops).parameters > best.parameters);
      CHECK(fit.optimum(2 * flops).tokens > best.tokens);
    }
}

/// FLOPs for each token of a training step, by the account of the model, and 6 N.
template <class Model> double account_by_rule(nn::transformer_config const& shape) {
  const nn::model_size size = Model::size(shape);
  const double attention =
      double(size.attention_multiply_adds_of(shape.context, mask::causal)) / double(shape.context);
  return 2 * 3 * (double(size.multiply_adds) + attention) / (6 * double(size.live_parameters));
}

TEST_CASE("compute optimal: 6 N D is within 1 % of the account of a model whose sequences are short") {
  using model = nn::gpt<float, block_shape<16>>;
  for (const char* name : {"large", "xl"})
    for (const double density : {1.0, 0.25}) {
      nn::transformer_config shape = nn::gpt2_config(name);
      shape.context = 64, shape.density = density;
      const double attention = 64 / (12 * double(shape.hidden) * density);
      CHECK(std::abs(account_by_rule<model>(shape) - 1) < 0.01 + (density < 1 ? attention : 0));
    }
  // Where they are long, attention is what the rule leaves out.
  nn::transformer_config shape = nn::gpt2_config("small");
  shape.context = 1024;
  CHECK(near(account_by_rule<model>(shape) - 1, 1024.0 / (12 * 768), 0.5));
}

TEST_CASE("compute optimal: FLOPs that are no number are refused") {
  for (const double flops : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    CHECK_THROWS_AS(static_cast<void>(train::at_tokens_per_parameter(flops)), option_error);
    CHECK_THROWS_AS(static_cast<void>(train::hoffmann_fit.optimum(flops)), option_error);
  }
  CHECK_THROWS_AS(static_cast<void>(train::at_tokens_per_parameter(1e15, 0)), option_error);
}

}  // namespace compute_optimal_test
