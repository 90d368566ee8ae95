// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace support {

// Sanitizers have their own operators, which cannot be replaced everywhere.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TESSERA_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TESSERA_SANITIZED
#endif

#ifdef TESSERA_SANITIZED
inline constexpr bool counts_allocations = false;
#else
inline constexpr bool counts_allocations = true;
#endif

/// The number of calls of operator new in this program; always 0 under a sanitizer.
long allocations();

}  // namespace support
