// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <type_traits>

#include <doctest/doctest.h>

#include <tessera/core/block_shape.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/pass.hpp>

namespace pass_test {

using namespace tessera;

// A layer of gradients would turn into a list that is gone when the backward asks it.
using gradients = nn::linear<float, block_shape<4>>;
struct observer {
  template <element T>
  void operator()(context&, std::size_t, panel_matrix<T> const&, panel_matrix<T> const&) const {}
  template <element T> void operator()(context&, std::size_t, panel_matrix<T> const&) const {}
};
template <class Of> constexpr bool takes_lists_with_a_name() {
  return std::is_constructible_v<Of, observer&, nn::parameter_list const&> &&
         std::is_constructible_v<Of, observer&, nn::mutable_parameter_list&> &&
         !std::is_constructible_v<Of, observer&, nn::parameter_list> &&
         !std::is_constructible_v<Of, observer&, gradients&> &&
         !std::is_constructible_v<Of, observer&, gradients const&>;
}
static_assert(takes_lists_with_a_name<nn::gradient_observer<float>>());
static_assert(takes_lists_with_a_name<nn::any_gradient_observer>());
static_assert(takes_lists_with_a_name<nn::input_observer<float>>());
static_assert(takes_lists_with_a_name<nn::any_input_observer>());

TEST_CASE("workspace: what came back is lent again, to those who want as many features") {
  context ctx(1);
  const sequences batch({0, 100});
  nn::workspace<float> room;
  const nn::pass<float> p{ctx, batch, room};
  panel_matrix<float> const* first = nullptr;
  {
    const auto a = p.borrow(20), b = p.borrow(20);
    CHECK(a.get() != b.get());
    CHECK((*a).tokens() == 100);
    first = a.get();
  }
  const auto other = p.borrow(30);
  CHECK((*other).features() == 30);
  const auto again = p.borrow(20, 50), more = p.borrow(20);
  CHECK((again.get() == first || more.get() == first));
  CHECK((*again).tokens() == 50);
}

TEST_CASE("fit: gives an activation its size and keeps its memory") {
  panel_matrix<float> x;
  nn::fit(x, 20, 100);
  CHECK(x.features() == 20);
  CHECK(x.tokens() == 100);
  float const* const memory = x.data();
  nn::fit(x, 20, 60);
  CHECK(x.tokens() == 60);
  CHECK(x.data() == memory);
}

}  // namespace pass_test
