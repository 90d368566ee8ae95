// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/conflicts.hpp>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/tessera.hpp>

// A statement on slices gives the bits of the statement on tensors of their own, and leaves the rest alone.

namespace slices_test {

using namespace tessera;

/// Where a slice lies in its activation.
struct place {
  std::int64_t first_feature, features, first_token, tokens;
};
/// An activation of 70 features and 200 tokens, and a tensor of its own of the elements of a slice.
template <class T> struct sliced {
  panel_matrix<T> whole{70, 200}, before;
  place at;
  panel_matrix<T> own;

  sliced(place of, std::uint64_t seed) : at(of), own(of.features, of.tokens) {
    support::fill(whole, seed);
    before = whole;
    for (std::int64_t f = 0; f < at.features; ++f)
      for (std::int64_t t = 0; t < at.tokens; ++t)
        own(f, t) = before(at.first_feature + f, at.first_token + t);
  }
  auto slice() {
    return slice_tokens(slice_features(whole, at.first_feature, at.first_feature + at.features),
                        at.first_token, at.first_token + at.tokens);
  }
  /// Elements that differ from `own` inside the slice, or from `before` outside; beyond the last token of the
  /// slice, in its last panel, statements write zeros.
  int different() const {
    int count = 0;
    const std::int64_t padded = round_up<std::int64_t>(at.first_token + at.tokens, panel_tokens);
    for (std::int64_t f = 0; f < whole.features(); ++f)
      for (std::int64_t t = 0; t < whole.tokens(); ++t) {
        const std::int64_t i = f - at.first_feature, j = t - at.first_token;
        const bool inside = i >= 0 && i < at.features && j >= 0 && j < at.tokens;
        const bool padding = i >= 0 && i < at.features && j >= at.tokens && t < padded;
        const double is = double(whole(f, t));
        if (inside)
          count += is != double(own(i, j));
        else if (padding)
          count += is != double(before(f, t)) && is != 0;
        else
          count += is != double(before(f, t));
      }
    return count;
  }
};

template <class T> std::vector<place> places() {
  constexpr std::int64_t lane = element_traits<T>::features_a_lane;
  return {
      {0, 70, 0, 200},         {0, 16, 0, 200},          {16, 32, 64, 64}, {4 * lane, 20, 64, 128},
      {70 - 6, 6, 128, 72},    {lane, 2 * lane, 0, 200}, {32, 38, 64, 40}, {70 - 4 * lane, 2 * lane, 128, 72},
      {48, 10 * lane, 64, 64}, {50, 20, 0, 200},         {10, 60, 128, 72}};
}

using elements = std::tuple<float, bfloat16>;

TEST_CASE_TEMPLATE_DEFINE("slices: an elementwise statement reads and writes them", T, elementwise) {
  for (place const& at : places<T>())
    for (int threads : {1, 3}) {
      INFO("features from ", at.first_feature, ", ", at.features, ", tokens from ", at.first_token);
      context ctx(threads, oversubscribe::allowed);
      sliced<T> x(at, 1), y(at, 2);
      run(ctx, y.own = relu(x.own) * 2.0 + y.own);
      run(ctx, y.slice() = relu(x.slice()) * 2.0 + y.slice());
      CHECK(y.different() == 0);
      CHECK(x.different() == 0);
      run(ctx, y.own += x.own, x.own = 0.5);
      run(ctx, y.slice() += x.slice(), x.slice() = 0.5);
      CHECK(y.different() + x.different() == 0);
    }
}
TEST_CASE_TEMPLATE_APPLY(elementwise, elements);

template <class T, class Block> void check_products(place const& from, place const& to, double density) {
  using sum = accumulator_t<T>;
  if (from.tokens != to.tokens) return;
  INFO("features from ", from.first_feature, ", ", from.features, " to ", to.first_feature, ", ",
       to.features);
  const auto w = support::random_matrix<T, Block>(to.features, from.features, density, 3);
  feature_vector<sum> b(to.features);
  support::fill(b, 4);
  for (int threads : {1, 3}) {
    context ctx(threads, oversubscribe::allowed);
    sliced<T> x(from, 1), y(to, 2), dx(from, 5);
    // The numbers of neighbours must not matter.
    for (std::int64_t t = 0; t < 200; ++t)
      for (std::int64_t f = 0; f < 70; ++f)
        if (f < from.first_feature || f >= from.first_feature + from.features)
          x.whole(f, t) = x.before(f, t) = T(std::numeric_limits<float>::infinity());
    run(ctx, y.own = relu(w * x.own + b));
    run(ctx, y.slice() = relu(w * x.slice() + b));
    CHECK(y.different() == 0);
    run(ctx, dx.own = transposed(w) * y.own);
    run(ctx, dx.slice() = transposed(w) * y.slice());
    CHECK(dx.different() == 0);
    block_sparse_matrix<sum, Block> g(to.features, from.features, w.pattern()), h = g;
    run(ctx, g += sampled(y.own * transposed(x.own)));
    run(ctx, h += sampled(y.slice() * transposed(x.slice())));
    CHECK(std::ranges::equal(g, h));
    CHECK(x.different() == 0);
  }
}
TEST_CASE_TEMPLATE_DEFINE("slices: products read and write them", Types, products) {
  using T = typename Types::element;
  for (place const& from : places<T>())
    for (place const& to : places<T>()) check_products<T, typename Types::block>(from, to, 0.5);
}
#ifdef TESSERA_REDUCED_TYPES
using product_types = std::tuple<support::types<float, block_shape<8>>>;
#else
using product_types =
    std::tuple<support::types<float, block_shape<8>>, support::types<double, block_shape<1>>,
               support::types<bfloat16, block_shape<16>>>;
#endif
TEST_CASE_TEMPLATE_APPLY(products, product_types);

TEST_CASE_TEMPLATE_DEFINE("slices: reductions and totals read them", T, reductions) {
  using sum = accumulator_t<T>;
  for (place const& at : places<T>()) {
    context ctx(2, oversubscribe::allowed);
    sliced<T> x(at, 1);
    feature_vector<sum> a(at.features), b(at.features);
    token_vector<sum> c(at.tokens), d(at.tokens);
    run(ctx, in_one_pass(a = sum_tokens(x.own), c = max_features(x.own)));
    run(ctx, in_one_pass(b = sum_tokens(x.slice()), d = max_features(x.slice())));
    CHECK(std::ranges::equal(a, b));
    CHECK(std::ranges::equal(c, d));
    CHECK(total(ctx, square(x.own)) == total(ctx, square(x.slice())));
  }
}
TEST_CASE_TEMPLATE_APPLY(reductions, elements);

/// A gated recurrent unit over time: gates are one matrix, time steps are slices of one activation.
struct recurrent {
  static constexpr std::int64_t hidden = 24, in = 10, steps = 5, count = 20;  // sequences
  static constexpr std::int64_t tokens = steps * panel_tokens;
  block_sparse_matrix<double, block_shape<4>> w = support::random_matrix<double, block_shape<4>>(3 * hidden,
                                                                                                 in, 0.6, 1),
                                              u = support::random_matrix<double, block_shape<4>>(
                                                  3 * hidden, hidden, 0.6, 2);
  panel_matrix<double> x{in, tokens}, gates{3 * hidden, tokens}, rest{3 * hidden, tokens}, h{hidden, tokens};
  recurrent() { support::fill(x, 3); }

