// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/core/dispatch.hpp>

namespace dispatch_test {

using tessera::dispatched;

int best(int x) { return 10 * x; }
int other(int x) { return x; }
bool yes() { return true; }
bool no() { return false; }

TEST_CASE("dispatch: a call takes the first instruction set that the CPU has") {
  constexpr dispatched<int(int)> first("f", {{"best", yes, best}, {"other", yes, other}}),
      second("f", {{"best", no, best}, {"other", yes, other}});
  CHECK(first(3) == 30);
  CHECK(first.instruction_set() == std::string("best"));
  CHECK(second(3) == 3);
  CHECK(second.instruction_set() == std::string("other"));
}

TEST_CASE("dispatch: a CPU that has none is told which there are") {
  constexpr dispatched<int(int)> none("f", {{"best", no, best}, {"other", no, other}});
  CHECK(error_of<tessera::machine_error>([&] { none(1); }) ==
        "[f] is compiled for best, other, and this CPU has none of them: add the variant baseline");
  CHECK(error_of<tessera::machine_error>([&] { none.instruction_set(); }) != "");
}

}  // namespace dispatch_test
