// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <doctest/doctest.h>

#include <tessera/simd/build_info.hpp>

using namespace tessera;

TEST_CASE("build_info: it says version, compiler and instruction set, and that this CPU has it") {
  const build_information info = build_info();
  CHECK(info.version ==
        message(TESSERA_VERSION_MAJOR, ".", TESSERA_VERSION_MINOR, ".", TESSERA_VERSION_PATCH));
  CHECK(version == info.version);
  CHECK(info.missing_feature.empty());
  CHECK(info.register_bytes == int(simd::lanes<float> * sizeof(float)));
  CHECK(info.instruction_set == TESSERA_ISA_NAME);
  CHECK(info.text().find("tessera " + info.version + ", compiled by ") == 0);
  CHECK(info.text().find("this CPU has all of it") != std::string::npos);
}
