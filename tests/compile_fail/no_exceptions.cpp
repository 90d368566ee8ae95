// expect: compile without -fno-exceptions
// flags: -fno-exceptions
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>
