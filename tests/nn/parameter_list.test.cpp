// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/reference.hpp>
#include <support/types.hpp>

#include <tessera/exec/context.hpp>
#include <tessera/nn/attention.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/recurrent.hpp>

namespace parameter_list_test {

using namespace tessera;

/// A part of each kind.
template <class T> struct some_layer {
  using gradients = some_layer<accumulator_t<T>>;
  block_sparse_matrix<T, block_shape<4>> weight = support::random_matrix<T, block_shape<4>>(22, 18, 0.4, 1);
  dense_matrix<T> table{5, 18}, base{3, 3};
  feature_vector<accumulator_t<T>> gain = feature_vector<accumulator_t<T>>(18), absent = gain;
  nn::bias_term term = nn::bias_term::absent;

  static void parts(auto& each, auto&... of) {
    each("weight", of.weight...);
    each.frozen("base", of.base...);
    each.dense("table", of.table...);
    each("gain", of.gain...);
    each("absent", nn::optional(of.absent, of.term)...);
  }
};

static_assert(std::is_constructible_v<nn::parameter_list, some_layer<float> const&>);
static_assert(!std::is_constructible_v<nn::mutable_parameter_list, some_layer<float> const&>,
              "what is constant is not changed");

TEST_CASE_TEMPLATE("parameter list: names, roles, sizes and frozen tensors", T, SUPPORT_ELEMENTS) {
  some_layer<T> layer;
  const nn::parameter_list list(layer);
  CHECK(list.names() == std::vector<std::string>{"weight", "table", "gain"});
  CHECK(list.frozen_names() == std::vector<std::string>{"base"});
  CHECK(list.name(1) == "table");
  REQUIRE(list.size() == 3);
  CHECK(list[0].is_weight());
  CHECK(list[1].role == nn::parameter_role::dense_weight);
  CHECK(list[2].role == nn::parameter_role::vector);
  CHECK(list[0].is_narrow() == !std::is_same_v<T, accumulator_t<T>>);
  CHECK(!list[2].is_narrow());
  any_tensor const& w = list[0].tensor;
  CHECK(w.element().template is<T>());
  CHECK(std::string(w.element().name) == element_traits<T>::name);
  CHECK(w.rows() == 22);
  CHECK(w.cols() == 18);
  CHECK(w.block_elements() == 16);
  CHECK(w.size() == layer.weight.size());
  CHECK(w.pattern().serial() == layer.weight.pattern().serial());
  CHECK(w.data() == reinterpret_cast<std::byte const*>(layer.weight.data()));
  CHECK(list[2].tensor.rows() == 18);
  CHECK(list[2].tensor.cols() == 1);
  CHECK(!list[2].tensor.is_matrix());
  layer.term = nn::bias_term::present;
  CHECK(nn::parameter_list(layer).size() == 4);
}

TEST_CASE_TEMPLATE("parameter list: values are read as double, rounded, and follow patterns", T,
                   SUPPORT_ELEMENTS) {
  some_layer<T> layer, other;
  nn::mutable_parameter_list list(layer);
  any_tensor& w = list[0].tensor;
  const std::vector<double> values = w.values();
  for (std::size_t k = 0; k < values.size(); ++k) REQUIRE(values[k] == double(layer.weight.data()[k]));
  const std::vector<double> thirds(values.size(), 1.0 / 3);
  w.set_values(thirds);
  for (const T v : layer.weight) REQUIRE(v == T(1.0 / 3));
  w.assign(any_tensor(other.weight));
  CHECK(w.values() == values);
  const pattern dense = pattern::dense(w.pattern().block_rows(), w.pattern().block_cols()),
                sparse = w.pattern();
  w.set_pattern(dense);
  CHECK(layer.weight.pattern() == dense);
  CHECK(error_of<shape_error>([&] { w.assign(any_tensor(other.weight)); }) ==
        "[assign] the other matrix has not all blocks that are stored here");
  CHECK(
      error_of<shape_error>([&] { w.assign(any_tensor(layer.table)); }) ==
      message("[assign] 22 x 18 of ", element_traits<T>::name, " from 5 x 18 of ", element_traits<T>::name));
  w.reset(sparse);
  for (const double v : w.values()) CHECK(v == 0);
  CHECK(any_tensor(other.weight).block_sums() == block_sums(other.weight));
  const auto norms = block_norms(other.weight);
  CHECK(any_tensor(other.weight).weakest_blocks(3) == weakest(std::span(norms), 3));
}

TEST_CASE("parameter list: a narrow parameter is its master rounded, at any size") {
  context ctx(2, oversubscribe::allowed);
  some_layer<bfloat16> layer;
  nn::mutable_parameter_list list(layer);
  feature_vector<float> master(layer.weight.size());
  support::fill(master, 7);
  eval::plan plan(ctx.runs_on());
  list[0].round(plan, list[0].tensor, master);
  plan.run(ctx);
  pattern const& stored = layer.weight.pattern();
  stored.for_each([&](int i, int j, std::int64_t slot) {
    for (int k = 0; k < 16; ++k) {
      const bool overhangs = i * 4 + k / 4 >= 22 || j * 4 + k % 4 >= 18;
      CHECK(layer.weight.data()[slot * 16 + k] ==
            (overhangs ? bfloat16(0) : bfloat16(master[slot * 16 + k])));
    }
  });
}

TEST_CASE("parameter list: matrices above each other end where their rows do") {
  using attention = nn::multi_head_attention<float, block_shape<4>>;
  const auto ends = [](auto const& layer, std::size_t i) { return nn::parameter_list(layer)[i].row_ends(); };
  nn::transformer_config of{.hidden = 32, .heads = 4};
  const auto equal = attention::random(of, mask::causal, 1, "");
  CHECK(ends(equal, 0) == std::vector<std::int64_t>{32, 64, 96});
  CHECK(ends(equal, 1) == std::vector<std::int64_t>{32, 64, 96});  // the bias
  CHECK(ends(equal, 2) == std::vector<std::int64_t>{32});
  of.key_heads = 2;
  CHECK(ends(attention::random(of, mask::causal, 1, ""), 0) == std::vector<std::int64_t>{32, 48, 64});
  const auto cell = nn::lstm<float, block_shape<4>>::random(8, 1, 1, "");
  CHECK(ends(cell, 0) == std::vector<std::int64_t>{8, 16, 24, 32});
}

}  // namespace parameter_list_test
