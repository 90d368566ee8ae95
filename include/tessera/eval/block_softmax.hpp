// SPDX-License-Identifier: BSD-3-Clause
// Moved: this path goes with the next version.
#pragma once

#include <tessera/statements/block_softmax.hpp>
