// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/types.hpp>
#include <train/toy_model.hpp>

#include <tessera/nn/model_size.hpp>
#include <tessera/train/clipping.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/lion.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/sparsity/scores/densify.hpp>
#include <tessera/train/training.hpp>

// Optimizers that the library does not have, as a user would write them: all of each stands in this file.

namespace own_optimizer_test {

using namespace tessera;
using train::lion;

/// The second moment of a matrix from means of its rows and columns (Adafactor: Shazeer, Stern 2018,
/// algorithm 4 without update clipping), over stored values; of a vector one for each value.
struct factored {
  double beta2 = 0.99, epsilon = 1e-12;

  static void parts(auto& each, auto&... of) { each.setting("beta2", of.beta2...); }
  void state(train::state_list& each, any_tensor const& parameter) const {
    if (!parameter.is_matrix()) return each.elements("second_moment");
    each.rows("row_moment");
    each.cols("col_moment");
  }
  template <element T>
  void step(context& ctx, train::update const& now, train::parameter_values<T>& of) const {
    any_tensor const& p = of.parameter.tensor;
    const int height = p.block_rows(), width = p.block_cols();
    const auto square_at = [&](std::int64_t k) {
      return std::pow(double(of.gradient[k]) * now.gradient_scale, 2) + epsilon;
    };
    const auto apply = [&](std::int64_t k, double second) {
      of.w[k] -= T(now.rate * double(of.gradient[k]) * now.gradient_scale / std::sqrt(second));
    };
    const auto average = [&](T& mean, double value) { mean = T(beta2 * double(mean) + (1 - beta2) * value); };
    if (!p.is_matrix()) {
      for (std::int64_t k = 0; k < p.size(); ++k)
        average(of.array(0)[std::size_t(k)], square_at(k)), apply(k, double(of.array(0)[std::size_t(k)]));
      return;
    }
    std::vector<double> rows(std::size_t(p.rows())), cols(std::size_t(p.cols()));
    const auto each = [&](auto&& visit) {
      p.pattern().for_each([&](int i, int j, std::int64_t slot) {
        for (int k = 0; k < height * width; ++k)
          if (const auto r = std::size_t(i * height + k / width), c = std::size_t(j * width + k % width);
              r < rows.size() && c < cols.size())
            visit(slot * height * width + k, r, c);
      });
    };
    each([&](std::int64_t k, std::size_t r, std::size_t c) {
      rows[r] += square_at(k), cols[c] += square_at(k);
    });
    double all = 0;
    for (std::size_t r = 0; r < rows.size(); ++r)
      average(of.array(0)[r], rows[r]), all += double(of.array(0)[r]);
    for (std::size_t c = 0; c < cols.size(); ++c) average(of.array(1)[c], cols[c]);
    each([&](std::int64_t k, std::size_t r, std::size_t c) {
      apply(k, double(of.array(0)[r]) * double(of.array(1)[c]) / all);
    });
    run(ctx, of.rounded());
  }
};

/// A share of [0, 1] as the fourth power of equal steps: second moments span many orders of magnitude.
constexpr train::eight_bits fourth_powers{
    [](std::uint8_t code) { return std::pow(float(code) / 255, 4.0F); },
    [](float share) { return std::uint8_t(std::lround(std::pow(share, 0.25F) * 255)); }};

/// AdamW with both moments in 8 bits (Dettmers et al. 2022), a scale for each 64 values.
struct adamw_8_bits {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;

