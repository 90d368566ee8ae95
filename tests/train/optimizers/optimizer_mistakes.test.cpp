// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/types.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/optimizers/optimizer.hpp>

// Optimizers with a mistake, and how it is met.

namespace optimizer_mistakes_test {

using namespace tessera;

/// Divides zero by zero where a gradient is zero.
struct careless {
  static void parts(auto&, auto&...) {}
  void state(train::state_list& each, any_tensor const&) const { each.elements("sum"); }
  template <element T> void step(context& ctx, train::update const&, train::parameter_values<T>& of) const {
    auto sum = of.elements(0);
    const auto g = stored_values(of.gradient);
    run(ctx, sum = stored_values(sum) + g, of.w = stored_values(of.w) - g / abs(g), of.rounded());
  }
};
TEST_CASE_TEMPLATE("own optimizers: what overhangs a matrix stays zero, whatever a step makes of it", T,
                   SUPPORT_ELEMENTS) {
  context ctx(1);
  toy::model<T, block_shape<3, 5>> m(1, 1);
  auto g = nn::zeros_like(m);
  for (auto& v : g.up) v = 1;
  g.up.generate([](auto, auto) { return 2; });
  g.down.generate([](auto, auto) { return 2; });
  for (std::int64_t k = 0; k < g.bias.size(); ++k) g.bias[k] = 1;
  auto state = train::initial_state(careless{}, m);
  train::update_parameters(ctx, careless{}, m, g, state, 1);
  const auto overhanging = [](auto const& w) {
    std::int64_t count = 0;
    w.pattern().for_each([&](int i, int j, std::int64_t slot) {
      using block = typename std::remove_cvref_t<decltype(w)>::block;
      for (int k = 0; k < block::elements; ++k)
        if (i * block::rows + k / block::cols >= w.rows() || j * block::cols + k % block::cols >= w.cols()) {
          ++count;
          REQUIRE(double(w.at_slot(slot)[std::size_t(k)]) == 0);
        }
    });
    return count;
  };
  CHECK(overhanging(m.down) == 16 * 32 - 5 * 24);
  static_cast<void>(overhanging(m.up));
  static_cast<void>(overhanging(
      train::elements_of(state, m, nn::parameter_list(m)[0].is_narrow() ? "master" : "sum").down));
}

TEST_CASE("own optimizers: names of arrays are told apart") {
  const toy::model<float> m;
  struct twice {
    void state(train::state_list& each, any_tensor const&) const {
      each.elements("m");
      each.blocks("m");
    }
  };
  struct of_patterns {
    void state(train::state_list& each, any_tensor const&) const { each.elements("pattern.cols"); }
  };
  struct in_groups {
    void state(train::state_list& each, any_tensor const&) const {
      each.array<float>("ages", train::state_per::group, 7);
    }
  };
  CHECK(error_of<option_error>([&] { train::initial_state(twice{}, m); }) ==
        "[optimizer] an array of the state is called m, and so is an earlier one");
  CHECK(error_of<option_error>([&] { train::initial_state(of_patterns{}, m); }) ==
        "[optimizer] an array of the state is called pattern.cols, which stands for patterns");
  CHECK(error_of<option_error>([&] { train::initial_state(in_groups{}, m); }) ==
        "[optimizer] groups of ages have 7 values, and blocks 16: groups must divide them");
}

/// Takes its array for another kind.
struct one_a_block {
  void state(train::state_list& each, any_tensor const&) const { each.blocks("m"); }
  template <element T> void step(context&, train::update const&, train::parameter_values<T>& of) const {
    of.elements(0);
  }
};

TEST_CASE("own optimizers: an array of blocks is no array of stored values") {
  context ctx(1);
  toy::model<float> m(1);
  const toy::model<float> g(2);
  auto state = train::initial_state(one_a_block{}, m);
  CHECK(error_of<option_error>([&] { train::update_parameters(ctx, one_a_block{}, m, g, state, 0.1); }) ==
        "[optimizer] array 0 of the state, m, has not a number for each stored value: take it by array(0)");
}

}  // namespace optimizer_mistakes_test
