// SPDX-License-Identifier: BSD-3-Clause

// A module of models, compiled once for each element, MODEL_PRECISION, and size of blocks, MODEL_BLOCK; with
// MODEL_LORA or MODEL_ADAPTER, of models whose weights are frozen and can have adapters; with MODEL_FROZEN,
// of models whose weights alone have that element, and which are used; with MODEL_LLAMA, of LLaMAs in place
// of the others.

#include <algorithm>
#include <chrono>
#include <memory>
#include <type_traits>
#include <utility>

// Compiles the types of this element and block alone.
#define TESSERA_INSTANCE extern
#define TESSERA_INSTANCE_ONCE extern
#define TESSERA_INSTANCE_TYPES(each) each(MODEL_PRECISION, MODEL_BLOCK)
#include <tessera/compiled.hpp>
#include <tessera/eval/engines.hpp>
#include <tessera/nn/adapter.hpp>
#include <tessera/nn/frozen_linear.hpp>
#include <tessera/nn/lora_transformer.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/any_model.hpp>

#include "model_module.hpp"
#include "networks.hpp"

namespace pretrain { namespace {

using namespace tessera;  // bfloat16, float16, int8
using float8 = float8_e4m3;
using element = MODEL_PRECISION;
using block = block_shape<MODEL_BLOCK>;
#ifdef MODEL_FROZEN
using linear = nn::frozen_linear<float, element, block>;
#else
using linear = linear_of<element, block>::type;
#endif
using value = linear::value_type;
#if defined(MODEL_LORA)
using networks = transformers<nn::lora<value, block, linear>>;
constexpr bool has_lstm = false;
#elif defined(MODEL_ADAPTER)
using networks =
    transformers<linear, nn::adapted_block_of<linear>, nn::adapted_block_of<linear, nn::norm_order::post>,
                 nn::adapted_gated_block_of<linear>>;
constexpr bool has_lstm = false;
#else
using networks = transformers<linear>;
constexpr bool has_lstm =
    std::is_same_v<linear, nn::linear<float, block>>;  // check() refuses others: they would take long
#endif
using lstm = nn::recurrent_model<value, block>;

/// The configuration of a network.
template <class Network> auto shape_for(model_description const& what) {
  if constexpr (std::is_same_v<decltype(Network::config), nn::recurrent_config>)
    return nn::recurrent_config{what.shape.layers, what.shape.hidden, what.shape.vocabulary,
                                what.shape.dropout, what.shape.density};
  else
    return what.shape;
}

template <class Network> std::unique_ptr<train::any_model> model_with(model_description const& what) {
  Network network(shape_for<Network>(what), what.seed);
  if constexpr (requires { network.cells; })
    network.cells.segments = what.segments;
  else
    network.blocks.segments = what.segments;
  return std::make_unique<train::model_of<Network>>(std::move(network));
}

#ifdef MODEL_LLAMA
std::unique_ptr<train::any_model> make(model_description const& what) {
  return model_with<networks::llama>(what);
}
constexpr auto classifier = nullptr;
nn::model_size size(model_description const& what) {
  return networks::llama::size(what.shape, what.segments);
}
#else
std::unique_ptr<train::any_model> make(model_description const& what) {
  if constexpr (has_lstm)
    if (what.family == "rnn") return model_with<lstm>(what);
  return what.family == "bert" ? model_with<networks::bert>(what) : model_with<networks::gpt>(what);
}

std::unique_ptr<train::any_model> classifier(model_description const& what, train::checkpoint const* from,
                                             int classes) {
  networks::bert encoder(what.shape, what.seed);
  if (from) from->load(encoder);
  using network = networks::classifier;
  return std::make_unique<train::model_of<network>>(network(std::move(encoder), classes, what.seed));
}

nn::model_size size(model_description const& what) {
  const auto of = [&]<class Network>(std::type_identity<Network>) {
    return Network::size(shape_for<Network>(what), what.segments);
  };
  return what.family == "bert"  ? of(std::type_identity<networks::bert>())
         : what.family == "rnn" ? of(std::type_identity<lstm>())
                                : of(std::type_identity<networks::gpt>());
}
#endif

#if defined(MODEL_LORA) || defined(MODEL_ADAPTER)
/// Calls visit(network) with the network of a model of this module.
template <class Visit> auto with_network(train::any_model& model, Visit&& visit) {
#ifdef MODEL_LLAMA
  return visit(dynamic_cast<train::model_of<networks::llama>&>(model).network);
#else
  if (auto* const gpt = dynamic_cast<train::model_of<networks::gpt>*>(&model)) return visit(gpt->network);
  if (auto* const bert = dynamic_cast<train::model_of<networks::bert>*>(&model)) return visit(bert->network);
  return visit(dynamic_cast<train::model_of<networks::classifier>&>(model).network);
#endif
}
void adapt(train::any_model& model, adapter_description const& added) {
  with_network(model, [&](auto& network) {
#ifdef MODEL_LORA
    nn::add_lora(network, added.settings, added.targets, added.seed);
#else
    nn::add_adapters(network, added.width, added.seed);
#endif
  });
}
#endif
#ifdef MODEL_LORA
double merge(train::any_model& model, nn::merge_blocks into) {
  return with_network(model, [&](auto& network) { return nn::merge_lora(network, into); });
}
#endif

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

#if defined(MODEL_LORA)
constexpr auto functions_of_adapters = std::pair(&pretrain::adapt, &pretrain::merge);
#elif defined(MODEL_ADAPTER)
constexpr auto functions_of_adapters = std::pair(&pretrain::adapt, nullptr);
#else
constexpr auto functions_of_adapters = std::pair(nullptr, nullptr);
#endif

extern "C" const pretrain::model_module pretrain_model_module{pretrain::this_build,
                                                              MODEL_NAME,
                                                              pretrain::make,
                                                              pretrain::classifier,
                                                              functions_of_adapters.first,
                                                              functions_of_adapters.second,
                                                              pretrain::size,
                                                              pretrain::speed};
