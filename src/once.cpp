// SPDX-License-Identifier: BSD-3-Clause

// What tessera::compiled has once for all types: training.

#define TESSERA_INSTANCE extern
#define TESSERA_INSTANCE_ONCE
#define TESSERA_INSTANCE_TYPES TESSERA_COMPILED_TYPES
#include <tessera/compiled.hpp>
