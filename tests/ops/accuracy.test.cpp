// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/core/random.hpp>
#include <tessera/exec/denormals.hpp>

#include "op_list.hpp"

// Every op in registers, as bodies compute it, with denormals flushed, beside the functions of libm in a
// wider type: at all special values, at random bits, where every exponent is as likely as any other, and in
// the middle of the range.

using namespace tessera;

namespace {

#if defined(TESSERA_REDUCED_TYPES)  // also where long double is emulated
constexpr int random_patterns = 20'000;
#elif defined(TESSERA_ALL_TYPES)
constexpr int random_patterns = 1'000'000;
#else
constexpr int random_patterns = 200'000;
#endif

/// The type in which libm's result counts as exact.
template <class T> using wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;

/// The error that is allowed is the sum of these.
struct bound {
  double ulps = 0;           // units in the last place of the exact result
  double epsilons = 0;       // ε
  double epsilons_of_x = 0;  // |x| ε
  double least = 1;          // smallest normal numbers, which are flushed where a result is subnormal
  bool signs_of_zeros = true;
};

template <class T> T flushed(T x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(T(0), x) : x; }

template <class T> bool is_within(bound const& allowed, T x, T y, wide<T> exact) {
  using limits = std::numeric_limits<T>;
  if (std::isnan(exact) || std::isnan(y)) return std::isnan(exact) == std::isnan(y);
  if (y == 0 && exact == 0) return !allowed.signs_of_zeros || std::signbit(y) == std::signbit(exact);
  if (std::isinf(y) || std::isinf(T(exact))) return y == T(exact);
  const int exponent =
      exact == 0 ? limits::min_exponent : std::max(std::ilogb(exact) + 1, limits::min_exponent);
  const wide<T> epsilon = limits::epsilon(), least = limits::min();
  const wide<T> ulp = std::ldexp(wide<T>(1), exponent - limits::digits);
  wide<T> error = allowed.ulps * ulp + allowed.epsilons * epsilon + allowed.least * least;
  if (std::isfinite(x)) error += allowed.epsilons_of_x * std::abs(x) * epsilon;
  return std::abs(y - exact) <= error;
}

/// Of both signs: zero, the least and the greatest numbers, infinity, not-a-number, ends of exp's range,
/// whole numbers, the largest odd ones among them, and halves.
template <class T> std::vector<T> special_values() {
  using limits = std::numeric_limits<T>;
  const T whole = 1 / limits::epsilon(), ln2 = T(0.6931471805599453);
  std::vector<T> x;
  for (T value : {T(0),
                  limits::denorm_min(),
                  limits::min(),
                  limits::epsilon() / 2,
                  limits::epsilon(),
                  T(0.25),
                  T(0.5),
                  std::nextafter(T(1), T(0)),
                  T(1),
                  std::nextafter(T(1), T(2)),
                  T(1.5),
                  T(2),
                  T(2.5),
                  T(3),
                  T(126),
                  T(127),
                  T(127.6),
                  T(1023),
                  whole / 2 - T(0.5),
                  whole - 1,
                  whole,
                  2 * whole - 1,
                  2 * whole,
                  T(limits::max_exponent) * ln2,
                  T(limits::min_exponent) * -ln2,
                  std::sqrt(limits::max()),
                  limits::max() / 2,
                  limits::max(),
                  limits::infinity(),
                  limits::quiet_NaN()}) {
    x.push_back(value);
    x.push_back(-value);
  }
  return x;
}

template <class T> void fill_registers(std::vector<T>& x) {
  x.resize(round_up(x.size(), std::size_t{64}), T(1));
}

template <class T> std::vector<T> random_bits(std::uint64_t seed) {
  using bits = std::conditional_t<std::is_same_v<T, float>, std::uint32_t, std::uint64_t>;
  std::vector<T> x;
  std::uint64_t state = seed;
  for (int i = 0; i < random_patterns; ++i) {
    state += 0x9e3779b97f4a7c15;  // SplitMix64 (Steele et al. 2014)
    std::uint64_t z = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    x.push_back(std::bit_cast<T>(static_cast<bits>(z ^ (z >> 31))));
  }
  return x;
}

/// Special values, random bits, numbers of moderate size, and the numbers next to multiples of π/2.
template <class T> std::vector<T> const& arguments() {
  static const std::vector<T> all = [] {
    std::vector<T> x = special_values<T>();
    for (T value : random_bits<T>(1)) x.push_back(value);
    for (double end : {0.7, 12.0, 120.0})
      for (T value : even_steps<T>(-end, end, random_patterns / 20)) x.push_back(value);
    for (int k = 1; k <= random_patterns / 100; ++k) {
      const T angle = T(wide<T>(k) * wide<T>(1.570796326794896619231321691639751442L));
      for (T near : {angle, std::nextafter(angle, T(0)), std::nextafter(angle, 2 * angle)}) x.push_back(near);
    }
    fill_registers(x);
    return x;
  }();
  return all;
}

template <class T, class Op, class Exact> void check_unary(Op op, Exact exact, bound const& allowed) {
  CAPTURE(std::string(typeid(op).name()));
  std::vector<T> const& x = arguments<T>();
  std::vector<T> y;
  {
    const exec::flush_denormals flush;
    y = in_registers(op, x);
  }
  int wrong = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const wide<T> right = exact(wide<T>(flushed(x[i])));
    if (!is_within(allowed, x[i], y[i], right) && ++wrong <= 3)
      FAIL_CHECK("at ", x[i], ": ", y[i], " but right is ", right);
  }
  CHECK(wrong == 0);
}

