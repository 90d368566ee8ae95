// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#if __cplusplus < 202002L
#error "tessera needs C++20: compile with -std=c++20"
#endif
#ifndef __cpp_exceptions
#error "tessera reports errors by exceptions: compile without -fno-exceptions"
#endif
// Clang shows no other part of -ffast-math than this: core/ieee_arithmetic.hpp finds the others when a
// program runs.
#if __FINITE_MATH_ONLY__ || defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || \
    defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__)
#error \
    "tessera computes as IEEE 754 says: compile without -ffast-math, -Ofast and their parts, but for -fno-math-errno and -fno-trapping-math"
#endif

static_assert(sizeof(0.1) == sizeof(double),
              "tessera's constants of doubles are doubles: compile without -fsingle-precision-constant");

// Macros of older headers for C. The standard library undefines them too, but in headers that may have come
// before.
#undef abs
#undef max
#undef min
#undef round

// The instruction set a translation unit is compiled for. It names the inline namespace that everything in
// tessera lives in, so that source files compiled for two of these names can be linked together: their
// functions differ in name, and a tensor passed from one to the other is a link error, not a wrong number.
// Other flags, such as -mtune, must agree in all files.
#if defined(TESSERA_EMULATED_AMX)  // for tests, on any CPU
#define TESSERA_ISA with_emulated_amx
#define TESSERA_ISA_NAME "with_emulated_amx"
#elif defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#if defined(__AVX512BF16__) && defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AMX_INT8__)
#define TESSERA_HARDWARE_AMX
#ifdef __AMX_FP16__
#define TESSERA_HARDWARE_AMX_FP16
#define TESSERA_ISA avx512_amx_fp16
#define TESSERA_ISA_NAME "avx512_amx_fp16"
#else
#define TESSERA_ISA avx512_amx
#define TESSERA_ISA_NAME "avx512_amx"
#endif
#elif defined(__AVX512BF16__)
#define TESSERA_ISA avx512_bf16
#define TESSERA_ISA_NAME "avx512_bf16"
#else
#define TESSERA_ISA avx512
#define TESSERA_ISA_NAME "avx512"
#endif
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define TESSERA_ISA avx2
#define TESSERA_ISA_NAME "avx2"
#elif defined(__aarch64__)
#define TESSERA_ISA neon
#define TESSERA_ISA_NAME "neon"
#else
#define TESSERA_ISA baseline
#define TESSERA_ISA_NAME "baseline"
#endif

#define TESSERA_VERSION_MAJOR 0
#define TESSERA_VERSION_MINOR 1
#define TESSERA_VERSION_PATCH 0

/// For functions that must disappear into their caller: kernels keep whole arrays of registers in arguments.
#define TESSERA_INLINE [[gnu::always_inline]] inline
/// Inlines a lambda always: `[&](auto i) TESSERA_INLINE_LAMBDA { … }`.
#define TESSERA_INLINE_LAMBDA __attribute__((always_inline))

/// After a parameter that the result refers to: Clang warns where the result would outlive it.
#if __has_cpp_attribute(clang::lifetimebound)
#define TESSERA_LIFETIMEBOUND [[clang::lifetimebound]]
#else
#define TESSERA_LIFETIMEBOUND
#endif

/// Before the name of a statement's type: who forgets to give it to run is warned.
#define TESSERA_STATEMENT [[nodiscard("a statement computes nothing until it is given to run(context, …)")]]

/// For functions that run once or fail: compiled for size, which is also quick to compile, and kept out of
/// their callers.
#define TESSERA_COLD [[gnu::cold, gnu::noinline]]

/// Bodies of functions that are no templates stand behind `#ifdef TESSERA_BODY`: they are inline, or are
/// compiled once, in the CMake target tessera::compiled.
#ifndef TESSERA_COMPILED
#define TESSERA_BODY inline
#elif defined(TESSERA_COMPILES_BODIES)
#define TESSERA_BODY
#endif

/// Checks a belief of the library's own, with the reason why it holds; gone in release builds.
#ifdef NDEBUG
#define TESSERA_ASSERT(condition, why) ((void)0)
#else
#include <cassert>
#define TESSERA_ASSERT(condition, why) assert((condition) && (why))
#endif

// A compiled library of another version or instruction set is refused when the program is linked, by these
// words.
#ifdef TESSERA_COMPILED
#define TESSERA_VERSION_NAME(MAJOR, MINOR, PATCH) version_##MAJOR##_##MINOR##_##PATCH
#define TESSERA_VERSION_NAME_OF(MAJOR, MINOR, PATCH) TESSERA_VERSION_NAME(MAJOR, MINOR, PATCH)
#define TESSERA_COMPILED_VERSION \
  TESSERA_VERSION_NAME_OF(TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR, TESSERA_VERSION_PATCH)
namespace tessera { inline namespace TESSERA_ISA { namespace the_compiled_library_must_be_of_the_same {
struct version_and_instruction_set {
  static void TESSERA_COMPILED_VERSION();
};
[[gnu::used]] static void (*const must_link)() = version_and_instruction_set::TESSERA_COMPILED_VERSION;
}}}  // namespace tessera::TESSERA_ISA::the_compiled_library_must_be_of_the_same
#endif

namespace tessera { inline namespace TESSERA_ISA {

/// Tokens of one panel: the unit in which activations are stored and work is cut.
inline constexpr int panel_tokens = 64;

/// Rows of features and groups of tokens are stored in full multiples of this many.
inline constexpr int granule = 16;

/// Smallest multiple of `step` that is at least `value`; both ≥ 0, step > 0.
template <class Integer> constexpr Integer round_up(Integer value, Integer step) {
  return (value + step - 1) / step * step;
}

/// value / step, rounded up; value ≥ 0, step > 0. No value is too large.
template <class Integer> constexpr Integer ceil_div(Integer value, Integer step) {
  return value / step + (value % step != 0);
}

}}  // namespace tessera::TESSERA_ISA
