// SPDX-License-Identifier: BSD-3-Clause

// Training, and layers without blocks: tessera::compiled has them once for all types.

#define TESSERA_INSTANCE extern
#define TESSERA_INSTANCE_ONCE
#define TESSERA_INSTANCE_TYPES TESSERA_COMPILED_TYPES
#include <tessera/compiled.hpp>
