// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <tessera/compiled_types.hpp>  // made by CMake of TESSERA_COMPILED_TYPES
#include <tessera/core/config.hpp>
#include <tessera/core/float8.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/core/int8.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/io/json.hpp>
#include <tessera/nn/combinators.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/quantised_linear.hpp>
#include <tessera/nn/recurrent_model.hpp>
#include <tessera/nn/sequence_classifier.hpp>
#include <tessera/nn/transformer_block.hpp>
#include <tessera/train/any_layer.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>
#include <tessera/train/settings.hpp>
#include <tessera/train/sparsity/policies/evolving_pattern.hpp>
#include <tessera/train/token_loss.hpp>
#include <tessera/train/training.hpp>

// What the CMake target tessera::compiled has compiled already: layers and models of its elements and blocks,
// and their training. A program that links it includes this header, and is compiled in a fifth of the time;
// all else it instantiates itself, as ever. The list is the CMake variable TESSERA_COMPILED_TYPES of the
// library's build.

#ifndef TESSERA_COMPILED
#error "<tessera/compiled.hpp> is for programs that link the CMake target tessera::compiled"
#endif

// `extern` in programs, nothing in the library's own source files, which have one type each.
#ifndef TESSERA_INSTANCE
#define TESSERA_INSTANCE extern
#define TESSERA_INSTANCE_ONCE extern
#define TESSERA_INSTANCE_TYPES TESSERA_COMPILED_TYPES
#endif

// A model, and the functions by which lists of parameters, checkpoints and training reach it.
#define TESSERA_MODEL_INSTANCE(...)                                                                         \
  TESSERA_INSTANCE template struct __VA_ARGS__;                                                             \
  TESSERA_INSTANCE template void nn::detail::walk_tensors<__VA_ARGS__>(void*, nn::detail::tensor_visitor);  \
  TESSERA_INSTANCE template void train::detail::walk_settings<__VA_ARGS__>(void*,                           \
                                                                           train::detail::setting_visitor); \
  TESSERA_INSTANCE template struct train::detail::functions_of_layer<__VA_ARGS__>;                          \
  TESSERA_INSTANCE template struct train::detail::training_functions_of<__VA_ARGS__>;

// A layer of `prepare` and `value`, and its forward. INSTANCE: TESSERA_INSTANCE, or TESSERA_INSTANCE_ONCE
#define TESSERA_LAYER_INSTANCE(INSTANCE, T, ...)                                          \
  INSTANCE template struct __VA_ARGS__;                                                   \
  INSTANCE template void nn::forward_by_value(__VA_ARGS__ const&, panel_matrix<T> const&, \
                                              nn::destination<T>, __VA_ARGS__::saved&, nn::pass<T> const&);

// A GPT, a BERT and a classifier whose weights are layers LINEAR, and the parts of their blocks.
#define TESSERA_TRANSFORMER_INSTANCES(T, B, LINEAR)                                                  \
  TESSERA_LAYER_INSTANCE(TESSERA_INSTANCE, T, nn::mlp<T, B, ops::gelu_polynomial, nn::LINEAR<T, B>>) \
  TESSERA_LAYER_INSTANCE(TESSERA_INSTANCE, T,                                                        \
                         nn::multi_head_attention<T, B, kernels::plain_scores, nn::LINEAR<T, B>>)    \
  TESSERA_INSTANCE template struct nn::stack<T, nn::transformer_block_of<nn::LINEAR<T, B>>>;         \
  TESSERA_INSTANCE template struct nn::stack<                                                        \
      T, nn::transformer_block_of<nn::LINEAR<T, B>, nn::norm_order::post>>;                          \
  TESSERA_INSTANCE template struct nn::encoder_body<                                                 \
      T, B, nn::transformer_block_of<nn::LINEAR<T, B>, nn::norm_order::post>>;                       \
  TESSERA_MODEL_INSTANCE(nn::gpt<T, B, nn::transformer_block_of<nn::LINEAR<T, B>>>)                  \
  TESSERA_MODEL_INSTANCE(                                                                            \
      nn::encoder<T, B, nn::transformer_block_of<nn::LINEAR<T, B>, nn::norm_order::post>>)           \
  TESSERA_MODEL_INSTANCE(                                                                            \
      nn::sequence_classifier<T, B, nn::transformer_block_of<nn::LINEAR<T, B>, nn::norm_order::post>>)

// These models of plain linear layers, and their layers.
#define TESSERA_NARROW_INSTANCES(T, B)                                                \
  TESSERA_INSTANCE template struct nn::linear<T, B>;                                  \
  TESSERA_INSTANCE template struct nn::transformer_block<T, B>;                       \
  TESSERA_INSTANCE template struct nn::transformer_block<T, B, nn::norm_order::post>; \
  TESSERA_TRANSFORMER_INSTANCES(T, B, linear)

// A LLaMA whose weights are layers LINEAR, for a type such as llama_float_16x16.
#define TESSERA_LLAMA_INSTANCES(T, B, LINEAR)                                          \
  TESSERA_INSTANCE template struct nn::stack<T, nn::gated_block_of<nn::LINEAR<T, B>>>; \
  TESSERA_MODEL_INSTANCE(nn::gpt<T, B, nn::gated_block_of<nn::LINEAR<T, B>>>)

// And recurrent ones.
#define TESSERA_WIDE_INSTANCES(T, B)               \
  TESSERA_NARROW_INSTANCES(T, B)                   \
  TESSERA_INSTANCE template struct nn::lstm<T, B>; \
  TESSERA_MODEL_INSTANCE(nn::recurrent_model<T, B>)