template <class T> using pairs = std::pair<std::vector<T>, std::vector<T>>;

/// All pairs of special values, random bits, and powers of every size.
template <class T> pairs<T> const& pairs_of_arguments() {
  static const pairs<T> all = [] {
    pairs<T> x;
    for (T a : special_values<T>())
      for (T b : special_values<T>()) {
        x.first.push_back(a);
        x.second.push_back(b);
      }
    const auto a = random_bits<T>(2), b = random_bits<T>(3);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const bool moderate = i % 2 != 0 && std::isfinite(a[i]) && std::isfinite(b[i]);
      x.first.push_back(moderate ? T(std::exp(std::fmod(std::log2(std::abs(a[i])), T(3)))) : a[i]);
      x.second.push_back(moderate ? std::fmod(b[i], T(std::numeric_limits<T>::max_exponent)) : b[i]);
    }
    fill_registers(x.first);
    fill_registers(x.second);
    return x;
  }();
  return all;
}

template <class T, class Op, class Exact> void check_binary(Op op, Exact exact, bound const& allowed) {
  CAPTURE(std::string(typeid(op).name()));
  auto const& [a, b] = pairs_of_arguments<T>();
  std::vector<T> y(a.size());
  {
    const exec::flush_denormals flush;
    using batch = simd::batch<T>;
    for (std::size_t i = 0; i < a.size(); i += batch::size)
      op(batch::load_unaligned(&a[i]), batch::load_unaligned(&b[i])).store_unaligned(&y[i]);
  }
  int wrong = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const wide<T> right = exact(wide<T>(flushed(a[i])), wide<T>(flushed(b[i])));
    if (!is_within(allowed, a[i], y[i], right) && ++wrong <= 3)
      FAIL_CHECK("at ", a[i], ", ", b[i], ": ", y[i], " but right is ", right);
  }
  CHECK(wrong == 0);
}

template <class W> W not_a_number() { return std::numeric_limits<W>::quiet_NaN(); }
template <class W> W logistic(W x) { return 1 / (1 + std::exp(-x)); }
template <class W> W logistic_slope(W x) { return logistic(x) * logistic(-x); }
template <class W> W normal(W x) {
  return W(0.5) * std::erfc(x * W(-0.707106781186547524400844362104849039L));
}
/// f(x), for an f that is 0 times infinity at -∞
template <class W> W unless_lowest(W x, W value) {
  return x == -std::numeric_limits<W>::infinity() ? not_a_number<W>() : value;
}

}  // namespace

TEST_CASE_TEMPLATE("accuracy: powers are within 1.5 ulp for all numbers and special as IEEE 754 says", T,
                   float, double) {
  using W = wide<T>;
  check_binary<T>(ops::power{}, [](W a, W b) { return std::pow(a, b); }, {.ulps = 1.5});
}

TEST_CASE_TEMPLATE("accuracy: arithmetic is rounded once for all numbers", T, float, double) {
  using W = wide<T>;
  // W is more than twice as precise as float, and not so much as double, where a second rounding shows.
  const bound once = {.ulps = 0.5 + 0x1p-10};
  check_binary<T>(ops::add{}, [](W a, W b) { return a + b; }, once);
  check_binary<T>(ops::subtract{}, [](W a, W b) { return a - b; }, once);
  check_binary<T>(ops::multiply{}, [](W a, W b) { return a * b; }, once);
  check_binary<T>(ops::divide{}, [](W a, W b) { return a / b; }, once);
  const bound any_zero = {.signs_of_zeros = false};
  const auto larger = [](W a, W b) { return a != a || b != b ? not_a_number<W>() : std::max(a, b); };
  check_binary<T>(ops::maximum{}, larger, any_zero);
  check_binary<T>(ops::minimum{}, [&](W a, W b) { return -larger(-a, -b); }, any_zero);
  check_binary<T>(ops::equal{}, [](W a, W b) { return W(a == b); }, {});
  check_binary<T>(ops::less{}, [](W a, W b) { return W(a < b); }, {});
  check_binary<T>(ops::greater_equal{}, [](W a, W b) { return W(a >= b); }, {});

  check_unary<T>(ops::negate{}, [](W x) { return -x; }, {});
  check_unary<T>(ops::absolute{}, [](W x) { return std::abs(x); }, {});
  check_unary<T>(ops::square{}, [](W x) { return x * x; }, once);
  check_unary<T>(ops::square_root{}, [](W x) { return std::sqrt(x); }, once);
  check_unary<T>(ops::reciprocal_square_root{}, [](W x) { return 1 / std::sqrt(x); }, {.ulps = 1.5});
  check_unary<T>(ops::relu{}, [](W x) { return x < 0 ? 0 : x; }, any_zero);
}

