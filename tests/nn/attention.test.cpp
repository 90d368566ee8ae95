// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/attention.hpp>

namespace attention_test {

using namespace tessera;
using support::some_blocks;
using support::trial;

using layer = nn::multi_head_attention<double, block_shape<4>>;

layer some_layer(mask seen) {
  layer l{{60, 20, some_blocks(60, 20, 0.5, 1)}, {20, 20, some_blocks(20, 20, 0.5, 2)}, 2, seen};
  support::randomise(l);
  return l;
}

TEST_CASE("attention: gradients of the layer are right, causal") {
  trial t;
  layer l = some_layer(mask::causal);
  support::check_layer(l, 20, t.pass());
}

TEST_CASE("attention: gradients of the layer are right in both directions with padded keys") {
  trial t({0, 70, 83, 90}, {50, 13, 1});
  layer l = some_layer(mask::bidirectional);
  support::check_layer(l, 20, t.pass());
}

TEST_CASE("attention: gradients of the layer are right with rotary positions") {
  trial t({0, 70, 83, 90}, {50, 13, 1});
  layer l = some_layer(mask::bidirectional);
  l.positions = rotary_positions<double>(10, 70);
  support::randomise(l);
  support::check_layer(l, 20, t.pass());
}

TEST_CASE("attention: gradients of the layer are right where heads of queries share keys") {
  trial t({0, 70, 83, 200}, {50, 13, 110});
  // Four heads of queries and two of keys, of four features.
  layer l{{32, 20, some_blocks(32, 20, 0.5, 1)}, {20, 16, some_blocks(20, 16, 0.5, 2)}, {4, 2}, mask::causal};
  l.positions = rotary_positions<double>(4, 117);
  support::randomise(l);
  support::check_layer(l, 20, t.pass());
}

TEST_CASE("attention: gradients of the layer are right where heads see some blocks of keys") {
  trial t({0, 128, 200});
  for (const mask seen : {mask::bidirectional, mask::causal}) {
    layer l = some_layer(seen);
    l.blocks = {band_pattern(2, 2, 0, 1), band_pattern(2, 2, 1, 0)};
    support::check_layer(l, 20, t.pass());
  }
}

/// An aggregate whose first member is a number, which heads must not be taken for.
struct capped {
  double cap = 50;
  double term(int, std::int64_t) const { return 0; }
  template <class V> V operator()(V score, V) const { return score; }
  template <class V> V derivative(V, V) const { return V(1); }
};

TEST_CASE("attention: a random layer leaves a functor that is an aggregate as it is") {
  nn::transformer_config of;
  of.hidden = 16;
  of.heads = 4;
  using capped_layer = nn::multi_head_attention<double, block_shape<4>, capped>;
  CHECK(capped_layer::random(of, mask::causal, 1, "").score.cap == 50);
}

TEST_CASE("attention: heads whose features would share lanes are refused with what is right") {
  nn::transformer_config of;
  of.hidden = 36;
  of.heads = 12;
  std::string said;
  try {
    static_cast<void>(nn::multi_head_attention<bfloat16, block_shape<4>>::size(of));
  } catch (option_error const& e) {
    said = e.what();
  }
  CHECK(said == "[transformer] heads have 3 features, of which 2 share a lane: make hidden 48");
}

TEST_CASE("attention: a causal token does not depend on later ones, nor on other sequences") {
  trial t({0, 40, 83});
  const layer l = some_layer(mask::causal);
  panel_matrix<double> x(20, 83), before(20, 83), after(20, 83);
  support::fill(x, 1);
  layer::saved saved;
  l.forward(x, before, saved, t.pass());
  for (std::int64_t f = 0; f < 20; ++f) x(f, 30) += 1;
  l.forward(x, after, saved, t.pass());
  for (std::int64_t n = 0; n < 83; ++n) {
    bool same = true;
    for (std::int64_t f = 0; f < 20; ++f) same = same && before(f, n) == after(f, n);
    CHECK(same == (n < 30 || n >= 40));
  }
}

}  // namespace attention_test
