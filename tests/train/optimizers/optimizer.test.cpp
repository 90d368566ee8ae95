// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <doctest/doctest.h>
#include <train/toy_model.hpp>

#include <tessera/train/optimizers/optimizer.hpp>

namespace optimizer_test {

using namespace tessera;

/// Descent by the gradient alone, whose step rounds the weights, or leaves it to the library.
template <bool Rounds> struct descent {
  void state(train::state_list&, any_tensor const&) const {}
  template <element T>
  void step(context& ctx, train::update const& now, train::parameter_values<T>& of) const {
    run(ctx, of.w = of.w - of.gradient * now.rate);
    if constexpr (Rounds) run(ctx, of.rounded());
  }
};

template <bool Rounds, class T> toy::model<T> after_steps() {
  context ctx(1);
  toy::model<T> m(1);
  toy::model<accumulator_t<T>> g(2);
  g.up.set_pattern(m.up.pattern());
  auto state = train::initial_state(descent<Rounds>(), m);
  for (int i = 0; i < 3; ++i) train::update_parameters(ctx, descent<Rounds>(), m, g, state, 0.1);
  return m;
}

TEST_CASE_TEMPLATE("optimizer: a step that does not round its weights is rounded behind it", T, float, double,
                   bfloat16, float16) {
  const toy::model<T> by_library = after_steps<false, T>(), before(1);
  CHECK(toy::same_bits(by_library, after_steps<true, T>()));
  CHECK(!toy::same_bits(by_library.up, before.up));
  CHECK(!toy::same_bits(by_library.down, before.down));
}

}  // namespace optimizer_test
