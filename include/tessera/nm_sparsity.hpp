// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Matrices in N:M structured sparsity, and their products.

#include <tessera/eval/nm_product.hpp>
#include <tessera/expr/nm_product.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/nm_sparse_matrix.hpp>
