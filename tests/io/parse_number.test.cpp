// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include <tessera/io/parse_number.hpp>

namespace parse_number_test {

using namespace tessera;

template <class T> T number(std::string const& text) {
  T value = 77;
  return io::is_number(text, value) ? value : T(77);
}

// As Python's float() and numpy.float32().
TEST_CASE("numbers of texts: their size decides on infinity and zero, not the sign of their exponent") {
  const std::string zeros(400, '0');
  constexpr double infinity = std::numeric_limits<double>::infinity();
  CHECK(number<double>("0." + zeros + "1") == 0);
  CHECK(number<double>("0." + zeros + "1e390") == 1e-11);
  CHECK(number<double>("0." + zeros + "1e+800") == infinity);
  CHECK(number<double>("1" + zeros) == infinity);
  CHECK(number<double>("1" + zeros + "e-10") == infinity);
  CHECK(number<double>("1" + zeros + "e-395") == 1e5);
  CHECK(number<double>("1" + zeros + "e-800") == 0);
  CHECK(number<double>("0e999999999999999999999") == 0);
  CHECK(number<double>("1.5E-99999999999999999999999") == 0);
  CHECK(number<double>("+1.5E+99999999999999999999999") == infinity);
  CHECK(number<double>("-1e309") == -infinity);
  CHECK(std::signbit(number<double>("-1e-330")));
  CHECK(number<double>("-1e-330") == 0);
  CHECK(number<double>("4.9406564584124654e-324") == std::numeric_limits<double>::denorm_min());
  CHECK(number<double>("1.7976931348623157e308") == std::numeric_limits<double>::max());
  CHECK(number<float>("1e39") == std::numeric_limits<float>::infinity());
  CHECK(number<float>("1e-46") == 0);
  CHECK(number<float>("1.4e-45") == std::numeric_limits<float>::denorm_min());
}

TEST_CASE("numbers of texts: what is no number, or no integer of the type, is none") {
  for (std::string const text :
       {"", "+", "-", ".", "e5", "+-1", "--1", "0x10", " 1", "1 ", "1,5", "1e", "1d5"}) {
    INFO(text);
    CHECK(number<double>(text) == 77);
    CHECK(number<std::int64_t>(text) == 77);
  }
  CHECK(number<std::int64_t>("-9223372036854775808") == std::numeric_limits<std::int64_t>::min());
  CHECK(number<std::int64_t>("9223372036854775808") == 77);
  CHECK(number<std::uint64_t>("+18446744073709551615") == std::numeric_limits<std::uint64_t>::max());
  CHECK(number<std::uint64_t>("-1") == 77);
  CHECK(number<int>("1.0") == 77);
}

}  // namespace parse_number_test
