// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

#include <tessera/core/config.hpp>

#include "model.hpp"

// The networks of one element and block are a module beside the program, models/float_16x16.so, which is
// compiled and loaded when a command needs it: compiled_model.cpp is its source, load_model.cpp loads it.
// LLaMAs, and models whose layers can have adapters, have modules of their own: llama_float_16x16.so,
// lora_float_16x16.so, adapter_llama_float_16x16.so; so have models whose weights are frozen in fewer bits:
// frozen_int8_16x16.so.

namespace pretrain {

/// What a module exports as `pretrain_model_module`.
struct model_module {
  char const* build;  ///< compiler, flags, instruction set and sources, which must be the program's
  char const* name;   ///< of its file: "float_16x16"
  std::unique_ptr<train::any_model> (*make)(model_description const& what);
  std::unique_ptr<train::any_model> (*make_classifier)(model_description const& what,
                                                       train::checkpoint const* from,
                                                       int classes);                ///< null of LLaMAs
  void (*add_adapters)(train::any_model& model, adapter_description const& added);  ///< null without adapters
  double (*merge_adapters)(train::any_model& model, nn::merge_blocks into);         ///< of LoRA, else null
  tessera::nn::model_size (*size)(model_description const& what);
  product_speed (*speed)(tessera::context& ctx);
};

/// The build of this source file; a program and its modules must have one. CMakeLists.txt adds up the
/// sources. Not inline: the loader would give a module the program's.
constexpr char this_build[] = TESSERA_BUILD " " TESSERA_ISA_NAME;

}  // namespace pretrain
