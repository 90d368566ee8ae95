// SPDX-License-Identifier: BSD-3-Clause
#include <string>
#include <type_traits>

#include <doctest/doctest.h>

#include <tessera/core/function_ref.hpp>

namespace function_ref_test {

using namespace tessera;

TEST_CASE("function_ref: it calls the function it was made from and not a copy") {
  int sum = 0;
  auto body = [sum](int index) mutable { return sum += index; };
  const function_ref<void(int)> reference(body), copy(reference);
  reference(3);
  copy(4);
  CHECK(body(0) == 7);
}

TEST_CASE("function_ref: arguments arrive as they were given and the result comes back") {
  const auto append = [](std::string& to, std::string const& word) { return (to += word).size(); };
  const function_ref<std::size_t(std::string&, std::string const&)> reference(append);
  std::string text = "a";
  CHECK(reference(text, "bc") == 3);
  CHECK(text == "abc");
}

static_assert(!std::is_constructible_v<function_ref<void(int)>, int>);
static_assert(!std::is_constructible_v<function_ref<void(int)>, void (*)(std::string)>);

}  // namespace function_ref_test
