// SPDX-License-Identifier: BSD-3-Clause
// A matrix unit in plain C++, whatever the CPU: what this file includes has an inline namespace of its own.
#ifndef TESSERA_EMULATED_AMX
#define TESSERA_EMULATED_AMX
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <support/cpu_context.hpp>
#include <support/evaluation.hpp>

#include <tessera/core/hash.hpp>
#include <tessera/nm_sparsity.hpp>
#include <tessera/statements/outer_products.hpp>
#include <tessera/statements/quantised.hpp>

namespace random_products_test {

static_assert(tessera::simd::has_amx, "the library was included before, without the unit");

// Every form of product, of random integers, shapes, patterns and slices, with the engines of a random CPU,
// against sums in double over the stored elements. The integers are so small that no order of a sum rounds
// it: results are equal. TESSERA_RANDOM_TRIALS is how many products each combination of types gets (10), and
// TESSERA_RANDOM_SEED the seed of them all (1); where it is given, the elements that were compared are
// printed.

using namespace tessera;

std::int64_t setting(char const* name, std::int64_t otherwise) {
  char const* const given = std::getenv(name);
  return given ? std::atoll(given) : otherwise;
}

/// Random numbers, one after another.
class chances {
 public:
  chances(std::int64_t trial, std::string const& types)
      : stream_(std::uint64_t(setting("TESSERA_RANDOM_SEED", 1)), random_purpose::test, std::uint64_t(trial),
                content_hash(types)) {}
  std::int64_t up_to(std::int64_t most) {
    return std::int64_t(stream_.below(next_++, std::uint64_t(most + 1)));
  }
  std::int64_t one_of(std::initializer_list<std::int64_t> some) {
    return some.begin()[up_to(std::ssize(some) - 1)];
  }
  std::int64_t between(std::int64_t least, std::int64_t most) { return least + up_to(most - least); }
  double density() {
    const std::int64_t kind = up_to(9);
    return kind == 0 ? 0 : kind < 3 ? 1 : double(1 + up_to(49)) / 100;
  }

 private:
  random_stream stream_;
  std::uint64_t next_ = 0;
};

/// Sizes that are often a little beside the sizes of blocks, registers, panels and chunks of x.
struct sizes {
  std::int64_t rows, cols, tokens;

