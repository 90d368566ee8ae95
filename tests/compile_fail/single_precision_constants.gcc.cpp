// expect: compile without -fsingle-precision-constant
// flags: -fsingle-precision-constant
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/core/config.hpp>