  static void parts(auto& each, auto&... of) { each.setting("beta1", of.beta1...); }
  void state(train::state_list& each, any_tensor const&) const {
    each.scaled("first_moment", 64, train::linear_eight_bits);
    each.scaled("second_moment", 64, fourth_powers);
  }
  template <element T>
  void step(context& ctx, train::update const& now, train::parameter_values<T>& of) const {
    auto first = of.scaled(0), second = of.scaled(2);
    const double correction1 = 1 - std::pow(beta1, double(now.number)),
                 correction2 = 1 - std::pow(beta2, double(now.number));
    ctx.run(int(first.groups()), [&](int group, std::byte*) {
      double m[64], v[64];
      const std::int64_t at = first.first(group);
      for (std::int64_t k = 0; k < first.size(group); ++k) {
        const double g = double(of.gradient[at + k]) * now.gradient_scale;
        m[k] = beta1 * double(first[at + k]) + (1 - beta1) * g;
        v[k] = beta2 * double(second[at + k]) + (1 - beta2) * g * g;
        const double w = double(of.w[at + k]) * (1 - now.rate * weight_decay * now.decay);
        of.w[at + k] = T(w - now.rate * m[k] / correction1 / (std::sqrt(v[k] / correction2) + epsilon));
      }
      first.store(group, m);
      second.store(group, v);
    });
    run(ctx, of.rounded());
  }
};

/// AdamW with one second moment for each block (after Adam-mini: Zhang et al. 2024).
struct adamw_by_block {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;

