// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <tessera/core/dispatch.hpp>

TESSERA_DISPATCHED(int, one, ());
