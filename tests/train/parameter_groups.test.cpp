// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <nn/lora.hpp>
#include <support/reference.hpp>

#include <tessera/io/json.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/parameter_groups.hpp>
#include <tessera/train/sparsity/policies/evolving_pattern.hpp>
#include <tessera/train/training.hpp>

namespace parameter_groups_test {

using namespace tessera;

/// Two sparse linear layers side by side; the loss is the sum of all parameters, whose gradients are 1.
template <element T> struct model {
  using layer = nn::linear<T, block_shape<4>>;
  using gradients = model<accumulator_t<T>>;
  layer first, second;
  static void parts(auto& each, auto&... of) {
    each("first", of.first...);
    each("second", of.second...);
  }
};
model<float> some_model() {
  const pattern stored = random_pattern(6, 6, 0.5, 1);
  model<float> m{{24, 24, stored}, {24, 24, stored}};
  m.first.weight.fill(1);
  m.second.weight.fill(1);
  return m;
}

template <class Training>
train::step_report step(context& ctx, Training& t, double rate = 0.1, double clip = 0) {
  return train::train_step(ctx, t, {rate, clip}, [&](int) {
    nn::for_each_parameter(t.gradients, [](nn::parameter_name const&, auto& g) {
      if constexpr (nn::is_matrix<decltype(g)>)
        g.fill(1);
      else
        std::fill(g.begin(), g.end(), 1.0f);
    });
    return train::token_loss{1, 1};
  });
}

TEST_CASE("parameter groups: the first group whose names match sets rate and decay") {
  context ctx(1);
  auto m = some_model();
  train::training t(m, train::sgd{.momentum = 0, .weight_decay = 0.5});
  t.group_parameters({{.names = "first.bias", .rate = 10},
                      {.names = "first.*", .rate = 2, .decay = 0},
                      {.names = "*.weight", .decay = 0.5}});
  step(ctx, t);
  CHECK(m.first.bias[0] == doctest::Approx(-0.1 * 10));
  CHECK(m.first.weight.begin()[0] == doctest::Approx(1 - 0.1 * 2));
  CHECK(m.second.weight.begin()[0] == doctest::Approx(1 - 0.1 * (1 + 0.25)));
  CHECK(m.second.bias[0] == doctest::Approx(-0.1));
}

TEST_CASE("parameter groups: a frozen parameter stays as it is, has no moments, and is no part of the norm") {
  context ctx(1);
  auto m = some_model();
  train::training t(m, train::adamw{});
  t.group_parameters({{.names = "*.weight", .rate = 0}});
  const train::step_report report = step(ctx, t);
  CHECK(report.gradient_norm == doctest::Approx(std::sqrt(48.0)));
  CHECK(std::all_of(m.first.weight.begin(), m.first.weight.end(), [](float v) { return v == 1; }));
  const auto moments = train::elements_of(t.state, m, "first_moment").first.weight;
  CHECK(std::all_of(moments.begin(), moments.end(), [](float v) { return v == 0; }));
  CHECK(m.first.bias[0] != 0);
  CHECK(t.state.size_bytes() == 2 * std::size_t(m.first.bias.size() + m.second.bias.size()) * sizeof(float));
  t.group_parameters({{.names = "*.bias", .rate = 0}});  // the weights begin
  step(ctx, t);
  CHECK(!t.state.has(1, "first_moment"));
  CHECK(m.first.weight.begin()[0] != 1);
}

TEST_CASE("parameter groups: a file of before frozen parameters had no moments is read, and one with none") {
  context ctx(1);
  const scratch_folder folder;
  auto m = some_model();
  train::training t(m, train::adamw{});
  step(ctx, t);
  const train::optimizer_state all = t.state;
  t.group_parameters({{.names = "first.*", .rate = 0}});
  train::save(t, folder / "without", {});
  t.state = all;
  train::save(t, folder / "with", {});
  for (char const* name : {"with", "without"}) {
    auto other = some_model();
    train::training resumed(other, train::adamw{});
    resumed.group_parameters({{.names = "first.*", .rate = 0}});
    train::resume(resumed, train::checkpoint(folder / name));
    CHECK(!resumed.state.has(0, "first_moment"));
    CHECK(resumed.state.has(2, "first_moment"));
    train::training whole(other, train::adamw{});
    const auto read = [&] {
      train::resume(whole, train::checkpoint(folder / name), train::other_settings::allowed);
    };
    if (name == std::string("with"))
      CHECK_NOTHROW(read());
    else
      CHECK_THROWS_WITH_AS(read(), doctest::Contains("first.weight.first_moment"), io_error);
  }
}

TEST_CASE("parameter groups: a backward that computes the gradient of a frozen parameter is told so") {
  context ctx(1);
  auto m = some_model();
  train::training t(m, train::adamw{});
  t.group_parameters({{.names = "first.*", .rate = 0}});
  const panel_matrix<float> dy(24, 5);
  const std::string told =
      error_of<shape_error>([&] { static_cast<void>(t.gradients.first.bias += sum_tokens(dy)); });
  CHECK(told ==
        "[=] the destination has 0 features but the expression 24: if it is a gradient, nobody wants it");
}

TEST_CASE("parameter groups: one layer keeps its pattern while the other evolves") {
  context ctx(1);
  for (bool frozen : {false, true}) {
    auto m = some_model();
    const pattern before = m.first.weight.pattern();
    train::training t(m, train::sgd{}, train::evolving_pattern{.interval = 1, .steps = 10, .fraction = 0.5});
    if (frozen)
      t.group_parameters({{.names = "first.weight", .rate = 0}});
    else
      t.group_parameters({{.names = "first.*", .evolves = false}});
    const train::step_report report = step(ctx, t);
    CHECK(report.changed.replaced > 0);
    CHECK(m.first.weight.pattern() == before);
    CHECK_FALSE(m.second.weight.pattern() == before);
    CHECK_THROWS_AS(t.group_parameters({{.names = "*", .evolves = false}}), option_error);
  }
}

TEST_CASE("parameter groups: a name that matches nothing and a factor without meaning are refused") {
  auto m = some_model();
  train::training t(m, train::sgd{});
  const auto says = [&](train::parameter_group group) {
    return error_of<option_error>([&] { t.group_parameters({group}); });
  };
  CHECK(says({.names = "third.*"}) ==
        "[parameter_groups] \"third.*\" matches no parameter that no earlier group has; they have names such "
        "as "
        "\"first.weight\", and * stands for any text");
  CHECK(says({.names = "*", .rate = -1}) ==
        "[parameter_groups] rate of \"*\" is -1: it is a factor, at least 0");
  CHECK(says({.names = "*", .decay = std::nan("")}).find("decay of") != std::string::npos);
  CHECK(error_of<option_error>([&] {
          t.group_parameters({{.names = "*"}, {.names = "first.*"}});
        }).find("matches no parameter") != std::string::npos);
}

// ---- parts that a layer lists as frozen ----

template <element T> using adapter = lora_layer::lora<T, block_shape<4>, 8>;
template <element T> adapter<T> some_lora(std::uint64_t seed) {
  auto m = adapter<T>::random(24, 24, 0.4, nn::bias_term::present, seed, "adapter");
  for (auto* matrix : {&m.down.weight, &m.up.weight}) support::fill(*matrix, ++seed);
  support::fill(m.base.weight, seed + 2);
  support::fill(m.base.bias, seed + 3);
  return m;
}

TEST_CASE_TEMPLATE("frozen parts: gradients, masters and moments have no memory for them", T, float,
                   bfloat16) {
  auto m = some_lora<T>(1);
  const train::training t(m, train::adamw{});
  CHECK(t.gradients.base.weight.size() == 0);
  CHECK(t.gradients.base.bias.size() == 0);
  CHECK(t.gradients.down.weight.size() == m.down.weight.size());
  CHECK(t.state.parameters.size() == 2);
  CHECK(nn::zeros_like(m).base.weight.size() == 0);
  std::vector<std::string> names, frozen;
  nn::for_each_parameter(m,
                         [&](nn::parameter_name const& name, auto const&) { names.push_back(name.text()); });
  nn::for_each_frozen(m, [&](nn::parameter_name const& name, auto const&) { frozen.push_back(name.text()); });
  CHECK(names == std::vector<std::string>{"down.weight", "up.weight"});
  CHECK(frozen == std::vector<std::string>{"base.weight", "base.bias"});
}

TEST_CASE_TEMPLATE("frozen parts: a checkpoint keeps them, with their pattern", T, float, bfloat16) {
  const scratch_folder folder;
  auto m = some_lora<T>(1), other = some_lora<T>(9);
  train::training t(m, train::adamw{}), into(other, train::adamw{});
  train::save(t, folder / "c", io::json());
  const train::checkpoint from(folder / "c");
  train::resume(into, from);
  CHECK(other.base.weight.pattern() == m.base.weight.pattern());
  CHECK(std::ranges::equal(other.base.weight, m.base.weight));
  CHECK(std::ranges::equal(other.base.bias, m.base.bias));
  CHECK(std::ranges::equal(other.up.weight, m.up.weight));
  auto third = some_lora<T>(5);
  from.load(third);
  CHECK(std::ranges::equal(third.base.weight, m.base.weight));
}

}  // namespace parameter_groups_test
