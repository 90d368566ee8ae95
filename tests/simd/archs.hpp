// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tuple>
#include <type_traits>

#include <tessera/simd/simd.hpp>

// The instruction sets that this file's flags allow, each once: kernels are tested in registers of every
// width, by sanitizers in the widest only.

namespace support {

#if defined(__AVX512F__) && !defined(TESSERA_REDUCED_TYPES)
using wide_archs = std::tuple<tessera::simd::native, xsimd::fma3<xsimd::avx2>>;
#else
using wide_archs = std::tuple<tessera::simd::native>;
#endif

#if defined(__AVX__) && !defined(TESSERA_REDUCED_TYPES)
using archs = decltype(std::tuple_cat(wide_archs{}, std::tuple<xsimd::sse2>{}));
#else
using archs = wide_archs;
#endif

}  // namespace support