  explicit sizes(chances& chance)
      : rows(side(chance)),
        cols(side(chance)),
        tokens(chance.up_to(9) == 0 ? chance.up_to(300) : chance.up_to(70)) {}
  static std::int64_t side(chances& chance) {
    if (chance.up_to(29) == 0) return chance.between(1024, 2200);
    return chance.up_to(3) == 0 ? chance.up_to(20) : chance.up_to(150);
  }
  std::int64_t longest_sum() const { return std::max({rows, cols, tokens, std::int64_t(1)}); }
};

/// The largest integer in the two factors of sums of `terms` products.
template <class E> std::int64_t largest(std::int64_t terms) {
  using of = std::numeric_limits<E>;
  const auto in_element = of::is_integer ? 127 : std::int64_t(1) << std::min(of::digits, 20);
  return std::max<std::int64_t>(
      1, std::min(in_element, std::int64_t(std::sqrt(double(1 << 22) / double(terms)))));
}

/// Fills a tensor with integers up to ± most, of which many are 0 now and then.
template <class Tensor> Tensor with_integers(Tensor to, std::int64_t most, chances& chance) {
  using T = typename Tensor::value_type;
  const bool zeros = chance.up_to(3) == 0;
  const auto next = [&] { return T(float(zeros && chance.up_to(1) ? 0 : chance.between(-most, most))); };
  if constexpr (requires { to.panels(); }) {
    for (std::int64_t f = 0; f < to.features(); ++f)
      for (std::int64_t t = 0; t < to.tokens(); ++t) to(f, t) = next();
  } else if constexpr (requires { to.generate([](auto...) { return T(); }); }) {
    to.generate([&](std::int64_t, std::int64_t) { return next(); });
  } else {
    std::generate(to.begin(), to.end(), next);
  }
  return to;
}

template <class E, class Block>
block_sparse_matrix<E, Block> some_matrix(std::int64_t rows, std::int64_t cols, std::int64_t most,
                                          chances& chance) {
  const double density = chance.density();
  return with_integers(
      support::random_matrix<E, Block>(rows, cols, density, std::uint64_t(chance.up_to(1000000))), most,
      chance);
}

/// An activation, alone or within one whose other numbers must not matter.
template <class E> struct surrounded {
  std::int64_t features, tokens;
  bool alone;
  std::int64_t first_feature, first_token;
  panel_matrix<E> whole;

  surrounded(std::int64_t features_, std::int64_t tokens_, bool alone_, chances& chance)
      : features(features_),
        tokens(tokens_),
        alone(alone_),
        first_feature(alone ? 0 : element_traits<E>::features_a_lane * chance.up_to(9)),
        first_token(alone ? 0 : panel_tokens * chance.up_to(2)),
        whole(first_feature + features, first_token + tokens + (alone ? 0 : chance.up_to(70))) {
    for (std::int64_t f = 0; f < whole.features(); ++f)
      for (std::int64_t t = 0; t < whole.tokens(); ++t)
        whole(f, t) = std::numeric_limits<E>::is_integer ? E(77) : std::numeric_limits<E>::quiet_NaN();
  }
  surrounded(panel_matrix<E> const& x, bool alone_, chances& chance)
      : surrounded(x.features(), x.tokens(), alone_, chance) {
    for (std::int64_t f = 0; f < features; ++f)
      for (std::int64_t t = 0; t < tokens; ++t) whole(first_feature + f, first_token + t) = x(f, t);
  }
  auto slice() {
    return slice_tokens(slice_features(whole, first_feature, whole.features()), first_token,
                        first_token + tokens);
  }
};

/// The stored elements of a matrix that are not zero, in double.
struct stored {
  std::int64_t rows, cols;
  struct element {
    std::int64_t i, j;
    double value;
  };
  std::vector<element> elements;

  template <class Matrix> explicit stored(Matrix const& w) : rows(w.rows()), cols(w.cols()) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j)
        if (const double value = double(w(i, j)); value != 0) elements.push_back({i, j, value});
  }
  support::reference times(support::reference const& x) const {
    support::reference y(rows, x.cols);
    for (element const& w : elements)
      for (std::int64_t t = 0; t < x.cols; ++t) y(w.i, t) += w.value * x(w.j, t);
    return y;
  }
  support::reference transposed_times(support::reference const& dy) const {
    support::reference dx(cols, dy.cols);
    for (element const& w : elements)
      for (std::int64_t t = 0; t < dy.cols; ++t) dx(w.j, t) += w.value * dy(w.i, t);
    return dx;
  }
};

std::map<std::string, std::int64_t> compared;  // elements, by types and CPU

/// What all products of a trial have: a CPU, and the elements that are other than they should be.
struct trial {
  chances chance;
  cpu_model const& cpu;
  support::cpu_context ctx;
  std::string name, shape;
  std::int64_t elements = 0, wrong = 0;

  trial(std::int64_t number, std::string const& types)
      : chance(number, types),
        cpu(cpu_models[chance.up_to(std::ssize(cpu_models) - 1)]),
        ctx(cpu.name, int(chance.one_of({1, 1, 2, 3}))),
        name(types + " with the engines of " + cpu.name) {}

