// SPDX-License-Identifier: BSD-3-Clause
#include "one.hpp"

int TESSERA_VARIANT(one)() { return 1; }