#define TESSERA_INSTANCES_float(B) TESSERA_WIDE_INSTANCES(float, B)
#define TESSERA_INSTANCES_double(B) TESSERA_WIDE_INSTANCES(double, B)
#define TESSERA_INSTANCES_bfloat16(B) TESSERA_NARROW_INSTANCES(bfloat16, B)
#define TESSERA_INSTANCES_float16(B) TESSERA_NARROW_INSTANCES(float16, B)
#define TESSERA_INSTANCES_float8(B)                                                          \
  TESSERA_INSTANCE template struct nn::quantised_linear<float, B, float8_e4m3, float8_e5m2>; \
  TESSERA_TRANSFORMER_INSTANCES(float, B, float8_linear)
#define TESSERA_INSTANCES_int8(B)                                              \
  TESSERA_INSTANCE template struct nn::quantised_linear<float, B, int8, void>; \
  TESSERA_TRANSFORMER_INSTANCES(float, B, int8_linear)
#define TESSERA_INSTANCES_llama_float(B) TESSERA_LLAMA_INSTANCES(float, B, linear)
#define TESSERA_INSTANCES_llama_double(B) TESSERA_LLAMA_INSTANCES(double, B, linear)
#define TESSERA_INSTANCES_llama_bfloat16(B) TESSERA_LLAMA_INSTANCES(bfloat16, B, linear)
#define TESSERA_INSTANCES_llama_float16(B) TESSERA_LLAMA_INSTANCES(float16, B, linear)
#define TESSERA_INSTANCES_llama_float8(B) TESSERA_LLAMA_INSTANCES(float, B, float8_linear)
#define TESSERA_INSTANCES_llama_int8(B) TESSERA_LLAMA_INSTANCES(float, B, int8_linear)
#define TESSERA_INSTANCES_OF(PRECISION, ROWS) TESSERA_INSTANCES_OF_EXPANDED(PRECISION, ROWS)
#define TESSERA_INSTANCES_OF_EXPANDED(PRECISION, ROWS) TESSERA_INSTANCES_##PRECISION(block_shape<ROWS>)

// Layers without blocks, of wide elements: few programs have layers of other elements by themselves.
#define TESSERA_ELEMENT_INSTANCES(T)                                  \
  TESSERA_LAYER_INSTANCE(TESSERA_INSTANCE_ONCE, T, nn::layer_norm<T>) \
  TESSERA_INSTANCE_ONCE template struct nn::cross_entropy<T>;

// The training of any model.
#define TESSERA_TRAINING_INSTANCE(...)                                                                    \
  TESSERA_INSTANCE_ONCE template struct train::any_training<__VA_ARGS__>;                                 \
  TESSERA_INSTANCE_ONCE template train::token_loss train::detail::accumulate_all(                         \
      context&, train::any_training<__VA_ARGS__>&, train::step_settings const&,                           \
      function_ref<train::token_loss(int)>);                                                              \
  TESSERA_INSTANCE_ONCE template train::step_report train::detail::use_gradients(                         \
      context&, train::any_training<__VA_ARGS__>&, train::step_settings const&, train::token_loss const&, \
      function_ref<void(function_ref<void()>)>);                                                          \
  TESSERA_INSTANCE_ONCE template train::step_report train::detail::evolving_step(                         \
      context&, train::any_training<__VA_ARGS__>&, train::step_settings const&,                           \
      function_ref<train::token_loss(int)>,                                                               \
      function_ref<train::step_report(function_ref<train::token_loss(int)>)>);                            \
  TESSERA_INSTANCE_ONCE template void train::save(train::any_training<__VA_ARGS__> const&,                \
                                                  std::string const&, io::json);                          \
  TESSERA_INSTANCE_ONCE template void train::resume(train::any_training<__VA_ARGS__>&,                    \
                                                    train::checkpoint const&, train::other_settings);

namespace tessera { inline namespace TESSERA_ISA {

TESSERA_INSTANCE_TYPES(TESSERA_INSTANCES_OF)

TESSERA_ELEMENT_INSTANCES(float)
TESSERA_ELEMENT_INSTANCES(double)

TESSERA_TRAINING_INSTANCE(train::adamw, train::evolving_pattern)
TESSERA_TRAINING_INSTANCE(train::sgd, train::evolving_pattern)

}}  // namespace tessera::TESSERA_ISA

#undef TESSERA_INSTANCE
#undef TESSERA_INSTANCE_ONCE
#undef TESSERA_INSTANCE_TYPES
#undef TESSERA_MODEL_INSTANCE
#undef TESSERA_LAYER_INSTANCE
#undef TESSERA_TRANSFORMER_INSTANCES
#undef TESSERA_LLAMA_INSTANCES
#undef TESSERA_NARROW_INSTANCES
#undef TESSERA_WIDE_INSTANCES
#undef TESSERA_INSTANCES_float
#undef TESSERA_INSTANCES_double
#undef TESSERA_INSTANCES_bfloat16
#undef TESSERA_INSTANCES_float16
#undef TESSERA_INSTANCES_float8
#undef TESSERA_INSTANCES_int8
#undef TESSERA_INSTANCES_llama_float
#undef TESSERA_INSTANCES_llama_double
#undef TESSERA_INSTANCES_llama_bfloat16
#undef TESSERA_INSTANCES_llama_float16
#undef TESSERA_INSTANCES_llama_float8
#undef TESSERA_INSTANCES_llama_int8
#undef TESSERA_INSTANCES_OF
#undef TESSERA_INSTANCES_OF_EXPANDED
#undef TESSERA_ELEMENT_INSTANCES
#undef TESSERA_TRAINING_INSTANCE
