// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <string>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/checkpoint.hpp>
#include <tessera/train/interpolate.hpp>
#include <tessera/train/masters.hpp>
#include <tessera/train/optimizers/adamw.hpp>

namespace interpolate_test {

using namespace tessera;

/// A model on the pattern of another.
template <class T> toy::model<T> on_pattern_of(toy::model<T> const& other, std::uint64_t seed) {
  toy::model<T> m(seed);
  m.up = block_sparse_matrix<T, block_shape<4>>(m.up.rows(), m.up.cols(), other.up.pattern());
  support::fill(m.up, seed);
  return m;
}

TEST_CASE_TEMPLATE("interpolate: each value is that of the line, computed in double and rounded once", T,
                   float, double, bfloat16, float16) {
  const toy::model<T> a(1), b = on_pattern_of(a, 2);
  for (const double share : {0.0, 0.3, 0.5, 1.0, 1.25}) {
    toy::model<T> mixture(3);  // of another pattern
    train::interpolate(a, b, share, mixture);
    CHECK(mixture.up.pattern() == a.up.pattern());
    nn::for_each_parameter(
        mixture,
        [&](nn::parameter_name const& name, auto const& to, auto const& first, auto const& second) {
          INFO(name.text(), " ", share);
          using U = typename std::remove_cvref_t<decltype(to)>::value_type;
          const double u = unit_roundoff<U> + 4 * unit_roundoff<double>;
          for (std::int64_t i = 0; i < to.size(); ++i) {
            const double x(accumulator_t<U>(first.begin()[i])), y(accumulator_t<U>(second.begin()[i]));
            REQUIRE(std::abs(double(accumulator_t<U>(to.begin()[i])) - ((1 - share) * x + share * y)) <=
                    u * (std::abs((1 - share) * x) + std::abs(share * y)));
          }
        },
        a, b);
    if (share == 0) CHECK(toy::same_bits(mixture, a));
    if (share == 1) CHECK(toy::same_bits(mixture, b));
  }
}

TEST_CASE("interpolate: the first tensor that differs is named, and nothing is changed") {
  const toy::model<float> a(1);
  toy::model<float> to(5);
  const toy::model<float> before = to;
  const auto refusal = [&](nn::parameter_list const& other) {
    return error_of<shape_error>([&] { train::interpolate(a, other, 0.5, to); });
  };
  const toy::model<float> other_blocks(2);
  const auto absent = (a.up.pattern() - other_blocks.up.pattern()).blocks();
  CHECK(refusal(other_blocks) ==
        message("[interpolate] up stores other blocks in the first model than in the second, ", absent,
                " of 12"));
  CHECK(refusal(toy::model<float>(1, 0.5)) ==
        "[interpolate] up is F32, 24 x 20 in blocks of 4 x 4, of which 12 are stored in the first model, and "
        "F32, 24 x 20 in blocks of 4 x 4, of which 15 are stored in the second");
  const toy::model<double> wide(1);
  CHECK(refusal(wide).find("and F64, 24 x 20 in blocks") != std::string::npos);
  const toy::model<float, block_shape<8>> larger(1);
  CHECK(refusal(larger).find("in blocks of 8 x 8, of which") != std::string::npos);
  toy::model<float> longer = a;
  longer.bias = feature_vector<float>(25);
  CHECK(refusal(longer) == "[interpolate] bias is F32, 24 in the first model, and F32, 25 in the second");
  CHECK(error_of<shape_error>([&] { train::interpolate(a, a, 0.5, longer); }) ==
        "[interpolate] bias is F32, 24, and in the model F32, 25");
  CHECK(toy::same_bits(to, before));
}

TEST_CASE("interpolate: of masters a narrow model is rounded once, and a file without them has values") {
  const scratch_folder scratch;
  const toy::model<bfloat16> a(1), b = on_pattern_of(a, 2);
  train::optimizer_state state = train::initial_state(train::adamw{}, a);
  toy::model<float> wide(7);
  wide.up = block_sparse_matrix<float, block_shape<4>>(wide.up.rows(), wide.up.cols(), a.up.pattern());
  support::fill(wide.up, 8);
  train::set_elements(state, "master", wide);
  train::save_checkpoint(scratch / "a", {}, a, state);
  train::save_weights(scratch / "b", {}, b);
  toy::model<bfloat16> read(3);
  const auto masters_of = [&](char const* name) {
    const train::checkpoint from(scratch / name);
    from.load(read);
    toy::model<float> masters = nn::zeros_like(read);
    train::load_masters(from, read, masters);
    return masters;
  };
  const toy::model<float> of_a = masters_of("a"), of_b = masters_of("b");
  CHECK(std::ranges::equal(of_a.up, wide.up));
  CHECK(std::ranges::equal(of_a.down, wide.down));
  CHECK(std::ranges::equal(of_a.bias, a.bias));  // is float, and has no master
  CHECK(toy::same_bits(of_b, nn::widened(b)));
  toy::model<bfloat16> mixture(4);
  train::interpolate(of_a, of_b, 0.25, mixture);
  for (std::int64_t i = 0; i < mixture.up.size(); ++i)
    REQUIRE(mixture.up.data()[i] ==
            bfloat16(std::lerp(double(of_a.up.data()[i]), double(of_b.up.data()[i]), 0.25)));
  toy::model<float> short_list(1, 0.2);
  CHECK(!error_of<shape_error>([&] {
           train::load_masters(train::checkpoint(scratch / "a"), read, short_list);
         }).empty());
}

}  // namespace interpolate_test
