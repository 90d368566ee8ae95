#pragma once
#include <tessera/core/dispatch.hpp>

TESSERA_DISPATCHED(double, loss_after, (int steps));
