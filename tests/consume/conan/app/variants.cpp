// SPDX-License-Identifier: BSD-3-Clause
#include "one.hpp"

int main() { return one() == 1 ? 0 : 1; }