  template <class Panels, class Expected> void compare(Panels const& got, Expected const& expected) {
    using T = typename Panels::value_type;
    for (std::int64_t f = 0; f < got.features(); ++f)
      for (std::int64_t t = 0; t < got.tokens(); ++t)
        count(double(got(f, t)) == double(T(float(expected(f, t)))));
    if constexpr (std::is_same_v<Panels, panel_matrix<T>>) wrong += !support::padding_is_zero(got);
  }
  template <class E, class Block, class Expected>
  void compare(block_sparse_matrix<E, Block> const& got, Expected const& expected) {
    got.pattern().for_each([&](int row, int col, std::int64_t slot) {
      for (int k = 0; k < Block::elements; ++k) {
        const std::int64_t i = row * Block::rows + k / Block::cols, j = col * Block::cols + k % Block::cols;
        if (i < got.rows() && j < got.cols())
          count(double(got.at_slot(slot)[std::size_t(k)]) == expected(i, j));
      }
    });
    wrong += !support::padding_is_zero(got);
  }
  void count(bool right) {
    ++elements;
    wrong += !right;
  }
  void done() {
    CHECK(wrong == 0);
    compared[name] += elements;
  }
};

template <class Try> void for_trials(std::string const& types, Try&& attempt) {
  const std::int64_t trials = setting("TESSERA_RANDOM_TRIALS", 10);
  for (std::int64_t number = 0; number < trials; ++number) {
    trial t(number, types);
    INFO("trial ", number, ": ", t.name, ", ", t.shape);
    attempt(t);
    t.done();
  }
}

template <class E> std::string word() { return element_traits<E>::name; }
template <class Block> std::string block_words() {
  return " in blocks of " + std::to_string(Block::rows) + " x " + std::to_string(Block::cols);
}

template <class W, class X, class Y, class Block> struct types {
  using weight = W;
  using activation = X;
  using result = Y;
  using block = Block;
};

/// W·x, Wᵀ·dy, and both with the expressions that may stand around a product.
template <class W, class X, class Y, class B>
void products(trial& to, W const& w, surrounded<X>& x, surrounded<X>& dy, panel_matrix<Y> const& r,
              B const& b) {
  const stored all(w);
  const auto rx = support::to_reference(x.slice()), rdy = support::to_reference(dy.slice());
  const auto sums = all.times(rx), back = all.transposed_times(rdy);
  const auto fused = [&](std::int64_t f, std::int64_t t) {
    return std::max(0.0, 0.5 * sums(f, t) + double(b[f])) + double(r(f, t));
  };
  const auto more = [&](std::int64_t f, std::int64_t t) { return double(r(f, t)) + sums(f, t); };
  const auto same = [&](std::int64_t f, std::int64_t t) { return sums(f, t); };
  panel_matrix<Y> y(w.rows(), x.tokens), z = y, added = r, dx(w.cols(), x.tokens);
  if (x.alone) {
    run(to.ctx, y = w * x.whole, z = relu(0.5 * (w * x.whole) + b) + r, dx = transposed(w) * dy.whole);
    run(to.ctx, added += w * x.whole);
  } else {
    surrounded<Y> part(w.rows(), x.tokens, false, to.chance);
    run(to.ctx, part.slice() = w * x.slice(), z = relu(0.5 * (w * x.slice()) + b) + r,
        dx = transposed(w) * dy.slice());
    run(to.ctx, added += w * x.slice());
    to.compare(part.slice(), same);
    y = panel_matrix<Y>(w.rows(), 0);
  }
  to.compare(y, same);
  to.compare(z, fused);
  to.compare(added, more);
  to.compare(dx, [&](std::int64_t f, std::int64_t t) { return back(f, t); });
}

