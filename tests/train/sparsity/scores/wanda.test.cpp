// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/gradient_check.hpp>

#include <tessera/nn/gpt.hpp>
#include <tessera/train/change_blocks.hpp>
#include <tessera/train/sparsity/scores/wanda.hpp>

namespace wanda_test {

using namespace tessera;

nn::transformer_config shape() {
  nn::transformer_config c;
  c.layers = 2, c.hidden = 20, c.heads = 2, c.context = 30, c.vocabulary = 13, c.feed_forward = 2;
  return c;
}

template <class Model> struct calibration {
  context ctx{2};
  sequences batch{{0, 30, 47}};
  std::vector<std::int32_t> ids = support::some_ids(47, 13, 1), targets = support::some_ids(47, 13, 2);
  nn::workspace<typename Model::value_type> room;
  typename Model::saved saved;

  template <class Observer> double show(Model const& model, Observer* seen) {
    const nn::parameter_list list(model);
    nn::any_pass p{ctx, nn::purpose::evaluation};
    if (seen) p.layer_inputs = {*seen, list};
    return model.forward(ids, targets, saved, p.over(batch, room));
  }
};

/// The squares by a loop over all x, which it also keeps.
struct reference {
  std::vector<std::vector<double>> squares;
  template <element T> void operator()(context&, std::size_t number, panel_matrix<T> const& x) {
    squares.resize(std::max(squares.size(), number + 1));
    squares[number].resize(std::size_t(x.features()));
    for (std::int64_t f = 0; f < x.features(); ++f)
      for (std::int64_t t = 0; t < x.tokens(); ++t)
        squares[number][std::size_t(f)] += double(float(x(f, t))) * double(float(x(f, t)));
  }
};

TEST_CASE_TEMPLATE("wanda: a block's score is the mean of |w| times the norm of its input", T, float,
                   bfloat16) {
  using model = nn::gpt<T, block_shape<8>>;  // of blocks that overhang
  nn::transformer_config c = shape();
  c.density = 0.7;
  const model m(c, 1);
  calibration<model> text;
  train::input_squares seen(m);
  reference expected;
  const double loss = text.show(m, &seen);
  CHECK(text.show(m, &seen) == loss);  // sums go on
  CHECK(text.show(m, &expected) == loss);
  CHECK(text.show(m, static_cast<reference*>(nullptr)) == loss);
  const auto scores = train::wanda_scores(m, seen);
  std::size_t at = 0;
  double worst = 0, largest = 0;
  nn::for_each_parameter(m, [&](nn::parameter_name const& name, auto const& w) {
    if constexpr (nn::is_matrix<decltype(w)>) {
      if (name.role() != nn::parameter_role::weight) return;
      const nn::parameter_list list(m);
      std::size_t number = 0;
      while (list[number].tensor.address() != &w) ++number;
      w.pattern().for_each([&](int i, int j, std::int64_t) {
        double sum = 0;
        for (std::int64_t r = 8 * i; r < std::min<std::int64_t>(w.rows(), 8 * i + 8); ++r)
          for (std::int64_t k = 8 * j; k < std::min<std::int64_t>(w.cols(), 8 * j + 8); ++k)
            sum += std::abs(double(float(w(r, k)))) * std::sqrt(2 * expected.squares[number][std::size_t(k)]);
        REQUIRE(at < scores.size());
        worst = std::max(worst, std::abs(scores[at++] - sum / 64));
        largest = std::max(largest, sum / 64);
      });
    }
  });
  CHECK(at == scores.size());
  CHECK(worst < 1e-5 * largest);
}

struct one_weight {
  using gradients = one_weight;
  block_sparse_matrix<float, block_shape<4>> w = block_sparse_matrix<float, block_shape<4>>(4, 8);
  static void parts(auto& each, auto&... of) { each("w", of.w...); }
};

TEST_CASE("wanda: weights of strong inputs stay, though others are larger, and unseen inputs are named") {
  one_weight m;
  m.w.generate([](std::int64_t, std::int64_t col) { return col < 4 ? 1.0f : 2.0f; });
  train::input_squares seen(m);
  const auto scores = [&] { return train::wanda_scores(m, seen); };
  const std::string text = error_of<option_error>(scores);
  CHECK(text.find("no input of w was seen") != text.npos);
  context ctx(1);
  panel_matrix<float> x(8, 5);
  for (std::int64_t f = 0; f < 8; ++f)
    for (std::int64_t t = 0; t < 5; ++t) x(f, t) = f < 4 ? 3.0f : 1.0f;
  seen(ctx, 0, x);
  CHECK(scores()[0] == doctest::Approx(3 * std::sqrt(5)));
  CHECK(scores()[1] == doctest::Approx(2 * std::sqrt(5)));
  auto by_magnitude = m;
  train::prune(by_magnitude, 0.5);
  CHECK(by_magnitude.w.pattern().row(0)[0] == 1);
  train::prune(m, 0.5, scores(), train::pruning_scope::each_matrix);
  CHECK(m.w.pattern().row(0)[0] == 0);
}

TEST_CASE("change_blocks: a model in other blocks computes the same, and what differs is named") {
  using coarse = nn::gpt<float, block_shape<8>>;
  using fine = nn::gpt<float, block_shape<4, 2>>;
  nn::transformer_config c = shape();
  c.density = 0.5;
  const coarse from(c, 1);
  fine to(c, 2);
  train::change_blocks(from, to);
  auto const& a = from.blocks.layers[1].mlp.up.weight;
  auto const& b = to.blocks.layers[1].mlp.up.weight;
  CHECK_FALSE(b.pattern().is_dense());
  bool same = true;
  for (std::int64_t i = 0; i < a.rows(); ++i)
    for (std::int64_t j = 0; j < a.cols(); ++j) same = same && a(i, j) == b(i, j);
  CHECK(same);
  calibration<coarse> one;
  calibration<fine> other;
  const double loss = one.show(from, static_cast<reference*>(nullptr));
  CHECK(other.show(to, static_cast<reference*>(nullptr)) == doctest::Approx(loss).epsilon(1e-6));

  c.vocabulary = 14;
  fine larger(c, 3);
  CHECK(error_of<shape_error>([&] { train::change_blocks(from, larger); }) ==
        "[change_blocks] token_embedding is 13 x 20 of F32, and in the other model 14 x 20 of F32");
  c.layers = 1;
  fine shorter(c, 3);
  CHECK(error_of<shape_error>([&] { train::change_blocks(from, shorter); }).find("tensors, or") !=
        std::string::npos);
}

}  // namespace wanda_test
