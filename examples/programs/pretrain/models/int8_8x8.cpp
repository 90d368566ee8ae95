// SPDX-License-Identifier: BSD-3-Clause
#include "../model_of.hpp"

template std::unique_ptr<pretrain::model> pretrain::new_model<tessera::int8, tessera::block_shape<8, 8>>(
    model_description const&, tessera::context&);
