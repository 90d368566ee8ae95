// SPDX-License-Identifier: BSD-3-Clause

// What tessera::compiled has once for all types: training.

#define TESSERA_INSTANCE extern
#define TESSERA_INSTANCE_ONCE
#define TESSERA_INSTANCE_TYPES TESSERA_COMPILED_TYPES
#include <tessera/compiled.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace the_compiled_library_must_be_of_the_same {

void version_and_instruction_set::TESSERA_COMPILED_VERSION() {}

}}}  // namespace tessera::TESSERA_ISA::the_compiled_library_must_be_of_the_same