TEST_CASE_TEMPLATE("accuracy: derivatives of arithmetic are right for all numbers", T, float, double) {
  using W = wide<T>;
  const auto slope = [](auto op, auto exact, bound const& allowed) {
    check_unary<T>(ops::derivative_of<decltype(op)>{}, exact, allowed);
  };
  slope(ops::negate{}, [](W) { return W(-1); }, {});
  slope(ops::absolute{}, [](W x) { return W(x > 0) - W(x < 0); }, {});
  slope(ops::square{}, [](W x) { return 2 * x; }, {});
  slope(ops::square_root{}, [](W x) { return W(0.5) / std::sqrt(x); }, {.ulps = 1.5});
  slope(ops::reciprocal_square_root{}, [](W x) { return W(-0.5) / (x * std::sqrt(x)); }, {.ulps = 2.5});
  slope(ops::relu{}, [](W x) { return W(x > 0); }, {});
}

TEST_CASE_TEMPLATE("accuracy: exponentials, logarithms and angles are right for all numbers", T, float,
                   double) {
  using W = wide<T>;
  using limits = std::numeric_limits<T>;
  const bool narrow = std::is_same_v<T, float>;
  check_unary<T>(ops::exponential{}, [](W x) { return std::exp(x); }, {.ulps = 1.2});
  check_unary<T>(ops::logarithm{}, [](W x) { return std::log(x); }, {.ulps = 1});
  check_unary<T>(ops::derivative_of<ops::logarithm>{}, [](W x) { return 1 / x; }, {.ulps = 0.5 + 0x1p-10});
  const bound angles = narrow ? bound{.ulps = 2.2} : bound{.epsilons = 1};
  check_unary<T>(ops::sine{}, [](W x) { return std::sin(x); }, angles);
  check_unary<T>(ops::cosine{}, [](W x) { return std::cos(x); }, angles);
  check_unary<T>(ops::derivative_of<ops::sine>{}, [](W x) { return std::cos(x); }, angles);
  check_unary<T>(ops::derivative_of<ops::cosine>{}, [](W x) { return -std::sin(x); }, angles);
  check_unary<T>(ops::sigmoid{}, logistic<W>, {.ulps = 3});
  check_unary<T>(ops::derivative_of<ops::sigmoid>{}, logistic_slope<W>, {.epsilons = 1});
  check_unary<T>(ops::tanh{}, [](W x) { return std::tanh(x); }, {.ulps = 4, .signs_of_zeros = false});
  check_unary<T>(ops::derivative_of<ops::tanh>{}, [](W x) { return 4 * logistic_slope(2 * x); },
                 {.epsilons = 3});
  check_unary<T>(ops::silu{}, [](W x) { return unless_lowest(x, x * logistic(x)); },
                 {.ulps = 4, .least = limits::max_exponent});
  check_unary<T>(ops::derivative_of<ops::silu>{},
                 [](W x) { return std::isinf(x) ? not_a_number<W>() : logistic(x) + x * logistic_slope(x); },
                 {.epsilons = narrow ? 10. : 20., .signs_of_zeros = false});
}

TEST_CASE_TEMPLATE("accuracy: all three gelus are right for all numbers", T, float, double) {
  using W = wide<T>;
  const bool narrow = std::is_same_v<T, float>;
  const double epsilon = std::numeric_limits<T>::epsilon();
  const auto gelu = [](W x) { return x * normal(x); };
  const auto slope = [](W x) {
    const W density = W(0.398942280401432677939946059934381868L) * std::exp(W(-0.5) * x * x);
    return normal(x) + (density == 0 ? 0 : x * density);
  };
  check_unary<T>(ops::gelu{}, [&](W x) { return unless_lowest(x, gelu(x)); },
                 {.epsilons_of_x = narrow ? 1.5 : 18});
  check_unary<T>(ops::derivative_of<ops::gelu>{}, slope, {.epsilons = narrow ? 1.5 : 18});

  const W twice = W(1.595769121605730711759542L), cubic = W(0.044715L);
  const auto inner = [&](W x) { return twice * (x + cubic * x * x * x); };
  check_unary<T>(ops::gelu_tanh{}, [&](W x) { return unless_lowest(x, x * logistic(inner(x))); },
                 {.epsilons_of_x = 32});
  check_unary<T>(ops::derivative_of<ops::gelu_tanh>{},
                 [&](W x) {
                   if (std::abs(x) > 30) return W(x > 0);
                   return logistic(inner(x)) + x * logistic_slope(inner(x)) * twice * (1 + 3 * cubic * x * x);
                 },
                 {.epsilons = narrow ? 32. : 64., .signs_of_zeros = false});

  check_unary<T>(ops::gelu_polynomial{}, [&](W x) { return std::isinf(x) && x < 0 ? 0 : gelu(x); },
                 {.ulps = 1, .epsilons = 6e-7 / epsilon, .signs_of_zeros = false});
  check_unary<T>(ops::derivative_of<ops::gelu_polynomial>{}, slope,
                 {.epsilons = 4e-6 / epsilon, .signs_of_zeros = false});
}
