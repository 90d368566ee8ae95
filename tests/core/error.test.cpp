// SPDX-License-Identifier: BSD-3-Clause
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>

#include <tessera/core/error.hpp>

namespace error_test {

using namespace tessera;

TEST_CASE("message: joins strings and numbers") {
  CHECK(message() == "");
  CHECK(message("[W * x] W has ", 48, " columns but ", std::string("x"), " has ", std::size_t{32},
                " features") == "[W * x] W has 48 columns but x has 32 features");
  CHECK(message(-1, " ", 2.5) == "-1 2.5");
}

TEST_CASE_TEMPLATE("error: every kind is a tessera::error and a std::runtime_error", Kind, shape_error,
                   io_error, option_error, machine_error) {
  CHECK_THROWS_AS(throw Kind("what happened"), error);
  CHECK_THROWS_WITH_AS(throw Kind("what happened"), "what happened", std::runtime_error);
}

}  // namespace error_test
