// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tuple>
#include <type_traits>

#include <tessera/simd/simd.hpp>

// The instruction sets that this file's flags allow, each once: kernels are tested in registers of every
// width.

namespace support {

#ifdef __AVX512F__
using wide_archs = std::tuple<tessera::simd::native, xsimd::fma3<xsimd::avx2>>;
#else
using wide_archs = std::tuple<tessera::simd::native>;
#endif

#ifdef __AVX__
using archs = decltype(std::tuple_cat(wide_archs{}, std::tuple<xsimd::sse2>{}));
#else
using archs = wide_archs;
#endif

}  // namespace support