  static void parts(auto& each, auto&... of) { each.setting("beta1", of.beta1...); }
  void state(train::state_list& each, any_tensor const&) const {
    each.elements("first_moment");
    each.blocks("second_moment");
  }
  template <element T>
  void step(context& ctx, train::update const& now, train::parameter_values<T>& of) const {
    auto m = of.elements(0);
    const std::span<T> v = of.array(1);
    if (v.empty()) return;
    const std::int64_t elements = m.size() / std::ssize(v);
    const double correction1 = 1 - std::pow(beta1, double(now.number)),
                 correction2 = 1 - std::pow(beta2, double(now.number));
    ctx.run(int(v.size()), [&](int block, std::byte*) {
      const std::int64_t begin = block * elements, end = begin + elements;
      double squares = 0;
      for (std::int64_t k = begin; k < end; ++k)
        squares += std::pow(double(of.gradient[k]) * now.gradient_scale, 2);
      T& second = v[std::size_t(block)];
      second = T(beta2 * double(second) + (1 - beta2) * squares / double(elements));
      const double step = now.rate / correction1 / (std::sqrt(double(second) / correction2) + epsilon);
      for (std::int64_t k = begin; k < end; ++k) {
        m[k] = T(beta1 * double(m[k]) + (1 - beta1) * double(of.gradient[k]) * now.gradient_scale);
        of.w[k] -= T(step * double(m[k]));
      }
    });
    run(ctx, of.rounded());
  }
};

const train::evolving_pattern evolving{.interval = 4, .steps = 30, .fraction = 0.4, .seed = 5};

template <class Training> train::step_report step(context& ctx, Training& t, double rate) {
  const auto key = std::uint64_t(t.progress.step);
  return train::train_step(ctx, t, {rate, 1},
                           [&](int) { return toy::accumulate(ctx, t.model, t.gradients, key, 90); });
}

/// One of several, so that a training is compiled once for all of them.
template <class... Optimizer> struct one_of {
  std::variant<Optimizer...> chosen;

  static void parts(auto& each, auto const& of) {
    std::visit([&](auto const& by) { each.setting("chosen", by), each("", by); }, of.chosen);
  }
  void state(train::state_list& each, any_tensor const& parameter) const {
    std::visit([&](auto const& by) { by.state(each, parameter); }, chosen);
  }
  template <element T>
  void step(context& ctx, train::update const& now, train::parameter_values<T>& of) const {
    std::visit([&](auto const& by) { by.step(ctx, now, of); }, chosen);
  }
};

template <class T, class Block, class Optimizer> void check_training(Optimizer const& by, double rate) {
  const scratch_folder scratch;
  context one(1), three(3, oversubscribe::allowed);
  using model = toy::model<T, Block>;
  using training = train::training<model, Optimizer>;
  model m;
  training whole(m, by, evolving);
  double first = 0, last = 0;
  for (int i = 0; i < 30; ++i) {
    if (i == 8 || i == 11) train::save(whole, scratch / std::to_string(i), io::json());
    last = step(one, whole, rate).loss;
    if (i == 0) first = last;
  }
  CHECK(last < 0.8 * first);
  for (const int i : {8, 11}) {
    model other(77);
    training resumed(other, by, evolving);
    train::resume(resumed, train::checkpoint(scratch / std::to_string(i)));
    while (resumed.progress.step < 30) step(three, resumed, rate);
    CHECK(toy::same_bits(resumed, whole));
  }
}

/// Codes of which 128 stands for zero.
constexpr train::eight_bits with_offset{
    [](std::uint8_t code) { return float(int(code) - 128) / 127; },
    [](float share) { return std::uint8_t(128 + std::lround(share * 127)); }};
struct offset_momentum {
  static void parts(auto&, auto&...) {}
  void state(train::state_list& each, any_tensor const&) const { each.scaled("momentum", 7, with_offset); }
  template <element T>
  void step(context& ctx, train::update const& now, train::parameter_values<T>& of) const {
    auto momentum = of.scaled(0);
    std::vector<double> next(7);
    for (std::int64_t group = 0; group < momentum.groups(); ++group) {
      const std::int64_t first = momentum.first(group);
      for (std::int64_t k = 0; k < momentum.size(group); ++k) {
        next[std::size_t(k)] =
            0.9 * double(momentum[first + k]) + double(of.gradient[first + k]) * now.gradient_scale;
        of.w[first + k] -= T(now.rate * next[std::size_t(k)]);
      }
      momentum.store(group, next.data());
    }
    run(ctx, of.rounded());
  }
};

template <class T, class Block> void check_all() {
  using any = one_of<lion, factored, adamw_8_bits, adamw_by_block, offset_momentum>;
  for (any const& by : {any{lion{}}, any{factored{}}, any{adamw_8_bits{}}, any{adamw_by_block{}}})
    check_training<T, Block>(by, 0.01);
  check_training<T, Block>(any{offset_momentum{}}, 0.05);  // codes of zeros overhang
}
TEST_CASE_TEMPLATE("own optimizers: train, are saved and go on with the same bits", T, float, double,
                   bfloat16) {
  check_all<T, block_shape<4>>();
}
template <class T> struct one_matrix {
  dense_matrix<T> w{64, 64};
  static void parts(auto& each, auto&... of) { each("w", of.w...); }
};
TEST_CASE_TEMPLATE("own optimizers: the size of a state is told by that of a model", T, float, double,
                   bfloat16) {
  const one_matrix<T> m;
  const auto size = nn::model_size::of<T>().matrix(64, 64, 1, {16, 16}).part(nn::model_size::of<T>());
  const auto check = [&](auto const& by, bool births = false) {
    std::size_t bytes = 0;
    const train::optimizer_state state = train::initial_state(by, m, births);
    for (train::state_array const& array : state.parameters[0]) bytes += array.bytes.size();
    CHECK(bytes > 0);
    CHECK(train::state_bytes(by, size, births) == double(bytes));
  };
  check(train::adamw{}), check(train::sgd{}), check(lion{}), check(factored{}), check(adamw_8_bits{}),
      check(adamw_by_block{});
  check(train::adamw{.newborn = train::newborn_moments::age}), check(train::sgd{}, true);
}
TEST_CASE_TEMPLATE("own optimizers: of any block", Block, block_shape<1>, block_shape<3, 5>) {
  check_all<float, Block>();
}

/// The state of W, before and after an update of the pattern, and where each of its blocks was: -1 if
/// nowhere.
template <class Block, class Optimizer> struct moved_state {
  toy::model<float, Block> model;
  train::optimizer_state before, after;
  std::vector<std::int64_t> was;

  explicit moved_state(std::uint64_t seed) : model(seed) {
    context ctx(1);
    train::training t(model, Optimizer{},
                      train::evolving_pattern{.interval = 1, .steps = 100, .fraction = 0.3});
    auto gradients = t.gradients;
    for (int i = 0; i < 3; ++i) {
      support::fill(gradients.up, seed + std::uint64_t(i));
      support::fill(gradients.bias, seed + std::uint64_t(i));
      support::fill(gradients.down, seed + std::uint64_t(i));
      train::update_parameters(ctx, t.optimizer, model, gradients, t.state, 0.01);
    }
    before = t.state;
    const pattern old = model.up.pattern();
    train::evolve(t.policy, 1, t.explored, model, t.gradients, t.state);
    after = t.state;
    REQUIRE(!(old == model.up.pattern()));
    model.up.pattern().for_each([&](int i, int j, std::int64_t) { was.push_back(old.find(i, j)); });
  }
};

TEST_CASE("own optimizers: moments of blocks move with them, rows and columns stay") {
  const moved_state<block_shape<4>, adamw_by_block> by_block(1);
  auto const &v = by_block.after.at(0, "second_moment"), &v_before = by_block.before.at(0, "second_moment");
  REQUIRE(v.size() == std::ssize(by_block.was));
  for (std::int64_t slot = 0; slot < v.size(); ++slot) {
    const std::int64_t was = by_block.was[std::size_t(slot)];
    CHECK(v.template data<float>()[slot] == (was < 0 ? 0 : v_before.template data<float>()[was]));
  }
  const moved_state<block_shape<4>, factored> by_rows(1);
  for (char const* name : {"row_moment", "col_moment"})
    CHECK(by_rows.after.at(0, name) == by_rows.before.at(0, name));
}

template <class Block> void check_8_bits(bool groups_end_with_blocks) {
  const moved_state<Block, adamw_8_bits> moved(1);
  for (std::string const name : {"first_moment", "second_moment"}) {
    auto &codes = moved.after.at(0, name), &old_codes = moved.before.at(0, name);
    auto &scales = moved.after.at(0, name + ".scale"), &old_scales = moved.before.at(0, name + ".scale");
    const auto value = [](auto const& of, auto const& scale, std::int64_t k) {
      return of.code->value(of.template data<std::uint8_t>()[k]) * scale.template data<float>()[k / 64];
    };
    std::int64_t kept = 0, regrouped = 0;
    for (std::int64_t first = 0; first < codes.size(); first += 64) {
      std::vector<std::int64_t> groups;  // of before, whose values these are
      const auto old = [&](std::int64_t k) {
        const std::int64_t was = moved.was[std::size_t(k / Block::elements)];
        return was < 0 ? -1 : was * Block::elements + k % Block::elements;
      };
      const std::int64_t last = std::min(first + 64, codes.size());
      float greatest = 0;
      for (std::int64_t k = first; k < last; ++k)
        if (old(k) >= 0) {
          groups.push_back(old(k) / 64);
          greatest = std::max(greatest, std::abs(value(old_codes, old_scales, old(k))));
        }
      std::ranges::sort(groups);
      const bool mixed = !groups.empty() && groups.front() != groups.back();
      (mixed ? regrouped : kept) += 1;
      const float scale = scales.template data<float>()[first / 64];
      CHECK(scale == (groups.empty() ? 0
                      : mixed        ? greatest
                                     : old_scales.template data<float>()[groups.front()]));
      for (std::int64_t k = first; k < last; ++k) {
        if (old(k) < 0)
          CHECK(value(codes, scales, k) == 0);
        else if (!mixed)
          CHECK(codes.template data<std::uint8_t>()[k] == old_codes.template data<std::uint8_t>()[old(k)]);
        else if (name == "first_moment")
          CHECK(std::abs(value(codes, scales, k) - value(old_codes, old_scales, old(k))) <=
                scale * 0.502F / 127);
      }
    }
    CHECK(kept > 0);
    CHECK((regrouped == 0) == groups_end_with_blocks);
  }
}
TEST_CASE("own optimizers: groups of 8 bits keep their bits where their values stay together") {
  check_8_bits<block_shape<8>>(true);
  check_8_bits<block_shape<4>>(false);
  check_8_bits<block_shape<3, 5>>(false);
}

TEST_CASE("own optimizers: a state of another model or optimizer is refused, and nothing changes") {
  context ctx(1);
  toy::model<float> m(1), g(2);
  const toy::model<float> before = m;
  auto state = train::initial_state(lion{}, m);
  state.parameters.pop_back();
  CHECK(error_of<shape_error>([&] { train::update_parameters(ctx, lion{}, m, g, state, 0.1); }) ==
        "[optimizer] the model has 3 parameters, and the state of the optimizer is for 2: initial_state "
        "makes one");
  state = train::initial_state(lion{}, m);
  state.parameters[1][0].bytes = {};
  CHECK(error_of<shape_error>([&] { train::update_parameters(ctx, lion{}, m, g, state, 0.1); }) ==
        "[optimizer] momentum of bias has 0 numbers, and should have 24: the state must be of this model and "
        "its patterns (initial_state)");
  CHECK(toy::same_bits(m, before));
  CHECK(error_of<option_error>([&] { train::elements_of(state, m, "second_moment"); }) ==
        "[optimizer_state] no parameter has second_moment");
}

TEST_CASE(
    "own optimizers: a state of another optimizer, element or pattern is refused before anything changes") {
  context ctx(1);
  toy::model<float> m(1), g(2);
  toy::model<bfloat16> narrow(1);
  const toy::model<float> before = m;
  auto momentum = train::initial_state(lion{}, m);
  CHECK(error_of<option_error>([&] { train::update_parameters(ctx, train::adamw{}, m, g, momentum, 0.1); }) ==
        "[optimizer] array 1 of the state should be of F32, but there is none: `state` of this optimizer "
        "should "
        "declare it so, or the state is of another optimizer");
  CHECK(error_of<shape_error>([&] { train::update_parameters(ctx, lion{}, narrow, g, momentum, 0.1); }) ==
        "[optimizer] up is of BF16, but the state of the optimizer has no master of it");
  CHECK(error_of<shape_error>([&] { train::update_parameters(ctx, lion{}, m, narrow, momentum, 0.1); }) ==
        "[optimizer] the gradient of up is of BF16, but should be of F32");
  CHECK(error_of<option_error>([&] { train::measure(ctx, narrow); }) ==
        "[measure] up is of BF16: gradients are of float or double");

  // A state of the pattern that was.
  momentum = train::initial_state(lion{}, m);
  train::densify(m);
  auto gradients = nn::zeros_like(m);
  const scratch_folder scratch;
  CHECK(error_of<shape_error>([&] {
          train::save_checkpoint(scratch / "c", io::json::object{}, m, momentum);
        }).starts_with("[checkpoint] momentum of up has "));
  m = before;
  g = nn::zeros_like(m);
  momentum.parameters[0][0].bytes = {};
  train::explored_blocks explored = train::explore(m);
  const train::explored_blocks seen = explored;
  CHECK(error_of<shape_error>([&] {
          train::evolve(train::evolving_pattern{.interval = 1, .steps = 10}, 1, explored, m, g, momentum);
        }).starts_with("[evolve] momentum of up has 0 numbers"));
  CHECK(explored == seen);
  CHECK(toy::same_bits(m, before));
  nn::mutable_parameter_list list(m);
  CHECK(error_of<shape_error>([&] { list[1].tensor.set_values(std::vector<double>(3)); }) ==
        "[set_values] 3 numbers for 24 stored values");
}

}  // namespace own_optimizer_test
