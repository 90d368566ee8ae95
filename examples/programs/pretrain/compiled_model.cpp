// SPDX-License-Identifier: BSD-3-Clause

// A module of models, compiled once for each element, MODEL_PRECISION, and size of blocks, MODEL_BLOCK.

#include <algorithm>
#include <chrono>
#include <memory>
#include <type_traits>

#include <tessera/eval/engines.hpp>
#include <tessera/tessera.hpp>

#include "model_module.hpp"
#include "model_of.hpp"

namespace pretrain { namespace {

using namespace tessera;  // bfloat16, float16, int8
using float8 = float8_e4m3;
using element = MODEL_PRECISION;
using block = block_shape<MODEL_BLOCK>;
using networks = transformers<element, block>;
using value = networks::gpt::value_type;
using lstm = nn::recurrent_model<value, block>;
constexpr bool is_float = std::is_same_v<element, float>;

std::unique_ptr<model> make(model_description const& what, context& ctx) {
  if constexpr (is_float)  // check() refuses others: they would take the compiler long
    if (what.family == "rnn") return std::make_unique<model_of<lstm>>(what, ctx);
  if (what.family == "bert") return std::make_unique<model_of<networks::bert>>(what, ctx);
  return std::make_unique<model_of<networks::gpt>>(what, ctx);
}

std::unique_ptr<fine_tuning> make_classifier(model_description const& what, train::checkpoint const* from,
                                             int classes, train::adamw const& optimizer, context& ctx) {
  if constexpr (is_float) return std::make_unique<fine_tuning_of<block>>(what, from, classes, optimizer, ctx);
  return nullptr;
}

nn::model_size size(model_description const& what) {
  const auto of = [&]<class Network>(std::type_identity<Network>) {
    return Network::size(shape_for<Network>(what), what.segments);
  };
  return what.family == "bert"  ? of(std::type_identity<networks::bert>())
         : what.family == "rnn" ? of(std::type_identity<lstm>())
                                : of(std::type_identity<networks::gpt>());
}

/// The best of some products.
product_speed speed(context& ctx) {
  using clock = std::chrono::steady_clock;
  using seconds = std::chrono::duration<double>;
  constexpr int n = 512;
  dense_matrix<value> w(n, n);
  panel_matrix<value> x(n, 4 * n), y(n, 4 * n);
  double best = 0;
  for (const auto start = clock::now(); clock::now() - start < seconds(0.3);) {
    const auto begin = clock::now();
    run(ctx, y = w * x);
    best = std::max(best, 2.0 * n * n * 4 * n / seconds(clock::now() - begin).count());
  }
  constexpr engine_set compiled = eval::engines_for<value, engine::amx>();
  const machine& on = ctx.runs_on();
  return {best, fastest_engine(on.family, on.engines, compiled) == engine::amx};
}

}}  // namespace pretrain

extern "C" const pretrain::model_module pretrain_model_module{
    pretrain::this_build, MODEL_NAME,
    pretrain::make,       pretrain::is_float ? &pretrain::make_classifier : nullptr,
    pretrain::size,       pretrain::speed};