  static auto step(panel_matrix<double>& of, std::int64_t t) {
    return slice_tokens(of, t * panel_tokens, t * panel_tokens + count);
  }
  void run_time(context& ctx) {
    for (std::int64_t t = 0; t < steps; ++t) {
      const auto now = step(gates, t), h_now = step(h, t), rest_now = step(rest, t);
      const auto z = slice_features(now, 0, hidden), r = slice_features(now, hidden, 2 * hidden),
                 n = slice_features(now, 2 * hidden, 3 * hidden);
      const auto uz = slice_features(rest_now, 0, hidden), ur = slice_features(rest_now, hidden, 2 * hidden),
                 un = slice_features(rest_now, 2 * hidden, 3 * hidden);
      if (t == 0) {
        run(ctx, now = w * step(x, t), z = sigmoid(z), n = tanh(n), h_now = n - z * n);
      } else {
        const auto last = step(h, t - 1);
        run(ctx, now = w * step(x, t), rest_now = u * last, z = sigmoid(z + uz), r = sigmoid(r + ur),
            n = tanh(n + r * un), h_now = n + z * (last - n));
      }
    }
  }
};

TEST_CASE("slices: a gated recurrent unit is right, with the same bits for any number of threads") {
  recurrent one, three;
  context single(1), several(3, oversubscribe::allowed);
  one.run_time(single);
  three.run_time(several);
  double worst = 0;
  int different = 0;
  const auto logistic = [](double v) { return 1 / (1 + std::exp(-v)); };
  std::vector<double> state(static_cast<std::size_t>(recurrent::hidden)), next = state;
  for (std::int64_t s = 0; s < recurrent::count; ++s) {
    std::ranges::fill(state, 0);
    for (std::int64_t t = 0; t < recurrent::steps; ++t) {
      const auto row = [&](std::int64_t gate, auto const& m, auto const& value, std::int64_t size) {
        double sum = 0;
        for (std::int64_t j = 0; j < size; ++j) sum += m(gate, j) * value(j);
        return sum;
      };
      const auto from_x = [&](std::int64_t gate) {
        return row(
            gate, one.w, [&](std::int64_t j) { return one.x(j, t * panel_tokens + s); }, recurrent::in);
      };
      const auto from_h = [&](std::int64_t gate) {
        return row(gate, one.u, [&](std::int64_t j) { return state[std::size_t(j)]; }, recurrent::hidden);
      };
      for (std::int64_t i = 0; i < recurrent::hidden; ++i) {
        const double z = logistic(from_x(i) + from_h(i)),
                     r = logistic(from_x(recurrent::hidden + i) + from_h(recurrent::hidden + i)),
                     n = std::tanh(from_x(2 * recurrent::hidden + i) + r * from_h(2 * recurrent::hidden + i));
        next[std::size_t(i)] = n + z * (state[std::size_t(i)] - n);
        worst = std::max(worst, std::abs(next[std::size_t(i)] - one.h(i, t * panel_tokens + s)));
        different += one.h(i, t * panel_tokens + s) != three.h(i, t * panel_tokens + s);
      }
      state = next;
    }
  }
  CHECK(worst < 1e-12);
  CHECK(different == 0);
  // Tokens between the sequences of one step and the next are padding.
  int not_zero = 0;
  for (std::int64_t t = recurrent::count; t < panel_tokens; ++t)
    for (std::int64_t i = 0; i < recurrent::hidden; ++i) not_zero += one.h(i, t) != 0;
  CHECK(not_zero == 0);
}

TEST_CASE("slices: disjoint slices of one tensor are written in one run without conflicts") {
  panel_matrix<float> y(64, 300), x(32, 300);
  support::fill(x, 1);
  const auto w = support::random_matrix<float, block_shape<8>>(16, 32, 0.5, 2);
  const auto a = slice_features(y, 0, 16), b = slice_features(y, 16, 32), c = slice_features(y, 32, 48);
  const auto early = slice_tokens(slice_features(y, 48, 64), 0, 128),
             late = slice_tokens(slice_features(y, 48, 64), 128, 300);
  for (int workers : {1, 2, 7}) {
    const std::string found =
        support::conflict(machine{workers}, a = w * x, b = relu(a), c = a * b, early = 1,
                          late = slice_tokens(c, 128, 300) + slice_tokens(a, 0, 172));
    CHECK(found == "");
  }
  context ctx(3, oversubscribe::allowed);
  run(ctx, a = w * x, b = relu(a), c = a * b, early = 1,
      late = slice_tokens(c, 128, 300) + slice_tokens(a, 0, 172));
  panel_matrix<float> expected(16, 300);
  run(ctx, expected = w * x);
  int wrong = 0;
  for (std::int64_t t = 0; t < 300; ++t)
    for (std::int64_t f = 0; f < 16; ++f) {
      const float first = expected(f, t), second = std::max(first, 0.0f);
      wrong += y(f, t) != first || y(16 + f, t) != second || y(32 + f, t) != first * second;
      if (t < 128)
        wrong += y(48 + f, t) != 1;
      else
        wrong += y(48 + f, t) != y(32 + f, t) + y(f, t - 128);
    }
  CHECK(wrong == 0);
}

TEST_CASE("slices: ranges that leave the activation, or cut a lane or a panel, are refused") {
  panel_matrix<float> x(32, 200);
  panel_matrix<bfloat16> narrow(31, 200);
  CHECK(error_of<shape_error>([&] { slice_features(x, 8, 33); }) ==
        "[slice_features] features 8 to 33 of 32: they must be in ascending order within 0 … 32");
  CHECK(error_of<shape_error>([&] { slice_features(x, 9, 8); }) ==
        "[slice_features] features 9 to 8 of 32: they must be in ascending order within 0 … 32");
  CHECK(
      error_of<shape_error>([&] { slice_features(narrow, 1, 4); }) ==
      "[slice_features] features 1 to 4 of 31: 2 features share a lane, so a slice begins at a multiple of 2 "
      "and ends at one, or at 31");
  CHECK(error_of<shape_error>([&] { slice_features(narrow, 2, 31); }) == "");
  CHECK(error_of<shape_error>([&] { slice_features(slice_features(narrow, 0, 30), 2, 29); }).substr(0, 16) ==
        "[slice_features]");
  CHECK(error_of<shape_error>([&] { slice_tokens(x, 70, 200); }) ==
        "[slice_tokens] tokens 70 to 200 of 200: a slice begins at a panel, a multiple of 64, such as 64");
  CHECK(error_of<shape_error>([&] { slice_tokens(x, 64, 201); }) ==
        "[slice_tokens] tokens 64 to 201 of 200: they must be in ascending order within 0 … 200");
}

TEST_CASE("slices: a statement whose operand overlaps its destination elsewhere is refused") {
  context ctx(1);
  panel_matrix<float> y(32, 256);
  const auto w = support::random_matrix<float, block_shape<8>>(16, 16, 1, 1);
  const auto low = slice_features(y, 0, 16), middle = slice_features(y, 8, 24);
  const std::string overlap =
      "[=] the destination and an operand are slices of one tensor that overlap, but are not one: store the "
      "result in a tensor of its own";
  CHECK(error_of<shape_error>([&] { run(ctx, low = middle + 1); }) == overlap);
  CHECK(error_of<shape_error>([&] { run(ctx, slice_tokens(y, 0, 128) = slice_tokens(y, 64, 192) + 1); }) ==
        overlap);
  CHECK(error_of<shape_error>([&] { run(ctx, slice_tokens(y, 0, 128) = slice_tokens(y, 128, 256) + 1); }) ==
        "");
  CHECK(error_of<shape_error>([&] { run(ctx, low = low + 1); }) == "");
  CHECK(error_of<shape_error>([&] { run(ctx, low = w * middle); }) ==
        "[y = W * x] y is also x: a product cannot be computed in place");
  CHECK(error_of<shape_error>([&] { run(ctx, low = w * slice_features(y, 16, 32)); }) == "");
  // Also where a step before the one that writes reads the operand.
  const std::string apart =
      "[=] the destination and an operand share memory, but are not at one place: store the result in a "
      "tensor "
      "of its own";
  const auto late = slice_tokens(y, 64, 256), early = slice_tokens(y, 0, 192);
  CHECK(error_of<shape_error>([&] { run(ctx, late = mean_features(early) + 1 * late); }) == apart);
  CHECK(error_of<shape_error>([&] {
          run(ctx, slice_features(late, 0, 16) = w * relu(slice_features(early, 0, 16)));
        }) == apart);
  CHECK(error_of<shape_error>([&] { run(ctx, low = w * relu(low)); }) == "");
}

TEST_CASE("slices: of an activation that has another size now are refused") {
  context ctx(1);
  panel_matrix<float> x(32, 200), y(16, 200);
  const auto part = slice_features(x, 0, 16);
  const auto statement = (y = relu(part));
  x.resize(100);
  CHECK(error_of<shape_error>([&] { run(ctx, statement); }) ==
        "[slice] the activation was (32, 200) when the slice was made and is (32, 100) now: make the slice "
        "anew");
}

TEST_CASE("slices: an assignment of a slice or a tensor to a slice copies values") {
  context ctx(1);
  panel_matrix<float> x(32, 100), y(32, 100), z(16, 100);
  panel_matrix<float> const& constant = x;
  support::fill(x, 1);
  support::fill(z, 2);
  run(ctx, slice_features(y, 0, 16) = slice_features(constant, 16, 32), slice_features(y, 16, 32) = z);
  CHECK(y(0, 99) == x(16, 99));
  CHECK(y(31, 99) == z(15, 99));
  run(ctx, z = slice_features(x, 0, 16));
  CHECK(z(15, 7) == x(15, 7));
  slice_features(y, 0, 16)(3, 4) = 7;
  CHECK(y(3, 4) == 7);
  run(ctx, slice_features(y, 0, 16) *= 2.0, slice_features(y, 16, 32) -= z, slice_features(y, 0, 16) += 1);
  CHECK(y(3, 4) == 15);
  static_assert(!std::is_assignable_v<decltype(slice_features(constant, 0, 16)(0, 0)), float>);
}

}  // namespace slices_test
