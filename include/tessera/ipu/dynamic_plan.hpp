// SPDX-License-Identifier: BSD-3-Clause
// Moved: this path goes with the next version.
#pragma once

#include <tessera/ipu/popsparse/dynamic_load.hpp>
#include <tessera/ipu/popsparse/dynamic_plan.hpp>
