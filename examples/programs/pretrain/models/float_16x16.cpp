// SPDX-License-Identifier: BSD-3-Clause
#include "../fine_tuning.hpp"
#include "../model_of.hpp"

template std::unique_ptr<pretrain::model> pretrain::new_model<float, tessera::block_shape<16, 16>>(
    model_description const&, tessera::context&);
template std::unique_ptr<pretrain::fine_tuning> pretrain::new_fine_tuning<tessera::block_shape<16, 16>>(
    model_description const&, train::checkpoint const*, int, train::adamw const&, tessera::context&);