TEST_CASE_TEMPLATE_DEFINE("random: W * x, transposed(W) * dy and the sampled dy * transposed(x) are exact",
                          Types, three_products) {
  using X = typename Types::activation;
  using Y = typename Types::result;
  using Block = typename Types::block;
  using sum = accumulator_t<typename Types::weight>;
  for_trials(word<typename Types::weight>() + " by " + word<X>() + " to " + word<Y>() + block_words<Block>(),
             [](trial& to) {
               chances& chance = to.chance;
               const sizes size(chance);
               to.shape = message(size.rows, " x ", size.cols, ", ", size.tokens, " tokens");
               const std::int64_t most = largest<X>(size.longest_sum());
               const auto w = some_matrix<typename Types::weight, Block>(
                   size.rows, size.cols, largest<typename Types::weight>(size.longest_sum()), chance);
               const bool alone = chance.up_to(1) == 0;
               surrounded<X> x(with_integers(panel_matrix<X>(size.cols, size.tokens), most, chance), alone,
                               chance),
                   dy(with_integers(panel_matrix<X>(size.rows, size.tokens), most, chance), alone, chance);
               const auto r = with_integers(panel_matrix<Y>(size.rows, size.tokens), 100, chance);
               const auto b = with_integers(feature_vector<sum>(size.rows), 100, chance);
               products(to, w, x, dy, r, b);

               const auto rx = support::to_reference(x.slice()), rdy = support::to_reference(dy.slice());
               const auto exact = [&](std::int64_t i, std::int64_t j) {
                 double all = 0;
                 for (std::int64_t t = 0; t < size.tokens; ++t) all += rdy(i, t) * rx(j, t);
                 return all;
               };
               block_sparse_matrix<sum, Block> g(size.rows, size.cols, w.pattern());
               const auto before = with_integers(g, 100, chance);
               auto added = before;
               if (alone)
                 run(to.ctx, g = sampled(dy.whole * transposed(x.whole)),
                     added += sampled(dy.whole * transposed(x.whole)));
               else
                 run(to.ctx, g = sampled(dy.slice() * transposed(x.slice())),
                     added += sampled(dy.slice() * transposed(x.slice())));
               to.compare(g, exact);
               const auto now = [&](std::int64_t i, std::int64_t j) {
                 return double(g(i, j)) + double(before(i, j));  // g is right, or was counted
               };
               to.compare(added, now);
             });
}

template <class Block>
using elements_in = std::tuple<
#ifdef TESSERA_ALL_TYPES
    types<float, float, float, Block>, types<double, double, double, Block>,
    types<bfloat16, bfloat16, bfloat16, Block>, types<float16, float16, float, Block>,
    types<float16, float16, float16, Block>, types<bfloat16, float, float, Block>,
    types<float, bfloat16, float, Block>, types<float8_e4m3, float, float, Block>,
    types<float8_e5m2, float16, float16, Block>, types<float8_e4m3, float8_e4m3, float, Block>,
    types<int8, bfloat16, bfloat16, Block>, types<float8_e4m3, bfloat16, float, Block>,
#endif
#ifndef TESSERA_REDUCED_TYPES
    types<int8, int8, float, Block>,
#endif
    types<bfloat16, bfloat16, float, Block>>;
TEST_CASE_TEMPLATE_APPLY(three_products, elements_in<block_shape<16>>);
#ifdef TESSERA_ALL_TYPES
TEST_CASE_TEMPLATE_APPLY(three_products, elements_in<block_shape<8>>);
TEST_CASE_TEMPLATE_APPLY(three_products, elements_in<block_shape<4>>);
TEST_CASE_TEMPLATE_APPLY(three_products, elements_in<block_shape<1>>);
TEST_CASE_TEMPLATE_APPLY(three_products, elements_in<block_shape<32>>);
TEST_CASE_TEMPLATE_APPLY(three_products, elements_in<block_shape<4, 16>>);
TEST_CASE_TEMPLATE_APPLY(three_products, elements_in<block_shape<16, 4>>);
TEST_CASE_TEMPLATE_APPLY(three_products, elements_in<block_shape<10, 6>>);
TEST_CASE_TEMPLATE_APPLY(three_products, elements_in<block_shape<5, 3>>);
#endif

template <class E, class X, int N, int M> struct nm_types {
  using weight = E;
  using activation = X;
  using shape = nm_shape<N, M>;
};

