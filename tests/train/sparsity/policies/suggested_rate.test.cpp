// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/train/sparsity/policies/suggested_rate.hpp>

namespace suggested_rate_test { namespace {

using namespace tessera;
using train::suggested_rate;

TEST_CASE("suggested rate: grows with sparsity as published") {
  CHECK(suggested_rate(2e-4, 1) == 2e-4);
  CHECK(suggested_rate(1, 0.1) == doctest::Approx(6.400268).epsilon(1e-6));
  CHECK(suggested_rate(1, 0.01) == doctest::Approx(9.18).epsilon(1e-3));
  // The dense rate of the fit, and what the dense formula by size says of BERT-Medium, of 41.4 M parameters.
  CHECK(std::exp(-0.44 * std::log(41373184.0) - 0.47) == doctest::Approx(std::exp(-8.175)).epsilon(0.01));
  CHECK(suggested_rate(std::exp(-8.175), 0.1) == doctest::Approx(1.8e-3).epsilon(0.01));
  for (const double density : {0.0, -0.1, 1.1, std::nan("")})
    CHECK(error_of<option_error>([&] {
            (void)suggested_rate(1, density);
          }).find("[suggested_rate] density ") == 0);
  CHECK_THROWS_AS(suggested_rate(std::nan(""), 0.5), option_error);
  CHECK_THROWS_AS(suggested_rate(-1, 0.5), option_error);
}

}}  // namespace suggested_rate_test
