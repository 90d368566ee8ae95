// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/ops/activation.hpp>
#include <tessera/ops/arithmetic.hpp>
#include <tessera/ops/exponential.hpp>
#include <tessera/ops/power.hpp>
