// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/dispatch.hpp>

/// The sum of W·x for a sparse W of ones and an x of ones.
TESSERA_DISPATCHED(double, total_of_product, (int rows, double density));
