// SPDX-License-Identifier: BSD-3-Clause

// A module that pretrain must not take: TESSERA_BUILD is another, and it has none of the functions.

#include "../../examples/programs/pretrain/model_module.hpp"

extern "C" const pretrain::model_module pretrain_model_module{
    pretrain::this_build, "float_16x16", nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