TEST_CASE_TEMPLATE_DEFINE("random: products of matrices in N:M sparsity are exact", Types, nm) {
  using W = typename Types::weight;
  using X = typename Types::activation;
  using Shape = typename Types::shape;
  for_trials(word<W>() + " by " + word<X>() + " in N:M sparsity", [](trial& to) {
    chances& chance = to.chance;
    sizes size(chance);
    size.cols = size.cols / Shape::group * Shape::group;
    to.shape = message(size.rows, " x ", size.cols, ", ", size.tokens, " tokens");
    const std::int64_t most = largest<X>(size.longest_sum());
    const nm_sparse_matrix<W, Shape> w(
        with_integers(block_sparse_matrix<W, block_shape<1>>(size.rows, size.cols),
                      largest<W>(size.longest_sum()), chance));
    const bool alone = chance.up_to(1) == 0;
    surrounded<X> x(with_integers(panel_matrix<X>(size.cols, size.tokens), most, chance), alone, chance),
        dy(with_integers(panel_matrix<X>(size.rows, size.tokens), most, chance), alone, chance);
    const auto r = with_integers(panel_matrix<X>(size.rows, size.tokens), 100, chance);
    products(to, w, x, dy, r, with_integers(feature_vector<accumulator_t<W>>(size.rows), 100, chance));
  });
}
#ifndef TESSERA_REDUCED_TYPES
TEST_CASE_TEMPLATE_INVOKE(nm, nm_types<bfloat16, bfloat16, 2, 4>);
#endif
#ifdef TESSERA_ALL_TYPES
TEST_CASE_TEMPLATE_INVOKE(nm, nm_types<float, float, 2, 4>, nm_types<double, double, 2, 4>,
                          nm_types<float16, float16, 2, 4>, nm_types<float, bfloat16, 4, 8>,
                          nm_types<bfloat16, float, 1, 2>, nm_types<bfloat16, bfloat16, 3, 5>,
                          nm_types<float, float, 7, 16>);
#endif

TEST_CASE_TEMPLATE_DEFINE("random: products of two block-sparse matrices are exact", Types, two_matrices) {
  using A = typename Types::weight;
  using B = typename Types::activation;
  using C = typename Types::result;
  using Block = typename Types::block;
  for_trials(word<A>() + " by " + word<B>() + ", two matrices" + block_words<Block>(), [](trial& to) {
    chances& chance = to.chance;
    const sizes size(chance);
    const std::int64_t cols = sizes::side(chance);
    to.shape = message(size.rows, " x ", size.cols, " x ", cols);
    const auto a = some_matrix<A, Block>(size.rows, size.cols, largest<A>(size.longest_sum()), chance);
    const auto b = some_matrix<B, block_shape<Block::cols, Block::rows>>(
        size.cols, cols, largest<B>(size.longest_sum()), chance);
    const auto exact = stored(a).times(support::to_reference(b));
    block_sparse_matrix<C, block_shape<Block::rows>> c(size.rows, cols,
                                                       product_pattern(a.pattern(), b.pattern())),
        outer = c;
    run(to.ctx, c = a * b, outer = by_outer_products(a * b));
    to.compare(c, exact);
    to.compare(outer, exact);
    block_sparse_matrix<C, block_shape<Block::rows>> all(size.rows, cols);
    run(to.ctx, all = a * b);
    to.compare(all, exact);
  });
}
TEST_CASE_TEMPLATE_INVOKE(two_matrices, types<float, float, float, block_shape<4>>);
#ifdef TESSERA_ALL_TYPES
TEST_CASE_TEMPLATE_INVOKE(two_matrices, types<float, float, float, block_shape<16>>,
                          types<float, float, float, block_shape<8>>,
                          types<float, float, float, block_shape<1>>,
                          types<double, double, double, block_shape<10, 6>>,
                          types<bfloat16, bfloat16, float, block_shape<16>>,
                          types<bfloat16, bfloat16, float, block_shape<1>>,
                          types<float16, float16, float, block_shape<4, 16>>);
#endif

TEST_CASE("random: the elements that were compared") {
  if (!std::getenv("TESSERA_RANDOM_TRIALS")) return;
  std::int64_t all = 0;
  for (auto const& [name, elements] : compared) {
    MESSAGE(name, ": ", elements);
    all += elements;
  }
  MESSAGE("elements in all: ", all);
}

}  // namespace random_products_test
