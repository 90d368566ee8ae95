// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The keys of its sequence that a query sees: all keys, or the keys up to its own position.
enum class mask { bidirectional, causal };

}}  // namespace tessera::TESSERA_ISA
