// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <doctest/doctest.h>
#include <examples/shell.hpp>

namespace advise_program_test { namespace {

#ifdef ADVISE

constexpr const char* small = ADVISE " --rows 64 --cols 96 --tokens 128 --threads 1 ";

TEST_CASE("advise: a table of block sizes beside dense, in float and bfloat16") {
  for (std::string const element : {"float", "bfloat16"}) {
    const auto [code, text] = shell(small + ("--check --element " + element));
    INFO(text);
    CHECK(code == 0);
    CHECK(text.find("W (64, 96), " + element + ", 128 tokens, 1 threads") == 0);
    for (std::string const row : {"16x16 ", "1x1 ", "dense ", "off by, %"})
      CHECK(text.find(row) != std::string::npos);
  }
}

TEST_CASE("advise: times by density, and the one where sparse is as fast as dense") {
  const auto [code, text] = shell(small + std::string("--break-even"));
  INFO(text);
  CHECK(code == 0);
  CHECK(text.find("as dense at\n") != std::string::npos);
}

TEST_CASE("advise: options that make no sense are refused") {
  const auto refused = [](std::string const& options, std::string const& why) {
    const auto [code, text] = shell(ADVISE " " + options);
    CHECK(code == 2);
    CHECK(text == "advise: " + why + "\n");
  };
  refused("--density 0", "[--density] '0' is not a number in (0, 1]");
  refused("--check --break-even", "[--check] has no meaning with --break-even; leave it out");
  refused("--break-even --density 0.1", "[--density] has no meaning with --break-even; leave it out");
  refused("--element half", "[--element] 'half' is not one of float|bfloat16");
  const auto [code, text] = shell(ADVISE " --rows 1000000 --cols 1000000");
  CHECK(code == 2);
  CHECK(text.starts_with(
      "advise: [memory] a dense weight and the activations need 8.03TB, but this machine has "));
}

#endif

}}  // namespace advise_program_test
