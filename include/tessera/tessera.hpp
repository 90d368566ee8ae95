// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Block-sparse tensors for CPUs: tensors, expressions and run. Layers are in nn/nn.hpp, training in train/.

#include <tessera/core/random.hpp>
#include <tessera/core/version.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/statements/copy.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/statements/sequence_sums.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/matrix_sources.hpp>
#include <tessera/tensor/matrix_view.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/panel_slice.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/tensor/text.hpp>
#include <tessera/tensor/token_rows.hpp>
#include <tessera/tensor/vectors.hpp>
