// SPDX-License-Identifier: BSD-3-Clause
// tessera in one header, made by scripts/single_include.py of include/: change that.
//
// BSD 3-Clause License
//
// Copyright (c) 2026, the tessera authors
//
// Redistribution and use in source and binary forms, with or without
// modification, are permitted provided that the following conditions are met:
//
// 1. Redistributions of source code must retain the above copyright notice, this
//    list of conditions and the following disclaimer.
//
// 2. Redistributions in binary form must reproduce the above copyright notice,
//    this list of conditions and the following disclaimer in the documentation
//    and/or other materials provided with the distribution.
//
// 3. Neither the name of the copyright holder nor the names of its
//    contributors may be used to endorse or promote products derived from
//    this software without specific prior written permission.
//
// THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS"
// AND ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE
// IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
// DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT HOLDER OR CONTRIBUTORS BE LIABLE
// FOR ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL
// DAMAGES (INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR
// SERVICES; LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER
// CAUSED AND ON ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY,
// OR TORT (INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE
// OF THIS SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.
#pragma once

// ---- tessera/core/config.hpp
#ifndef TESSERA_SINGLE_CORE_CONFIG
#define TESSERA_SINGLE_CORE_CONFIG
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
#endif

// ---- tessera/core/hash.hpp
#ifndef TESSERA_SINGLE_CORE_HASH
#define TESSERA_SINGLE_CORE_HASH
#include <cstdint>
#include <string_view>

namespace tessera { inline namespace TESSERA_ISA {

/// FNV-1a of 64 bits (Fowler, Noll, Vo) over the bytes of `text`, continuing from the hash `before` of the
/// preceding text.
constexpr std::uint64_t content_hash(std::string_view text, std::uint64_t before = 0xcbf29ce484222325u) {
  for (const char c : text) before = (before ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return before;
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/core/random.hpp
#ifndef TESSERA_SINGLE_CORE_RANDOM
#define TESSERA_SINGLE_CORE_RANDOM
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string_view>

namespace tessera { inline namespace TESSERA_ISA {

/// The use of a random number: keeps streams with equal seeds, keys and steps apart.
enum class random_purpose : std::uint32_t {
  initial_values,
  initial_pattern,
  regrowth,
  dropout,
  batches,
  sampling,
  test,
  rounding,
  masking,
  signs,
  noise,
  new_blocks,
  repeated_layers
};

/// A number that tells random choices of one purpose apart: of a parameter the content_hash of its name in
/// the model, such as "block.3.mlp.up.weight".
struct random_key {
  std::uint64_t value = 0;

  constexpr random_key() = default;
  constexpr random_key(std::uint64_t number) : value(number) {}
  template <std::convertible_to<std::string_view> Text>
  constexpr random_key(Text const& name) : value(content_hash(name)) {}

  friend constexpr bool operator==(random_key, random_key) = default;
};

/// A stream of random numbers addressed by a counter: the i-th number is a function of the key and i alone,
/// so a run can be resumed, replayed, or spread over threads and machines without its bits changing. The
/// generator is SplitMix64 (Steele, Lea, Flood 2014, fig. 15) read at position i.
class random_stream {
 public:
  constexpr random_stream(std::uint64_t seed, random_purpose purpose, random_key of = {},
                          std::uint64_t step = 0)
      : key_(mix(mix(mix(mix(seed) ^ static_cast<std::uint64_t>(purpose)) ^ of.value) ^ step)) {}

  /// The key itself, for kernels that derive their own numbers from it.
  constexpr std::uint64_t key() const { return key_; }

  /// 64 random bits.
  constexpr std::uint64_t bits(std::uint64_t i) const { return mix(key_ + i * 0x9e3779b97f4a7c15u); }

  /// Uniform in [0, 1), in steps of 2^-53.
  constexpr double uniform(std::uint64_t i) const { return static_cast<double>(bits(i) >> 11) * 0x1p-53; }

  /// Uniform in 0 … n-1, n ≥ 1. The bias of the multiplication is below n / 2^64.
  constexpr std::uint64_t below(std::uint64_t i, std::uint64_t n) const {
    return static_cast<std::uint64_t>((static_cast<wide>(bits(i)) * n) >> 64);
  }

  /// Standard normal (Box and Muller 1958).
  double normal(std::uint64_t i) const {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(2 * i)));
    return radius * std::cos(6.283185307179586 * uniform(2 * i + 1));
  }

 private:
  __extension__ using wide = unsigned __int128;

  static constexpr std::uint64_t mix(std::uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t key_;
};

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/core/version.hpp
#ifndef TESSERA_SINGLE_CORE_VERSION
#define TESSERA_SINGLE_CORE_VERSION
#include <string_view>

namespace tessera { inline namespace TESSERA_ISA {

namespace detail {
/// "major.minor.patch", of numbers below 100.
struct version_text {
  char text[9] = {};
  unsigned size = 0;

  constexpr version_text() {
    add(TESSERA_VERSION_MAJOR, '.');
    add(TESSERA_VERSION_MINOR, '.');
    add(TESSERA_VERSION_PATCH, '\0');
    --size;
  }

 private:
  constexpr void add(int number, char end) {
    if (number >= 10) text[size++] = char('0' + number / 10);
    text[size++] = char('0' + number % 10);
    text[size++] = end;
  }
};
inline constexpr version_text version_of_library{};
}  // namespace detail

/// The version of the library, by semantic versioning: "0.1.0". Its numbers are TESSERA_VERSION_MAJOR, _MINOR
/// and _PATCH.
inline constexpr std::string_view version{detail::version_of_library.text, detail::version_of_library.size};

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/core/array_ref.hpp
#ifndef TESSERA_SINGLE_CORE_ARRAY_REF
#define TESSERA_SINGLE_CORE_ARRAY_REF
#include <cstddef>

namespace tessera { inline namespace TESSERA_ISA {

/// A reference to elements in memory, one behind the other. Not a std::span, which takes longer to compile in
/// every file that runs a statement.
template <class T> class array_ref {
 public:
  constexpr array_ref() = default;
  constexpr array_ref(T const* first, std::size_t count) : first_(first), count_(count) {}
  template <std::size_t Count> constexpr array_ref(T const (&array)[Count]) : array_ref(array, Count) {}

  constexpr T const* begin() const { return first_; }
  constexpr T const* end() const { return first_ + count_; }
  constexpr std::size_t size() const { return count_; }
  constexpr T const& operator[](std::size_t i) const { return first_[i]; }

 private:
  T const* first_ = nullptr;
  std::size_t count_ = 0;
};

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/core/decimal.hpp
#ifndef TESSERA_SINGLE_CORE_DECIMAL
#define TESSERA_SINGLE_CORE_DECIMAL
#include <cstddef>
#include <cstdio>
#include <string>

// Numbers as text, whatever the locale. std::to_chars would do, but its header takes long to compile, and
// every header includes this one.

namespace tessera { inline namespace TESSERA_ISA {

/// `number` with at most `digits` significant digits, as "%g" of printf writes it.
std::string general_text(double number, int digits);
/// `number` with `digits` digits after the point, as "%f" of printf writes it.
std::string fixed_text(double number, int digits);

#ifdef TESSERA_BODY

namespace detail {

/// The text that printf wrote, with a point where the locale has another character, of one byte or several.
/// In place: a string that grows by characters takes long to compile.
TESSERA_COLD TESSERA_BODY std::string with_point(char* printed) {
  char* end = printed;
  for (char const* next = printed; *next; ++next) {
    const char c = *next;
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+')
      *end++ = c;
    else if (end == printed || end[-1] != '.')
      *end++ = '.';
  }
  return std::string(printed, std::size_t(end - printed));
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY std::string general_text(double number, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*g", digits, number);
  return detail::with_point(text);
}

TESSERA_COLD TESSERA_BODY std::string fixed_text(double number, int digits) {
  char text[400];  // a double has up to 309 digits before the point
  std::snprintf(text, sizeof text, "%.*f", digits, number);
  return detail::with_point(text);
}

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/core/error.hpp
#ifndef TESSERA_SINGLE_CORE_ERROR
#define TESSERA_SINGLE_CORE_ERROR
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace tessera { inline namespace TESSERA_ISA {

/// Base of everything the library throws. Messages begin with the operation in brackets, give the actual
/// numbers, and say which would be right: `[W * x] W has 48 columns but x has 32 features`.
struct error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Shapes or patterns do not fit.
struct shape_error : error {
  using error::error;
};

/// A file is missing, short, malformed or of another version; names the path and the byte offset.
struct io_error : error {
  using error::error;
};

/// An option has no meaning here; the message lists the options that have one.
struct option_error : error {
  using error::error;
};

/// This machine lacks an instruction that the program was compiled for, or threads or memory that it needs.
struct machine_error : error {
  using error::error;
};

/// A piece of a message: a text or a number. Made out of line: a function that may fail is compiled sooner.
class message_part {
 public:
  TESSERA_COLD message_part(const char* text) : text_(text), size_(std::strlen(text)) {}
  TESSERA_COLD message_part(std::string const& text) : text_(text.data()), size_(text.size()) {}
  template <std::integral Integer>
  message_part(Integer n)
      : message_part(n < 0,
                     n < 0 ? 0 - static_cast<unsigned long long>(n) : static_cast<unsigned long long>(n)) {}
  TESSERA_COLD message_part(double number) : number_(number), kind_(kind::real) {}

  void append_to(std::string& all) const;

 private:
  TESSERA_COLD message_part(bool negative, unsigned long long magnitude)
      : magnitude_(magnitude), negative_(negative), kind_(kind::integer) {}

  enum class kind { text, integer, real };
  const char* text_ = nullptr;
  std::size_t size_ = 0;
  unsigned long long magnitude_ = 0;
  double number_ = 0;
  bool negative_ = false;
  kind kind_ = kind::text;
};

// One function for all messages, out of the way: every call would else be expanded where it stands.
std::string message(std::initializer_list<message_part> parts);

/// Joins texts and numbers to one message.
template <class... Part> std::string message(Part const&... part) {
  return message(std::initializer_list<message_part>{message_part(part)...});
}

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void message_part::append_to(std::string& all) const {
  char digits[40];
  if (kind_ == kind::text)
    all.append(text_, size_);
  else if (kind_ == kind::integer)
    all.append(digits,
               std::size_t(std::snprintf(digits, sizeof digits, "%s%llu", negative_ ? "-" : "", magnitude_)));
  else
    all += general_text(number_, 10);
}

TESSERA_COLD TESSERA_BODY std::string message(std::initializer_list<message_part> parts) {
  std::string all;
  for (message_part const& part : parts) part.append_to(all);
  return all;
}

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/core/cpu.hpp
#ifndef TESSERA_SINGLE_CORE_CPU
#define TESSERA_SINGLE_CORE_CPU
#include <cstdio>

namespace tessera { inline namespace TESSERA_ISA {

/// The maker of the CPU, on which the costs of instructions depend: for choices between equivalent kernels.
enum class cpu_family { amd, intel, other };

TESSERA_COLD inline cpu_family this_cpu_family() {
#if defined(__x86_64__) || defined(__i386__)
  if (__builtin_cpu_is("amd")) return cpu_family::amd;
  if (__builtin_cpu_is("intel")) return cpu_family::intel;
#endif
  return cpu_family::other;
}

/// The first feature this code was compiled for that this CPU lacks, or "" if it has them all.
TESSERA_COLD inline const char* missing_cpu_feature() {
#if defined(__x86_64__) || defined(__i386__)
#define TESSERA_NEEDS(feature) \
  if (!__builtin_cpu_supports(feature)) return feature
#ifdef __AVX__
  TESSERA_NEEDS("avx");
#endif
#ifdef __AVX2__
  TESSERA_NEEDS("avx2");
#endif
#ifdef __FMA__
  TESSERA_NEEDS("fma");
#endif
#ifdef __AVX512F__
  TESSERA_NEEDS("avx512f");
#endif
#ifdef __AVX512BW__
  TESSERA_NEEDS("avx512bw");
#endif
#ifdef __AVX512DQ__
  TESSERA_NEEDS("avx512dq");
#endif
#ifdef __AVX512VL__
  TESSERA_NEEDS("avx512vl");
#endif
#ifdef __AVX512VBMI__
  TESSERA_NEEDS("avx512vbmi");
#endif
#ifdef __AVX512VBMI2__
  TESSERA_NEEDS("avx512vbmi2");
#endif
#ifdef __AVX512VNNI__
  TESSERA_NEEDS("avx512vnni");
#endif
#ifdef __AVXVNNI__
  TESSERA_NEEDS("avxvnni");
#endif
#ifdef __AVX512BF16__
  TESSERA_NEEDS("avx512bf16");
#endif
#undef TESSERA_NEEDS
#endif
  return "";
}

/// Throws machine_error if this code would end in an illegal instruction on this CPU. Its own code has no
/// strings, which might be copied by just these instructions.
TESSERA_COLD inline void require_compiled_instruction_set() {
  const char* const feature = missing_cpu_feature();
  if (*feature == '\0') return;
  char text[256];
  std::snprintf(
      text, sizeof text,
      "[context] this program was compiled for %s with %s, which this CPU lacks; compile it for this machine "
      "(-march=native) or for a common subset (-march=x86-64-v3)",
      TESSERA_ISA_NAME, feature);
  throw machine_error(text);
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/core/function_ref.hpp
#ifndef TESSERA_SINGLE_CORE_FUNCTION_REF
#define TESSERA_SINGLE_CORE_FUNCTION_REF
#include <concepts>
#include <memory>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA {

/// A reference to anything that can be called as Signature says, two words long; valid as long as the
/// function or object is.
template <class Signature> class function_ref;

template <class Result, class... Arguments> class function_ref<Result(Arguments...)> {
 public:
  template <class Function>
    requires(!std::same_as<std::remove_cvref_t<Function>, function_ref> &&
             std::is_object_v<std::remove_reference_t<Function>> &&
             std::is_invocable_r_v<Result, Function&, Arguments...>)
  function_ref(Function&& function)
      : function_(const_cast<void*>(static_cast<void const*>(std::addressof(function)))),
        call_(call<std::remove_reference_t<Function>>) {}

  Result operator()(Arguments... arguments) const {
    return call_(function_, static_cast<Arguments&&>(arguments)...);
  }

 private:
  template <class Function> static Result call(void* function, Arguments... arguments) {
    return static_cast<Result>((*static_cast<Function*>(function))(static_cast<Arguments&&>(arguments)...));
  }

  void* function_;
  Result (*call_)(void*, Arguments...);
};

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/core/ieee_arithmetic.hpp
#ifndef TESSERA_SINGLE_CORE_IEEE_ARITHMETIC
#define TESSERA_SINGLE_CORE_IEEE_ARITHMETIC
#include <bit>
#include <cstdint>
#include <limits>

namespace tessera { inline namespace TESSERA_ISA {

/// Throws option_error if the compiler may compute otherwise than IEEE 754 says: sums that round numbers to
/// integers would leave them as they are, in exp, sin and cos. For flags that no macro shows: Clang has none
/// for parts of -ffast-math, and neither has one for pragmas. Called where results are rounded to nearest. No
/// matter whether denormals are flushed, as they are in programs that GCC links with -ffast-math: runs flush
/// them anyway, and give the same bits.
TESSERA_COLD inline void require_ieee_arithmetic() {
  using limits = std::numeric_limits<float>;
  // Volatile, so that the compiler does not compute with them.
  volatile float third = 1.0f / 3, negative_zero = -0.0f, infinity = limits::infinity(),
                 nan = limits::quiet_NaN(), large = 0x1p100f;
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  const float x = third, zero = negative_zero, least = infinity, unordered = nan, factor = large;
  const char* broken = nullptr;
  if (!(factor * 0x1p100f * 0x1p-100f > limits::max())) broken = "reorders products";
  if (bits((x + 0x1.8p23f) - 0x1.8p23f) != 0) broken = "reorders sums";
  if (bits(x / 3) != 0x3de38e39) broken = "multiplies by reciprocals";
  if (bits(zero + 0.0f) != 0) broken = "ignores the signs of zeros";
  if (!(unordered != unordered)) broken = "ignores not-a-number";
  if (!(least > limits::max())) broken = "ignores infinity";
  if (broken)
    throw option_error(
        message("[context] this program was compiled by a compiler that ", broken,
                ", so that results would be wrong: compile without -ffast-math, -Ofast and their "
                "parts, but for -fno-math-errno and -fno-trapping-math, and without such pragmas"));
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/core/memory.hpp
#ifndef TESSERA_SINGLE_CORE_MEMORY
#define TESSERA_SINGLE_CORE_MEMORY
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace tessera { inline namespace TESSERA_ISA {

/// Bytes held by tensors of this process, now and at most so far. A statistic: nothing depends on it.
struct tensor_memory {
  static std::size_t live() { return live_.load(std::memory_order_relaxed); }
  static std::size_t peak() { return peak_.load(std::memory_order_relaxed); }
  /// Starts a new measurement of the peak from the live bytes.
  static void reset_peak() { peak_.store(live(), std::memory_order_relaxed); }

  static void add(std::size_t bytes) {
    const std::size_t now = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::size_t seen = peak();
    while (seen < now && !peak_.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }
  static void remove(std::size_t bytes) { live_.fetch_sub(bytes, std::memory_order_relaxed); }

  /// Bytes that were copied so far because they could not be borrowed: see borrowing::or_copied.
  static std::size_t copied() { return copied_.load(std::memory_order_relaxed); }
  static void add_copied(std::size_t bytes) { copied_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  inline static std::atomic<std::size_t> live_{0}, peak_{0}, copied_{0};
};

/// How values that cannot be borrowed are treated: an error, or a copy, which tensor_memory::copied counts.
/// Who writes the copy does not change the values of the owner.
enum class borrowing { strict, or_copied };

/// a * b, or shape_error if it does not fit: sizes are checked before anything is allocated.
std::size_t checked_multiply(std::size_t a, std::size_t b);

/// A fixed number of values at an address that is a multiple of 64, zero at first. A register may be read,
/// and written, at any of them: the array has memory, with zeros, up to the next multiple of 64 bytes. Large
/// arrays ask the system for huge pages: a deep panel would else need more pages of 4 KiB than the TLB holds.
template <class T> class aligned_array {
  static_assert(std::is_trivially_copyable_v<T>, "values are moved as bytes");

 public:
  static constexpr std::size_t alignment = 64;

  aligned_array() = default;
  TESSERA_COLD explicit aligned_array(std::size_t size) : size_(size) {
    if (size == 0) return;
    const std::size_t bytes = round_up(checked_multiply(size, sizeof(T)), alignment);
    data_ = static_cast<T*>(::operator new(bytes, page_of(bytes)));
#ifdef __linux__
    if (bytes >= huge_page) madvise(data_, bytes, MADV_HUGEPAGE);  // advice: small pages serve as well
#endif
    tensor_memory::add(size_bytes());
    std::memset(static_cast<void*>(data_), 0, bytes);
  }
  /// `size` values that another owns, and keeps for longer than this array; values from `used` on are zero.
  /// `lent` begins at a multiple of 64 bytes, and has zeros behind its values up to the next multiple. Throws
  /// shape_error if it is shorter than `used`, ends behind that multiple, or has another value there;
  /// option_error if it cannot be borrowed. Copies of this array own their values.
  TESSERA_COLD static aligned_array over(std::span<T> lent, std::size_t used, std::size_t size,
                                         borrowing how = borrowing::strict) {
    const std::size_t whole = round_up(checked_multiply(size, sizeof(T)), alignment) / sizeof(T);
    if (lent.size() < used || lent.size() > whole)
      throw shape_error(message("[borrow] ", lent.size(), " values, but ", used, " are needed"));
    for (std::size_t i = used; i < lent.size(); ++i)
      if (double(lent[i]) != 0)
        throw shape_error(message("[borrow] value ", i, ", behind the last one of ", used, ", must be zero"));
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(lent.data()) % alignment;
    if (how == borrowing::strict && (beyond != 0 || lent.size() < whole))
      throw option_error(message(
          "[borrow] ",
          beyond != 0 ? message("the values begin ", beyond, " bytes behind a multiple of ", alignment)
                      : message(whole - lent.size(), " zeros behind ", lent.size(), " values are missing"),
          ", and kernels read whole registers: borrowing::or_copied copies such values"));
    if (beyond != 0 || lent.size() < whole) {
      aligned_array copy(size);
      std::copy_n(lent.data(), used, copy.data_);
      tensor_memory::add_copied(copy.size_bytes());
      return copy;
    }
    aligned_array array;
    array.data_ = lent.data();
    array.size_ = size;
    array.borrows_ = true;
    return array;
  }
  bool borrows() const { return borrows_; }
  /// The values of another array, whose tail it shares.
  static aligned_array at(T* data, std::size_t size) {
    aligned_array array;
    array.data_ = data;
    array.size_ = size;
    array.borrows_ = true;
    return array;
  }

  aligned_array(aligned_array const& other) : aligned_array(other.size_) {
    std::copy_n(other.data_, size_, data_);
  }
  aligned_array(aligned_array&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        borrows_(std::exchange(other.borrows_, false)) {}
  aligned_array& operator=(aligned_array other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(borrows_, other.borrows_);
    return *this;
  }
  ~aligned_array() {
    if (!data_ || borrows_) return;
    tensor_memory::remove(size_bytes());
    ::operator delete(data_, page_of(size_bytes()));
  }

  T* data() { return data_; }
  T const* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t size_bytes() const { return size_ * sizeof(T); }
  T& operator[](std::size_t i) { return data_[i]; }
  T const& operator[](std::size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  T const* begin() const { return data_; }
  T const* end() const { return data_ + size_; }
  std::span<T> span() { return {data_, size_}; }
  std::span<T const> span() const { return {data_, size_}; }

 private:
  // Arrays share no 256 bytes, the unit of accounts, which therefore do not depend on addresses
  // (ipu/runs/homes.hpp).
  static constexpr std::size_t huge_page = std::size_t(2) << 20, small_page = 256;
  static std::align_val_t page_of(std::size_t bytes) {
    return std::align_val_t{round_up(bytes, alignment) >= huge_page ? huge_page : small_page};
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
  bool borrows_ = false;
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY std::size_t checked_multiply(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) ||
      product > std::size_t(std::numeric_limits<std::ptrdiff_t>::max()))
    throw shape_error(message("[allocate] ", a, " times ", b, " does not fit the address space"));
  return product;
}

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/exec/available_threads.hpp
#ifndef TESSERA_SINGLE_EXEC_AVAILABLE_THREADS
#define TESSERA_SINGLE_EXEC_AVAILABLE_THREADS
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#ifdef __linux__
#include <sched.h>
#endif

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

namespace detail {

/// Reads the numbers at the beginning of a small file; returns how many there are ("max" is none).
int read_numbers(std::string const& path, long long (&numbers)[2]);

/// Whole cores that the CPU quota in a control group's folder allows, at least 1; INT_MAX if it has none.
/// Rounded down: the quota would stop one thread too many in the middle of a run, and all others would wait.
int quota_cores(std::string const& folder);

/// The tightest quota of the control group at root + path and of all above it.
int quota_cores_up_to(std::string const& root, std::string path);

/// The path in a line "number:controllers:path" of /proc/self/cgroup, if the group is one of version 2 (no
/// controllers) or, of version 1, that with the cpu controller; else null.
char const* group_path(char const* line);

int affinity_cores();

}  // namespace detail

/// The threads this process can keep running at once: the cores it may use, within the CPU quota of its
/// control groups (containers) where these are mounted as usual. At least 1.
int available_threads();

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY int read_numbers(std::string const& path, long long (&numbers)[2]) {
  std::FILE* const file = std::fopen(path.c_str(), "r");
  if (!file) return 0;
  const int found = std::fscanf(file, "%lld %lld", numbers, numbers + 1);
  std::fclose(file);
  return found;
}

TESSERA_COLD TESSERA_BODY int quota_cores(std::string const& folder) {
  long long quota[2] = {}, period[2] = {};
  if (read_numbers(message(folder, "/cpu.max"), quota) == 2)  // version 2
    period[0] = quota[1];
  else if (read_numbers(message(folder, "/cpu.cfs_quota_us"), quota) < 1 ||  // version 1
           read_numbers(message(folder, "/cpu.cfs_period_us"), period) < 1)
    return INT_MAX;
  if (quota[0] <= 0 || period[0] <= 0) return INT_MAX;
  return static_cast<int>(std::clamp(quota[0] / period[0], 1LL, 1LL << 20));
}

TESSERA_COLD TESSERA_BODY int quota_cores_up_to(std::string const& root, std::string path) {
  int cores = quota_cores(root);
  for (; path.size() > 1; path.erase(path.rfind('/')))
    cores = std::min(cores, quota_cores(message(root, path)));
  return cores;
}

TESSERA_COLD TESSERA_BODY char const* group_path(char const* line) {
  char const* const controllers = std::strchr(line, ':');
  char const* const path = controllers ? std::strchr(controllers + 1, ':') : nullptr;
  if (!path) return nullptr;
  for (char const* word = controllers; word < path; word = std::strpbrk(word + 1, ",:"))
    if (path == controllers + 1 || std::strncmp(word + 1, "cpu,", 4) == 0 ||
        std::strncmp(word + 1, "cpu:", 4) == 0)
      return path + 1;
  return nullptr;
}

TESSERA_COLD TESSERA_BODY int affinity_cores() {
#ifdef __linux__
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY int available_threads() {
  int threads = detail::affinity_cores();
  if (std::FILE* const groups = std::fopen("/proc/self/cgroup", "r")) {
    char line[4096];
    while (std::fgets(line, sizeof line, groups)) {
      line[std::strcspn(line, "\n")] = '\0';
      if (char const* const path = detail::group_path(line))
        for (char const* const root : {"/sys/fs/cgroup", "/sys/fs/cgroup/cpu"})
          threads = std::min(threads, detail::quota_cores_up_to(root, path));
    }
    std::fclose(groups);
  }
  return std::max(threads, 1);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::exec
#endif

// ---- tessera/exec/denormals.hpp
#ifndef TESSERA_SINGLE_EXEC_DENORMALS
#define TESSERA_SINGLE_EXEC_DENORMALS
#include <cstdint>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// While it lives, this thread takes denormal numbers for zero, as operands and as results: arithmetic on
/// them can be a hundred times slower, and optimizer moments decay into them. All else of its arithmetic is
/// as a program finds it at its start, so that a run gives the same bits on every thread: results are rounded
/// to nearest (whatever fesetround said before), and none raises a signal (feenableexcept). Restores the
/// earlier mode.
class flush_denormals {
 public:
  flush_denormals() : before_(read()) { write(flushing); }
  ~flush_denormals() { write(before_); }
  flush_denormals(flush_denormals const&) = delete;
  flush_denormals& operator=(flush_denormals const&) = delete;

 private:
#if defined(__SSE__)
  using control = unsigned;
  // MXCSR: flush to zero (bit 15), denormals are zero (bit 6), all exceptions masked (bits 7 to 12)
  static constexpr control flushing = 0x9fc0;
  static control read() { return __builtin_ia32_stmxcsr(); }
  static void write(control value) { __builtin_ia32_ldmxcsr(value); }
#elif defined(__aarch64__)
  using control = std::uint64_t;
  static constexpr control flushing = control{1} << 24;  // FPCR.FZ alone
  static control read() {
    control value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void write(control value) { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
  using control = unsigned;
  static constexpr control flushing = 0;
  static control read() { return 0; }
  static void write(control) {}
#endif

  control before_;
};

}}}  // namespace tessera::TESSERA_ISA::exec
#endif

// ---- tessera/exec/executor.hpp
#ifndef TESSERA_SINGLE_EXEC_EXECUTOR
#define TESSERA_SINGLE_EXEC_EXECUTOR
#include <concepts>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// A reference to a body, valid as long as the body itself is.
using body_ref = function_ref<void(int)>;

/// Something that calls body(0) … body(count-1), each once, on whatever threads and in whatever order it
/// likes, and returns from `run` when all calls have. `concurrency()` is the most calls of one run that may
/// overlap. A `context` hands it bodies that do not throw.
template <class E>
concept executor = requires(E& e, body_ref body) {
  e.run(1, body);
  { e.concurrency() } -> std::convertible_to<int>;
};

/// Calls the bodies in order on the calling thread.
struct serial {
  template <std::invocable<int> Body> void run(int count, Body&& body) const {
    const flush_denormals flushed;
    for (int index = 0; index < count; ++index) body(index);
  }
  int concurrency() const { return 1; }
};

static_assert(executor<serial> && executor<serial const>);

}}}  // namespace tessera::TESSERA_ISA::exec
#endif

// ---- tessera/exec/index_ranges.hpp
#ifndef TESSERA_SINGLE_EXEC_INDEX_RANGES
#define TESSERA_SINGLE_EXEC_INDEX_RANGES
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// The indices 0 … count-1 of one run, dealt to a fixed number of parts as contiguous ranges. The thread that
/// drains a part takes its indices from the front, one by one, and when it is empty indices of other parts
/// from the back: neighbouring indices stay on one thread, and only the tail of a run moves between threads.
class index_ranges {
 public:
  explicit index_ranges(int parts) : parts_(parts), ranges_(static_cast<std::size_t>(parts)) {}

  /// Deals out 0 … count-1 and returns how many parts got some: the first ones. No body of the previous run
  /// may be running any more, but threads may still be looking for one in `drain`. Whatever the caller wrote
  /// before is visible to whoever takes an index.
  int deal(int count);

  /// Calls the body for the indices of a part, then for indices of other parts until none is left, with
  /// denormals flushed. The first exception of a run is kept for `rethrow_failure`, and the indices nobody
  /// has taken are given up. Returns how many indices were taken or given up here.
  template <class Body> int drain(int part, Body const& body) noexcept {
    const flush_denormals flushed;
    int done = 0;
    try {
      for (int index; (index = take(part)) != none;) {
        ++done;
        body(index);
      }
    } catch (...) {
      if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::current_exception();
      done += give_up();
    }
    return done;
  }

  /// Throws the first exception of a body of the run, if any. To be called when every drain is over.
  void rethrow_failure();

 private:
  static constexpr int none = -1;

  // Begin in the lower half, end in the upper: both ends change in one compare-and-exchange. A thread that
  // read a range of one run may exchange it in the next if the numbers agree; it then owns an index of the
  // next run, which is as good.
  struct alignas(64) range {
    std::atomic<std::uint64_t> packed{0};
  };
  static std::uint64_t pack(std::uint32_t begin, std::uint32_t end) {
    return std::uint64_t{end} << 32 | begin;
  }
  static std::uint32_t bound(int count, int part, int parts) {
    return static_cast<std::uint32_t>(std::int64_t{count} * part / parts);
  }
  std::atomic<std::uint64_t>& at(int part) { return ranges_[static_cast<std::size_t>(part)].packed; }

  int take(int part) {
    for (int step = 0; step < parts_; ++step) {
      std::atomic<std::uint64_t>& packed = at((part + step) % parts_);
      std::uint64_t seen = packed.load(std::memory_order_relaxed);
      for (;;) {
        const auto begin = static_cast<std::uint32_t>(seen), end = static_cast<std::uint32_t>(seen >> 32);
        if (begin == end) break;
        const bool own = step == 0;
        const std::uint64_t rest = own ? pack(begin + 1, end) : pack(begin, end - 1);
        if (packed.compare_exchange_weak(seen, rest, std::memory_order_acquire, std::memory_order_relaxed))
          return static_cast<int>(own ? begin : end - 1);
      }
    }
    return none;
  }

  int give_up();

  int parts_;
  std::vector<range> ranges_;
  std::atomic<bool> failed_{false};
  std::exception_ptr failure_;
};

/// Enters a place that holds one run at a time, or finds it occupied: by a run further up this thread's
/// stack, or by another thread's.
class sole_entry {
 public:
  explicit sole_entry(std::atomic<bool>& occupied)
      : occupied_(occupied.exchange(true, std::memory_order_acquire) ? nullptr : &occupied) {}
  ~sole_entry() {
    if (occupied_) occupied_->store(false, std::memory_order_release);
  }
  sole_entry(sole_entry const&) = delete;
  sole_entry& operator=(sole_entry const&) = delete;

  explicit operator bool() const { return occupied_ != nullptr; }

 private:
  std::atomic<bool>* occupied_;
};

#ifdef TESSERA_BODY

TESSERA_BODY int index_ranges::deal(int count) {
  const int used = std::min(parts_, count);
  failed_.store(false, std::memory_order_relaxed);
  for (int part = 0; part < parts_; ++part) {
    const bool empty = part >= used;
    at(part).store(empty ? 0 : pack(bound(count, part, used), bound(count, part + 1, used)),
                   std::memory_order_release);
  }
  return used;
}

TESSERA_BODY void index_ranges::rethrow_failure() {
  if (failed_.exchange(false, std::memory_order_relaxed))
    std::rethrow_exception(std::exchange(failure_, nullptr));
}

TESSERA_BODY int index_ranges::give_up() {
  int count = 0;
  for (int part = 0; part < parts_; ++part) {
    const std::uint64_t rest = at(part).exchange(0, std::memory_order_relaxed);
    count += static_cast<int>((rest >> 32) - (rest & 0xffffffffu));
  }
  return count;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::exec
#endif

// ---- tessera/core/engine.hpp
#ifndef TESSERA_SINGLE_CORE_ENGINE
#define TESSERA_SINGLE_CORE_ENGINE
#include <cstdint>
#include <initializer_list>

namespace tessera { inline namespace TESSERA_ISA {

/// The instruction that multiplies and adds in the register loop of a product.
enum class engine : std::uint8_t {
  fma,    // a number of the accumulator in each lane; narrower elements are widened before
  pairs,  // two neighbours of a narrow element in each lane, by one instruction
  quads,  // four neighbours of int8 in each lane, summed in integers of 32 bits, by one instruction (VNNI)
  amx,    // blocks of bfloat16, float16 or int8, by the matrix unit of Intel CPUs
};

constexpr char const* name_of(engine which) {
  constexpr char const* names[] = {"fma", "pairs", "quads", "amx"};
  return names[int(which)];
}

/// Some engines, of which `fma` always is one.
class engine_set {
 public:
  constexpr engine_set() = default;
  constexpr engine_set(std::initializer_list<engine> those) {
    for (const engine which : those) allow(which);
  }
  constexpr bool allows(engine which) const { return (allowed_ & bit(which)) != 0; }
  friend constexpr bool operator==(engine_set, engine_set) = default;
  constexpr void allow(engine which) { allowed_ |= bit(which); }
  /// Takes one out, but for `fma`.
  constexpr void forbid(engine which) {
    if (which != engine::fma) allowed_ &= ~bit(which);
  }

 private:
  static constexpr unsigned bit(engine which) { return 1u << int(which); }

  unsigned allowed_ = bit(engine::fma);
};

/// Multiply-adds of a narrow element in the time of one of float.
///   fma     1: widening is hidden behind the multiplications (Zen 4)
///   pairs   2 where the instruction is issued as often as an FMA: measured on Zen 4 and Zen 5, assumed of
///           families that were not measured. On Intel 0.5: Sapphire and Granite Rapids issue it a quarter
///           as often (117 of 237 GFLOP/s a core), and widened products are 1.2 to 1.35 times as fast
///   quads   4: four multiply-adds in each lane, issued as often as an FMA
///   amx     13, of which a product of blocks of 16x16 sees 5, one of 8x8 2.6, one of 4x4 1.4: measured on
///           Granite Rapids
constexpr double rate_of(engine which, cpu_family family) {
  if (which == engine::fma) return 1;
  if (which == engine::amx) return 13;
  if (which == engine::quads) return 4;
  return family == cpu_family::intel ? 0.5 : 2;
}

/// The fastest engine that is allowed, for products whose operands are of one narrow element.
///   compiled   engines for which there is code
constexpr engine fastest_engine(cpu_family family, engine_set allowed, engine_set compiled) {
  engine fastest = engine::fma;
  for (const engine which : {engine::pairs, engine::quads, engine::amx})
    if (allowed.allows(which) && compiled.allows(which) && rate_of(which, family) > rate_of(fastest, family))
      fastest = which;
  return fastest;
}

/// The maker of a CPU and the engines that the CPU has: both decide which engine multiplies.
struct cpu_model {
  char const* name;  // as in -march
  cpu_family family;
  engine_set engines;
};

inline constexpr cpu_model cpu_models[] = {
    {"znver3", cpu_family::amd, {}},
    {"znver4", cpu_family::amd, {engine::pairs, engine::quads}},
    {"skylake-avx512", cpu_family::intel, {}},
    {"icelake-server", cpu_family::intel, {engine::quads}},
    {"cooperlake", cpu_family::intel, {engine::pairs, engine::quads}},
    {"sapphirerapids", cpu_family::intel, {engine::pairs, engine::quads, engine::amx}},
};

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/exec/amx_permission.hpp
#ifndef TESSERA_SINGLE_EXEC_AMX_PERMISSION
#define TESSERA_SINGLE_EXEC_AMX_PERMISSION
#if defined(TESSERA_HARDWARE_AMX) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// Whether this process may use the CPU's matrix unit, for which it asks the system, once: Linux grants it to
/// all threads of a process until it executes another program, and from then on refuses signal stacks too
/// small for the unit's registers (8 KB more). False where the code was not compiled for one; true for one in
/// plain C++.
bool amx_permitted();

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY bool amx_permitted() {
#if defined(TESSERA_EMULATED_AMX)
  return true;
#elif defined(TESSERA_HARDWARE_AMX) && defined(__linux__)
  static const bool permitted = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned int8_bit = 1u << 25, tile_bit = 1u << 24, bfloat16_bit = 1u << 22,
                       needed = int8_bit | tile_bit | bfloat16_bit;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & needed) != needed) return false;
#ifdef TESSERA_HARDWARE_AMX_FP16
    constexpr unsigned float16_bit = 1u << 21;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & float16_bit)) return false;
#endif
    // Some virtual machines announce AMX without a palette.
    if (!__get_cpuid_count(0x1d, 0, &a, &b, &c, &d) || a < 1) return false;
    unsigned low = 0, high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    constexpr unsigned states = 3u << 17;  // their configuration, their data
    if ((low & states) != states) return false;
    constexpr long ask_permission = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, ask_permission, tile_data) == 0;
  }();
  return permitted;
#else
  return false;
#endif
}

#endif

}}}  // namespace tessera::TESSERA_ISA::exec
#endif

// ---- tessera/exec/machine.hpp
#ifndef TESSERA_SINGLE_EXEC_MACHINE
#define TESSERA_SINGLE_EXEC_MACHINE
#include <cstdint>
#include <cstdlib>
#include <string>

namespace tessera { inline namespace TESSERA_ISA {

/// The workers for which a run is cut into tiles, and the engines that multiply.
struct machine {
  int workers = 1;  // tasks that it computes at the same time
  engine_set engines{engine::pairs, engine::quads};
  cpu_family family = cpu_family::other;  // by which it chooses among its engines
  std::int64_t worker_bytes = 0;          // memory of a worker of its own; 0: as much as a task wants
};

/// A worker of `on` that chooses among its engines as another CPU does, of `cpu_models`. Throws option_error
/// if there is none of this name, machine_error if it has a matrix unit that `on` lacks.
machine as_on_cpu(machine on, std::string const& name);

/// A worker on this CPU, with all of its engines; or, if the environment variable TESSERA_CPU names one of
/// `cpu_models`, one that chooses as that does: with the same instruction set it computes the same bits.
machine this_machine();

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY machine as_on_cpu(machine on, std::string const& name) {
  std::string names;
  for (cpu_model const& cpu : cpu_models) {
    if (cpu.name == name) {
      if (cpu.engines.allows(engine::amx) && !on.engines.allows(engine::amx))
        throw machine_error(message("[context] TESSERA_CPU=", name, " multiplies by AMX, which this CPU or ",
                                    "this program lacks"));
      on.family = cpu.family;
      on.engines = cpu.engines;
      return on;
    }
    names.append(names.empty() ? "" : ", ").append(cpu.name);
  }
  throw option_error(message("[context] TESSERA_CPU=", name, ": the CPUs are ", names));
}

TESSERA_COLD TESSERA_BODY machine this_machine() {
  machine m{.family = this_cpu_family()};
  if (exec::amx_permitted()) m.engines.allow(engine::amx);
  char const* const other = std::getenv("TESSERA_CPU");
  return other && *other ? as_on_cpu(m, other) : m;
}

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/exec/part_hook.hpp
#ifndef TESSERA_SINGLE_EXEC_PART_HOOK
#define TESSERA_SINGLE_EXEC_PART_HOOK
#include <cstddef>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// Two functions around each part of a run, on the thread that takes it: they set and restore state that a
/// kernel needs of its thread. Neither function throws.
struct part_hook {
  void (*enter)();
  void (*leave)();
  friend bool operator==(part_hook const&, part_hook const&) = default;
};

/// Around one part: denormals are flushed, and hooks are entered in order and left in reverse.
class part_scope {
 public:
  explicit part_scope(array_ref<part_hook> hooks) : hooks_(hooks) {
    for (part_hook const& hook : hooks_) hook.enter();
  }
  part_scope(part_scope const&) = delete;
  part_scope& operator=(part_scope const&) = delete;
  ~part_scope() {
    for (std::size_t i = hooks_.size(); i > 0; --i) hooks_[i - 1].leave();
  }

 private:
  flush_denormals flushed_;
  array_ref<part_hook> hooks_;
};

}}}  // namespace tessera::TESSERA_ISA::exec
#endif

// ---- tessera/exec/phase.hpp
#ifndef TESSERA_SINGLE_EXEC_PHASE
#define TESSERA_SINGLE_EXEC_PHASE
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// The owner of memory: the user, a worker for the length of a task, or all workers to the end of a run.
enum class memory : std::uint8_t { user, worker, run };

/// Bytes that a task reads or writes: `count` pieces of `bytes` each, `stride` bytes apart.
struct touched_bytes {
  memory owner;
  std::uintptr_t at;  // an address, or the offset in memory that is not the user's
  std::int64_t bytes, count = 1, stride = 0;

  std::int64_t all() const { return bytes * count; }
  friend bool operator==(touched_bytes const&, touched_bytes const&) = default;
};

/// Multiply-adds of a task by stored blocks of one form: `blocks` of them, in `rows` lines, times `columns`
/// columns.
struct block_product {
  std::int64_t rows, blocks, columns;
  int block_rows, block_cols, element_bytes;
};

/// The reads, writes and multiplications of one task.
///   reads, writes   bytes of live tokens in the lanes of live features, and of whole blocks, each counted
///                   once, even if the kernel reads it again; indices are not counted
///   multiplies      multiply-adds of products: of whole stored blocks, for live tokens
///   products        the products of weights in blocks among them, by the size of the block
///   operations      elementwise arithmetic, in numbers; a costly function counts for twelve
///   panel           of tokens, or -1
///   streams         whether the reads may arrive piece by piece, in the order of the panels
struct task_description {
  std::vector<touched_bytes> reads, writes;
  std::int64_t multiplies = 0, operations = 0;
  std::vector<block_product> products;
  std::int64_t panel = -1;
  bool streams = false;

  void read(touched_bytes const& bytes);
  void write(touched_bytes const& bytes);
  void multiply(block_product const& by);
};

/// The tasks between two barriers of a run: none of them waits for another.
class phase {
 public:
  phase() = default;
  /// Phase `number` of an object with tasks(number), for_each_kind(number, visit), describe(number, task) and
  /// compute(number, task, worker).
  template <class Of>
  phase(Of const& of, int number)
      : of_(&of),
        number_(number),
        tasks_(of.tasks(number)),
        for_each_kind_(for_each_kind_of<Of>),
        describe_(describe_of<Of>),
        compute_(compute_of<Of>) {}

  int tasks() const { return tasks_; }
  /// Calls visit with the kind of each step: "product", "elementwise", …
  void for_each_kind(function_ref<void(char const*)> visit) const { for_each_kind_(of_, number_, visit); }
  task_description describe(int task) const { return describe_(of_, number_, task); }
  /// To be called once for each task. Workers are 0 … concurrency() - 1; each has memory for one task at a
  /// time.
  void compute(int task, int worker) const { compute_(of_, number_, task, worker); }

 private:
  template <class Of>
  static void for_each_kind_of(void const* object, int number, function_ref<void(char const*)> visit) {
    static_cast<Of const*>(object)->for_each_kind(number, visit);
  }
  template <class Of> static task_description describe_of(void const* object, int number, int task) {
    return static_cast<Of const*>(object)->describe(number, task);
  }
  template <class Of> static void compute_of(void const* object, int number, int task, int worker) {
    static_cast<Of const*>(object)->compute(number, task, worker);
  }

  void const* of_ = nullptr;
  int number_ = 0, tasks_ = 0;
  void (*for_each_kind_)(void const*, int, function_ref<void(char const*)>) = nullptr;
  task_description (*describe_)(void const*, int, int) = nullptr;
  void (*compute_)(void const*, int, int, int) = nullptr;
};

/// An executor that looks at the tasks of a run before it runs them: it gets all phases in their order, calls
/// compute for each task once, and begins a phase when the phases before are done. It may throw before the
/// first.
template <class E>
concept phase_executor = requires(E& e, array_ref<phase> phases) { e.run(phases); };

/// An executor that stands for another machine than its threads: runs are cut into tiles for that one.
template <class E>
concept stand_in = requires(E const& e) {
  { e.stands_for() } -> std::convertible_to<machine>;
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void task_description::read(touched_bytes const& bytes) { reads.push_back(bytes); }

TESSERA_COLD TESSERA_BODY void task_description::write(touched_bytes const& bytes) {
  writes.push_back(bytes);
}

TESSERA_COLD TESSERA_BODY void task_description::multiply(block_product const& by) {
  products.push_back(by);
  multiplies += by.blocks * by.block_rows * by.block_cols * by.columns;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::exec
#endif

// ---- tessera/exec/slow_build.hpp
#ifndef TESSERA_SINGLE_EXEC_SLOW_BUILD
#define TESSERA_SINGLE_EXEC_SLOW_BUILD
#include <cstdio>
#include <cstdlib>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// Says to standard error, once a process, that this program was compiled without optimisation, or for any
/// x86-64 CPU where this one has AVX2: mistakes that cost a thousand times the time, and five times the time,
/// and that nothing else shows. Says nothing where the macro or the environment variable TESSERA_QUIET is
/// defined.
TESSERA_COLD inline void warn_of_slow_build() {
#ifndef TESSERA_QUIET
  static const bool said = [] {
    if (std::getenv("TESSERA_QUIET")) return false;
#if !defined(__OPTIMIZE__) && !defined(TESSERA_COMPILED)  // the library's own code is optimised
    std::fputs(
        "tessera: this program was compiled without optimisation, which makes it a thousand times "
        "slower: add -O3 (TESSERA_QUIET=1 silences this)\n",
        stderr);
#endif
#if defined(__x86_64__) && !defined(__AVX2__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      std::fputs(
          "tessera: this program was compiled for any x86-64 CPU, which makes it several times slower "
          "than for this one: add -march=native (TESSERA_QUIET=1 silences this)\n",
          stderr);
#endif
    return true;
  }();
  static_cast<void>(said);
#endif
}

}}}  // namespace tessera::TESSERA_ISA::exec
#endif

// ---- tessera/exec/sole_user.hpp
#ifndef TESSERA_SINGLE_EXEC_SOLE_USER
#define TESSERA_SINGLE_EXEC_SOLE_USER
#include <atomic>
#include <memory>
#include <thread>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// A place that one thread uses at a time, by itself and by threads that work for it. A thread of these may
/// come in again, from the work that it does; any other thread is refused.
class sole_user {
 public:
  /// From when a thread has come in until it has left.
  class entry {
   public:
    entry(sole_user* left, std::thread::id thread) : left_(left), thread_(thread) {}
    ~entry() {
      if (left_) left_->user_.store({}, std::memory_order_release);
    }
    entry(entry const&) = delete;
    entry& operator=(entry const&) = delete;

    /// Whether the thread came from outside, not again.
    explicit operator bool() const { return left_ != nullptr; }
    std::thread::id thread() const { return thread_; }

   private:
    sole_user* left_;
    std::thread::id thread_;
  };

  /// While a thread does a part of the work of an entry.
  class work {
   public:
    work(sole_user const& place, int part, std::thread::id user) : worker_(nullptr) {
      const std::thread::id self = std::this_thread::get_id();
      if (self == user) return;  // known already
      worker_ = &place.workers_[std::size_t(part)].thread;
      worker_->store(self, std::memory_order_relaxed);
    }
    ~work() {
      if (worker_) worker_->store({}, std::memory_order_relaxed);
    }
    work(work const&) = delete;
    work& operator=(work const&) = delete;

   private:
    std::atomic<std::thread::id>* worker_;
  };

  /// For as many parts of work as may be done at the same time.
  explicit sole_user(int parts) : parts_(parts), workers_(std::make_unique<worker[]>(std::size_t(parts))) {}

  /// Throws error, `[operation] …`, if another thread is there.
  entry enter(char const* operation) {
    const std::thread::id self = std::this_thread::get_id();
    std::thread::id user;
    if (user_.compare_exchange_strong(user, self, std::memory_order_acquire)) return {this, self};
    if (user != self) require_worker(operation, self);
    return {nullptr, self};
  }

 private:
  struct alignas(64) worker {
    std::atomic<std::thread::id> thread;
  };

  void require_worker(char const* operation, std::thread::id self) const;

  std::atomic<std::thread::id> user_;
  int parts_;
  std::unique_ptr<worker[]> workers_;
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void sole_user::require_worker(char const* operation, std::thread::id self) const {
  for (int part = 0; part < parts_; ++part)
    if (workers_[std::size_t(part)].thread.load(std::memory_order_relaxed) == self) return;
  throw error(message("[", operation,
                      "] the context is in use by another thread: a context is used by one thread at a time. "
                      "Give each thread one of its own, as context(1)"));
}

#endif

}}}  // namespace tessera::TESSERA_ISA::exec
#endif

// ---- tessera/exec/thread_pool.hpp
#ifndef TESSERA_SINGLE_EXEC_THREAD_POOL
#define TESSERA_SINGLE_EXEC_THREAD_POOL
#include <atomic>
#include <cstdint>
#include <memory>
#include <system_error>
#include <thread>  // and the clock: <chrono> has calendars, too, which take as long to compile as all of exec/

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// Threads that share the bodies of a run: a contiguous range of indices each, stealing at the end.
///
/// Between runs the threads spin for a while, so that the next one starts within a microsecond, and then
/// sleep, so that they leave the cores to others. `run` waits for bodies, never for threads: one that wakes
/// late finds its range already stolen.
class thread_pool {
 public:
  /// The caller of `run` is one of the threads. More of them than cores do not spin.
  ///   threads   at least 1, else option_error; machine_error if the system starts no more of them
  explicit thread_pool(int threads);
  ~thread_pool();
  thread_pool(thread_pool const&) = delete;
  thread_pool& operator=(thread_pool const&) = delete;

  int concurrency() const { return threads_; }

  /// Calls body(0) … body(count-1), each once, with denormals flushed. If bodies throw, one of their
  /// exceptions arrives here, and bodies not yet begun may be left out. While a run is in progress another
  /// one, begun by a body or by another thread, is done in order on the thread that begins it. Allocates
  /// nothing.
  void run(int count, body_ref body);

 private:
  // Waking a sleeping thread costs 3 to 50 microseconds, the range of the products between which it waits.
  static constexpr std::chrono::microseconds longest_spin{50};

  static int at_least_one(int threads);

  void work(int part);

  // The body is read only after an index has been taken: from then on its run cannot end before this thread
  // has counted that index, however late the thread came.
  void drain(int part);

  template <class Number> Number wait_for_change(std::atomic<Number> const& value, Number old) const {
    using clock = std::chrono::steady_clock;
    const clock::time_point sleep_time = clock::now() + spin_time_;
    do {
      for (int glance = 0; glance < 32; ++glance) {
        if (const Number now = value.load(std::memory_order_acquire); now != old) return now;
        pause();
      }
    } while (clock::now() < sleep_time);
    value.wait(old, std::memory_order_acquire);
    return value.load(std::memory_order_acquire);
  }

  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  void stop();

  std::thread& worker(int part) const { return workers_[static_cast<std::size_t>(part - 1)]; }

  const int threads_;
  const std::chrono::microseconds spin_time_;
  index_ranges ranges_;
  std::unique_ptr<std::thread[]> workers_;  // one less than threads
  std::atomic<bool> running_{false}, stopping_{false};

  // Two cache lines: workers read the first between runs and write the second at the end of one.
  alignas(64) std::atomic<std::uint32_t> runs_{0};
  body_ref const* body_ = nullptr;
  alignas(64) std::atomic<int> remaining_{0};
};

static_assert(executor<thread_pool>);

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY thread_pool::thread_pool(int threads)
    : threads_(at_least_one(threads)),
      spin_time_(threads <= available_threads() ? longest_spin : std::chrono::microseconds(0)),
      ranges_(threads) {
  int part = 1;
  try {
    workers_ = std::make_unique<std::thread[]>(static_cast<std::size_t>(threads - 1));
    for (; part < threads; ++part) worker(part) = std::thread([this, part] { work(part); });
  } catch (std::system_error const& refusal) {
    stop();
    throw machine_error(message("[thread_pool] the system does not start thread ", part + 1, " of ", threads,
                                ": ", refusal.code().message(),
                                "; ask for fewer, or raise its limit (ulimit -u, pids.max of a container)"));
  } catch (...) {
    stop();
    throw;
  }
}

TESSERA_COLD TESSERA_BODY thread_pool::~thread_pool() { stop(); }

TESSERA_COLD TESSERA_BODY void thread_pool::run(int count, body_ref body) {
  const sole_entry entry(running_);
  if (!entry || threads_ == 1 || count <= 1) return serial{}.run(count, body);

  body_ = &body;
  remaining_.store(count, std::memory_order_relaxed);
  ranges_.deal(count);
  runs_.fetch_add(1, std::memory_order_release);
  runs_.notify_all();
  drain(0);
  while (const int left = remaining_.load(std::memory_order_acquire)) wait_for_change(remaining_, left);
  ranges_.rethrow_failure();
}

TESSERA_BODY int thread_pool::at_least_one(int threads) {
  if (threads < 1)
    throw option_error(message("[thread_pool] ", threads,
                               " threads asked for; at least 1 is needed, which is the calling thread"));
  return threads;
}

TESSERA_COLD TESSERA_BODY void thread_pool::work(int part) {
  for (std::uint32_t seen = 0;;) {
    seen = wait_for_change(runs_, seen);
    if (stopping_.load(std::memory_order_relaxed)) return;
    drain(part);
  }
}

TESSERA_BODY void thread_pool::drain(int part) {
  const int done = ranges_.drain(part, [this](int index) { (*body_)(index); });
  if (done > 0 && remaining_.fetch_sub(done, std::memory_order_acq_rel) == done) remaining_.notify_one();
}

TESSERA_COLD TESSERA_BODY void thread_pool::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  runs_.fetch_add(1, std::memory_order_release);
  runs_.notify_all();
  for (int part = 1; workers_ && part < threads_; ++part)
    if (worker(part).joinable()) worker(part).join();
}

#endif

}}}  // namespace tessera::TESSERA_ISA::exec
#endif

// ---- tessera/exec/context.hpp
#ifndef TESSERA_SINGLE_EXEC_CONTEXT
#define TESSERA_SINGLE_EXEC_CONTEXT
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA {

/// Whether a context may have more threads than `exec::available_threads()`. They only slow each other down,
/// but a test may want them.
enum class oversubscribe { refused, allowed };

/// This number of threads, or of the cores this process may use if these are fewer: `context ctx(at_most(4))`
inline int at_most(int threads) { return std::min(threads, exec::available_threads()); }

namespace detail {

struct page {
  std::byte bytes[4096];
};

/// Page-aligned memory that only grows; its content is lost when it does.
class page_buffer {
 public:
  std::byte* at_least(std::size_t bytes);

 private:
  aligned_array<page> pages_;
  std::size_t size_ = 0;
};

}  // namespace detail

/// Where computations run: an executor and the scratch memory of its bodies. Used by one thread at a time:
/// one that begins a run while another thread is in one gets an error.
class context {
 public:
  /// A thread pool on all the cores this process may use.
  context() : context((require_compiled_instruction_set(), exec::available_threads())) {}

  /// A new thread pool; with 1 thread everything is done by the caller. Throws option_error for fewer
  /// threads than 1 or, unless allowed, more than cores.
  TESSERA_COLD explicit context(int threads, oversubscribe more_than_cores = oversubscribe::refused)
      : context(new_pool(threads, more_than_cores)) {}

  /// The executor of the user, who keeps it alive and may share it between contexts.
  template <exec::executor Executor>
    requires(!std::is_same_v<Executor, context>)
  explicit context(Executor& executor)
      : executor_(on_this_cpu(std::addressof(executor))),
        run_([](void* object, int count, exec::body_ref body) {
          static_cast<Executor*>(object)->run(count, body);
        }),
        concurrency_(checked_concurrency(executor.concurrency())),
        ranges_(concurrency_),
        users_(concurrency_) {
    machine_ = this_machine();
    machine_.workers = concurrency_;
    if constexpr (exec::stand_in<Executor>) machine_ = executor.stands_for();
    if constexpr (exec::phase_executor<Executor>)
      run_phases_ = [](void* object, array_ref<exec::phase> all) {
        static_cast<Executor*>(object)->run(all);
      };
  }

  context(context const&) = delete;
  context& operator=(context const&) = delete;

  /// The most bodies of a run that may run at the same time.
  int concurrency() const { return concurrency_; }

  /// The machine for which runs on this context are cut into tiles.
  machine const& runs_on() const { return machine_; }
  /// Takes an engine from the choice of products, whose results may then differ in their last bits. Throws
  /// option_error for `fma`, which all products have.
  void forbid(engine which);

  /// Calls body(index, scratch) for index = 0 … count-1, each once, with denormals flushed.
  ///   scratch   std::byte*, at least the reserved bytes, 64-byte aligned, this body's alone while it runs;
  ///             not cleared
  ///   hooks     entered and left by each thread around its part, whatever the executor
  /// If bodies throw, one of their exceptions arrives here, and bodies not yet begun may be left out. Called
  /// from inside a body, it calls its own bodies in order on that thread, with scratch allocated for them.
  template <class Body> void run(int count, Body&& body, array_ref<exec::part_hook> hooks = {}) {
    run_within(users_.enter("run"), count, body, hooks);
  }

  /// Calls compute(phase, task, scratch) of all = begin(shared) for the tasks of phases 0 … phases-1, one
  /// phase behind the other. The executor gets them as exec::phase, if it takes these; they do not throw.
  ///   scratch_bytes   as of reserve_scratch
  ///   shared_bytes    of shared_scratch, whose buffer `begin` gets; 0: it gets null
  ///   all             has tasks(phase), hooks(phase), for_each_kind(phase, visit) and describe(phase, task)
  ///                   too
  template <class Begin>
  void run_phases(int phases, std::size_t scratch_bytes, std::size_t shared_bytes, Begin const& begin) {
    const exec::sole_user::entry entry = users_.enter("run");
    grow_scratch(entry, scratch_bytes);
    const auto all = begin(shared_bytes > 0 ? grow_shared(entry, shared_bytes) : nullptr);
    if (run_phases_ && entry) return run_by_executor(entry, phases, all);
    for (int p = 0; p < phases; ++p)
      run_within(
          entry, all.tasks(p), [&](int task, std::byte* scratch) { all.compute(p, task, scratch); },
          all.hooks(p));
  }

  /// Gives every body at least this many bytes of scratch in runs to come. Allocates only to grow, which is
  /// an error inside a body.
  void reserve_scratch(std::size_t bytes);

  /// A buffer of at least this many bytes, page-aligned, shared by all bodies of a run. There is one:
  /// the next call may return the same address, or free it to grow. An error inside a body.
  std::byte* shared_scratch(std::size_t bytes);

 private:
  TESSERA_COLD explicit context(std::unique_ptr<exec::thread_pool> pool) : context(*pool) {
    pool_ = std::move(pool);
  }

  TESSERA_COLD static std::unique_ptr<exec::thread_pool> new_pool(int threads,
                                                                  oversubscribe more_than_cores) {
    require_compiled_instruction_set();
    if (threads < 1)
      throw option_error(message("[context] ", threads, " threads asked for; at least 1 is needed, which is ",
                                 "the calling thread: write context ctx; for all cores"));
    const int available = exec::available_threads();
    if (threads > available && more_than_cores == oversubscribe::refused)
      throw option_error(message("[context] ", threads, " threads asked for, but this process may use ",
                                 available, " cores: write context(at_most(", threads,
                                 ")) for as many of them as there are, or pass oversubscribe::allowed"));
    return std::make_unique<exec::thread_pool>(threads);
  }

  template <class Body>
  void run_within(exec::sole_user::entry const& entry, int count, Body const& body,
                  array_ref<exec::part_hook> hooks) {
    if (!entry) {
      aligned_array<std::byte> scratch(scratch_bytes_);
      const exec::part_scope around(hooks);
      return exec::serial{}.run(count, [&](int index) { body(index, scratch.data()); });
    }
    if (count <= 0) return;
    // The executor gets one body per part, not per index: a part has its own scratch, and contiguous ranges
    // with stealing serve every executor.
    const auto drain = [&, user = entry.thread()](int part) {
      const exec::sole_user::work work(users_, part, user);
      const exec::part_scope around(hooks);
      std::byte* const scratch = scratch_ + static_cast<std::size_t>(part) * scratch_bytes_;
      ranges_.drain(part, [&](int index) { body(index, scratch); });
    };
    run_(executor_, ranges_.deal(count), drain);
    ranges_.rethrow_failure();
  }

  template <class All> struct phases_of_workers {
    All const& of;
    context const& ctx;
    std::thread::id user;
    int tasks(int p) const { return of.tasks(p); }
    void for_each_kind(int p, function_ref<void(char const*)> visit) const { of.for_each_kind(p, visit); }
    exec::task_description describe(int p, int task) const { return of.describe(p, task); }
    void compute(int p, int task, int worker) const {
      const exec::sole_user::work work(ctx.users_, worker, user);
      const exec::part_scope around(of.hooks(p));
      of.compute(p, task, ctx.scratch_ + static_cast<std::size_t>(worker) * ctx.scratch_bytes_);
    }
  };

  template <class All>
  TESSERA_COLD void run_by_executor(exec::sole_user::entry const& entry, int phases, All const& all) {
    const phases_of_workers<All> of{all, *this, entry.thread()};
    const auto list = std::make_unique<exec::phase[]>(std::size_t(phases));
    for (int p = 0; p < phases; ++p) list[std::size_t(p)] = exec::phase(of, p);
    run_phases_(executor_, {list.get(), std::size_t(phases)});
  }

  /// Before any other member is made: zeros, too, are written by the instructions that are asked for.
  static void* on_this_cpu(void const* executor) {
    require_compiled_instruction_set();
    exec::warn_of_slow_build();
    {
      const exec::flush_denormals nearest;  // whatever mode the caller set: it is the compiler that is asked
      require_ieee_arithmetic();
    }
    return const_cast<void*>(executor);
  }

  static int checked_concurrency(int concurrency);

  void grow_scratch(exec::sole_user::entry const& entry, std::size_t bytes);
  std::byte* grow_shared(exec::sole_user::entry const& entry, std::size_t bytes);
  static void require_outside(exec::sole_user::entry const& entry, const char* operation);

  std::unique_ptr<exec::thread_pool> pool_;  // unless the executor is the user's
  void* executor_;
  void (*run_)(void* executor, int count, exec::body_ref body);
  void (*run_phases_)(void* executor, array_ref<exec::phase> all) = nullptr;  // if it takes them
  int concurrency_;
  machine machine_;
  exec::index_ranges ranges_;
  exec::sole_user users_;

  detail::page_buffer scratches_, shared_;
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;  // of each part
};

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY std::byte* page_buffer::at_least(std::size_t bytes) {
  if (bytes > size_) {
    pages_ = {};  // before more are allocated
    size_ = 0;
    pages_ = aligned_array<page>(bytes / sizeof(page) + 2);  // one for the rest, one to align in
    size_ = bytes;
  }
  if (size_ == 0) return nullptr;
  auto* const begin = reinterpret_cast<std::byte*>(pages_.data());
  const auto past_page = reinterpret_cast<std::uintptr_t>(begin) % sizeof(page);
  return begin + (sizeof(page) - past_page) % sizeof(page);
}

}  // namespace detail

TESSERA_BODY void context::forbid(engine which) {
  if (which == engine::fma)
    throw option_error("[forbid] fma cannot be forbidden: a product that no other engine takes has it");
  machine_.engines.forbid(which);
}

TESSERA_COLD TESSERA_BODY void context::reserve_scratch(std::size_t bytes) {
  grow_scratch(users_.enter("reserve_scratch"), bytes);
}

TESSERA_COLD TESSERA_BODY std::byte* context::shared_scratch(std::size_t bytes) {
  return grow_shared(users_.enter("shared_scratch"), bytes);
}

TESSERA_COLD TESSERA_BODY void context::grow_scratch(exec::sole_user::entry const& entry, std::size_t bytes) {
  if (bytes <= scratch_bytes_) return;
  require_outside(entry, "reserve_scratch");
  const std::size_t each = checked_multiply((bytes - 1) / sizeof(detail::page) + 1, sizeof(detail::page));
  const std::size_t all = checked_multiply(each, static_cast<std::size_t>(concurrency()));
  scratch_bytes_ = 0;
  scratch_ = scratches_.at_least(all);
  scratch_bytes_ = each;
}

TESSERA_COLD TESSERA_BODY std::byte* context::grow_shared(exec::sole_user::entry const& entry,
                                                          std::size_t bytes) {
  require_outside(entry, "shared_scratch");
  return shared_.at_least(bytes);
}

TESSERA_BODY int context::checked_concurrency(int concurrency) {
  if (concurrency < 1)
    throw option_error(message("[context] the executor's concurrency() is ", concurrency,
                               "; it must be at least 1, the most bodies that may run at the same time"));
  return concurrency;
}

TESSERA_COLD TESSERA_BODY void context::require_outside(exec::sole_user::entry const& entry,
                                                        const char* operation) {
  if (!entry)
    throw error(
        message("[", operation,
                "] the context is in use by a body of its own: give the body a context of its own, or "
                "make this call before run"));
}

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/core/rounding.hpp
#ifndef TESSERA_SINGLE_CORE_ROUNDING
#define TESSERA_SINGLE_CORE_ROUNDING
#include <bit>
#include <cstdint>

namespace tessera { inline namespace TESSERA_ISA {

/// One of the two neighbours of a value among elements E, which are narrower than a float, by the lower 16 of
/// some random bits: the one above it in absolute value as often as the value is nearer to it, so that the
/// mean is the value itself. Exact values, infinities and not-a-numbers stay.
template <class E> constexpr E round_stochastically(float value, std::uint32_t random) = delete;

namespace detail {

/// A float on the same side as the double of every number that has at least two bits less than a float, and
/// of every middle between two of them: inexact ones end in a one (Boldo, Melquiond 2008, "round to odd").
constexpr float float_to_odd(double value) {
  const auto rounded = static_cast<float>(value);
  const double back = static_cast<double>(rounded);
  if (back == value || value != value) return rounded;
  const bool away_from_zero = value < 0 ? back < value : back > value;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(rounded) - away_from_zero) | 1);
}

}  // namespace detail
}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/core/bfloat16.hpp
#ifndef TESSERA_SINGLE_CORE_BFLOAT16
#define TESSERA_SINGLE_CORE_BFLOAT16
#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA {

template <class T> struct element_traits;

/// The upper half of a float: its sign, its exponent and 7 of the 23 bits of its fraction. Arithmetic and
/// comparisons are a float's, into which it converts implicitly; the way back rounds and is explicit.
///   Rounds to nearest, ties to even, once: also from double. Beyond the largest value lies infinity.
///   Not-a-number stays one, made quiet. Subnormal values are kept, here and in SIMD registers, which give
///   the same bits; but a context's threads compute with them as with zero, as `vdpbf16ps` does everywhere.
/// The bits themselves: std::bit_cast to and from std::uint16_t.
class bfloat16 {
 public:
  bfloat16() = default;
  explicit constexpr bfloat16(float value) : bits_(nearest(value)) {}  // rounding must be said: bfloat16(x)
  explicit constexpr bfloat16(double value) : bits_(nearest(detail::float_to_odd(value))) {}
  /// Of integers up to 2^53 in absolute value.
  explicit constexpr bfloat16(std::integral auto value) : bfloat16(static_cast<double>(value)) {}

  template <class Number>
    requires std::is_arithmetic_v<Number>
  void operator=(Number) = delete;  // rounding must be said: x = bfloat16(number); tensors: y = converted(x)

  constexpr operator float() const { return std::bit_cast<float>(std::uint32_t{bits_} << 16); }

 private:
  static constexpr std::uint16_t nearest(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (value != value) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }

  std::uint16_t bits_;
};

template <> constexpr bfloat16 round_stochastically<bfloat16>(float value, std::uint32_t random) {
  if (value != value) return bfloat16(value);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) + (random & 0xffff);
  return std::bit_cast<bfloat16>(static_cast<std::uint16_t>(bits >> 16));
}

template <> struct element_traits<bfloat16> {
  using accumulator = float;
  static constexpr int features_a_lane = 2;
  static constexpr const char* name = "BF16";
};

}}  // namespace tessera::TESSERA_ISA

/// The exponents are a float's.
template <> class std::numeric_limits<tessera::bfloat16> : public std::numeric_limits<float> {
  static constexpr tessera::bfloat16 of(unsigned bits) noexcept {
    return std::bit_cast<tessera::bfloat16>(static_cast<std::uint16_t>(bits));
  }

 public:
  static constexpr int digits = 8, digits10 = 2, max_digits10 = 4;
  static constexpr bool is_iec559 = false;
  static constexpr tessera::bfloat16 min() noexcept { return of(0x0080); }
  static constexpr tessera::bfloat16 max() noexcept { return of(0x7f7f); }
  static constexpr tessera::bfloat16 lowest() noexcept { return of(0xff7f); }
  static constexpr tessera::bfloat16 epsilon() noexcept { return of(0x3c00); }
  static constexpr tessera::bfloat16 round_error() noexcept { return of(0x3f00); }
  static constexpr tessera::bfloat16 infinity() noexcept { return of(0x7f80); }
  static constexpr tessera::bfloat16 quiet_NaN() noexcept { return of(0x7fc0); }
  static constexpr tessera::bfloat16 signaling_NaN() noexcept { return of(0x7fa0); }
  static constexpr tessera::bfloat16 denorm_min() noexcept { return of(0x0001); }
};
#endif

// ---- tessera/core/float16.hpp
#ifndef TESSERA_SINGLE_CORE_FLOAT16
#define TESSERA_SINGLE_CORE_FLOAT16
#include <algorithm>
#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA {

template <class T> struct element_traits;

/// IEEE's number of two bytes, binary16: 5 bits of exponent and 10 of the fraction, up to 65504. Arithmetic
/// and comparisons are a float's, into which it converts implicitly; the way back rounds and is explicit.
///   Rounds to nearest, ties to even, once: also from double. Beyond the largest value lies infinity.
///   Not-a-number stays one, made quiet, in both directions. Subnormal values, below 2^-14, are kept, here
///   and in SIMD registers, which give equal bits: as floats they are normal, so that a context's threads
///   compute with them as with other numbers.
/// The bits themselves: std::bit_cast to and from std::uint16_t.
class float16 {
 public:
  float16() = default;
  explicit constexpr float16(float value) : bits_(nearest(value)) {}  // rounding must be said: float16(x)
  explicit constexpr float16(double value) : bits_(nearest(detail::float_to_odd(value))) {}
  /// Of integers up to 2^53 in absolute value.
  explicit constexpr float16(std::integral auto value) : float16(static_cast<double>(value)) {}

  template <class Number>
    requires std::is_arithmetic_v<Number>
  void operator=(Number) = delete;  // rounding must be said: x = float16(number); tensors: y = converted(x)

  constexpr operator float() const {
    const std::uint32_t sign = (bits_ & 0x8000u) << 16, size = bits_ & 0x7fffu;
    if (size > 0x7c00) return std::bit_cast<float>(sign | 0x7fc00000u | size << 13);
    if (size == 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u);
    if (size >= 0x0400) return std::bit_cast<float>(sign | (size + 0x1c000u) << 13);
    const float subnormal = static_cast<float>(size) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
  }

 private:
  static constexpr std::uint16_t nearest(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    std::uint32_t rounded = 0;
    if (size > 0x7f800000u)
      rounded = 0x7e00u | (size >> 13 & 0x3ffu);
    else if (size >= 0x47800000u)  // 2^16
      rounded = 0x7c00u;
    else if (size >= 0x38800000u)  // 2^-14
      rounded = (size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13;
    else  // the last bit of this sum is worth 2^-24, that of a subnormal value
      rounded = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
    return static_cast<std::uint16_t>(sign | rounded);
  }

  std::uint16_t bits_;
};

/// Of values below 2^-14 the mean is within 2^-40.
template <> constexpr float16 round_stochastically<float16>(float value, std::uint32_t random) {
  if (value != value) return float16(value);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu, added = random & 0xffffu;
  const std::uint32_t rounded =
      size < 0x38800000u ? (static_cast<std::uint32_t>(std::bit_cast<float>(size) * 0x1p40f) + added) >> 16
                         : std::min((size - 0x38000000u + (added >> 3)) >> 13, 0x7c00u);
  return std::bit_cast<float16>(static_cast<std::uint16_t>(sign | rounded));
}

template <> struct element_traits<float16> {
  using accumulator = float;
  static constexpr int features_a_lane = 2;
  static constexpr const char* name = "F16";
};

}}  // namespace tessera::TESSERA_ISA

template <> class std::numeric_limits<tessera::float16> : public std::numeric_limits<float> {
  static constexpr tessera::float16 of(unsigned bits) noexcept {
    return std::bit_cast<tessera::float16>(static_cast<std::uint16_t>(bits));
  }

 public:
  static constexpr int digits = 11, digits10 = 3, max_digits10 = 5;
  static constexpr int min_exponent = -13, min_exponent10 = -4, max_exponent = 16, max_exponent10 = 4;
  static constexpr tessera::float16 min() noexcept { return of(0x0400); }
  static constexpr tessera::float16 max() noexcept { return of(0x7bff); }
  static constexpr tessera::float16 lowest() noexcept { return of(0xfbff); }
  static constexpr tessera::float16 epsilon() noexcept { return of(0x1400); }
  static constexpr tessera::float16 round_error() noexcept { return of(0x3800); }
  static constexpr tessera::float16 infinity() noexcept { return of(0x7c00); }
  static constexpr tessera::float16 quiet_NaN() noexcept { return of(0x7e00); }
  static constexpr tessera::float16 signaling_NaN() noexcept { return of(0x7d00); }
  static constexpr tessera::float16 denorm_min() noexcept { return of(0x0001); }
};
#endif

// ---- tessera/core/element.hpp
#ifndef TESSERA_SINGLE_CORE_ELEMENT
#define TESSERA_SINGLE_CORE_ELEMENT
#include <concepts>
#include <cstdint>
#include <limits>

namespace tessera { inline namespace TESSERA_ISA {

/// The properties of an element; its place in registers is simd::lane's.
///   accumulator      the type its sums are kept in
///   features_a_lane  consecutive features that share one lane of a SIMD register (a lane holds four bytes,
///                    or one double)
///   name             as in a safetensors file
template <class T> struct element_traits;

template <> struct element_traits<float> {
  using accumulator = float;
  static constexpr int features_a_lane = 1;
  static constexpr const char* name = "F32";
};

template <> struct element_traits<double> {
  using accumulator = double;
  static constexpr int features_a_lane = 1;
  static constexpr const char* name = "F64";
};

// Of 8 bits, declared so that the compiler's message names their header to a program without it.
class int8;
template <int ExponentBits> class float8;
using float8_e4m3 = float8<4>;
using float8_e5m2 = float8<5>;

/// A number that tensors can hold.
template <class T>
concept element = requires {
  element_traits<T>();  // float, double, bfloat16, float16; int8: #include <tessera/statements/quantised.hpp>
};

template <element T> using accumulator_t = typename element_traits<T>::accumulator;

static_assert(element<float> && element<double> && element<bfloat16> && element<float16> &&
              !element<std::int32_t>);

/// The largest relative error of a number rounded to T.
template <element T>
inline constexpr double unit_roundoff = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;

/// Where a feature of a token stands in its panel, in elements: feature by feature, but for the features that
/// share a lane, which stand together.
template <element T> constexpr std::int64_t place_in_panel(std::int64_t feature, std::int64_t token) {
  constexpr int group = element_traits<T>::features_a_lane;
  if constexpr (group == 1) return feature * panel_tokens + token;
  return feature / group * (group * panel_tokens) + token * group + feature % group;
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/core/expression.hpp
#ifndef TESSERA_SINGLE_CORE_EXPRESSION
#define TESSERA_SINGLE_CORE_EXPRESSION
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA {

/// How a tensor or an expression is laid over features and tokens.
enum class domain {
  number,    // one value
  features,  // one value for each feature
  tokens,    // one value for each token
  panels,    // one value for each feature and token
  blocks,    // a matrix: its stored blocks, and zeros elsewhere
  values,    // the stored values of a matrix alone
};

/// A tensor: something with memory that an expression can read, and an assignment can write.
template <class T>
concept tensor = requires { typename std::remove_cvref_t<T>::tensor_tag; };

/// A tensor that is a part of another one, and does not own its memory: expressions keep it by value, and an
/// assignment writes to the other tensor.
template <class T>
concept tensor_view = tensor<T> && requires { typename std::remove_cvref_t<T>::view_tag; };

/// A description of a computation, built by operators; building one computes nothing.
template <class T>
concept node = requires { typename std::remove_cvref_t<T>::node_tag; };

/// An operand of an expression.
template <class T>
concept expression = tensor<T> || node<T>;

/// A tensor with rows and columns exchanged: a factor of a product, and no expression by itself.
template <class T>
concept transposition = requires { typename std::remove_cvref_t<T>::transpose_tag; };

/// The right side of `=`: a description, a view, or a number for all values. `assign` refuses a
/// transposition, and a number for a matrix, with a message that gives the right statement.
template <class T>
concept assigned = node<T> || transposition<T> || tensor_view<T> || std::is_arithmetic_v<T>;

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/tensor/pattern.hpp
#ifndef TESSERA_SINGLE_TENSOR_PATTERN
#define TESSERA_SINGLE_TENSOR_PATTERN
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tessera { inline namespace TESSERA_ISA {

/// The order of the entries of each line of a compressed index (CSR, CSC, BSR): ascending, or any, as SciPy
/// may leave them; then they are sorted.
enum class index_order { ascending, any };

namespace detail {

void check_grid(const char* operation, int block_rows, int block_cols);

/// Slots are 32-bit, so a pattern stores fewer than 2^31 blocks.
void check_stored(const char* operation, std::int64_t stored);

/// Checks the index of a compressed format (CSR, CSC, BSR) and names the position of the first fault.
///   line, entry    the words of the format: "row" and "column" in CSR, "column" and "row" in CSC
///   start          where each line begins in `index`, lines + 1 numbers, counted in units of `start_unit`
///   index          the entries of each line, in this order, 0 … entries - 1, in units of `index_unit`
template <class Start, class Index>
TESSERA_COLD void check_compressed(const char* operation, const char* line, const char* entry, int lines,
                                   int entries, std::span<Start> start, std::span<Index> index,
                                   std::int64_t start_unit = 1, std::int64_t index_unit = 1,
                                   index_order order = index_order::ascending) {
  const auto fail = [&](std::initializer_list<message_part> parts) {
    throw shape_error(message("[", operation, "] ", message(parts)));
  };
  const auto integer = [](auto n) { return static_cast<std::int64_t>(n); };
  check_grid(operation, lines, entries);
  check_stored(operation, integer(index.size()));
  if (integer(start.size()) != integer(lines) + 1)
    fail(
        {start.size(), " ", line, " starts for ", lines, " ", line, "s: there must be ", integer(lines) + 1});

  std::int64_t previous = 0;
  for (std::size_t l = 0; l < start.size(); ++l) {
    const std::int64_t here = integer(start[l]);
    if (l == 0 && here != 0) fail({line, " start 0 is ", here, ": the first must be 0"});
    if (here < previous)
      fail({line, " start ", l, " is ", here, ", below its predecessor ", previous, ": ", line,
            " starts never decrease"});
    if (here % start_unit != 0)
      fail(
          {line, " start ", l, " is ", here, ", not a multiple of the ", start_unit, " elements of a block"});
    previous = here;
  }
  if (previous / start_unit != integer(index.size()))
    fail({"the last ", line, " start counts ", previous / start_unit, " blocks but there are ", index.size(),
          " ", entry, " numbers: they must be equal"});

  for (std::size_t l = 0, p = 0; l + 1 < start.size(); ++l) {
    const auto first = p, last = static_cast<std::size_t>(integer(start[l + 1]) / start_unit);
    for (; p < last; ++p) {
      const std::int64_t here = integer(index[p]);
      const auto fail_here = [&](std::initializer_list<message_part> why) {
        fail({entry, " ", here, " at position ", p, ", in ", line, " ", l, ", ", message(why)});
      };
      if (here < 0 || here >= integer(entries) * index_unit)
        fail_here({"is outside the grid's ", integer(entries) * index_unit, " ", entry, "s"});
      if (here % index_unit != 0)
        fail_here({"is not a multiple of the block's ", index_unit, " ", entry, "s"});
      if (p == first || order == index_order::any) continue;
      const std::int64_t before = integer(index[p - 1]);
      if (here == before) fail_here({"repeats its predecessor: list each block once"});
      if (here < before)
        fail_here(
            {"is not above its predecessor ", before, ": sort each ", line, " (index_order::any does)"});
    }
  }
}

}  // namespace detail

/// Which blocks of a grid are stored. Integers only: a pattern knows nothing of block sizes or elements.
///   The stored blocks are numbered row by row, columns ascending within a row: a block's number is its slot.
///   An immutable value that is cheap to copy: copies share both indexes and the serial number.
///   A pattern that stores every block of its grid is dense however it was made, and holds
///   2 block_rows + block_cols integers. A grid without blocks is dense.
class pattern {
 public:
  /// The dense pattern of a 0 x 0 grid. Allocates nothing: these are all copies of one.
  pattern() noexcept : data_(std::shared_ptr<const data>(), &no_grid()) {}

  // Only copied, never moved from: every pattern has its data, always.
  pattern(pattern const&) = default;
  pattern& operator=(pattern const&) = default;

  /// Every block. Throws shape_error if there are 2^31 or more, before anything is allocated.
  static pattern dense(int block_rows, int block_cols);

  /// The columns of row i are cols[row_start[i]] … cols[row_start[i + 1] - 1], ascending (CSR). Throws
  /// shape_error, with the position, for anything else.
  static pattern from_rows(int block_rows, int block_cols, std::vector<std::int32_t> row_start,
                           std::vector<std::int32_t> cols);

  /// A pattern from an index that is right by the way it was made: nothing is checked.
  static pattern from_right_rows(int block_rows, int block_cols, std::vector<std::int32_t> row_start,
                                 std::vector<std::int32_t> cols);

  int block_rows() const { return data_->block_rows; }
  int block_cols() const { return data_->block_cols; }
  std::int64_t blocks() const { return data_->stored; }
  bool is_dense() const { return data_->is_dense(); }
  /// Stored blocks ÷ all blocks; 1 for a grid without blocks.
  double density() const {
    return is_dense() ? 1.0 : static_cast<double>(blocks()) / block_rows() / block_cols();
  }

  /// Slot of the first block of each row, and blocks() at the end (block_rows + 1); empty when dense.
  std::span<const std::int32_t> row_start() const { return span_of(data_->row_start); }
  /// Column of each slot (stored); when dense 0 … block_cols - 1, shared by all rows.
  std::span<const std::int32_t> cols() const { return span_of(data_->cols); }
  /// Where each column begins in rows() and col_slots(), and blocks() at the end (block_cols + 1); empty when
  /// dense.
  std::span<const std::int32_t> col_start() const { return span_of(data_->col_start); }
  /// Rows of each column, ascending (stored); when dense 0 … block_rows - 1, shared by all columns.
  std::span<const std::int32_t> rows() const { return span_of(data_->rows); }
  /// The slot that belongs to each entry of rows(); when dense that of column 0, to which the column is
  /// added.
  std::span<const std::int32_t> col_slots() const { return span_of(data_->col_slots); }

  /// Columns stored in row i, ascending; their slots are first_slot(i), first_slot(i) + 1, …
  std::span<const std::int32_t> row(int i) const {
    TESSERA_ASSERT(i >= 0 && i < block_rows(), "callers loop over the rows of the grid");
    if (is_dense()) return cols();
    const std::int32_t* const start = data_->row_start.data() + i;
    return {data_->cols.data() + start[0], data_->cols.data() + start[1]};
  }
  std::int64_t first_slot(int i) const {
    return is_dense() ? std::int64_t{i} * block_cols() : data_->row_start.data()[i];
  }

  /// Stored blocks of a row, of a column.
  int row_count(int i) const { return static_cast<int>(row(i).size()); }
  int col_count(int j) const {
    TESSERA_ASSERT(j >= 0 && j < block_cols(), "callers loop over the columns of the grid");
    if (is_dense()) return block_rows();
    const std::int32_t* const start = data_->col_start.data() + j;
    return start[1] - start[0];
  }

  /// The slot of block (i, j), or -1 if it is not stored or outside the grid.
  std::int64_t find(int i, int j) const {
    if (i < 0 || i >= block_rows() || j < 0 || j >= block_cols()) return -1;
    if (is_dense()) return first_slot(i) + j;
    const std::span<const std::int32_t> columns = row(i);
    const auto at = std::lower_bound(columns.begin(), columns.end(), j);
    return at != columns.end() && *at == j ? first_slot(i) + (at - columns.begin()) : -1;
  }

  /// Calls visit(i, j, slot) for every stored block, in the order of slots.
  template <class Visit> void for_each(Visit&& visit) const {
    std::int64_t slot = 0;
    for (int i = 0; i < block_rows(); ++i)
      for (const int j : row(i)) visit(i, j, slot++);
  }

  /// Unlike that of any other pattern of this process except copies of this one; never 0.
  std::uint64_t serial() const { return data_->serial; }
  /// A function of the content alone, equal on all machines: of the grid and, unless dense, the index by
  /// rows, which it reads. FNV-1a on 32-bit words, with a shift that lets high bits reach low ones.
  std::uint64_t hash() const;
  /// Memory of both indexes, shared by all copies.
  std::size_t size_bytes() const {
    return sizeof(data) + sizeof(std::int32_t) * (row_start().size() + cols().size() + col_start().size() +
                                                  rows().size() + col_slots().size());
  }

  /// By content.
  friend bool operator==(pattern const& a, pattern const& b) {
    if (a.data_ == b.data_) return true;
    return a.block_rows() == b.block_rows() && a.block_cols() == b.block_cols() &&
           a.data_->row_start == b.data_->row_start && a.data_->cols == b.data_->cols;
  }

 private:
  /// A span from a pointer: that from a vector takes longer to compile, for its concept of ranges.
  static std::span<const std::int32_t> span_of(std::vector<std::int32_t> const& numbers) {
    return {numbers.data(), numbers.size()};
  }

  struct data {
    data(int row_number, int col_number, std::int64_t stored_number)
        : block_rows(row_number), block_cols(col_number), stored(stored_number) {}

    int block_rows, block_cols;
    std::int64_t stored;
    std::vector<std::int32_t> row_start, cols, col_start, rows, col_slots;  // as the accessors say
    std::uint64_t serial = 1;                                               // unless it gets its own

    bool is_dense() const { return row_start.empty(); }

    /// Derives the index by columns from that by rows: a counting sort, which keeps rows ascending.
    void index_columns();
  };

  explicit pattern(data&& content);

  static data const& no_grid() noexcept;

  /// 0, step, 2 step, …
  static std::vector<std::int32_t> counting(int count, std::int32_t step);

  inline static std::atomic<std::uint64_t> next_serial_{2};
  std::shared_ptr<const data> data_;
};

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY void check_grid(const char* operation, int block_rows, int block_cols) {
  if (block_rows < 0 || block_cols < 0)
    throw shape_error(message("[", operation, "] a grid of ", block_rows, " x ", block_cols,
                              ": neither number may be negative"));
}

TESSERA_COLD TESSERA_BODY void check_stored(const char* operation, std::int64_t stored) {
  if (stored > std::numeric_limits<std::int32_t>::max())
    throw shape_error(message("[", operation, "] ", stored,
                              " stored blocks are more than 2147483647: use larger blocks, or fewer"));
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY pattern pattern::dense(int block_rows, int block_cols) {
  detail::check_grid("pattern::dense", block_rows, block_cols);
  const std::int64_t stored = std::int64_t{block_rows} * block_cols;
  detail::check_stored("pattern::dense", stored);
  data all(block_rows, block_cols, stored);
  all.cols = counting(block_cols, 1);
  all.rows = counting(block_rows, 1);
  all.col_slots = counting(block_rows, block_cols);
  return pattern(std::move(all));
}

TESSERA_BODY pattern pattern::from_rows(int block_rows, int block_cols, std::vector<std::int32_t> row_start,
                                        std::vector<std::int32_t> cols) {
  detail::check_compressed("pattern::from_rows", "row", "column", block_rows, block_cols, span_of(row_start),
                           span_of(cols));
  return from_right_rows(block_rows, block_cols, std::move(row_start), std::move(cols));
}

TESSERA_BODY pattern pattern::from_right_rows(int block_rows, int block_cols,
                                              std::vector<std::int32_t> row_start,
                                              std::vector<std::int32_t> cols) {
  const auto stored = static_cast<std::int64_t>(cols.size());
  if (stored == std::int64_t{block_rows} * block_cols) return dense(block_rows, block_cols);
  data some(block_rows, block_cols, stored);
  some.row_start = std::move(row_start);
  some.cols = std::move(cols);
  some.index_columns();
  return pattern(std::move(some));
}

TESSERA_COLD TESSERA_BODY std::uint64_t pattern::hash() const {
  std::uint64_t h = 0xcbf29ce484222325u;
  const auto add = [&h](std::int32_t n) {
    h = (h ^ static_cast<std::uint32_t>(n)) * 0x100000001b3u;
    h ^= h >> 32;
  };
  add(block_rows());
  add(block_cols());
  if (is_dense()) return h;
  for (const std::int32_t n : row_start()) add(n);
  for (const std::int32_t n : cols()) add(n);
  return h;
}

TESSERA_BODY void pattern::data::index_columns() {
  col_start = std::vector<std::int32_t>(static_cast<std::size_t>(block_cols) + 1);
  rows = std::vector<std::int32_t>(cols.size());
  col_slots = std::vector<std::int32_t>(cols.size());
  std::int32_t* const start = col_start.data();
  for (const std::int32_t j : cols) ++start[j + 1];
  for (int j = 0; j < block_cols; ++j) start[j + 1] += start[j];
  std::vector<std::int32_t> next(col_start);
  for (int i = 0; i < block_rows; ++i)
    for (std::int32_t slot = row_start.data()[i]; slot < row_start.data()[i + 1]; ++slot) {
      const std::int32_t at = next.data()[cols.data()[slot]]++;
      rows.data()[at] = i;
      col_slots.data()[at] = slot;
    }
}

TESSERA_COLD TESSERA_BODY pattern::pattern(data&& content) {
  content.serial = next_serial_.fetch_add(1, std::memory_order_relaxed);
  data_ = std::make_shared<const data>(std::move(content));
}

TESSERA_BODY pattern::data const& pattern::no_grid() noexcept {
  static const data none(0, 0, 0);
  return none;
}

TESSERA_BODY std::vector<std::int32_t> pattern::counting(int count, std::int32_t step) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  std::int32_t i = 0;
  for (std::int32_t& n : numbers) n = step * i++;
  return numbers;
}

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/expr/node.hpp
#ifndef TESSERA_SINGLE_EXPR_NODE
#define TESSERA_SINGLE_EXPR_NODE
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA { namespace expr {

constexpr bool of_matrix(domain d) { return d == domain::blocks || d == domain::values; }

/// The size of an expression; -1 where it takes any.
struct extent {
  std::int64_t features = -1, tokens = -1;  // of activations and vectors
  std::int64_t rows = -1, cols = -1;        // of matrices
  std::int64_t block_rows = -1, block_cols = -1;
  pattern const* stored = nullptr;
};
inline constexpr struct {
  char const* name;
  std::int64_t extent::* size;
} extent_sizes[] = {{"features", &extent::features},
                    {"tokens", &extent::tokens},
                    {"rows", &extent::rows},
                    {"columns", &extent::cols},
                    {"rows in a block", &extent::block_rows},
                    {"columns in a block", &extent::block_cols}};

/// The size of a tensor, and of a matrix its pattern, by which it is known that it has not changed.
struct tensor_size {
  std::int64_t rows, cols;
  std::uint64_t pattern;

  template <class Tensor> static tensor_size of(Tensor const& tensor) {
    if constexpr (requires { tensor.pattern(); })
      return {tensor.rows(), tensor.cols(), tensor.pattern().serial()};
    else if constexpr (of_matrix(Tensor::laid_over))
      return {tensor.rows(), tensor.cols(), 0};
    else
      return {tensor.features(), tensor.tokens(), 0};
  }
  friend bool operator==(tensor_size const&, tensor_size const&) = default;
};

[[noreturn]] void throw_changed(tensor_size const& built, tensor_size const& now);
inline void require_unchanged(tensor_size const& built, tensor_size const& now) {
  if (!(built == now)) throw_changed(built, now);
}

/// A tensor in an expression: by reference when it has a name, by value when it is temporary or a view.
/// `tensor` throws shape_error if a referenced one has another size or pattern than when the expression was
/// written. A matrix in N:M sparsity, which is a factor of products alone, is referred to like one.
template <class Tensor> struct by_reference {
  using node_tag = void;
  using tensor_type = Tensor;
  using value_type = typename Tensor::value_type;
  static constexpr domain laid_over = Tensor::laid_over;
  Tensor const* address;
  tensor_size built;

  explicit by_reference(Tensor const& tensor) : address(&tensor), built(tensor_size::of(tensor)) {}
  Tensor const& tensor() const {
    require_unchanged(built, tensor_size::of(*address));
    return *address;
  }
};
template <tensor Tensor> struct by_value {
  using node_tag = void;
  using tensor_type = Tensor;
  using value_type = typename Tensor::value_type;
  static constexpr domain laid_over = Tensor::laid_over;
  Tensor copy;
  Tensor const& tensor() const { return copy; }
};
template <class Node>
concept leaf = requires { typename Node::tensor_type; };

/// A number in an expression.
struct number {
  using node_tag = void;
  using value_type = void;  // that of its neighbours
  static constexpr domain laid_over = domain::number;
  double value;
};

/// An operand as an expression keeps it. Nodes are always kept by value, so `auto` is safe; a local, which is
/// the one node that has an identity, is kept by reference.
template <class T> constexpr auto hold(T&& operand) {
  using bare = std::remove_cvref_t<T>;
  if constexpr (std::is_arithmetic_v<bare>)
    return number{static_cast<double>(operand)};
  else if constexpr (tensor_view<bare>)
    return by_value<bare>{operand};
  else if constexpr (tensor<bare> && std::is_lvalue_reference_v<T>)
    return by_reference<bare>(operand);
  else if constexpr (tensor<bare>)
    return by_value<bare>{std::forward<T>(operand)};
  else if constexpr (requires { typename bare::local_tag; })
    return operand.reference();
  else
    return bare(std::forward<T>(operand));
}
template <class T> using held = decltype(hold(std::declval<T>()));

/// An expression, or a number beside one.
template <class T>
concept operand = expression<T> || std::is_arithmetic_v<std::remove_cvref_t<T>>;

inline extent extent_of(number const&) { return {}; }
template <leaf Leaf> extent extent_of(Leaf const& leaf) {
  extent size;
  if constexpr (of_matrix(Leaf::laid_over)) {
    size.rows = leaf.tensor().rows();
    size.cols = leaf.tensor().cols();
    if constexpr (requires { leaf.tensor().pattern(); }) {
      size.block_rows = Leaf::tensor_type::block::rows;
      size.block_cols = Leaf::tensor_type::block::cols;
      size.stored = &leaf.tensor().pattern();
    }
  } else {
    size.features = leaf.tensor().features();
    size.tokens = leaf.tensor().tokens();
  }
  return size;
}
template <class Node>
  requires requires(Node const& n) { n.size(); }
extent extent_of(Node const& node) {
  return node.size();
}

/// The common size of two operands of an elementwise operation; shape_error if there is none.
extent join(const char* operation, extent const& a, extent const& b);

/// Where the result of an elementwise operation on two operands lies.
constexpr domain join(domain a, domain b) {
  if (a == b || b == domain::number) return a;
  if (a == domain::number) return b;
  return of_matrix(a) || of_matrix(b) ? domain::values : domain::panels;
}
constexpr bool combine(domain a, domain b) {
  return a == domain::number || b == domain::number || of_matrix(a) == of_matrix(b);
}

// What a message about elements with two accumulators advises.
#define TESSERA_ONE_ACCUMULATOR                                                                            \
  "bring them to one, since sums are float for some and double for others: before the run, an activation " \
  "by `copy(xd, x)`, a matrix by `block_sparse_matrix<float, Block> w(wd)`, a vector by "                  \
  "`feature_vector<float> b(bd)`"

/// The type that an operation on these elements computes in: the accumulator they share. `void` is a
/// number's; `mixed` if there are two.
struct mixed {};
template <class T> struct computed_in {
  using type = T;
};
template <element T> struct computed_in<T> {
  using type = accumulator_t<T>;
};
template <class...> struct common_value {
  using type = void;
};
template <class Head, class... Rest> struct common_value<Head, Rest...> {
  using first = typename computed_in<Head>::type;
  using rest = typename common_value<Rest...>::type;
  using type = std::conditional_t<std::is_void_v<first> || std::is_same_v<first, rest>, rest,
                                  std::conditional_t<std::is_void_v<rest>, first, mixed>>;
};

template <class T>
concept activation = expression<T> && held<T>::laid_over == domain::panels;
template <class T>
concept matrix = tensor<T> && std::remove_cvref_t<T>::laid_over == domain::blocks;

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void throw_changed(tensor_size const& built, tensor_size const& now) {
  if (built.rows == now.rows && built.cols == now.cols)
    throw shape_error(
        message("[run] the pattern of a matrix (", now.rows, ", ", now.cols,
                ") has changed since the statement was written: write the statement behind the change"));
  throw shape_error(message("[run] a tensor of the statement was (", built.rows, ", ", built.cols,
                            ") when the statement was written and is (", now.rows, ", ", now.cols,
                            ") now: write the statement behind the change"));
}

TESSERA_COLD TESSERA_BODY extent join(const char* operation, extent const& a, extent const& b) {
  extent both;
  for (auto const& [name, size] : extent_sizes) {
    if (a.*size >= 0 && b.*size >= 0 && a.*size != b.*size)
      throw shape_error(message("[", operation, "] the left side has ", a.*size, " ", name, " but the right ",
                                "side has ", b.*size, a.*size && b.*size ? "" : ": is it in saved::parts?"));
    both.*size = a.*size >= 0 ? a.*size : b.*size;
  }
  both.stored = a.stored ? a.stored : b.stored;
  if (a.stored && b.stored && !(*a.stored == *b.stored))
    throw shape_error(message("[", operation, "] the matrices store different blocks (",
                              a.stored->blocks() == b.stored->blocks()
                                  ? message("as many, ", a.stored->blocks(), ", at other places")
                                  : message(a.stored->blocks(), " and ", b.stored->blocks()),
                              "): bring both to one pattern with set_pattern"));
  return both;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::expr
#endif

// ---- tessera/core/unroll.hpp
#ifndef TESSERA_SINGLE_CORE_UNROLL
#define TESSERA_SINGLE_CORE_UNROLL
#include <type_traits>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA {

namespace detail {

template <class Body, int... Index>
TESSERA_INLINE constexpr void unroll(Body& body, std::integer_sequence<int, Index...>) {
  (body(std::integral_constant<int, Index>{}), ...);
}

}  // namespace detail

/// Calls body(0) … body(Count - 1) with compile-time integers, written out one after the other. Pragmas do
/// not unroll reliably (GCC 12), and one loop left rolled puts a whole array of accumulators on the stack.
template <int Count, class Body> TESSERA_INLINE constexpr void unroll(Body&& body) {
  detail::unroll(body, std::make_integer_sequence<int, Count>{});
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/simd/simd.hpp
#ifndef TESSERA_SINGLE_SIMD_SIMD
#define TESSERA_SINGLE_SIMD_SIMD
// The thin layer over xsimd: the one header that includes it. Kernels hold whole arrays of registers, so they
// work on `reg`, the compiler's own vector type; ops work on `batch`, for which xsimd overloads the
// arithmetic.

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push  // GCC 12 warns of its own intrinsics headers
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <xsimd/xsimd.hpp>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#if XSIMD_VERSION_MAJOR < 12 || (XSIMD_VERSION_MAJOR == 12 && XSIMD_VERSION_MINOR < 1) || \
    XSIMD_VERSION_MAJOR >= 15
#error \
    "tessera needs xsimd 12.1 up to 14.x: on Debian 12 `./dev test` installs it, elsewhere libxsimd-dev or Conan"
#endif

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// The instruction set the compiler flags ask for.
using native = xsimd::default_arch;

template <class T, class Arch = native> using batch = xsimd::batch<T, Arch>;

/// The number as which a lane of T is moved: T, if it is a number itself.
template <class T> struct moved {
  using as = T;
};

template <class T, class Arch = native>
using reg = typename batch<typename moved<T>::as, Arch>::register_type;

/// Values of T in a register.
template <class T, class Arch = native>
inline constexpr int lanes = static_cast<int>(batch<typename moved<T>::as, Arch>::size);

// xsimd's aligned forms contain an assert: a branch at every load where NDEBUG is not defined.
template <class Arch, class T> TESSERA_INLINE reg<T, Arch> load(T const* from) {
  if constexpr (std::is_arithmetic_v<T>) {
    return batch<T, Arch>::load_unaligned(from).data;
  } else {
    reg<T, Arch> value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
}

template <class Arch, class T> TESSERA_INLINE void store(T* to, reg<T, Arch> value) {
  if constexpr (std::is_arithmetic_v<T>)
    batch<T, Arch>(value).store_unaligned(to);
  else
    std::memcpy(static_cast<void*>(to), &value, sizeof value);
}

/// Past the caches, where a register has such a store. `to` is aligned to the register; others see the value
/// after streams_end().
template <class Arch, class T> TESSERA_INLINE void stream(T* to, reg<T, Arch> value) {
#ifdef __AVX512F__
  if constexpr (sizeof value == 64)
    return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), std::bit_cast<__m512i>(value));
#endif
#ifdef __AVX__
  if constexpr (sizeof value == 32)
    return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), std::bit_cast<__m256i>(value));
#endif
#ifdef __SSE2__
  if constexpr (sizeof value == 16)
    return _mm_stream_si128(reinterpret_cast<__m128i*>(to), std::bit_cast<__m128i>(value));
#endif
  store<Arch>(to, value);
}
inline void streams_end() noexcept {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

template <class Arch, class T> TESSERA_INLINE reg<T, Arch> broadcast(T value) {
  using number = typename moved<T>::as;
  return batch<number, Arch>(std::bit_cast<number>(value)).data;
}

template <class Arch, class T> TESSERA_INLINE reg<T, Arch> zero() { return batch<T, Arch>(T(0)).data; }

/// a * b + c, rounded once where the instruction set has it.
template <class Arch, class T>
TESSERA_INLINE reg<T, Arch> fma(reg<T, Arch> a, reg<T, Arch> b, reg<T, Arch> c) {
  return xsimd::fma(batch<T, Arch>(a), batch<T, Arch>(b), batch<T, Arch>(c)).data;
}

/// True for registers whose fma is one instruction, which rounds once.
template <class V> inline constexpr bool has_fma = false;
template <class T, class Arch>
inline constexpr bool has_fma<batch<T, Arch>> =
    std::is_base_of_v<xsimd::avx512f, Arch> || std::is_base_of_v<xsimd::fma3<xsimd::avx2>, Arch> ||
    std::is_base_of_v<xsimd::fma3<xsimd::avx>, Arch> || std::is_base_of_v<xsimd::fma3<xsimd::sse4_2>, Arch> ||
    std::is_base_of_v<xsimd::neon64, Arch>;

namespace detail {
template <class T, class Arch> constexpr auto half_arch() {
  if constexpr (lanes<T, Arch> < 8) {
    return Arch();
  } else {
    using half = typename xsimd::make_sized_batch_t<T, unsigned(lanes<T, Arch> / 2)>::arch_type;
    if constexpr (has_fma<batch<T, half>> == has_fma<batch<T, Arch>>)
      return half();
    else
      return Arch();
  }
}
}  // namespace detail

/// The instruction set of registers of half the size whose fma rounds as that of Arch; Arch itself where
/// there is none, or where it would have less than four lanes.
template <class T, class Arch> using half_of = decltype(detail::half_arch<T, Arch>());

/// a * b + c of numbers, rounded as `fma` rounds registers.
template <class Arch, class T> TESSERA_INLINE T fma_of_one(T a, T b, T c) {
  if constexpr (!has_fma<batch<T, Arch>>)
    return a * b + c;
  else if constexpr (std::is_same_v<T, float>)
    return __builtin_fmaf(a, b, c);
  else
    return __builtin_fma(a, b, c);
}

/// The compiler's own vectors, which it knows how to widen, to narrow and to shuffle.
template <class T, int Lanes> struct compiler_vector {
  typedef T type __attribute__((vector_size(Lanes * sizeof(T))));
};

/// 0, 1, 2, …
template <class T, class Arch> TESSERA_INLINE batch<T, Arch> lane_numbers() {
  alignas(64) static constexpr auto numbers = [] {
    struct {
      T lane[static_cast<unsigned>(lanes<T, Arch>)];
    } table{};
    for (int i = 0; i < lanes<T, Arch>; ++i) table.lane[i] = T(i);
    return table;
  }();
  return batch<T, Arch>::load_unaligned(numbers.lane);
}

/// The first `count` lanes of `value`, zero in the others; none if count ≤ 0.
template <class T, class Arch> TESSERA_INLINE batch<T, Arch> first_lanes(batch<T, Arch> value, int count) {
  return xsimd::select(lane_numbers<T, Arch>() < batch<T, Arch>(T(count)), value, batch<T, Arch>(T(0)));
}

/// The others: zero in the first `count` lanes.
template <class T, class Arch>
TESSERA_INLINE batch<T, Arch> without_first_lanes(batch<T, Arch> value, int count) {
  return xsimd::select(lane_numbers<T, Arch>() < batch<T, Arch>(T(count)), batch<T, Arch>(T(0)), value);
}

/// max(x, low), not-a-number if x is.
template <class T, class Arch> TESSERA_INLINE batch<T, Arch> at_least(batch<T, Arch> x, batch<T, Arch> low) {
#ifdef __AVX512F__
  // Returns its second operand if either is not-a-number.
  if constexpr (sizeof(reg<T, Arch>) == 64 && std::is_same_v<T, float>) return _mm512_max_ps(low, x);
#endif
  return xsimd::select(x < low, low, x);
}

/// a / b, rounded once. xsimd's, of floats on ARM, is an estimate, and not-a-number for b = infinity.
template <class T, class Arch> TESSERA_INLINE batch<T, Arch> quotient(batch<T, Arch> a, batch<T, Arch> b) {
#ifdef __aarch64__
  if constexpr (std::is_same_v<T, float>) return vdivq_f32(a, b);
#endif
  return a / b;
}

/// √x, rounded once. xsimd's, of floats on ARM, is an estimate, and not-a-number for infinity.
template <class T, class Arch> TESSERA_INLINE batch<T, Arch> root(batch<T, Arch> x) {
#ifdef __aarch64__
  if constexpr (std::is_same_v<T, float>) return vsqrtq_f32(x);
#endif
  return xsimd::sqrt(x);
}

/// The sum of all lanes.
template <class T, class Arch> TESSERA_INLINE T sum_lanes(batch<T, Arch> value) {
  return xsimd::reduce_add(value);
}

/// The largest of all lanes.
template <class T, class Arch> TESSERA_INLINE T largest_lane(batch<T, Arch> value) {
  return xsimd::reduce_max(value);
}

/// Sums as numbers To: themselves, or integers of 32 bits as floats.
template <class To, class Sum, class Arch> TESSERA_INLINE batch<To, Arch> as(batch<Sum, Arch> const& sums) {
  if constexpr (std::is_same_v<To, Sum>)
    return sums;
  else
    return xsimd::to_float(sums);
}

/// Keeps a loaded value in a register: without this GCC folds the load into each multiplication that uses it,
/// and clang each broadcast. Costs no instruction.
template <class Register> TESSERA_INLINE void pin([[maybe_unused]] Register& value) {
#if defined(__AVX512F__)
  asm("" : "+v"(value));
#elif defined(__SSE2__)
  asm("" : "+x"(value));
#elif defined(__aarch64__)
  asm("" : "+w"(value));
#endif
}

/// Four consecutive values, each in all lanes of one register; with a single load where registers
/// have shuffles for it.
template <class Arch, class T> TESSERA_INLINE void broadcast_four(T const* from, reg<T, Arch> (&to)[4]) {
#if defined(__AVX512F__)
  if constexpr (sizeof(reg<T, Arch>) == 64 && sizeof(T) == 4) {
    __m512 four = _mm512_broadcast_f32x4(_mm_loadu_ps(from));
    pin(four);
    to[0] = _mm512_permute_ps(four, 0x00);
    to[1] = _mm512_permute_ps(four, 0x55);
    to[2] = _mm512_permute_ps(four, 0xaa);
    to[3] = _mm512_permute_ps(four, 0xff);
    return;
  } else if constexpr (sizeof(reg<T, Arch>) == 64 && sizeof(T) == 8) {
    __m512d four = _mm512_broadcast_f64x4(_mm256_loadu_pd(from));
    pin(four);
    to[0] = _mm512_permutex_pd(four, 0x00);
    to[1] = _mm512_permutex_pd(four, 0x55);
    to[2] = _mm512_permutex_pd(four, 0xaa);
    to[3] = _mm512_permutex_pd(four, 0xff);
    return;
  }
#endif
  for (int i = 0; i < 4; ++i) to[i] = broadcast<Arch>(from[i]);
}

/// Indices, none negative, read two by two: gathers and scatters are as fast as their loads.
struct index_pair {
  std::uint32_t first, second;
};
TESSERA_INLINE index_pair load_pair(std::int32_t const* index) {
  std::uint64_t both;
  std::memcpy(&both, index, sizeof both);
  return {std::uint32_t(both), std::uint32_t(both >> 32)};
}

/// from[index[i]] in lane i: by loads of single numbers, of which AMD does more than its gather instruction.
template <class Arch, class T> TESSERA_INLINE reg<T, Arch> gather(T const* from, std::int32_t const* index) {
  return [&]<int... i>(std::integer_sequence<int, i...>) TESSERA_INLINE_LAMBDA {
    const index_pair at[] = {load_pair(index + 2 * i)...};
    typename compiler_vector<T, lanes<T, Arch>>::type all;
    ((all[2 * i] = from[at[i].first], all[2 * i + 1] = from[at[i].second]), ...);
    return std::bit_cast<reg<T, Arch>>(all);
  }(std::make_integer_sequence<int, lanes<T, Arch> / 2>());
}

/// to[index[i]] += lane i of `values`, for distinct indices.
template <class Arch, class T>
TESSERA_INLINE void scatter_add(T* to, std::int32_t const* index, reg<T, Arch> values) {
  const auto all = std::bit_cast<typename compiler_vector<T, lanes<T, Arch>>::type>(values);
  unroll<lanes<T, Arch> / 2>([&](auto i) TESSERA_INLINE_LAMBDA {
    const index_pair at = load_pair(index + 2 * i);
    to[at.first] += all[2 * i];
    to[at.second] += all[2 * i + 1];
  });
}

/// Asks for the cache line at `address`, into the L2 or the L1.
template <int Level> TESSERA_INLINE void prefetch(void const* address) {
  static_assert(Level == 1 || Level == 2, "only the L1 and the L2 are worth asking for");
  __builtin_prefetch(address, 0, Level == 1 ? 3 : 2);
}

}}}  // namespace tessera::TESSERA_ISA::simd
#endif

// ---- tessera/ops/scalar.hpp
#ifndef TESSERA_SINGLE_OPS_SCALAR
#define TESSERA_SINGLE_OPS_SCALAR
#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>

// An op is written once, for a number and for a SIMD register V. Argument-dependent lookup finds the
// functions of a register; functions of a number, under equal names, are here. Any other function of V must
// have a name that xsimd has not (remainder, clip, …), or xsimd's is called instead.

namespace tessera { inline namespace TESSERA_ISA { namespace ops::detail {

using std::abs;
using std::cos;
using std::erf;
using std::log;
using std::max;
using std::min;
using std::pow;
using std::sin;
using std::sqrt;

/// a * b + c; std::fma would be a library call where the instruction set lacks it.
template <std::floating_point T> TESSERA_INLINE T fma(T a, T b, T c) { return a * b + c; }

/// c - a * b
template <std::floating_point T> TESSERA_INLINE T fnma(T a, T b, T c) { return c - a * b; }

template <std::floating_point T> TESSERA_INLINE T select(bool condition, T a, T b) {
  return condition ? a : b;
}

template <class To, class From>
  requires(std::floating_point<From> || std::integral<From>)
TESSERA_INLINE To bitwise_cast(From x) {
  return std::bit_cast<To>(x);
}

template <class V> struct scalar {
  using type = typename V::value_type;
};
template <std::floating_point T> struct scalar<T> {
  using type = T;
};
/// The number type of V: V itself, or that of its lanes.
template <class V> using scalar_t = typename scalar<V>::type;

/// max(x, low) and min(x, high), not-a-number if x is. Registers' own max and min do not promise that: their
/// result for not-a-number depends on the instruction set, and changed between xsimd 13 and 14.
template <std::floating_point T> TESSERA_INLINE T at_least(T x, T low) { return x < low ? low : x; }
using simd::at_least;
template <std::floating_point T> TESSERA_INLINE T quotient(T a, T b) { return a / b; }
using simd::quotient;
template <std::floating_point T> TESSERA_INLINE T root(T x) { return std::sqrt(x); }
using simd::root;
template <class V> TESSERA_INLINE V at_most(V x, V high) { return select(x > high, high, x); }

/// -x, also of zeros; xsimd's, with AVX-512, is 0 - x.
template <class V> TESSERA_INLINE V negated(V x) { return V(-0.0f) - x; }

/// The finite number next to x; any for not-a-number.
template <class V> TESSERA_INLINE V finite(V x) {
  constexpr auto largest = std::numeric_limits<scalar_t<V>>::max();
  return min(max(x, V(-largest)), V(largest));
}

/// c[0] + c[1] x + c[2] x² + …
template <class V, class T, std::size_t Count> TESSERA_INLINE V polynomial(V x, T const (&c)[Count]) {
  constexpr int degree = static_cast<int>(Count) - 1;
  V sum(static_cast<scalar_t<V>>(c[degree]));
  unroll<degree>([&](auto i) TESSERA_INLINE_LAMBDA {
    sum = fma(sum, x, V(static_cast<scalar_t<V>>(c[degree - 1 - i()])));
  });
  return sum;
}

}}}  // namespace tessera::TESSERA_ISA::ops::detail

namespace tessera { inline namespace TESSERA_ISA { namespace ops {
using namespace detail;
}}}  // namespace tessera::TESSERA_ISA::ops
#endif

// ---- tessera/simd/exp2.hpp
#ifndef TESSERA_SINGLE_SIMD_EXP2
#define TESSERA_SINGLE_SIMD_EXP2
#include <limits>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// 2^x for x ≤ 0, 0 for -infinity. Within 1.5 ulp where that is a normal number. With AVX-512 it takes eight
/// operations for float, half as many as ops::exponential: the fraction is exact, scaling rounds its exponent
/// down by itself, and nothing has to be done about the ends of the range.
template <class T, class Arch> TESSERA_INLINE batch<T, Arch> exp2(batch<T, Arch> x) {
#ifdef __AVX512DQ__
  if constexpr (std::is_same_v<T, float> && sizeof(reg<T, Arch>) == 64) {
    constexpr int down = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
    // Of 2^f, 0 ≤ f ≤ 1, derived by scripts/fit_activations.py; error .06 ulp
    constexpr float c[] = {
        1, 0.693147f, 0.24022983f, 0.05548334f, 0.009678841f, 0.0012439687f, 0.00021702256f};
    const batch<T, Arch> f(_mm512_reduce_ps(x, down));
    batch<T, Arch> power(c[6]);
    unroll<6>([&](auto i) TESSERA_INLINE_LAMBDA { power = xsimd::fma(power, f, batch<T, Arch>(c[5 - i])); });
    return _mm512_scalef_ps(power, x);
  }
#endif
  // xsimd converts the exponent to an integer, which is undefined for infinity and not-a-number.
  const batch<T, Arch> low(T(2 * std::numeric_limits<T>::min_exponent));
  return xsimd::select(x == x, xsimd::exp2(xsimd::select(x >= low, x, low)), x);
}

}}}  // namespace tessera::TESSERA_ISA::simd
#endif

// ---- tessera/ops/exponential.hpp
#ifndef TESSERA_SINGLE_OPS_EXPONENTIAL
#define TESSERA_SINGLE_OPS_EXPONENTIAL
#include <cstdint>
#include <limits>

namespace tessera { inline namespace TESSERA_ISA { namespace ops {

namespace detail {

/// Constants of e^x = 2^n e^r, n = round(x / ln 2), |r| ≤ ln 2 / 2.
///   rounding       1.5 · 2^mantissa_bits + bias - 1: added to a number it rounds it to an integer n and
///                  leaves n + bias - 1, the exponent field of 2^(n-1), in the lowest bits of the sum
///   largest        that sum for the largest n
///   lowest         the least x, (1 - bias) ln 2, of which e^x is a normal number
///   highest        the greatest x, (bias + 1) ln 2, of which e^x is finite
///   ln2_high       so short that n · ln2_high is exact; ln2_low is the rest of ln 2
///   coefficients   2 (e^r - 1) / r, derived by scripts/fit_activations.py; error .06 and .08 ulp of e^r
template <class T> struct exponential_constants;

template <> struct exponential_constants<float> {
  using bits = std::uint32_t;
  static constexpr int mantissa_bits = 23;
  static constexpr float rounding = 0x1.8p23f + 126;
  static constexpr float largest = rounding + 128;
  static constexpr float lowest = -87.33654f;
  static constexpr float highest = 88.72283f;
  static constexpr float log2_e = 1.442695f;
  static constexpr float ln2_high = 0.693359375f;
  static constexpr float ln2_low = -2.1219444e-4f;
  static constexpr float coefficients[] = {
      2, 0.9999998f, 0.33333036f, 0.083338186f, 0.016737837f, 0.0027560717f};
};

template <> struct exponential_constants<double> {
  using bits = std::uint64_t;
  static constexpr int mantissa_bits = 52;
  static constexpr double rounding = 0x1.8p52 + 1022;
  static constexpr double largest = rounding + 1024;
  static constexpr double lowest = -708.3964185322641;
  static constexpr double highest = 709.782712893384;
  static constexpr double log2_e = 1.4426950408889634;
  static constexpr double ln2_high = 0.6931471803691238;  // 32 bits
  static constexpr double ln2_low = 1.9082149292705877e-10;
  static constexpr double coefficients[] = {2,
                                            1.0000000000000016,
                                            0.333333333333326,
                                            0.08333333333309005,
                                            0.01666666666711623,
                                            0.0027777777880960185,
                                            0.0003968253876453603,
                                            4.960299166288565e-05,
                                            5.511537578533176e-06,
                                            5.525882405628164e-07,
                                            4.994075153628541e-08};
};

/// n = round(x / ln 2), as `rounding` + n.
template <class V> TESSERA_INLINE V rounded_exponent(V x) {
  using constants = exponential_constants<scalar_t<V>>;
  // Not-a-number need not survive this min: x carries it, and infinity, into the remainder.
  return min(fma(x, V(constants::log2_e), V(constants::rounding)), V(constants::largest));
}

/// 2^(n-1), or 0 for the lowest n. Half of 2^n, because n may be 128 (1024) where e^x is still finite.
template <class V> TESSERA_INLINE V half_power(V rounded) {
  using constants = exponential_constants<scalar_t<V>>;
  using bits = typename constants::bits;
  return bitwise_cast<scalar_t<V>>(bitwise_cast<bits>(rounded) << constants::mantissa_bits);
}

/// r = x - n ln 2
template <class V> TESSERA_INLINE V reduced_argument(V x, V n) {
  using constants = exponential_constants<scalar_t<V>>;
  return fnma(n, V(constants::ln2_low), fnma(n, V(constants::ln2_high), x));
}

/// e^x beside larger numbers, as in 1 + e^x: 0 below -125.5 ln 2 (double: -1021.5 ln 2). 15 operations for
/// float.
template <class V> TESSERA_INLINE V exponential_term(V x) {
  using constants = exponential_constants<scalar_t<V>>;
  const V rounded = rounded_exponent(x);
  const V r = reduced_argument(x, rounded - V(constants::rounding));
  const V y = fma(r, polynomial(r, constants::coefficients), V(2)) * half_power(rounded);
  return select(x < V(constants::lowest), V(0), y);
}

}  // namespace detail

/// e^x
///   Error: within .91 ulp, 1.2 without FMA, for float and double. 0 below -126 ln 2 (double: -1022 ln 2),
///   where it would be subnormal; infinity from 128 ln 2 (1024 ln 2) on. 17 operations for float.
struct exponential {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const {
    using T = detail::scalar_t<V>;
    using constants = detail::exponential_constants<T>;
    using bits = typename constants::bits;
    // 2^(n-1) is too small for a normal number where e^x is not: n - 1 is added to the exponent of 2 e^r.
    constexpr T rounding = constants::rounding - std::numeric_limits<T>::max_exponent + 1;
    const V rounded = fma(x, V(constants::log2_e), V(rounding));  // leaves n - 1 in the lowest bits
    const V r = reduced_argument(x, rounded - V(rounding));
    const V twice = fma(r, polynomial(r, constants::coefficients), V(2));
    const V y = bitwise_cast<T>(bitwise_cast<bits>(twice) +
                                (bitwise_cast<bits>(rounded) << constants::mantissa_bits));
    const V beyond = x + V(std::numeric_limits<T>::infinity());  // not-a-number if x is
    return select(x < V(constants::lowest), V(0), select(x <= V(constants::highest), y, beyond));
  }
  template <class V> TESSERA_INLINE V derivative(V x) const { return (*this)(x); }
};

/// e^x for x ≤ 0 as 2^(x log₂ e), of registers only: with AVX-512 half the operations of `exponential`. Its
///   relative error grows with |x|, while e^x becomes small: within 2e-7 of e^x for float.
struct exponential_of_negative {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const {
    constexpr double log2_e = 1.4426950408889634;
    return simd::exp2(x * V(static_cast<detail::scalar_t<V>>(log2_e)));
  }
};

/// The natural logarithm, within 1 ulp; -∞ for ±0, not-a-number below.
struct logarithm {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const { return log(x); }
  template <class V> TESSERA_INLINE V derivative(V x) const { return quotient(V(1), x); }
};

/// The sine and the cosine of an angle in radians, of any size; not-a-number for ±∞.
///   Error: within 2.2 ulp for float. Within ε for double (2^-52), which next to a multiple of π/2 is more of
///     the result.
struct sine {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const { return sin(x); }
  template <class V> TESSERA_INLINE V derivative(V x) const { return cos(x); }
};
struct cosine {
  static constexpr bool keeps_zero = false;
  static constexpr bool derivative_keeps_zero = true;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const { return cos(x); }
  template <class V> TESSERA_INLINE V derivative(V x) const { return negated(sin(x)); }
};

/// 1 / (1 + e^-x), within 3 ulp; its derivative within ε, 0 for large |x|
struct sigmoid {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const {
    return quotient(V(1), V(1) + detail::exponential_term(-x));
  }
  template <class V> TESSERA_INLINE V derivative(V x) const {
    const V y = (*this)(x);
    return y * (V(1) - y);
  }
};

/// The hyperbolic tangent, as e / (e + 2) with e = e^2x - 1; within 4 ulp, also near 0, and 0 for -0. Its
/// derivative is within 3 ε.
struct tanh {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const {
    using constants = detail::exponential_constants<detail::scalar_t<V>>;
    const V z = at_least(at_most(x + x, V(40)), V(-40));  // beyond, the quotient is 1 or -1
    const V rounded = rounded_exponent(z);
    const V r = reduced_argument(z, rounded - V(constants::rounding));
    const V power = half_power(rounded);
    const V e = fma(power, r * polynomial(r, constants::coefficients), fma(power, V(2), V(-1)));
    return quotient(e, e + V(2));
  }
  template <class V> TESSERA_INLINE V derivative(V x) const {
    const V y = (*this)(x);
    return fnma(y, y, V(1));
  }
};

/// x sigmoid(x), within 4 ulp; 0 below -128 ln 2 (double: -1024 ln 2), not-a-number for -∞, as in
/// PyTorch. Its derivative is within 10 ε (20), not-a-number for ±∞.
struct silu {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const {
    return quotient(x, V(1) + detail::exponential_term(-x));
  }
  template <class V> TESSERA_INLINE V derivative(V x) const {
    const V y = sigmoid{}(x);
    return y * fma(x, V(1) - y, V(1));
  }
};

}}}  // namespace tessera::TESSERA_ISA::ops
#endif

// ---- tessera/simd/pieces.hpp
#ifndef TESSERA_SINGLE_SIMD_PIECES
#define TESSERA_SINGLE_SIMD_PIECES
namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// A function of |x| by one polynomial of degree 4 in |x| on each of 16 pieces of equal width: piece i lies
/// around i widths, and the last one has no end. Coefficient k of piece i is c[k][i].
struct pieces {
  float per_width;
  alignas(64) float c[5][16];
};

/// True for registers whose lanes look up a coefficient each in one instruction.
template <class V> inline constexpr bool looks_up = false;
#ifdef __AVX512F__
template <class Arch> inline constexpr bool looks_up<batch<float, Arch>> = sizeof(reg<float, Arch>) == 64;
#endif

/// The function at x, not-a-number if x is: 12 operations.
template <class V>
  requires looks_up<V>
TESSERA_INLINE V evaluate([[maybe_unused]] pieces const& of, [[maybe_unused]] V x) {
#ifdef __AVX512F__
  // min returns its second operand if either is not-a-number.
  const __m512 a = _mm512_min_ps(_mm512_set1_ps(15 / of.per_width), _mm512_abs_ps(x));
  // The sum is rounded to an integer, which stands in its lowest bits.
  const auto piece =
      _mm512_castps_si512(_mm512_fmadd_ps(a, _mm512_set1_ps(of.per_width), _mm512_set1_ps(0x1.8p23f)));
  const auto coefficient = [&](int k) TESSERA_INLINE_LAMBDA {
    return _mm512_permutexvar_ps(piece, _mm512_load_ps(of.c[k]));
  };
  __m512 sum = coefficient(4);
  unroll<4>([&](auto k) TESSERA_INLINE_LAMBDA { sum = _mm512_fmadd_ps(sum, a, coefficient(3 - k)); });
  return sum;
#endif
}

}}}  // namespace tessera::TESSERA_ISA::simd
#endif

// ---- tessera/ops/activation.hpp
#ifndef TESSERA_SINGLE_OPS_ACTIVATION
#define TESSERA_SINGLE_OPS_ACTIVATION
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace ops {

/// max(x, 0); the derivative at 0 is 0.
struct relu {
  static constexpr bool keeps_zero = true;
  static constexpr bool derivative_keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V x) const { return at_least(x, V(0)); }
  template <class V> TESSERA_INLINE V derivative(V x) const { return select(x > V(0), V(1), V(0)); }
};

/// x Φ(x), Φ the normal distribution (Hendrycks, Gimpel 2016), by the error function; not-a-number for -∞, as
/// in PyTorch.
///   Error: within 1.5 |x| ε, its derivative 1.5 ε (ε = 2^-23 for float, 2^-52 for double); in registers of
///     double 18, reached at |x| = 3.111, where xsimd's erf passes to another approximation, and 4.5 before.
///   Relative to a positive result that is 3 ε (18). A negative one is a small difference of larger numbers,
///     which the error is 1e-4 of at -3.6 for float, 4e-12 at -3.11 for double, and all of from about -5.4
///     (-8.3) down.
struct gelu {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const { return x * distribution(x); }
  template <class V> TESSERA_INLINE V derivative(V x) const {
    constexpr double inverse_root_two_pi = 0.3989422804014327;
    const V density = constant<V>(inverse_root_two_pi) * detail::exponential_term(V(-0.5f) * x * x);
    return fma(finite(x), density, distribution(x));
  }

 private:
  template <class V> static V constant(double value) { return V(static_cast<detail::scalar_t<V>>(value)); }
  template <class V> TESSERA_INLINE static V distribution(V x) {
    constexpr double root_half = 0.7071067811865476;
    V z = x * constant<V>(root_half);
    if constexpr (std::is_same_v<detail::scalar_t<V>, double>) {
      // xsimd's erf converts doubles to integers one by one, which is undefined for infinity and
      // not-a-number. Beyond 6 erf is 1, and x itself carries not-a-number into the result.
      z = select(z < V(6), z, V(6));
      z = select(z > V(-6), z, V(-6));
    }
    return fma(V(0.5f), erf(z), V(0.5f));
  }
};

/// x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, the approximation of gelu that GPT-2 was trained with
/// (Hendrycks, Gimpel 2016, §2), within 5e-4 of gelu; here as x sigmoid(2 √(2/π) (x + 0.044715 x³)).
/// Not-a-number for -∞, as in PyTorch.
///   Error: within 32 |x| ε; its derivative 32 ε, for double 64.
struct gelu_tanh {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V x) const {
    return quotient(
        x, V(1) + detail::exponential_term(x * fma(x * x, constant<V>(-slope * cubic), constant<V>(-slope))));
  }
  template <class V> TESSERA_INLINE V derivative(V x) const {
    const V z = at_least(at_most(x, V(20)), V(-20));  // beyond, the derivative is 1 or 0
    const V square = z * z;
    const V y = sigmoid{}(z * fma(square, constant<V>(slope * cubic), constant<V>(slope)));
    return y * fma(z * (V(1) - y), fma(square, constant<V>(3 * slope * cubic), constant<V>(slope)), V(1));
  }

 private:
  static constexpr double slope = 1.5957691216057308, cubic = 0.044715;  // 2 √(2/π)
  template <class V> static V constant(double value) { return V(static_cast<detail::scalar_t<V>>(value)); }
};

/// gelu without division or error function: max(x, 0) - a Φ(-a), a = |x|, where a Φ(-a) is approximated
///   by 16 pieces, for float with AVX-512: within 5e-7 of gelu, its derivative within 1e-6 of gelu's, which
///     has pieces of its own; neither jumps by more than twice that. From 14.5 widths on the value is x or 0,
///     also for ±∞.
///   by a P(a)^16, for other registers and double: within 6e-7 of gelu for every x (the polynomial itself
///     3.5e-7), its derivative within 4e-6. P has degree 6 and P(0)^16 = 1/2, so that the derivative does not
///     jump at 0, and is cut off at its zero, which is of order 16 in the result: beyond it the value is x or
///     0, also for ±∞. For double the coefficients are equal, and 0 is a number of 1e-118.
///   Pieces take 14 operations, 5 of them multiplications, P^16 15, 11 of them; the derivatives 14 and 25.
///   Derived by scripts/fit_activations.py.
struct gelu_polynomial {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = true;

  template <class V> TESSERA_INLINE V operator()(V x) const {
    if constexpr (simd::looks_up<V>)
      return at_least(x, V(0)) - simd::evaluate(tail_pieces, x);
    else
      return fnma(min(abs(x), V(zero)), by_powers(x), at_least(x, V(0)));
  }

  template <class V> TESSERA_INLINE V derivative(V x) const {
    V tail;
    if constexpr (simd::looks_up<V>)
      tail = simd::evaluate(slope_pieces, x);
    else
      tail = slope_by_powers(x);
    return select(x > V(0), V(1) - tail, tail);
  }

 private:
  /// Φ(-a)
  template <class V> TESSERA_INLINE static V by_powers(V x) {
    V p = polynomial(min(abs(x), V(zero)), coefficients);  // not-a-number is carried by the other term
    p = p * p;
    p = p * p;
    p = p * p;
    return p * p;
  }

  /// d/da a P^16 = P^15 (P + 16 a P′), and P + 16 a P′ has the coefficients (1 + 16 k) c_k.
  template <class V> TESSERA_INLINE static V slope_by_powers(V x) {
    const V a = at_most(abs(x), V(zero));
    const V p = polynomial(a, coefficients);
    const V p2 = p * p;
    const V p4 = p2 * p2;
    return p * p2 * p4 * (p4 * p4) * polynomial(a, slope_coefficients.c);
  }

  static constexpr float zero = 7.8092895f;
  static constexpr float coefficients[] = {0.9576033f,     -0.047758944f,  -0.017826658f, -0.001320691f,
                                           0.00064540084f, -3.1742733e-5f, -1.5295377e-6f};
  static constexpr auto slope_coefficients = [] {
    struct {
      double c[7];
    } slope{};
    for (int k = 0; k < 7; ++k) slope.c[k] = (1 + 16 * k) * double(coefficients[k]);
    return slope;
  }();
  static constexpr simd::pieces tail_pieces = {
      2.625f,
      {{0, -9.633749e-05f, -0.0053857584f, -0.031222265f, -0.043157797f, 0.07879349f, 0.3800376f, 0.69455075f,
        0.8022876f, 0.66375756f, 0.4164721f, 0.20473826f, 0.08053803f, 0.02572497f, 0.006743903f, 0},
       {0.5000005f, 0.50141233f, 0.53604645f, 0.644491f, 0.68552154f, 0.40683803f, -0.16774432f, -0.68023175f,
        -0.83571017f, -0.66652477f, -0.39291096f, -0.18021819f, -0.0661068f, -0.019725975f, -0.004844103f, 0},
       {-0.39896458f, -0.406733f, -0.49326164f, -0.66533524f, -0.71761113f, -0.4783249f, -0.06666247f,
        0.2468566f, 0.3310099f, 0.25348607f, 0.1398928f, 0.059735145f, 0.020404793f, 0.0056831664f,
        0.0013065961f, 0},
       {0.00031006103f, 0.019686338f, 0.11769406f, 0.24002695f, 0.26935786f, 0.17785673f, 0.04655432f,
        -0.03878691f, -0.059033375f, -0.043237213f, -0.022265784f, -0.008833446f, -0.0028064172f,
        -0.0007290171f, -0.000156835f, 0},
       {0.065050215f, 0.04610167f, 0.0035676907f, -0.029305091f, -0.0354314f, -0.022282733f, -0.006551657f,
        0.002169458f, 0.0039963536f, 0.0027887349f, 0.0013360305f, 0.00049156003f, 0.00014508908f,
        3.512689e-05f, 7.067997e-06f, 0}}};
  static constexpr simd::pieces slope_pieces = {
      2.625f,
      {{0.5f, 0.49977568f, 0.50003487f, 0.5563172f, 0.7724825f, 0.98871267f, 0.750442f, -0.056510206f,
        -0.9101386f, -1.2500209f, -1.0404668f, -0.62328845f, -0.2858045f, -0.103567496f, -0.030242693f, 0},
       {-0.7978792f, -0.79437774f, -0.7928927f, -1.0189565f, -1.6650385f, -2.1832106f, -1.7441789f,
        -0.4434517f, 0.75998485f, 1.1885055f, 0.9603163f, 0.5426924f, 0.23315096f, 0.07911462f, 0.021669036f,
        0},
       {-0.0002735188f, -0.021340046f, -0.034170497f, 0.30829826f, 1.0353823f, 1.5019236f, 1.1985122f,
        0.41134837f, -0.22543135f, -0.42811227f, -0.33490768f, -0.1780598f, -0.07155229f, -0.022712296f,
        -0.0058310456f, 0},
       {0.27031848f, 0.32974574f, 0.35573718f, 0.12369957f, -0.24145406f, -0.42848364f, -0.33527288f,
        -0.12330369f, 0.026577832f, 0.069199584f, 0.05227525f, 0.02608211f, 0.009788325f, 0.002903727f,
        0.0006983681f, 0},
       {-0.027416889f, -0.09544473f, -0.11202888f, -0.052674558f, 0.016376002f, 0.04454072f, 0.033800524f,
        0.0123704625f, -0.0008701349f, -0.004232416f, -0.003079669f, -0.0014386061f, -0.0005035098f,
        -0.00013947402f, -3.1407082e-05f, 0}}};
};

}}}  // namespace tessera::TESSERA_ISA::ops
#endif

// ---- tessera/ops/arithmetic.hpp
#ifndef TESSERA_SINGLE_OPS_ARITHMETIC
#define TESSERA_SINGLE_OPS_ARITHMETIC
#include <limits>

// An op is a function of numbers as a type, for a number and for a SIMD register V alike.
//   keeps_zero     f(0) == 0, or f(0, 0) == 0: absent blocks stay absent
//   costly         too dear to be fused into the store of a product: applied to rows still in the L1
//   neutral()      the number that leaves the other argument as it is: of ops that fold over features
//   derivative(x)  of ops of one argument; at a kink, the value given there
// Comparisons have the value 1 or 0, and 0 when an argument is not-a-number. All others but `power` hand it
// on.

namespace tessera { inline namespace TESSERA_ISA { namespace ops {

/// a + b
struct add {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return a + b; }
  template <class V> static V neutral() { return V(0); }
};

/// a - b
struct subtract {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return a - b; }
};

/// a b
struct multiply {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return a * b; }
};

/// a / b
struct divide {
  static constexpr bool keeps_zero = false;  // 0 / 0
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return quotient(a, b); }
};

/// The larger of a and b, not-a-number if either is.
struct maximum {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return select((a > b) || (a != a), a, b); }
  template <class V> static V neutral() { return V(-std::numeric_limits<scalar_t<V>>::infinity()); }
};

/// The smaller of a and b, not-a-number if either is.
struct minimum {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return select((a < b) || (a != a), a, b); }
};

/// a == b
struct equal {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return select(a == b, V(1), V(0)); }
};

/// a < b
struct less {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return select(a < b, V(1), V(0)); }
};

/// a ≥ b
struct greater_equal {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const { return select(a >= b, V(1), V(0)); }
};

/// a where c is not 0, else b.
struct where {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V c, V a, V b) const { return select(c != V(0), a, b); }
};

/// -x
struct negate {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V x) const { return negated(x); }
  template <class V> TESSERA_INLINE V derivative(V) const { return V(-1); }
};

/// |x|; the derivative at 0 is 0.
struct absolute {
  static constexpr bool keeps_zero = true;
  static constexpr bool derivative_keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V x) const { return abs(x); }
  template <class V> TESSERA_INLINE V derivative(V x) const {
    return select(x > V(0), V(1), select(x < V(0), V(-1), V(0)));
  }
};

/// x²
struct square {
  static constexpr bool keeps_zero = true;
  static constexpr bool derivative_keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V x) const { return x * x; }
  template <class V> TESSERA_INLINE V derivative(V x) const { return x + x; }
};

/// √x, rounded once; its derivative, within 1.5 ulp, is ∞ at 0.
struct square_root {
  static constexpr bool keeps_zero = true;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V x) const { return root(x); }
  template <class V> TESSERA_INLINE V derivative(V x) const { return quotient(V(0.5f), root(x)); }
};

/// 1 / √x by a square root and a division: instructions for it are estimates of 12 or 14 bits. Within 1.5
/// ulp, its derivative 2.5.
struct reciprocal_square_root {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V operator()(V x) const { return quotient(V(1), root(x)); }
  // x √x underflows before the result overflows.
  template <class V> TESSERA_INLINE V derivative(V x) const {
    return quotient(quotient(V(-0.5f), root(x)), x);
  }
};

/// The op whose value is the derivative of Op.
template <class Op> struct derivative_of {
  static constexpr bool keeps_zero = requires { requires Op::derivative_keeps_zero; };
  static constexpr bool costly = Op::costly;
  template <class V> TESSERA_INLINE V operator()(V x) const { return Op{}.derivative(x); }
};

}}}  // namespace tessera::TESSERA_ISA::ops
#endif

// ---- tessera/ops/power.hpp
#ifndef TESSERA_SINGLE_OPS_POWER
#define TESSERA_SINGLE_OPS_POWER
#include <bit>
#include <concepts>
#include <limits>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace ops {

namespace detail {

/// Constants of log x = k ln 2 + log m, m = 2^-k x from √½ to √2, and log m = 2 (s + s³/3 + s⁵/5 + …),
/// s = (m - 1) / (m + 1), |s| ≤ 0.1716 (Abramowitz, Stegun 1972, 4.1.27).
///   root_half      the bits of √½
///   upper_half     the sign, the exponent, and half of the bits of the mantissa: a product of two numbers
///                  that have no more is exact
///   coefficients   1/5, 1/7, …; the first term left out is 0.1 ulp of the power
template <class T> struct logarithm_constants;

template <> struct logarithm_constants<float> {
  static constexpr std::uint32_t root_half = 0x3f3504f3, upper_half = 0xfffff000;
  static constexpr double coefficients[] = {1. / 5, 1. / 7, 1. / 9, 1. / 11, 1. / 13};
};

template <> struct logarithm_constants<double> {
  static constexpr std::uint64_t root_half = 0x3fe6a09e667f3bcd, upper_half = 0xfffffffff8000000;
  static constexpr double coefficients[] = {1. / 5,  1. / 7,  1. / 9,  1. / 11, 1. / 13,
                                            1. / 15, 1. / 17, 1. / 19, 1. / 21, 1. / 23};
};

/// high + low, |low| ≤ half a unit in the last place of high
template <class V> struct two_parts {
  V high, low;
};

/// a + b, for a = 0 or |a| ≥ |b| (Dekker 1971).
template <class V> TESSERA_INLINE two_parts<V> exact_sum(V a, V b) {
  const V sum = a + b;
  return {sum, b - (sum - a)};
}

/// a b, but for the smallest numbers; without FMA by halves (Dekker 1971).
template <class V> TESSERA_INLINE two_parts<V> exact_product(V a, V b) {
  const V product = a * b;
  if constexpr (simd::has_fma<V>) {
    return {product, fms(a, b, product)};
  } else {
    using T = scalar_t<V>;
    using bits = typename exponential_constants<T>::bits;
    const auto upper = [](V x) TESSERA_INLINE_LAMBDA {
      return bitwise_cast<T>(bitwise_cast<bits>(x) &
                             decltype(bitwise_cast<bits>(x))(logarithm_constants<T>::upper_half));
    };
    const V a1 = upper(a), b1 = upper(b), a2 = a - a1, b2 = b - b1;
    return {product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2};
  }
}

/// log x for 0 < x < ∞, with a relative error of 2^-35 (double: 2^-64).
template <class V> TESSERA_INLINE two_parts<V> precise_logarithm(V x) {
  using T = scalar_t<V>;
  using limits = std::numeric_limits<T>;
  using exponent = exponential_constants<T>;
  using constants = logarithm_constants<T>;
  using bits = typename exponent::bits;
  using integers = decltype(bitwise_cast<bits>(x));
  constexpr T digits = limits::digits, scale = T(bits(1) << limits::digits);
  // The exponent stands in the lowest bits of this number, k + bias above it.
  constexpr T whole = T(bits(1) << exponent::mantissa_bits), bias = T(limits::max_exponent - 1);
  constexpr bits one = std::bit_cast<bits>(T(1)), mantissa = (bits(1) << exponent::mantissa_bits) - 1;

  const auto subnormal = x < V(limits::min());
  const integers field =
      bitwise_cast<bits>(select(subnormal, x * V(scale), x)) + integers(one - constants::root_half);
  const V k = bitwise_cast<T>((field >> exponent::mantissa_bits) | integers(std::bit_cast<bits>(whole))) -
              select(subnormal, V(whole + bias + digits), V(whole + bias));
  const V m = bitwise_cast<T>((field & integers(mantissa)) + integers(constants::root_half));

  const V f = m - V(1);
  const auto d = exact_sum(V(2), f);
  const V inverse = quotient(V(1), d.high);
  const V s = f * inverse;
  const auto sd = exact_product(s, d.high);
  const V s_low = ((f - sd.high) - sd.low - s * d.low) * inverse;

  // log m = 2 s (1 + g), g = w (1/3 + w/5 + …), w = s²
  constexpr T third = T(1. / 3), rest_of_third = T(1.L / 3 - third);
  const auto w = exact_product(s, s);
  const auto h =
      exact_sum(V(third), fma(w.high, polynomial(w.high, constants::coefficients), V(rest_of_third)));
  const auto g = exact_product(w.high, h.high);
  const V g_low = g.low + w.high * h.low + (s + s) * s_low * h.high + w.low * h.high;
  const auto sg = exact_product(s, g.high);
  const auto half = exact_sum(s, sg.high);
  const V half_low = half.low + (sg.low + s * g_low + fma(s_low, g.high, s_low));

  const auto sum = exact_sum(k * V(exponent::ln2_high), half.high + half.high);
  return exact_sum(sum.high, sum.low + fma(k, V(exponent::ln2_low), half_low + half_low));
}

/// e^(x.high + x.low), for every number. Rounded once more where the result is subnormal.
template <class V> TESSERA_INLINE V exponential_of(two_parts<V> x) {
  using T = scalar_t<V>;
  using limits = std::numeric_limits<T>;
  using constants = exponential_constants<T>;
  constexpr T ln2 = T(0.6931471805599453);
  // Beyond these ends the result is 0 or infinity.
  const V high = min(max(x.high, V(T(limits::min_exponent - limits::digits - 2) * ln2)),
                     V(T(limits::max_exponent + 1) * ln2));
  const V rounded = rounded_exponent(high);
  const V n = rounded - V(constants::rounding);
  const V r = reduced_argument(high, n) + select(high == x.high, x.low, V(0));
  // 2^n in two steps, because n is from -151 (double: -1076) to 128 (1024).
  const V half_rounded = fma(n, V(0.5f), V(constants::rounding));
  const V rest = n - (half_rounded - V(constants::rounding));
  return fma(r, polynomial(r, constants::coefficients), V(2)) * half_power(half_rounded) *
         half_power(rest + V(constants::rounding + 1));
}

}  // namespace detail

/// a^b, not-a-number for a < 0 unless b is whole; at zeros, infinities and not-a-number as IEEE 754-2019,
/// 9.2.1, says: a^±0 and 1^b are 1 for every a and b, also for not-a-number.
///   Error: within 1.5 ulp where the result is a normal number, for float and double.
struct power {
  static constexpr bool keeps_zero = false;
  static constexpr bool costly = true;
  template <class V> TESSERA_INLINE V operator()(V a, V b) const {
    if constexpr (std::floating_point<V>) {
      return pow(a, b);
    } else {
      using namespace detail;
      using T = scalar_t<V>;
      constexpr T infinity = std::numeric_limits<T>::infinity();
      const V size = abs(a);
      auto log = precise_logarithm(size);
      log.high = select(size == V(0), V(-infinity), select(size == V(infinity), size, log.high));
      auto product = exact_product(b, log.high);
      product.low = fma(b, log.low, product.low);
      V y = select(size == V(1), V(1), exponential_of(product));  // also for infinite b

      const V b_size = abs(b);
      const auto is_whole = [](V x) TESSERA_INLINE_LAMBDA {
        const V all_whole(T(1 / std::numeric_limits<T>::epsilon()));  // as every number from here on
        return (x >= all_whole) || ((x + all_whole) - all_whole == x);
      };
      const auto b_whole = is_whole(b_size);
      const auto b_odd = b_whole && !is_whole(b_size * V(0.5f));
      y = select(b_odd, y | (a & V(T(-0.0))), y);
      const auto negative = (a != size) && (size != V(infinity));
      y = select(negative && !b_whole, V(std::numeric_limits<T>::quiet_NaN()), y);
      y = select((a != a) || (b != b), a + b, y);
      return select((a == V(1)) || (b == V(0)), V(1), y);
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::ops
#endif

// ---- tessera/expr/map.hpp
#ifndef TESSERA_SINGLE_EXPR_MAP
#define TESSERA_SINGLE_EXPR_MAP
#include <tuple>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA {
namespace expr {

/// Op applied elementwise. Vectors are repeated along the axis they do not have.
template <class Op, class... Arguments> struct map {
  using node_tag = void;
  using value_type = typename common_value<typename Arguments::value_type...>::type;
  static constexpr domain laid_over = [] {
    domain all = domain::number;
    ((all = join(all, Arguments::laid_over)), ...);
    return all;
  }();

  std::tuple<Arguments...> arguments;

  extent size() const {
    return std::apply(
        [](auto const&... argument) {
          extent all;
          ((all = join("elementwise", all, extent_of(argument))), ...);
          return all;
        },
        arguments);
  }
};

/// True if absent blocks, which are zero, stay zero under Op with these operands.
template <class Op, domain... Operands>
constexpr bool absent_stays_absent = Op::keeps_zero && ((Operands != domain::number) && ...);
template <domain A, domain B> constexpr bool absent_stays_absent<ops::multiply, A, B> = true;
template <domain A> constexpr bool absent_stays_absent<ops::divide, A, domain::number> = true;

/// The stored values of a matrix, without the zeros between them.
template <leaf Leaf> struct values_of : Leaf {
  static constexpr domain laid_over = domain::values;
};

/// Values rounded to Element and kept where the worker has room.
template <element Element, class Value> struct converted_value {
  using node_tag = void;
  using value_type = Element;
  using stored_element = Element;
  static constexpr domain laid_over = Value::laid_over;
  Value value;
  extent size() const { return extent_of(value); }
};

struct feature_number {
  using node_tag = void;
  using value_type = void;
  static constexpr domain laid_over = domain::features;
  extent size() const { return {}; }
};

/// Uniform random numbers in [0, 1), a function of the key, the feature and the token.
struct uniform_random {
  using node_tag = void;
  using value_type = void;
  static constexpr domain laid_over = domain::panels;
  std::uint64_t key;
  extent size() const { return {}; }
};

}  // namespace expr

/// Op (a struct of tessera::ops, or the user's own) applied element by element to activations, vectors,
/// matrices and numbers. Throws shape_error if sizes or patterns differ.
template <class Op, expr::operand... Operands> auto apply(Operands&&... operands) {
  static_assert(
      requires { bool(Op::keeps_zero && Op::costly); },
      "an op says what it is: static constexpr bool keeps_zero, costly (ops/arithmetic.hpp)");
  using node = expr::map<Op, expr::held<Operands>...>;
  constexpr bool fits = [] {
    domain all = domain::number;
    bool good = true;
    ((good = good && expr::combine(all, expr::held<Operands>::laid_over),
      all = expr::join(all, expr::held<Operands>::laid_over)),
     ...);
    return good;
  }();
  static_assert(fits,
                "a matrix and an activation cannot be combined element by element: `w * x` is their product");
  constexpr bool one_type = !std::is_same_v<typename node::value_type, expr::mixed>;
  static_assert(one_type, "the operands have different element types: " TESSERA_ONE_ACCUMULATOR);
  constexpr bool sparse =
      node::laid_over != domain::blocks || expr::absent_stays_absent<Op, expr::held<Operands>::laid_over...>;
  static_assert(sparse,
                "this would make the absent blocks of a matrix non-zero: apply it to stored_values(w)");
  if constexpr (fits && one_type && sparse) {
    node result{{expr::hold(std::forward<Operands>(operands))...}};
    static_cast<void>(result.size());
    return result;
  } else {
    return expr::number{0};  // so that no second error follows
  }
}

/// The stored values of a matrix or vector as an expression: ops need not keep zeros.
template <tensor Tensor>
  requires(std::remove_cvref_t<Tensor>::laid_over != domain::panels)
auto stored_values(Tensor&& of) {
  if constexpr (std::remove_cvref_t<Tensor>::laid_over == domain::blocks)
    return expr::values_of<expr::held<Tensor>>{expr::hold(std::forward<Tensor>(of))};
  else
    return expr::hold(std::forward<Tensor>(of));
}

/// A tensor as an expression: `y = converted(x)` brings its values to the element type of y.
template <tensor Tensor> auto converted(Tensor&& tensor) { return expr::hold(std::forward<Tensor>(tensor)); }

/// An activation whose values are rounded to Element before they are used: `w * converted<bfloat16>(gelu(z))`
/// multiplies bfloat16, as a stored gelu(z) would. No conversion if values are stored in Element already.
template <element Element, expr::activation Value> auto converted(Value&& value) {
  using held = expr::held<Value>;
  static_assert(
      !requires { value.reference(); }, "a local value is kept as it is computed: convert what uses it");
  constexpr bool is_stored = expr::leaf<held> || requires { typename held::stored_element; };
  if constexpr (is_stored && std::is_same_v<typename held::value_type, Element>)
    return expr::hold(std::forward<Value>(value));
  else
    return expr::converted_value<Element, held>{expr::hold(std::forward<Value>(value))};
}

/// 0, 1, 2, … along the features.
inline expr::feature_number feature_number() { return {}; }

/// A number in [0, 1) for each feature and token, in steps of 2^-24: a function of the key (see
/// random_stream), the feature and the token alone.
inline expr::uniform_random uniform(std::uint64_t key) { return {key}; }

// `*` of two activations or vectors is elementwise; with a matrix on the left it is the product
// (expr/product.hpp).
template <class A, class B>
concept elementwise_operands = expr::operand<A> && expr::operand<B> && (expression<A> || expression<B>);
template <class A, class B>
concept elementwise_factors = elementwise_operands<A, B> && expr::held<A>::laid_over != domain::blocks;

// One function for each op of two arguments. Comparisons are 1 where they hold and 0 elsewhere; `multiply`
// goes element by element, also through matrices.
#define TESSERA_FUNCTION(name, op, first, second)                                                        \
  template <class A, class B>                                                                            \
    requires elementwise_operands<A, B>                                                                  \
  auto name(A&& a, B&& b) {                                                                              \
    return apply<ops::op>(std::forward<decltype(first)>(first), std::forward<decltype(second)>(second)); \
  }
TESSERA_FUNCTION(operator+, add, a, b)
TESSERA_FUNCTION(operator-, subtract, a, b)
TESSERA_FUNCTION(operator/, divide, a, b)
TESSERA_FUNCTION(multiply, multiply, a, b)
TESSERA_FUNCTION(max, maximum, a, b)
TESSERA_FUNCTION(min, minimum, a, b)
TESSERA_FUNCTION(pow, power, a, b)
TESSERA_FUNCTION(operator<, less, a, b)
TESSERA_FUNCTION(operator>, less, b, a)
TESSERA_FUNCTION(operator>=, greater_equal, a, b)
TESSERA_FUNCTION(operator<=, greater_equal, b, a)
#undef TESSERA_FUNCTION

template <class A, class B>
  requires(elementwise_factors<A, B> ||
           (elementwise_operands<A, B> && std::is_arithmetic_v<std::remove_cvref_t<B>>))
auto operator*(A&& a, B&& b) {
  return apply<ops::multiply>(std::forward<A>(a), std::forward<B>(b));
}
template <expression A> auto operator-(A&& a) { return apply<ops::negate>(std::forward<A>(a)); }

/// x, but at least `low` and at most `high`.
template <expression X, expr::operand Low, expr::operand High> auto clamp(X&& x, Low&& low, High&& high) {
  return min(max(std::forward<X>(x), std::forward<Low>(low)), std::forward<High>(high));
}
/// a where the condition is not 0, b elsewhere: `where(x > 0, x, 0.1 * x)`
template <expression Condition, expr::operand A, expr::operand B>
auto where(Condition&& condition, A&& a, B&& b) {
  return apply<ops::where>(std::forward<Condition>(condition), std::forward<A>(a), std::forward<B>(b));
}

// One function for each op of one argument.
#define TESSERA_FUNCTION(name, op) \
  template <expression Operand> auto name(Operand&& x) { return apply<ops::op>(std::forward<Operand>(x)); }
TESSERA_FUNCTION(relu, relu)
TESSERA_FUNCTION(gelu, gelu)
TESSERA_FUNCTION(gelu_polynomial, gelu_polynomial)
TESSERA_FUNCTION(gelu_tanh, gelu_tanh)
TESSERA_FUNCTION(silu, silu)
TESSERA_FUNCTION(tanh, tanh)
TESSERA_FUNCTION(sigmoid, sigmoid)
TESSERA_FUNCTION(exp, exponential)
TESSERA_FUNCTION(log, logarithm)
TESSERA_FUNCTION(sin, sine)
TESSERA_FUNCTION(cos, cosine)
TESSERA_FUNCTION(sqrt, square_root)
TESSERA_FUNCTION(rsqrt, reciprocal_square_root)
TESSERA_FUNCTION(square, square)
TESSERA_FUNCTION(abs, absolute)
#undef TESSERA_FUNCTION

/// The derivative of Op at x.
template <class Op, expression Operand> auto derivative(Operand&& x) {
  return apply<ops::derivative_of<Op>>(std::forward<Operand>(x));
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/expr/product.hpp
#ifndef TESSERA_SINGLE_EXPR_PRODUCT
#define TESSERA_SINGLE_EXPR_PRODUCT
#include <type_traits>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA {
namespace expr {

/// A matrix or an activation with rows and columns exchanged: a view of its tensor, nothing is moved.
template <leaf Leaf> struct transpose {
  using transpose_tag = void;
  using value_type = typename Leaf::value_type;
  static constexpr domain laid_over = Leaf::laid_over;
  Leaf of;
  auto const& tensor() const { return of.tensor(); }
  extent size() const {
    const extent straight = extent_of(of);
    return {-1, -1, straight.cols, straight.rows, straight.block_cols, straight.block_rows};
  }
};

/// A factor of products: a matrix, or its transpose.
template <class T>
concept factor = (matrix<T> || transposition<T>) && held<T>::laid_over == domain::blocks;
/// One that stores blocks of a pattern.
template <class T>
concept factor_in_blocks = factor<T> && requires(held<T> const& w) { w.tensor().pattern(); };

/// W·x of a factor and an activation, itself an expression.
template <class Factor, class X> struct product {
  using node_tag = void;
  using value_type = typename Factor::value_type;
  static constexpr domain laid_over = domain::panels;
  Factor w;
  X x;
  extent size() const { return {extent_of(w).rows, extent_of(x).tokens}; }
};

/// a·bᵀ of two activations: a matrix (features of a, features of b), summed over tokens.
template <leaf A, leaf B> struct outer_product {
  using node_tag = void;
  using value_type = typename A::value_type;
  static constexpr domain laid_over = domain::blocks;
  A a;
  B b;
  bool sampled = false;
  extent size() const { return {-1, -1, a.tensor().features(), b.tensor().features()}; }
};

/// a·b of two factors.
template <class A, class B> struct matrix_product {
  using node_tag = void;
  using value_type = accumulator_t<typename A::value_type>;
  static constexpr domain laid_over = domain::blocks;
  A a;
  B b;
  bool sampled = false;
  extent size() const { return {-1, -1, extent_of(a).rows, extent_of(b).cols}; }
};

template <class A, class B>
inline constexpr bool one_type =
    !std::is_same_v<typename common_value<typename A::value_type, typename B::value_type>::type, mixed>;

void check_inner(bool transposed, std::int64_t inner, std::int64_t features);

template <class Factor, class X> auto make_product(Factor w, X x) {
  static_assert(one_type<Factor, X>,
                "the matrix and the activation have different element types: " TESSERA_ONE_ACCUMULATOR);
  if constexpr (one_type<Factor, X>) {
    check_inner(transposition<Factor>, extent_of(w).cols, extent_of(x).features);
    return product<Factor, X>{std::move(w), std::move(x)};
  } else {
    return number{0};  // so that no second error follows
  }
}

}  // namespace expr

/// Rows and columns exchanged, for use in a product, or to be stored: `c = transposed(w)`.
template <tensor Tensor>
  requires(expr::matrix<Tensor> || expr::activation<Tensor>)
auto transposed(Tensor&& tensor) {
  return expr::transpose<expr::held<Tensor>>{expr::hold(std::forward<Tensor>(tensor))};
}

/// Only stored activations can be transposed: the message leads to one.
template <node Value>
  requires(expr::held<Value>::laid_over == domain::panels)
auto transposed(Value&&) {
  static_assert(
      tensor<Value>,
      "[a * transposed(b)] b is an expression: it is read many times, so store it in a tensor first");
}

/// W·x (SpMM), or Wᵀ·x, through the pattern's column index, of the stored weights of W. Throws shape_error if
/// W's columns are not x's features.
template <expr::factor Factor, expr::activation X> auto operator*(Factor&& w, X&& x) {
  return expr::make_product(expr::hold(std::forward<Factor>(w)), expr::hold(std::forward<X>(x)));
}

/// Only stored matrices can be multiplied: the message gives the right products.
template <node Matrix, class X>
  requires(expr::held<Matrix>::laid_over == domain::blocks && (expression<X> || transposition<X>))
auto operator*(Matrix&&, X&&) {
  static_assert(
      tensor<Matrix>,
      "[W * x] W is an expression, not a stored matrix: write `a * (b * x)` for the product of three and "
      "`2 * (w * x)` for a scaled one, or else store it in a matrix first: `d = a * b, c = d * x`");
  return expr::number{0};  // so that no second error follows
}

/// a·bᵀ of activations. Blocks that the destination does not store are lost, which `sampled` must say.
template <expr::activation A, class Leaf>
  requires(Leaf::laid_over == domain::panels)
auto operator*(A&& a, expr::transpose<Leaf> b) {
  static_assert(
      tensor<A>,
      "[a * transposed(b)] a is an expression: it is read many times, so store it in a tensor first");
  static_assert(expr::one_type<expr::held<A>, Leaf>,
                "the two activations have different element types: " TESSERA_ONE_ACCUMULATOR);
  if constexpr (tensor<A>) {
    if (a.tokens() != b.of.tensor().tokens())
      throw shape_error(
          message("[a * transposed(b)] a has ", a.tokens(), " tokens but b has ", b.of.tensor().tokens()));
    return expr::outer_product<expr::held<A>, Leaf>{expr::hold(std::forward<A>(a)), std::move(b.of)};
  }
}

/// a·b of matrices; each may be transposed.
template <expr::factor_in_blocks A, expr::factor_in_blocks B> auto operator*(A&& a, B&& b) {
  using left = expr::held<A>;
  using right = expr::held<B>;
  static_assert(expr::one_type<left, right>,
                "the two matrices have different element types: " TESSERA_ONE_ACCUMULATOR);
  expr::matrix_product<left, right> product{expr::hold(std::forward<A>(a)), expr::hold(std::forward<B>(b))};
  const std::int64_t cols = expr::extent_of(product.a).cols, rows = expr::extent_of(product.b).rows;
  if (cols != rows) throw shape_error(message("[A * B] A has ", cols, " columns but B has ", rows, " rows"));
  return product;
}

// Products that do not exist: their messages give the right ones. A factor is returned, so that no second
// error follows.

template <expr::matrix Matrix, class Leaf>
  requires(Leaf::laid_over == domain::panels)
auto operator*(Matrix&&, expr::transpose<Leaf> b) {
  static_assert(
      Leaf::laid_over != domain::panels,
      "[W * transposed(x)] the tokens of an activation are no features: write `w * x`, or for the gradient "
      "of w `g = sampled(dy * transposed(x))`");
  return b.of;
}
template <class Leaf, expression B>
  requires(Leaf::laid_over == domain::panels)
auto operator*(expr::transpose<Leaf> a, B&& b) {
  static_assert(
      Leaf::laid_over != domain::panels,
      "[transposed(x) * b] an activation is transposed on the right side only: write `transposed(w) * x` "
      "for a product with the transpose of w, `sampled(dy * transposed(x))` for the gradient of w");
  if constexpr (expr::matrix<B>)
    return a.of;
  else
    return expr::hold(std::forward<B>(b));
}
template <class Matrix, expression X>
  requires((expr::matrix<Matrix> || transposition<Matrix>) && !expr::matrix<X> && !expr::activation<X>)
auto operator*(Matrix&&, X&& x) {
  constexpr bool of_matrix = expr::of_matrix(expr::held<X>::laid_over);
  static_assert(!of_matrix,
                "[A * B] B is an expression, not a stored matrix: store it in a matrix first, in the same "
                "run: `d = b * c, e = a * d`");
  static_assert(of_matrix,
                "[W * x] x is a vector, but a product takes activations: for one token, make x a "
                "panel_matrix(features, 1)");
  return expr::hold(std::forward<X>(x));
}

/// Says that only the blocks which the destination stores are wanted (SDDMM).
template <class Product> auto sampled(Product product) {
  constexpr bool can_lose_blocks = requires { product.sampled = true; };
  static_assert(can_lose_blocks,
                "[sampled] this is no product whose blocks a matrix may lack: write `g = sampled(dy * "
                "transposed(x))` for the gradient of weights, `c = sampled(a * b)` for two matrices");
  if constexpr (can_lose_blocks) {
    product.sampled = true;
    return product;
  } else {
    return expr::number{0};  // so that no second error follows
  }
}

#ifdef TESSERA_BODY

namespace expr {

TESSERA_COLD TESSERA_BODY void check_inner(bool transposed, std::int64_t inner, std::int64_t features) {
  if (features == inner) return;
  const char* const operation = transposed ? "[transposed(W) * x] W has " : "[W * x] W has ";
  if (features < 0)
    throw shape_error(message(operation, inner, transposed ? " rows" : " columns",
                              " but x, the same for every feature, has no number of them: store it in a "
                              "panel_matrix first"));
  throw shape_error(message(operation, inner, transposed ? " rows but x has " : " columns but x has ",
                            features, " features"));
}

}  // namespace expr

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/expr/reduction.hpp
#ifndef TESSERA_SINGLE_EXPR_REDUCTION
#define TESSERA_SINGLE_EXPR_REDUCTION
#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA {
namespace expr {

/// Op folded over the features of each token.
template <class Op, class Argument> struct feature_reduction {
  using node_tag = void;
  using value_type = typename Argument::value_type;
  static constexpr domain laid_over = domain::tokens;
  Argument argument;
  extent size() const { return {-1, extent_of(argument).tokens}; }
};

/// A sum over the tokens for each feature, in an order that does not depend on threads.
template <class Argument> struct token_sum {
  using node_tag = void;
  using value_type = typename Argument::value_type;
  static constexpr domain laid_over = domain::features;
  Argument argument;
  extent size() const { return {extent_of(argument).features, -1}; }
};

/// A value that is computed once per panel and never stored.
template <class Argument> struct local_value {
  using node_tag = void;
  using local_tag = void;
  using value_type = typename Argument::value_type;
  static constexpr domain laid_over = Argument::laid_over;
  Argument argument;

  explicit local_value(Argument of) : argument(std::move(of)) {}
  local_value(local_value const&) = delete;
  local_value& operator=(local_value const&) = delete;

  struct reference_type {
    using node_tag = void;
    using value_type = typename Argument::value_type;
    static constexpr domain laid_over = Argument::laid_over;
    local_value const* address;
    extent size() const { return extent_of(address->argument); }
  };
  reference_type reference() const { return {this}; }
  extent size() const { return extent_of(argument); }
};

/// A name as a template argument.
template <std::size_t Size> struct value_name {
  char text[Size];
  consteval value_name(char const (&name)[Size]) { std::copy_n(name, Size, text); }
  template <std::size_t Other> constexpr bool operator==(value_name<Other> const& other) const {
    return std::equal(text, text + Size, other.text, other.text + Other);
  }
};

/// A value that stands in several places of a statement and is computed once.
template <value_name Name, class Value> struct named_value {
  using node_tag = void;
  using value_type = typename Value::value_type;
  static constexpr domain laid_over = Value::laid_over;
  Value value;
  extent size() const { return extent_of(value); }
};

template <class T>
concept over_tokens =
    expression<T> && (held<T>::laid_over == domain::panels || held<T>::laid_over == domain::tokens);

}  // namespace expr

/// The sum over the features, for each token.
template <expr::activation Operand> auto sum_features(Operand&& x) {
  return expr::feature_reduction<ops::add, expr::held<Operand>>{expr::hold(std::forward<Operand>(x))};
}

/// The mean over the features, for each token.
template <expr::activation Operand> auto mean_features(Operand&& x) {
  auto sum = sum_features(std::forward<Operand>(x));
  return sum * (1.0 / static_cast<double>(expr::extent_of(sum.argument).features));
}

/// The largest value over the features, for each token.
template <expr::activation Operand> auto max_features(Operand&& x) {
  return expr::feature_reduction<ops::maximum, expr::held<Operand>>{expr::hold(std::forward<Operand>(x))};
}

/// e^x divided by its sum over the features, for each token, by the largest x so that nothing overflows
/// (Goodfellow et al. 2016, §4.1). Reads x three times.
template <expr::activation Operand> auto softmax_features(Operand&& x) {
  const auto held = expr::hold(std::forward<Operand>(x));
  const auto power = exp(held - max_features(held));
  return power / sum_features(power);
}

/// The sum over the tokens, for each feature: for a feature_vector on the left of `=` or `+=`.
template <expr::activation Operand> auto sum_tokens(Operand&& x) {
  return expr::token_sum<expr::held<Operand>>{expr::hold(std::forward<Operand>(x))};
}

/// The mean over the tokens, for each feature.
template <expr::activation Operand> auto mean_tokens(Operand&& x) {
  const std::int64_t tokens = expr::extent_of(expr::hold(x)).tokens;
  return sum_tokens(std::forward<Operand>(x) * (1.0 / static_cast<double>(tokens)));
}

/// Names an elementwise value that stands in several places of one statement, or of the reductions of one
/// pass: it is computed once for each register. Without a name it would be computed at each place, because
/// whether two tensors are one is known only when the statement runs.
/// `const auto n = named<"n">((x - mean) * scale);`
template <expr::value_name Name, expression Operand> auto named(Operand&& x) {
  return expr::named_value<Name, expr::held<Operand>>{expr::hold(std::forward<Operand>(x))};
}

/// Names a value that several statements of one run use and nobody wants stored: it is computed once for each
/// panel, in the cache. `auto h = local(gelu(w1 * x + b1));`
template <expr::over_tokens Operand> auto local(Operand&& x) {
  return expr::local_value<expr::held<Operand>>(expr::hold(std::forward<Operand>(x)));
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/expr/statement.hpp
#ifndef TESSERA_SINGLE_EXPR_STATEMENT
#define TESSERA_SINGLE_EXPR_STATEMENT
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA {
namespace expr {

/// `destination = value`, or `destination += value`: computed by `run`.
template <tensor Destination, class Value, bool Accumulates> struct TESSERA_STATEMENT statement {
  using statement_tag = void;
  static constexpr bool writes_view = tensor_view<Destination>;
  std::conditional_t<writes_view, Destination, Destination*> place;
  tensor_size built;
  Value value;

  /// Throws shape_error if it has another size or pattern than when the statement was written.
  auto& destination() const {
    if constexpr (writes_view) {
      return place;
    } else {
      require_unchanged(built, tensor_size::of(*place));
      return *place;
    }
  }
};

/// Sizes of destination and value must agree; an expression without a size takes the
/// destination's.
void check_sizes(extent const& to, extent const& from);

template <class Value> inline constexpr bool sums_by_itself = false;  // `+=` is part of the kernel
template <class Argument> inline constexpr bool sums_by_itself<token_sum<Argument>> = true;
template <class A, class B> inline constexpr bool sums_by_itself<outer_product<A, B>> = true;
template <class A, class B> inline constexpr bool sums_by_itself<matrix_product<A, B>> = true;

template <bool Accumulates, class Target, class Value> auto make_statement(Target& destination, Value value) {
  using Destination = std::conditional_t<tensor_view<Target>, std::remove_const_t<Target>, Target>;
  constexpr domain to = Destination::laid_over, from = Value::laid_over;
  constexpr bool number_for_matrix = of_matrix(to) && from == domain::number;
  constexpr bool fits = number_for_matrix || to == from || from == domain::number || to == domain::panels ||
                        (of_matrix(to) && of_matrix(from));
  static_assert(
      fits && (number_for_matrix || of_matrix(to) == of_matrix(from)),
      "the expression does not have the form of its destination: a matrix takes matrices, an activation "
      "takes activations and vectors, a feature_vector takes sum_tokens(…), a token_vector sum_features(…)");
  check_sizes(extent_of(by_reference<Destination>(destination)), extent_of(value));
  const tensor_size built = tensor_size::of(destination);
  if constexpr (tensor_view<Destination>)
    return statement<Destination, Value, Accumulates>{destination, built, std::move(value)};
  else
    return statement<Destination, Value, Accumulates>{&destination, built, std::move(value)};
}

/// The value of a statement inside `stochastic`. Not a node: it is no part of an expression.
template <class Value> struct stochastic_value {
  using value_type = typename Value::value_type;
  static constexpr domain laid_over = Value::laid_over;
  Value value;
  std::uint64_t key;
  extent size() const { return extent_of(value); }
};

/// A tensor that outlives the line, or a view of one.
template <class T>
concept destination = tensor<T> && (std::is_lvalue_reference_v<T> || tensor_view<T>);

}  // namespace expr

// The meaning of `destination = expression`: found by argument-dependent lookup from the tensors.
template <tensor Destination, class Value>
  requires(assigned<Value> || tensor_view<Destination>)
auto assign(Destination& destination, Value const& value) {
  if constexpr (transposition<Value>) {
    constexpr bool of_matrices = Destination::laid_over == domain::blocks &&
                                 requires { typename decltype(value.of)::tensor_type::block; };
    static_assert(of_matrices,
                  "[= transposed(x)] rows and columns of a matrix can be exchanged, and of an activation in "
                  "products only: `sampled(dy * transposed(x))`");
    if constexpr (of_matrices)
      return expr::make_statement<false>(destination, value);
    else
      return expr::make_statement<false>(destination, expr::by_reference<Destination>(destination));
  } else {
    return expr::make_statement<false>(destination, expr::hold(value));
  }
}

template <tensor Destination, expression Value> auto accumulate(Destination& destination, Value&& value) {
  if constexpr (expr::sums_by_itself<expr::held<Value>>)
    return expr::make_statement<true>(destination, expr::hold(std::forward<Value>(value)));
  else
    return expr::make_statement<false>(destination, destination + std::forward<Value>(value));
}

// `y -= x` is `y = y - x`, and so on; `*=` of two matrices multiplies their elements.
template <expr::destination Destination, expr::operand Value> auto operator-=(Destination&& y, Value&& x) {
  return y = y - std::forward<Value>(x);
}
template <expr::destination Destination, expr::operand Value> auto operator*=(Destination&& y, Value&& x) {
  return y = multiply(y, std::forward<Value>(x));
}
template <expr::destination Destination, expr::operand Value> auto operator/=(Destination&& y, Value&& x) {
  return y = y / std::forward<Value>(x);
}
template <expr::destination Destination, class Number>
  requires std::is_arithmetic_v<Number>
auto operator+=(Destination&& y, Number x) {
  return y = y + x;
}

/// The statement with its results rounded at random, so that their mean is the exact one
/// (round_stochastically): a function of the key, see random_stream, and of the place alone.
/// `run(ctx, stochastic(w = w - 0.1 * g, key))`
template <tensor Destination, class Value>
auto stochastic(expr::statement<Destination, Value, false> statement, std::uint64_t key) {
  using E = typename Destination::value_type;
  constexpr bool fits = !std::is_same_v<E, accumulator_t<E>> && Destination::laid_over != domain::tokens &&
                        !expr::sums_by_itself<Value>;
  static_assert(sizeof(E) > 1,
                "stochastic(…) rounds to bfloat16 and float16: numbers of 8 bits round to nearest");
  static_assert(
      fits,
      "stochastic(…) takes an elementwise statement whose destination is an activation, a matrix or a "
      "feature_vector of elements narrower than their sums: others are not rounded");
  if constexpr (sizeof(E) == 1) {
    return statement;
  } else {
    using value = expr::stochastic_value<Value>;
    return expr::statement<Destination, value, false>{statement.place, statement.built,
                                                      value{std::move(statement.value), key}};
  }
}

#ifdef TESSERA_BODY

namespace expr {

TESSERA_COLD TESSERA_BODY void check_sizes(extent const& to, extent const& from) {
  for (auto const& [name, size] : extent_sizes)
    if (from.*size >= 0 && to.*size != from.*size)
      throw shape_error(message("[=] the destination has ", to.*size, " ", name, " but the expression ",
                                from.*size, to.*size > 0 ? "" : ": if it is a gradient, nobody wants it"));
  if (to.stored && from.stored && !(*to.stored == *from.stored))
    throw shape_error(message("[=] the destination stores ", to.stored->blocks(),
                              " blocks but the expression ", from.stored->blocks(),
                              " others: bring both to one pattern with set_pattern"));
}

}  // namespace expr

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/core/range.hpp
#ifndef TESSERA_SINGLE_CORE_RANGE
#define TESSERA_SINGLE_CORE_RANGE
#include <cstdint>

namespace tessera { inline namespace TESSERA_ISA {

/// first … last - 1
struct range {
  int first, last;
  int size() const { return last - first; }
};

/// The share of a part if 0 … count - 1 are dealt to `parts` parts.
constexpr range part_of(int count, int part, int parts) {
  const auto before = [&](int p) { return static_cast<int>(std::int64_t{count} * p / parts); };
  return {before(part), before(part + 1)};
}

/// Of `size` numbers that stand in groups of `group`, how many stand in some of these groups.
constexpr std::int64_t size_of_groups(range groups, int group, std::int64_t size) {
  const auto before = [&](int g) { return std::int64_t{g} * group < size ? std::int64_t{g} * group : size; };
  return before(groups.last) - before(groups.first);
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/eval/step.hpp
#ifndef TESSERA_SINGLE_EVAL_STEP
#define TESSERA_SINGLE_EVAL_STEP
#include <algorithm>
#include <cstddef>
#include <cstdint>

// A step is one kernel's work on all its tiles, as plain data: how it is cut, which memory it reads and
// writes, and a body, of a type for each kind of step, that computes a tile and describes it.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

using exec::memory;
using exec::task_description;
using exec::touched_bytes;

/// The kind of tile of a step. Only steps that are cut alike can be carried together.
enum class cut : std::uint8_t {
  panels,  // a panel of tokens, or a range of its features when panels are few
  lines,   // a range of block rows, or of features, for all tokens
  values,  // a range of stored values
};

/// The part of an operand that a tile may touch.
enum class footprint : std::uint8_t {
  own_range,
  own_rows,  // of its tokens, in rows of tokens
  everything
};

/// Memory that a step reads or writes.
struct operand {
  std::uintptr_t at;  // an address in the user's memory, or an offset in other memory
  std::size_t
      stride;         // bytes from a panel, or a range of values, to the next one; 0: all tiles begin at `at`
  std::size_t bytes;  // of the whole operand
  memory owner;
  footprint touches;

  friend bool operator==(operand const&, operand const&) = default;
};

/// True if two operands share memory.
inline bool overlap(operand const& a, operand const& b) {
  return a.owner == b.owner && a.at < b.at + b.bytes && b.at < a.at + a.bytes;
}

/// Where two operands share memory: nowhere, at equal tiles only, or anywhere.
enum class relation : std::uint8_t { none, same_tile, anywhere };

/// Of operands whose tiles touch their own ranges: slices of one tensor may lie between each other.
relation shared_tiles(operand const& a, operand const& b);

/// The part of a step to compute, and the addresses of its memory.
struct tile {
  std::int64_t index;       // number of the panel, or of the range of lines or values
  int part = 0, parts = 1;  // part `part` of `parts` of a panel's features
  std::uintptr_t worker_memory = 0, run_memory = 0;

  /// The address of the tile's part of an operand.
  template <class T> T* address(operand const& of) const { return address<T>(of, index); }
  template <class T> T* address(operand const& of, std::int64_t position) const {
    const std::uintptr_t base = of.owner == memory::user     ? 0
                                : of.owner == memory::worker ? worker_memory
                                                             : run_memory;
    return reinterpret_cast<T*>(base + of.at + of.stride * std::size_t(position));
  }
};

/// Computes and describes a tile of a step by its body; a body over panels has overloads (panel_body).
template <class Body> TESSERA_INLINE void compute_tile(Body const& body, tile const& t) noexcept {
  body.compute(t);
}
template <class Body>
TESSERA_INLINE void describe_tile(Body const& body, tile const& t, task_description& d) {
  body.describe(t, d);
}

/// Whether the features of a panel may be several tiles.
enum class division : std::uint8_t {
  never,
  if_uneven,  // only if threads would otherwise have unequal shares
  freely      // at no cost, so also to even out threads of unequal speed
};

/// The position of a step among steps that it does not depend on.
enum class timing : std::uint8_t {
  in_order,
  early,  // prepares an operand: before statements that can be carried together begin
  late,   // as late as possible: right before the next step that depends on it
};

/// The cut and the timing of a step.
struct step_form {
  char const* kind;  // for accounts
  cut by;
  timing when = timing::in_order;
  division divides = division::if_uneven;
  int tiles = 0;
  int most_parts = 1;                       // parts into which a panel can be divided
  exec::part_hook const* around = nullptr;  // set-up of a thread that its engine needs
};

/// A step: the data that scheduling needs, and a body with the rest, whose type belongs to the kind of step.
struct step : step_form {
  static constexpr std::size_t body_bytes = 640;

  int parts = 1;                       // parts into which a panel is divided
  int first_access = 0, accesses = 0;  // in the plan's list
  void (*compute)(void const* body, tile const&) noexcept = nullptr;
  void (*describe)(void const* body, tile const&, task_description&) = nullptr;
  alignas(16) std::byte body[body_bytes];

  explicit step(step_form const& form) : step_form(form) {}
};

/// Whether two steps have the same tiles.
inline bool cut_alike(step const& a, step const& b) {
  return a.by == b.by && a.tiles == b.tiles && a.parts == b.parts;
}

/// An operand that a step reads or writes.
struct access : operand {
  bool writes;
};

/// Where two steps touch shared memory that one of them writes, by what each reads and writes.
relation shared_tiles(array_ref<access> a, array_ref<access> b);

/// Throws shape_error if a step reads a slice of the tensor that it writes at other places than it writes, or
/// another tensor in the same memory, which may be borrowed.
void require_in_place(array_ref<access> all);

/// A step under construction.
struct step_draft : step_form {
  static constexpr int most_accesses = int(step::body_bytes / sizeof(operand)) + 2;
  int accesses = 0;
  access accessed[most_accesses];

  step_draft(char const* of_kind, cut cut_by) : step_form{of_kind, cut_by} {}

  operand const& reads(operand const& o) { return add(o, false); }
  operand const& writes(operand const& o) { return add(o, true); }
  array_ref<access> all() const { return {accessed, std::size_t(accesses)}; }

 private:
  operand const& add(operand const& o, bool is_written);
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY relation shared_tiles(operand const& a, operand const& b) {
  if (!overlap(a, b)) return relation::none;
  if (a.touches == footprint::everything || b.touches == footprint::everything || a.stride != b.stride)
    return relation::anywhere;
  if (a.stride == 0) return relation::same_tile;
  const auto stride = std::int64_t(a.stride), apart = std::int64_t(a.at) - std::int64_t(b.at);
  const auto tiles = [&](operand const& o) { return ceil_div(std::int64_t(o.bytes), stride); };
  const auto width = [&](operand const& o) {
    const std::int64_t last = std::int64_t(o.bytes) - (tiles(o) - 1) * stride;
    if (o.touches != footprint::own_rows || tiles(o) == 1) return last;
    const std::int64_t row = stride / panel_tokens;  // the last tile may have fewer
    return stride - row + (last - 1) % row + 1;
  };
  // Tile i of a and tile j of b share memory if their distance, apart + (i - j) stride, is small enough.
  relation all = relation::none;
  const std::int64_t nearest = -apart / stride;
  for (std::int64_t k = std::max(nearest - 2, 1 - tiles(b)); k <= std::min(nearest + 2, tiles(a) - 1); ++k)
    if (const std::int64_t distance = apart + k * stride; -width(a) < distance && distance < width(b))
      all = std::max(all, k == 0 ? relation::same_tile : relation::anywhere);
  return all;
}

TESSERA_COLD TESSERA_BODY relation shared_tiles(array_ref<access> a, array_ref<access> b) {
  relation all = relation::none;
  for (access const& x : a)
    for (access const& y : b)
      if (x.writes || y.writes) all = std::max(all, shared_tiles(x, y));
  return all;
}

TESSERA_COLD TESSERA_BODY void require_in_place(array_ref<access> all) {
  for (access const& to : all)
    for (access const& from : all) {
      if (!to.writes || from.writes || to.owner != memory::user) continue;
      if (to.stride != from.stride && (to.at != from.at || to.bytes != from.bytes) && overlap(to, from))
        throw shape_error(
            "[=] the destination overlaps an operand, which is another tensor: store the result in memory of "
            "its own");
      if (to.stride > 0 && to.stride == from.stride && to.at != from.at &&
          shared_tiles(to, from) != relation::none)
        throw shape_error(
            "[=] the destination and an operand are slices of one tensor that overlap, but are not one: "
            "store the result in a tensor of its own");
    }
}

TESSERA_BODY operand const& step_draft::add(operand const& o, bool is_written) {
  if (accesses == most_accesses)
    throw error(message("[run] a statement with more than ", most_accesses, " operands: split it in two"));
  return accessed[accesses++] = {o, is_written};
}

#endif

}}}  // namespace tessera::TESSERA_ISA::eval
#endif

// ---- tessera/kernels/block_index.hpp
#ifndef TESSERA_SINGLE_KERNELS_BLOCK_INDEX
#define TESSERA_SINGLE_KERNELS_BLOCK_INDEX
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The stored blocks of one line of a matrix.
struct block_line {
  std::int32_t const* columns;  // block column of each, ascending
  int count;
  std::int64_t first;              // blocks, or gaps, before this line in memory
  std::int32_t const* slots_in_w;  // if the line is one of Wᵀ; else null
  std::int64_t slot_offset;

  std::span<std::int32_t const> all_columns() const { return {columns, std::size_t(count)}; }
  /// The slot in W of block b of a line of Wᵀ.
  std::int64_t slot(int b) const { return slots_in_w[b] + slot_offset; }
};

/// The columns of a line from `first` on, before `last`.
inline std::span<std::int32_t const> columns_between(block_line const& line, int first, int last) {
  const auto all = line.all_columns();
  if (all.empty() || (all.front() >= first && all.back() < last)) return all;  // no part of several
  return {std::lower_bound(all.begin(), all.end(), first), std::lower_bound(all.begin(), all.end(), last)};
}

/// The pattern of a matrix as kernels see it, line by line. Lines of W are its block rows. Lines of Wᵀ are
/// block columns of W: their `columns` are block rows of W, and their `slots_in_w` say where the blocks stand
/// in W. The index of a dense matrix has one line, which stands for all: no other kernel asks whether a
/// matrix is dense.
class block_index {
 public:
  block_index() = default;
  /// Line i stores blocks starts[i] … starts[i + 1] - 1 of `columns` and `slots_in_w`.
  static constexpr block_index sparse(int lines, int width, std::int32_t const* starts,
                                      std::int32_t const* columns, std::int32_t const* slots_in_w = nullptr) {
    return {lines, width, starts, columns, slots_in_w};
  }
  /// Every line stores the blocks 0 … width - 1 of `columns`. `slots_in_w` are the slots of line 0; block b
  /// of line i has slot slots_in_w[b] + i.
  static constexpr block_index dense(int lines, int width, std::int32_t const* columns,
                                     std::int32_t const* slots_in_w = nullptr) {
    return {lines, width, nullptr, columns, slots_in_w};
  }

  int lines() const { return lines_; }
  /// Block columns of the grid.
  int width() const { return width_; }
  block_line line(int i) const {
    if (!starts_) return {columns_, width_, place_of(i), slots_, i};
    const std::int32_t first = starts_[i];
    return {columns_ + first, starts_[i + 1] - first, place_of(i), slots_ ? slots_ + first : nullptr, 0};
  }
  /// Blocks stored by the lines before line i; i may be the number of lines.
  std::int64_t blocks_before(int i) const { return starts_ ? starts_[i] : std::int64_t(i) * width_; }
  /// Where line i begins in memory, in blocks; i may be the number of lines.
  std::int64_t place_of(int i) const { return blocks_before(i) + std::int64_t(i) * gap_; }
  std::int64_t blocks(int first_line, int last_line) const {
    return blocks_before(last_line) - blocks_before(first_line);
  }
  std::int64_t blocks() const { return blocks_before(lines_); }
  /// The line that stores a block, by the block's number in the order of the lines.
  int line_of(std::int64_t block) const {
    int low = 0, high = lines_ - 1;
    while (low < high)
      if (const int middle = (low + high) / 2; blocks_before(middle + 1) <= block)
        low = middle + 1;
      else
        high = middle;
    return low;
  }
  /// The lines of a part: whole groups of `group_lines` lines. All parts have about equal work, where a line
  /// counts as one block more than it stores.
  range lines_of_part(int part, int parts, int group_lines = 1) const {
    const int groups = ceil_div(lines_, group_lines);
    const auto line_of_group = [&](int group) { return std::min(lines_, group * group_lines); };
    const auto first_of = [&](int p) {
      const auto work_before = [&](int line) { return blocks_before(line) + line; };
      const std::int64_t wanted = work_before(lines_) * p / parts;
      int low = 0, high = groups;
      while (low < high)
        if (const int middle = (low + high) / 2; work_before(line_of_group(middle)) < wanted)
          low = middle + 1;
        else
          high = middle;
      return line_of_group(low);
    };
    return {first_of(part), first_of(part + 1)};
  }
  /// Whether some block is absent: single elements are then multiplied by ordered_product.
  bool is_sparse() const { return starts_ != nullptr; }
  /// Whether lines are of Wᵀ, and the blocks stand in the order of W.
  bool has_slots() const { return slots_ != nullptr; }
  /// The same lines, with a gap of `blocks` blocks behind each in memory.
  block_index with_gaps(int blocks) const {
    block_index spread = *this;
    spread.gap_ = blocks;
    return spread;
  }
  /// The index of a copy of the blocks in the order of the lines.
  block_index in_order() const {
    block_index ordered = *this;
    ordered.slots_ = nullptr;
    return ordered;
  }

 private:
  constexpr block_index(int lines, int width, std::int32_t const* starts, std::int32_t const* columns,
                        std::int32_t const* slots_in_w)
      : starts_(starts), columns_(columns), slots_(slots_in_w), lines_(lines), width_(width) {}

  std::int32_t const* starts_ = nullptr;  // null if every block is stored
  std::int32_t const* columns_ = nullptr;
  std::int32_t const* slots_ = nullptr;
  int lines_ = 0, width_ = 0, gap_ = 0;
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/eval/operands.hpp
#ifndef TESSERA_SINGLE_EVAL_OPERANDS
#define TESSERA_SINGLE_EVAL_OPERANDS
#include <algorithm>
#include <cstddef>
#include <cstdint>

// Tensors as operands of steps, and the bytes that a tile touches of them.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

class plan;

/// Values of one tile of a statement on stored values.
inline constexpr std::int64_t values_a_tile = 1024;

/// Memory of the user, or a tensor, that each tile may read or write everywhere.
inline operand everything(void const* at, std::size_t bytes) {
  return {reinterpret_cast<std::uintptr_t>(at), 0, bytes, memory::user, footprint::everything};
}
template <class Tensor> operand all_of(Tensor const& tensor) {
  return everything(tensor.data(), tensor.size_bytes());
}
/// A tensor of which a tile touches its own panel; or everything, if the tensor has no tokens.
template <class Tensor> operand by_panel(Tensor const& tensor) {
  using E = typename Tensor::value_type;
  operand o = all_of(tensor);
  if constexpr (Tensor::laid_over == domain::panels || Tensor::laid_over == domain::tokens) {
    o.touches = footprint::own_range;
    if constexpr (Tensor::laid_over == domain::panels)
      o.stride = std::size_t(tensor.panel_stride()) * sizeof(E);
    else
      o.stride = panel_tokens * sizeof(E);
  }
  return o;
}
/// Whether the elements of an activation stand in panels; if not, a step brings them there.
template <class Tensor>
inline constexpr bool in_panels =
    Tensor::laid_over != domain::panels || requires(Tensor const& x) { x.panel(0); };

/// A tensor of which a tile touches its own range of stored values.
template <class Tensor> operand by_values(Tensor const& tensor) {
  operand o = all_of(tensor);
  o.touches = footprint::own_range;
  o.stride = values_a_tile * sizeof(typename Tensor::value_type);
  return o;
}

/// A pattern as kernels see it, row by row, or column by column for the transpose.
inline kernels::block_index index_of(pattern const& p, bool transposed = false) {
  using kernels::block_index;
  const int rows = p.block_rows(), cols = p.block_cols();
  if (p.is_dense())
    return transposed ? block_index::dense(cols, rows, p.rows().data(), p.col_slots().data())
                      : block_index::dense(rows, cols, p.cols().data());
  return transposed
             ? block_index::sparse(cols, rows, p.col_start().data(), p.rows().data(), p.col_slots().data())
             : block_index::sparse(rows, cols, p.row_start().data(), p.cols().data());
}

/// The number of tokens of a panel.
inline int tokens_of(std::int64_t panel, std::int64_t tokens) {
  return int(std::min<std::int64_t>(panel_tokens, tokens - panel * panel_tokens));
}

/// Part `part` of `parts` of the features of a panel, in multiples of 16.
inline range granules_of(std::int64_t features, int part, int parts) {
  const range granules = part_of(int(ceil_div<std::int64_t>(features, granule)), part, parts);
  return {granules.first * granule, int(std::min<std::int64_t>(features, granules.last * granule))};
}

/// Bytes of a panel in the worker's memory; with room for the padding of a part of it, which may end beyond
/// its own.
template <class E> std::size_t panel_bytes(std::int64_t features) {
  return std::size_t(round_up<std::int64_t>(features, granule) + granule) * panel_tokens * sizeof(E);
}

/// Zeroes the padding features of a panel that is no tensor's: padding of tensors is always zero.
template <class T> void clear_padding(operand const& to, std::int64_t features, T* panel, tile const& t) {
  if (to.owner == memory::user || t.part + 1 < t.parts) return;
  const auto written = round_up<std::int64_t>(features, element_traits<T>::features_a_lane);
  for (std::int64_t f = features; f < written; ++f)
    for (int token = 0; token < panel_tokens; ++token) panel[place_in_panel<T>(f, token)] = T(0);
  std::fill(panel + written * panel_tokens, panel + round_up<std::int64_t>(features, granule) * panel_tokens,
            T(0));
}

/// The bytes of features [first, last), extended to whole lanes, and of the first tokens of a panel at
/// address `panel`.
template <class E>
TESSERA_COLD touched_bytes part_of_panel(memory owner, std::uintptr_t panel, std::int64_t first,
                                         std::int64_t last, int tokens) {
  constexpr int group = element_traits<E>::features_a_lane;
  const std::int64_t lanes = ceil_div<std::int64_t>(last, group) - first / group;
  const std::int64_t lane = group * std::int64_t(sizeof(E));
  return {owner, panel + std::uintptr_t(first / group * lane * panel_tokens), tokens * lane, lanes,
          lane * panel_tokens};
}
/// part_of_panel of a panel of an operand.
template <class E>
touched_bytes part_of_panel(operand const& o, std::int64_t panel, std::int64_t first, std::int64_t last,
                            int tokens) {
  return part_of_panel<E>(o.owner, o.at + o.stride * std::size_t(panel), first, last, tokens);
}
/// The bytes of `count` elements from `first` on, in range `position` of an operand.
template <class E>
touched_bytes elements_of(operand const& o, std::int64_t position, std::int64_t first, std::int64_t count) {
  return {o.owner, o.at + o.stride * std::size_t(position) + std::uintptr_t(first) * sizeof(E),
          count * std::int64_t(sizeof(E))};
}
/// Where the tile's part of an operand begins: the address or offset in touched_bytes.
inline std::uintptr_t place_of(operand const& o, tile const& t) {
  return o.at + o.stride * std::size_t(t.index);
}
void read_once(task_description& d, touched_bytes const& bytes);

/// The destination of a step over panels: `features` features, or a number for each token.
template <element E> struct panels_to {
  operand at;
  std::int64_t features, tokens;

  int panels() const { return int(ceil_div<std::int64_t>(tokens, panel_tokens)); }
  E* panel(tile const& t) const { return t.address<E>(at); }
  touched_bytes part(tile const& t, range of) const {
    return part_of_panel<E>(at, t.index, of.first, of.last, tokens_of(t.index, tokens));
  }

  // A body computes where the destination says, and is finished by it: here, in place. Rows of tokens are
  // computed in pieces of a panel.
  panels_to const& computed_at() const { return *this; }
  static void cut(plan&, int, function_ref<range(int, int)>) {}
  template <class Body> Body const& finished(Body const& body) const { return body; }
};
template <element E> struct tokens_to {
  operand at;
  std::int64_t tokens;
  int panels() const { return int(ceil_div<std::int64_t>(tokens, panel_tokens)); }
};

/// A body over panels of its destination, or over parts of their features. It has
///   destination()            a panels_to
///   features_of(tile)        the features of a tile
///   compute_at(tile, panel)  with the tile's panel of the destination at `panel`
///   describe(tile, d)        the reads and the work
template <class T>
concept panel_body =
    requires(T const& body, tile const& t) { body.destination().part(t, body.features_of(t)); };

template <panel_body Body> TESSERA_INLINE void compute_tile(Body const& body, tile const& t) noexcept {
  auto const& to = body.destination();
  auto* const panel = to.panel(t);
  body.compute_at(t, panel);
  clear_padding(to.at, to.features, panel, t);
}
template <panel_body Body>
TESSERA_INLINE void describe_tile(Body const& body, tile const& t, task_description& d) {
  body.describe(t, d);
  d.write(body.destination().part(t, body.features_of(t)));
}

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void read_once(task_description& d, touched_bytes const& bytes) {
  for (touched_bytes const& known : d.reads)
    if (known == bytes) return;
  if (bytes.all() > 0) d.read(bytes);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::eval
#endif

// ---- tessera/eval/plan.hpp
#ifndef TESSERA_SINGLE_EVAL_PLAN
#define TESSERA_SINGLE_EVAL_PLAN
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// The steps of a run in the order of the program, cut into phases. Steps that may be carried together panel
/// by panel are one chain, chains that do not touch each other's results stand side by side in one phase, and
/// a barrier ends a phase. Lives on the stack of `run`.
class plan {
 public:
  static constexpr int most_steps = 40, most_locals = 16, most_accesses = 400;
  /// Tiles of panels that are divided freely: the last tile is about 3 % of a worker's time.
  static constexpr int tiles_a_worker = 32;

  explicit plan(tessera::machine const& on) : machine_(on) { machine_.workers = std::max(1, on.workers); }
  plan(plan const&) = delete;
  plan& operator=(plan const&) = delete;

  /// Adds a step: body.compute(tile) computes a tile, body.describe(tile, description) describes it; or the
  /// body is a panel_body.
  template <class Body> void add(step_draft const& made, Body const& body) {
    static_assert(sizeof(Body) <= step::body_bytes,
                  "this statement has too many operands: split it, or name a part of it with local(…)");
    static_assert(alignof(Body) <= 16 && std::is_trivially_copyable_v<Body>, "steps are moved as bytes");
    if constexpr (sizeof(Body) <= step::body_bytes) {
      step& s = append(made);
      new (s.body) Body(body);
      s.compute = compute_body<Body>;
      s.describe = describe_body<Body>;
      if (s.when == timing::early) move_early();
    }
  }

  /// Memory of one worker for the length of one task.
  operand worker_memory(std::size_t bytes) {
    return {take(worker_bytes_, bytes), 0, bytes, memory::worker, footprint::own_range};
  }
  /// Memory for a local value, `bytes` of it for each panel: of a worker, so that the panel stays in its
  /// cache, or, where workers have little, or are more than panels and the value has no name that others
  /// might use behind a barrier, of the run, so that a panel need not be one task.
  operand local_memory(std::size_t bytes, std::int64_t panels, bool has_name) {
    if (machine_.worker_bytes == 0 && (has_name || panels >= machine_.workers)) return worker_memory(bytes);
    const auto stride = round_up<std::size_t>(bytes, 64);
    return run_memory(stride * std::size_t(panels), stride);
  }
  /// Memory that all workers share to the end of the run. A tile may touch all of it, or, if `stride` > 0,
  /// its own `stride` bytes.
  operand run_memory(std::size_t bytes, std::size_t stride = 0) {
    return {take(run_bytes_, bytes), stride, bytes, memory::run,
            stride > 0 ? footprint::own_range : footprint::everything};
  }
  /// The address of run_memory after the run, valid until the context is used again.
  template <class T> T const* result(operand const& of) const {
    return tile{0, 0, 1, 0, run_base_}.address<T const>(of);
  }

  /// The place of a local value, by its address; null if it has not been computed.
  operand const* find_local(void const* address) const {
    for (int i = 0; i < locals_; ++i)
      if (local_[i].address == address) return &local_[i].value;
    return nullptr;
  }
  void add_local(void const* address, operand const& value) {
    if (locals_ == most_locals)
      throw error(message("[run] more than ", most_locals, " local values in one run: split it in two"));
    local_[locals_++] = {address, value};
  }

  int workers() const { return machine_.workers; }
  tessera::machine const& machine() const { return machine_; }
  int steps() const { return steps_; }
  step const& at(int i) const { return step_[i]; }

  /// Cuts the steps into tiles and phases. Throws error if the steps cannot stand in one run.
  void schedule();

  /// Schedules and computes all steps. Throws before anything is computed, or not at all.
  void run(context& ctx);

  /// Calls visit(phase, task, step, tile) for every tile of a scheduled plan, task by task.
  template <class Visit> void for_each_tile(Visit&& visit) const {
    int number = 0;
    for (int p = 0; p < phases_; ++p)
      for (int t = 0; t < phase_[p].tiles; ++t, ++number)
        for_each_step_of(phase_[p], t, [&](int i, tile const& now) { visit(p, number, i, now); });
  }
  task_description describe(int step, tile const& t) const {
    task_description d;
    describe_step(step, t, d);
    return d;
  }

 private:
  void describe_step(int step, tile const& t, task_description& d) const {
    step_[step].describe(step_[step].body, t, d);
    if (step_[step].by == cut::panels) d.panel = t.index;
  }

  template <class Body> static void compute_body(void const* body, tile const& t) noexcept {
    compute_tile(*static_cast<Body const*>(body), t);
  }
  template <class Body>
  TESSERA_COLD static void describe_body(void const* body, tile const& t, task_description& d) {
    describe_tile(*static_cast<Body const*>(body), t, d);
  }

  struct chain {
    int first, last;  // steps
    int first_tile;   // within the phase
  };
  struct phase {
    static constexpr std::size_t most_hooks = 4;
    int first, last;  // chains
    int tiles;
    std::size_t hooks;
    exec::part_hook hook[most_hooks];  // without duplicates

    void enter_by(exec::part_hook const& around) {
      for (std::size_t h = 0; h < hooks; ++h)
        if (hook[h] == around) return;
      TESSERA_ASSERT(hooks < most_hooks, "there are fewer engines");
      hook[hooks++] = around;
    }
  };
  int first_step(phase const& p) const { return chain_[p.first].first; }
  int last_step(phase const& p) const { return chain_[p.last - 1].last; }

  /// A scheduled plan as a context runs it. A task of a phase is one tile index of all steps of a chain.
  struct running_plan {
    plan const& of;

    int tasks(int p) const { return of.phase_[p].tiles; }
    array_ref<exec::part_hook> hooks(int p) const { return {of.phase_[p].hook, of.phase_[p].hooks}; }
    void for_each_kind(int p, function_ref<void(char const*)> visit) const {
      for (int i = of.first_step(of.phase_[p]); i < of.last_step(of.phase_[p]); ++i) visit(of.step_[i].kind);
    }
    [[gnu::noinline]] void compute(int p, int task, std::byte* scratch) const {
      of.for_each_step_of(of.phase_[p], task, [&](int i, tile t) {
        t.worker_memory = reinterpret_cast<std::uintptr_t>(scratch);
        t.run_memory = of.run_base_;
        of.step_[i].compute(of.step_[i].body, t);
      });
    }
    TESSERA_COLD exec::task_description describe(int p, int task) const {
      exec::task_description d;
      of.for_each_step_of(of.phase_[p], task, [&](int i, tile const& t) { of.describe_step(i, t, d); });
      return d;
    }
  };

  template <class Visit> void for_each_step_of(phase const& now, int task, Visit&& visit) const {
    int c = now.last - 1;
    while (chain_[c].first_tile > task) --c;
    const int index = task - chain_[c].first_tile;
    for (int i = chain_[c].first; i < chain_[c].last; ++i) {
      const int parts = step_[i].parts;
      visit(i, tile{index / parts, index % parts, parts});
    }
  }

  step& append(step_draft const& made);

  /// Moves the newest step forward, right behind the last step that it depends on, so that it does not split
  /// statements that can be carried together.
  void move_early();

  static std::uintptr_t take(std::size_t& used, std::size_t bytes) {
    const std::size_t offset = used;
    used += round_up<std::size_t>(bytes, 64);
    return offset;
  }

  /// Drops steps without tiles: chains are contiguous, so such a step would split a chain.
  TESSERA_COLD void leave_out_empty() {
    int kept = 0;
    for (int i = 0; i < steps_; ++i) {
      if (step_[i].tiles == 0) continue;
      if (kept < i) step_[kept] = step_[i];
      ++kept;
    }
    steps_ = kept;
  }

  /// Divides the features of a panel into several tiles when panels are few, or divide badly among the
  /// workers. A step whose division costs nothing, and that is not carried with others, is divided until its
  /// tiles are enough to even out workers of unequal speed.
  TESSERA_COLD void split_panels() {
    if (machine_.workers == 1) return;
    const auto in_worker_memory = [](array_ref<access> all) {
      return std::any_of(all.begin(), all.end(), [](access const& a) { return a.owner == memory::worker; });
    };
    if (machine_.worker_bytes == 0 && in_worker_memory({access_, std::size_t(accesses_)})) return;
    for (int i = 0; i < steps_; ++i) {
      step& s = step_[i];
      if (in_worker_memory(accesses_of(s))) continue;
      if (s.by != cut::panels || s.divides == division::never) continue;
      int most = 2 * machine_.workers;
      const int busiest = ceil_div(s.tiles, machine_.workers) * machine_.workers;
      if (busiest * 8 <= s.tiles * 9) {  // at most 12.5 % of the time is lost
        if (s.divides != division::freely || may_be_carried(i)) continue;
        most = std::min(most, ceil_div(tiles_a_worker * machine_.workers, s.tiles));
      }
      s.parts = std::max(1, std::min(most, s.most_parts));
      s.tiles *= s.parts;
    }
  }

  /// Whether a step may be carried together with another one, which makes or uses its panels.
  bool may_be_carried(int at) const {
    for (int i = 0; i < steps_; ++i)
      if (i != at && step_[i].by == cut::panels && relate(step_[i], step_[at]) == relation::same_tile)
        return true;
    return false;
  }

  /// Moves late steps back, right before the next step that depends on them, so that they do not split
  /// statements that can be carried together, and several late steps share one barrier.
  TESSERA_COLD void delay_late_steps() {
    for (int at = steps_ - 1; at >= 0; --at) {
      if (step_[at].when != timing::late) continue;
      int end = at + 1;
      for (int last; end < steps_; end = last) {
        last = carried_until(end);
        relation worst = relation::none;
        for (int i = end; i < last; ++i) worst = std::max(worst, relate(step_[at], step_[i]));
        if (worst != relation::none) break;
      }
      move_step(at, end - 1);
    }
  }

  TESSERA_COLD void move_step(int from, int to) {
    if (from == to) return;
    const step moved = step_[from];
    for (; from < to; ++from) step_[from] = step_[from + 1];
    for (; from > to; --from) step_[from] = step_[from - 1];
    step_[to] = moved;
  }

  relation relate(step const& a, step const& b) const { return shared_tiles(accesses_of(a), accesses_of(b)); }
  array_ref<access> accesses_of(step const& s) const {
    return {access_ + s.first_access, std::size_t(s.accesses)};
  }

  /// The end of the steps from `first` on that belong together: steps that write only to the worker's memory,
  /// and the step that reads it.
  int carried_until(int first) const {
    int last = first;
    while (last + 1 < steps_ && computes_for_next(step_[last]) && cut_alike(step_[last], step_[last + 1]))
      ++last;
    return last + 1;
  }
  bool computes_for_next(step const& s) const {
    bool writes = false;
    for (access const& a : accesses_of(s)) {
      if (a.writes && a.owner != memory::worker) return false;
      writes |= a.writes;
    }
    return writes;
  }

  /// Throws shape_error if a step of [first, last), which belong together, needs all of another.
  TESSERA_COLD void require_same_tiles(int first, int last) const {
    for (int i = first; i < last; ++i)
      for (int k = first; k < i; ++k)
        if (relate(step_[k], step_[i]) == relation::anywhere)
          throw shape_error(
              "[=] the destination and an operand share memory, but are not at one place: store the "
              "result in a tensor of its own");
  }

  /// Puts steps [first, last) into the last phase if they may stand there, else behind a barrier.
  TESSERA_COLD void place(int first, int last) {
    require_same_tiles(first, last);
    step const& s = step_[first];
    // A barrier separates early steps, which prepare operands, from the other steps.
    const auto is_early = [](step const& of) { return of.when == timing::early; };
    const bool alone = phases_ == 0 || is_early(s) != is_early(step_[chain_[chains_ - 1].first]);
    bool side_by_side = !alone, carried = false;
    for (int c = alone ? chains_ : phase_[phases_ - 1].first; c < chains_; ++c) {
      step const& head = step_[chain_[c].first];
      const bool alike = c + 1 == chains_ && s.by != cut::lines && head.by == s.by && head.tiles == s.tiles &&
                         head.parts == 1 && s.parts == 1;
      relation worst = relation::none;
      for (int i = chain_[c].first; i < chain_[c].last; ++i)
        for (int k = first; k < last; ++k) worst = std::max(worst, relate(step_[i], step_[k]));
      if (alike && worst != relation::anywhere)
        carried = true;
      else if (worst != relation::none)
        side_by_side = false;
    }
    if (!side_by_side) phase_[phases_++] = {chains_, chains_, 0, 0, {}};
    phase& now = phase_[phases_ - 1];
    if (!side_by_side || !carried) {
      chain_[chains_++] = {first, first, now.tiles};
      now.last = chains_;
      now.tiles += s.tiles;
    }
    chain_[chains_ - 1].last = last;
    require_worker_memory_of_own_chain(first, last);
  }

  /// Throws error if a step reads a value in the worker's memory that its own chain has not computed.
  TESSERA_COLD void require_worker_memory_of_own_chain(int first, int last) const {
    for (int i = first; i < last; ++i)
      for (access const& read : accesses_of(step_[i])) {
        if (read.writes || read.owner != memory::worker) continue;
        bool found = false;
        for (int c = chain_[chains_ - 1].first; c < i; ++c)
          for (access const& written : accesses_of(step_[c]))
            found |= written.writes && overlap(written, read);
        if (!found)
          throw error(
              "[run] a local value is used behind a barrier, where it is gone: a statement before this one "
              "mixes tokens or is over something else than panels, so store the value in a tensor, or write "
              "the statements that use it one after the other");
      }
  }

  struct local {
    void const* address;
    operand value;
  };

  tessera::machine machine_;
  int steps_ = 0, accesses_ = 0, chains_ = 0, phases_ = 0, locals_ = 0;
  std::size_t worker_bytes_ = 0, run_bytes_ = 0;
  std::uintptr_t run_base_ = 0;
  // Unused elements stay uninitialised, because a plan is built for every run.
  union {
    step step_[most_steps];
  };
  union {
    access access_[most_accesses];
  };
  chain chain_[most_steps];
  phase phase_[most_steps];
  local local_[most_locals];
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void plan::schedule() {
  leave_out_empty();
  split_panels();
  delay_late_steps();
  chains_ = phases_ = 0;
  for (int first = 0, last; first < steps_; first = last) {
    last = carried_until(first);
    place(first, last);
  }
  for (int p = 0; p < phases_; ++p)
    for (int i = first_step(phase_[p]); i < last_step(phase_[p]); ++i)
      if (step_[i].around) phase_[p].enter_by(*step_[i].around);
}

TESSERA_COLD TESSERA_BODY void plan::run(context& ctx) {
  schedule();
  ctx.run_phases(phases_, worker_bytes_, run_bytes_, [&](std::byte* shared) {
    return run_base_ = reinterpret_cast<std::uintptr_t>(shared), running_plan{*this};
  });
}

TESSERA_BODY step& plan::append(step_draft const& made) {
  if (steps_ == most_steps)
    throw error(message("[run] more than ", most_steps, " steps in one run: split it in two"));
  if (accesses_ + made.accesses > most_accesses)
    throw error(message("[run] more than ", most_accesses, " operands in one run: split it in two"));
  step& s = *new (&step_[steps_++]) step(made);
  s.first_access = accesses_;
  s.accesses = made.accesses;
  for (access const& a : made.all()) access_[accesses_++] = a;
  require_in_place(made.all());
  return s;
}

TESSERA_COLD TESSERA_BODY void plan::move_early() {
  int at = steps_ - 1;
  while (at > 0 && relate(step_[at - 1], step_[steps_ - 1]) == relation::none) --at;
  move_step(steps_ - 1, at);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::eval
#endif

// ---- tessera/simd/lane.hpp
#ifndef TESSERA_SINGLE_SIMD_LANE
#define TESSERA_SINGLE_SIMD_LANE
#include <bit>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// A lane of four bytes that holds two elements: two features of a token, or two tokens of a feature.
template <class E> struct pair {
  E first, second;
};
template <class E> struct moved<pair<E>> {
  using as = std::uint32_t;
};

/// A lane of four bytes that holds four features of a token.
template <class E> struct quad {
  E of[4];
};
template <class E> struct moved<quad<E>> {
  using as = std::uint32_t;
};

/// The numbers to round: any, or results of arithmetic, which are never subnormal floats, because our threads
/// flush these to zero.
enum class numbers : bool { any, normal };

/// The layout of elements E in lanes, and their conversion to accumulators: all that code outside of its
/// header knows of an element. Specialised for each element of which features share a lane, with
///   stored                                    a lane in memory
///   widened(narrow<E, Arch>)                  values that stood one after the other: exact
///   broadcast(E)                              one value, in all lanes
///   rounded(batch), rounded(batch, random)    the reverse, to nearest or by round_stochastically
///   feature<I>(lane_bits<Arch>)               feature I of each lane, widened
///   packed<numbers>(features)                 the reverse, to nearest
///   multiply_add(a, b, sum)                   sum + Σ a · b over the features of a lane, only where that is
///                                             one instruction
///   sum                                       its sums, if they are not accumulators
/// Rounding gives the bits of a single E on every instruction set.
template <class E> struct lane {
  static_assert(sizeof(E) >= 4,
                "numbers of 8 bits are computed with after #include <tessera/statements/quantised.hpp>");
  using stored = E;
};

/// A lane of a panel in memory: one feature of a token, or several.
template <class E> using stored_lane = typename lane<E>::stored;

/// A register of lanes of four bytes, as bits.
template <class Arch> using lane_bits = batch<std::uint32_t, Arch>;

/// As many elements of two bytes, or of one, as a register has lanes of four, as bits.
template <class E, class Arch>
using narrow = typename compiler_vector<std::conditional_t<sizeof(E) == 1, std::uint8_t, std::uint16_t>,
                                        lanes<std::uint32_t, Arch>>::type;

namespace detail {
template <class Arch>
using wide_bits = typename compiler_vector<std::uint32_t, lanes<std::uint32_t, Arch>>::type;

/// Numbers of two bytes or of one to the lower ends of lanes, and back.
template <class Arch, class Narrow> TESSERA_INLINE lane_bits<Arch> to_lanes(Narrow values) {
  return std::bit_cast<reg<std::uint32_t, Arch>>(__builtin_convertvector(values, wide_bits<Arch>));
}
template <class E, class Arch> TESSERA_INLINE narrow<E, Arch> lower_ends(lane_bits<Arch> bits) {
  return __builtin_convertvector(std::bit_cast<wide_bits<Arch>>(bits.data), narrow<E, Arch>);
}

template <class Lane> struct element_in {
  using type = Lane;
};
template <class E> struct element_in<pair<E>> {
  using type = E;
};
template <class E> struct element_in<quad<E>> {
  using type = E;
};
}  // namespace detail

/// Elements of a lane.
template <class Lane>
inline constexpr int elements_a_lane = int(sizeof(Lane) / sizeof(typename detail::element_in<Lane>::type));

/// True where one instruction multiplies two lanes and adds the products of their elements to an
/// accumulator.
template <class Lane, class Arch> inline constexpr bool multiplies = true;
template <class E, class Arch>
inline constexpr bool multiplies<pair<E>, Arch> =
    requires(reg<pair<E>, Arch> a, reg<float, Arch> sum) { lane<E>::template multiply_add<Arch>(a, a, sum); };

template <class E, class Arch>
inline constexpr bool multiplies<quad<E>, Arch> = requires(
    reg<quad<E>, Arch> a, reg<std::int32_t, Arch> sum) { lane<E>::template multiply_add<Arch>(a, a, sum); };

/// a · b + sum in each lane, over the elements in it.
template <class Lane, class Arch, class Sum>
  requires multiplies<Lane, Arch>
TESSERA_INLINE Sum multiply_add(reg<Lane, Arch> a, reg<Lane, Arch> b, Sum sum) {
  if constexpr (elements_a_lane<Lane> == 1)
    return fma<Arch, Lane>(a, b, sum);
  else
    return lane<typename detail::element_in<Lane>::type>::template multiply_add<Arch>(a, b, sum);
}

}}}  // namespace tessera::TESSERA_ISA::simd
#endif

// ---- tessera/simd/bfloat16.hpp
#ifndef TESSERA_SINGLE_SIMD_BFLOAT16
#define TESSERA_SINGLE_SIMD_BFLOAT16
#include <bit>
#include <cstdint>

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// Rounding is integer arithmetic. The instruction for it (AVX-512 BF16) is used where no feature is
/// subnormal, because it takes subnormal numbers for zero.
template <> struct lane<bfloat16> {
  using stored = pair<bfloat16>;

  template <class Arch> TESSERA_INLINE static batch<float, Arch> widened(narrow<bfloat16, Arch> values) {
    return xsimd::bitwise_cast<float>(detail::to_lanes<Arch>(values) << 16);
  }

  template <class Arch> TESSERA_INLINE static batch<float, Arch> broadcast(bfloat16 value) {
    const batch<std::uint16_t, Arch> halves(std::bit_cast<std::uint16_t>(value));
    return feature<1, Arch>(xsimd::bitwise_cast<std::uint32_t>(halves));
  }

  template <class Arch> TESSERA_INLINE static narrow<bfloat16, Arch> rounded(batch<float, Arch> value) {
    return detail::lower_ends<bfloat16>(nearest(value) >> 16);
  }
  template <class Arch>
  TESSERA_INLINE static narrow<bfloat16, Arch> rounded(batch<float, Arch> value, lane_bits<Arch> random) {
    return detail::lower_ends<bfloat16>(stochastic(value, random & lane_bits<Arch>(0xffffu)) >> 16);
  }

  template <int Index, class Arch> TESSERA_INLINE static batch<float, Arch> feature(lane_bits<Arch> both) {
    return xsimd::bitwise_cast<float>(Index == 0 ? both << 16 : both & lane_bits<Arch>(0xffff0000u));
  }

  template <numbers Are, class Arch>
  TESSERA_INLINE static lane_bits<Arch> packed(batch<float, Arch> const (&features)[2]) {
#ifdef __AVX512BF16__
    if constexpr (sizeof(reg<float, Arch>) == 64) {
      if constexpr (Are == numbers::any)
        if (__builtin_expect(has_subnormals(features[0].data, features[1].data), false))
          return pack_integers(features[0], features[1]);
      return interleaved(std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(features[1].data, features[0].data)));
    }
#endif
    return upper_halves(nearest(features[0]), nearest(features[1]));
  }
  /// The first feature by the lower half of the random bits, the second by the upper half.
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> packed(batch<float, Arch> const (&features)[2],
                                               lane_bits<Arch> random) {
    return upper_halves(stochastic(features[0], random & lane_bits<Arch>(0xffffu)),
                        stochastic(features[1], random >> 16));
  }

#ifdef __AVX512BF16__
  /// Subnormal values count as zero.
  template <class Arch>
    requires(sizeof(reg<float, Arch>) == 64)
  TESSERA_INLINE static reg<float, Arch> multiply_add(__m512i a, __m512i b, reg<float, Arch> sum) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
#endif

 private:
  /// The bits of which the upper half is the rounded value: `added` makes them carry into it or not.
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> carried(batch<float, Arch> value, lane_bits<Arch> bits,
                                                lane_bits<Arch> added) {
    const auto quiet = xsimd::bitwise_cast<float>(bits | lane_bits<Arch>(0x400000u));
    return xsimd::bitwise_cast<std::uint32_t>(
        xsimd::select(value != value, quiet, xsimd::bitwise_cast<float>(bits + added)));
  }
  template <class Arch> TESSERA_INLINE static lane_bits<Arch> nearest(batch<float, Arch> value) {
    const auto bits = xsimd::bitwise_cast<std::uint32_t>(value);
    return carried(value, bits, ((bits >> 16) & lane_bits<Arch>(1u)) + lane_bits<Arch>(0x7fffu));
  }
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> stochastic(batch<float, Arch> value, lane_bits<Arch> added) {
    return carried(value, xsimd::bitwise_cast<std::uint32_t>(value), added);
  }
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> upper_halves(lane_bits<Arch> first, lane_bits<Arch> second) {
    return (first >> 16) | (second & lane_bits<Arch>(0xffff0000u));
  }

  template <class Arch>
  TESSERA_COLD static lane_bits<Arch> pack_integers(batch<float, Arch> first, batch<float, Arch> second) {
    return upper_halves(nearest(first), nearest(second));
  }
#ifdef __AVX512BF16__
  /// Which the instruction takes for zero.
  TESSERA_INLINE static bool has_subnormals(__m512 a, __m512 b) {
    constexpr int subnormal = 0x20;
    return (_mm512_fpclass_ps_mask(a, subnormal) | _mm512_fpclass_ps_mask(b, subnormal)) != 0;
  }
  /// Lanes 0, 16, 1, 17, … of 32.
  TESSERA_INLINE static __m512i interleaved(__m512i halves) {
    alignas(64) static constexpr auto order = [] {
      struct {
        std::uint16_t lane[32];
      } table{};
      for (int i = 0; i < 32; ++i) table.lane[i] = std::uint16_t(i / 2 + i % 2 * 16);
      return table;
    }();
    return _mm512_permutexvar_epi16(_mm512_load_si512(order.lane), halves);
  }
#endif
};

}}}  // namespace tessera::TESSERA_ISA::simd
#endif

// ---- tessera/simd/float16.hpp
#ifndef TESSERA_SINGLE_SIMD_FLOAT16
#define TESSERA_SINGLE_SIMD_FLOAT16
#include <bit>
#include <cstdint>

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// Converted by the instructions for it, which neither take subnormal numbers of two bytes for zero nor make
/// them so, or by integer arithmetic. No SIMD instruction multiplies them, since sums of float16 would not be
/// a float's; AMX does, into sums of float.
template <> struct lane<float16> {
  using stored = pair<float16>;

  template <class Arch> TESSERA_INLINE static batch<float, Arch> widened(narrow<float16, Arch> values) {
#ifdef __AVX512F__
    if constexpr (sizeof(values) == 32)
      return batch<float, Arch>(_mm512_cvtph_ps(std::bit_cast<__m256i>(values)));
#endif
#ifdef __F16C__
    if constexpr (sizeof(values) == 16)
      return batch<float, Arch>(_mm256_cvtph_ps(std::bit_cast<__m128i>(values)));
#endif
    return widened_by_integers(detail::to_lanes<Arch>(values));
  }

  template <class Arch> TESSERA_INLINE static batch<float, Arch> broadcast(float16 value) {
    return widened<Arch>(narrow<float16, Arch>{} + std::bit_cast<std::uint16_t>(value));
  }

  template <class Arch> TESSERA_INLINE static narrow<float16, Arch> rounded(batch<float, Arch> value) {
#ifdef __AVX512F__
    if constexpr (sizeof(narrow<float16, Arch>) == 32)
      return std::bit_cast<narrow<float16, Arch>>(_mm512_cvtps_ph(value.data, _MM_FROUND_TO_NEAREST_INT));
#endif
#ifdef __F16C__
    if constexpr (sizeof(narrow<float16, Arch>) == 16)
      return std::bit_cast<narrow<float16, Arch>>(_mm256_cvtps_ph(value.data, _MM_FROUND_TO_NEAREST_INT));
#endif
    return detail::lower_ends<float16>(nearest(value));
  }
  template <class Arch>
  TESSERA_INLINE static narrow<float16, Arch> rounded(batch<float, Arch> value, lane_bits<Arch> random) {
    return detail::lower_ends<float16>(stochastic(value, random & lane_bits<Arch>(0xffffu)));
  }

  template <int Index, class Arch> TESSERA_INLINE static batch<float, Arch> feature(lane_bits<Arch> both) {
    return widened<Arch>(detail::lower_ends<float16>(Index == 0 ? both : both >> 16));
  }

  template <numbers, class Arch>
  TESSERA_INLINE static lane_bits<Arch> packed(batch<float, Arch> const (&features)[2]) {
    return detail::to_lanes<Arch>(rounded(features[0])) | detail::to_lanes<Arch>(rounded(features[1])) << 16;
  }
  /// The first feature by the lower half of the random bits, the second by the upper half.
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> packed(batch<float, Arch> const (&features)[2],
                                               lane_bits<Arch> random) {
    return stochastic(features[0], random & lane_bits<Arch>(0xffffu)) | stochastic(features[1], random >> 16)
                                                                            << 16;
  }

 private:
  // The conversions of class float16, in the lower halves of lanes.
  template <class Arch> using integers = batch<std::int32_t, Arch>;
  template <class Arch> TESSERA_INLINE static lane_bits<Arch> bits(integers<Arch> value) {
    return xsimd::bitwise_cast<std::uint32_t>(value);
  }
  template <class Arch> TESSERA_INLINE static integers<Arch> size_of(batch<float, Arch> value) {
    return xsimd::bitwise_cast<std::int32_t>(value) & integers<Arch>(0x7fffffff);
  }

  template <class Arch> TESSERA_INLINE static batch<float, Arch> widened_by_integers(lane_bits<Arch> lower) {
    const auto code = xsimd::bitwise_cast<std::int32_t>(lower);
    const integers<Arch> size = code & integers<Arch>(0x7fff), moved = size << 13;
    // A normal float with the fraction of the subnormal number, less the leading one that this adds.
    const auto subnormal =
        xsimd::bitwise_cast<float>(moved + integers<Arch>(0x38800000)) - batch<float, Arch>(0x1p-14f);
    const integers<Arch> quiet =
        xsimd::select(size > integers<Arch>(0x7c00), integers<Arch>(0x7fc00000), integers<Arch>(0x7f800000));
    const auto value = xsimd::select(
        size < integers<Arch>(0x0400), xsimd::bitwise_cast<std::int32_t>(subnormal),
        xsimd::select(size < integers<Arch>(0x7c00), moved + integers<Arch>(0x38000000), moved | quiet));
    return xsimd::bitwise_cast<float>(value | (code & integers<Arch>(0x8000)) << 16);
  }

  /// The code of a value, by that of its size if it is normal and if it is subnormal.
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> code(batch<float, Arch> value, integers<Arch> normal,
                                             integers<Arch> subnormal) {
    const auto size = size_of(value);
    const auto quiet = ((size >> 13) & integers<Arch>(0x3ff)) | integers<Arch>(0x7e00);
    const auto finite = xsimd::select(size < integers<Arch>(0x38800000), subnormal,
                                      xsimd::min(normal, integers<Arch>(0x7c00)));
    const auto sign = (xsimd::bitwise_cast<std::int32_t>(value) >> 16) & integers<Arch>(0x8000);
    return bits<Arch>(xsimd::select(size > integers<Arch>(0x7f800000), quiet, finite) | sign);
  }
  template <class Arch> TESSERA_INLINE static lane_bits<Arch> nearest(batch<float, Arch> value) {
    const auto size = size_of(value);
    const auto normal =
        (size + ((size >> 13) & integers<Arch>(1)) - integers<Arch>(0x38000000 - 0xfff)) >> 13;
    const auto with_half = xsimd::bitwise_cast<float>(size) + batch<float, Arch>(0.5f);
    return code(value, normal, xsimd::bitwise_cast<std::int32_t>(with_half) - integers<Arch>(0x3f000000));
  }
  template <class Arch>
  TESSERA_INLINE static lane_bits<Arch> stochastic(batch<float, Arch> value, lane_bits<Arch> random) {
    const auto size = size_of(value), added = xsimd::bitwise_cast<std::int32_t>(random);
    const auto normal = (size + (added >> 3) - integers<Arch>(0x38000000)) >> 13;
    const auto bounded = xsimd::min(size, integers<Arch>(0x38800000));  // or it would not fit an integer
    const auto fixed = xsimd::to_int(xsimd::bitwise_cast<float>(bounded) * batch<float, Arch>(0x1p40f));
    return code(value, normal, (fixed + added) >> 16);
  }
};

}}}  // namespace tessera::TESSERA_ISA::simd
#endif

// ---- tessera/simd/elements.hpp
#ifndef TESSERA_SINGLE_SIMD_ELEMENTS
#define TESSERA_SINGLE_SIMD_ELEMENTS
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

// Elements of any type to registers of their accumulator and back.

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// Values that stand one after the other in memory.
template <class Arch, class E> TESSERA_INLINE batch<accumulator_t<E>, Arch> load_values(E const* from) {
  if constexpr (element_traits<E>::features_a_lane == 1) {
    return batch<E, Arch>::load_unaligned(from);
  } else {
    narrow<E, Arch> values;
    std::memcpy(&values, from, sizeof values);
    return lane<E>::template widened<Arch>(values);
  }
}
/// Rounded to nearest; or, with some random bits for each, by round_stochastically.
template <class Arch, class E, class... Random>
TESSERA_INLINE void store_values(E* to, batch<accumulator_t<E>, Arch> const& value, Random const&... random) {
  if constexpr (element_traits<E>::features_a_lane == 1) {
    value.store_unaligned(to);
  } else {
    const narrow<E, Arch> values = lane<E>::rounded(value, random...);
    std::memcpy(static_cast<void*>(to), &values, sizeof values);
  }
}

/// Half a register of floats as doubles. Compilers divide the conversion in two if it is not asked for by
/// name.
template <class Arch, class Floats> TESSERA_INLINE reg<double, Arch> to_doubles(Floats const& values) {
#ifdef __AVX512F__
  if constexpr (sizeof values == 32)
    return std::bit_cast<reg<double, Arch>>(_mm512_cvtps_pd(std::bit_cast<__m256>(values)));
#endif
#ifdef __AVX__
  if constexpr (sizeof values == 16)
    return std::bit_cast<reg<double, Arch>>(_mm256_cvtps_pd(std::bit_cast<__m128>(values)));
#endif
  using doubles = typename compiler_vector<double, lanes<double, Arch>>::type;
  return std::bit_cast<reg<double, Arch>>(__builtin_convertvector(values, doubles));
}
/// Adds the square of each lane, in double, to one of the lanes of `sum`.
template <class T, class Arch>
TESSERA_INLINE void add_squares(batch<double, Arch>& sum, batch<T, Arch> const& value) {
  if constexpr (std::is_same_v<T, double>) {
    sum = batch<double, Arch>(fma<Arch, double>(value.data, value.data, sum.data));
  } else {
    constexpr int count = lanes<double, Arch>, parts = lanes<T, Arch> / count;
    typename compiler_vector<T, count>::type part[unsigned(parts)];
    static_assert(sizeof part == sizeof value.data);
    std::memcpy(part, &value.data, sizeof part);
    unroll<parts>([&](auto i) TESSERA_INLINE_LAMBDA {
      const reg<double, Arch> wide = to_doubles<Arch>(part[i]);
      sum = batch<double, Arch>(fma<Arch, double>(wide, wide, sum.data));
    });
  }
}

/// One value, in all lanes.
template <class Arch, class E> TESSERA_INLINE batch<accumulator_t<E>, Arch> broadcast_value(E value) {
  if constexpr (element_traits<E>::features_a_lane == 1)
    return batch<E, Arch>(value);
  else
    return lane<E>::template broadcast<Arch>(value);
}

/// The lanes of some tokens, which hold the features of elements E.
template <class Arch, class E> TESSERA_INLINE reg<stored_lane<E>, Arch> load_lanes(E const* from) {
  return load<Arch>(reinterpret_cast<stored_lane<E> const*>(from));
}
/// One lane, at all tokens.
template <class Arch, class E> TESSERA_INLINE reg<stored_lane<E>, Arch> broadcast_lane(E const* from) {
  stored_lane<E> one;
  std::memcpy(static_cast<void*>(&one), from, sizeof one);
  return broadcast<Arch>(one);
}

/// Stores the features that share the lanes of some tokens at their place in a panel: each rounded to
/// nearest, or by round_stochastically with the random bits of its lane.
template <numbers Are, class Arch, class E, unsigned Features, class... Random>
TESSERA_INLINE void store_lanes(E* to, batch<accumulator_t<E>, Arch> const (&features)[Features],
                                Random const&... random) {
  static_assert(int(Features) == element_traits<E>::features_a_lane);
  if constexpr (Features == 1)
    features[0].store_unaligned(to);
  else if constexpr (sizeof...(random) == 0)
    store<Arch>(reinterpret_cast<stored_lane<E>*>(to), lane<E>::template packed<Are>(features).data);
  else
    store<Arch>(reinterpret_cast<stored_lane<E>*>(to), lane<E>::packed(features, random...).data);
}

/// One feature of a panel, from some token on.
template <class Arch, class E>
TESSERA_INLINE batch<accumulator_t<E>, Arch> load_feature(E const* panel, std::int64_t feature, int token) {
  if constexpr (element_traits<E>::features_a_lane == 1) {
    return batch<E, Arch>::load_unaligned(panel + place_in_panel<E>(feature, token));
  } else {
    const int in_lane = int(feature % element_traits<E>::features_a_lane);  // known where it matters
    const lane_bits<Arch> all = load_lanes<Arch>(panel + place_in_panel<E>(feature - in_lane, token));
    if constexpr (element_traits<E>::features_a_lane == 2)
      return in_lane == 1 ? lane<E>::template feature<1>(all) : lane<E>::template feature<0>(all);
    else
      return lane<E>::template feature<0>(all >> (8 * in_lane));
  }
}

/// Loads the features that share a lane, each to one register.
template <class Arch, class E>
TESSERA_INLINE void widen_lanes(E const* from, reg<accumulator_t<E>, Arch>* to) {
  const auto together = load_lanes<Arch>(from);
  if constexpr (element_traits<E>::features_a_lane == 1)
    to[0] = together;
  else
    unroll<element_traits<E>::features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
      to[i] = lane<E>::template feature<i>(lane_bits<Arch>(together)).data;
    });
}

/// Features of a panel, the first of which begins a lane, at some tokens, one by one.
template <class Arch, class E>
TESSERA_INLINE void widen_features(E const* panel, std::int64_t first, std::int64_t last, int token,
                                   int last_token, accumulator_t<E>* to) {
  using wide = accumulator_t<E>;
  constexpr int features_a_lane = element_traits<E>::features_a_lane;
  for (std::int64_t f = first; f < last; f += features_a_lane, to += features_a_lane * panel_tokens)
    for (int t = token; t < last_token; t += lanes<wide, Arch>) {
      reg<wide, Arch> features[unsigned(features_a_lane)];
      widen_lanes<Arch>(panel + place_in_panel<E>(f, t), features);
      unroll<features_a_lane>(
          [&](auto i) TESSERA_INLINE_LAMBDA { store<Arch>(to + i * panel_tokens + t, features[i]); });
    }
}

/// Features of a whole panel, from one on that begins a lane, that were computed in the accumulator in the
/// same order: each rounded to nearest. Nothing is to be done where the two are one.
template <class Arch, class E>
TESSERA_INLINE void store_narrowed(accumulator_t<E> const* from, int features, E* panel) {
  using wide = batch<accumulator_t<E>, Arch>;
  constexpr int features_a_lane = element_traits<E>::features_a_lane;
  if constexpr (features_a_lane > 1)
    for (int at = 0; at < features * panel_tokens; at += features_a_lane * panel_tokens)
      for (int token = 0; token < panel_tokens; token += int(wide::size)) {
        wide lane[unsigned(features_a_lane)];
        unroll<features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
          lane[i] = wide::load_unaligned(from + at + i * panel_tokens + token);
        });
        store_lanes<numbers::normal>(panel + at + features_a_lane * token, lane);
      }
}

}}}  // namespace tessera::TESSERA_ISA::simd
#endif

// ---- tessera/kernels/tree.hpp
#ifndef TESSERA_SINGLE_KERNELS_TREE
#define TESSERA_SINGLE_KERNELS_TREE
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The place of a register in an elementwise computation.
struct position {
  std::int64_t feature = 0;  // row of the panel; for values, the index of the first value
  int token = 0;             // first token of the register, within the panel
  std::int64_t first = 0;    // number of the panel's first token in the batch, or of the first value
};

/// Trees: expressions whose leaves hold addresses instead of tensors, so that expressions of one form share
/// one kernel. `value(at, sum, known)` computes one register in the accumulator type; narrow elements are
/// widened where they are loaded.
///   sum     the finished sums of the product that the tree is the epilogue of
///   known   named values of this register, see known_values
/// Kernels call `evaluate`.
namespace tree {

/// A tree without named parts.
struct nameless {
  template <class Names> using names = Names;
};

/// The finished sums of the product.
struct sum : nameless {
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V value(position const&, V sums, auto&) const { return sums; }
};

/// A leaf: an operand of elements E.
template <class E> struct leaf : nameless {
  using element_type = E;
  static constexpr bool costly = false;
  E const* from;
  explicit leaf(E const* address) : from(address) {}
};

/// An activation, at its own feature and tokens.
template <class E> struct panel : leaf<E> {
  using leaf<E>::leaf;
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    return simd::load_feature<typename V::arch_type>(this->from, at.feature, at.token);
  }
};

/// A number for each feature, equal for all tokens.
template <class E> struct feature : leaf<E> {
  using leaf<E>::leaf;
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    return V(accumulator_t<E>(this->from[at.feature]));
  }
};

/// A number for each token, equal for all features.
template <class E> struct token : leaf<E> {
  using leaf<E>::leaf;
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    return simd::load_values<typename V::arch_type>(this->from + at.token);
  }
};

/// Consecutive values of a matrix or vector.
template <class E> struct values : leaf<E> {
  using leaf<E>::leaf;
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    return simd::load_values<typename V::arch_type>(this->from + at.feature);
  }
};

/// The numbers of a vector, each `times` times in turn, beside values of a matrix or vector.
template <class E> struct repeated : leaf<E> {
  std::int64_t times;
  int shift;  // times = 2^shift, or -1
  repeated(E const* address, std::int64_t t)
      : leaf<E>(address),
        times(t),
        shift(std::has_single_bit(std::uint64_t(t)) ? std::countr_zero(std::uint64_t(t)) : -1) {}
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    using T = typename V::value_type;
    const std::int64_t first = at.first + at.feature;  // registers begin at multiples of their size
    if (times == 1) return simd::load_values<typename V::arch_type>(this->from + first);
    if (shift >= 0 && times >= std::int64_t(V::size)) return V(T(this->from[first >> shift]));
    alignas(64) T lane[V::size];
    for (std::size_t i = 0; i < V::size; ++i) lane[i] = T(this->from[(first + std::int64_t(i)) / times]);
    return V::load_unaligned(lane);
  }
};

/// A number for each of some ranges of values, one range behind the other.
struct by_range : nameless {
  static constexpr bool costly = false;
  static constexpr int most = 4;
  double numbers[most];
  std::int64_t ends[most];  // of the ranges; from the last one on beyond all values

  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    using T = typename V::value_type;
    std::int64_t first = at.first + at.feature;
    int range = 0;
    while (first >= ends[range]) ++range;
    if (first + std::int64_t(V::size) <= ends[range]) return V(T(numbers[range]));
    alignas(64) T lane[V::size];
    for (std::size_t i = 0; i < V::size; ++i, ++first) {
      while (first >= ends[range]) ++range;
      lane[i] = T(numbers[range]);
    }
    return V::load_unaligned(lane);
  }
};

/// A number carried by the expression itself.
struct number : nameless {
  static constexpr bool costly = false;
  double of;
  explicit number(double x) : of(x) {}
  template <class V> TESSERA_INLINE V value(position const&, V, auto&) const {
    return V(static_cast<typename V::value_type>(of));
  }
};

/// The number of the feature: 0, 1, 2, …
struct feature_number : nameless {
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    return V(static_cast<typename V::value_type>(at.feature));
  }
};

/// The number of the value among all values: 0, 1, 2, …
struct value_number : nameless {
  static constexpr bool costly = false;
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    using T = typename V::value_type;
    alignas(64) T lane[V::size];
    for (std::size_t i = 0; i < V::size; ++i) lane[i] = T(at.first + at.feature) + T(i);
    return V::load_unaligned(lane);
  }
};

/// 32 random bits for each column of a row: a function of key, row and column alone. Finaliser: C. Wellons,
/// "lowbias32".
struct random_row {
  std::uint32_t bits;
  random_row(std::uint64_t key, std::int64_t row) {
    const std::uint64_t mixed = key + static_cast<std::uint64_t>(row) * 0x9e3779b97f4a7c15u;
    bits = static_cast<std::uint32_t>((mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9u >> 32);
  }
  /// The bits of one column, or of a register of columns.
  template <class Columns> TESSERA_INLINE Columns operator()(Columns column) const {
    Columns h = (column * Columns(0x9e3779b9u)) ^ Columns(bits);
    h = (h ^ (h >> 16)) * Columns(0x7feb352du);
    h = (h ^ (h >> 15)) * Columns(0x846ca68bu);
    return h ^ (h >> 16);
  }
  /// The bits of a register of columns from `first` on.
  template <class Arch> TESSERA_INLINE simd::batch<std::uint32_t, Arch> from(std::uint32_t first) const {
    using columns = simd::batch<std::uint32_t, Arch>;
    return (*this)(columns(first) + simd::lane_numbers<std::uint32_t, Arch>());
  }
};

/// A random number in [0, 1), in steps of 2^-24, for each feature and token.
struct uniform : nameless {
  static constexpr bool costly = true;
  std::uint64_t key;
  explicit uniform(std::uint64_t k) : key(k) {}
  template <class V> TESSERA_INLINE V value(position const& at, V, auto&) const {
    using T = typename V::value_type;
    const random_row row(key, at.feature);
    const auto first = static_cast<std::uint32_t>(at.first + at.token);
    if constexpr (sizeof(T) == sizeof(first)) {
      const auto bits = row.template from<typename V::arch_type>(first) >> 8;
      return to_float(bitwise_cast<std::int32_t>(bits)) * V(T(0x1p-24));
    } else {
      alignas(64) T lane[V::size];
      for (std::uint32_t i = 0; i < V::size; ++i)
        lane[i] = static_cast<T>(static_cast<std::int32_t>(row(first + i) >> 8)) * T(0x1p-24);
      return V::load_unaligned(lane);
    }
  }
};

/// The operands of an op: an aggregate, which std::tuple is not, so that trees are copied as bytes.
template <class... Operands> struct operands {};
template <class First, class... Rest> struct operands<First, Rest...> {
  First first;
  [[no_unique_address]] operands<Rest...> rest;
};

/// Calls visit(operand…).
template <class Visit, class... Known>
TESSERA_INLINE constexpr decltype(auto) with(operands<> const&, Visit&& visit, Known const&... known) {
  return visit(known...);
}
template <class First, class... Rest, class Visit, class... Known>
TESSERA_INLINE constexpr decltype(auto) with(operands<First, Rest...> const& all, Visit&& visit,
                                             Known const&... known) {
  return with(all.rest, static_cast<Visit&&>(visit), known..., all.first);
}

/// `Names`, followed by the names of several trees.
template <class Names, class... Trees> struct names_of_all {
  using type = Names;
};
template <class Names, class First, class... Rest> struct names_of_all<Names, First, Rest...> {
  using type = typename names_of_all<typename First::template names<Names>, Rest...>::type;
};

/// Op applied to the values of other trees.
template <class Op, class... Operands> struct apply {
  static constexpr bool costly = Op::costly || (Operands::costly || ...);
  template <class Names> using names = typename names_of_all<Names, Operands...>::type;
  operands<Operands...> of;

  template <class V> TESSERA_INLINE V value(position const& at, V sums, auto& known) const {
    return with(of, [&](auto const&... operand)
                        TESSERA_INLINE_LAMBDA { return Op{}(operand.value(at, sums, known)...); });
  }
};

/// A tree that stands in several places and is computed at the first. Every name is a type `Name`.
template <class Name, class Tree> struct named;

/// The named trees of an expression, each once.
template <class... Named> struct name_list {};
template <class Names, class Named> struct with_name;
template <class... Known, class Named> struct with_name<name_list<Known...>, Named> {
  static constexpr bool known = (std::is_same_v<Known, Named> || ...);
  static_assert(known || !(std::is_same_v<typename Known::name, typename Named::name> || ...),
                "two different expressions of one statement have the same name");
  using type = std::conditional_t<known, name_list<Known...>, name_list<Known..., Named>>;
};

template <class Name, class Tree> struct named {
  using name = Name;
  static constexpr bool costly = Tree::costly;
  template <class Names> using names = typename with_name<typename Tree::template names<Names>, named>::type;
  Tree of;

  template <class V> TESSERA_INLINE V value(position const& at, V sums, auto& known) const {
    auto& slot = known.value_of(*this);
    if (!slot.computed) {  // decided at compile time
      slot.value = of.value(at, sums, known);
      slot.computed = true;
    }
    return slot.value;
  }
};

/// The named values of one register that have been computed so far.
template <class V, class Names> struct known_values;
template <class V, class Named> struct known_value {
  V value{};
  bool computed = false;
};
template <class V, class... Named>
struct known_values<V, name_list<Named...>> : private known_value<V, Named>... {
  template <class Which> TESSERA_INLINE known_value<V, Which>& value_of(Which const&) { return *this; }
};
template <class V, class... Trees>
using known_for = known_values<V, typename names_of_all<name_list<>, Trees...>::type>;

/// A tree, and the key of the random bits that round its values where they are stored.
template <class Tree> struct stochastic {
  static constexpr bool costly = true;
  template <class Names> using names = typename Tree::template names<Names>;
  std::uint64_t key;
  Tree of;
  template <class V> TESSERA_INLINE V value(position const& at, V sums, auto& known) const {
    return of.value(at, sums, known);
  }
  template <class Arch> simd::lane_bits<Arch> bits(std::int64_t number, std::int64_t first) const {
    return random_row(key, number).template from<Arch>(static_cast<std::uint32_t>(first));
  }
};
template <class Tree> inline constexpr bool is_stochastic = false;
template <class Tree> inline constexpr bool is_stochastic<stochastic<Tree>> = true;

/// Computes one register of a tree.
template <class V, class Tree> TESSERA_INLINE V evaluate(Tree const& tree, position const& at, V sums) {
  known_for<V, Tree> known;
  return tree.value(at, sums, known);
}

/// True if the tree reads an activation whose lanes hold two features.
template <class Tree> inline constexpr bool reads_pairs = false;
template <class E> inline constexpr bool reads_pairs<panel<E>> = element_traits<E>::features_a_lane == 2;
template <class Op, class... Operands>
inline constexpr bool reads_pairs<apply<Op, Operands...>> = (reads_pairs<Operands> || ...);
template <class Name, class Tree> inline constexpr bool reads_pairs<named<Name, Tree>> = reads_pairs<Tree>;

}  // namespace tree

using simd::numbers;

/// Stores features that share a lane; `feature` is a multiple of their number. Rounds to nearest, or by the
/// random bits of a stochastic tree.
///   token   number of the first token in the batch
template <numbers Are, class E, class Tree, class Batch, unsigned Features>
TESSERA_INLINE void store_lanes(E* to, Tree const& tree, Batch const (&features)[Features],
                                std::int64_t feature, std::int64_t token) {
  using Arch = typename Batch::arch_type;
  if constexpr (tree::is_stochastic<Tree>)
    simd::store_lanes<Are>(to, features, tree.template bits<Arch>(feature / int(Features), token));
  else
    simd::store_lanes<Are>(to, features);
}

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/eval/source_tree.hpp
#ifndef TESSERA_SINGLE_EVAL_SOURCE_TREE
#define TESSERA_SINGLE_EVAL_SOURCE_TREE
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

// The tree of an expression before the addresses of a tile are known: its leaves are operands.
// `addressed(tree, tile)` makes the tree for a kernel.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

namespace tree = kernels::tree;

/// A leaf of a tree before its address is known; `addressed` turns it into a Leaf.
template <class Leaf> struct source : tree::nameless {
  static constexpr bool costly = false;
  operand from;
  explicit source(operand const& o) : from(o) {}
};

/// A vector whose numbers are repeated.
template <class E> struct repeated_source : tree::nameless {
  static constexpr bool costly = false;
  operand from;  // everything of it
  std::int64_t times;
};

/// Consecutive ranges of stored values.
struct value_ranges {
  static constexpr int most = tree::by_range::most;
  int count = 1;
  std::array<std::int64_t, most> ends{};  // before which each ends; the last one has all that are left

  std::int64_t end(int range) const {
    return range + 1 < count ? ends[std::size_t(range)] : std::numeric_limits<std::int64_t>::max();
  }
};

/// In a statement on stored values, the number of the range in which each stands.
struct range_numbers {
  using node_tag = void;
  using value_type = void;  // that of its neighbours
  static constexpr domain laid_over = domain::features;
  tree::by_range leaf;

  range_numbers(value_ranges const& ranges, std::array<double, value_ranges::most> const& numbers) {
    for (int i = 0; i < value_ranges::most; ++i)
      leaf.numbers[i] = numbers[std::size_t(i)], leaf.ends[i] = ranges.end(i);
  }
  expr::extent size() const { return {}; }
};

// Declared first, as they call each other.
template <class Tree> Tree const& addressed(Tree const& leaf, tile const&) { return leaf; }
template <class Leaf> Leaf addressed(source<Leaf> const& leaf, tile const& t);
template <class E> tree::repeated<E> addressed(repeated_source<E> const& leaf, tile const& t);
template <class Op, class... A> auto addressed(tree::apply<Op, A...> const& map, tile const& t);
template <class Name, class Tree> auto addressed(tree::named<Name, Tree> const& value, tile const& t);
template <class Tree> auto addressed(tree::stochastic<Tree> const& value, tile const& t);

/// The tree of a kernel: leaves hold addresses.
template <class Tree>
using addressed_tree = std::remove_cvref_t<decltype(addressed(std::declval<Tree const&>(), tile{}))>;

template <class First, class... Rest>
tree::operands<First, Rest...> prepend(First const& first, tree::operands<Rest...> const& rest) {
  return {first, rest};
}
template <class Op, class... A> tree::apply<Op, A...> applied(tree::operands<A...> const& operands) {
  return {operands};
}
inline tree::operands<> all_addressed(tree::operands<> const&, tile const&) { return {}; }
template <class First, class... Rest>
auto all_addressed(tree::operands<First, Rest...> const& all, tile const& t) {
  return prepend<addressed_tree<First>>(addressed(all.first, t), all_addressed(all.rest, t));
}

template <class Leaf> Leaf addressed(source<Leaf> const& leaf, tile const& t) {
  return Leaf(t.address<typename Leaf::element_type const>(leaf.from));
}
template <class E> tree::repeated<E> addressed(repeated_source<E> const& leaf, tile const& t) {
  return {t.address<E const>(leaf.from), leaf.times};
}
template <class Op, class... A> auto addressed(tree::apply<Op, A...> const& map, tile const& t) {
  return applied<Op>(all_addressed(map.of, t));
}
template <class Name, class Tree> auto addressed(tree::named<Name, Tree> const& value, tile const& t) {
  return tree::named<Name, addressed_tree<Tree>>{addressed(value.of, t)};
}
template <class Tree> auto addressed(tree::stochastic<Tree> const& value, tile const& t) {
  return tree::stochastic<addressed_tree<Tree>>{value.key, addressed(value.of, t)};
}

/// Calls visit(part) for a tree and all its parts, operands before their op.
template <class Tree, class Visit> void for_each_part(Tree const& part, Visit& visit) {
  if constexpr (requires { part.rest; }) {
    for_each_part(part.first, visit);
    for_each_part(part.rest, visit);
  } else {
    if constexpr (requires { part.of; } && !std::is_same_v<Tree, tree::number>) for_each_part(part.of, visit);
    visit(part);
  }
}

/// Describes the reads of a tree's leaves in a tile.
struct describe_parts {
  tile const& of;
  std::int64_t first, last;
  int tokens;
  task_description& d;

  void operator()(auto const&) const {}
  template <class Op, class... A> void operator()(tree::apply<Op, A...> const&) const {
    d.operations += (last - first) * std::max(tokens, 1) * (Op::costly ? 12 : 1);
  }
  template <class E> void operator()(repeated_source<E> const& leaf) const {
    const std::int64_t begin = of.index * values_a_tile + first, end = begin + last - first;
    const std::int64_t number = begin / leaf.times;
    read_once(d, elements_of<E>(leaf.from, 0, number, ceil_div(end, leaf.times) - number));
  }
  template <class Leaf> void operator()(source<Leaf> const& leaf) const {
    using E = typename Leaf::element_type;
    if constexpr (std::is_same_v<Leaf, tree::panel<E>>)
      read_once(d, part_of_panel<E>(leaf.from, of.index, first, last, tokens));
    else if constexpr (std::is_same_v<Leaf, tree::token<E>>)
      read_once(d, elements_of<E>(leaf.from, of.index, 0, tokens));
    else
      read_once(d, elements_of<E>(leaf.from, of.index, first, last - first));
  }
};
/// Describes the reads of a tree at features [first, last) and `tokens` tokens of a panel, or at values
/// [first, last).
template <class Tree>
void describe_reads(Tree const& of, tile const& t, std::int64_t first, std::int64_t last, int tokens,
                    task_description& d) {
  const describe_parts parts{t, first, last, tokens, d};
  for_each_part(of, parts);
}

/// A type for a name.
template <expr::value_name Name> struct name_type {};

/// Whether two trees of one form read the same operands and numbers.
template <class Tree> bool same(Tree const& a, Tree const& b) {
  if constexpr (requires { a.times; })
    return a.from == b.from && a.times == b.times;
  else if constexpr (requires { a.ends; })
    return std::equal(a.ends, a.ends + Tree::most, b.ends) &&
           std::equal(a.numbers, a.numbers + Tree::most, b.numbers);
  else if constexpr (requires { a.from; })
    return a.from == b.from;
  else if constexpr (requires { a.key; })
    return a.key == b.key;
  else if constexpr (std::is_same_v<Tree, tree::number>)
    return a.of == b.of;
  else if constexpr (requires { a.rest; })
    return same(a.first, b.first) && same(a.rest, b.rest);
  else if constexpr (requires { a.of; })
    return same(a.of, b.of);
  else
    return true;
}

/// The first value of each name.
template <class Names> struct first_of_names;
template <class Named> struct first_of_name {
  Named const* first = nullptr;
};
template <class... Named> struct first_of_names<tree::name_list<Named...>> : first_of_name<Named>... {
  void operator()(auto const&) {}
  template <expr::value_name Name, class Tree>
  void operator()(tree::named<name_type<Name>, Tree> const& value) {
    auto const*& before = first_of_name<tree::named<name_type<Name>, Tree>>::first;
    if (!before)
      before = &value;
    else if (!same(*before, value))
      throw error(
          message("[named] two different values of one statement have the name \"", Name.text,
                  "\": give them two names; a product or a reduction in it, which is computed anew at each "
                  "place, a place of its own with local(…)"));
  }
};
/// Throws error unless each name in these trees stands for one value.
template <class... Tree> void require_same_names(Tree const&... of) {
  using names = typename tree::names_of_all<tree::name_list<>, Tree...>::type;
  if constexpr (!std::is_same_v<names, tree::name_list<>>) {
    first_of_names<names> first;
    (for_each_part(of, first), ...);
  }
}

}}}  // namespace tessera::TESSERA_ISA::eval
#endif

// ---- tessera/eval/bind.hpp
#ifndef TESSERA_SINGLE_EVAL_BIND
#define TESSERA_SINGLE_EVAL_BIND
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

// Makes trees of expressions.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// Whether an expression contains a product whose sums a kernel keeps in its accumulators.
template <class Node> inline constexpr bool has_product = false;
template <class Factor, class X> inline constexpr bool has_product<expr::product<Factor, X>> = true;
template <class Value> inline constexpr bool has_product<expr::stochastic_value<Value>> = has_product<Value>;
template <class Op, class... A>
inline constexpr bool has_product<expr::map<Op, A...>> = (has_product<A> || ...);

/// The first operand of a map that contains a product.
template <class... A> constexpr std::size_t first_with_product() {
  std::size_t at = 0;
  const bool done = ((has_product<A> ? true : (++at, false)) || ...);
  return done ? at : sizeof...(A);
}

/// The first product of an expression.
template <class Factor, class X> auto const& first_product(expr::product<Factor, X> const& product) {
  return product;
}
template <class Value> auto const& first_product(expr::stochastic_value<Value> const& rounded) {
  return first_product(rounded.value);
}
template <class Op, class... A> auto const& first_product(expr::map<Op, A...> const& map) {
  return first_product(std::get<first_with_product<A...>()>(map.arguments));
}

/// The leaves of a tree.
enum class over {
  panels,  // one panel at a time, of tensors or in the worker's memory
  values,  // stored values
};

/// Builds the trees of a step that computes in T, and lists the step's reads. A node that is not elementwise
/// is computed by another step before it.
template <class T, over Over> class binder {
  struct computed_in_accumulator {
    using value_type = T;
  };

 public:
  binder(plan& p, step_draft& s, std::int64_t tokens) : plan_(p), step_(s), tokens_(tokens) {}

  template <expr::leaf Leaf> auto operator()(Leaf const& leaf) {
    using E = typename Leaf::value_type;
    static_assert(std::is_same_v<T, accumulator_t<E>>,
                  "the operands and the destination of a statement have different element "
                  "types: " TESSERA_ONE_ACCUMULATOR);
    if constexpr (requires { leaf.tensor().times(); }) {
      static_assert(Over == over::values, "repeat_interleave stands in statements on stored values alone");
      return repeated_source<E>{{}, step_.reads(all_of(leaf.tensor())), leaf.tensor().times()};
    } else if constexpr (Over == over::values)
      return source<tree::values<E>>(step_.reads(by_values(leaf.tensor())));
    else if constexpr (!in_panels<typename Leaf::tensor_type>)
      return panel_leaf<E, domain::panels>(compute_before<E>(plan_, tokens_, leaf));
    else
      return panel_leaf<E, Leaf::laid_over>(by_panel(leaf.tensor()));
  }
  auto operator()(expr::number const& n) { return tree::number(n.value); }
  auto operator()(expr::uniform_random const& n) { return tree::uniform(n.key); }
  auto operator()(expr::feature_number const&) {
    if constexpr (Over == over::values)
      return tree::value_number();
    else
      return tree::feature_number();
  }
  auto operator()(range_numbers const& n) {
    static_assert(Over == over::values, "numbers of ranges stand in statements on stored values alone");
    return n.leaf;
  }
  template <class Op, class... A> auto operator()(expr::map<Op, A...> const& map) {
    return std::apply([&](auto const&... a) { return applied<Op>(all(a...)); }, map.arguments);
  }
  template <class Value> auto operator()(expr::stochastic_value<Value> const& rounded) {
    auto of = (*this)(rounded.value);
    return tree::stochastic<decltype(of)>{rounded.key, of};
  }
  template <expr::value_name Name, class Value> auto operator()(expr::named_value<Name, Value> const& named) {
    auto of = (*this)(named.value);
    return tree::named<name_type<Name>, decltype(of)>{of};
  }

  /// A value that another step has left in the worker's memory.
  template <class Node>
    requires requires { typename Node::node_tag; } && (!expr::leaf<Node>)
  auto operator()(Node const& node) {
    static_assert(Over == over::panels,
                  "statements on vectors or matrices take elementwise expressions of tensors: "
                  "store a product or a sum in a tensor of its own first, in the same run: "
                  "`run(ctx, c = a * b, c = relu(c))`");
    constexpr bool by_token = Node::laid_over == domain::panels || Node::laid_over == domain::tokens;
    static_assert(Over == over::values || by_token,
                  "a sum over tokens cannot be part of another expression: store it in a tensor of its own");
    if constexpr (Over == over::panels && by_token) {
      using E = element_of<Node>;
      return panel_leaf<E, Node::laid_over>(compute_before<E>(plan_, tokens_, node));
    } else {
      return tree::number(0);
    }
  }

  /// The tree of an expression, with the first product replaced by the sums in the kernel's accumulators.
  template <class Node> auto around_product(Node const& node) {
    if constexpr (requires { node.arguments; })
      return std::apply([&](auto const&... a) { return map_around_product(node, a...); }, node.arguments);
    else if constexpr (requires { node.key; }) {
      auto of = around_product(node.value);
      return tree::stochastic<decltype(of)>{node.key, of};
    } else {
      return tree::sum();
    }
  }

  /// The elements of a tensor, or of a value in the worker's memory.
  template <class Node>
  using element_of = typename std::conditional_t<expr::leaf<Node> || requires {
    typename Node::stored_element;
  }, Node, computed_in_accumulator>::value_type;

 private:
  template <class E, domain LaidOver> auto panel_leaf(operand const& o) {
    step_.reads(o);
    if constexpr (LaidOver == domain::panels)
      return source<tree::panel<E>>(o);
    else if constexpr (LaidOver == domain::tokens)
      return source<tree::token<E>>(o);
    else
      return source<tree::feature<E>>(o);
  }

  /// Binds operands in order: compilers differ in the order in which they evaluate arguments.
  tree::operands<> all() { return {}; }
  template <class First, class... Rest> auto all(First const& first, Rest const&... rest) {
    auto head = (*this)(first);
    return prepend(head, all(rest...));
  }

  template <class Op, class... A> auto map_around_product(expr::map<Op, A...> const&, A const&... arguments) {
    return applied<Op>(all_around<first_with_product<A...>()>(arguments...));
  }
  template <std::size_t Product> tree::operands<> all_around() { return {}; }
  template <std::size_t Product, class First, class... Rest>
  auto all_around(First const& first, Rest const&... rest) {
    if constexpr (Product == 0) {
      auto head = around_product(first);
      return prepend(head, all(rest...));
    } else {
      auto head = (*this)(first);
      return prepend(head, all_around<Product - 1>(rest...));
    }
  }

  plan& plan_;
  step_draft& step_;
  std::int64_t tokens_;
};

// ---- values in the worker's memory ----

template <class Node> inline constexpr bool is_converted = false;
template <element E, class Value> inline constexpr bool is_converted<expr::converted_value<E, Value>> = true;

/// Whether a binder makes a tree of a node. Any other node is computed by another step.
template <class Node>
inline constexpr bool is_elementwise =
    expr::leaf<Node> || is_converted<Node> || requires(Node const& n) { n.address->argument; };
template <> inline constexpr bool is_elementwise<expr::number> = true;
template <> inline constexpr bool is_elementwise<expr::uniform_random> = true;
template <> inline constexpr bool is_elementwise<expr::feature_number> = true;
template <class Op, class... A> inline constexpr bool is_elementwise<expr::map<Op, A...>> = true;
template <class Value> inline constexpr bool is_elementwise<expr::stochastic_value<Value>> = true;
template <expr::value_name Name, class Value>
inline constexpr bool is_elementwise<expr::named_value<Name, Value>> = true;

template <class Node> constexpr void require_elementwise() {
  static_assert(is_elementwise<Node>,
                "no kind of step computes this node: it needs an overload, in its namespace, of "
                "lower_to(tessera::eval::plan&, tessera::eval::panels_to<E> const&, node const&), or of "
                "tokens_to<E> for "
                "a number of each token");
}

/// Calls add(destination) with room for panels of a value in elements E, and returns their place.
template <class E, class Node, class Add>
operand computed_locally(plan& p, std::int64_t tokens, Node const& node, bool has_name, Add const& add) {
  const std::int64_t features = expr::extent_of(node).features;
  if (features < 0) throw shape_error("[local] the expression has no number of features of its own");
  const panels_to<E> to{
      p.local_memory(panel_bytes<E>(features), ceil_div<std::int64_t>(tokens, panel_tokens), has_name),
      features, tokens};
  add(to);
  return to.at;
}

/// A value that is rounded to E, where it is stored.
template <class Node, class E>
concept converted_to = is_converted<Node> && std::is_same_v<typename Node::stored_element, E>;

/// Adds the step that computes a value once for each tile, in elements E, and returns the place of the value.
/// Overloads of lower_to(plan, destination, expression) choose the kind of step.
///   has_name   by local(…)
template <class E, class Node>
operand compute_before(plan& p, std::int64_t tokens, Node const& node, bool has_name = false) {
  if constexpr (requires { node.address->argument; }) {
    if (operand const* const known = p.find_local(node.address)) return *known;
    const operand made = compute_before<E>(p, tokens, node.address->argument, true);
    p.add_local(node.address, made);
    return made;
  } else if constexpr (converted_to<Node, E>) {
    return compute_before<E>(p, tokens, node.value, has_name);
  } else if constexpr (Node::laid_over == domain::tokens) {
    const tokens_to<E> to{
        p.local_memory(panel_tokens * sizeof(E), ceil_div<std::int64_t>(tokens, panel_tokens), has_name),
        tokens};
    lower_to(p, to, node);
    return to.at;
  } else {
    return computed_locally<E>(p, tokens, node, has_name,
                               [&](panels_to<E> const& to) { lower_to(p, to, node); });
  }
}

/// The x of a product: where it lies, if kernels can read it there in multiples of 16 features, which they
/// cannot if it is a slice that neighbours follow; otherwise computed by a step before, in elements E. Stored
/// elements of one byte are widened to E, a panel at a time.
template <class E, class Stored, class X>
operand operand_of_product(plan& p, std::int64_t tokens, X const& x) {
  if constexpr (sizeof(Stored) < sizeof(E) && sizeof(Stored) == 1)
    return computed_locally<E>(p, tokens, x, false,
                               [&](panels_to<E> const& to) { add_elementwise<E>(p, to, x); });
  else if constexpr (expr::leaf<X>)
    if constexpr (in_panels<typename X::tensor_type>) {
      if constexpr (tensor_view<typename X::tensor_type>)
        if (!x.tensor().has_padded_features()) return compute_before<E>(p, tokens, x);
      return by_panel(x.tensor());
    } else {
      return compute_before<E>(p, tokens, x);
    }
  else
    return compute_before<E>(p, tokens, x);
}

}}}  // namespace tessera::TESSERA_ISA::eval
#endif

// ---- tessera/kernels/block_grid.hpp
#ifndef TESSERA_SINGLE_KERNELS_BLOCK_GRID
#define TESSERA_SINGLE_KERNELS_BLOCK_GRID
#include <algorithm>
#include <cstdint>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The stored blocks of a matrix (rows, cols). Blocks may overhang the last row and the last column:
/// overhanging values are always zero, and are cleared after a kernel that writes them.
struct block_grid {
  block_index index{};
  std::int64_t rows = 0, cols = 0;
  int block_rows = 1, block_cols = 1;

  bool overhangs() const { return rows % block_rows != 0 || cols % block_cols != 0; }

  /// Clears overhanging values in the blocks of some lines and block columns; `values` begins at slot 0.
  template <class T> void clear_overhang(T* values, range lines, range columns) const noexcept {
    if (!overhangs()) return;
    for (int line = lines.first; line < lines.last; ++line)
      clear_line(values, line, columns, 0, index.blocks() * elements());
  }

  /// Clears overhanging values among values first … first + count - 1 of the matrix; `values` points to the
  /// first.
  template <class T> void clear_overhang(T* values, std::int64_t first, std::int64_t count) const noexcept {
    if (!overhangs()) return;
    const std::int64_t end = first + count;
    for (int line = index.line_of(first / elements());
         line < index.lines() && index.blocks_before(line) * elements() < end; ++line)
      clear_line(values, line, {0, index.width()}, first, count);
  }

 private:
  std::int64_t elements() const { return std::int64_t(block_rows) * block_cols; }

  /// Clears the blocks of one line that contain any of values first … first + count - 1.
  template <class T>
  void clear_line(T* values, int line, range columns, std::int64_t first, std::int64_t count) const {
    const int last_row = int((rows - 1) / block_rows), last_col = int((cols - 1) / block_cols);
    const bool whole_line = line == last_row && rows % block_rows != 0;
    const block_line blocks = index.line(line);
    const std::int64_t before = first / elements() - blocks.first,
                       behind = ceil_div(first + count, elements()) - blocks.first;
    // In the other lines only the last block can overhang.
    const int begin = int(std::max<std::int64_t>(before, whole_line ? 0 : std::max(0, blocks.count - 1))),
              end = int(std::min<std::int64_t>(behind, blocks.count));
    for (int b = begin; b < end; ++b)
      if (blocks.columns[b] >= columns.first && blocks.columns[b] < columns.last &&
          (whole_line || blocks.columns[b] == last_col))
        clear_block(values, blocks.first + b, line, blocks.columns[b], first, count);
  }

  template <class T>
  void clear_block(T* values, std::int64_t slot, int line, int column, std::int64_t first,
                   std::int64_t count) const {
    const std::int64_t height = std::min<std::int64_t>(block_rows, rows - std::int64_t(line) * block_rows),
                       width = std::min<std::int64_t>(block_cols, cols - std::int64_t(column) * block_cols);
    for (int row = 0; row < block_rows; ++row) {
      const std::int64_t at = slot * elements() + std::int64_t(row) * block_cols - first;
      const std::int64_t from = std::clamp<std::int64_t>(at + (row < height ? width : 0), 0, count),
                         to = std::clamp<std::int64_t>(at + block_cols, 0, count);
      std::fill(values + from, values + to, T(0));
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/map.hpp
#ifndef TESSERA_SINGLE_KERNELS_MAP
#define TESSERA_SINGLE_KERNELS_MAP
#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Calls visit(token, live lanes) for each register of a panel that holds one of its first `tokens` tokens.
template <int Lanes, class Visit> TESSERA_INLINE void for_each_register(auto tokens, Visit&& visit) {
  for (int token = 0; token < tokens; token += Lanes) visit(token, std::min(Lanes, tokens - token));
}

/// Computes a tree in E's accumulator type and stores it as E. Kernels take a tree by value, so that its
/// addresses stay in registers while results are stored.
template <class Arch, element E, class Tree> struct map {
  using T = accumulator_t<E>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;

  /// y = tree, for features [first, last) of the panel that begins with token number `first_token`.
  static void run_panel(Tree tree, E* y, std::int64_t first, std::int64_t last, int tokens,
                        std::int64_t first_token) noexcept {
    // A constant number of tokens unrolls the loop over registers; worthwhile if the tree is little code.
    if constexpr (!Tree::costly)
      if (tokens == panel_tokens)
        return run_features(tree, y, first, last, std::integral_constant<int, panel_tokens>(), first_token);
    run_features(tree, y, first, last, tokens, first_token);
  }

  /// y = tree, for each token.
  static void run_tokens(Tree tree, E* y, int tokens, std::int64_t first_token) noexcept {
    for_each_register<lanes>(tokens, [&](int token, int live) {
      simd::store_values(y + token, value(tree, {0, token, first_token}, live));
    });
  }

  /// y = tree, for `count` consecutive values from number `first` on.
  static void run_values(Tree tree, E* y, std::int64_t count, std::int64_t first) noexcept {
    for (std::int64_t i = 0; i < count; i += lanes) {
      const batch all = value(tree, {i, 0, first}, int(std::min<std::int64_t>(lanes, count - i)));
      if constexpr (tree::is_stochastic<Tree>)
        simd::store_values(y + i, all, tree.template bits<Arch>(0, first + i));
      else
        simd::store_values(y + i, all);
    }
  }

  /// The sum of the tree over the first `features` features of a panel, and over its tokens.
  static double sum_panel(Tree tree, std::int64_t features, int tokens, std::int64_t first_token) noexcept {
    double total = 0;
    for (std::int64_t f = 0; f < features; ++f) {
      batch sum(T(0));
      for_each_register<lanes>(tokens, [&](int token, int live) TESSERA_INLINE_LAMBDA {
        sum = sum + value(tree, {f, token, first_token}, live);
      });
      total += static_cast<double>(simd::sum_lanes(sum));
    }
    return total;
  }

  /// The sum of the tree over `count` values.
  static double sum_values(Tree tree, std::int64_t count, std::int64_t first) noexcept {
    batch sum(T(0));
    for (std::int64_t i = 0; i < count; i += lanes)
      sum = sum + value(tree, {i, 0, first}, int(std::min<std::int64_t>(lanes, count - i)));
    return static_cast<double>(simd::sum_lanes(sum));
  }

 private:
  template <class, element, class, class> friend struct squares;

  /// The tree's value at one register; zero in lanes beyond the `live` ones.
  TESSERA_INLINE static batch value(Tree const& tree, position const& at, int live) {
    const batch all = tree::evaluate(tree, at, batch(T(0)));
    return live < lanes ? simd::first_lanes(all, live) : all;
  }

  /// Computes features that share a lane side by side; feature `first` begins a lane.
  TESSERA_INLINE static void run_features(Tree const& tree, E* y, std::int64_t first, std::int64_t last,
                                          auto tokens, std::int64_t first_token) {
    constexpr int features_a_lane = element_traits<E>::features_a_lane;
    for (std::int64_t feature = first; feature < last; feature += features_a_lane)
      for_each_register<lanes>(tokens, [&](int token, int live) TESSERA_INLINE_LAMBDA {
        batch values[unsigned(features_a_lane)];
        unroll<features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
          values[i] = value(tree, {feature + i, token, first_token}, i == 0 || feature + i < last ? live : 0);
        });
        store_lanes<numbers::any>(y + place_in_panel<E>(feature, token), tree, values, feature,
                                  first_token + token);
      });
  }
};

/// `to` = tree, for some values in the accumulator.
template <element T, class Tree> struct assignment {
  Tree tree;
  T* to;
};

/// The sums of the squares of two trees. Values that they read are assigned in the same loop, some registers
/// at a time, so that they come from memory while divisions and roots are computed: LAMB takes 0.8 of the
/// time with 16 registers, in place of all of a tile, and 1.2 times as long with one.
template <class Arch, element T, class First, class Second> struct squares {
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int at_once = 16;  // registers

  /// In double, over values [begin, end) of `size` values, which are numbered from `first` on. Assigns to the
  /// registers that begin there.
  template <class... Tree>
  static std::array<double, 2> run(tree::operands<assignment<T, Tree>...> assigned, First one, Second two,
                                   range of, std::int64_t size, std::int64_t first) noexcept {
    simd::batch<double, Arch> sum(0.0), sum_of_second(0.0);
    for (std::int64_t next = of.first / lanes * lanes; next < of.last;) {
      const std::int64_t begin = next, end = std::min<std::int64_t>(of.last, begin + at_once * lanes);
      tree::with(assigned,
                 [&](auto const&... each) { (assign(each, begin, end, of.first, size, first), ...); });
      for (; next < end; next += lanes) {
        auto a = at(one, next, of.last, first), b = at(two, next, of.last, first);
        if (next < of.first) {
          a = simd::without_first_lanes(a, int(of.first - next));
          b = simd::without_first_lanes(b, int(of.first - next));
        }
        simd::add_squares(sum, a);
        simd::add_squares(sum_of_second, b);
      }
    }
    return {simd::sum_lanes(sum), simd::sum_lanes(sum_of_second)};
  }

 private:
  template <class Tree>
  TESSERA_INLINE static void assign(assignment<T, Tree> const& to, std::int64_t begin, std::int64_t end,
                                    std::int64_t first_begin, std::int64_t size, std::int64_t first) {
    for (std::int64_t i = begin; i < end; i += lanes)
      if (i >= first_begin) simd::store_values(to.to + i, at(to.tree, i, size, first));
  }
  template <class Tree>
  TESSERA_INLINE static simd::batch<T, Arch> at(Tree const& tree, std::int64_t i, std::int64_t end,
                                                std::int64_t first) {
    return map<Arch, T, Tree>::value(tree, {i, 0, first}, int(std::min<std::int64_t>(lanes, end - i)));
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/core/block_shape.hpp
#ifndef TESSERA_SINGLE_CORE_BLOCK_SHAPE
#define TESSERA_SINGLE_CORE_BLOCK_SHAPE
namespace tessera { inline namespace TESSERA_ISA {

/// The size of a block: the unit of storage and of sparsity of a weight matrix. Stored row by row.
template <int Rows, int Cols = Rows> struct block_shape {
  static_assert(Rows > 0 && Cols > 0, "a block has at least one row and one column");
  static constexpr int rows = Rows;
  static constexpr int cols = Cols;
  static constexpr int elements = Rows * Cols;
};

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/tensor/pattern_algebra.hpp
#ifndef TESSERA_SINGLE_TENSOR_PATTERN_ALGEBRA
#define TESSERA_SINGLE_TENSOR_PATTERN_ALGEBRA
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace tessera { inline namespace TESSERA_ISA {

/// The size of a block in elements, where it is known at run time only.
struct block_size {
  int rows = 1;
  int cols = 1;
};

namespace detail {

void check_block(const char* operation, block_size block);

/// The number of blocks that cover `elements` ≥ 0 elements; block ≥ 1.
inline int blocks_over(int elements, int block) {
  return static_cast<int>(ceil_div<std::int64_t>(elements, block));
}

/// The pattern whose row i has the columns that list(i, columns) appends to `columns`, ascending.
///   Lists every row twice: the first time only counts, so that a pattern that is too large is refused before
///   it is allocated, and a full one never becomes a list.
pattern pattern_by_rows(const char* operation, int block_rows, int block_cols,
                        function_ref<void(int, std::vector<std::int32_t>&)> list);

void check_same_grid(const char* operation, pattern const& a, pattern const& b);

}  // namespace detail

/// The blocks that a or b stores (union). Throws shape_error, as the next two, if the grids differ.
pattern operator|(pattern const& a, pattern const& b);

/// The blocks that both a and b store (intersection).
pattern operator&(pattern const& a, pattern const& b);

/// The blocks that a stores and b does not (difference).
pattern operator-(pattern const& a, pattern const& b);

/// Whether a stores all blocks of `part`, a pattern of its grid. Throws shape_error if the grids differ.
bool stores_all(pattern const& a, pattern const& part);

/// Block (j, i) for every block (i, j) of p.
pattern transposed(pattern const& p);

/// The stored part of a matrix in blocks of another size: a block of the result is stored if it shares an
/// element with a stored block of p. So a coarse block is stored if any of its fine ones is, and a fine one
/// if its coarse one is.
///   rows, cols    size of the matrix in elements; p covers it with blocks of size `from`
///   Throws shape_error if it does not, or unless one of the two heights and one of the two widths divides
///   the other.
pattern reblocked(pattern const& p, int rows, int cols, block_size from, block_size to);

/// The blocks of a·b that can be non-zero: the symbolic phase of a product of sparse matrices (Gustavson
/// 1978), whose numeric phase is `c = a * b`. Throws shape_error if a's columns are not b's rows.
pattern product_pattern(pattern const& a, pattern const& b);

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY void check_block(const char* operation, block_size block) {
  if (block.rows < 1 || block.cols < 1)
    throw shape_error(message("[", operation, "] a block of ", block.rows, " x ", block.cols,
                              " elements: both numbers must be at least 1"));
}

TESSERA_COLD TESSERA_BODY pattern pattern_by_rows(const char* operation, int block_rows, int block_cols,
                                                  function_ref<void(int, std::vector<std::int32_t>&)> list) {
  check_grid(operation, block_rows, block_cols);
  std::vector<std::int32_t> row;
  std::int64_t stored = 0;
  for (int i = 0; i < block_rows; ++i) {
    row.clear();
    list(i, row);
    stored += static_cast<std::int64_t>(row.size());
    check_stored(operation, stored);
  }
  if (stored == std::int64_t{block_rows} * block_cols) return pattern::dense(block_rows, block_cols);

  std::vector<std::int32_t> row_start, cols;
  row_start.reserve(static_cast<std::size_t>(block_rows) + 1);
  cols.reserve(static_cast<std::size_t>(stored));
  for (int i = 0; i < block_rows; ++i) {
    row_start.push_back(static_cast<std::int32_t>(cols.size()));
    list(i, cols);
  }
  row_start.push_back(static_cast<std::int32_t>(cols.size()));
  return pattern::from_right_rows(block_rows, block_cols, std::move(row_start), std::move(cols));
}

TESSERA_BODY void check_same_grid(const char* operation, pattern const& a, pattern const& b) {
  if (a.block_rows() != b.block_rows() || a.block_cols() != b.block_cols())
    throw shape_error(message("[", operation, "] the left pattern has a grid of ", a.block_rows(), " x ",
                              a.block_cols(), " blocks but the right one ", b.block_rows(), " x ",
                              b.block_cols(), ": they must be equal"));
}

/// Joins two patterns of one grid row by row; `join` is std::set_union or a relative of it.
template <class Join>
pattern join_rows(const char* operation, pattern const& a, pattern const& b, Join join) {
  return pattern_by_rows(operation, a.block_rows(), a.block_cols(), [&](int i, auto& columns) {
    const auto x = a.row(i), y = b.row(i);
    join(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(columns));
  });
}

}  // namespace detail

TESSERA_BODY pattern operator|(pattern const& a, pattern const& b) {
  detail::check_same_grid("pattern | pattern", a, b);
  if (a.is_dense()) return a;
  if (b.is_dense()) return b;
  return detail::join_rows("pattern | pattern", a, b, [](auto... range) { std::set_union(range...); });
}

TESSERA_BODY bool stores_all(pattern const& a, pattern const& part) {
  detail::check_same_grid("stores_all", a, part);
  if (a.is_dense() || a.serial() == part.serial()) return true;
  for (int i = 0; i < a.block_rows(); ++i) {
    const auto all = a.row(i), some = part.row(i);
    if (!std::includes(all.begin(), all.end(), some.begin(), some.end())) return false;
  }
  return true;
}

TESSERA_BODY pattern operator&(pattern const& a, pattern const& b) {
  detail::check_same_grid("pattern & pattern", a, b);
  if (a.is_dense()) return b;
  if (b.is_dense()) return a;
  return detail::join_rows("pattern & pattern", a, b, [](auto... range) { std::set_intersection(range...); });
}

TESSERA_BODY pattern operator-(pattern const& a, pattern const& b) {
  detail::check_same_grid("pattern - pattern", a, b);
  return detail::join_rows("pattern - pattern", a, b, [](auto... range) { std::set_difference(range...); });
}

TESSERA_BODY pattern transposed(pattern const& p) {
  if (p.is_dense()) return pattern::dense(p.block_cols(), p.block_rows());
  const auto start = p.col_start(), rows = p.rows();
  return pattern::from_right_rows(p.block_cols(), p.block_rows(), {start.begin(), start.end()},
                                  {rows.begin(), rows.end()});
}

TESSERA_BODY pattern reblocked(pattern const& p, int rows, int cols, block_size from, block_size to) {
  const char* const operation = "reblocked";
  detail::check_grid(operation, rows, cols);
  detail::check_block(operation, from);
  detail::check_block(operation, to);
  const auto divides = [](int a, int b) { return a % b == 0 || b % a == 0; };
  if (!divides(from.rows, to.rows) || !divides(from.cols, to.cols))
    throw shape_error(message("[", operation, "] blocks of ", from.rows, " x ", from.cols, " to blocks of ",
                              to.rows, " x ", to.cols, ": one height and one width must divide the other"));
  if (p.block_rows() != detail::blocks_over(rows, from.rows) ||
      p.block_cols() != detail::blocks_over(cols, from.cols))
    throw shape_error(message("[", operation, "] a matrix of ", rows, " x ", cols, " elements has ",
                              detail::blocks_over(rows, from.rows), " x ",
                              detail::blocks_over(cols, from.cols), " blocks of ", from.rows, " x ",
                              from.cols, " but the pattern has ", p.block_rows(), " x ", p.block_cols()));

  const int block_rows = detail::blocks_over(rows, to.rows), block_cols = detail::blocks_over(cols, to.cols);
  if (p.is_dense()) return pattern::dense(block_rows, block_cols);
  // The blocks of one size that share elements with block n of another, along an axis of `size` elements.
  const auto overlap = [](int n, int size, int of_this, int of_other) {
    const std::int64_t first = std::int64_t{n} * of_this,
                       last = std::min<std::int64_t>(size, first + of_this);
    return std::pair(static_cast<int>(first / of_other),
                     static_cast<int>(ceil_div<std::int64_t>(last, of_other)));
  };
  return detail::pattern_by_rows(operation, block_rows, block_cols, [&](int i, auto& columns) {
    const auto begin = static_cast<std::ptrdiff_t>(columns.size());
    const auto [first_row, last_row] = overlap(i, rows, to.rows, from.rows);
    for (int row = first_row; row < last_row; ++row)
      for (const int col : p.row(row)) {
        const auto [first, last] = overlap(col, cols, from.cols, to.cols);
        for (int j = first; j < last; ++j) columns.push_back(j);
      }
    std::sort(columns.begin() + begin, columns.end());
    columns.erase(std::unique(columns.begin() + begin, columns.end()), columns.end());
  });
}

TESSERA_BODY pattern product_pattern(pattern const& a, pattern const& b) {
  if (a.block_cols() != b.block_rows())
    throw shape_error(message("[product_pattern] a has ", a.block_cols(), " block columns but b has ",
                              b.block_rows(), " block rows"));
  if (a.is_dense() && b.is_dense() && a.block_cols() > 0)
    return pattern::dense(a.block_rows(), b.block_cols());
  const int width = b.block_cols();
  std::vector<int> seen_in(static_cast<std::size_t>(width), -1);
  std::vector<std::int32_t> found(static_cast<std::size_t>(width) + 1);
  return detail::pattern_by_rows("product_pattern", a.block_rows(), width, [&](int i, auto& columns) {
    std::int64_t pairs = 0;
    for (const int k : a.row(i)) pairs += b.row_count(k);
    if (pairs < width / 32) {
      const auto begin = static_cast<std::ptrdiff_t>(columns.size());
      for (const int k : a.row(i)) columns.insert(columns.end(), b.row(k).begin(), b.row(k).end());
      std::sort(columns.begin() + begin, columns.end());
      columns.erase(std::unique(columns.begin() + begin, columns.end()), columns.end());
    } else {
      for (const int k : a.row(i))
        for (const int j : b.row(k)) seen_in[static_cast<std::size_t>(j)] = i;
      std::int32_t* to = found.data();
      for (int j = 0; j < width; ++j) {  // no branch: which columns are found is hard to predict
        *to = j;
        to += seen_in[static_cast<std::size_t>(j)] == i;
      }
      columns.insert(columns.end(), found.data(), to);
    }
  });
}

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/tensor/pattern_moves.hpp
#ifndef TESSERA_SINGLE_TENSOR_PATTERN_MOVES
#define TESSERA_SINGLE_TENSOR_PATTERN_MOVES
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera { inline namespace TESSERA_ISA {

namespace detail {

enum class slot_order { ascending, descending };

/// Calls kept(slot in `from`, slot in `to`) for the blocks that both patterns store, and added(slot in `to`)
/// for the other blocks of `to`, in an order of the slots.
template <slot_order Order, class Kept, class Added>
void for_each_change(pattern const& from, pattern const& to, Kept&& kept, Added&& added) {
  constexpr bool ascends = Order == slot_order::ascending;
  for (int n = 0; n < to.block_rows(); ++n) {
    const int i = ascends ? n : to.block_rows() - 1 - n;
    const auto before = from.row(i), after = to.row(i);
    const auto first_before = static_cast<std::int32_t>(from.first_slot(i)),
               first_after = static_cast<std::int32_t>(to.first_slot(i)),
               size_before = static_cast<std::int32_t>(before.size()),
               size_after = static_cast<std::int32_t>(after.size());
    for (std::int32_t passed = 0, a = 0; a < size_after; ++a) {
      const std::int32_t here = ascends ? a : size_after - 1 - a, column = after.data()[here];
      const auto there = [&] { return ascends ? passed : size_before - 1 - passed; };
      const auto precedes = [&](std::int32_t other) { return ascends ? other < column : other > column; };
      while (passed < size_before && precedes(before.data()[there()])) ++passed;
      if (passed < size_before && before.data()[there()] == column)
        kept(first_before + there(), first_after + here);
      else
        added(first_after + here);
    }
  }
}

/// Calls move(slot in `from`, slot in `to`) and clear(slot in `to`) so that blocks can be moved within one
/// array: first the blocks that move down, ascending, then the blocks that move up, and the zeros,
/// descending. No block overtakes another, so none reaches a slot whose block has still to move.
template <class Move, class Clear>
void move_within(pattern const& from, pattern const& to, Move&& move, Clear&& clear) {
  for_each_change<slot_order::ascending>(
      from, to,
      [&](std::int32_t before, std::int32_t after) {
        if (after < before) move(before, after);
      },
      [](std::int32_t) {});
  for_each_change<slot_order::descending>(
      from, to,
      [&](std::int32_t before, std::int32_t after) {
        if (after > before) move(before, after);
      },
      clear);
}

}  // namespace detail

/// The moves of blocks when one pattern takes the place of another on its grid. Found
/// once, and applied to all matrices that share the pattern.
class pattern_moves {
 public:
  struct move {
    std::int32_t from, to;  // slots
  };

  /// Throws shape_error if the grids differ.
  pattern_moves(pattern const& from, pattern const& to);

  /// An empty list with room: call keep or add for every slot of the new pattern in ascending order, then
  /// order_moves.
  pattern_moves(std::int64_t most_kept, std::int64_t most_new)
      : kept_(static_cast<std::size_t>(most_kept) + 1), new_(static_cast<std::size_t>(most_new)) {}
  /// The block of slot `from` is to be that of slot `to` if it `stays`: an argument, so that the caller need
  /// not branch.
  void keep(std::int32_t from, std::int32_t to, bool stays) {
    kept_.data()[kept_count_] = {from, to};
    kept_count_ += stays;
  }
  void add(std::int32_t to) { new_.data()[new_count_++] = to; }
  /// Orders the moves so that they can be made within one array: none reaches a slot whose block has still to
  /// move. Neither kind of block overtakes another, so a stretch of blocks that all move up only has to begin
  /// at its upper end, and never meets its neighbours.
  void order_moves();

  /// The blocks that stay.
  std::vector<move> const& kept() const { return kept_; }
  /// The slots of new blocks, to be made zero after all moves.
  std::vector<std::int32_t> const& added() const { return new_; }

 private:
  std::vector<move> kept_;
  std::vector<std::int32_t> new_;
  std::size_t kept_count_ = 0, new_count_ = 0;
};

#ifdef TESSERA_BODY

TESSERA_BODY pattern_moves::pattern_moves(pattern const& from, pattern const& to)
    : pattern_moves(std::min(from.blocks(), to.blocks()), to.blocks()) {
  detail::check_same_grid("pattern_moves", from, to);
  detail::for_each_change<detail::slot_order::ascending>(
      from, to, [&](std::int32_t before, std::int32_t after) { keep(before, after, true); },
      [&](std::int32_t here) { add(here); });
  order_moves();
}

TESSERA_BODY void pattern_moves::order_moves() {
  kept_.resize(kept_count_);
  new_.resize(new_count_);
  const auto moves_up = [](move const& m) { return m.to > m.from; };
  for (auto at = kept_.begin(); at != kept_.end();) {
    const auto first = std::find_if(at, kept_.end(), moves_up);
    at = std::find_if_not(first, kept_.end(), moves_up);
    std::reverse(first, at);
  }
}

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/tensor/block_sparse_matrix.hpp
#ifndef TESSERA_SINGLE_TENSOR_BLOCK_SPARSE_MATRIX
#define TESSERA_SINGLE_TENSOR_BLOCK_SPARSE_MATRIX
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA {

/// Element (i, j) of a matrix, to be read as a number or assigned: `w(i, j) = 3`, `w(i, j) += 1`.
template <class Matrix> class matrix_element {
 public:
  using value_type = typename Matrix::value_type;

  matrix_element(Matrix& of, std::int64_t i, std::int64_t j) : of_(of), i_(i), j_(j) {}
  /// Not trivial, so that printf takes double(w(i, j)) alone.
  matrix_element(matrix_element const& other) : of_(other.of_), i_(other.i_), j_(other.j_) {}

  /// Zero if it is absent.
  operator value_type() const { return std::as_const(of_)(i_, j_); }
  /// Of a narrow element, as the type in which it is computed with.
  operator accumulator_t<value_type>() const
    requires(!std::is_same_v<value_type, accumulator_t<value_type>>)
  {
    return value_type(*this);
  }
  template <class Number>
    requires(std::is_arithmetic_v<Number> && !std::is_same_v<Number, accumulator_t<value_type>>)
  explicit operator Number() const {
    return static_cast<Number>(value_type(*this));
  }

  /// Throws shape_error if it is absent, or outside the matrix.
  value_type operator=(value_type value) const { return of_.stored_at(i_, j_) = value; }
  value_type operator=(matrix_element const& other) const { return *this = value_type(other); }
  value_type operator+=(value_type value) const { return *this = value_type(value_type(*this) + value); }

 private:
  Matrix& of_;
  std::int64_t i_, j_;
};

/// A matrix (rows, cols) of which the blocks of a pattern are stored, one after the other, each row by row.
/// Sizes need not be multiples of the block: elements that overhang are stored, and always zero.
template <element Element, class Block = void> class block_sparse_matrix {
 public:
  using tensor_tag = void;
  using value_type = Element;
  using block = Block;
  static constexpr domain laid_over = domain::blocks;

  block_sparse_matrix() = default;
  /// Dense: every block is stored.
  block_sparse_matrix(std::int64_t rows, std::int64_t cols)
      : block_sparse_matrix(rows, cols,
                            tessera::pattern::dense(blocks(rows, Block::rows), blocks(cols, Block::cols))) {}
  /// Zeros at the blocks of `stored`. Throws shape_error if its grid is not that of the matrix.
  TESSERA_COLD block_sparse_matrix(std::int64_t rows, std::int64_t cols, tessera::pattern stored)
      : rows_(rows), cols_(cols), pattern_(stored) {
    check_grid(stored);
    values_ = aligned_array<Element>(elements_of(stored));
  }
  /// A matrix over values that another owns, and keeps for longer: the blocks of `stored`, each row by row.
  /// Statements write them. A copy has values of its own, and so has this matrix after another matrix, or a
  /// pattern with another number of blocks, was assigned to it: see borrows.
  /// To borrow from a file, map it writable and privately (mmap, MAP_PRIVATE).
  ///   lent   begins at a multiple of 64 bytes; zeros follow the values up to the next one
  /// Throws shape_error if there are fewer values, or more, if one is not zero that overhangs the matrix or
  /// is behind the last, or the grid of the pattern is another one; option_error if `lent` is not aligned or
  /// the zeros behind it are missing, unless such values may be copied.
  TESSERA_COLD static block_sparse_matrix over(std::span<Element> lent TESSERA_LIFETIMEBOUND,
                                               std::int64_t rows, std::int64_t cols, tessera::pattern stored,
                                               borrowing how = borrowing::strict) {
    block_sparse_matrix made;
    made.rows_ = rows;
    made.cols_ = cols;
    made.check_grid(stored);
    made.pattern_ = stored;
    made.values_ = aligned_array<Element>::over(lent, elements_of(stored), elements_of(stored), how);
    made.check_overhang();
    return made;
  }
  static block_sparse_matrix over(std::span<Element> lent TESSERA_LIFETIMEBOUND, std::int64_t rows,
                                  std::int64_t cols, borrowing how = borrowing::strict) {
    return over(lent, rows, cols,
                tessera::pattern::dense(blocks(rows, Block::rows), blocks(cols, Block::cols)), how);
  }
  /// Whether the values are in the memory that `over` was given.
  bool borrows() const { return values_.borrows(); }
  /// The values of another, brought to this element.
  template <element Other>
  explicit block_sparse_matrix(block_sparse_matrix<Other, Block> const& other)
      : block_sparse_matrix(other.rows(), other.cols(), other.pattern()) {
    std::transform(other.begin(), other.end(), begin(), [](Other value) { return Element(value); });
  }
  template <node Value>
  block_sparse_matrix(Value const&) = delete;  // say c(rows, cols, pattern); run(ctx, c = a * b)
  block_sparse_matrix(block_sparse_matrix const&) = default;
  /// Leaves the other 0 x 0.
  block_sparse_matrix(block_sparse_matrix&& other) noexcept
      : rows_(std::exchange(other.rows_, 0)),
        cols_(std::exchange(other.cols_, 0)),
        pattern_(std::exchange(other.pattern_, tessera::pattern())),
        values_(std::move(other.values_)) {}
  block_sparse_matrix& operator=(block_sparse_matrix other) noexcept {
    std::swap(rows_, other.rows_);
    std::swap(cols_, other.cols_);
    std::swap(pattern_, other.pattern_);
    std::swap(values_, other.values_);
    return *this;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  tessera::pattern const& pattern() const { return pattern_; }
  std::size_t size_bytes() const { return values_.size_bytes(); }
  /// Stored values, overhanging ones included.
  std::int64_t size() const { return std::int64_t(values_.size()); }
  /// Stored values inside the matrix: its live parameters.
  std::int64_t live() const {
    std::int64_t count = 0;
    for (int i = 0; i < pattern_.block_rows(); ++i) {
      const std::int64_t height = std::min<std::int64_t>(Block::rows, rows_ - std::int64_t(i) * Block::rows);
      const auto columns = pattern_.row(i);
      count += std::int64_t(columns.size()) * Block::cols * height;
      if (!columns.empty() && columns.back() + 1 == pattern_.block_cols())
        count -= (std::int64_t(pattern_.block_cols()) * Block::cols - cols_) * height;
    }
    return count;
  }
  /// Stored values, overhanging ones included, which must stay zero.
  Element* data() { return values_.data(); }
  Element const* data() const { return values_.data(); }
  Element* begin() { return data(); }
  Element* end() { return data() + size(); }
  Element const* begin() const { return data(); }
  Element const* end() const { return data() + size(); }
  /// Sets every live value to value_at(row, column).
  template <class ValueAt> void generate(ValueAt&& value_at) {
    pattern_.for_each([&](int block_row, int block_col, std::int64_t slot) {
      for (int k = 0; k < Block::elements; ++k) {
        const std::int64_t row = std::int64_t(block_row) * Block::rows + k / Block::cols;
        const std::int64_t col = std::int64_t(block_col) * Block::cols + k % Block::cols;
        if (row < rows_ && col < cols_) at_slot(slot)[std::size_t(k)] = Element(value_at(row, col));
      }
    });
  }
  /// Sets every live value to `value`.
  template <class Number> void fill(Number const& value) {
    constexpr bool is_number = std::is_constructible_v<Element, Number const&>;
    static_assert(is_number, "[fill] takes a number: the values of a matrix are copied by run(ctx, w = a)");
    if constexpr (is_number) generate([value](std::int64_t, std::int64_t) { return value; });
  }

  /// The values of one block, row by row; values that overhang the matrix must stay zero.
  std::span<Element, Block::elements> at_slot(std::int64_t slot) {
    return std::span<Element, Block::elements>(values_.data() + slot * Block::elements, Block::elements);
  }
  std::span<Element const, Block::elements> at_slot(std::int64_t slot) const {
    return std::span<Element const, Block::elements>(values_.data() + slot * Block::elements,
                                                     Block::elements);
  }

  /// Where element (i, j) stands in data(), or -1 if it is absent or outside the matrix.
  std::int64_t find(std::int64_t i, std::int64_t j) const {
    if (i < 0 || i >= rows_ || j < 0 || j >= cols_) return -1;
    const std::int64_t slot = pattern_.find(int(i / Block::rows), int(j / Block::cols));
    return slot < 0 ? -1 : slot * Block::elements + i % Block::rows * Block::cols + j % Block::cols;
  }
  /// Element (i, j), to be assigned or read.
  matrix_element<block_sparse_matrix> operator()(std::int64_t i, std::int64_t j) {
    TESSERA_ASSERT(i >= 0 && i < rows_ && j >= 0 && j < cols_, "indices are in range");
    return {*this, i, j};
  }
  /// Element (i, j); zero if it is absent.
  Element operator()(std::int64_t i, std::int64_t j) const {
    TESSERA_ASSERT(i >= 0 && i < rows_ && j >= 0 && j < cols_, "indices are in range");
    const std::int64_t at = find(i, j);
    return at < 0 ? Element{} : values_[std::size_t(at)];
  }

  /// Another pattern of the same grid: blocks that stay keep their values, new ones are zero. Blocks move
  /// within the array, and nothing is allocated, unless their number changes.
  void set_pattern(tessera::pattern const& stored) {
    check_grid(stored);
    aligned_array<Element> other;
    const bool within = stored.blocks() == pattern_.blocks();
    if (!within) other = aligned_array<Element>(elements_of(stored));
    Element* const from = values_.data();
    Element* const to = within ? from : other.data();
    const auto move = [&](std::int32_t before, std::int32_t after) {
      std::copy_n(from + std::int64_t{before} * Block::elements, Block::elements,
                  to + std::int64_t{after} * Block::elements);
    };
    const auto clear = [&](std::int32_t slot) {
      std::fill_n(to + std::int64_t{slot} * Block::elements, Block::elements, Element{});
    };
    if (within) {
      detail::move_within(pattern_, stored, move, clear);
    } else {
      detail::for_each_change<detail::slot_order::ascending>(pattern_, stored, move, [](std::int32_t) {});
      values_ = std::move(other);
    }
    pattern_ = stored;
  }
  /// Another pattern, with the moves from the present one to it. Moves within the array, unless the number
  /// of blocks changes.
  void set_pattern(tessera::pattern const& stored, pattern_moves const& moves) {
    check_grid(stored);
    TESSERA_ASSERT(std::ssize(moves.kept()) + std::ssize(moves.added()) == stored.blocks(),
                   "the moves lead to this pattern");
    aligned_array<Element> other;
    const bool within = stored.blocks() == pattern_.blocks();
    if (!within) other = aligned_array<Element>(elements_of(stored));
    Element* const from = values_.data();
    Element* const to = within ? from : other.data();
    for (auto const& m : moves.kept())
      std::copy_n(from + std::int64_t{m.from} * Block::elements, Block::elements,
                  to + std::int64_t{m.to} * Block::elements);
    if (within)
      for (const std::int32_t slot : moves.added())
        std::fill_n(to + std::int64_t{slot} * Block::elements, Block::elements, Element{});
    else
      values_ = std::move(other);
    pattern_ = stored;
  }

  template <assigned Value> auto operator=(Value const& value) { return assign(*this, value); }
  template <element Other>
  void operator=(block_sparse_matrix<Other, Block> const&) = delete;  // say w = converted(v)
  template <expression Expression> auto operator+=(Expression&& value) {
    return accumulate(*this, static_cast<Expression&&>(value));
  }

 private:
  friend class matrix_element<block_sparse_matrix>;
  TESSERA_COLD Element& stored_at(std::int64_t i, std::int64_t j) {
    if (const std::int64_t at = find(i, j); at >= 0) return values_[std::size_t(at)];
    if (i < 0 || i >= rows_ || j < 0 || j >= cols_)
      throw shape_error(
          message("[w(i, j) = …] (", i, ", ", j, ") is outside the matrix of ", rows_, " x ", cols_));
    throw shape_error(message("[w(i, j) = …] (", i, ", ", j, ") is in block (", i / Block::rows, ", ",
                              j / Block::cols, "), which is absent: store it first, with set_pattern"));
  }
  TESSERA_COLD void check_grid(tessera::pattern const& stored) const {
    const int block_rows = blocks(rows_, Block::rows), block_cols = blocks(cols_, Block::cols);
    if (stored.block_rows() != block_rows || stored.block_cols() != block_cols)
      throw shape_error(message("[block_sparse_matrix] ", rows_, " x ", cols_, " in blocks of ", Block::rows,
                                " x ", Block::cols, " has ", block_rows, " x ", block_cols,
                                " blocks but the pattern has ", stored.block_rows(), " x ",
                                stored.block_cols()));
  }
  TESSERA_COLD void check_overhang() const {
    const int whole_rows = int(rows_ / Block::rows), whole_cols = int(cols_ / Block::cols);
    if (whole_rows == pattern_.block_rows() && whole_cols == pattern_.block_cols()) return;
    pattern_.for_each([&](int block_row, int block_col, std::int64_t slot) {
      if (block_row < whole_rows && block_col < whole_cols) return;
      for (int k = 0; k < Block::elements; ++k) {
        const std::int64_t row = std::int64_t(block_row) * Block::rows + k / Block::cols;
        const std::int64_t col = std::int64_t(block_col) * Block::cols + k % Block::cols;
        if ((row >= rows_ || col >= cols_) && double(at_slot(slot)[std::size_t(k)]) != 0)
          throw shape_error(message("[borrow] value ", k, " of block (", block_row, ", ", block_col,
                                    ") overhangs the matrix of ", rows_, " x ", cols_, ": it must be zero"));
      }
    });
  }
  static std::size_t elements_of(tessera::pattern const& stored) {
    return checked_multiply(std::size_t(stored.blocks()), Block::elements);
  }
  TESSERA_COLD static int blocks(std::int64_t size, int block) {
    if (size < 0 || size / block >= std::numeric_limits<int>::max())
      throw shape_error(message("[block_sparse_matrix] ", size, " rows or columns in blocks of ", block,
                                ": 0 … ", std::numeric_limits<int>::max() - 1, " blocks are possible"));
    return int(size / block) + (size % block != 0);
  }

  std::int64_t rows_ = 0, cols_ = 0;
  tessera::pattern pattern_;
  aligned_array<Element> values_;
};

/// Without a block there is only this message.
template <element Element> class block_sparse_matrix<Element, void> {
  static_assert(!element<Element>,
                "of which blocks? Write block_sparse_matrix<float, block_shape<16>>, or dense_matrix<float>, "
                "which stores every block");

 public:
  template <class... Arguments> block_sparse_matrix(Arguments const&...) {}
};

/// A matrix with every block stored. Dense is not another kind of matrix.
template <element Element> using dense_matrix = block_sparse_matrix<Element, block_shape<16>>;

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/tensor/vectors.hpp
#ifndef TESSERA_SINGLE_TENSOR_VECTORS
#define TESSERA_SINGLE_TENSOR_VECTORS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA {

/// Numbers along one axis of an activation, in memory one after the other. Elements beyond the last one
/// are always zero. The two axes are two types, so that a bias cannot be mistaken for a mask.
template <element Element, domain Axis> class axis_vector {
  static_assert(Axis == domain::features || Axis == domain::tokens, "an activation has two axes");
  static constexpr int multiple = Axis == domain::features ? granule : panel_tokens;

 public:
  using tensor_tag = void;
  using value_type = Element;
  static constexpr domain laid_over = Axis;

  axis_vector() = default;
  TESSERA_COLD explicit axis_vector(std::int64_t size) : size_(size), values_(padded(size)) {}
  /// The numbers of a vector, an array or a span, each converted.
  template <class Array>
    requires requires(Array const& array) { std::span(array); }
  explicit axis_vector(Array const& numbers) : axis_vector(std::int64_t(std::size(numbers))) {
    std::transform(std::begin(numbers), std::end(numbers), begin(),
                   [](auto number) { return static_cast<Element>(number); });
  }
  axis_vector(std::initializer_list<Element> numbers) : axis_vector(std::span(numbers)) {}
  /// A vector over numbers that another owns, and keeps for longer. Statements write them; a copy has numbers
  /// of its own, and so has this vector after another vector was assigned to it.
  ///   lent   begins at a multiple of 64 bytes; zeros follow `size` numbers up to a multiple of 16 features
  ///          or of 64 tokens
  /// Throws as block_sparse_matrix::over.
  TESSERA_COLD static axis_vector over(std::span<Element> lent TESSERA_LIFETIMEBOUND, std::int64_t size,
                                       borrowing how = borrowing::strict) {
    axis_vector made;
    made.values_ = aligned_array<Element>::over(lent, std::size_t(size), padded(size), how);
    made.size_ = size;
    return made;
  }
  bool borrows() const { return values_.borrows(); }
  /// The values of another tensor, for statements over stored values alone: there need not be as many zeros
  /// behind them as other statements rely on. As of any vector, an assignment of another
  /// vector gives it other numbers, and leaves the tensor as it is.
  static axis_vector of_values(Element* values, std::int64_t size) {
    axis_vector made;
    made.values_ = aligned_array<Element>::at(values, std::size_t(size));
    made.size_ = size;
    return made;
  }
  template <node Value> axis_vector(Value const&) = delete;  // say s(size); run(ctx, s = sum_tokens(x))
  axis_vector(axis_vector const&) = default;
  /// Leaves the other without elements.
  axis_vector(axis_vector&& other) noexcept
      : size_(std::exchange(other.size_, 0)), values_(std::move(other.values_)) {}
  axis_vector& operator=(axis_vector other) noexcept {
    std::swap(size_, other.size_);
    std::swap(values_, other.values_);
    return *this;
  }

  std::int64_t size() const { return size_; }
  std::int64_t features() const { return Axis == domain::features ? size_ : -1; }
  std::int64_t tokens() const { return Axis == domain::tokens ? size_ : -1; }
  std::size_t size_bytes() const { return values_.size_bytes(); }
  Element* data() { return values_.data(); }
  Element const* data() const { return values_.data(); }
  Element* begin() { return data(); }
  Element* end() { return data() + size_; }
  Element const* begin() const { return data(); }
  Element const* end() const { return data() + size_; }
  Element& operator[](std::int64_t i) { return values_[std::size_t(i)]; }
  Element const& operator[](std::int64_t i) const { return values_[std::size_t(i)]; }

  template <class Number> void fill(Number) = delete;  // say std::fill(x.begin(), x.end(), number)

  /// Another size. Values are lost. Allocates only to grow beyond the largest size so far.
  void resize(std::int64_t size) {
    if (size == size_) return;
    if (padded(size) > values_.size())
      values_ = aligned_array<Element>(padded(size));
    else
      std::fill(values_.begin(), values_.end(), Element{});
    size_ = size;
  }

  template <assigned Value> auto operator=(Value const& value) { return assign(*this, value); }
  template <element Other> void operator=(axis_vector<Other, Axis> const&) = delete;  // say y = converted(x)
  template <expression Expression> auto operator+=(Expression&& value) {
    return accumulate(*this, static_cast<Expression&&>(value));
  }

 private:
  static std::size_t padded(std::int64_t size) {
    if (size < 0) throw shape_error(message("[vector] ", size, " elements: there cannot be fewer than none"));
    return std::size_t(size) / multiple * multiple + (size % multiple ? multiple : 0);
  }
  std::int64_t size_ = 0;
  aligned_array<Element> values_;
};

/// A number for each feature, such as a bias.
template <element Element> using feature_vector = axis_vector<Element, domain::features>;

/// A number for each token, such as a loss or a mean over features.
template <element Element> using token_vector = axis_vector<Element, domain::tokens>;

/// The numbers of a vector, each several times in turn.
template <element Element> class repeated_vector {
 public:
  using tensor_tag = void;
  using view_tag = void;
  using value_type = Element;
  static constexpr domain laid_over = domain::features;

  repeated_vector(feature_vector<Element> const& of TESSERA_LIFETIMEBOUND, std::int64_t times)
      : numbers_(of.data()), bytes_(of.size_bytes()), size_(of.size() * times), times_(times) {}

  std::int64_t times() const { return times_; }
  std::int64_t size() const { return size_; }
  std::int64_t features() const { return size_; }
  std::int64_t tokens() const { return -1; }
  /// Of the vector.
  Element const* data() const { return numbers_; }
  std::size_t size_bytes() const { return bytes_; }

 private:
  Element const* numbers_;
  std::size_t bytes_;
  std::int64_t size_, times_;
};

/// In statements on stored values, numbers that several values share: of the blocks of a matrix, each for all
/// of its elements. Throws shape_error unless times is positive.
template <element Element>
repeated_vector<Element> repeat_interleave(feature_vector<Element> const& of TESSERA_LIFETIMEBOUND,
                                           std::int64_t times) {
  if (times < 1) throw shape_error(message("[repeat_interleave] numbers are to stand ", times, " times"));
  return {of, times};
}
template <element Element>
void repeat_interleave(feature_vector<Element> const&& of, std::int64_t times) = delete;

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/eval/elementwise.hpp
#ifndef TESSERA_SINGLE_EVAL_ELEMENTWISE
#define TESSERA_SINGLE_EVAL_ELEMENTWISE
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

// activation, vector or matrix = an elementwise expression; and the total of such an expression.

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

// ---- over panels ----

/// y = tree, over the features of a panel. A part of a panel is a range of granules.
template <class E, class Tree> struct elementwise_body {
  panels_to<E> to;
  Tree tree;

  panels_to<E> const& destination() const { return to; }
  range features_of(tile const& t) const { return granules_of(to.features, t.part, t.parts); }
  void compute_at(tile const& t, E* y) const noexcept {
    const range f = features_of(t);
    const auto on_panel = addressed(tree, t);
    kernels::map<simd::native, E, std::remove_const_t<decltype(on_panel)>>::run_panel(
        on_panel, y, f.first, f.last, tokens_of(t.index, to.tokens), t.index * panel_tokens);
  }
  void describe(tile const& t, task_description& d) const {
    const range f = features_of(t);
    describe_reads(tree, t, f.first, f.last, tokens_of(t.index, to.tokens), d);
  }
};

/// y = tree, a number for each token.
template <class E, class Tree> struct tokens_body {
  operand to;
  std::int64_t tokens;
  Tree tree;

  void compute(tile const& t) const noexcept {
    const auto on_panel = addressed(tree, t);
    kernels::map<simd::native, E, std::remove_const_t<decltype(on_panel)>>::run_tokens(
        on_panel, t.address<E>(to), tokens_of(t.index, tokens), t.index * panel_tokens);
  }

  void describe(tile const& t, task_description& d) const {
    const int live = tokens_of(t.index, tokens);
    describe_reads(tree, t, 0, 1, live, d);
    d.write(elements_of<E>(to, t.index, 0, live));
  }
};

/// Adds the step that computes an elementwise expression into panels, or rows, of elements E.
template <class E, class To, class Node> TESSERA_COLD void add_elementwise(plan& p, To to, Node const& node) {
  step_draft s("elementwise", cut::panels);
  s.writes(to.at);
  const auto tree = binder<accumulator_t<E>, over::panels>(p, s, to.tokens)(node);
  require_same_names(tree);
  s.tiles = to.panels();
  s.most_parts = int(ceil_div<std::int64_t>(to.features, granule));
  to.cut(p, s.most_parts, [&](int part, int parts) { return granules_of(to.features, part, parts); });
  p.add(s, to.finished(elementwise_body<E, std::remove_const_t<decltype(tree)>>{to.computed_at(), tree}));
}

template <class E, class Node>
  requires(!has_product<Node>)
TESSERA_COLD void lower_to(plan& p, panels_to<E> const& to, Node const& node) {
  require_elementwise<Node>();
  add_elementwise<E>(p, to, node);
}

template <class E, class Node> TESSERA_COLD void lower_to(plan& p, tokens_to<E> const& to, Node const& node) {
  require_elementwise<Node>();
  step_draft s("elementwise", cut::panels);
  s.writes(to.at);
  const auto tree = binder<accumulator_t<E>, over::panels>(p, s, to.tokens)(node);
  require_same_names(tree);
  s.tiles = to.panels();
  p.add(s, tokens_body<E, std::remove_const_t<decltype(tree)>>{to.at, to.tokens, tree});
}

// ---- over stored values ----

/// Stored values of a tensor, cut into tiles of `values_a_tile`. A vector has no blocks, and no value of it
/// overhangs.
struct value_tiles {
  std::int64_t count;
  kernels::block_grid blocks;

  std::int64_t first(tile const& t) const { return t.index * values_a_tile; }
  std::int64_t size(tile const& t) const { return std::min(values_a_tile, count - first(t)); }
  int tiles() const { return int(ceil_div(count, values_a_tile)); }
};
inline kernels::block_grid blocks_of(expr::extent const& size) {
  if (!size.stored) return {};
  return {index_of(*size.stored), size.rows, size.cols, int(size.block_rows), int(size.block_cols)};
}

/// y = tree, over a range of values of a vector or matrix.
template <class E, class Tree> struct values_body {
  operand to;
  value_tiles of;
  Tree tree;

  void compute(tile const& t) const noexcept {
    E* const y = t.address<E>(to);
    const auto on_values = addressed(tree, t);
    kernels::map<simd::native, E, std::remove_const_t<decltype(on_values)>>::run_values(
        on_values, y, of.size(t), of.first(t));
    of.blocks.clear_overhang(y, of.first(t), of.size(t));
  }

  void describe(tile const& t, task_description& d) const {
    describe_reads(tree, t, 0, of.size(t), 0, d);
    d.write(elements_of<E>(to, t.index, 0, of.size(t)));
  }
};

template <class Tensor, class Value> TESSERA_COLD void lower_values(plan& p, Tensor& to, Value const& value) {
  using E = typename Tensor::value_type;
  step_draft s("values", cut::values);
  const operand at = s.writes(by_values(to));
  const auto tree = binder<accumulator_t<E>, over::values>(p, s, 0)(value);
  require_same_names(tree);
  const value_tiles of{to.size(), blocks_of(expr::extent_of(expr::by_reference<Tensor>(to)))};
  s.tiles = of.tiles();
  p.add(s, values_body<E, std::remove_const_t<decltype(tree)>>{at, of, tree});
}

template <class T, class Value>
  requires(!expr::sums_by_itself<Value>)
void lower(plan& p, expr::statement<feature_vector<T>, Value, false> const& s) {
  lower_values(p, s.destination(), s.value);
}
template <class T, class Block, class Value>
  requires(!expr::sums_by_itself<Value> && !transposition<Value>)
void lower(plan& p, expr::statement<block_sparse_matrix<T, Block>, Value, false> const& s) {
  lower_values(p, s.destination(), s.value);
}

// ---- totals ----

/// A number for each panel: the sum of a tree over its rows. A tree of one number for each token has one row.
template <class T, class Tree> struct panel_totals_body {
  operand totals;
  std::int64_t rows, tokens;
  Tree tree;

  void compute(tile const& t) const noexcept {
    const auto on_panel = addressed(tree, t);
    *t.address<double>(totals) =
        kernels::map<simd::native, T, std::remove_const_t<decltype(on_panel)>>::sum_panel(
            on_panel, rows, tokens_of(t.index, tokens), t.index * panel_tokens);
  }
  void describe(tile const& t, task_description& d) const {
    describe_reads(tree, t, 0, rows, tokens_of(t.index, tokens), d);
    d.write(elements_of<double>(totals, t.index, 0, 1));
  }
};

/// A number for each range of values: the sum of a tree over it.
template <class T, class Tree> struct value_totals_body {
  operand totals;
  value_tiles of;
  Tree tree;

  void compute(tile const& t) const noexcept {
    const auto on_values = addressed(tree, t);
    using kernel = kernels::map<simd::native, T, std::remove_const_t<decltype(on_values)>>;
    double& total = *t.address<double>(totals);
    if (!of.blocks.overhangs()) {
      total = kernel::sum_values(on_values, of.size(t), of.first(t));
      return;
    }
    alignas(64) T value[values_a_tile];
    kernel::run_values(on_values, value, of.size(t), of.first(t));
    of.blocks.clear_overhang(value, of.first(t), of.size(t));
    total = 0;
    for (std::int64_t i = 0; i < of.size(t); ++i) total += static_cast<double>(value[i]);
  }
  void describe(tile const& t, task_description& d) const {
    describe_reads(tree, t, 0, of.size(t), 0, d);
    d.write(elements_of<double>(totals, t.index, 0, 1));
  }
};

/// How many stored values an expression over matrices or vectors goes through; -1 for a number.
inline std::int64_t values_in(expr::number const&) { return -1; }
template <expr::leaf Leaf> std::int64_t values_in(Leaf const& leaf) { return leaf.tensor().size(); }
template <class Node>
  requires requires(Node const& n) { n.arguments; }
std::int64_t values_in(Node const& node) {
  return std::apply(
      [](auto const&... argument) {
        std::int64_t count = -1;
        ((count = count < 0 ? values_in(argument) : count), ...);
        return count;
      },
      node.arguments);
}

/// Whether an expression has values of its own that can be added up.
template <class Node>
inline constexpr bool has_total = Node::laid_over == domain::panels || Node::laid_over == domain::tokens ||
                                  requires(Node const& node) { values_in(node); };
template <class Node>
  requires std::is_void_v<typename Node::value_type>
inline constexpr bool has_total<Node> = false;

/// Adds the step that sums an expression over activations, with a total for each panel.
template <class T, class Node>
operand lower_panel_totals(plan& p, expr::extent const& size, Node const& node) {
  if (size.tokens < 0 || (Node::laid_over == domain::panels && size.features < 0))
    throw shape_error("[total] the expression has no size of its own: it needs an activation");
  step_draft s("total", cut::panels);
  s.divides = division::never;
  s.tiles = int(ceil_div<std::int64_t>(size.tokens, panel_tokens));
  const operand to = s.writes(p.run_memory(std::size_t(s.tiles) * sizeof(double), sizeof(double)));
  const auto tree = binder<T, over::panels>(p, s, size.tokens)(node);
  require_same_names(tree);
  p.add(s, panel_totals_body<T, std::remove_const_t<decltype(tree)>>{
               to, Node::laid_over == domain::tokens ? 1 : size.features, size.tokens, tree});
  return to;
}

/// Adds the step that sums an expression over matrices or vectors, with a total for each range of values.
template <class T, class Node>
operand lower_value_totals(plan& p, expr::extent const& size, Node const& node) {
  const value_tiles of{values_in(node), blocks_of(size)};
  step_draft s("total", cut::values);
  s.tiles = of.tiles();
  const operand to = s.writes(p.run_memory(std::size_t(s.tiles) * sizeof(double), sizeof(double)));
  const auto tree = binder<T, over::values>(p, s, 0)(node);
  require_same_names(tree);
  p.add(s, value_totals_body<T, std::remove_const_t<decltype(tree)>>{to, of, tree});
  return to;
}

/// Runs a plan, and adds the totals that it leaves there.
double sum_of(context& ctx, plan& p, operand const& totals);

}  // namespace eval

/// The sum of an expression over all features and tokens of an activation, or all stored values of a matrix
/// or vector: fixed pieces are added in double in a fixed order.
template <expression Expression> double total(context& ctx, Expression const& expression) {
  const auto node = expr::hold(expression);
  const expr::extent size = expr::extent_of(node);
  using Node = std::remove_const_t<decltype(node)>;
  static_assert(eval::has_total<Node>,
                "total adds up activations, matrices, vectors and what is computed from them element by "
                "element: the total of sum_tokens(x) is that of x");
  using T = accumulator_t<typename Node::value_type>;
  eval::plan p(ctx.runs_on());
  if constexpr (Node::laid_over == domain::panels || Node::laid_over == domain::tokens)
    return eval::sum_of(ctx, p, eval::lower_panel_totals<T>(p, size, node));
  else
    return eval::sum_of(ctx, p, eval::lower_value_totals<T>(p, size, node));
}

#ifdef TESSERA_BODY

namespace eval {

TESSERA_COLD TESSERA_BODY double sum_of(context& ctx, plan& p, operand const& totals) {
  p.run(ctx);
  double sum = 0;
  double const* const piece = p.result<double>(totals);
  for (std::size_t i = 0; i < totals.bytes / sizeof(double); ++i) sum += piece[i];
  return sum;
}

}  // namespace eval

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/kernels/engine.hpp
#ifndef TESSERA_SINGLE_KERNELS_ENGINE
#define TESSERA_SINGLE_KERNELS_ENGINE
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The policy of an engine: where engines differ in W·x. The policies of quads and AMX have their own
/// headers.
///   exists<E, Arch>       it is compiled in for elements E, in registers of an instruction set
///   fits<Shape, Arch>     it multiplies blocks of a shape, as lines have them
///   blocks_beside<Shape>  the blocks of a line that it multiplies at once; a step before puts them side by
///                         side
///   offsets_x             x is offset, a chunk at a time, and sums begin at offsets_of_rows, which a step
///                         before computes
///   unrolls_blocks        the steps of a block are written out
///   prepare<Arch>(…)      brings features [first, last) of x into the form that it multiplies
///   begin_sum<Arch>(…)    the value at which the sums of a row begin
template <engine Which> struct engine_policy;

/// The policy of engines that multiply numbers, or pairs of them, lane by lane.
struct lane_policy {
  template <class Shape> static constexpr int blocks_beside = 1;
  static constexpr bool offsets_x = false, unrolls_blocks = false;

  template <class Arch, class X, class Factor>
  static void prepare(X const* x, std::int64_t first, std::int64_t last, int tokens, Factor* to) {
    simd::widen_features<Arch>(x, first, last, 0, tokens, to);
  }
  template <class Arch, class Sum>
  TESSERA_INLINE static simd::reg<Sum, Arch> begin_sum(Sum const*, std::int64_t) {
    return simd::zero<Arch, Sum>();
  }
};
template <> struct engine_policy<engine::fma> : lane_policy {
  template <class E, class Arch> static constexpr bool exists = true;
  template <class Shape, class Arch> static constexpr bool fits = true;
};
template <> struct engine_policy<engine::pairs> : lane_policy {
  template <class E, class Arch>
  static constexpr bool exists =
      element_traits<E>::features_a_lane == 2 && simd::multiplies<simd::stored_lane<E>, Arch>;
  template <class Shape, class Arch> static constexpr bool fits = Shape::cols % 2 == 0;
};

/// Whether an engine is compiled in for elements E, in registers of an instruction set.
template <engine Which, class E, class Arch>
inline constexpr bool has_engine = engine_policy<Which>::template exists<E, Arch>;

/// The factors that an engine multiplies if elements E are stored: E itself, or E widened to its accumulator.
template <engine Which, class E, class Arch>
using factor_of =
    std::conditional_t<Which == engine::amx || (Which != engine::fma && has_engine<Which, E, Arch>), E,
                       accumulator_t<E>>;

/// The sums that an engine keeps of products of elements E.
template <engine Which, class E> struct sum_of {
  using type = accumulator_t<E>;
};
template <engine Which, class E>
  requires(Which != engine::fma) && requires { typename simd::lane<E>::sum; }
struct sum_of<Which, E> {
  using type = typename simd::lane<E>::sum;
};

/// The register loop of all products, one step along the depth: sums[i][j] += left(i) · right(j) for all rows
/// i and registers First … Last - 1. All registers of the right operand are loaded first and kept; the left
/// operand takes one register at a time.
///   Lane       one factor, or a pair of narrow factors
///   left(i)    the register that multiplies row i
///   right(j)   register j of the right operand
template <class Lane, class Arch, int First, int Last, unsigned Rows, unsigned Registers, class Sum,
          class Left, class Right>
TESSERA_INLINE void multiply_some_registers(Sum (&sums)[Rows][Registers], Left const& left,
                                            Right const& right) {
  constexpr int count = Last - First;
  simd::reg<Lane, Arch> row, column[unsigned(count)];
  unroll<count>([&](auto j) TESSERA_INLINE_LAMBDA {
    column[j] = right(std::integral_constant<int, First + j>());
    if constexpr (Rows > 1) simd::pin(column[j]);  // else the load is part of the multiplication
  });
  unroll<int(Rows) * count>([&](auto n) TESSERA_INLINE_LAMBDA {
    constexpr int i = n / count, j = n % count;
    if constexpr (j == 0) {
      row = left(std::integral_constant<int, i>());
      if constexpr (count > 1) simd::pin(row);
    }
    sums[i][First + j] = simd::multiply_add<Lane, Arch>(row, column[j], sums[i][First + j]);
  });
}

/// multiply_some_registers for all registers.
template <class Lane, class Arch, unsigned Rows, unsigned Registers, class Sum, class Left, class Right>
TESSERA_INLINE void multiply_registers(Sum (&sums)[Rows][Registers], Left const& left, Right const& right) {
  multiply_some_registers<Lane, Arch, 0, int(Registers)>(sums, left, right);
}

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/simd/amx.hpp
#ifndef TESSERA_SINGLE_SIMD_AMX
#define TESSERA_SINGLE_SIMD_AMX
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

// Intel's matrix unit (AMX): eight tile registers of up to 16 rows of 64 bytes, and an instruction that
// multiplies two of them. Kernels take the unit as a type, the hardware's or one in plain C++ that gives its
// bits, and name registers by number:
//   unit(shapes)                          all registers get their shapes
//   zero<Register>()
//   load<Register>(from, row_bytes)       row r from `row_bytes` · r on
//   store<Register>(to, row_bytes)
//   multiply_add<Sums, Left, Right>()     sums += left · right
// of which left holds (rows, depth) of bfloat16, right (depth / 2, columns, 2), which is how a panel stands
// in memory, and sums (rows, columns) of float. multiply_add<Sums, Left, Right, float16>() multiplies
// float16; multiply_add<Sums, Left, Right, int8>() multiplies (rows, depth) by (depth / 4, columns, 4), and
// sums in integers of 32 bits.

namespace tessera { inline namespace TESSERA_ISA {
class float16;
class int8;
namespace simd {

inline constexpr int amx_registers = 8, amx_rows = 16, amx_columns = 16, amx_row_bytes = 64;

/// Rows and bytes of a row of each register, as the hardware reads them.
struct alignas(64) amx_shapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  constexpr void set(int number, int its_rows, int its_row_bytes) {
    rows[number] = static_cast<std::uint8_t>(its_rows);
    row_bytes[number] = static_cast<std::uint16_t>(its_row_bytes);
  }
};
static_assert(sizeof(amx_shapes) == 64);

/// The unit in plain C++. Its bits are the hardware's where a multiply-add rounds once and denormals are
/// flushed: measured on a Xeon with AMX, for normal, wide, subnormal and underflowing operands of bfloat16.
/// That of float16 follows Intel's Instruction Set Extensions Reference (TDPFP16PS), and is not measured.
class emulated_amx {
 public:
  explicit emulated_amx(amx_shapes const& shapes) : shapes_(shapes) {
    std::memset(register_, 0, sizeof register_);
  }
  static void release() noexcept {}

  template <int Register> void zero() { std::memset(register_[Register], 0, sizeof register_[Register]); }
  template <int Register> void load(void const* from, std::ptrdiff_t row_bytes) {
    zero<Register>();
    for (int r = 0; r < shapes_.rows[Register]; ++r)
      std::memcpy(register_[Register][r], static_cast<std::byte const*>(from) + r * row_bytes,
                  shapes_.row_bytes[Register]);
  }
  template <int Register> void store(void* to, std::ptrdiff_t row_bytes) const {
    for (int r = 0; r < shapes_.rows[Register]; ++r)
      std::memcpy(static_cast<std::byte*>(to) + r * row_bytes, register_[Register][r],
                  shapes_.row_bytes[Register]);
  }
  /// Integers wrap around; of floats, products of even and of odd positions along the depth are summed
  /// apart, from zero; then their sums are added, and the whole to `Sums`.
  template <int Sums, int Left, int Right, class E = bfloat16> void multiply_add() {
    if constexpr (std::is_same_v<E, int8>)
      multiply_add_integers(Sums, Left, Right);
    else
      multiply_add_floats<E>(Sums, Left, Right);
  }

 private:
  template <class E> void multiply_add_floats(int to_sums, int left, int right) {
    using floats = batch<float>;
    for (int r = 0; r < shapes_.rows[to_sums]; ++r)
      for (int column = 0; column < amx_columns; column += lanes<float>) {
        floats sums[2] = {floats(0.0f), floats(0.0f)};
        for (int k = 0; k < shapes_.rows[right]; ++k) {
          const lane_bits<native> pairs(load_bits(register_[right][k] + column * 4));
          unroll<2>([&](auto i) TESSERA_INLINE_LAMBDA {
            E factor;
            std::memcpy(static_cast<void*>(&factor), register_[left][r] + (2 * k + i) * 2, sizeof factor);
            sums[i] = simd::fma<native, float>(
                floats(float(factor)).data, lane<E>::template feature<i, native>(pairs).data, sums[i].data);
          });
        }
        float* const to = reinterpret_cast<float*>(register_[to_sums][r]) + column;
        (floats::load_unaligned(to) + (sums[0] + sums[1])).store_unaligned(to);
      }
  }
  void multiply_add_integers(int sums, int left, int right) {
    for (int r = 0; r < shapes_.rows[sums]; ++r)
      for (int column = 0; column < shapes_.row_bytes[sums] / 4; ++column) {
        std::uint32_t sum;
        std::memcpy(&sum, register_[sums][r] + 4 * column, sizeof sum);
        for (int k = 0; k < 4 * shapes_.rows[right]; ++k)
          sum += std::uint32_t(std::int8_t(register_[left][r][k])) *
                 std::uint32_t(std::int8_t(register_[right][k / 4][4 * column + k % 4]));
        std::memcpy(register_[sums][r] + 4 * column, &sum, sizeof sum);
      }
  }
  static reg<std::uint32_t> load_bits(std::byte const* from) {
    reg<std::uint32_t> bits;
    std::memcpy(&bits, from, sizeof bits);
    return bits;
  }

  amx_shapes const& shapes_;
  alignas(64) std::byte register_[amx_registers][amx_rows][amx_row_bytes];
};

#ifdef TESSERA_HARDWARE_AMX
/// The hardware, of the thread that uses it, which needs the permission of exec::amx_permitted. Written in
/// assembler: the compilers' own functions do not say that they read and write memory.
class hardware_amx {
 public:
  explicit hardware_amx(amx_shapes const& shapes) { asm volatile("ldtilecfg %0" ::"m"(shapes)); }
  static void release() noexcept { asm volatile("tilerelease" ::: "memory"); }

  template <int Register> TESSERA_INLINE void zero() { asm volatile("tilezero %%tmm%c0" ::"i"(Register)); }
  template <int Register> TESSERA_INLINE void load(void const* from, std::ptrdiff_t row_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(Register) : "memory");
  }
  template <int Register> TESSERA_INLINE void store(void* to, std::ptrdiff_t row_bytes) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(Register) : "memory");
  }
  template <int Sums, int Left, int Right, class E = bfloat16> TESSERA_INLINE void multiply_add() {
    if constexpr (std::is_same_v<E, int8>)
      asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(Left), "i"(Right));
    else if constexpr (std::is_same_v<E, float16>)
      asm volatile("tdpfp16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(Left), "i"(Right));
    else
      asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(Sums), "i"(Left), "i"(Right));
  }
};
#endif

/// The unit of products: the hardware, where it is compiled for, else plain C++, which only tests choose,
/// with TESSERA_EMULATED_AMX.
#ifdef TESSERA_HARDWARE_AMX
using native_amx = hardware_amx;
#else
using native_amx = emulated_amx;
#endif
#if defined(TESSERA_HARDWARE_AMX) || defined(TESSERA_EMULATED_AMX)
inline constexpr bool has_amx = true;
#else
inline constexpr bool has_amx = false;
#endif
/// Whether the unit multiplies elements E.
template <class E>
inline constexpr bool amx_multiplies = has_amx && (std::is_same_v<E, bfloat16> || std::is_same_v<E, int8>);
#if defined(TESSERA_HARDWARE_AMX_FP16) || defined(TESSERA_EMULATED_AMX)
template <> inline constexpr bool amx_multiplies<float16> = true;
#endif

}  // namespace simd
}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/kernels/amx_engine.hpp
#ifndef TESSERA_SINGLE_KERNELS_AMX_ENGINE
#define TESSERA_SINGLE_KERNELS_AMX_ENGINE
namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The engine `amx`, whose registers are matrices: W·x by it is amx_product.
template <> struct engine_policy<engine::amx> {
  static constexpr bool offsets_x = false;

  template <class E, class Arch> static constexpr bool exists = simd::amx_multiplies<E>;
  template <class Shape, class Arch>
  static constexpr bool fits =
      (Shape::rows == 4 || Shape::rows == 8 || Shape::rows % simd::amx_rows == 0) &&
      (Shape::cols == 4 || Shape::cols == 8 || Shape::cols == 16 || Shape::cols == 32);
  /// As many as fill a register, if they are narrower than its half.
  template <class Shape>
  static constexpr int blocks_beside =
      Shape::cols < 8 ? simd::amx_row_bytes / int(sizeof(bfloat16)) / Shape::cols : 1;
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/quads.hpp
#ifndef TESSERA_SINGLE_KERNELS_QUADS
#define TESSERA_SINGLE_KERNELS_QUADS
#include <algorithm>
#include <cstdint>

// The engine `quads`, which multiplies signed numbers by unsigned ones: x is offset by 128.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Where the sums of the rows of a line begin with quads: at -128 Σ w, since x is offset by 128.
template <class Arch, class Shape, class W>
[[gnu::noinline]] void offsets_of_rows(W const* w, int blocks, std::int32_t* offsets) {
  using lane = simd::lane<W>;
  constexpr int lanes = simd::lanes<std::int32_t, Arch>, lanes_a_row = Shape::cols / 4,
                block_lanes = Shape::elements / 4, at_once = std::max(1, lanes / block_lanes);
  alignas(64) std::int32_t sums[unsigned(std::max(lanes, block_lanes))];
  const auto zero = lane::template offset<Arch>(simd::zero<Arch, std::uint32_t>());
  const int whole = blocks / at_once * at_once;
  for (int l = 0; l < std::max(lanes, block_lanes); l += lanes) {
    auto sum = simd::zero<Arch, std::int32_t>();
    for (int b = 0; b < whole; b += at_once)
      sum = simd::multiply_add<simd::quad<W>, Arch>(
          simd::load_lanes<Arch>(w + std::int64_t(b) * Shape::elements + l * 4), zero, sum);
    simd::store<Arch>(sums + l, sum);
  }
  for (int row = 0; row < Shape::rows; ++row) {
    std::uint32_t sum = 0;  // wraps around, as the products' own sums do on their way
    for (int at = row * lanes_a_row; at < std::max(lanes, block_lanes); at += block_lanes)
      for (int k = 0; k < lanes_a_row; ++k) sum += std::uint32_t(sums[at + k]);
    for (int b = whole; b < blocks; ++b)
      for (int k = 0; k < Shape::cols; ++k)
        sum += 128 * std::uint32_t(int(float(w[std::int64_t(b) * Shape::elements + row * Shape::cols + k])));
    offsets[row] = std::int32_t(0 - sum);
  }
}

/// The lanes of x, from features [first, last) of a panel, offset by 128.
template <class Arch, class X>
void offset_features(X const* panel, std::int64_t first, std::int64_t last, X* to) {
  constexpr int step = simd::lanes<std::uint32_t, Arch> * element_traits<X>::features_a_lane;
  for (std::int64_t at = first * panel_tokens; at < last * panel_tokens; at += step, to += step)
    simd::store<Arch>(reinterpret_cast<simd::stored_lane<X>*>(to),
                      simd::lane<X>::template offset<Arch>(simd::load_lanes<Arch>(panel + at)));
}

template <> struct engine_policy<engine::quads> : lane_policy {
  static constexpr bool offsets_x = true;
  static constexpr bool unrolls_blocks = true;  // they have but a quarter of the steps

  template <class E, class Arch>
  static constexpr bool exists =
      element_traits<E>::features_a_lane == 4 && simd::multiplies<simd::stored_lane<E>, Arch>;
  /// Rows are whole lanes, and a block fills registers, or a register holds whole blocks.
  template <class Shape, class Arch>
  static constexpr bool fits =
      Shape::cols % 4 == 0 && (Shape::elements / 4 % simd::lanes<std::int32_t, Arch> == 0 ||
                               simd::lanes<std::int32_t, Arch> % (Shape::elements / 4) == 0);

  template <class Arch, class X>
  static void prepare(X const* x, std::int64_t first, std::int64_t last, int, X* to) {
    offset_features<Arch>(x, first, last, to);
  }
  template <class Arch>
  TESSERA_INLINE static simd::reg<std::int32_t, Arch> begin_sum(std::int32_t const* row_offsets,
                                                                std::int64_t row) {
    return simd::broadcast<Arch>(row_offsets[row]);
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/register_block.hpp
#ifndef TESSERA_SINGLE_KERNELS_REGISTER_BLOCK
#define TESSERA_SINGLE_KERNELS_REGISTER_BLOCK
namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The accumulators that a product kernel keeps in registers, `rows` of W times `registers` of tokens, and
/// the sizes for which it counts on a cache. One table for each size of register file.
template <class T, class Arch> struct register_block {
  static constexpr bool wide = simd::lanes<T, Arch> * sizeof(T) == 64;  // 32 registers of 64 bytes
  static constexpr int rows = 4;
  static constexpr int registers = wide ? 4 : 2;
  // Features of a panel in the L1, for a product of single elements, which reuses nothing in registers.
  static constexpr int chunk_features = (wide ? 40 << 10 : 24 << 10) / int(panel_tokens * sizeof(T));
  // Bytes of an activation that a product uses at a time: a whole panel, or else a chunk of it (both in the
  // L2), and the part of a chunk that one line reads (in the L1).
  static constexpr int whole_panel_bytes = 256 << 10, chunk_bytes = 128 << 10, line_bytes = 32 << 10;
  // Weights of at most this size stay in the caches from panel to panel.
  static constexpr int fitting_weights_bytes = 512 << 10;
  static constexpr const char* name = wide ? "4x4" : "4x2";
};

/// The largest power of two up to `limit` that divides `size`.
constexpr int power_of_two_divisor(int limit, int size) {
  while (size % limit != 0) limit /= 2;
  return limit;
}

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/eval/engines.hpp
#ifndef TESSERA_SINGLE_EVAL_ENGINES
#define TESSERA_SINGLE_EVAL_ENGINES
#include <string>
#include <string_view>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

/// The set-up around the products of a thread by an engine, if there is one: AMX configures tile registers.
template <engine By> inline constexpr exec::part_hook const* around_products = nullptr;
inline constexpr exec::part_hook around_amx{[] {}, [] { simd::native_amx::release(); }};
template <> inline constexpr exec::part_hook const* around_products<engine::amx> = &around_amx;

template <engine Which> using engine_constant = std::integral_constant<engine, Which>;

/// The engines compiled in for an element, of some.
template <class E, engine... Of> constexpr engine_set engines_for() {
  engine_set all;
  ((kernels::has_engine<Of, E, simd::native> ? all.allow(Of) : void()), ...);
  return all;
}

/// The engines compiled in for products of elements W and X along the blocks of lines.
template <class W, class X, class LineBlock> constexpr engine_set engines_for_blocks() {
  engine_set all;
  if constexpr (std::is_same_v<W, X> && element_traits<W>::features_a_lane > 1) {
    const auto allow = [&]<engine Which>(engine_constant<Which>) {
      if constexpr (kernels::has_engine<Which, W, simd::native>)
        if (kernels::engine_policy<Which>::template fits<LineBlock, simd::native>) all.allow(Which);
    };
    allow(engine_constant<engine::pairs>());
    allow(engine_constant<engine::quads>());
    allow(engine_constant<engine::amx>());
  }
  return all;
}

/// The element as which E is multiplied by elements Other. Numbers of one byte are only stored: they are
/// widened to bfloat16, which holds them exactly, if an engine multiplies it and Other is no wider, else to
/// the accumulator.
template <class E, class Other>
using multiplied_as = std::conditional_t<
    (sizeof(E) > 1), E,
    std::conditional_t<(sizeof(Other) == 1 || std::is_same_v<Other, bfloat16>) &&
                           engines_for<bfloat16, engine::pairs, engine::amx>() != engine_set(),
                       bfloat16, accumulator_t<E>>>;

/// Calls use(constant) with the engine for products of elements A and B: of `fma` and the engines Of that are
/// compiled in, the fastest on a machine.
template <class A, class B, engine... Of, class Use> void with_engine(machine const& on, Use&& use) {
  if constexpr (std::is_same_v<A, B> && element_traits<A>::features_a_lane > 1) {
    constexpr engine_set compiled = engines_for<A, Of...>();
    const engine fastest = fastest_engine(on.family, on.engines, compiled);
    if constexpr (compiled.allows(engine::amx))
      if (fastest == engine::amx) return use(engine_constant<engine::amx>());
    if constexpr (compiled.allows(engine::pairs))
      if (fastest == engine::pairs) return use(engine_constant<engine::pairs>());
  }
  use(engine_constant<engine::fma>());
}

}  // namespace eval

/// The engine of products of elements E on a machine, which decides about their last bits: ", BF16 by amx".
/// No words if none but `fma` is compiled in.
template <class E> std::string engine_words(machine const& on) {
  constexpr engine_set compiled = eval::engines_for<E, engine::pairs, engine::quads, engine::amx>();
  if constexpr (compiled == engine_set())
    return {};
  else
    return message(", ", element_traits<E>::name, " by ",
                   name_of(fastest_engine(on.family, on.engines, compiled)));
}

/// The choices that decide about the last bits of results, in words: instruction set, register block, and the
/// engines of elements E.
template <class... E> std::string arithmetic_of(machine const& on) {
  std::string words =
      message(TESSERA_ISA_NAME, ", register block ", kernels::register_block<float, simd::native>::name);
  ((words += engine_words<E>(on)), ...);
  return words;
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/kernels/product_operands.hpp
#ifndef TESSERA_SINGLE_KERNELS_PRODUCT_OPERANDS
#define TESSERA_SINGLE_KERNELS_PRODUCT_OPERANDS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// What the kernels of W·x take, and how they store results.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The element types of weights, activation and result. The accumulator is one for all three; sums have it
/// too, or are integers, which become accumulators before the tree.
template <element W, element X, element Y, engine By = engine::fma> struct product_types {
  static constexpr engine by = By;
  using weight = W;
  using activation = X;
  using result = Y;
  using accumulator = accumulator_t<W>;
  using sum = typename sum_of<By, W>::type;
};

/// The operands of one panel of W·x or Wᵀ·x.
template <class Types> struct panel_operands {
  typename Types::weight const* weights;
  block_index index;
  typename Types::activation const* x;  // the panel of the operand
  typename Types::result* y;            // the panel of the result
  int first_line, last_line;
  std::int64_t rows;      // features of y
  std::int64_t depth;     // stored features of x: a multiple of the granule
  int tokens;             // of this panel, 1 … 64
  std::byte const* next;  // data of the next panel, to be prefetched, or null
  std::size_t next_bytes;
  std::int64_t first_token;                          // number of the panel's first token in the batch
  typename Types::sum* sums;                         // scratch
  typename Types::sum const* row_offsets = nullptr;  // with quads: offsets_of_rows of all lines
};

/// One panel of y = tree(W·x) or y = tree(Wᵀ·x).
template <class Types, class Tree> struct product_arguments : panel_operands<Types> {
  Tree tree;
};

/// Applies the tree to one register of sums. Only the last register of a ragged panel may be Partial: its
/// lanes beyond the last token become zero.
template <bool Partial, class Types, class Tree, class Batch>
TESSERA_INLINE Batch result_of(product_arguments<Types, Tree> const& a, Batch sum, std::int64_t feature,
                               int token) {
  Batch value = tree::evaluate(a.tree, {feature, token, a.first_token}, sum);
  if constexpr (Partial)
    if (token + int(Batch::size) > a.tokens) value = simd::first_lanes(value, a.tokens - token);
  return value;
}

/// Applies the tree to the features that share a lane and stores them at `to`. `sums` are a register for each
/// feature; the last feature of y may be `alone` in its lane.
template <bool Partial, class Types, class Tree, class Batch>
TESSERA_INLINE void store_result(product_arguments<Types, Tree> const& a, Batch const* sums,
                                 std::int64_t feature, int token, typename Types::result* to, bool alone) {
  constexpr int features_a_lane = element_traits<typename Types::result>::features_a_lane;
  Batch values[unsigned(features_a_lane)];
  unroll<features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
    values[i] = i == 0 || !alone ? result_of<Partial>(a, sums[i], feature + i, token) : Batch(0);
  });
  store_lanes<numbers::normal>(to, a.tree, values, feature, a.first_token + token);
}

/// store_result at the address of (feature, token) in y.
template <bool Partial, class Types, class Tree, class Batch>
TESSERA_INLINE void store_result(product_arguments<Types, Tree> const& a, Batch const* sums,
                                 std::int64_t feature, int token) {
  store_result<Partial>(a, sums, feature, token, a.y + place_in_panel<typename Types::result>(feature, token),
                        feature + 1 == a.rows);
}

/// Applies the tree to sums that are still in the L1, and stores the results: of rows [0, count), which are
/// features from `first` on, and of `Registers` registers of tokens. A row is panel_tokens sums long. Not
/// inlined: a costly op in a register loop would spill accumulators.
template <class Arch, bool Partial, int Registers, class Types, class Tree>
[[gnu::noinline]] void store_sums(product_arguments<Types, Tree> const& a, typename Types::sum const* sums,
                                  std::int64_t first, int count, int token) {
  using batch = simd::batch<typename Types::accumulator, Arch>;
  using sum_batch = simd::batch<typename Types::sum, Arch>;
  constexpr int step = element_traits<typename Types::result>::features_a_lane;
  count = int(std::min<std::int64_t>(count, a.rows - first));
  auto* to = a.y + place_in_panel<typename Types::result>(first, token);
  const auto store = [&](int row, auto stored) TESSERA_INLINE_LAMBDA {
    for (int c = 0; c < Registers; ++c) {
      constexpr int width = batch::size;
      batch sum[unsigned(step)] = {};
      unroll<stored>([&](auto i) TESSERA_INLINE_LAMBDA {
        sum[i] = simd::as<typename Types::accumulator>(
            sum_batch::load_unaligned(sums + i * panel_tokens + token + c * width));
      });
      store_result<Partial>(a, sum, first + row, token + c * width, to + c * width * step, stored < step);
    }
    sums += stored * panel_tokens;
    to += step * panel_tokens;
  };
  int row = 0;
  for (; row + step <= count; row += step) store(row, std::integral_constant<int, step>());
  if constexpr (step > 1)
    if (row < count) store(row, std::integral_constant<int, 1>());
}

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/product_1x1.hpp
#ifndef TESSERA_SINGLE_KERNELS_PRODUCT_1X1
#define TESSERA_SINGLE_KERNELS_PRODUCT_1X1
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The stored elements of a sparse W or Wᵀ in blocks of 1x1, copied once for a run into the order in which
/// ordered_product reads them: by groups of lines, in a group by chunks of features.
template <class T> struct nonzeros {
  static constexpr int group = 64;                                                 // lines
  static constexpr int most_features = std::numeric_limits<std::uint16_t>::max();  // of a chunk
  static constexpr std::int64_t fewest_a_piece = 5;  // on average; if fewer, x is read from the L2

  /// The nonzeros of one line in one chunk. The pieces of a window are sorted by length, so that the branch
  /// at the end of a piece is predicted.
  struct piece {
    std::uint16_t line, count;  // line within the group
  };
  /// The pieces of one group in one chunk.
  struct window {
    piece const* pieces;
    T const* values;
    std::uint16_t const* features;  // of each nonzero, within the chunk
    int lines;
  };

  int lines, chunk, chunks;  // lines, features of a chunk, chunks
  std::int64_t stored;
  std::int32_t* starts = nullptr;  // first nonzero of each window (groups, chunks)
  piece* pieces = nullptr;
  T* values = nullptr;
  std::uint16_t* features = nullptr;

  /// The nonzeros of a matrix, at `memory`; in chunks of at most `most` features if pieces stay long enough
  /// (fewest_a_piece). If `memory` is null, only bytes() may be called.
  nonzeros(block_index const& index, std::int64_t depth, int most, std::byte* memory)
      : nonzeros(index.lines(), index.blocks(), depth, most, memory) {}
  /// Room for `all` nonzeros in `all_lines` lines.
  nonzeros(int all_lines, std::int64_t all, std::int64_t depth, int most, std::byte* memory)
      : lines(all_lines), stored(all) {
    const bool sparse = stored * most < fewest_a_piece * lines * depth;
    depth = std::max<std::int64_t>(1, depth);
    chunks = int(ceil_div<std::int64_t>(depth, sparse ? most_features : most));
    chunk = int(ceil_div<std::int64_t>(depth, chunks));
    if (!memory) return;
    values = reinterpret_cast<T*>(memory);
    starts = reinterpret_cast<std::int32_t*>(memory + value_bytes());
    pieces = reinterpret_cast<piece*>(starts + groups() * chunks);
    features = reinterpret_cast<std::uint16_t*>(pieces + std::int64_t(lines) * chunks);
  }
  std::size_t bytes() const {
    return value_bytes() + std::size_t(groups()) * std::size_t(chunks) * sizeof(std::int32_t) +
           std::size_t(lines) * std::size_t(chunks) * sizeof(piece) +
           std::size_t(stored) * sizeof(std::uint16_t);
  }

  /// The window of chunk c in the group that begins with `line`.
  window at(int line, int c) const {
    const int count = std::min(group, lines - line);
    const std::int32_t start = starts[std::int64_t(line / group) * chunks + c];
    return {pieces + std::int64_t(line) * chunks + std::int64_t(c) * count, values + start, features + start,
            count};
  }

  /// Copies the nonzeros of a group: a pass along the lines prefetches and counts, then chunk by chunk is
  /// copied.
  template <class W> void order(block_index const& index, W const* weights, int first_line) const noexcept {
    const int count = std::min(group, lines - first_line);
    piece* const all = pieces + std::int64_t(first_line) * chunks;
    const block_line all_lines =
        index.line(first_line);  // its pointers serve the group: lines are consecutive
    const auto first_block = std::int32_t(all_lines.first);
    const auto all_blocks = std::int32_t(index.blocks(first_line, first_line + count));
    std::int32_t from[group];  // next nonzero of each line, counted within the group
    for (int l = 0; l < count; ++l) {
      const block_line line = index.line(first_line + l);
      from[l] = std::int32_t(line.first) - first_block;
      fetch(line, weights);
      int at = 0;
      for (int c = 0; c < chunks; ++c) {
        const int first = at;
        at = c + 1 < chunks ? first_from((c + 1) * chunk, line) : line.count;
        all[c * count + l] = {std::uint16_t(l), std::uint16_t(at - first)};
      }
    }
    std::int32_t to = 0;
    for (int c = 0; c < chunks; ++c) {
      starts[std::int64_t(first_line / group) * chunks + c] = first_block + to;
      piece* const here = all + c * count;
      sort(here, count);
      for (int i = 0; i < count; ++i) {
        std::int32_t& first = from[here[i].line];
        // Whole steps may write beyond a piece: the next piece is written over the excess.
        const int length = here[i].count, whole = round_up(length, step);
        if (std::max(first, to) + whole <= all_blocks)
          for (int k = 0; k < whole; k += step) copy<step>(all_lines, weights, first + k, to + k, c * chunk);
        else
          for (int k = 0; k < length; ++k) copy<1>(all_lines, weights, first + k, to + k, c * chunk);
        first += length;
        to += length;
      }
    }
  }

  /// Copies the nonzeros of a group from any other format, to number `start` and on.
  ///   list(c, visit)   calls visit(line, feature, value) for the nonzeros of chunk c, in an order that is
  ///                    ascending in the features of each line; line in the group, feature in the chunk
  template <class List> void order(int first_line, std::int32_t start, List const& list) const noexcept {
    const int count = std::min(group, lines - first_line);
    for (int c = 0; c < chunks; ++c) {
      starts[std::int64_t(first_line / group) * chunks + c] = start;
      std::int32_t at[group] = {};  // nonzeros of each line, then the number of the next one
      list(c, [&](int line, int, auto) TESSERA_INLINE_LAMBDA { ++at[line]; });
      piece* const here = pieces + std::int64_t(first_line) * chunks + c * count;
      for (int l = 0; l < count; ++l) here[l] = {std::uint16_t(l), std::uint16_t(at[l])};
      sort(here, count);
      for (int i = 0; i < count; start += here[i++].count) at[here[i].line] = start;
      list(c, [&](int line, int feature, auto value) TESSERA_INLINE_LAMBDA {
        const std::int32_t to = at[line]++;
        values[to] = T(value);
        features[to] = std::uint16_t(feature);
      });
    }
  }

 private:
  static constexpr int step = 16;  // columns in a cache line of the index

  std::int64_t groups() const { return ceil_div(lines, group); }
  std::size_t value_bytes() const { return round_up<std::size_t>(std::size_t(stored) * sizeof(T), 64); }

  /// Prefetches the index and the weights of a line, which are later read in small pieces. Inlined, because
  /// GCC drops a call that has no effect.
  template <class W> TESSERA_INLINE static void fetch(block_line const& line, W const* weights) {
    for (int first = 0; first < line.count; first += step) {
      simd::prefetch<2>(line.columns + first);
      if (line.slots_in_w)
        for (int b = first; b < std::min(first + step, line.count); ++b)
          simd::prefetch<2>(weights + line.slot(b));
      else
        simd::prefetch<2>(weights + line.first + first);
    }
  }

  /// The first block of a line whose column is at least `limit`: a binary search without branches to
  /// mispredict.
  static int first_from(std::int32_t limit, block_line const& line) {
    int first = 0;
    for (int count = line.count; count > 0;) {
      const int half = (count + 1) / 2;
      first += line.columns[first + half - 1] < limit ? half : 0;
      count -= half;
    }
    return first;
  }

  /// Copies Count nonzeros from number `from` in the matrix to number `to` in the new order, both counted
  /// within the group.
  template <int Count, class W>
  TESSERA_INLINE void copy(block_line const& lines_of, W const* weights, std::int32_t from, std::int32_t to,
                           std::int32_t first_feature) const {
    T* const values_to = values + lines_of.first + to;
    std::uint16_t* const features_to = features + lines_of.first + to;
    for (int i = 0; i < Count; ++i)
      features_to[i] = std::uint16_t(lines_of.columns[from + i] - first_feature);
    if (lines_of.slots_in_w)
      for (int i = 0; i < Count; ++i) values_to[i] = T(weights[lines_of.slot(from + i)]);
    else if constexpr (std::is_same_v<W, T>)
      std::memcpy(values_to, weights + lines_of.first + from, Count * sizeof(T));
    else
      for (int i = 0; i < Count; ++i) values_to[i] = T(weights[lines_of.first + from + i]);
  }

  static void sort(piece* to, int count) {
    constexpr int classes = 128;  // of length; the longest pieces share one
    piece from[group];
    std::copy_n(to, count, from);
    std::int32_t place[classes + 1] = {};
    const auto of = [](piece p) { return std::min<int>(p.count, classes - 1); };
    for (int i = 0; i < count; ++i) ++place[of(from[i]) + 1];
    for (int k = 0; k < classes; ++k) place[k + 1] += place[k];
    for (int i = 0; i < count; ++i) to[place[of(from[i])]++] = from[i];
  }
};

/// One chunk of features of the product of ordered nonzeros.
template <class Arch, class Types> struct chunk_of_nonzeros {
  using operands = panel_operands<Types>;
  using X = typename Types::activation;
  using T = typename Types::accumulator;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int registers = std::min(8, panel_tokens / lanes);
  static constexpr int sets = std::max(1, 8 / registers);
  static constexpr int features_a_lane = element_traits<X>::features_a_lane;

  /// Adds the chunk's products to the sums of all lines and calls store_sums(sums, line, register, total) for
  /// each.
  template <class Store>
  TESSERA_INLINE static void walk(operands const& a, nonzeros<T> const& w, int c, int token,
                                  Store const& store_sums) {
    const std::int64_t first = std::int64_t(c) * w.chunk;
    T const* x;
    if constexpr (std::is_same_v<X, T>)
      x = a.x + first * panel_tokens + token;
    else
      x = widened(a, w, first, token);
    const std::size_t chunk_bytes = std::size_t(w.chunk) * panel_tokens * sizeof(X);
    const bool more = c + 1 < w.chunks;
    prefetcher next{
        more ? reinterpret_cast<std::byte const*>(a.x + first * panel_tokens) + chunk_bytes : a.next,
        nullptr};
    next.end = next.at + (more ? chunk_bytes : std::min(chunk_bytes, a.next_bytes));
    for (int line = a.first_line; line < a.last_line; line += w.group)
      walk_window(w.at(line, c), c == 0, x, a.sums + std::int64_t(line) * panel_tokens + token, line, next,
                  store_sums);
  }

  [[gnu::noinline]] static void store(operands const& a, nonzeros<T> const& w, int c, int token) {
    walk(a, w, c, token,
         [](T* sum, int, int, batch total) TESSERA_INLINE_LAMBDA { total.store_unaligned(sum); });
  }

  /// Elements of product_arguments::sums behind the sums of the lines: the widened chunk of x, if x is
  /// narrow.
  static std::int64_t room(nonzeros<T> const& w) {
    return std::is_same_v<X, T> ? 0 : std::int64_t(w.chunk + 2 * (features_a_lane - 1)) * panel_tokens;
  }

 private:
  struct prefetcher {
    std::byte const *at, *end;
  };

  /// The features of a chunk for some tokens, widened to the accumulator.
  [[gnu::noinline]] static T const* widened(operands const& a, nonzeros<T> const& w, std::int64_t first,
                                            int token) {
    T* const room = a.sums + std::int64_t(w.lines) * panel_tokens;
    const std::int64_t begin = first / features_a_lane * features_a_lane,
                       end = std::min(a.depth, first + w.chunk);
    simd::widen_features<Arch>(a.x, begin, end, token, token + registers * lanes, room);
    return room + (first - begin) * panel_tokens + token;
  }

  template <class Store>
  TESSERA_INLINE static void walk_window(typename nonzeros<T>::window const& w, bool begins, T const* x,
                                         T* sums, int first_line, prefetcher& next, Store const& store_sums) {
    std::size_t n = 0;
    for (int i = 0; i < w.lines; ++i) {
      const auto piece = w.pieces[i];
      if (next.at < next.end) {
        simd::prefetch<2>(next.at);
        next.at += 64;
      }
      T* const sum = sums + std::size_t(piece.line) * panel_tokens;
      reg acc[unsigned(sets)][1][unsigned(registers)];  // (sets, one row, registers of tokens)
      unroll<registers>([&](auto r) TESSERA_INLINE_LAMBDA {
        acc[0][0][r] = begins ? simd::zero<Arch, T>() : simd::load<Arch>(sum + r * lanes);
        if constexpr (sets > 1) acc[1][0][r] = simd::zero<Arch, T>();
      });
      n = add(w.values, w.features, n, piece.count, x, acc);
      unroll<registers>([&](auto r) TESSERA_INLINE_LAMBDA {
        store_sums(sum + r * lanes, first_line + piece.line, int(r),
                   sets > 1 ? batch(acc[0][0][r]) + batch(acc[sets - 1][0][r]) : batch(acc[0][0][r]));
      });
    }
  }

  /// Nonzeros alternate between two sets of accumulators where one set would wait for its own latency.
  TESSERA_INLINE static std::size_t add(T const* values, std::uint16_t const* features, std::size_t n,
                                        std::size_t count, T const* x,
                                        reg (&acc)[unsigned(sets)][1][unsigned(registers)]) {
    const auto one = [&](reg weight, std::size_t offset, int set) TESSERA_INLINE_LAMBDA {
      T const* const from = x + offset;
      multiply_registers<T, Arch>(
          acc[set], [&](auto) TESSERA_INLINE_LAMBDA { return weight; },
          [&](auto r) TESSERA_INLINE_LAMBDA { return simd::load<Arch>(from + r * lanes); });
    };
    const std::size_t end = n + count, last_four = end - count % 4;
    for (; n < last_four; n += 4) {
      std::uint64_t four;
      std::memcpy(&four, features + n, sizeof four);
      reg weight[4];
      simd::broadcast_four<Arch>(values + n, weight);
      unroll<4>([&](auto i) TESSERA_INLINE_LAMBDA {
        one(weight[i], (four >> (16 * i) & 0xffff) * panel_tokens, i % sets);
      });
    }
    for (; n < end; ++n) one(simd::broadcast<Arch>(values[n]), std::size_t(features[n]) * panel_tokens, 0);
    return n;
  }
};

/// The product of ordered nonzeros. A single row reuses nothing in registers, so x must come from the L1: a
/// panel is walked in chunks of features, and the sums of all lines are carried from chunk to chunk. Loads
/// limit the speed: features and values are loaded four at a time. A narrow x is widened once for each chunk,
/// and results that share a lane are rounded after the last sum.
template <class Arch, class Types, class Tree> struct ordered_product {
  using chunk = chunk_of_nonzeros<Arch, Types>;
  using T = typename Types::accumulator;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;

  static constexpr int results_a_lane = element_traits<typename Types::result>::features_a_lane;

  /// Bytes of product_arguments::sums.
  static std::size_t sums_bytes(nonzeros<T> const& w) {
    return std::size_t(std::int64_t(w.lines) * panel_tokens + chunk::room(w)) * sizeof(T);
  }

  /// The lines must be whole groups. a.sums may be y if both have one type, x is not widened and the tree
  /// does not read y.
  static void run(product_arguments<Types, Tree> const& a, nonzeros<T> const& w) noexcept {
    for (int token = 0; token < a.tokens; token += chunk::registers * lanes) {
      for (int c = 0; c + 1 < w.chunks; ++c) chunk::store(a, w, c, token);
      const auto store_sums = [&](T* sum, int line, int r, batch total) TESSERA_INLINE_LAMBDA {
        if constexpr (results_a_lane > 1) {
          total.store_unaligned(sum);
        } else if constexpr (Tree::costly) {
          total.store_unaligned(sum);
          if (r + 1 == chunk::registers) store_line(a, sum - r * lanes, line, token);
        } else {
          store_result<true>(a, &total, line, token + r * lanes);
        }
      };
      chunk::walk(a, w, w.chunks - 1, token, store_sums);
      if constexpr (results_a_lane > 1)
        for (int line = a.first_line; line < a.last_line; line += results_a_lane) store_lines(a, line, token);
    }
  }

 private:
  [[gnu::noinline]] static void store_line(product_arguments<Types, Tree> const& a, T const* sums, int line,
                                           int token) {
    for (int r = 0; r < chunk::registers; ++r) {
      const batch total = batch::load_unaligned(sums + r * lanes);
      store_result<true>(a, &total, line, token + r * lanes);
    }
  }

  /// Stores line … line + results_a_lane - 1, which share lanes of y.
  [[gnu::noinline]] static void store_lines(product_arguments<Types, Tree> const& a, int line, int token) {
    for (int r = 0; r < chunk::registers; ++r) {
      batch sums[unsigned(results_a_lane)];
      for (int i = 0; i < results_a_lane; ++i)
        sums[i] =
            line + i < a.last_line
                ? batch::load_unaligned(a.sums + std::int64_t(line + i) * panel_tokens + token + r * lanes)
                : batch(T(0));
      store_result<true>(a, sums, line, token + r * lanes);
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/simd/regroup.hpp
#ifndef TESSERA_SINGLE_SIMD_REGROUP
#define TESSERA_SINGLE_SIMD_REGROUP
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

// Registers whose lanes hold `Columns` columns of `lanes / Columns` consecutive tokens each, column by
// column: the form in which a product that sums over tokens needs no reduction until its end, for any width
// of block. Where an instruction multiplies pairs of elements, two tokens of one feature
// stand in one lane.

namespace tessera { inline namespace TESSERA_ISA { namespace simd {

/// Lanes of one feature of a panel, each of one token, or of two in a simd::pair.
template <class Lane> inline constexpr int lanes_a_panel = panel_tokens / elements_a_lane<Lane>;

/// True where the permutation of two registers is one instruction.
template <class T, class Arch>
inline constexpr bool permutes_two =
#ifdef __AVX512BW__
    lanes<T, Arch> * sizeof(T) == 64;
#else
    false;
#endif

namespace detail {
/// One register out of two: lane i is lane Index::at(i) of the 2 * lanes of a and b.
template <class T, class Arch, class Index>
TESSERA_INLINE reg<T, Arch> permute(reg<T, Arch> a, reg<T, Arch> b, Index) {
  using vector = typename compiler_vector<typename moved<T>::as, lanes<T, Arch>>::type;
  return [&]<int... i>(std::integer_sequence<int, i...>) TESSERA_INLINE_LAMBDA {
    return std::bit_cast<reg<T, Arch>>(
        __builtin_shufflevector(std::bit_cast<vector>(a), std::bit_cast<vector>(b), Index::at(i)...));
  }(std::make_integer_sequence<int, lanes<T, Arch>>());
}

/// One half of the step that exchanges bit `Bit` of the register's number with that of the column's.
template <int Lanes, int Tokens, int Bit, bool High> struct exchange {
  static constexpr int at(int lane) {
    const int column = lane / Tokens, token = lane % Tokens, distance = 1 << Bit;
    const bool set = (column & distance) != 0;
    if (!High) return set ? Lanes + (column - distance) * Tokens + token : lane;
    return set ? Lanes + lane : (column + distance) * Tokens + token;
  }
};

/// From `Columns` registers, one a column, to as many in which each holds one group of tokens of all columns:
///   r[c] lanes (group of tokens, token)   →   r[group] lanes (column, token)
template <int Columns, class Lane, class Arch> TESSERA_INLINE void exchange_columns(reg<Lane, Arch>* r) {
  constexpr int n = lanes<Lane, Arch>, lanes_a_column = n / Columns;
  unroll<5>([&](auto bit) TESSERA_INLINE_LAMBDA {
    if constexpr ((1 << bit) < Columns)
      unroll<Columns>([&](auto c) TESSERA_INLINE_LAMBDA {
        if constexpr ((c & (1 << bit)) == 0) {
          const auto a = r[c], b = r[c + (1 << bit)];
          r[c] = permute<Lane, Arch>(a, b, exchange<n, lanes_a_column, bit, false>{});
          r[c + (1 << bit)] = permute<Lane, Arch>(a, b, exchange<n, lanes_a_column, bit, true>{});
        }
      });
  });
}

template <int Keep, int Lanes, class T>
TESSERA_INLINE typename compiler_vector<T, Keep>::type fold(
    typename compiler_vector<T, Lanes>::type const& value) {
  if constexpr (Keep == Lanes)
    return value;
  else
    return [&]<int... i>(std::integer_sequence<int, i...>) TESSERA_INLINE_LAMBDA {
      return fold<Keep, Lanes / 2, T>(__builtin_shufflevector(value, value, i...) +
                                      __builtin_shufflevector(value, value, (Lanes / 2 + i)...));
    }(std::make_integer_sequence<int, Lanes / 2>());
}

template <int Lanes, int Odd> struct alternate {
  static constexpr int at(int lane) { return 2 * lane + Odd; }
};
}  // namespace detail

/// Loads the features of a panel that share its lanes, each to one register: a register of tokens from
/// `first` on, two by two or widened.
template <class Lane, class Arch, class X>
TESSERA_INLINE void load_features(X const* features, int first, reg<Lane, Arch>* to) {
  constexpr int features_a_lane = element_traits<X>::features_a_lane;
  if constexpr (std::is_same_v<Lane, accumulator_t<X>>) {
    widen_lanes<Arch>(features + features_a_lane * first, to);
  } else {
    static_assert(std::is_same_v<Lane, stored_lane<X>>);
    constexpr int n = lanes<Lane, Arch>;
    using halves = reg<std::uint16_t, Arch>;
    const auto a = std::bit_cast<halves>(load_lanes<Arch>(features + 4 * first));
    const auto b = std::bit_cast<halves>(load_lanes<Arch>(features + 4 * first + 2 * n));
    unroll<2>([&](auto i) TESSERA_INLINE_LAMBDA {
      to[i] = std::bit_cast<reg<Lane, Arch>>(
          detail::permute<std::uint16_t, Arch>(a, b, detail::alternate<2 * n, i>{}));
    });
  }
}

/// Stores `Columns` features of a panel, 64 tokens each, in the grouped form; more if more share a lane.
template <int Columns, class Arch, class X, class Lane>
TESSERA_INLINE void regroup(X const* features, Lane* grouped) {
  constexpr int n = lanes<Lane, Arch>, row = lanes_a_panel<Lane>, lanes_a_column = n / Columns;
  constexpr int features_a_lane = element_traits<X>::features_a_lane,
                at_once = std::max(Columns, features_a_lane);
  if constexpr (Columns > n) {  // for a matrix unit in plain C++
    for (int i = 0; i < row * Columns; ++i)
      for (int t = 0; t < elements_a_lane<Lane>; ++t)
        std::memcpy(reinterpret_cast<std::byte*>(grouped + i) + unsigned(t) * sizeof(X),
                    features + place_in_panel<X>(i % Columns, i / Columns * elements_a_lane<Lane> + t),
                    sizeof(X));
  } else {
    for (int first = 0; first < row; first += n) {
      reg<Lane, Arch> r[unsigned(at_once)];
      unroll<at_once / features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
        load_features<Lane, Arch>(features + i * features_a_lane * panel_tokens, first,
                                  r + i * features_a_lane);
      });
      unroll<at_once / Columns>([&](auto group) TESSERA_INLINE_LAMBDA {
        detail::exchange_columns<Columns, Lane, Arch>(r + group * Columns);
      });
      unroll<at_once>([&](auto c) TESSERA_INLINE_LAMBDA {
        constexpr int group = c / Columns, column = c % Columns;
        store<Arch>(grouped + group * Columns * row + (first / lanes_a_column + column) * n, r[c]);
      });
    }
  }
}

/// A square of registers, one for each lane: lane i of register k to lane k of register i.
template <class T, class Arch> TESSERA_INLINE void transpose(reg<T, Arch> (&r)[unsigned(lanes<T, Arch>)]) {
  detail::exchange_columns<lanes<T, Arch>, T, Arch>(r);
}

/// A square of words, one register for each row, into its transpose.
///   from_stride, to_stride   words from one row to the next
template <class Word, class Arch>
TESSERA_INLINE void transpose_square(Word const* from, std::int64_t from_stride, Word* to,
                                     std::int64_t to_stride) {
  constexpr int side = lanes<Word, Arch>;
  reg<Word, Arch> r[unsigned(side)];
  unroll<side>([&](auto i) TESSERA_INLINE_LAMBDA { r[i] = load<Arch>(from + i * from_stride); });
  detail::exchange_columns<side, Word, Arch>(r);
  unroll<side>([&](auto i) TESSERA_INLINE_LAMBDA { store<Arch>(to + i * to_stride, r[i]); });
}

/// A block (Rows, Cols), stored row by row, into its transpose: in one register, by square tiles (a
/// register for each lane), or number by number.
template <int Rows, int Cols, class Arch, class T>
TESSERA_INLINE void transpose(T const* __restrict from, T* __restrict to) {
  using lane =
      std::conditional_t<sizeof(T) == 2, std::uint16_t, std::conditional_t<sizeof(T) == 1, std::uint8_t, T>>;
  constexpr int most = int(sizeof(reg<float, Arch>) / sizeof(T)), fewest = int(16 / sizeof(T));
  constexpr int side = std::min(most, std::min(Rows & -Rows, Cols & -Cols));
  if constexpr (permutes_two<float, Arch> && Rows * Cols <= most &&
                std::has_single_bit(unsigned(Rows * Cols))) {
    typename compiler_vector<lane, Rows * Cols>::type block;
    std::memcpy(&block, from, sizeof block);
    block = [&]<int... i>(std::integer_sequence<int, i...>) TESSERA_INLINE_LAMBDA {
      return __builtin_shufflevector(block, block, (i % Rows * Cols + i / Rows)...);
    }(std::make_integer_sequence<int, Rows * Cols>());
    std::memcpy(static_cast<void*>(to), &block, sizeof block);
  } else if constexpr (side >= fewest) {
    using tile = typename xsimd::make_sized_batch_t<lane, unsigned(side)>::arch_type;
    for (int row = 0; row < Rows; row += side)
      for (int col = 0; col < Cols; col += side) {
        reg<lane, tile> r[unsigned(side)];
        unroll<side>([&](auto i) TESSERA_INLINE_LAMBDA {
          std::memcpy(&r[i], from + (row + i) * Cols + col, sizeof r[i]);
        });
        detail::exchange_columns<side, lane, tile>(r);
        unroll<side>([&](auto i) TESSERA_INLINE_LAMBDA {
          std::memcpy(static_cast<void*>(to + (col + i) * Rows + row), &r[i], sizeof r[i]);
        });
      }
  } else {
    for (int c = 0; c < Cols; ++c)
      for (int r = 0; r < Rows; ++r) to[c * Rows + r] = from[r * Cols + c];
  }
}

/// Features of a whole panel, from an even one on, one after the other as elements Y, which are X or its
/// accumulator: where they stand, or else in `room`.
template <class Arch, class X, class Y>
TESSERA_INLINE Y const* one_by_one(X const* panel, int features, [[maybe_unused]] Y* room) {
  constexpr int features_a_lane = element_traits<X>::features_a_lane;
  if constexpr (features_a_lane == 1) {
    return panel;
  } else {
    for (int at = 0; at < features * panel_tokens; at += features_a_lane * panel_tokens)
      regroup<1, Arch>(panel + at, reinterpret_cast<stored_lane<Y>*>(room + at));
    return room;
  }
}

/// `Tokens` consecutive values, repeated to fill a register.
template <int Tokens, class Arch, class T> TESSERA_INLINE reg<T, Arch> repeat(T const* from) {
  constexpr int n = lanes<T, Arch>;
  if constexpr (Tokens == 1) {
    return broadcast<Arch>(*from);
  } else if constexpr (Tokens == n) {
    return load<Arch>(from);
  } else if constexpr (Tokens * sizeof(T) == sizeof(double)) {
    double together;
    std::memcpy(&together, from, sizeof together);
    return std::bit_cast<reg<T, Arch>>(broadcast<Arch>(together));
  } else {
#ifdef __AVX512F__
    if constexpr (permutes_two<T, Arch> && Tokens * sizeof(T) == 16)
      return std::bit_cast<reg<T, Arch>>(
          _mm512_broadcast_f32x4(_mm_loadu_ps(reinterpret_cast<float const*>(from))));
    if constexpr (permutes_two<T, Arch> && Tokens * sizeof(T) == 32)
      return std::bit_cast<reg<T, Arch>>(
          _mm512_broadcast_f32x8(_mm256_loadu_ps(reinterpret_cast<float const*>(from))));
#endif
#ifdef __AVX__
    if constexpr (sizeof(reg<T, Arch>) == 32 && Tokens * sizeof(T) == 16)
      return std::bit_cast<reg<T, Arch>>(
          _mm256_broadcast_ps(static_cast<__m128 const*>(static_cast<void const*>(from))));
#endif
    alignas(64) T out[unsigned(n)];
    for (int i = 0; i < n; i += Tokens) std::memcpy(out + i, from, Tokens * sizeof(T));
    return load<Arch>(static_cast<T const*>(out));
  }
}

/// The sums over the tokens of `Tokens` grouped registers, in one register: sums of the first register's
/// columns, then sums of the second's, …
template <int Tokens, class T, class Arch>
TESSERA_INLINE reg<T, Arch> sum_groups(reg<T, Arch> const* registers) {
  if constexpr (Tokens == 1) {
    return registers[0];
  } else {
    constexpr int n = lanes<T, Arch>;
    const auto a = sum_groups<Tokens / 2, T, Arch>(registers);
    const auto b = sum_groups<Tokens / 2, T, Arch>(registers + Tokens / 2);
    return (batch<T, Arch>(detail::permute<T, Arch>(a, b, detail::alternate<n, 0>{})) +
            batch<T, Arch>(detail::permute<T, Arch>(a, b, detail::alternate<n, 1>{})))
        .data;
  }
}

/// The sum of all groups of `Keep` consecutive lanes, as a vector of that many numbers.
template <int Keep, class T, class Arch>
TESSERA_INLINE typename compiler_vector<T, Keep>::type fold(reg<T, Arch> value) {
  return detail::fold<Keep, lanes<T, Arch>, T>(
      std::bit_cast<typename compiler_vector<T, lanes<T, Arch>>::type>(value));
}

}}}  // namespace tessera::TESSERA_ISA::simd
#endif

// ---- tessera/kernels/transposition.hpp
#ifndef TESSERA_SINGLE_KERNELS_TRANSPOSITION
#define TESSERA_SINGLE_KERNELS_TRANSPOSITION
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Computes lines [first, last) of Wᵀ: transposes the blocks of W into the order in which a product of Wᵀ
/// reads them.
///   index   of Wᵀ, with slots in W
template <class Arch, class Shape, class W>
void transpose_blocks(block_index const& index, W const* weights, W* to, int first, int last) noexcept {
  constexpr int distance = std::max<int>(4, 2048 / int(Shape::elements * sizeof(W)));
  constexpr int cache_lines = ceil_div<int>(Shape::elements * sizeof(W), 64);
  for (int line = first; line < last; ++line) {
    const block_line blocks = index.line(line), next = index.line(std::min(line + 1, last - 1));
    W* const line_to = to + blocks.first * Shape::elements;
    for (int b = 0; b < blocks.count; ++b) {
      const int beyond = b + distance - blocks.count;  // in the next line
      const std::int64_t soon = beyond < 0 || next.count == 0
                                    ? blocks.slot(std::min(b + distance, blocks.count - 1))
                                    : next.slot(std::min(beyond, next.count - 1));
      for (int l = 0; l < cache_lines; ++l)
        simd::prefetch<1>(reinterpret_cast<std::byte const*>(weights + soon * Shape::elements) + l * 64);
      simd::transpose<Shape::rows, Shape::cols, Arch>(weights + blocks.slot(b) * Shape::elements,
                                                      line_to + std::int64_t(b) * Shape::elements);
    }
  }
}

/// Rearranges the blocks of a line, `Beside` at a time, so that their rows stand side by side. Zeros fill the
/// last group, for which there is room.
template <int Beside, class Shape, class W> void put_side_by_side(W* blocks, std::int64_t count) noexcept {
  constexpr std::size_t row_bytes = Shape::cols * sizeof(W);
  for (; count > 0; count -= Beside, blocks += Beside * Shape::elements) {
    alignas(64) std::byte rows[Shape::rows][unsigned(Beside)][row_bytes] = {};
    for (int b = 0; b < std::min<std::int64_t>(Beside, count); ++b)
      for (int r = 0; r < Shape::rows; ++r)
        std::memcpy(rows[r][b], blocks + b * Shape::elements + r * Shape::cols, row_bytes);
    std::memcpy(static_cast<void*>(blocks), rows, sizeof rows);
  }
}

/// Reverse of transpose_blocks: stores the blocks of Cᵀ, transposed, at their slots in C, or adds them there;
/// for lines [first, last) and block columns [first_col, last_col) of Cᵀ.
///   from   blocks of Cᵀ in the order of its lines
template <class Arch, class Shape, class T>
void transpose_blocks_back(block_index const& index, T const* from, T* values, int first, int last,
                           std::int32_t first_col, std::int32_t last_col, bool accumulates) noexcept {
  for (int line = first; line < last; ++line) {
    const block_line blocks = index.line(line);
    for (int b = 0; b < blocks.count; ++b) {
      if (blocks.columns[b] < first_col || blocks.columns[b] >= last_col) continue;
      T* const to = values + blocks.slot(b) * Shape::elements;
      alignas(64) T block[Shape::elements];
      simd::transpose<Shape::rows, Shape::cols, Arch>(from + (blocks.first + b) * Shape::elements, block);
      for (int i = 0; i < Shape::elements; ++i) to[i] = accumulates ? to[i] + block[i] : block[i];
    }
  }
}

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/eval/weight_order.hpp
#ifndef TESSERA_SINGLE_EVAL_WEIGHT_ORDER
#define TESSERA_SINGLE_EVAL_WEIGHT_ORDER
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

// Steps before a product that bring weights into the order in which it reads them, the blocks of Wᵀ and
// single elements, that widen weights of one byte, or sum their rows for quads.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// The shape of blocks as the lines of W, or of Wᵀ, have them.
template <class Block, bool Transposed>
using line_block_of = std::conditional_t<Transposed, block_shape<Block::cols, Block::rows>, Block>;

/// The blocks of some lines, where they stand in W.
void describe_blocks(task_description& d, kernels::block_index const& index, range lines,
                     operand const& weights, std::int64_t block_bytes);

/// The lanes of a panel of x that the blocks of some lines are multiplied by.
///   lane_features   features that share a lane
void describe_columns(task_description& d, kernels::block_index const& index, range lines, int block_cols,
                      touched_bytes const& panel, int lane_features);

/// The blocks of W in the order of the lines of W, or each transposed in that of Wᵀ; `Beside` blocks of a
/// line side by side. A tile is a range of lines.
template <class W, class Block, bool Transposed, int Beside> struct block_order_body {
  operand to, weights;
  kernels::block_index index;
  int tiles;

  void compute(tile const& t) const noexcept {
    const range lines = index.lines_of_part(int(t.index), tiles);
    W* const copy = t.address<W>(to);
    if constexpr (Transposed) {
      kernels::transpose_blocks<simd::native, Block>(index, t.address<W const>(weights), copy, lines.first,
                                                     lines.last);
    } else {
      for (int line = lines.first; line < lines.last; ++line)
        std::copy_n(t.address<W const>(weights) + index.blocks_before(line) * Block::elements,
                    index.line(line).count * Block::elements, copy + index.place_of(line) * Block::elements);
    }
    if constexpr (Beside > 1)
      for (int line = lines.first; line < lines.last; ++line)
        kernels::put_side_by_side<Beside, line_block_of<Block, Transposed>>(
            copy + index.place_of(line) * Block::elements, index.line(line).count);
  }
  void describe(tile const& t, task_description& d) const {
    const range lines = index.lines_of_part(int(t.index), tiles);
    const std::int64_t first = index.place_of(lines.first), last = index.place_of(lines.last);
    describe_blocks(d, index.with_gaps(0), lines, weights, Block::elements * std::int64_t(sizeof(W)));
    d.write(elements_of<W>(to, 0, first * Block::elements, (last - first) * Block::elements));
  }
};

/// kernels::offsets_of_rows of weights in the order of the lines. A tile is a range of lines.
template <class W, class LineBlock> struct row_offsets_body {
  operand to, weights;
  kernels::block_index index;
  int tiles;

  void compute(tile const& t) const noexcept {
    const range lines = index.lines_of_part(int(t.index), tiles);
    for (int i = lines.first; i < lines.last; ++i)
      kernels::offsets_of_rows<simd::native, LineBlock>(
          t.address<W const>(weights) + index.blocks_before(i) * LineBlock::elements, index.line(i).count,
          t.address<std::int32_t>(to) + std::int64_t(i) * LineBlock::rows);
  }
  void describe(tile const& t, task_description& d) const {
    const range lines = index.lines_of_part(int(t.index), tiles);
    describe_blocks(d, index, lines, weights, LineBlock::elements * std::int64_t(sizeof(W)));
    d.write(elements_of<std::int32_t>(to, 0, std::int64_t(lines.first) * LineBlock::rows,
                                      std::int64_t(lines.size()) * LineBlock::rows));
  }
};

/// Single elements in the order of kernels::ordered_product, widened to T. A tile is a group of lines.
template <class T, class W> struct nonzeros_body {
  static constexpr int group = kernels::nonzeros<T>::group;
  operand to, weights;
  kernels::block_index index;
  std::int64_t depth;

  range lines(tile const& t) const {
    return {int(t.index) * group, std::min(index.lines(), int(t.index + 1) * group)};
  }
  kernels::nonzeros<T> nonzeros(tile const& t) const {
    return {index, depth, kernels::register_block<T, simd::native>::chunk_features, t.address<std::byte>(to)};
  }
  void compute(tile const& t) const noexcept {
    nonzeros(t).order(index, t.address<W const>(weights), lines(t).first);
  }
  void describe(tile const& t, task_description& d) const {
    const range now = lines(t);
    describe_blocks(d, index, now, weights, sizeof(W));
    d.write(elements_of<T>(to, 0, index.blocks_before(now.first), index.blocks(now.first, now.last)));
  }
};

/// Adds a step before the product that copies the blocks of W in the order of the lines of `index`, which is
/// that of W or of Wᵀ, with its room. Returns the copy.
template <class W, class Block, bool Transposed, int Beside = 1>
operand ordered_blocks(plan& p, operand const& weights, kernels::block_index const& index) {
  step_draft order("order", cut::lines);
  order.when = timing::early;
  order.tiles = std::min(index.lines(), 4 * p.workers());
  const operand to =
      order.writes(p.run_memory(std::size_t(index.place_of(index.lines())) * Block::elements * sizeof(W)));
  order.reads(weights);
  p.add(order, block_order_body<W, Block, Transposed, Beside>{to, weights, index, order.tiles});
  return to;
}

/// Adds a step before a product by quads that computes where the sums of each row begin, and returns them.
///   weights   in the order of the lines of `index`
template <class W, class LineBlock>
operand row_offsets(plan& p, operand const& weights, kernels::block_index const& index) {
  step_draft offsets("offsets", cut::lines);
  offsets.when = timing::early;
  offsets.tiles = std::min(index.lines(), 4 * p.workers());
  const operand to =
      offsets.writes(p.run_memory(std::size_t(index.lines()) * LineBlock::rows * sizeof(std::int32_t)));
  offsets.reads(weights);
  p.add(offsets, row_offsets_body<W, LineBlock>{to, weights, index, offsets.tiles});
  return to;
}

/// Adds a step before the product that widens `count` stored values to elements To, and returns the copy.
template <class To, class W> operand widened_weights(plan& p, operand weights, std::int64_t count) {
  const value_tiles of{count, {}};
  step_draft widen("widen", cut::values);
  widen.when = timing::early;
  widen.tiles = of.tiles();
  weights.touches = footprint::own_range;
  weights.stride = values_a_tile * sizeof(W);
  operand to = widen.writes(p.run_memory(std::size_t(count) * sizeof(To), values_a_tile * sizeof(To)));
  const source<tree::values<W>> tree(widen.reads(weights));
  p.add(widen, values_body<To, source<tree::values<W>>>{to, of, tree});
  to.touches = footprint::everything;
  to.stride = 0;
  return to;
}

/// Adds a step before the product that orders single elements, and returns the ordered copy.
template <class T, class W>
operand ordered_weights(plan& p, operand const& weights, kernels::block_index const& index,
                        std::int64_t depth) {
  using nonzeros = kernels::nonzeros<T>;
  step_draft order("order", cut::lines);
  order.when = timing::early;
  order.tiles = ceil_div(index.lines(), nonzeros::group);
  nonzeros_body<T, W> body{{}, weights, index, depth};
  body.to = order.writes(p.run_memory(body.nonzeros({}).bytes()));
  order.reads(weights);
  p.add(order, body);
  return body.to;
}

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void describe_blocks(task_description& d, kernels::block_index const& index,
                                               range lines, operand const& weights,
                                               std::int64_t block_bytes) {
  if (!index.has_slots())
    return read_once(d,
                     {weights.owner, weights.at + std::uintptr_t(index.place_of(lines.first) * block_bytes),
                      (index.place_of(lines.last) - index.place_of(lines.first)) * block_bytes});
  for (int i = lines.first; i < lines.last; ++i) {
    const kernels::block_line line = index.line(i);
    for (int b = 0; b < line.count; ++b)
      d.read({weights.owner, weights.at + std::uintptr_t(line.slot(b) * block_bytes), block_bytes});
  }
}

TESSERA_COLD TESSERA_BODY void describe_columns(task_description& d, kernels::block_index const& index,
                                                range lines, int block_cols, touched_bytes const& panel,
                                                int lane_features) {
  const auto width = std::size_t(index.width());
  const auto used = std::make_unique<bool[]>(width);
  for (int i = lines.first; i < lines.last; ++i)
    for (const int column : index.line(i).all_columns()) used[std::size_t(column)] = true;
  for (std::size_t first = 0, last; first < width; first = last) {
    for (last = first; last < width && used[last] == used[first];) ++last;
    if (!used[first]) continue;
    const std::int64_t first_lane = std::int64_t(first) * block_cols / lane_features;
    touched_bytes part = panel;
    part.at += std::uintptr_t(first_lane * panel.stride);
    part.count =
        std::min(panel.count, ceil_div<std::int64_t>(std::int64_t(last) * block_cols, lane_features)) -
        first_lane;
    read_once(d, part);
  }
}

#endif

}}}  // namespace tessera::TESSERA_ISA::eval
#endif

// ---- tessera/kernels/panel_prefetcher.hpp
#ifndef TESSERA_SINGLE_KERNELS_PANEL_PREFETCHER
#define TESSERA_SINGLE_KERNELS_PANEL_PREFETCHER
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Prefetches the next panel in equal shares, one for each visit of a register block to a block of W, and no
/// cache line twice. If the panel is one chunk, only the second half of the work prefetches: this panel still
/// needs the caches in the first.
struct panel_prefetcher {
  static constexpr int fraction = 20;
  std::byte const* next = nullptr;
  std::int64_t due = 0, step = 0;  // in 2^-fraction cache lines; none is prefetched until due > 0

  TESSERA_INLINE void fetch() {
    for (due += step; due > 0; due -= std::int64_t(1) << fraction) {
      simd::prefetch<2>(next);
      next += 64;
      asm("" : "+r"(due));  // or the compiler divides to count the iterations
    }
  }

  /// For `visits` visits, each of which reads `visit_bytes` of x: no more is prefetched than these read. Of a
  /// panel in several chunks, the next chunk is prefetched: the panel's own, or the first of the next panel.
  static panel_prefetcher plan(std::byte const* next_panel, std::size_t bytes, int chunks,
                               std::int64_t visits, int visit_bytes) {
    if (!next_panel || visits == 0) return {};
    const std::int64_t all = std::min(std::int64_t(bytes), visits * visit_bytes) / 64 << fraction,
                       before = chunks == 1 ? all : 0;
    return {next_panel - bytes + bytes / std::size_t(chunks), -before, (all + before) / visits};
  }
};

/// Rows of panels that are used soon, all of equal length. Prefetches them in equal shares during other
/// products; without prefetches each row would wait for memory.
struct rows_ahead {
  static constexpr int most = 8;
  std::byte const* at[most] = {};
  int count = 0;
  std::size_t bytes = 0, share = 0;  // bytes left of each row, bytes at a time

  void add(void const* rows) { at[count++] = static_cast<std::byte const*>(rows); }
  /// Cuts the rows into `shares` equal shares.
  void cut(int shares) {
    share = round_up<std::size_t>(ceil_div<std::size_t>(bytes, std::size_t(shares)), 64);
  }
  TESSERA_INLINE void fetch() {
    const std::size_t now = std::min(share, bytes);
    for (std::size_t i = 0; i < now; i += 64)
      for (int r = 0; r < count; ++r) simd::prefetch<2>(at[r] + i);
    for (int r = 0; r < count; ++r) at[r] += now;
    bytes -= now;
  }
};

/// Prefetches memory in its order, in equal shares, so that products of data that is here overlap with it.
struct stream_ahead {
  std::byte const* at;
  std::int64_t share;  // bytes at a time

  /// Asks for a share of at most `Lines` cache lines. No loop and no branch: GCC would keep the sums of a
  /// loop around them in memory.
  template <int Lines> TESSERA_INLINE void fetch() {
    unroll<Lines>([&](auto i) TESSERA_INLINE_LAMBDA { simd::prefetch<2>(at + i * share / Lines); });
    at += share;
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/amx_product.hpp
#ifndef TESSERA_SINGLE_KERNELS_AMX_PRODUCT
#define TESSERA_SINGLE_KERNELS_AMX_PRODUCT
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The kernel for one panel by AMX. A register holds 16 rows of W and 32 features. Blocks of at least 16
/// columns, and their slices of x, are loaded as they are stored: the unit takes as many cycles as a block
/// has rows, whatever its columns, and loading x, and storing and rounding the sums, take the time. Of
/// narrower blocks, `beside` of a line are multiplied at once: their rows stand side by side
/// (put_side_by_side), and their slices of x are gathered in time, because a register is not loaded before
/// its bytes have left the store buffer. The sums of one line pass through the tree between the blocks of the
/// next line.
///   Unit   simd::hardware_amx or simd::emulated_amx
template <class Unit, class Arch, class Types, class Shape, class Tree> struct amx_product {
  using W = typename Types::weight;
  using X = typename Types::activation;
  using T = typename Types::accumulator;
  using S = typename Types::sum;
  using arguments = product_arguments<Types, Tree>;
  static constexpr int rows = std::min(Shape::rows, simd::amx_rows);  // of a block, at a time
  static constexpr int beside = engine_policy<engine::amx>::blocks_beside<Shape>;
  static constexpr int depth = beside * Shape::cols;
  static constexpr bool shares_lanes = false;
  static constexpr int features_a_lane = element_traits<X>::features_a_lane;

  /// Bytes of product_arguments::sums: sums, then gathered slices.
  static std::size_t sums_bytes(block_index const&, std::int64_t) {
    return sums_at_once * sizeof(S) + (beside > 1 ? slot_count * slot_elements * sizeof(X) : 0);
  }
  static int chunks(block_index const&, std::int64_t) { return 1; }

  static void run(arguments const& a) noexcept {
    amx_product now(a);
    if (a.tokens == panel_tokens)
      now.multiply<tokens_a_panel>();
    else
      now.multiply<1>();
  }

 private:
  static constexpr int tokens_a_panel = panel_tokens / simd::amx_columns;
  static constexpr int sums_at_once = rows * panel_tokens;
  static constexpr int slot_count = 4, slot_elements = depth * panel_tokens;
  // Registers 0 … 3 are sums of 16 tokens each. The narrow ones are for a block that reaches 16 features
  // beyond the stored ones.
  static constexpr int left = 4, right = 5, narrow_left = 6, narrow_right = 7;
  static constexpr int narrow_depth = std::min(Shape::cols, granule);
  static constexpr bool ragged = Shape::cols > granule;

  static constexpr simd::amx_shapes shapes = [] {
    simd::amx_shapes all;
    for (int t = 0; t < tokens_a_panel; ++t) all.set(t, rows, simd::amx_row_bytes);
    all.set(left, rows, depth * int(sizeof(W)));
    all.set(right, depth / features_a_lane, simd::amx_row_bytes);
    all.set(narrow_left, rows, narrow_depth * int(sizeof(W)));
    all.set(narrow_right, narrow_depth / features_a_lane, simd::amx_row_bytes);
    return all;
  }();

  explicit amx_product(arguments const& of)
      : a_(of),
        unit_(shapes),
        next_(panel_prefetcher::plan(
            of.next, of.next_bytes, 1,
            ceil_div<std::int64_t>(of.index.blocks(of.first_line, of.last_line), beside) *
                (Shape::rows / rows),
            depth * panel_tokens * int(sizeof(X)))) {}

  /// W·x by `Columns` times 16 tokens at a time.
  template <int Columns> TESSERA_INLINE void multiply() {
    if constexpr (beside > 1) {
      soon_.line = a_.first_line;
      for (int i = 1; i < slot_count; ++i) gather<Columns>();
    }
    for (int line = a_.first_line; line < a_.last_line; ++line)
      for (int row = 0; row < Shape::rows; row += rows)
        for (int token = 0; token < a_.tokens; token += Columns * simd::amx_columns)
          multiply_rows<Columns>(line, row, token);
    finish(rows);
  }

  /// W·x for some rows of a line and `Columns` times 16 tokens.
  template <int Columns> TESSERA_INLINE void multiply_rows(int line, int row, int token) {
    unroll<Columns>([&](auto c) TESSERA_INLINE_LAMBDA { unit_.template zero<c>(); });
    const block_line blocks = a_.index.line(line);
    W const* w = a_.weights;
    if (blocks.count > 0) w += blocks.first * Shape::elements;
    for (int block = 0; block < blocks.count; block += beside, w += beside * Shape::elements) {
      if constexpr (beside > 1) {
        X const* const gathered = slot(multiplied_++);
        gather<Columns>();
        multiply_blocks<Columns, left, right>(w + row * depth, gathered);
      } else {
        const std::int64_t feature = std::int64_t(blocks.columns[block]) * Shape::cols;
        X const* const x = a_.x + place_in_panel<X>(feature, token);
        if constexpr (Shape::cols < granule)
          fetch_slice(blocks.columns[std::min(block + 2, blocks.count - 1)], token);
        if (ragged && feature + depth > a_.depth)
          multiply_blocks<Columns, narrow_left, narrow_right>(w + row * Shape::cols, x);
        else
          multiply_blocks<Columns, left, right>(w + row * Shape::cols, x);
      }
    }
    finish(rows);
    unroll<Columns>([&](auto c) TESSERA_INLINE_LAMBDA {
      unit_.template store<c>(a_.sums + token + c * simd::amx_columns, panel_tokens * sizeof(S));
    });
    unfinished_ = {a_.sums, std::int64_t(line) * Shape::rows + row, token, rows};
  }

  template <int Columns, int Left, int Right> TESSERA_INLINE void multiply_blocks(W const* w, X const* x) {
    unit_.template load<Left>(w, depth * sizeof(W));
    unroll<Columns>([&](auto c) TESSERA_INLINE_LAMBDA {
      unit_.template load<Right>(x + c * simd::amx_columns * features_a_lane,
                                 panel_tokens * features_a_lane * sizeof(X));
      unit_.template multiply_add<c, Left, Right, W>();
    });
    next_.fetch();
    finish(4);
  }

  /// Prefetches a slice of x. Loads of registers hide less latency where slices are short: blocks of 8x8 gain
  /// 1.1 to 1.3 times (Granite Rapids), wider ones nothing.
  TESSERA_INLINE void fetch_slice(std::int64_t column, int token) const {
    auto const* const slice =
        reinterpret_cast<std::byte const*>(a_.x + place_in_panel<X>(column * Shape::cols, token));
    unroll<Shape::cols * panel_tokens* int(sizeof(X)) / 64>(
        [&](auto line) TESSERA_INLINE_LAMBDA { simd::prefetch<1>(slice + line * 64); });
  }

  X* slot(unsigned number) const {
    return reinterpret_cast<X*>(a_.sums + sums_at_once) + number % slot_count * slot_elements;
  }

  /// Gathers the slices of the next `beside` blocks, zeros in place of blocks that the line does not have.
  template <int Columns> TESSERA_INLINE void gather() {
    for (; soon_.line < a_.last_line; ++soon_.line, soon_.row = 0)
      for (; soon_.row < Shape::rows; soon_.row += rows, soon_.token = 0)
        for (; soon_.token < a_.tokens; soon_.token += Columns * simd::amx_columns, soon_.block = 0) {
          const block_line blocks = a_.index.line(soon_.line);
          if (soon_.block >= blocks.count) continue;
          X* const to = slot(gathered_++);
          const int count = blocks.count - soon_.block;
          const auto slice = [&](int b) TESSERA_INLINE_LAMBDA {
            gather_slice<Columns>(blocks.columns[soon_.block + b], soon_.token,
                                  to + b * Shape::cols * panel_tokens);
          };
          if (count >= beside) {
            unroll<beside>(slice);
          } else {
            for (int b = 0; b < count; ++b) slice(b);
            std::memset(static_cast<void*>(to + count * Shape::cols * panel_tokens), 0,
                        std::size_t(beside - count) * Shape::cols * panel_tokens * sizeof(X));
          }
          soon_.block += beside;
          return;
        }
  }
  template <int Columns> TESSERA_INLINE void gather_slice(std::int64_t column, int token, X* to) const {
    using word = float;  // a lane
    constexpr int lanes = simd::lanes<word, Arch>, row = Columns * simd::amx_columns;
    auto const* const from =
        reinterpret_cast<word const*>(a_.x + place_in_panel<X>(column * Shape::cols, token));
    unroll<Shape::cols / features_a_lane * row / lanes>([&](auto i) TESSERA_INLINE_LAMBDA {
      constexpr int at = i * lanes / row * panel_tokens + i * lanes % row;
      simd::store<Arch>(reinterpret_cast<word*>(to) + at, simd::load<Arch>(from + at));
    });
  }

  /// Applies the tree to up to `count` of the rows that wait for it.
  TESSERA_INLINE void finish(int count) {
    if (unfinished_.rows == 0) return;
    constexpr int registers = simd::amx_columns / simd::lanes<T, Arch>;
    count = std::min(count, unfinished_.rows);
    if (a_.tokens == panel_tokens)
      store_sums<Arch, false, tokens_a_panel * registers>(a_, unfinished_.sums, unfinished_.feature, count,
                                                          0);
    else
      store_sums<Arch, true, registers>(a_, unfinished_.sums, unfinished_.feature, count, unfinished_.token);
    unfinished_.sums += count * panel_tokens;
    unfinished_.feature += count;
    unfinished_.rows -= count;
  }

  struct rows_of_sums {
    S const* sums = nullptr;
    std::int64_t feature = 0;
    int token = 0, rows = 0;
  };
  /// Blocks of a line, from number `block` on, for some rows and tokens.
  struct blocks_of_line {
    int line = 0, row = 0, token = 0, block = 0;
  };

  arguments const& a_;
  Unit unit_;
  rows_of_sums unfinished_;
  panel_prefetcher next_;
  blocks_of_line soon_;                     // whose slices are gathered next
  unsigned gathered_ = 0, multiplied_ = 0;  // slots so far
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/product.hpp
#ifndef TESSERA_SINGLE_KERNELS_PRODUCT
#define TESSERA_SINGLE_KERNELS_PRODUCT
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The kernel for one panel. A register block of `rows` rows × C registers of tokens walks along the blocks
/// of a line, and the weights of the next line are prefetched. A deep x is walked in chunks of features, so
/// that a chunk and the prefetched data fit the caches; sums are carried from chunk to chunk.
template <class Arch, class Types, class Shape, class Tree> struct sparse_product {
  using W = typename Types::weight;
  using X = typename Types::activation;
  using Y = typename Types::result;
  using T = typename Types::accumulator;
  using arguments = product_arguments<Types, Tree>;
  using S = typename Types::sum;
  using reg = simd::reg<S, Arch>;
  using batch = simd::batch<T, Arch>;
  using sums_batch = simd::batch<S, Arch>;
  using sizes = register_block<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int line_rows = Shape::rows;
  static constexpr int block_depth = Shape::cols;
  static constexpr int rows = power_of_two_divisor(sizes::rows, line_rows);
  static constexpr int registers = sizes::registers;
  /// The engine multiplies lanes as they are stored if W and x have one element type and every block begins
  /// at a lane. Otherwise it multiplies accumulators.
  static constexpr bool in_lanes =
      std::is_same_v<W, X> && block_depth % element_traits<X>::features_a_lane == 0;
  using factor = std::conditional_t<in_lanes, factor_of<Types::by, X, Arch>, T>;
  using policy = engine_policy<Types::by>;
  /// Whether x is brought into another form, a chunk at a time: widened, or offset.
  static constexpr bool prepares_x = !std::is_same_v<X, factor> || policy::offsets_x;
  static constexpr int feature_bytes = panel_tokens * sizeof(factor);
  static constexpr bool ragged = granule % block_depth != 0;  // a block may reach beyond the stored features
  /// Features of x in one lane of the engine.
  static constexpr int factors_a_lane = element_traits<factor>::features_a_lane;
  /// Features of y in one lane.
  static constexpr int results_a_lane = element_traits<Y>::features_a_lane;
  /// Whether several lines share a lane of y: one thread stores them, after the last of their sums.
  static constexpr bool shares_lanes = line_rows % results_a_lane != 0;
  static constexpr bool sums_in_memory = Tree::costly || rows % results_a_lane != 0;
  static constexpr int results_at_once = sums_in_memory ? 1 : results_a_lane;

  /// Bytes of product_arguments::sums: the sums of one line, or the sums and the position of every line; then
  /// the prepared chunk of x, if it is prepared.
  static std::size_t sums_bytes(block_index const& index, std::int64_t depth) {
    const std::int64_t blocks =
        ceil_div(ceil_div<std::int64_t>(depth, block_depth), std::int64_t(chunks(index, depth)));
    return room_at(index, depth) +
           (prepares_x ? std::size_t(blocks * block_depth + 2 * (stored_x - 1)) * feature_bytes : 0);
  }

  /// The number of chunks of a panel: the smallest that meets every condition.
  ///   a panel longer than whole_panel_bytes        a chunk and the prefetched data fit the L2
  ///   several register blocks a line               a line's part of a chunk fits the L1
  ///   else, lines of many blocks (fewest_steps)    a chunk fits the L1
  /// Since every chunk loads and stores the sums, there are no more chunks than for which these are fewer
  /// bytes than are read of x.
  static int chunks(block_index const& index, std::int64_t depth) {
    if (index.lines() == 0) return 1;
    const std::int64_t panel = depth * feature_bytes, used = index.blocks() * block_depth / index.lines(),
                       line_sums = line_rows * panel_tokens * std::int64_t(sizeof(S));
    std::int64_t kept = 0;  // bytes of x that should pass through the L1
    if (line_rows > rows)
      kept = used * feature_bytes;
    else if (used * sizes::line_bytes >= fewest_steps * factors_a_lane * panel)
      kept = panel;
    const std::int64_t fitting =
        1 + std::max(panel > sizes::whole_panel_bytes ? (panel - 1) / sizes::chunk_bytes : 0,
                     kept / sizes::line_bytes);
    return int(std::max<std::int64_t>(1, std::min(fitting, used * feature_bytes / (2 * line_sums))));
  }

  static void run(arguments const& a) noexcept {
    const int count = chunks(a.index, a.depth), lines = a.last_line - a.first_line;
    const bool keeps_all = count > 1 || shares_lanes;
    const std::int64_t blocks = ceil_div<std::int64_t>(a.depth, block_depth);
    S* const all_sums = a.sums;
    auto* const walked =
        reinterpret_cast<std::int32_t*>(all_sums + std::int64_t(lines) * (line_rows * panel_tokens));
    const std::int64_t weights_bytes = a.index.blocks() * int(Shape::elements * sizeof(W));
    panel_prefetcher next = fetch_plan(a, count);
    for (int c = 0; c < count; ++c) {
      chunk now{.column = nullptr,
                .end = nullptr,
                .weights = nullptr,
                .prefetch_distance = 0,
                .limit = std::int32_t((c + 1) * blocks / count),
                .begins = c == 0,
                .ends = c + 1 == count,
                .fetches = weights_bytes > sizes::fitting_weights_bytes,
                .x = {},
                .first_feature = 0};
      if constexpr (prepares_x)
        prepare(a, c * blocks / count * block_depth, now);
      else
        now.x = a.x;
      const auto first_of = [&](int line) { return c > 0 ? walked[line - a.first_line] : 0; };
      S* sums = all_sums;
      for (int line = a.first_line; line < a.last_line; ++line) {
        const block_line blocks_of_line = a.index.line(line);
        const std::int32_t first = first_of(line);
        const std::int64_t before = blocks_of_line.first + first;
        now.column = blocks_of_line.columns + first;
        now.end = blocks_of_line.columns + blocks_of_line.count;
        if (now.column < now.end) now.weights = a.weights + before * Shape::elements;
        if (now.fetches && line + 1 < a.last_line)
          now.prefetch_distance = a.index.blocks_before(line + 1) + first_of(line + 1) - before;
        else
          now.prefetch_distance = 0;
        std::int32_t const* last = now.column;
        for (int token = 0; token < a.tokens;)
          if (token + registers * lanes <= a.tokens) {
            last = compute_line<registers>(a, line, token, now, sums, next);
            token += registers * lanes;
          } else {
            last = compute_last_tokens(a, line, token, now, sums, next);
            token += lanes;
          }
        if (!keeps_all) continue;
        walked[line - a.first_line] = std::int32_t(last - blocks_of_line.columns);
        sums += line_rows * panel_tokens;
      }
    }
    if constexpr (shares_lanes)
      for (int token = 0; token < a.tokens; token += lanes)
        store_sums<Arch, true, 1>(a, all_sums, a.first_line * line_rows, lines * line_rows, token);
  }

 private:
  struct chunk {
    std::int32_t const *column, *end;  // block columns of the line from this chunk on
    W const* weights;                  // of the block at `column`
    std::int64_t prefetch_distance;    // distance to the prefetched weights, in blocks
    std::int32_t limit;                // block column of the line where the chunk ends
    bool begins, ends;                 // whether it is the first, the last chunk
    bool fetches;                      // whether weights of the next line are prefetched
    factor const* x;                   // at first_feature
    std::int64_t first_feature;
  };

  static constexpr int stored_x = element_traits<X>::features_a_lane;

  /// Offset in product_arguments::sums of the prepared chunk of x, in bytes.
  static std::size_t room_at(block_index const& index, std::int64_t depth) {
    constexpr std::size_t line_bytes = line_rows * panel_tokens * sizeof(S);
    if (chunks(index, depth) == 1 && !shares_lanes) return line_bytes;
    return round_up<std::size_t>(std::size_t(index.lines()) * (line_bytes + sizeof(std::int32_t)), 64);
  }

  /// Prepares the features of a chunk, which begins at feature `first`.
  [[gnu::noinline]] static void prepare(arguments const& a, std::int64_t first, chunk& now) {
    auto* const room = reinterpret_cast<factor*>(a.sums + room_at(a.index, a.depth) / sizeof(S));
    const std::int64_t begin = first / stored_x * stored_x;
    const std::int64_t end = std::min(a.depth, std::int64_t(now.limit) * block_depth);
    policy::template prepare<Arch>(a.x, begin, end, a.tokens, room);
    now.x = room;
    now.first_feature = begin;
  }

  /// Steps along the depth, of a line in a chunk, that are worth loading and storing its sums.
  static constexpr int fewest_steps = 48;

  static panel_prefetcher fetch_plan(arguments const& a, int count) {
    constexpr int tile_tokens = registers * lanes;
    const int tiles_a_row = a.tokens / tile_tokens + ceil_div(a.tokens % tile_tokens, lanes);
    return panel_prefetcher::plan(
        a.next, a.next_bytes, count,
        a.index.blocks(a.first_line, a.last_line) * (line_rows / rows) * tiles_a_row,
        block_depth * tile_tokens * int(sizeof(X)));
  }

  /// compute_line for one register of tokens. Not inlined, so that the compiler has more registers for the
  /// other tokens.
  [[gnu::noinline]] static std::int32_t const* compute_last_tokens(arguments const& a, int line, int token,
                                                                   chunk const& now, S* sums,
                                                                   panel_prefetcher& next) {
    return compute_line<1>(a, line, token, now, sums, next);
  }

  /// Returns where the line's blocks of the next chunk begin.
  template <int C>
  TESSERA_INLINE static std::int32_t const* compute_line(arguments const& a, int line, int token,
                                                         chunk const& now, S* sums, panel_prefetcher& next) {
    std::int32_t const* last = now.column;
    for (int row = 0; row < line_rows; row += rows)
      last = compute_tile<C>(a, line, row, token, now, sums, next);
    if constexpr (!shares_lanes)
      if (now.ends && (sums_in_memory || overhangs(a, line))) {
        constexpr int at_once = sums_in_memory ? C : 1;
        for (int c = 0; c < C; c += at_once)
          store_sums<Arch, at_once == 1, at_once>(a, sums, line * line_rows, line_rows, token + c * lanes);
      }
    return last;
  }

  /// Whether a line has rows beyond the last feature.
  TESSERA_INLINE static bool overhangs(arguments const& a, int line) {
    return std::int64_t(line + 1) * line_rows > a.rows;
  }

  template <int C>
  TESSERA_INLINE static std::int32_t const* compute_tile(arguments const& a, int line, int row, int token,
                                                         chunk const& now, S* sums, panel_prefetcher& next) {
    constexpr int sets = C == 1 ? 2 : 1;
    reg set[unsigned(sets)][unsigned(rows)]
           [unsigned(C)];  // (steps of the depth in turn, rows of W, registers of tokens)
    auto& acc = set[0];
    // An offset: without chunks `sums` may be null.
    const std::ptrdiff_t carried = row * panel_tokens + token;
    unroll<rows * C>([&](auto i) TESSERA_INLINE_LAMBDA {
      acc[i / C][i % C] =
          now.begins
              ? policy::template begin_sum<Arch>(a.row_offsets, std::int64_t(line) * line_rows + row + i / C)
              : simd::load<Arch>(sums + carried + i / C * panel_tokens + i % C * lanes);
    });
    unroll<(sets - 1) * rows>([&](auto i) TESSERA_INLINE_LAMBDA { set[1][i][0] = simd::zero<Arch, S>(); });
    panel_prefetcher fetching = next;  // in registers
    std::int32_t const* column = now.column;
    W const* w = nullptr;  // a matrix without blocks has no weights
    if (column < now.end) w = now.weights + row * Shape::cols;
    for (; column < now.end && *column < now.limit; ++column, w += Shape::elements) {
      fetching.fetch();
      if (now.fetches) fetch_rows(w + now.prefetch_distance * Shape::elements);
      const std::int64_t feature = std::int64_t(*column) * block_depth;
      int depth = block_depth;
      if constexpr (ragged) depth = int(std::min<std::int64_t>(depth, a.depth - feature));
      multiply_block<C>(set, w, now.x + place_in_panel<factor>(feature - now.first_feature, token), depth);
    }
    next = fetching;
    unroll<(sets - 1) * rows>([&](auto i) TESSERA_INLINE_LAMBDA {
      acc[i][0] = (sums_batch(acc[i][0]) + sums_batch(set[1][i][0])).data;
    });
    const auto carry = [&]() TESSERA_INLINE_LAMBDA {
      unroll<rows * C>([&](auto i) TESSERA_INLINE_LAMBDA {
        simd::store<Arch>(sums + carried + i / C * panel_tokens + i % C * lanes, acc[i / C][i % C]);
      });
    };
    if constexpr (sums_in_memory) {
      carry();
    } else if (!now.ends || overhangs(a, line)) {
      carry();
    } else {
      const std::int64_t feature = std::int64_t(line) * line_rows + row;
      Y* const to = a.y + place_in_panel<Y>(feature, token);
      unroll<rows / results_at_once * C>([&](auto i) TESSERA_INLINE_LAMBDA {
        constexpr int r = i / C * results_at_once, c = i % C;
        const batch sum[2] = {simd::as<T>(sums_batch(acc[r][c])),
                              simd::as<T>(sums_batch(acc[r + results_at_once - 1][c]))};
        store_result<C == 1>(a, sum, feature + r, token + c * lanes,
                             to + r * panel_tokens + c * lanes * results_at_once, false);
      });
    }
    return column;
  }

  /// Prefetches the rows of a block that one register block reads.
  TESSERA_INLINE static void fetch_rows(W const* w) {
    unroll<ceil_div<int>(rows * Shape::cols * sizeof(W), 64)>([&](auto l) TESSERA_INLINE_LAMBDA {
      simd::prefetch<1>(reinterpret_cast<std::byte const*>(w) + l * 64);
    });
  }

  /// The steps of a block go to several sets of sums in turn: one register of tokens gives too few
  /// sums to hide the latency of a multiply-add.
  template <int C, unsigned Sets>
  TESSERA_INLINE static void multiply_block(reg (&sums)[Sets][unsigned(rows)][unsigned(C)], W const* w,
                                            factor const* x, int depth) {
    using lane = simd::stored_lane<factor>;
    const auto step = [&](auto s) TESSERA_INLINE_LAMBDA {
      multiply_registers<lane, Arch>(
          sums[s], [&](auto r) TESSERA_INLINE_LAMBDA { return weight_of(w + r * Shape::cols); },
          [&](auto c)
              TESSERA_INLINE_LAMBDA { return simd::load_lanes<Arch>(x + c * lanes * factors_a_lane); });
      w += factors_a_lane;
      x += factors_a_lane * panel_tokens;
    };
    // Mostly not unrolled: the multiply-adds of one step hide the loop, and the code compiles in 75 % of the
    // time.
    int k = 0;
    if constexpr (policy::unrolls_blocks && Sets == 1 && !ragged)
      return unroll<block_depth / factors_a_lane>(
          [&](auto) TESSERA_INLINE_LAMBDA { step(std::integral_constant<int, 0>()); });
    if constexpr (Sets > 1)
      for (; k + int(Sets) * factors_a_lane <= depth; k += int(Sets) * factors_a_lane)
        unroll<int(Sets)>(step);
    for (; k < depth; k += factors_a_lane) step(std::integral_constant<int, 0>());
  }

  /// The weight of one row, broadcast to all lanes.
  TESSERA_INLINE static simd::reg<simd::stored_lane<factor>, Arch> weight_of(W const* w) {
    if constexpr (std::is_same_v<W, factor>)
      return simd::broadcast_lane<Arch>(w);
    else
      return simd::broadcast_value<Arch>(*w).data;
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/eval/product_bodies.hpp
#ifndef TESSERA_SINGLE_EVAL_PRODUCT_BODIES
#define TESSERA_SINGLE_EVAL_PRODUCT_BODIES
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// The bodies of the steps of W·x: a tile is a panel, or a range of its features.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// The operands and sizes that all products have.
template <class Types, class Tree> struct product_operands {
  using T = typename Types::accumulator;
  panels_to<typename Types::result> to;
  operand x;
  kernels::block_index index;
  std::int64_t inner;  // features of x
  operand sums;        // partial sums of rows: the kernel's scratch, or the result itself
  int group_lines = 1;
  bool shares_fetching = false;  // parts of a panel fetch the next one together
  Tree tree;

  std::int64_t depth() const { return round_up<std::int64_t>(inner, granule); }
  std::int64_t x_bytes() const {
    return depth() * std::int64_t(panel_tokens * sizeof(typename Types::activation));
  }

  /// The features of part `part` of `parts`, in lines of `line_rows`.
  range features_of(int part, int parts, int line_rows) const {
    const range lines = index.lines_of_part(part, parts, group_lines);
    return {int(std::min<std::int64_t>(to.features, std::int64_t(lines.first) * line_rows)),
            int(std::min<std::int64_t>(to.features, std::int64_t(lines.last) * line_rows))};
  }

  /// With the panel of the result at y.
  auto arguments(tile const& t, typename Types::result* y) const {
    using X = typename Types::activation;
    const auto on_panel = addressed(tree, t);
    const range lines = index.lines_of_part(t.part, t.parts, group_lines);
    kernels::product_arguments<Types, std::remove_const_t<decltype(on_panel)>> a{
        {.weights = nullptr,
         .index = index,
         .x = t.address<X const>(x),
         .y = y,
         .first_line = lines.first,
         .last_line = lines.last,
         .rows = to.features,
         .depth = depth(),
         .tokens = tokens_of(t.index, to.tokens),
         .next = nullptr,
         .next_bytes = 0,
         .first_token = t.index * panel_tokens,
         .sums = t.address<typename Types::sum>(sums)},
        on_panel};
    const bool has_next = (t.index + 1) * panel_tokens < to.tokens;
    if (has_next && x.owner == memory::user && (t.parts == 1 || shares_fetching)) {
      const range fetched =
          part_of(int(depth() * std::int64_t(panel_tokens * sizeof(X)) / 64), t.part, t.parts);
      a.next = t.address<std::byte const>(x, t.index + 1) + std::size_t(fetched.first) * 64;
      a.next_bytes = std::size_t(fetched.size()) * 64;
    }
    return a;
  }

  /// Describes a tile, but for its result, for blocks of shape Block, stored as W in the order of the lines.
  template <class Block, class W>
  TESSERA_COLD void describe(tile const& t, operand const& weights, task_description& d) const {
    using X = typename Types::activation;
    const range lines = index.lines_of_part(t.part, t.parts, group_lines);
    const auto [first, last] = features_of(t.part, t.parts, Block::rows);
    const int live = tokens_of(t.index, to.tokens);
    describe_blocks(d, index, lines, weights, Block::elements * std::int64_t(sizeof(W)));
    describe_columns(d, index, lines, Block::cols, part_of_panel<X>(x, t.index, 0, inner, live),
                     element_traits<X>::features_a_lane);
    describe_reads(tree, t, first, last, live, d);
    d.multiply({lines.last - lines.first, index.blocks(lines.first, lines.last), live, Block::rows,
                Block::cols, int(sizeof(W))});
  }
};

/// y = tree(W·x), with the blocks of W in the order of its lines.
template <class Types, class Block, class Tree> struct product_body {
  using policy = kernels::engine_policy<Types::by>;
  using kernel = std::conditional_t<
      Types::by == engine::amx,
      kernels::amx_product<simd::native_amx, simd::native, Types, Block, addressed_tree<Tree>>,
      kernels::sparse_product<simd::native, Types, Block, addressed_tree<Tree>>>;
  using Y = typename Types::result;
  product_operands<Types, Tree> of;
  operand weights;  // blocks in the order of the lines: W itself, or a copy of Wᵀ
  operand offsets;  // row_offsets, where x is offset

  panels_to<Y> const& destination() const { return of.to; }
  range features_of(tile const& t) const { return of.features_of(t.part, t.parts, Block::rows); }
  void compute_at(tile const& t, Y* y) const noexcept {
    auto a = of.arguments(t, y);
    a.weights = t.address<typename Types::weight const>(weights);
    // Blocks that read fewer features than x has would leave much of the next panel unread.
    if (of.index.blocks() * Block::cols < of.inner) a.next = nullptr;
    if constexpr (policy::offsets_x) a.row_offsets = t.address<std::int32_t const>(offsets);
    kernel::run(a);
  }
  void describe(tile const& t, task_description& d) const {
    of.template describe<Block, typename Types::weight>(t, weights, d);
    if constexpr (policy::offsets_x) {
      const range lines = of.index.lines_of_part(t.part, t.parts, of.group_lines);
      d.read(elements_of<std::int32_t>(offsets, 0, lines.first * Block::rows, lines.size() * Block::rows));
    }
  }
};

/// y = tree(W·x) with single elements that another step has ordered and widened to T.
template <class Types, class Tree> struct ordered_product_body {
  using T = typename Types::accumulator;
  using kernel = kernels::ordered_product<simd::native, Types, addressed_tree<Tree>>;
  using Y = typename Types::result;
  product_operands<Types, Tree> of;
  operand ordered;

  panels_to<Y> const& destination() const { return of.to; }
  range features_of(tile const& t) const { return of.features_of(t.part, t.parts, 1); }

  kernels::nonzeros<T> nonzeros(tile const& t) const {
    return {of.index, of.inner, kernels::register_block<T, simd::native>::chunk_features,
            t.address<std::byte>(ordered)};
  }
  void compute_at(tile const& t, Y* y) const noexcept {
    auto a = of.arguments(t, y);
    if constexpr (std::is_same_v<Y, T>)
      if (of.sums == of.to.at) a.sums = y;
    kernel::run(a, nonzeros(t));
  }
  void describe(tile const& t, task_description& d) const {
    of.template describe<block_shape<1>, T>(t, ordered, d);
  }
};

/// y = tree(W·x) or y = tree(Wᵀ·x) with the blocks of W where they stand, for few tokens.
///   Kernel   vector_product or scattered_product
template <class Kernel, class Types, class Block, class Tree> struct few_tokens_body {
  using W = typename Types::weight;
  using Y = typename Types::result;
  product_operands<Types, Tree> of;
  operand weights;
  kernels::block_index by_rows;  // of W

  panels_to<Y> const& destination() const { return of.to; }
  range features_of(tile const& t) const { return of.features_of(t.part, t.parts, Block::rows); }
  void compute_at(tile const& t, Y* y) const noexcept {
    auto a = of.arguments(t, y);
    a.weights = t.address<W const>(weights);
    Kernel::run(a, by_rows);
  }
  void describe(tile const& t, task_description& d) const { of.template describe<Block, W>(t, weights, d); }
};

}}}  // namespace tessera::TESSERA_ISA::eval
#endif

// ---- tessera/eval/product_method.hpp
#ifndef TESSERA_SINGLE_EVAL_PRODUCT_METHOD
#define TESSERA_SINGLE_EVAL_PRODUCT_METHOD
#include <algorithm>
#include <cstdint>

// Who multiplies in y = tree(W·x): plain facts in, a method out. Lowering, advice and reports ask here, and
// tests/eval/product_method.test.cpp holds the answers in a table.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

enum class product_form : std::uint8_t {
  blocks,     // along the blocks of each line
  ordered,    // single elements, copied into the order of use
  vector,     // few tokens: weights fill the registers
  scattered,  // Wᵀ·x of few tokens: a block is added to the sums of its column
  decoded,    // N:M, line by line
  covered,    // N:M, written in dense blocks before
};

constexpr char const* name_of(product_form form) {
  constexpr char const* names[] = {"blocks", "ordered", "vector", "scattered", "decoded", "covered"};
  return names[int(form)];
}

/// A way to multiply: the loops, the instruction in them, and whether stored numbers are widened before.
struct product_method {
  product_form form = product_form::blocks;
  engine by = engine::fma;
  bool widens_w = false;
  bool widens_x = false;

  friend bool operator==(product_method const&, product_method const&) = default;
};

/// The facts about a product that are known when it is compiled.
struct product_kind {
  // A block, as a line of W or of Wᵀ has it. N:M: one element.
  int rows, cols;
  bool transposed = false;
  int kept = 0, group = 0;  // N:M: `kept` of `group` elements; else 0
  // Whether a number of one byte is widened before it is multiplied by a number that is no integer.
  bool widens_w = false, widens_x = false;
  // Engines that are compiled in for blocks of this shape: for numbers of one byte as they are stored, and
  // for all numbers as they are multiplied if they are widened.
  engine_set by_integers = {}, by_factors = {};
  int vector_tokens = 0;     // most tokens that the loops along weights are worth; 0: there are none
  int scattered_tokens = 0;  // most tokens that the scattered loops are worth; 0: there are none

  constexpr bool is_single() const { return rows * cols == 1; }
};

/// The facts that are known when it runs.
struct product_size {
  std::int64_t tokens, depth, blocks;  // depth: features of x
  int lines;
  bool is_sparse;  // some block is absent
};

/// The methods that there is code for, best first.
struct product_methods {
  product_method all[8] = {};
  int count = 0;

  constexpr void add(product_method const& way) { all[count++] = way; }
  constexpr product_method const* begin() const { return all; }
  constexpr product_method const* end() const { return all + count; }
};

// ---- thresholds ----

/// Fewest panels for which single elements are ordered: for fewer panels the copy costs more than it saves.
inline constexpr std::int64_t fewest_panels_ordered = 4;
/// Fewest tokens for which N:M is written in dense blocks for AMX: that takes as long as the product with
/// some 60 tokens.
inline constexpr std::int64_t fewest_tokens_covered = panel_tokens + 1;
/// Most products of two int8 in a sum of 32 bits, as each may be 2^14.
inline constexpr std::int64_t most_integer_products = (std::int64_t(1) << 31) / (128 * 128) - 1;
/// A panel with fewer weights takes less than 10 µs and is not divided.
inline constexpr std::int64_t fewest_weights_divided = 1 << 14;

/// Most pieces of a panel of the result, of `lines` lines: of a panel of x that does not stay in the L2
/// beside them all lines are computed at once.
inline int most_pieces(std::int64_t x_bytes, int lines) {
  return x_bytes > (1 << 18) ? 1 : std::max(1, lines);
}

/// Rows of a register of AMX. Blocks that have as many rows and columns fill it as they are stored.
inline constexpr int rows_of_amx = 16;
/// Blocks of fewer columns AMX multiplies side by side, as many as have this many columns together.
inline constexpr int narrow_for_amx = 8, columns_beside = 32;

/// Whether numbers of one byte are multiplied as they are stored.
constexpr bool in_integers(product_method const& way, product_kind const& kind) {
  return kind.widens_x && !way.widens_x;
}

/// Whether AMX multiplies a single token too: nothing else reads large blocks as fast. It takes them as they
/// stand in W.
constexpr bool takes_single_tokens(product_method const& way, product_kind const& kind) {
  return way.by == engine::amx && !way.widens_w && !kind.transposed && kind.rows >= rows_of_amx &&
         kind.cols >= rows_of_amx;
}

/// Whether lines have enough blocks for AMX. It multiplies several narrow blocks at once, which pays if a
/// line has at least half as many on average; other engines are faster where zeros fill more.
constexpr bool fills_amx(product_kind const& kind, product_size const& size) {
  if (kind.cols >= narrow_for_amx || kind.rows >= rows_of_amx) return true;
  return 2 * size.blocks >= columns_beside / kind.cols * std::int64_t(size.lines);
}

// ---- the choice ----

constexpr product_methods methods_of(product_kind const& kind) {
  using enum product_form;
  product_methods ways;
  if (kind.kept > 0) {
    // In dense blocks AMX takes a fifth of the time of multiply-adds, of all elements.
    if (kind.by_factors.allows(engine::amx) && 8 * kind.kept >= kind.group)
      ways.add({covered, engine::amx, false, kind.widens_x});
    ways.add({kind.transposed ? ordered : decoded, engine::fma, false, kind.widens_x});
    return ways;
  }
  // In integers narrower blocks fill less of AMX than of registers.
  if (kind.by_integers.allows(engine::amx) && kind.cols >= 16) ways.add({blocks, engine::amx, false, false});
  if (kind.by_integers.allows(engine::quads)) ways.add({blocks, engine::quads, false, false});
  if (kind.by_factors.allows(engine::amx)) ways.add({blocks, engine::amx, kind.widens_w, kind.widens_x});
  if (kind.vector_tokens > 0) ways.add({vector, engine::fma, false, kind.widens_x});
  if (kind.scattered_tokens > 0) ways.add({scattered, engine::fma, kind.widens_w, kind.widens_x});
  if (kind.is_single()) ways.add({ordered, engine::fma, kind.widens_w, kind.widens_x});
  if (kind.by_factors.allows(engine::pairs)) ways.add({blocks, engine::pairs, kind.widens_w, kind.widens_x});
  ways.add({blocks, engine::fma, kind.widens_w, kind.widens_x});
  return ways;
}

/// Whether a method suits a product on a machine, provided that no better one does.
TESSERA_INLINE constexpr bool suits(product_method const& way, product_kind const& kind,
                                    product_size const& size, machine const& on) {
  using enum product_form;
  if (way.by != engine::fma && (!on.engines.allows(way.by) || rate_of(way.by, on.family) <= 1)) return false;
  const std::int64_t panels = ceil_div<std::int64_t>(size.tokens, panel_tokens);
  switch (way.form) {
    case blocks:
      if (way.by == engine::fma || way.by == engine::pairs) return true;
      if (size.tokens == 1 && !takes_single_tokens(way, kind)) return false;
      return in_integers(way, kind) ? size.depth <= most_integer_products : fills_amx(kind, size);
    case ordered:
      return kind.kept > 0 || (size.is_sparse && panels >= fewest_panels_ordered);
    case vector:
      return size.tokens <= kind.vector_tokens;
    case scattered:
      // Single elements are ordered where that pays.
      return kind.is_single() ? size.is_sparse && panels < fewest_panels_ordered
                              : size.tokens <= kind.scattered_tokens;
    case decoded:
      return true;
    case covered:
      return size.tokens >= fewest_tokens_covered;
  }
  return false;
}

/// The first of methods_of(kind) that suits.
constexpr product_method choose_product_method(product_methods const& ways, product_kind const& kind,
                                               product_size const& size, machine const& on) {
  for (product_method const& way : ways)
    if (suits(way, kind, size, on)) return way;
  return {};  // never: the last of the methods suits every product
}

}}}  // namespace tessera::TESSERA_ISA::eval
#endif

// ---- tessera/kernels/scattered_product.hpp
#ifndef TESSERA_SINGLE_KERNELS_SCATTERED_PRODUCT
#define TESSERA_SINGLE_KERNELS_SCATTERED_PRODUCT
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sums of one panel of Wᵀ·x, with the blocks of W where they stand: row by row, each element times its
/// row of x is added to the sums of its column.
template <class Arch, class W, class X, class Block> struct scattered_sums {
  using T = accumulator_t<W>;
  using reg = simd::reg<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr bool is_single = Block::elements == 1;
  /// Blocks are multiplied where x need not be widened again for each of them.
  static constexpr bool exists = is_single || std::is_same_v<X, T>;
  /// Registers of tokens of which a pass over the blocks makes the sums.
  static constexpr int most_registers = is_single ? panel_tokens / lanes : register_block<T, Arch>::registers;
  static constexpr int pass_tokens = most_registers * lanes;
  /// Tokens for which blocks are worth it.
  static constexpr int most_tokens = std::min(panel_tokens / 2, 2 * pass_tokens);

  /// Registers that hold some tokens: a power of two, at most most_registers.
  static int registers_of(int tokens) { return int(std::bit_ceil(unsigned(ceil_div(tokens, lanes)))); }

  /// Of block columns [first, last) of W.
  ///   depth   stored features of x   sums   (columns of W, registers · lanes)
  template <int Registers = 1>
  static void add(block_index const& index, W const* weights, X const* x, std::int64_t depth, T* sums,
                  int first, int last, int registers) noexcept {
    if constexpr (Registers < most_registers)
      if (registers > Registers)
        return add<2 * Registers>(index, weights, x, depth, sums, first, last, registers);
    constexpr std::int64_t stride = Registers * lanes;
    std::fill(sums + first * Block::cols * stride, sums + last * Block::cols * stride, T(0));
    for (int line = 0; line < index.lines(); ++line) {
      const block_line blocks = index.line(line);
      const auto here = columns_between(blocks, first, last);
      if (here.empty()) continue;
      W const* const w = weights + (blocks.first + (here.data() - blocks.columns)) * Block::elements;
      if constexpr (is_single)
        add_singles<Registers>(here, w, x, line, sums, stride);
      else
        add_blocks<Registers>(here, w, x, depth, std::int64_t(line) * Block::rows, sums, stride);
    }
  }

 private:
  using sizes = register_block<T, Arch>;
  template <int Registers>
  TESSERA_INLINE static void add_singles(std::span<std::int32_t const> columns, W const* weight, X const* x,
                                         int row, T* sums, std::int64_t stride) {
    reg of_row[unsigned(Registers)];
    unroll<Registers>(
        [&](auto c) TESSERA_INLINE_LAMBDA { of_row[c] = simd::load_feature<Arch>(x, row, c * lanes).data; });
    for (const std::int32_t column : columns) {
      T* const to = sums + column * stride;
      const reg factor = simd::broadcast_value<Arch>(*weight++).data;
      unroll<Registers>([&](auto c) TESSERA_INLINE_LAMBDA {
        simd::store<Arch>(to + c * lanes,
                          simd::fma<Arch, T>(factor, of_row[c], simd::load<Arch>(to + c * lanes)));
      });
    }
  }

  /// Some columns of a block at a time, whose sums stay in registers.
  template <int Registers>
  TESSERA_INLINE static void add_blocks(std::span<std::int32_t const> columns, W const* w, X const* x,
                                        std::int64_t depth, std::int64_t first_row, T* sums,
                                        std::int64_t stride) {
    constexpr int at_once = power_of_two_divisor(sizes::rows, Block::cols);
    const int height = int(std::min<std::int64_t>(Block::rows, depth - first_row));
    X const* const rows = x + first_row * panel_tokens;
    for (const std::int32_t column : columns) {
      for (int c = 0; c < Block::cols; c += at_once) {
        T* const to = sums + (std::int64_t(column) * Block::cols + c) * stride;
        reg acc[unsigned(at_once)][unsigned(Registers)];
        unroll<at_once * Registers>([&](auto n) TESSERA_INLINE_LAMBDA {
          acc[n / Registers][n % Registers] =
              simd::load<Arch>(to + n / Registers * stride + n % Registers * lanes);
        });
        for (int r = 0; r < height; ++r)
          multiply_registers<T, Arch>(
              acc,
              [&](auto i) TESSERA_INLINE_LAMBDA {
                return simd::broadcast_value<Arch>(w[r * Block::cols + c + i]).data;
              },
              [&](auto j)
                  TESSERA_INLINE_LAMBDA { return simd::load<Arch>(rows + r * panel_tokens + j * lanes); });
        unroll<at_once * Registers>([&](auto n) TESSERA_INLINE_LAMBDA {
          simd::store<Arch>(to + n / Registers * stride + n % Registers * lanes,
                            acc[n / Registers][n % Registers]);
        });
      }
      w += Block::elements;
    }
  }
};

/// y = tree(Wᵀ·x) of one panel. For a few panels it takes less time than to bring W into another order.
template <class Arch, class Types, class Block, class Tree> struct scattered_product {
  using T = typename Types::accumulator;
  using batch = simd::batch<T, Arch>;
  using sums_of = scattered_sums<Arch, typename Types::weight, typename Types::activation, Block>;
  static constexpr bool exists = sums_of::exists;
  static constexpr int most_tokens = sums_of::most_tokens;

  /// Bytes of product_arguments::sums.
  static std::size_t sums_bytes(block_index const& index, std::int64_t, std::int64_t) {
    return std::size_t(index.lines()) * std::size_t(Block::cols * sums_of::pass_tokens) * sizeof(T);
  }

  ///   by_rows   the index of W
  static void run(product_arguments<Types, Tree> const& a, block_index const& by_rows) noexcept {
    for (int first = 0; first < a.tokens; first += sums_of::pass_tokens)
      pass(a, by_rows, first, std::min(a.tokens - first, sums_of::pass_tokens));
  }

 private:
  /// The results of `tokens` tokens from `first` on.
  static void pass(product_arguments<Types, Tree> const& a, block_index const& by_rows, int first,
                   int tokens) {
    constexpr int results_a_lane = element_traits<typename Types::result>::features_a_lane;
    const int registers = sums_of::registers_of(tokens), stride = registers * sums_of::lanes;
    sums_of::add(by_rows, a.weights, a.x + first, a.depth, a.sums, a.first_line, a.last_line, registers);
    const std::int64_t end = std::min(a.rows, std::int64_t(a.last_line) * Block::cols);
    for (std::int64_t f = std::int64_t(a.first_line) * Block::cols; f < end; f += results_a_lane)
      for (int token = 0; token < tokens; token += sums_of::lanes) {
        batch of_lane[unsigned(results_a_lane)];
        for (int i = 0; i < results_a_lane; ++i)
          of_lane[i] = f + i < end ? batch::load_unaligned(a.sums + (f + i) * stride + token) : batch(T(0));
        store_result<true>(a, of_lane, f, first + token);
      }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/vector_product_1x1.hpp
#ifndef TESSERA_SINGLE_KERNELS_VECTOR_PRODUCT_1X1
#define TESSERA_SINGLE_KERNELS_VECTOR_PRODUCT_1X1
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sums of W·v of a few tokens, of single elements W. The tokens stand beside each other, so that one
/// load for an element brings them all: in numbers one by one, or in registers. Element b of a line belongs
/// to sum b % 4 of its line: the bits of a token do not depend on the others.
template <class Arch, class W> struct vector_sums_1x1 {
  using T = accumulator_t<W>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int most_one_by_one = std::min(2, lanes / 2), most_registers = 2;
  using half = simd::half_of<T, Arch>;
  static constexpr int half_lanes = simd::lanes<T, half>;

  /// Tokens that stand beside each other, padding included; more make several groups, (groups, columns of W,
  /// beside).
  static int beside(int tokens) {
    if (tokens <= most_one_by_one) return std::max(tokens, 1);
    if (tokens <= half_lanes) return half_lanes;
    return std::min(round_up(tokens, lanes), most_registers * lanes);
  }

  /// Brings x, tokens of a panel, into that order.
  ///   depth   stored features of x
  template <class X> static void bring(X const* x, std::int64_t depth, int tokens, T* v) {
    with_width(tokens, [&](auto width) { bring_as<decltype(width)>(x, depth, tokens, v); });
  }

  /// sums = W·v, of lines [first, last) of W, beginning with line `first`.
  ///   group_size   numbers of a group in v
  ///   sums         (lines, sums_stride ≥ whole groups of tokens)
  static void by_rows(block_index const& index, W const* weights, int tokens, T const* v,
                      std::int64_t group_size, T* sums, std::int64_t sums_stride, int first,
                      int last) noexcept {
    with_width(tokens, [&](auto width) {
      add_up<decltype(width)>(index, weights, tokens, v, group_size, sums, sums_stride, first, last);
    });
  }

 private:
  static constexpr int sets = 4;                  // sums that hide the latency of a multiply-add
  static constexpr int prefetch_distance = 1024;  // bytes
  static constexpr int widened_at_once = sizeof(W) == sizeof(T) ? 16 : 2 * lanes;

  struct number {
    using type = T;
  };
  template <class In> struct register_of {
    using type = simd::reg<T, In>;
  };
  /// Tokens that stand beside each other: Count registers of `In`, or numbers if that is void.
  template <class In, int Count> struct width_of {
    static constexpr int count = Count;
    static constexpr bool in_registers = !std::is_void_v<In>;
    using arch = std::conditional_t<in_registers, In, Arch>;
    using type = typename std::conditional_t<in_registers, register_of<arch>, number>::type;
    static constexpr int size = in_registers ? simd::lanes<T, arch> : 1, all = Count * size;

    TESSERA_INLINE static type load(T const* from) {
      if constexpr (in_registers)
        return simd::load<arch>(from);
      else
        return *from;
    }
    TESSERA_INLINE static type broadcast(T value) {
      if constexpr (in_registers)
        return simd::broadcast<arch>(value);
      else
        return value;
    }
    TESSERA_INLINE static type fma(type a, type b, type c) {
      if constexpr (in_registers)
        return simd::fma<arch, T>(a, b, c);
      else
        return simd::fma_of_one<arch>(a, b, c);
    }
    TESSERA_INLINE static type add(type a, type b) {
      if constexpr (in_registers)
        return (simd::batch<T, arch>(a) + simd::batch<T, arch>(b)).data;
      else
        return a + b;
    }
    TESSERA_INLINE static void store(T* to, type value) {
      if constexpr (in_registers)
        simd::store<arch>(to, value);
      else
        *to = value;
    }
  };

  /// Calls use(width_of) for the width of some tokens.
  template <class Use> static void with_width(int tokens, Use const& use) {
    const int width = beside(tokens);
    if (width == 1)
      use(width_of<void, 1>());
    else if (width == most_one_by_one)
      use(width_of<void, most_one_by_one>());
    else if (width == half_lanes)
      use(width_of<half, 1>());
    else if (width == lanes)
      use(width_of<Arch, 1>());
    else
      use(width_of<Arch, most_registers>());
  }

  template <class Width, class X> static void bring_as(X const* x, std::int64_t depth, int tokens, T* v) {
    constexpr int features_a_lane = element_traits<X>::features_a_lane;
    for (int token = 0; token < tokens; token += Width::all)
      for (std::int64_t f = 0; f < depth; f += features_a_lane, v += features_a_lane * Width::all)
        unroll<Width::count>([&](auto c) TESSERA_INLINE_LAMBDA {
          X const* const from = x + place_in_panel<X>(f, token + c * Width::size);
          simd::prefetch<1>(from + 32 * panel_tokens);
          if constexpr (Width::in_registers) {
            typename Width::type features[unsigned(features_a_lane)];
            simd::widen_lanes<typename Width::arch>(from, features);
            unroll<features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
              Width::store(v + i * Width::all + c * Width::size, features[i]);
            });
          } else {
            for (int i = 0; i < features_a_lane; ++i) v[i * Width::all + c] = T(from[i]);
          }
        });
  }

  template <class Width>
  [[gnu::noinline]] static void add_up(block_index const& index, W const* weights, int tokens, T const* v,
                                       std::int64_t group_size, T* sums, std::int64_t sums_stride, int first,
                                       int last) noexcept {
    for (int line = first; line < last; ++line, sums += sums_stride) {
      const block_line blocks = index.blocks() == 0 ? block_line{} : index.line(line);
      T const* group = v;
      for (int t = 0; t < tokens; t += Width::all, group += group_size)
        add_line<Width>(blocks, weights + blocks.first, group, sums + t);
    }
  }

  template <class Width>
  TESSERA_INLINE static void add_line(block_line const& blocks, W const* w, T const* v, T* sums) {
    constexpr int count = Width::count;
    typename Width::type acc[unsigned(sets)][unsigned(count)];
    unroll<sets * count>([&](auto i)
                             TESSERA_INLINE_LAMBDA { acc[i / count][i % count] = Width::broadcast(T(0)); });
    const auto add = [&](auto set, T weight, std::int64_t column) TESSERA_INLINE_LAMBDA {
      const auto factor = Width::broadcast(weight);
      T const* const from = v + column * std::int64_t(Width::all);
      unroll<count>([&](auto c) TESSERA_INLINE_LAMBDA {
        acc[set][c] = Width::fma(factor, Width::load(from + c * Width::size), acc[set][c]);
      });
    };
    std::int32_t const* const columns = blocks.columns;
    int b = 0;
    for (; b + widened_at_once <= blocks.count; b += widened_at_once) {
      simd::prefetch<1>(reinterpret_cast<std::byte const*>(w + b) + prefetch_distance);
      simd::prefetch<1>(reinterpret_cast<std::byte const*>(columns + b) + prefetch_distance);
      T const* wide;
      alignas(64) T room[unsigned(widened_at_once)];
      if constexpr (std::is_same_v<W, T>) {
        wide = w + b;
      } else {
        unroll<widened_at_once / lanes>([&](auto i) TESSERA_INLINE_LAMBDA {
          simd::store<Arch>(room + i * lanes, simd::load_values<Arch>(w + b + i * lanes).data);
        });
        wide = room;
      }
      unroll<widened_at_once / 2>([&](auto i) TESSERA_INLINE_LAMBDA {
        const simd::index_pair at = simd::load_pair(columns + b + 2 * i);
        add(std::integral_constant<int, 2 * i % sets>(), wide[2 * i], at.first);
        add(std::integral_constant<int, (2 * i + 1) % sets>(), wide[2 * i + 1], at.second);
      });
    }
    for (; b + sets <= blocks.count; b += sets)
      unroll<sets>([&](auto i) TESSERA_INLINE_LAMBDA { add(i, T(w[b + i]), columns[b + i]); });
    unroll<sets - 1>([&](auto i) TESSERA_INLINE_LAMBDA {
      if (b + i < blocks.count) add(i, T(w[b + i]), columns[b + i]);
    });
    unroll<count>([&](auto c) TESSERA_INLINE_LAMBDA {
      Width::store(sums + c * Width::size,
                   Width::add(Width::add(acc[0][c], acc[1][c]), Width::add(acc[2][c], acc[3][c])));
    });
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/vector_product.hpp
#ifndef TESSERA_SINGLE_KERNELS_VECTOR_PRODUCT
#define TESSERA_SINGLE_KERNELS_VECTOR_PRODUCT
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sums of W·v of a few contiguous v of accumulators, and of Wᵀ·v of one.
///   v, sums   padded to whole blocks; padding of v is zero
template <class Arch, class W, class Block> struct vector_sums {
  using T = accumulator_t<W>;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int rows = Block::rows, cols = Block::cols;
  static constexpr bool is_single = Block::elements == 1;
  using singles = vector_sums_1x1<Arch, W>;
  static constexpr int most_tokens = 16;  // of W·v; with more, lanes that hold tokens are as fast
  /// Whether a register holds whole rows, or a row whole registers.
  static constexpr bool exists =
      is_single || cols % lanes == 0 || (lanes % cols == 0 && Block::elements % lanes == 0);

  /// Numbers of v for each column of W, and of sums for each row, whose first `tokens` are results.
  static std::int64_t v_width(int tokens) {
    return is_single ? round_up(tokens, singles::beside(tokens)) : tokens;
  }
  static std::int64_t sums_width(int tokens) {
    if (tokens == 1) return 1;
    return round_up(tokens, is_single ? std::max(lanes, singles::beside(tokens)) : lanes);
  }

  /// Numbers of the registers of sums of a line.
  static std::int64_t partial_size(int tokens) {
    return is_single ? 0 : sets * ceil_div(rows, rows_a_register) * tokens * lanes;
  }

  /// Brings x, tokens of a panel, into the order in which by_rows reads it: v (block columns, tokens, cols).
  ///   depth   stored features of x
  template <class X> static void bring(X const* x, std::int64_t depth, int tokens, T* v) {
    if constexpr (is_single) {
      singles::bring(x, depth, tokens, v);
    } else {
      static_assert(granule % lanes == 0);
      if (tokens == 1)
        for (std::int64_t f = 0; f < depth; ++f) v[f] = T(x[place_in_panel<X>(f, 0)]);
      else
        for (std::int64_t f = 0; f < depth; f += lanes)
          for (int token = 0; token < tokens; token += lanes) bring_square(x, f, token, tokens, v);
      const std::int64_t whole = round_up<std::int64_t>(depth, cols);
      for (std::int64_t f = depth; f < whole; ++f)
        for (int t = 0; t < tokens; ++t) v[(f / cols * tokens + t) * cols + f % cols] = T(0);
    }
  }

  /// sums = W·v, of lines [first, last) of W, beginning with line `first`. The bits of a token do not
  /// depend on the others.
  ///   sums      (rows of W, sums_width(tokens))
  ///   partial   partial_size(tokens) numbers
  static void by_rows(block_index const& index, W const* weights, int tokens, T const* v, std::int64_t depth,
                      T* sums, T* partial, int first, int last) noexcept {
    if constexpr (is_single) {
      singles::by_rows(index, weights, tokens, v, depth * singles::beside(tokens), sums, sums_width(tokens),
                       first, last);
    } else {
      if (index.blocks() == 0) {
        std::fill_n(sums, (last - first) * rows * sums_width(tokens), T(0));
        return;
      }
      stream next = stream_of(index, weights, tokens, first);
      for (int line = first; line < last; ++line, sums += rows * sums_width(tokens)) {
        const block_line blocks = index.line(line);
        for (int begin = 0, end = -1; end != blocks.count; begin = end) {
          end = blocks.count - begin < chunk + chunk / 2 ? blocks.count : begin + chunk;
          part here{blocks.columns + begin, end - begin, begin == 0, end == blocks.count, tokens, v, partial};
          W const* const w = weights + (blocks.first + begin) * Block::elements;
          for (int row = 0; row < rows; row += rows_at_once)
            for (int token = 0; token < tokens;)
              token += sum_rows_of_some<most_together>(here, w + row * cols, token,
                                                       sums + row * sums_width(tokens), next);
        }
      }
    }
  }

  /// sums = Wᵀ·v, of block columns [first, last) of W.
  static void by_cols(block_index const& index, W const* weights, T const* v, T* sums, int first,
                      int last) noexcept {
    std::fill(sums + std::int64_t(first) * cols, sums + std::int64_t(last) * cols, T(0));
    for (int line = 0; line < index.lines(); ++line) {
      const block_line blocks = index.line(line);
      const auto here = columns_between(blocks, first, last);
      if (here.empty()) continue;
      W const* const w = weights + (blocks.first + (here.data() - blocks.columns)) * Block::elements;
      add_line(here, w, v + std::int64_t(line) * rows, sums);
    }
  }

 private:
  static constexpr int chains = 8;  // sums that hide the latency of a multiply-add
  static constexpr int row_registers = std::max(1, cols / lanes);
  static constexpr int rows_a_register = std::max(1, lanes / cols);
  /// A divisor of the rows that fills whole registers. All 16 of a block: that some sums of one token leave
  /// the registers costs less than to read the block twice; not of narrow elements, which are widened in
  /// some.
  static constexpr int rows_at_once = [] {
    int most = std::min(rows, rows_a_register * (sizeof(W) < sizeof(T) ? 1 : 2) * chains);
    while (most > 1 && (rows % most != 0 || most % rows_a_register != 0)) --most;
    return most;
  }();
  static constexpr int registers = rows_at_once / rows_a_register;
  static constexpr int sets = std::max(1, chains / 2 / std::max(1, registers));  // blocks at once

  /// Rows of which `Tokens` tokens are multiplied at a time, so that sums fit the registers; 0 if none do.
  template <int Tokens>
  static constexpr int rows_together = [] {
    constexpr int most_sums = sizeof(reg) == 64 ? 2 * chains : chains;
    int most = rows_at_once;
    while (most > 0 && (rows_at_once % most != 0 || most % rows_a_register != 0 ||
                        (Tokens > 1 && sets * (most / rows_a_register) * Tokens > most_sums)))
      --most;
    return most;
  }();
  static constexpr bool fours = rows_together<4> > (registers == 1 ? 0 : rows_a_register);
  static constexpr int most_together = fours ? 4 : rows_together<2> > 0 ? 2 : 1;

  /// Blocks of a line that are multiplied by all tokens before the next: they stay in the L1, and so does
  /// their part of v.
  static constexpr int chunk = std::max(1, 256 / cols / sets) * sets;

  /// Weights are prefetched a chunk ahead, as each weight of a chunk is first read at its beginning.
  using stream = stream_ahead;
  static stream stream_of(block_index const& index, W const* weights, int tokens, int first_line) {
    constexpr std::int64_t block_bytes = Block::elements * sizeof(W);
    constexpr std::int64_t ahead = block_bytes * (chunk + chunk / 2) + 2048;
    return {
        reinterpret_cast<std::byte const*>(weights + index.place_of(first_line) * Block::elements) + ahead,
        ceil_div<std::int64_t>(block_bytes, std::max(1, visits<most_together>(tokens)))};
  }
  /// Whether blocks are read in the order of memory: hardware prefetches these better.
  template <int Tokens, int Height> static constexpr bool in_order = Tokens == 1 && Height == rows;
  /// How often each block is visited with a prefetch.
  template <int Tokens> static int visits(int tokens) {
    constexpr int each = in_order<Tokens, rows_together<Tokens>> ? 0 : rows / rows_together<Tokens>;
    if constexpr (Tokens > 1)
      return tokens / Tokens * each + visits<Tokens / 2>(tokens % Tokens);
    else
      return tokens * each;
  }

  /// Brings a register of features of a register of tokens.
  template <class X>
  TESSERA_INLINE static void bring_square(X const* x, std::int64_t feature, int token, int tokens, T* v) {
    constexpr int features_a_lane = element_traits<X>::features_a_lane, together = std::min(cols, lanes);
    reg square[unsigned(lanes)];
    unroll<lanes / features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
      X const* const from = x + place_in_panel<X>(feature + i * features_a_lane, token);
      simd::prefetch<1>(from + 4 * lanes * panel_tokens);
      simd::widen_lanes<Arch>(from, square + i * features_a_lane);
    });
    simd::transpose<T, Arch>(square);
    const int live = std::min(lanes, tokens - token);
    unroll<lanes>([&](auto t) TESSERA_INLINE_LAMBDA {
      if (t < live)
        unroll<lanes / together>([&](auto i) TESSERA_INLINE_LAMBDA {
          const std::int64_t f = feature + i * together;
          std::memcpy(v + (f / cols * tokens + token + t) * cols + f % cols,
                      reinterpret_cast<T const*>(&square[t]) + i * together, together * sizeof(T));
        });
    });
  }

  /// Some blocks of a line, and the tokens.
  struct part {
    std::int32_t const* columns;
    int count;
    bool begins, ends;  // the line
    int tokens;
    T const* v;
    T* partial;  // registers of sums, in the order of use
  };

  /// The sums of rows_at_once rows of a line for as many tokens from `token` on as go together: their number.
  template <int Tokens> static int sum_rows_of_some(part& of, W const* w, int token, T* sums, stream& next) {
    if constexpr (Tokens > 1)
      if (of.tokens - token < Tokens) return sum_rows_of_some<Tokens / 2>(of, w, token, sums, next);
    constexpr int height = rows_together<Tokens>;
    const std::int64_t width = sums_width(of.tokens);
    for (int row = 0; row < rows_at_once; row += height)
      sum_rows<Tokens, height>(of, w + row * cols, of.v + token * cols, sums + row * width + token, width,
                               next);
    return Tokens;
  }

  /// The sums of `Height` rows of a line for some tokens. `w` is their first weight.
  template <int Tokens, int Height>
  [[gnu::noinline]] static void sum_rows(part& blocks, W const* w, T const* v, T* sums, std::int64_t width,
                                         stream& next) {
    constexpr int of_token = Height / rows_a_register, all_of_set = Tokens * of_token;
    reg acc[unsigned(sets)][unsigned(all_of_set)];
    T* const partial = blocks.partial;
    blocks.partial += sets * all_of_set * lanes;
    if (blocks.begins)
      unroll<sets * all_of_set>(
          [&](auto i) TESSERA_INLINE_LAMBDA { acc[i / all_of_set][i % all_of_set] = simd::zero<Arch, T>(); });
    else
      unroll<sets * all_of_set>([&](auto i) TESSERA_INLINE_LAMBDA {
        acc[i / all_of_set][i % all_of_set] = simd::load<Arch>(static_cast<T const*>(partial) + i * lanes);
      });
    stream fetching = next;  // in registers
    const std::int64_t column_size = blocks.tokens * cols;
    const auto add = [&](auto set, int b) TESSERA_INLINE_LAMBDA {
      W const* const values = w + std::int64_t(b) * Block::elements;
      T const* const of_block = v + blocks.columns[b] * column_size;
      if constexpr (!in_order<Tokens, Height>)
        fetching.template fetch<ceil_div(Height * cols * int(sizeof(W)), 64)>();
      unroll<row_registers>([&](auto k) TESSERA_INLINE_LAMBDA {
        reg factor[unsigned(Tokens)];
        unroll<Tokens>([&](auto t) TESSERA_INLINE_LAMBDA {
          factor[t] = simd::repeat<std::min(cols, lanes), Arch>(of_block + t * cols + k * lanes);
          if constexpr (Tokens > 1) simd::pin(factor[t]);
        });
        unroll<of_token>([&](auto r) TESSERA_INLINE_LAMBDA {
          reg weight = simd::load_values<Arch>(values + (r * row_registers + k) * lanes).data;
          if constexpr (Tokens > 1) simd::pin(weight);
          unroll<Tokens>([&](auto t) TESSERA_INLINE_LAMBDA {
            acc[set][t * of_token + r] = simd::fma<Arch, T>(weight, factor[t], acc[set][t * of_token + r]);
          });
        });
      });
    };
    int b = 0;
    for (; b + sets <= blocks.count; b += sets)
      unroll<sets>([&](auto s) TESSERA_INLINE_LAMBDA { add(s, b + s); });
    for (; b < blocks.count; ++b) add(std::integral_constant<int, 0>(), b);
    next = fetching;
    if (!blocks.ends) {
      unroll<sets * all_of_set>([&](auto i) TESSERA_INLINE_LAMBDA {
        simd::store<Arch>(partial + i * lanes, acc[i / all_of_set][i % all_of_set]);
      });
      return;
    }
    store_rows<Tokens, Height>(acc, sums, width);
  }

  template <int Tokens, int Height>
  TESSERA_INLINE static void store_rows(
      reg const (&acc)[unsigned(sets)][unsigned(Tokens * (Height / rows_a_register))], T* sums,
      std::int64_t width) {
    constexpr int all_of_set = Tokens * (Height / rows_a_register);
    constexpr int group = std::min(cols, lanes);  // lanes that belong to one row
    reg all[unsigned(round_up(all_of_set, group))];
    unroll<round_up(all_of_set, group)>([&](auto r) TESSERA_INLINE_LAMBDA {
      if constexpr (r < all_of_set) {
        all[r] = acc[0][r];
        unroll<sets - 1>([&](auto s)
                             TESSERA_INLINE_LAMBDA { all[r] = (batch(all[r]) + batch(acc[s + 1][r])).data; });
      } else {
        all[r] = simd::zero<Arch, T>();
      }
    });
    alignas(64) T by_token[unsigned(round_up(Tokens * Height, lanes))];
    unroll<ceil_div(all_of_set, group)>([&](auto g) TESSERA_INLINE_LAMBDA {
      simd::store<Arch>(by_token + g * lanes, simd::sum_groups<group, T, Arch>(all + g * group));
    });
    for (int row = 0; row < Height; ++row)
      for (int t = 0; t < Tokens; ++t) sums[row * width + t] = by_token[t * Height + row];
  }

  /// Adds the products of some blocks of a line with its rows of v.
  static void add_line(std::span<std::int32_t const> columns, W const* w, T const* v, T* sums) {
    if constexpr (is_single) {
      const T factor = *v;
      std::size_t b = 0;
      for (; b + lanes <= columns.size(); b += lanes)
        simd::scatter_add<Arch>(sums, columns.data() + b,
                                (simd::load_values<Arch>(w + b) * batch(factor)).data);
      for (; b < columns.size(); ++b) {
        T product = T(w[b]) * factor;
        simd::pin(product);  // rounded, as in registers: threads decide which weights come here
        sums[columns[b]] += product;
      }
    } else {
      constexpr int steps = rows / rows_a_register;
      alignas(64) T factors[unsigned(steps)][unsigned(lanes)];
      for (int s = 0; s < steps; ++s)
        for (int i = 0; i < lanes; ++i) factors[s][i] = v[s * rows_a_register + i / std::min(cols, lanes)];
      for (const std::int32_t column : columns) {
        T* const to = sums + std::int64_t(column) * cols;
        unroll<row_registers>([&](auto k) TESSERA_INLINE_LAMBDA {
          reg acc[2] = {simd::zero<Arch, T>(), simd::zero<Arch, T>()};
          unroll<steps>([&](auto s) TESSERA_INLINE_LAMBDA {
            acc[s % 2] = simd::fma<Arch, T>(simd::load_values<Arch>(w + (s * row_registers + k) * lanes).data,
                                            simd::load<Arch>(static_cast<T const*>(factors[s])), acc[s % 2]);
          });
          const auto sum = simd::fold<std::min(cols, lanes), T, Arch>((batch(acc[0]) + batch(acc[1])).data);
          auto all = sum;
          std::memcpy(&all, to + k * lanes, sizeof all);
          all += sum;
          std::memcpy(to + k * lanes, &all, sizeof all);
        });
        w += Block::elements;
      }
    }
  }
};

/// y = tree(W·x) of a few tokens, or y = tree(Wᵀ·x) of one. There is too little to fill the lanes with but
/// weights: each token is brought together first, and each register of weights is loaded from memory once, in
/// its order, so that the speed is that of reading W.
template <class Arch, class Types, class Block, bool Transposed, class Tree> struct vector_product {
  using T = typename Types::accumulator;
  using X = typename Types::activation;
  using sums_of = vector_sums<Arch, typename Types::weight, Block>;
  static constexpr bool exists = sums_of::exists;

  /// Bytes of product_arguments::sums, which hold the tokens of x, sums of the lines that are computed
  /// together, and registers of sums of a line.
  static std::size_t sums_bytes(block_index const& index, std::int64_t depth, std::int64_t tokens) {
    const int most = int(std::min<std::int64_t>(tokens, sums_of::most_tokens));
    const std::int64_t lines = Transposed ? index.lines() : lines_at_once;
    return std::size_t(vector_size(depth, most) + lines * line_rows * sums_of::sums_width(most) +
                       (Transposed ? 0 : sums_of::partial_size(most))) *
           sizeof(T);
  }

  ///   by_rows   the index of W, also for Wᵀ
  static void run(product_arguments<Types, Tree> const& a, block_index const& by_rows) noexcept {
    T* const v = a.sums;
    T* const sums = v + vector_size(a.depth, a.tokens);
    if constexpr (Transposed) {
      for (std::int64_t f = 0; f < a.depth; ++f) v[f] = T(a.x[place_in_panel<X>(f, 0)]);
      std::fill(v + a.depth, sums, T(0));
      sums_of::by_cols(by_rows, a.weights, v, sums, a.first_line, a.last_line);
      store(a, sums + std::int64_t(a.first_line) * line_rows, a.first_line, a.last_line);
    } else {
      T* const partial = sums + lines_at_once * line_rows * sums_of::sums_width(a.tokens);
      sums_of::bring(a.x, a.depth, a.tokens, v);
      for (int line = a.first_line, end; line < a.last_line; line = end) {
        end = std::min(a.last_line, line + lines_at_once);
        fetch_results(a, line, end);
        sums_of::by_rows(by_rows, a.weights, a.tokens, v, a.depth, sums, partial, line, end);
        store(a, sums, line, end);  // while weights come from memory
      }
    }
  }

 private:
  static constexpr int line_rows = Transposed ? Block::cols : Block::rows;
  static constexpr int lines_at_once = std::max(1, granule / line_rows);

  /// Asks for the memory of the results of some lines: else each store would wait for it.
  static void fetch_results(product_arguments<Types, Tree> const& a, int first, int last) {
    using Y = typename Types::result;
    constexpr int step = element_traits<Y>::features_a_lane, lanes_a_line = 64 / (step * int(sizeof(Y)));
    const std::int64_t end = std::min(a.rows, std::int64_t(last) * line_rows);
    for (std::int64_t f = std::int64_t(first) * line_rows; f < end; f += step)
      for (int token = 0; token < a.tokens; token += lanes_a_line)
        simd::prefetch<1>(a.y + place_in_panel<Y>(f, token));
  }
  /// The results of some lines.
  static void store(product_arguments<Types, Tree> const& a, T const* sums, int first, int last) {
    using batch = simd::batch<T, Arch>;
    constexpr int results_a_lane = element_traits<typename Types::result>::features_a_lane,
                  lanes = simd::lanes<T, Arch>;
    const std::int64_t width = sums_of::sums_width(a.tokens), begin = std::int64_t(first) * line_rows,
                       end = std::min(a.rows, std::int64_t(last) * line_rows);
    for (int token = 0; token < a.tokens; token += lanes)
      for (std::int64_t f = begin; f < end; f += results_a_lane) {
        batch of_lane[unsigned(results_a_lane)];
        for (int i = 0; i < results_a_lane; ++i) {
          T const* const from = sums + (f + i - begin) * width + token;
          of_lane[i] = f + i >= end ? batch(T(0)) : width == 1 ? batch(*from) : batch::load_unaligned(from);
        }
        store_result<true>(a, of_lane, f, token);
      }
  }
  /// Numbers of v.
  static std::int64_t vector_size(std::int64_t depth, int tokens) {
    return round_up<std::int64_t>(depth, Transposed ? Block::rows : Block::cols) * sums_of::v_width(tokens);
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/tensor/panel_matrix.hpp
#ifndef TESSERA_SINGLE_TENSOR_PANEL_MATRIX
#define TESSERA_SINGLE_TENSOR_PANEL_MATRIX
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA {

/// Goes through the elements of an activation or of a slice: feature by feature, the tokens of each in order.
template <class Panels> class panel_iterator {
 public:
  using value_type = typename Panels::value_type;
  using difference_type = std::ptrdiff_t;
  using iterator_concept = std::forward_iterator_tag;
  using iterator_category = std::forward_iterator_tag;
  using reference = decltype(std::declval<Panels&>()(0, 0));
  using pointer = void;

  panel_iterator() = default;
  panel_iterator(Panels& of, std::int64_t feature) : of_(&of), feature_(feature) {}

  reference operator*() const { return (*of_)(feature_, token_); }
  panel_iterator& operator++() {
    if (++token_ == of_->tokens()) {
      token_ = 0;
      ++feature_;
    }
    return *this;
  }
  panel_iterator operator++(int) {
    const panel_iterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(panel_iterator const&, panel_iterator const&) = default;

 private:
  Panels* of_ = nullptr;
  std::int64_t feature_ = 0, token_ = 0;
};

/// An activation (features, tokens), kept as panels of 64 tokens: a panel is contiguous, feature by feature
/// (features that share a lane together: place_in_panel), so that the tokens of one feature are whole SIMD
/// registers. Features are stored in multiples of 16; elements beyond the last feature or token are
/// always zero.
template <element Element> class panel_matrix {
 public:
  using tensor_tag = void;
  using value_type = Element;
  static constexpr domain laid_over = domain::panels;

  panel_matrix() = default;
  TESSERA_COLD panel_matrix(std::int64_t features, std::int64_t tokens)
      : features_(features), tokens_(tokens), values_(elements(features, tokens)) {}
  template <node Value> panel_matrix(Value const&) = delete;  // say y(features, tokens); run(ctx, y = w * x)
  template <element Other>
  panel_matrix(panel_matrix<Other> const&) = delete;  // say y(features, tokens); run(ctx, y = converted(x))
  panel_matrix(panel_matrix const&) = default;
  /// Leaves the other 0 x 0.
  panel_matrix(panel_matrix&& other) noexcept
      : features_(std::exchange(other.features_, 0)),
        tokens_(std::exchange(other.tokens_, 0)),
        values_(std::move(other.values_)) {}
  panel_matrix& operator=(panel_matrix other) noexcept {
    std::swap(features_, other.features_);
    std::swap(tokens_, other.tokens_);
    std::swap(values_, other.values_);
    return *this;
  }

  std::int64_t features() const { return features_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t padded_features() const { return round_up<std::int64_t>(features_, granule); }
  std::int64_t panels() const { return ceil_div<std::int64_t>(tokens_, panel_tokens); }
  /// Elements from one panel to the next.
  std::int64_t panel_stride() const { return padded_features() * panel_tokens; }
  std::size_t size_bytes() const { return values_.size_bytes(); }

  Element* panel(std::int64_t p) { return values_.data() + p * panel_stride(); }
  Element const* panel(std::int64_t p) const { return values_.data() + p * panel_stride(); }
  Element* data() { return values_.data(); }
  Element const* data() const { return values_.data(); }

  Element& operator()(std::int64_t feature, std::int64_t token) { return values_[index(feature, token)]; }
  Element operator()(std::int64_t feature, std::int64_t token) const {
    return values_[index(feature, token)];
  }

  /// The elements without padding: feature by feature, the tokens of each in order.
  auto begin() { return panel_iterator<panel_matrix>(*this, 0); }
  auto end() { return panel_iterator<panel_matrix>(*this, tokens_ > 0 ? features_ : 0); }
  auto begin() const { return panel_iterator<panel_matrix const>(*this, 0); }
  auto end() const { return panel_iterator<panel_matrix const>(*this, tokens_ > 0 ? features_ : 0); }

  template <class Number> void fill(Number) = delete;  // say std::fill(x.begin(), x.end(), number)

  /// Another number of tokens. Values are lost. Allocates only to grow beyond the largest size so far.
  void resize(std::int64_t tokens) {
    if (tokens == tokens_) return;
    const std::size_t needed = elements(features_, tokens);
    if (needed > values_.size())
      values_ = aligned_array<Element>(needed);
    else if (tokens % panel_tokens != 0)
      std::fill_n(values_.data() + needed - std::size_t(panel_stride()), panel_stride(), Element{});
    tokens_ = tokens;
  }

  // An assignment of an expression describes it: see expr/statement.hpp.
  template <assigned Value> auto operator=(Value const& value) { return assign(*this, value); }
  template <element Other> void operator=(panel_matrix<Other> const&) = delete;  // say y = converted(x)
  template <expression Expression> auto operator+=(Expression&& value) {
    return accumulate(*this, static_cast<Expression&&>(value));
  }

 private:
  TESSERA_COLD static std::size_t elements(std::int64_t features, std::int64_t tokens) {
    if (features < 0 || tokens < 0)
      throw shape_error(
          message("[panel_matrix] ", features, " features and ", tokens, " tokens: neither may be negative"));
    const auto up = [](std::int64_t n, int step) {
      return std::size_t(n) / unsigned(step) * unsigned(step) + (n % step ? unsigned(step) : 0);
    };
    const std::size_t rows = up(features, granule), columns = up(tokens, panel_tokens);
    // A panel without tokens has a stride, too.
    checked_multiply(rows, panel_tokens);
    checked_multiply(columns, granule);
    return checked_multiply(rows, columns);
  }
  std::size_t index(std::int64_t feature, std::int64_t token) const {
    TESSERA_ASSERT(feature >= 0 && feature < features_ && token >= 0 && token < tokens_,
                   "indices are in range");
    return std::size_t(token / panel_tokens * panel_stride() +
                       place_in_panel<Element>(feature, token % panel_tokens));
  }

  std::int64_t features_ = 0, tokens_ = 0;
  aligned_array<Element> values_;
};

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/eval/product.hpp
#ifndef TESSERA_SINGLE_EVAL_PRODUCT
#define TESSERA_SINGLE_EVAL_PRODUCT
#include <cstddef>
#include <cstdint>
#include <type_traits>

// activation = an expression that contains W·x or Wᵀ·x. The first product stays in the kernel's accumulators,
// and the rest of the expression is applied there. product_method.hpp chooses how it is computed; an earlier
// step brings Wᵀ, and matrices of single elements, into the order in which the product reads them.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

// ---- the factors ----

/// The product of a matrix with an x of elements X: its factors, and the facts that choose its method. Other
/// kinds of matrix have specialisations, and overloads of add_product, of their own.
template <class Matrix, bool Transposed, class X> struct product_of;

template <class W, class Block, bool Transposed, class X>
struct product_of<block_sparse_matrix<W, Block>, Transposed, X> {
  using line_block = line_block_of<Block, Transposed>;
  using factor_x = multiplied_as<X, W>;
  using factor_w = std::conditional_t<std::is_same_v<W, factor_x>, W, multiplied_as<W, factor_x>>;

  static constexpr int scattered_tokens() {
    if constexpr (Transposed) {
      using scattered = kernels::scattered_sums<simd::native, factor_w, factor_x, Block>;
      if (scattered::exists) return scattered::most_tokens;
    }
    return 0;
  }

  static constexpr int vector_tokens() {
    using sums = kernels::vector_sums<simd::native, W, Block>;
    return !sums::exists ? 0 : Transposed ? 1 : sums::most_tokens;
  }

  static constexpr product_kind kind{
      .rows = line_block::rows,
      .cols = line_block::cols,
      .transposed = Transposed,
      .widens_w = !std::is_same_v<W, factor_w>,
      .widens_x = !std::is_same_v<X, factor_x>,
      .by_integers = sizeof(X) == 1 ? engines_for_blocks<W, X, line_block>() : engine_set(),
      .by_factors = engines_for_blocks<factor_w, factor_x, line_block>(),
      .vector_tokens = vector_tokens(),
      .scattered_tokens = scattered_tokens()};

  static product_size size(block_sparse_matrix<W, Block> const& w, std::int64_t tokens) {
    return size(w.pattern(), Transposed ? w.rows() : w.cols(), tokens);
  }
  static product_size size(pattern const& of_w, std::int64_t depth, std::int64_t tokens) {
    return {.tokens = tokens,
            .depth = depth,
            .blocks = of_w.blocks(),
            .lines = Transposed ? of_w.block_cols() : of_w.block_rows(),
            .is_sparse = !of_w.is_dense()};
  }
};

/// The methods that there is code for; one of them, and its elements and engine.
template <class Of> inline constexpr product_methods methods = methods_of(Of::kind);
template <class Of, int Number> inline constexpr product_method method = methods<Of>.all[Number];
template <class Of, int Number, class W, class X, class E>
using types_of =
    kernels::product_types<std::conditional_t<method<Of, Number>.widens_w, typename Of::factor_w, W>,
                           std::conditional_t<method<Of, Number>.widens_x, typename Of::factor_x, X>, E,
                           method<Of, Number>.by>;

// ---- steps ----

/// Cuts the destination of a product into parts of its lines.
template <class Shape, class To, class Types, class Tree>
void cut_destination(plan& p, To& to, product_operands<Types, Tree>& of, int most) {
  to.cut(p, most, [&](int part, int parts) { return of.features_of(part, parts, Shape::rows); });
  of.to = to.computed_at();
}

/// The step of a product of few tokens, with the blocks of W where they stand.
///   by_rows   the index of W, also for Wᵀ
template <class Kernel, class Shape, class To, class Types, class Tree>
TESSERA_COLD void add_few_tokens(plan& p, step_draft& s, operand const& weights,
                                 kernels::block_index const& by_rows, To to,
                                 product_operands<Types, Tree> of) {
  of.group_lines = element_traits<typename Types::result>::features_a_lane;  // lanes begin with a part
  cut_destination<Shape>(p, to, of, 1);
  of.sums = p.worker_memory(Kernel::sums_bytes(of.index, of.depth(), of.to.tokens));
  s.divides = division::freely;
  s.most_parts = ceil_div(of.index.lines(), of.group_lines);
  p.add(s, to.finished(few_tokens_body<Kernel, Types, Shape, Tree>{of, s.reads(weights), by_rows}));
}

/// The step of a product with single elements, behind one that orders them.
template <class To, class Types, class Tree>
TESSERA_COLD void add_ordered(plan& p, step_draft& s, operand const& weights, To to,
                              product_operands<Types, Tree> of) {
  using T = typename Types::accumulator;
  using body = ordered_product_body<Types, Tree>;
  bool reads_result = false;
  for (access const& a : s.all()) reads_result |= !a.writes && overlap(a, of.to.at);
  of.group_lines = kernels::nonzeros<T>::group;
  cut_destination<block_shape<1>>(p, to, of, most_pieces(of.x_bytes(), of.index.lines() / of.group_lines));
  body made{of, s.reads(ordered_weights<T, typename Types::weight>(p, weights, of.index, of.inner))};
  made.of.index = of.index.in_order();
  const bool sums_in_result = std::is_same_v<typename Types::activation, T> &&
                              std::is_same_v<typename Types::result, T> && !reads_result;
  made.of.sums = sums_in_result ? of.to.at : p.worker_memory(body::kernel::sums_bytes(made.nonzeros({})));
  s.most_parts = ceil_div(of.index.lines(), of.group_lines);
  p.add(s, to.finished(made));
}

/// The step of a product along the blocks of lines, behind steps that bring them into the order of the lines
/// and prepare what the engine needs.
template <class Block, bool Transposed, class To, class Types, class Tree>
TESSERA_COLD void add_blocks(plan& p, step_draft& s, operand const& weights, To to,
                             product_operands<Types, Tree> of) {
  using W = typename Types::weight;
  using line_block = line_block_of<Block, Transposed>;
  using body = product_body<Types, line_block, Tree>;
  using kernel = typename body::kernel;
  operand in_order = weights;
  constexpr int beside = body::policy::template blocks_beside<line_block>;
  if constexpr (Transposed || beside > 1) {
    of.index = of.index.with_gaps(beside - 1);
    in_order = ordered_blocks<W, Block, Transposed, beside>(p, weights, of.index);
    of.index = of.index.in_order();
  }
  s.reads(in_order);
  cut_destination<line_block>(p, to, of,
                              kernel::shares_lanes ? 1 : most_pieces(of.x_bytes(), of.index.lines()));
  of.sums = p.worker_memory(kernel::sums_bytes(of.index, of.depth()));
  const bool long_enough = of.index.blocks() * line_block::elements >= fewest_weights_divided;
  s.divides = kernel::shares_lanes                                       ? division::never
              : long_enough && kernel::chunks(of.index, of.depth()) == 1 ? division::freely
                                                                         : division::if_uneven;
  of.shares_fetching = s.divides == division::freely;
  s.around = around_products<Types::by>;
  operand offsets{};
  if constexpr (body::policy::offsets_x) offsets = s.reads(row_offsets<W, line_block>(p, in_order, of.index));
  s.most_parts = of.index.lines();
  p.add(s, to.finished(body{of, in_order, offsets}));
}

/// The steps of a product with a matrix in blocks, by one method.
template <int Number, bool Transposed, class X, class E, class To, class Tree, class W, class Block>
TESSERA_COLD void add_product(plan& p, step_draft& s, To const& to, operand const& x, Tree const& tree,
                              block_sparse_matrix<W, Block> const& matrix) {
  using all = product_of<block_sparse_matrix<W, Block>, Transposed, X>;
  using types = types_of<all, Number, W, X, E>;
  constexpr product_method way = method<all, Number>;
  const kernels::block_index by_rows = index_of(matrix.pattern());
  const product_operands<types, Tree> of{.to = {to.at, to.features, to.tokens},
                                         .x = x,
                                         .index = index_of(matrix.pattern(), Transposed),
                                         .inner = Transposed ? matrix.rows() : matrix.cols(),
                                         .sums = {},
                                         .tree = tree};
  operand weights = by_panel(matrix);
  if constexpr (way.widens_w) weights = widened_weights<typename types::weight, W>(p, weights, matrix.size());
  if constexpr (way.form == product_form::vector)
    add_few_tokens<kernels::vector_product<simd::native, types, Block, Transposed, addressed_tree<Tree>>,
                   typename all::line_block>(p, s, weights, by_rows, to, of);
  else if constexpr (way.form == product_form::scattered)
    add_few_tokens<kernels::scattered_product<simd::native, types, Block, addressed_tree<Tree>>,
                   typename all::line_block>(p, s, weights, by_rows, to, of);
  else if constexpr (way.form == product_form::ordered)
    add_ordered(p, s, weights, to, of);
  else
    add_blocks<Block, Transposed>(p, s, weights, to, of);
}

// ---- lowering ----

/// The number of choose_product_method's method, with the conditions of this kind of product alone.
template <class Of> int chosen_method(product_size const& size, machine const& on) {
  constexpr int last = methods<Of>.count - 1;
  int chosen = last;
  unroll<last>([&](auto i) TESSERA_INLINE_LAMBDA {
    if (suits(method<Of, last - 1 - i>, Of::kind, size, on)) chosen = last - 1 - i;
  });
  return chosen;
}

/// Calls use(constant) with the number `chosen` of a method.
template <class Of, class Use> TESSERA_COLD void with_method(int chosen, Use&& use) {
  unroll<methods<Of>.count>([&](auto number) {
    if (chosen == number) use(number);
  });
}

/// Adds the step that computes an expression around a product into panels, or rows, of elements E.
template <class E, class To, class Node, class Factor, class X>
TESSERA_COLD void add_product_of(plan& p, To const& to, Node const& node,
                                 expr::product<Factor, X> const& product) {
  using T = accumulator_t<E>;
  static_assert(std::is_same_v<T, accumulator_t<typename Factor::value_type>>,
                "the operands and the destination of a statement have different element "
                "types: " TESSERA_ONE_ACCUMULATOR);
  using bind = binder<T, over::panels>;
  using stored = typename bind::template element_of<X>;
  auto const& matrix = product.w.tensor();
  constexpr bool transposed = transposition<Factor>;
  using of = product_of<std::remove_cvref_t<decltype(matrix)>, transposed, stored>;
  const int chosen = chosen_method<of>(of::size(matrix, to.tokens), p.machine());
  step_draft s("product", cut::panels);
  s.tiles = to.panels();
  s.writes(to.at);
  const auto operand_as = [&]<class F>(std::type_identity<F>) {
    return operand_of_product<F, stored>(p, to.tokens, product.x);
  };
  const operand x = s.reads([&] {
    if constexpr (of::kind.widens_x)
      if (methods<of>.all[chosen].widens_x) return operand_as(std::type_identity<typename of::factor_x>());
    return operand_as(std::type_identity<stored>());
  }());
  if (shared_tiles(to.at, x) != relation::none)
    throw shape_error("[y = W * x] y is also x: a product cannot be computed in place");
  const auto tree = bind(p, s, to.tokens).around_product(node);
  require_same_names(tree);
  with_method<of>(
      chosen, [&](auto number) { add_product<number, transposed, stored, E>(p, s, to, x, tree, matrix); });
}

template <class E, class Node>
  requires has_product<Node>
TESSERA_COLD void lower_to(plan& p, panels_to<E> const& to, Node const& node) {
  if constexpr (sizeof(E) == 1)
    add_elementwise<E>(p, to, node);  // a panel of the product in the accumulator, then rounded
  else
    add_product_of<E>(p, to, node, first_product(node));
}

}}}  // namespace tessera::TESSERA_ISA::eval
#endif

// ---- tessera/kernels/block_times_block.hpp
#ifndef TESSERA_SINGLE_KERNELS_BLOCK_TIMES_BLOCK
#define TESSERA_SINGLE_KERNELS_BLOCK_TIMES_BLOCK
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Values that stand one after the other, in the accumulator: where they stand, or else in `room`.
template <class Arch, int Count, class E>
TESSERA_INLINE accumulator_t<E> const* widened(E const* from,
                                               [[maybe_unused]] accumulator_t<E>* room) noexcept {
  using T = accumulator_t<E>;
  if constexpr (std::is_same_v<E, T>) {
    return from;
  } else {
    constexpr int lanes = simd::lanes<T, Arch>, whole = Count / lanes * lanes;
    for (int i = 0; i < whole; i += lanes) simd::load_values<Arch>(from + i).store_unaligned(room + i);
    for (int i = whole; i < Count; ++i) room[i] = T(from[i]);
    return room;
  }
}

/// The product of a block of Rows x Inner and one of Inner x Cols, all in T: summed over the inner index from
/// zero on, in its order, and then stored, or added to the stored sums. A register holds columns of one row,
/// or several whole rows if they are short.
template <class T, class Arch, int Rows, int Inner, int Cols> struct block_times_block {
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int rows_a_register =
      Cols < lanes && lanes % Cols == 0 && Rows % (lanes / Cols) == 0 ? lanes / Cols : 1;
  static constexpr int lines = Rows / rows_a_register;  // of registers
  static constexpr int line_size = Cols * rows_a_register;
  static constexpr int registers = ceil_div(line_size, lanes);
  static constexpr int tail = line_size % lanes;  // numbers in the last register of a line that is not full
  static constexpr int at_once = power_of_two_divisor(register_block<T, Arch>::registers, registers);
  static constexpr int lines_at_once = power_of_two_divisor(at_once > 1 ? 4 : 8, lines);

  /// Numbers of the left block in the form in which it is used.
  static constexpr int left_size = rows_a_register == 1 ? Rows * Inner : lines * Inner * lanes;

  /// The left block in that form: where it stands, or else in `room`, of left_size numbers.
  template <class E> static T const* prepared(E const* block, T* room) noexcept {
    if constexpr (rows_a_register == 1) {
      return widened<Arch, Rows * Inner>(block, room);
    } else {
      T numbers[unsigned(Rows * Inner)];
      T const* const wide = widened<Arch, Rows * Inner>(block, numbers);
      for (int row = 0; row < Rows; ++row)
        for (int i = 0; i < Inner; ++i)
          std::fill_n(room + (row / rows_a_register * Inner + i) * lanes + row % rows_a_register * Cols, Cols,
                      wide[row * Inner + i]);
      return room;
    }
  }

  /// to = left · right, or to += left · right.
  ///   left   from prepared()
  template <bool Adds> TESSERA_INLINE static void multiply(T const* left, T const* right, T* to) noexcept {
    using reg = simd::reg<T, Arch>;
    for (int line = 0; line < lines; line += lines_at_once)
      unroll<registers / at_once>([&](auto chunk) TESSERA_INLINE_LAMBDA {
        constexpr int first = chunk * at_once;
        reg sums[unsigned(lines_at_once)][unsigned(at_once)];
        for (auto& row : sums)
          for (reg& sum : row) sum = simd::zero<Arch, T>();
        for (int i = 0; i < Inner; ++i)
          multiply_registers<T, Arch>(
              sums,
              [&](auto l) TESSERA_INLINE_LAMBDA {
                if constexpr (rows_a_register == 1)
                  return simd::broadcast<Arch>(left[(line + l) * Inner + i]);
                else
                  return simd::load<Arch>(left + ((line + l) * Inner + i) * lanes);
              },
              [&](auto j) TESSERA_INLINE_LAMBDA {
                if constexpr (rows_a_register == 1)
                  return load_register<first + j>(right + i * Cols);
                else
                  return simd::repeat<Cols, Arch>(right + i * Cols);
              });
        unroll<lines_at_once>([&](auto l) TESSERA_INLINE_LAMBDA {
          unroll<at_once>([&](auto j) TESSERA_INLINE_LAMBDA {
            T* const row = to + (line + l) * line_size;
            batch sum(sums[l][j]);
            if constexpr (Adds) sum = batch(load_register<first + j>(row)) + sum;
            store_register<first + j>(row, sum.data);
          });
        });
      });
  }

 private:
  using batch = simd::batch<T, Arch>;

  template <int Register> static constexpr bool is_full = tail == 0 || Register + 1 < registers;

  template <int Register> TESSERA_INLINE static simd::reg<T, Arch> load_register(T const* line) {
    if constexpr (is_full<Register>) {
      return simd::load<Arch>(line + Register * lanes);
    } else {
      T numbers[unsigned(lanes)] = {};
      std::memcpy(numbers, line + Register * lanes, tail * sizeof(T));
      return simd::load<Arch>(static_cast<T const*>(numbers));
    }
  }
  template <int Register> TESSERA_INLINE static void store_register(T* line, simd::reg<T, Arch> value) {
    if constexpr (is_full<Register>) {
      simd::store<Arch>(line + Register * lanes, value);
    } else {
      T numbers[unsigned(lanes)];
      simd::store<Arch>(numbers, value);
      std::memcpy(line + Register * lanes, numbers, tail * sizeof(T));
    }
  }
};

/// to[i] = left · right[i], i < count, with the bits of block_times_block for blocks of one element.
template <class Arch, class T, class B>
TESSERA_INLINE void multiply_number(T left, B const* right, int count, T* to) noexcept {
  constexpr int lanes = simd::lanes<T, Arch>;
  const auto factor = simd::broadcast<Arch>(left);
  int i = 0;
  for (; i + lanes <= count; i += lanes)
    simd::store<Arch>(
        to + i, simd::fma<Arch, T>(factor, simd::load_values<Arch>(right + i).data, simd::zero<Arch, T>()));
  for (; i < count; ++i) to[i] = left * T(right[i]) + T(0);
}

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/row_sums.hpp
#ifndef TESSERA_SINGLE_KERNELS_ROW_SUMS
#define TESSERA_SINGLE_KERNELS_ROW_SUMS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sums of one block row of a matrix at a time, in the accumulator, found by block column (Gustavson
/// 1978). Blocks of a matrix of accumulators are summed where they stand. Single elements are summed by
/// column: a sum of a column that is not stored is never read.
///   Elements   of a block
///   C          the matrix's
template <class Arch, class C, int Elements> class row_sums {
 public:
  using T = accumulator_t<C>;
  static constexpr bool by_column = Elements == 1;
  static constexpr bool in_place = !by_column && std::is_same_v<C, T>;

  /// Bytes of scratch for the rows of an index.
  static std::size_t scratch_bytes(block_index const& c) {
    if constexpr (by_column) return std::size_t(c.width()) * sizeof(T);
    std::int64_t widest = 0;
    if constexpr (!in_place)
      for (int i = 0; i < c.lines(); ++i) widest = std::max<std::int64_t>(widest, c.line(i).count);
    return place_bytes(c.width()) + std::size_t(widest) * Elements * sizeof(T);
  }

  row_sums(block_index const& c, C* values, std::byte* scratch) noexcept : c_(c), values_(values) {
    if constexpr (by_column) {
      sums_ = reinterpret_cast<T*>(scratch);
    } else {
      place_ = reinterpret_cast<std::int32_t*>(scratch);
      std::fill_n(place_, c.width(), -1);
      if constexpr (!in_place) sums_ = reinterpret_cast<T*>(scratch + place_bytes(c.width()));
    }
  }

  /// Begins a row with zeros, or with the values of the matrix.
  void begin(int line, bool accumulates) noexcept {
    line_ = c_.line(line);
    C* const values = first_value();
    if constexpr (by_column) {
      for (int b = 0; b < line_.count; ++b) sums_[line_.columns[b]] = accumulates ? T(values[b]) : T(0);
    } else {
      for (int b = 0; b < line_.count; ++b) place_[line_.columns[b]] = b;
      if constexpr (in_place) sums_ = values;
      if (!accumulates)
        std::fill_n(sums_, size(), T(0));
      else if constexpr (!in_place)
        for (std::int64_t v = 0; v < size(); ++v) sums_[v] = T(values[v]);
    }
  }
  /// The sums of a block column; null if the row does not store it.
  T* at(std::int32_t column) noexcept {
    if constexpr (by_column) return sums_ + column;
    const std::int32_t b = place_[column];
    return b < 0 ? nullptr : sums_ + std::int64_t(b) * Elements;
  }
  /// Ends the row: each sum is rounded once.
  void end() noexcept {
    C* const values = first_value();
    if constexpr (by_column) {
      for (int b = 0; b < line_.count; ++b) values[b] = C(sums_[line_.columns[b]]);
    } else {
      for (int b = 0; b < line_.count; ++b) place_[line_.columns[b]] = -1;
      if constexpr (!in_place) {
        constexpr int lanes = simd::lanes<T, Arch>;
        std::int64_t v = 0;
        for (; v + lanes <= size(); v += lanes)
          simd::store_values<Arch>(values + v, simd::batch<T, Arch>::load_unaligned(sums_ + v));
        for (; v < size(); ++v) values[v] = C(sums_[v]);
      }
    }
  }

 private:
  static std::size_t place_bytes(int width) {
    return round_up<std::size_t>(std::size_t(width) * sizeof(std::int32_t), 64);
  }
  C* first_value() const { return values_ + line_.first * Elements; }
  std::int64_t size() const { return std::int64_t(line_.count) * Elements; }

  block_index c_;
  C* values_;
  block_line line_{};
  std::int32_t* place_ = nullptr;  // of a block in the row, by its column; -1 elsewhere
  T* sums_ = nullptr;
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/matrix_product.hpp
#ifndef TESSERA_SINGLE_KERNELS_MATRIX_PRODUCT
#define TESSERA_SINGLE_KERNELS_MATRIX_PRODUCT
#include <cstddef>
#include <cstdint>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// A matrix as a kernel reads it: its blocks, and where they are.
template <class E> struct stored_blocks {
  block_index index;
  E const* values;
};

/// Some block rows of c = a·b, or of c += a·b, for matrices in blocks of Rows x Inner and Inner x Cols.
/// Blocks that c does not store are left out. Row by row (Gustavson 1978); the products of blocks are added
/// in the order of the columns of a, each summed from zero, in the accumulator.
///   scratch   row_sums<Arch, C, Rows * Cols>::scratch_bytes(c)
template <class Arch, int Rows, int Inner, int Cols, class A, class B, class C>
void matrix_product(stored_blocks<A> const& a, stored_blocks<B> const& b, block_index const& c, C* values,
                    range lines, bool accumulates, std::byte* scratch) noexcept {
  using T = accumulator_t<C>;
  using blocks = block_times_block<T, Arch, Rows, Inner, Cols>;
  constexpr bool single = Rows * Inner * Cols == 1;
  row_sums<Arch, C, Rows * Cols> sums(c, values, scratch);
  alignas(64) T left_room[unsigned(blocks::left_size)], right_room[unsigned(Inner * Cols)];
  for (int line = lines.first; line < lines.last; ++line) {
    sums.begin(line, accumulates);
    const block_line left_line = a.index.line(line);
    for (int p = 0; p < left_line.count; ++p) {
      const block_line right_line = b.index.line(left_line.columns[p]);
      A const* const left_block = a.values + (left_line.first + p) * (Rows * Inner);
      B const* const right_blocks = b.values + right_line.first * (Inner * Cols);
      if constexpr (single) {
        if (p + 2 < left_line.count) {  // rows of b are short, and stand anywhere
          const block_line soon = b.index.line(left_line.columns[p + 2]);
          simd::prefetch<1>(soon.columns);
          simd::prefetch<1>(b.values + soon.first);
        }
        const T left = T(*left_block);  // times a number, plus 0: the bits of block_times_block
        for (int q = 0; q < right_line.count; ++q)
          *sums.at(right_line.columns[q]) += left * T(right_blocks[q]) + T(0);
      } else {
        if (right_line.count == 0) continue;
        T const* const left = blocks::prepared(left_block, left_room);
        for (int q = 0; q < right_line.count; ++q)
          if (T* const to = sums.at(right_line.columns[q]))
            blocks::template multiply<true>(
                left, widened<Arch, Inner * Cols>(right_blocks + q * std::int64_t(Inner * Cols), right_room),
                to);
      }
    }
    sums.end();
  }
}

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/eval/matrix_product.hpp
#ifndef TESSERA_SINGLE_EVAL_MATRIX_PRODUCT
#define TESSERA_SINGLE_EVAL_MATRIX_PRODUCT
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

// matrix = a·b of matrices, at the blocks that the matrix stores, and matrix = transposed(w).

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// Whether the pattern `c` stores all blocks of a·b. Allocates nothing.
bool stores_product(pattern const& a, pattern const& b, pattern const& c);

/// The number of blocks of a·b that `c` does not store.
std::int64_t lost_blocks(pattern const& a, pattern const& b, pattern const& c);

/// The blocks of some lines of a matrix in blocks of `block_bytes`.
touched_bytes blocks_of_lines(operand const& o, kernels::block_index const& index, range lines,
                              std::int64_t block_bytes);

/// c = a·b, or c += a·b, row by row. A tile is a range of block rows.
template <class A, class B, class C, int Rows, int Inner, int Cols> struct matrix_product_body {
  using sums = kernels::row_sums<simd::native, C, Rows * Cols>;
  operand to, a, b, scratch;
  kernels::block_index a_index, b_index;
  kernels::block_grid result;  // the blocks of c
  int tiles;
  bool accumulates;

  range lines(tile const& t) const { return a_index.lines_of_part(int(t.index), tiles); }

  void compute(tile const& t) const noexcept {
    C* const values = t.address<C>(to, 0);
    kernels::matrix_product<simd::native, Rows, Inner, Cols>(
        kernels::stored_blocks<A>{a_index, t.address<A const>(a)},
        kernels::stored_blocks<B>{b_index, t.address<B const>(b)}, result.index, values, lines(t),
        accumulates, t.address<std::byte>(scratch, 0));
    result.clear_overhang(values, lines(t), {0, result.index.width()});
  }

  void describe(tile const& t, task_description& d) const {
    const range l = lines(t);
    d.read(blocks_of_lines(a, a_index, l, Rows * Inner * sizeof(A)));
    d.write(blocks_of_lines(to, result.index, l, Rows * Cols * sizeof(C)));
    if (accumulates) d.read(d.writes.back());
    std::vector<char> read(std::size_t(b_index.blocks()), 0);
    for (int line = l.first; line < l.last; ++line) {
      const auto stored = result.index.line(line).all_columns();
      for (const int k : a_index.line(line).all_columns()) {
        const kernels::block_line right = b_index.line(k);
        for (int i = 0; i < right.count; ++i)
          if (std::binary_search(stored.begin(), stored.end(), right.columns[i])) {
            d.multiplies += Rows * Inner * Cols;
            read[std::size_t(right.first + i)] = 1;
          }
      }
    }
    constexpr std::int64_t block = Inner * Cols;
    for (std::size_t slot = 0; slot < read.size(); ++slot)
      if (read[slot]) d.read(elements_of<B>(b, 0, std::int64_t(slot) * block, block));
  }
};

/// The blocks of a factor, in the order of its lines.
template <class Factor>
using block_of =
    line_block_of<typename std::remove_cvref_t<decltype(std::declval<Factor const&>().tensor())>::block,
                  transposition<Factor>>;

/// A factor as the kernel reads it: where its blocks are, in the order of its lines.
struct matrix_factor {
  operand blocks;
  kernels::block_index index;
  pattern stored;
};
/// A matrix where it lies, or the copy of a transposed one, made by a step before.
template <class Factor> matrix_factor factor_of(plan& p, Factor const& factor) {
  auto const& w = factor.tensor();
  if constexpr (transposition<Factor>) {
    using block = line_block_of<block_of<Factor>, true>;
    const kernels::block_index index = index_of(w.pattern(), true);
    return {ordered_blocks<typename Factor::value_type, block, true>(p, all_of(w), index), index.in_order(),
            transposed(w.pattern())};
  } else {
    return {all_of(w), index_of(w.pattern()), w.pattern()};
  }
}

/// Throws shape_error if the statement `to` = `product` is not possible.
template <class T, class Block, class A, class B>
void require_matrix_product(block_sparse_matrix<T, Block> const& to,
                            expr::matrix_product<A, B> const& product) {
  using a_block = block_of<A>;
  using b_block = block_of<B>;
  static_assert(
      a_block::rows == Block::rows && a_block::cols == b_block::rows && b_block::cols == Block::cols,
      "[c = a * b] the blocks do not fit: a's rows and b's columns must be c's, and a's columns b's rows");
  static_assert(std::is_same_v<accumulator_t<T>, accumulator_t<typename A::value_type>> &&
                    std::is_same_v<accumulator_t<T>, accumulator_t<typename B::value_type>>,
                "the operands and the destination of a statement have different element "
                "types: " TESSERA_ONE_ACCUMULATOR);
  for (auto const& leaf : {all_of(product.a.tensor()), all_of(product.b.tensor())})
    if (overlap(all_of(to), leaf))
      throw shape_error(
          "[c = a * b] c is an operand, or overlaps one: a product cannot be computed in place");
}
/// Throws shape_error if `to` does not store all blocks of a·b.
void require_stores_product(pattern const& a, pattern const& b, pattern const& to);

template <class T, class Block, class A, class B, bool Accumulates>
TESSERA_COLD void lower(
    plan& p,
    expr::statement<block_sparse_matrix<T, Block>, expr::matrix_product<A, B>, Accumulates> const& s) {
  block_sparse_matrix<T, Block>& to = s.destination();
  require_matrix_product(to, s.value);
  const matrix_factor a = factor_of(p, s.value.a), b = factor_of(p, s.value.b);
  if (!s.value.sampled) require_stores_product(a.stored, b.stored, to.pattern());
  using body = matrix_product_body<typename A::value_type, typename B::value_type, T, Block::rows,
                                   block_of<A>::cols, Block::cols>;
  step_draft made("matrix product", cut::lines);
  made.tiles = std::min(to.pattern().block_rows(), 8 * p.workers());
  const kernels::block_index c = index_of(to.pattern());
  p.add(made, body{.to = made.writes(all_of(to)),
                   .a = made.reads(a.blocks),
                   .b = made.reads(b.blocks),
                   .scratch = p.worker_memory(body::sums::scratch_bytes(c)),
                   .a_index = a.index,
                   .b_index = b.index,
                   .result = {c, to.rows(), to.cols(), Block::rows, Block::cols},
                   .tiles = made.tiles,
                   .accumulates = Accumulates});
}

/// c = transposed(w)
template <class T, class Block, class Leaf>
TESSERA_COLD void lower(
    plan& p, expr::statement<block_sparse_matrix<T, Block>, expr::transpose<Leaf>, false> const& s) {
  static_assert(std::is_same_v<T, typename Leaf::value_type>,
                "[c = transposed(w)] the two matrices have different element types: bring them to one");
  block_sparse_matrix<T, Block>& to = s.destination();
  auto const& w = s.value.tensor();
  if (!(to.pattern() == transposed(w.pattern())))
    throw shape_error(message("[c = transposed(w)] c stores ", to.pattern().blocks(), " blocks and w ",
                              w.pattern().blocks(), ", others: give c the pattern transposed(w.pattern())"));
  step_draft made("transposition", cut::lines);
  made.tiles = std::min(to.pattern().block_rows(), 4 * p.workers());
  const operand at = made.writes(all_of(to)), from = made.reads(all_of(w));
  if (overlap(at, from))
    throw shape_error("[c = transposed(w)] c is w, or overlaps it: a matrix cannot be transposed in place");
  p.add(made, block_order_body<T, typename Leaf::tensor_type::block, true, 1>{
                  at, from, index_of(w.pattern(), true), made.tiles});
}

#ifdef TESSERA_BODY

TESSERA_BODY bool stores_product(pattern const& a, pattern const& b, pattern const& c) {
  constexpr int some = 1 << 14;  // columns at a time
  bool stored[some] = {};        // by the present block row
  bool all = true;
  for (int first = 0; first < c.block_cols() && all; first += some) {
    const int last = std::min(some, c.block_cols() - first) + first;
    const auto columns = [=](pattern const& of, int row) {
      return kernels::columns_between(index_of(of).line(row), first, last);
    };
    for (int i = 0; i < a.block_rows() && all; ++i) {
      for (const int j : columns(c, i)) stored[j - first] = true;
      for (const int k : a.row(i))
        for (const int j : columns(b, k)) all &= stored[j - first];
      for (const int j : columns(c, i)) stored[j - first] = false;
    }
  }
  return all;
}

TESSERA_COLD TESSERA_BODY std::int64_t lost_blocks(pattern const& a, pattern const& b, pattern const& c) {
  std::int64_t lost = 0;
  std::vector<int> seen_in(std::size_t(b.block_cols()), -1);  // last block row of c or a·b with this column
  for (int i = 0; i < a.block_rows(); ++i) {
    for (const int j : c.row(i)) seen_in[std::size_t(j)] = i;
    for (const int k : a.row(i))
      for (const int j : b.row(k)) lost += std::exchange(seen_in[std::size_t(j)], i) != i;
  }
  return lost;
}

TESSERA_COLD TESSERA_BODY touched_bytes blocks_of_lines(operand const& o, kernels::block_index const& index,
                                                        range lines, std::int64_t block_bytes) {
  return {o.owner, o.at + std::uintptr_t(index.blocks_before(lines.first) * block_bytes),
          index.blocks(lines.first, lines.last) * block_bytes};
}

TESSERA_COLD TESSERA_BODY void require_stores_product(pattern const& a, pattern const& b, pattern const& to) {
  if (!to.is_dense() && !stores_product(a, b, to))
    throw shape_error(message("[c = a * b] ", lost_blocks(a, b, to),
                              " blocks of the product are not stored by c and would be lost: give c "
                              "product_pattern(a.pattern(), b.pattern()), or write c = sampled(a * b)"));
}

#endif

}}}  // namespace tessera::TESSERA_ISA::eval
#endif

// ---- tessera/kernels/reductions.hpp
#ifndef TESSERA_SINGLE_KERNELS_REDUCTIONS
#define TESSERA_SINGLE_KERNELS_REDUCTIONS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Op folded over the features of each token of a panel; stored as E.
template <element E, class Op, class Tree> struct feature_fold {
  using op = Op;
  static constexpr bool over_features = true;
  Tree tree;
  E* to;
};

/// A sum over the tokens of a panel for each feature, in the accumulator type.
template <class T, class Tree> struct token_sum {
  static constexpr bool over_features = false;
  Tree tree;
  T* to;
};

/// Stores the sum over the lanes of each of `height` registers, or adds it to the number there; zeros follow.
template <class Arch, class T, class Register>
[[gnu::noinline]] void store_token_sums(Register* registers, int height, T* to, bool adds) {
  constexpr int lanes = simd::lanes<T, Arch>;
  for (int i = height; i < lanes; ++i) registers[i] = simd::zero<Arch, T>();
  const simd::batch<T, Arch> sum(simd::sum_groups<lanes, T, Arch>(registers));
  simd::store<Arch>(to, adds ? (simd::batch<T, Arch>::load_unaligned(to) + sum).data : sum.data);
}

/// Several reductions in one pass over a panel: named values are computed once for all reductions.
template <class Arch, class T, class... Reduction> struct reductions {
  using all_reductions = tree::operands<Reduction...>;

  /// Reduces features [first, last); `first` is a multiple of the granule. Folds need all features, and at
  /// least one. Token sums behind the last feature are zero up to the granule.
  static void run(all_reductions of, std::int64_t first, std::int64_t last, int tokens,
                  std::int64_t first_token) noexcept {
    constexpr std::integral_constant<int, lanes> all_live;
    int token = 0;
    if constexpr (registers_at_once * lanes == panel_tokens) {
      // A constant token makes addresses cheaper, and more loads are under way at a time.
      if (tokens == panel_tokens)
        return reduce<registers_at_once>(of, first, last, std::integral_constant<int, 0>(), all_live,
                                         first_token);
    } else {
      for (; token + registers_at_once * lanes <= tokens; token += registers_at_once * lanes)
        reduce<registers_at_once>(of, first, last, token, all_live, first_token);
    }
    for (; token < tokens; token += lanes)
      reduce<1>(of, first, last, token, std::min(lanes, tokens - token), first_token);
  }

 private:
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>, count = sizeof...(Reduction);
  static constexpr int registers_at_once = 4;  // registers of tokens: one alone would wait for its own sums

  template <class Visit>
  TESSERA_INLINE static void for_each_reduction(all_reductions const& of, Visit&& visit) {
    tree::with(of, [&](auto const&... each) TESSERA_INLINE_LAMBDA {
      [&]<int... r>(std::integer_sequence<int, r...>) TESSERA_INLINE_LAMBDA {
        (visit(each, std::integral_constant<int, r>()), ...);
      }(std::make_integer_sequence<int, count>());
    });
  }

  template <int R>
  TESSERA_INLINE static void reduce(all_reductions const& of, std::int64_t first, std::int64_t last,
                                    auto token, auto live, std::int64_t first_token) {
    batch folded[unsigned(count)][unsigned(R)];                 // (reductions, registers of tokens)
    simd::reg<T, Arch> sums[unsigned(count)][unsigned(lanes)];  // (reductions, features of a register)
    for_each_reduction(of, [&]<class Each>([[maybe_unused]] Each const& each, auto r) TESSERA_INLINE_LAMBDA {
      if constexpr (Each::over_features)
        unroll<R>([&](auto c) TESSERA_INLINE_LAMBDA { folded[r][c] = Each::op::template neutral<batch>(); });
    });
    for (std::int64_t f = first; f < last; f += lanes) {
      const int height = int(std::min<std::int64_t>(lanes, last - f));
      const auto add_feature = [&](std::int64_t feature, int i) TESSERA_INLINE_LAMBDA {
        batch sum[unsigned(count)];
        unroll<R>([&](auto c) TESSERA_INLINE_LAMBDA {
          const position at{feature, token + c * lanes, first_token};
          tree::known_for<batch, decltype(Reduction::tree)...> known;
          for_each_reduction(
              of, [&]<class Each>([[maybe_unused]] Each const& each, auto r) TESSERA_INLINE_LAMBDA {
                const batch value = each.tree.value(at, batch(T(0)), known);
                if constexpr (Each::over_features)
                  folded[r][c] = typename Each::op{}(folded[r][c], value);
                else if constexpr (c == 0)
                  sum[r] = first_of(value, live);
                else
                  sum[r] = sum[r] + first_of(value, live);
              });
        });
        for_each_reduction(of,
                           [&]<class Each>([[maybe_unused]] Each const& each, auto r) TESSERA_INLINE_LAMBDA {
                             if constexpr (!Each::over_features) sums[r][i] = sum[r].data;
                           });
      };
      if constexpr (R > 1 && (tree::reads_pairs<decltype(Reduction::tree)> || ...)) {
        for (int i = 0; i < height; i += 2) {  // features that share a lane are loaded once
          const std::int64_t even = (f + i) & ~std::int64_t(1);
          add_feature(even, i);
          if (i + 1 < height) add_feature(even + 1, i + 1);
        }
      } else {
        for (int i = 0; i < height; ++i) add_feature(f + i, i);
      }
      for_each_reduction(of,
                         [&]<class Each>([[maybe_unused]] Each const& each, auto r) TESSERA_INLINE_LAMBDA {
                           if constexpr (!Each::over_features)
                             store_token_sums<Arch>(sums[r], height, each.to + f, token > 0);
                         });
    }
    for_each_reduction(of, [&]<class Each>([[maybe_unused]] Each const& each, auto r) TESSERA_INLINE_LAMBDA {
      if constexpr (Each::over_features)
        unroll<R>([&](auto c) TESSERA_INLINE_LAMBDA {
          simd::store_values(each.to + token + c * lanes, first_of(folded[r][c], live));
        });
    });
  }

  /// The value, with zeros beyond its live lanes.
  TESSERA_INLINE static batch first_of(batch value, std::integral_constant<int, lanes>) { return value; }
  TESSERA_INLINE static batch first_of(batch value, int live) {
    return live < lanes ? simd::first_lanes(value, live) : value;
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/eval/reduction.hpp
#ifndef TESSERA_SINGLE_EVAL_REDUCTION
#define TESSERA_SINGLE_EVAL_REDUCTION
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

// token_vector = a reduction over the features, feature_vector = a sum over the tokens, and several
// reductions in one pass over their panels. In a sum over tokens each panel leaves a row of sums; a step
// behind all panels adds the rows.

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

// ---- one pass over a panel ----

/// A reduction of a tree over the features of each token, into an operand of elements E.
template <class E, class Op, class Tree> struct fold_body {
  static constexpr bool over_features = true;
  operand to;
  Tree tree;

  kernels::feature_fold<E, Op, addressed_tree<Tree>> on_panel(tile const& t) const {
    return {addressed(tree, t), t.address<E>(to)};
  }
  touched_bytes written(tile const& t, range, int tokens) const {
    return elements_of<E>(to, t.index, 0, tokens);
  }
};
/// A sum over the tokens of a panel, in the accumulator: a row for each panel.
template <class T, class Tree> struct token_sum_body {
  static constexpr bool over_features = false;
  operand to;
  Tree tree;

  kernels::token_sum<T, addressed_tree<Tree>> on_panel(tile const& t) const {
    return {addressed(tree, t), t.address<T>(to)};
  }
  touched_bytes written(tile const& t, range features, int) const {
    return elements_of<T>(to, t.index, features.first, features.size());
  }
};

/// Reductions of one panel, or of a range of its features if no reduction needs all features.
template <class T, class... Reduction> struct reductions_body {
  std::int64_t features, tokens;
  tree::operands<Reduction...> of;

  range rows(tile const& t) const { return granules_of(features, t.part, t.parts); }
  void compute(tile const& t) const noexcept {
    const range f = rows(t);
    tree::with(of, [&](auto const&... each) {
      using kernel = kernels::reductions<simd::native, T, decltype(each.on_panel(t))...>;
      kernel::run(all_on_panel(t, each...), f.first, f.last, tokens_of(t.index, tokens),
                  t.index * panel_tokens);
    });
  }
  void describe(tile const& t, task_description& d) const {
    const range f = rows(t);
    const int live = tokens_of(t.index, tokens);
    tree::with(of, [&](auto const&... each) {
      (describe_reads(each.tree, t, f.first, f.last, live, d), ...);
      (d.write(each.written(t, f, live)), ...);
    });
  }

 private:
  static tree::operands<> all_on_panel(tile const&) { return {}; }
  template <class First, class... Rest>
  static auto all_on_panel(tile const& t, First const& first, Rest const&... rest) {
    return prepend(first.on_panel(t), all_on_panel(t, rest...));
  }
};

// ---- the sum of rows ----

/// Features of a tile of row_sum_body.
inline constexpr int features_a_tile = 16 * granule;

/// Adds the rows that the panels left, in double and in the order of the panels: over many panels a float
/// would lose more than the sums within panels lost.
template <class E> struct row_sum_body {
  using T = accumulator_t<E>;
  operand to, rows;
  std::int64_t features;
  int panels;
  bool accumulates;

  std::int64_t first(tile const& t) const { return t.index * features_a_tile; }
  std::int64_t size(tile const& t) const {
    return std::min<std::int64_t>(features_a_tile, features - first(t));
  }
  void compute(tile const& t) const noexcept {
    alignas(64) double sums[features_a_tile] = {};
    for (int panel = 0; panel < panels; ++panel) {
      T const* const row = t.address<T const>(rows, panel) + first(t);
      for (std::int64_t f = 0; f < size(t); ++f) sums[f] += static_cast<double>(row[f]);
    }
    E* const y = t.address<E>(to, 0) + first(t);
    for (std::int64_t f = 0; f < size(t); ++f) y[f] = E((accumulates ? T(y[f]) : T(0)) + T(sums[f]));
  }
  void describe(tile const& t, task_description& d) const {
    touched_bytes of_rows = elements_of<T>(rows, 0, first(t), size(t));
    of_rows.count = panels, of_rows.stride = std::int64_t(rows.stride);
    d.read(of_rows);
    d.write(elements_of<E>(to, 0, first(t), size(t)));
    if (accumulates) d.read(d.writes.back());
  }
};

/// Adds a late step that sums `count` rows in memory of the run.
template <class E>
void add_row_sum(plan& p, operand const& sum, operand rows, std::int64_t features, int count,
                 bool accumulates) {
  step_draft s("sum of rows", cut::lines);
  s.when = timing::late;
  s.tiles = int(ceil_div<std::int64_t>(features, features_a_tile));
  s.writes(sum);
  rows.touches = footprint::everything;
  s.reads(rows);
  p.add(s, row_sum_body<E>{sum, rows, features, count, accumulates});
}

// ---- lowering ----

/// The sources of one reduction of a pass: its argument, the place of its result, and the steps that follow
/// the pass.
template <class E, class Op, class Argument> struct fold_source {
  using accumulator = accumulator_t<E>;
  static constexpr bool over_features = true;
  Argument const& argument;
  operand to;

  operand const& written() const { return to; }
  template <class Tree> auto body_of(Tree const& tree) const { return fold_body<E, Op, Tree>{to, tree}; }
  void follow(plan&) const {}
};
template <class E, class Argument> struct token_sum_source {
  using accumulator = accumulator_t<E>;
  static constexpr bool over_features = false;
  Argument const& argument;
  operand rows;  // a row for each panel
  operand sum;
  std::int64_t features, tokens;
  bool accumulates;

  operand const& written() const { return rows; }
  template <class Tree> auto body_of(Tree const& tree) const {
    return token_sum_body<accumulator, Tree>{rows, tree};
  }
  void follow(plan& p) const {
    add_row_sum<E>(p, sum, rows, features, int(ceil_div<std::int64_t>(tokens, panel_tokens)), accumulates);
  }
};

template <class E, class Argument>
token_sum_source<E, Argument> make_token_sum(plan& p, feature_vector<E>& to, Argument const& argument,
                                             bool accumulates) {
  const std::size_t row =
      std::size_t(round_up<std::int64_t>(to.features(), granule)) * sizeof(accumulator_t<E>);
  const std::int64_t tokens = expr::extent_of(argument).tokens;
  const auto panels = std::size_t(ceil_div<std::int64_t>(tokens, panel_tokens));
  return {argument, p.run_memory(row * panels, row), all_of(to), to.features(), tokens, accumulates};
}

template <class Binder> tree::operands<> bind_reductions(Binder&) { return {}; }
template <class Binder, class First, class... Rest>
auto bind_reductions(Binder& bind, First const& first, Rest const&... rest) {
  auto head = first.body_of(bind(first.argument));
  return prepend(head, bind_reductions(bind, rest...));
}
template <class T, class... Each>
void add_reductions(plan& p, step_draft const& s, std::int64_t features, std::int64_t tokens,
                    tree::operands<Each...> const& all) {
  p.add(s, reductions_body<T, Each...>{features, tokens, all});
}

/// Adds a step that computes reductions of `tokens` tokens in one pass.
template <class First, class... Rest>
TESSERA_COLD void lower_reductions(plan& p, std::int64_t tokens, First const& first, Rest const&... rest) {
  using T = typename First::accumulator;
  static_assert((std::is_same_v<T, typename Rest::accumulator> && ...),
                "[in_one_pass] the reductions have different element types: " TESSERA_ONE_ACCUMULATOR);
  const expr::extent size = expr::extent_of(first.argument);
  step_draft s("reduction", cut::panels);
  s.writes(first.written());
  (s.writes(rest.written()), ...);
  if (((expr::extent_of(rest.argument).features != size.features ||
        expr::extent_of(rest.argument).tokens != tokens) ||
       ...))
    throw shape_error("[in_one_pass] the reductions are over different numbers of features or tokens");
  if constexpr ((First::over_features || ... || Rest::over_features)) {
    if (size.features < 1) throw shape_error("[reduction over features] there must be at least one feature");
    s.divides = division::never;  // needs all features of a panel
  }
  binder<T, over::panels> bind(p, s, tokens);
  const auto all = bind_reductions(bind, first, rest...);
  tree::with(all, [](auto const&... each) { require_same_names(each.tree...); });
  s.tiles = int(ceil_div<std::int64_t>(tokens, panel_tokens));
  s.most_parts = int(ceil_div<std::int64_t>(size.features, granule));
  add_reductions<T>(p, s, size.features, tokens, all);
  first.follow(p);
  (rest.follow(p), ...);
}

template <class E, class Op, class Argument>
void lower_to(plan& p, tokens_to<E> const& to, expr::feature_reduction<Op, Argument> const& node) {
  lower_reductions(p, to.tokens, fold_source<E, Op, Argument>{node.argument, to.at});
}

/// A reduction among the reductions of one pass: a sum over tokens, …
template <class E, class Argument, bool Accumulates>
auto reduction_of(plan& p,
                  expr::statement<feature_vector<E>, expr::token_sum<Argument>, Accumulates> const& s) {
  return make_token_sum(p, s.destination(), s.value.argument, Accumulates);
}
/// … one over features, …
template <class E, class Op, class Argument>
auto reduction_of(plan&,
                  expr::statement<token_vector<E>, expr::feature_reduction<Op, Argument>, false> const& s) {
  return fold_source<E, Op, Argument>{s.value.argument, by_panel(s.destination())};
}
/// … or a local reduction over features.
template <class Op, class Argument>
auto reduction_of(plan& p, expr::local_value<expr::feature_reduction<Op, Argument>> const& local) {
  using T = accumulator_t<typename Argument::value_type>;
  const std::int64_t tokens = expr::extent_of(local.argument.argument).tokens;
  const operand to =
      p.local_memory(panel_tokens * sizeof(T), ceil_div<std::int64_t>(tokens, panel_tokens), true);
  p.add_local(&local, to);
  return fold_source<T, Op, Argument>{local.argument.argument, to};
}

template <class T, class Argument, bool Accumulates>
void lower(plan& p, expr::statement<feature_vector<T>, expr::token_sum<Argument>, Accumulates> const& s) {
  lower_reductions(p, expr::extent_of(s.value.argument).tokens, reduction_of(p, s));
}

template <class T>
concept reduction = requires(plan& p, T const& each) { reduction_of(p, each); };

/// Reductions that are computed in one pass: statements, and references to locals.
template <class... Reduction> struct TESSERA_STATEMENT one_pass {
  using statement_tag = void;
  std::tuple<Reduction...> reductions;
  void lower(plan& p) const {
    std::apply(
        [&](auto const&... each) {
          const auto lower_all = [&](auto const& first, auto const&... rest) {
            lower_reductions(p, expr::extent_of(first.argument).tokens, first, rest...);
          };
          lower_all(reduction_of(p, each)...);
        },
        reductions);
  }
};

/// Stands in for a statement that failed a static_assert.
struct no_statement {
  using statement_tag = void;
  void lower(plan&) const {}
};

}  // namespace eval

/// Computes several reductions in one pass over their panels: sums over tokens, reductions over features, and
/// local reductions over features. `run(ctx, in_one_pass(g = sum_tokens(x), m = max_features(x)), …)`
template <class... Reduction> auto in_one_pass(Reduction&&... reduction) {
  constexpr bool fits = sizeof...(Reduction) > 0 && (eval::reduction<std::remove_cvref_t<Reduction>> && ...);
  static_assert(fits,
                "in_one_pass takes `vector = sum_tokens(…)`, `vector += sum_tokens(…)`, `tokens = "
                "sum_features(…)` or max_features(…), and local(sum_features(…)) or local(max_features(…))");
  if constexpr (fits)
    return eval::one_pass<Reduction...>{{std::forward<Reduction>(reduction)...}};
  else
    return eval::no_statement{};
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/kernels/sampled_operands.hpp
#ifndef TESSERA_SINGLE_KERNELS_SAMPLED_OPERANDS
#define TESSERA_SINGLE_KERNELS_SAMPLED_OPERANDS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// The operands of a sampled product, and their conversion to the lanes in which they are multiplied.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The element types of the operands.
template <element A, element B, engine By = engine::fma> struct sampled_types {
  static constexpr engine by = By;
  using left = A;
  using right = B;
  using accumulator = accumulator_t<A>;
};

/// The lanes in which operands are multiplied: one token of a feature in the accumulator type, or two tokens
/// if the engine multiplies pairs of the element of both operands.
template <class Arch, class Types> struct sampled_lanes {
  using A = typename Types::left;
  using B = typename Types::right;
  using lane = std::conditional_t<std::is_same_v<A, B>, simd::stored_lane<factor_of<Types::by, A, Arch>>,
                                  typename Types::accumulator>;
  static constexpr int row = simd::lanes_a_panel<lane>;  // lanes of a feature in a panel
  static constexpr bool packs_a = !std::is_same_v<A, lane>, copies_b = !std::is_same_v<B, lane>;
};

/// The stored blocks of a·bᵀ in some block rows and columns, summed over the tokens of some panels and added
/// to `values`.
template <class Types> struct sampled_arguments {
  block_index index;                // lines are block rows
  typename Types::left const* a;    // first panel of a (rows, tokens)
  typename Types::right const* b;   // first panel of b (columns, tokens)
  std::int64_t a_stride, b_stride;  // elements from panel to panel
  std::int64_t rows, cols;          // stored features of a and b: multiples of the granule
  typename Types::accumulator* values;
  int first_line, last_line;
  std::int32_t first_col, last_col;  // block columns; the first feature is a multiple of the granule
  int panels;
  bool accumulates;    // else values are cleared first
  std::byte* scratch;  // scratch_bytes of the kernel
};

/// Regroups features of a panel for a kernel with `Columns` columns in a register. `features` is a multiple
/// of Columns and of the features that share a lane.
template <int Columns, class Arch, class X, class Lane>
void regroup(X const* panel, Lane* grouped, std::int64_t features) noexcept {
  // Prefetched in software: rows are loaded side by side, so the hardware does not see that memory is read in
  // order.
  constexpr int step = 64 / sizeof(X), distance = 8192 / sizeof(X);
  constexpr int at_once = std::max(Columns, element_traits<X>::features_a_lane) * panel_tokens;
  const std::int64_t end = features * panel_tokens;
  for (std::int64_t at = 0; at < end; at += at_once) {
    if (at + distance < end)
      for (int i = 0; i < at_once; i += step) simd::prefetch<1>(panel + at + distance + i);
    simd::regroup<Columns, Arch>(panel + at, grouped + at / simd::elements_a_lane<Lane>);
  }
}

/// Some rows of a in lanes: read in place, or packed just before their use, as only one line uses them.
template <class Arch, class Types> struct left_rows {
  using lanes = sampled_lanes<Arch, Types>;
  using lane = typename lanes::lane;
  static constexpr int features_a_lane = element_traits<typename Types::left>::features_a_lane;

  lane const* first;
  std::int64_t stride;  // from panel to panel

  /// Bytes of scratch for `rows` rows of `panels` panels.
  static constexpr std::size_t bytes(std::int64_t rows, int panels) {
    return lanes::packs_a ? std::size_t(rows + 2 * (features_a_lane - 1)) * std::size_t(panels) * lanes::row *
                                sizeof(lane)
                          : 0;
  }

  /// Rows [from, to) of `panels` panels from number `panel` on; packed rows stand at the beginning of the
  /// scratch.
  static left_rows of(sampled_arguments<Types> const& a, std::int64_t from, std::int64_t to, int panel,
                      int panels) {
    auto const* const left = a.a + panel * a.a_stride;
    if constexpr (!lanes::packs_a) {
      return {left + from * panel_tokens, a.a_stride};
    } else {
      auto* const packed = reinterpret_cast<lane*>(a.scratch);
      const std::int64_t begin = from / features_a_lane * features_a_lane;
      const std::int64_t rows = std::min(a.rows, round_up<std::int64_t>(to, features_a_lane)) - begin;
      for (int p = 0; p < panels; ++p)
        regroup<1, Arch>(left + p * a.a_stride + begin * panel_tokens, packed + p * rows * lanes::row, rows);
      return {packed + (from - begin) * lanes::row, rows * lanes::row};
    }
  }
};

/// Some features of b in lanes: read in place, or regrouped into memory of the caller.
template <class Arch, class Types, int Columns> struct right_columns {
  using lanes = sampled_lanes<Arch, Types>;
  using lane = typename lanes::lane;
  static constexpr bool regroups = Columns > 1 || lanes::copies_b;

  lane const* first;
  std::int64_t stride;  // from panel to panel

  /// Bytes of memory for `features` features of `panels` panels.
  static constexpr std::size_t bytes(std::int64_t features, int panels) {
    return regroups ? std::size_t(features) * std::size_t(panels) * lanes::row * sizeof(lane) : 0;
  }

  /// Features [from, to) of `panels` panels from number `panel` on.
  static right_columns of(sampled_arguments<Types> const& a, std::int64_t from, std::int64_t to, int panel,
                          int panels, std::byte* memory) {
    auto const* const right = a.b + panel * a.b_stride + from * panel_tokens;
    if constexpr (!regroups) {
      return {right, a.b_stride};
    } else {
      auto* const grouped = reinterpret_cast<lane*>(memory);
      const std::int64_t stride = (to - from) * lanes::row;
      for (int p = 0; p < panels; ++p)
        regroup<Columns, Arch>(right + p * a.b_stride, grouped + p * stride, to - from);
      return {grouped, stride};
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/sampled_walk.hpp
#ifndef TESSERA_SINGLE_KERNELS_SAMPLED_WALK
#define TESSERA_SINGLE_KERNELS_SAMPLED_WALK
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The way of a sampled product through its operands: b is regrouped once for all lines, a chunk of a few
/// panels at a time, and each line multiplies its rows of a by the chunk.
///   Columns   of b that are regrouped together
template <class Arch, class Types, class Shape, int Columns> struct sampled_walk {
  using arguments = sampled_arguments<Types>;
  using T = typename Types::accumulator;
  using in_lanes = sampled_lanes<Arch, Types>;
  using lane = typename in_lanes::lane;
  using left = left_rows<Arch, Types>;
  using right = right_columns<Arch, Types, Columns>;
  /// Panels that pass through all lines before the next panels.
  static constexpr int panels_a_chunk = 2 * simd::elements_a_lane<lane>;
  static constexpr std::size_t chunk_bytes = std::size_t(512) << 10;  // of b: should stay in the L2

  /// The fewest ranges of columns for which a chunk of b stays in the L2, and the most for which a line has
  /// enough blocks in each.
  static int fewest_column_ranges(std::int64_t cols) {
    const std::size_t all = std::size_t(cols) * panels_a_chunk * in_lanes::row * sizeof(lane);
    return int(std::max<std::size_t>(1, ceil_div(all, chunk_bytes)));
  }
  static int most_column_ranges(std::int64_t cols) { return int(std::max<std::int64_t>(1, cols / 256)); }

  /// Bytes of sampled_arguments::scratch for ranges of up to `cols` features of b.
  static std::size_t scratch_bytes(block_index const& index, std::int64_t cols) {
    return right_at(index) + right::bytes(cols, panels_a_chunk);
  }

  /// Comes before the first chunk: finds the blocks of each line, and clears them if the product does not
  /// accumulate; a kernel whose first chunk stores all sums needs no cleared ones.
  static void prepare(arguments const& a, bool clears = true) noexcept {
    range* const found = ranges(a);
    for (int line = a.first_line; line < a.last_line; ++line) {
      const block_line blocks = a.index.line(line);
      const auto at = [&](std::int32_t column) {
        return std::int32_t(std::lower_bound(blocks.columns, blocks.columns + blocks.count, column) -
                            blocks.columns);
      };
      const range r{at(a.first_col), at(a.last_col)};
      found[line - a.first_line] = r;
      if (clears && !a.accumulates) std::fill(values_at(a, line, r.first), values_at(a, line, r.last), T(0));
    }
  }

  /// The columns of b in the chunk that begins at `panel`; regrouped columns stand in `memory`.
  static right right_of(arguments const& a, int panel, std::byte* memory) noexcept {
    const std::int64_t to = std::min<std::int64_t>(a.cols, std::int64_t(a.last_col) * Shape::cols);
    return right::of(a, first_feature(a), round_up<std::int64_t>(to, granule), panel, panels_from(a, panel),
                     memory);
  }

 protected:
  /// Blocks first … last - 1 of a line.
  struct range {
    std::int32_t first, last;
  };
  static constexpr std::size_t left_bytes = left::bytes(Shape::rows, panels_a_chunk);
  static constexpr std::int64_t values_in_l2 = 512 << 10;

  /// Scratch holds packed rows of a, the range of blocks of each line, and regrouped columns of b.
  static range* ranges(arguments const& a) { return reinterpret_cast<range*>(a.scratch + left_bytes); }
  static std::size_t right_at(block_index const& index) {
    return round_up<std::size_t>(left_bytes + std::size_t(index.lines()) * sizeof(range), 64);
  }
  static std::int64_t first_feature(arguments const& a) { return std::int64_t(a.first_col) * Shape::cols; }
  static int panels_from(arguments const& a, int panel) { return std::min(panels_a_chunk, a.panels - panel); }
  static T* values_at(arguments const& a, int line, std::int32_t block) {
    return a.values + (a.index.blocks_before(line) + block) * Shape::elements;
  }
  static std::int64_t stored_bytes(arguments const& a) {
    std::int64_t blocks = 0;
    for (range const *r = ranges(a), *end = r + (a.last_line - a.first_line); r < end; ++r)
      blocks += r->last - r->first;
    return blocks * std::int64_t(Shape::elements * sizeof(T));
  }

  /// The blocks of a line that are multiplied by a chunk.
  struct line_of_blocks {
    arguments const& a;  // of the chunk
    left rows;
    right cols;
    int line;
    std::int32_t const* columns;
    std::int64_t count;
    T* values;
    T* next_values;  // of the next line

    /// The first lane of feature `feature` of b; an overhanging one reads the first column, and its sums are
    /// not stored.
    lane const* column(std::int64_t feature) const {
      return cols.first + (feature < a.cols ? feature - first_feature(a) : 0) * in_lanes::row;
    }
  };

  /// Calls multiply(a, panel, columns of b) for every chunk, which begins at that panel.
  template <class Multiply>
  TESSERA_INLINE static void for_each_chunk(arguments const& a, Multiply const& multiply) {
    for (int panel = 0; panel < a.panels; panel += panels_a_chunk)
      multiply(a, panel, right_of(a, panel, a.scratch + right_at(a.index)));
  }

  /// Calls multiply(line) for every line with blocks, for the chunk that begins at `panel`.
  template <class Multiply>
  TESSERA_INLINE static void for_each_line(arguments const& a, int panel, right columns_of_b,
                                           Multiply const& multiply) {
    arguments now = a;
    now.a += panel * a.a_stride;
    now.panels = panels_from(a, panel);
    range const* r = ranges(a);
    for (int line = a.first_line; line < a.last_line; ++line, ++r) {
      if (r->first == r->last) continue;
      T* const values = values_at(a, line, r->first);
      multiply(line_of_blocks{now,
                              left::of(now, std::int64_t(line) * Shape::rows,
                                       std::int64_t(line + 1) * Shape::rows, 0, now.panels),
                              columns_of_b, line, a.index.line(line).columns + r->first, r->last - r->first,
                              values, line + 1 < a.last_line ? values_at(a, line + 1, r[1].first) : values});
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/amx_sampled_product.hpp
#ifndef TESSERA_SINGLE_KERNELS_AMX_SAMPLED_PRODUCT
#define TESSERA_SINGLE_KERNELS_AMX_SAMPLED_PRODUCT
#include <algorithm>
#include <cstdint>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sampled product by AMX, which sums over tokens: rows of a are left operands of 32 tokens, and
/// groups of 16 features of b right operands. The sums of 16 or 32 rows of a line, and of four or two groups,
/// stay in registers for a chunk of panels.
///   Unit   simd::hardware_amx or simd::emulated_amx
template <class Unit, class Arch, class Types, class Shape>
struct amx_sampled_product : sampled_walk<Arch, Types, Shape, simd::amx_columns> {
  using walk = sampled_walk<Arch, Types, Shape, simd::amx_columns>;
  using typename walk::arguments, typename walk::in_lanes, typename walk::lane, typename walk::right,
      typename walk::T;
  static constexpr int register_rows = std::min(Shape::rows, simd::amx_rows);
  static constexpr int row_registers = Shape::rows % (2 * simd::amx_rows) == 0 ? 2 : 1;
  static constexpr int rows = row_registers * register_rows;                // of a block, at a time
  static constexpr int columns = std::min(Shape::cols, simd::amx_columns);  // likewise

  static void run(arguments const& a) noexcept {
    walk::prepare(a, a.panels == 0);
    Unit unit(shapes);
    walk::for_each_chunk(a, [&](arguments const& all, int panel, right columns_of_b) {
      const bool begins = panel == 0 && !all.accumulates;
      walk::for_each_line(all, panel, columns_of_b, [&](line_of_blocks const& now) {
        rows_ahead soon = next_rows(now);
        for (int row = 0; row < Shape::rows; row += rows) {
          if (std::int64_t(now.line) * Shape::rows + row >= now.a.rows) continue;  // a block that overhangs
          std::int64_t part = 0;
          if constexpr (row_registers == 1) multiply_parts<4>(unit, now, row, part, begins, soon);
          multiply_parts<2>(unit, now, row, part, begins, soon);
          multiply_parts<1>(unit, now, row, part, begins, soon);
        }
      });
    });
  }

 private:
  using typename walk::line_of_blocks;
  static constexpr int parts_a_block = Shape::cols / columns;
  // Registers 0 … 3 are sums, 4 and 5 rows of a, 6 a group of b.
  static constexpr int left = 4, right_register = 6;
  static constexpr int row_lanes = simd::amx_row_bytes / int(sizeof(lane));

  static constexpr simd::amx_shapes shapes = [] {
    simd::amx_shapes all;
    for (int t = 0; t < 4; ++t) all.set(t, register_rows, columns * int(sizeof(T)));
    for (int r = 0; r < row_registers; ++r) all.set(left + r, register_rows, simd::amx_row_bytes);
    all.set(right_register, row_lanes, columns * int(sizeof(lane)));
    return all;
  }();

  /// The rows of a of the next line, of which each visit of a panel prefetches an equal share.
  static rows_ahead next_rows(line_of_blocks const& now) {
    rows_ahead soon;
    const std::int64_t first = std::int64_t(now.line + 1) * Shape::rows, parts = now.count * parts_a_block;
    if (now.line + 1 == now.a.last_line) return soon;
    soon.bytes = std::size_t(std::min<std::int64_t>(Shape::rows, now.a.rows - first)) * panel_tokens *
                 sizeof(typename Types::left);
    for (int p = 0; p < now.a.panels; ++p) soon.add(now.a.a + p * now.a.a_stride + first * panel_tokens);
    const std::int64_t visits =
        row_registers == 1 ? parts / 4 + parts % 4 / 2 + parts % 2 : ceil_div<std::int64_t>(parts, 2);
    soon.cut(int(visits * (Shape::rows / rows) * now.a.panels));
    return soon;
  }

  /// Parts of blocks from `part` on, `Parts` at a time, by `rows` rows.
  template <int Parts>
  static void multiply_parts(Unit& unit, line_of_blocks const& now, int row, std::int64_t& part, bool begins,
                             rows_ahead& soon) {
    for (; part + Parts <= now.count * parts_a_block; part += Parts) {
      T* to[unsigned(Parts)];
      lane const* b[unsigned(Parts)];
      bool stored[unsigned(Parts)];
      for (int p = 0; p < Parts; ++p) {
        const std::int64_t block = (part + p) / parts_a_block;
        const int column = int((part + p) % parts_a_block) * columns;
        const std::int64_t feature = std::int64_t(now.columns[block]) * Shape::cols + column;
        to[p] = now.values + block * Shape::elements + row * Shape::cols + column;
        stored[p] = feature < now.a.cols;
        b[p] = now.column(feature / simd::amx_columns * simd::amx_columns) + feature % simd::amx_columns;
      }
      const auto each_sum = [&](auto visit) TESSERA_INLINE_LAMBDA {
        unroll<row_registers * Parts>([&](auto i) TESSERA_INLINE_LAMBDA {
          constexpr int r = i / Parts, p = i % Parts;
          const bool overhangs = std::int64_t(now.line) * Shape::rows + row + r * register_rows >= now.a.rows;
          visit(i, to[p] + r * register_rows * Shape::cols, stored[p] && !overhangs);
        });
      };
      each_sum([&](auto i, T* values, bool) TESSERA_INLINE_LAMBDA {
        if (begins)
          unit.template zero<i>();
        else
          unit.template load<i>(values, Shape::cols * sizeof(T));
      });
      lane const* a = now.rows.first + row * in_lanes::row;
      for (int panel = 0; panel < now.a.panels; ++panel) {
        soon.fetch();
        for (int first = 0; first < in_lanes::row; first += row_lanes) {
          unroll<row_registers>([&](auto r) TESSERA_INLINE_LAMBDA {
            unit.template load<left + r>(a + r * register_rows * in_lanes::row + first,
                                         in_lanes::row * sizeof(lane));
          });
          unroll<Parts>([&](auto p) TESSERA_INLINE_LAMBDA {
            unit.template load<right_register>(b[p] + first * simd::amx_columns,
                                               simd::amx_columns * sizeof(lane));
            unroll<row_registers>([&](auto r) TESSERA_INLINE_LAMBDA {
              unit.template multiply_add<r * Parts + p, left + r, right_register, typename Types::left>();
            });
          });
        }
        a += now.rows.stride;
        for (int p = 0; p < Parts; ++p) b[p] += now.cols.stride;
      }
      each_sum([&](auto i, T* values, bool is_stored) TESSERA_INLINE_LAMBDA {
        if (is_stored) unit.template store<i>(values, Shape::cols * sizeof(T));
      });
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/sampled_product.hpp
#ifndef TESSERA_SINGLE_KERNELS_SAMPLED_PRODUCT
#define TESSERA_SINGLE_KERNELS_SAMPLED_PRODUCT
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Columns of a block in one register of sums.
template <class T, class Arch, int Cols>
inline constexpr int columns_in_register = power_of_two_divisor(simd::lanes<T, Arch>, Cols);

/// The sampled product (SDDMM). A register of sums holds a few columns of a block times a few consecutive
/// tokens (16 × 1, 8 × 2, 4 × 4 or 1 × 16), and is summed over its tokens only after all panels. Rows of a
/// are broadcast, in place if they need not be packed.
template <class Arch, class Types, class Shape>
struct sampled_product
    : sampled_walk<Arch, Types, Shape, columns_in_register<typename Types::accumulator, Arch, Shape::cols>> {
  static constexpr int columns = columns_in_register<typename Types::accumulator, Arch, Shape::cols>;
  using walk = sampled_walk<Arch, Types, Shape, columns>;
  using typename walk::arguments, typename walk::in_lanes, typename walk::lane, typename walk::left,
      typename walk::right, typename walk::T;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int lanes_a_column = lanes / columns;  // in one register
  static constexpr bool wide = register_block<T, Arch>::wide;
  /// Rows of a register block that covers as many blocks as fit: their columns of b then stay in the L1 for
  /// the other rows of these blocks.
  static constexpr int rows_together = power_of_two_divisor(wide ? 8 : 2, Shape::rows);
  /// Six blocks by four rows just leave registers for the operands.
  static constexpr int accumulators = !wide ? 8 : rows_together == 4 ? 24 : 16;
  static constexpr int side_by_side = accumulators / rows_together;

  /// Rows of a register block that covers `Blocks` blocks of a line.
  template <int Blocks>
  static constexpr int rows_for =
      power_of_two_divisor(int(std::bit_floor(unsigned(std::max(1, accumulators / Blocks)))), Shape::rows);
  static void run(arguments const& a) noexcept {
    walk::prepare(a);
    walk::for_each_chunk(a, multiply);
  }

  /// Adds the products of the chunk that begins at `panel`.
  static void multiply(arguments const& a, int panel, right columns_of_b) noexcept {
    const bool beyond_l2 = walk::stored_bytes(a) > walk::values_in_l2;
    walk::for_each_line(a, panel, columns_of_b, [&](line_of_blocks const& now) {
      prefetcher next(now.a, now.line, now.count, a.panels - panel - now.a.panels);
      if (beyond_l2) next.values = now.next_values;
      std::int64_t b = 0;
      for_each_width(
          [&]<int Blocks>(std::integral_constant<int, Blocks>) { run_blocks<Blocks>(now, b, next); });
    });
  }

 private:
  using typename walk::line_of_blocks;

  /// Visits the numbers of blocks that are computed at a time, in descending order: the smaller ones are for
  /// the end of a line.
  static void for_each_width(auto visit) {
    visit(std::integral_constant<int, side_by_side>{});
    if constexpr (side_by_side > 4) visit(std::integral_constant<int, 4>{});
    if constexpr (side_by_side > 2) visit(std::integral_constant<int, 2>{});
    visit(std::integral_constant<int, 1>{});
  }

  /// Prefetches rows of a for the next line (into the L1) and for a later line (into the L2), and values of
  /// the next line. Each register block prefetches an equal share: a burst would fill the queue of L1 misses.
  struct prefetcher {
    static constexpr int step = 64 / sizeof(typename Types::left);
    typename Types::left const *next_rows, *rows;
    int at = 0, share = 0, count = 0;  // cache lines of each panel: done, a share, all
    T* values = nullptr;               // null if all values stay in the L2

    prefetcher(arguments const& a, int line, std::int64_t blocks, int panels_after)
        : next_rows(a.a + std::min(line + 1, a.last_line - 1) * (std::int64_t(Shape::rows) * panel_tokens)),
          rows(a.a) {
      constexpr int lines_ahead = std::max(1, 2 * granule / Shape::rows);
      std::int64_t next = std::int64_t(line) + lines_ahead;
      if (next >= a.last_line) {
        if (panels_after < a.panels) return;
        rows += a.panels * a.a_stride;
        next = std::min<std::int64_t>(next - a.last_line + a.first_line, a.last_line - 1);
      }
      rows += next * Shape::rows * panel_tokens;
      count = int(std::min<std::int64_t>(Shape::rows, a.rows - next * Shape::rows)) * panel_tokens / step;
      share = ceil_div(count, std::max(1, int(visits(blocks))));
    }
  };

  /// Calls of compute for the blocks of a line.
  static std::int64_t visits(std::int64_t blocks) {
    std::int64_t all = 0;
    const auto in = [&]<int Blocks>(std::integral_constant<int, Blocks>) {
      all += blocks / Blocks * (Shape::rows / rows_for<Blocks>);
      blocks %= Blocks;
    };
    for_each_width(in);
    return all * (Shape::cols / columns);
  }

  template <int Blocks>
  static void run_blocks(line_of_blocks const& from, std::int64_t& b, prefetcher& next) {
    constexpr int rows = rows_for<Blocks>;
    for (; b + Blocks <= from.count; b += Blocks)
      for (int row = 0; row < Shape::rows; row += rows) {
        if (std::int64_t(from.line) * Shape::rows + row >= from.a.rows) continue;  // a block that overhangs
        if (next.values) {
          constexpr int count_of_lines = ceil_div<int>(rows * Shape::cols * sizeof(T), 64);
          for (int p = 0; p < Blocks; ++p) {
            T const* const to = next.values + (b + p) * Shape::elements + row * Shape::cols;
            unroll<count_of_lines>([&](auto l) TESSERA_INLINE_LAMBDA {
              simd::prefetch<1>(reinterpret_cast<std::byte const*>(to) + l * 64);
            });
          }
        }
        for (int column = 0; column < Shape::cols; column += columns)
          compute<Blocks>(from, row, column, from.columns + b, from.values + b * Shape::elements, next);
      }
  }

  template <int Blocks>
  static void compute(line_of_blocks const& from, int row, int column, std::int32_t const* cols, T* values,
                      prefetcher& next) {
    constexpr int rows = rows_for<Blocks>;
    arguments const& a = from.a;
    left rows_of_a{from.rows.first + row * in_lanes::row, from.rows.stride};
    reg sums_of_rows[unsigned(rows)][unsigned(Blocks)];  // (rows of a, blocks)
    unroll<Blocks * rows>(
        [&](auto i) TESSERA_INLINE_LAMBDA { sums_of_rows[i % rows][i / rows] = simd::zero<Arch, T>(); });
    lane const* at[unsigned(Blocks)];  // column of b of each block, in the current panel
    unroll<Blocks>([&](auto p) TESSERA_INLINE_LAMBDA {
      at[p] = from.column(std::int64_t(cols[p]) * Shape::cols + column);
    });
    const int fetched = std::min(next.at + next.share, next.count);
    auto const *next_rows = next.next_rows, *soon = next.rows;
    for (int panel = 0; panel < a.panels; ++panel, next_rows += a.a_stride, soon += a.a_stride) {
      for (int i = next.at; i < fetched; ++i) {
        simd::prefetch<1>(next_rows + i * prefetcher::step);
        simd::prefetch<2>(soon + i * prefetcher::step);
      }
      for (int t = 0; t < in_lanes::row; t += lanes_a_column)
        multiply_registers<lane, Arch>(
            sums_of_rows,
            [&](auto r) TESSERA_INLINE_LAMBDA {
              return simd::repeat<lanes_a_column, Arch>(rows_of_a.first + r * in_lanes::row + t);
            },
            [&](auto p) TESSERA_INLINE_LAMBDA { return simd::load<Arch>(at[p] + t * columns); });
      rows_of_a.first += rows_of_a.stride;
      unroll<Blocks>([&](auto p) TESSERA_INLINE_LAMBDA { at[p] += from.cols.stride; });
    }
    next.at = fetched;
    reg acc[unsigned(Blocks * rows)];  // block by block
    unroll<Blocks * rows>([&](auto i) TESSERA_INLINE_LAMBDA { acc[i] = sums_of_rows[i % rows][i / rows]; });
    add_to_blocks<Blocks>(a, acc, row, column, cols, values);
  }

  /// Adds up the lanes of each sum, block by block, and adds the totals to rows `row` … of the blocks at
  /// `values`, from column `column` on.
  template <int Blocks>
  TESSERA_INLINE static void add_to_blocks(arguments const& a,
                                           reg (&acc)[unsigned(Blocks * rows_for<Blocks>)], int row,
                                           int column, std::int32_t const* cols, T* values) {
    constexpr int rows = rows_for<Blocks>;
    constexpr bool contiguous =
        columns == Shape::cols && (rows == Shape::rows || Blocks == 1 || rows % lanes_a_column == 0);
    if constexpr (contiguous && Blocks * rows % lanes_a_column == 0) {
      // The sums of `lanes_a_column` rows make one register of consecutive values.
      unroll<Blocks * rows / lanes_a_column>([&](auto i) TESSERA_INLINE_LAMBDA {
        constexpr int first = i * lanes_a_column, p = first / rows, r = first % rows;
        T* to = values + p * Shape::elements + (row + r) * Shape::cols;
        add(to, simd::sum_groups<lanes_a_column, T, Arch>(acc + first));
      });
    } else {
      alignas(64) T sums[unsigned(round_up(Blocks * rows, lanes_a_column) * columns)];
      reg padded[unsigned(round_up(Blocks * rows, lanes_a_column))];
      unroll<round_up(Blocks * rows, lanes_a_column)>([&](auto i) TESSERA_INLINE_LAMBDA {
        if constexpr (i < Blocks * rows)
          padded[i] = acc[i];
        else
          padded[i] = simd::zero<Arch, T>();
      });
      unroll<ceil_div(Blocks * rows, lanes_a_column)>([&](auto i) TESSERA_INLINE_LAMBDA {
        simd::store<Arch>(sums + i * lanes,
                          simd::sum_groups<lanes_a_column, T, Arch>(padded + i * lanes_a_column));
      });
      for (int p = 0; p < Blocks; ++p) {
        if (std::int64_t(cols[p]) * Shape::cols + column >= a.cols) continue;
        for (int r = 0; r < rows; ++r)
          for (int c = 0; c < columns; ++c)
            values[p * Shape::elements + (row + r) * Shape::cols + column + c] +=
                sums[(p * rows + r) * columns + c];
      }
    }
  }

  TESSERA_INLINE static void add(T* to, reg sums) {
    (batch::load_unaligned(to) + batch(sums)).store_unaligned(to);
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/sampled_product_1x1.hpp
#ifndef TESSERA_SINGLE_KERNELS_SAMPLED_PRODUCT_1X1
#define TESSERA_SINGLE_KERNELS_SAMPLED_PRODUCT_1X1
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sampled product for single elements, which share no loads of b. Up to `width` stored elements of a row
/// form a group: they share loads of the row of a, and find their columns of b in the L1. Groups are listed
/// once, by ranges of columns; the lists serve all panels, without a branch that depends on the pattern, and
/// hold the sums.
template <class Arch, class Types> struct sampled_product<Arch, Types, block_shape<1, 1>> {
  using arguments = sampled_arguments<Types>;
  using T = typename Types::accumulator;
  using in_lanes = sampled_lanes<Arch, Types>;
  using lane = typename in_lanes::lane;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int width = std::min(4, lanes);
  static constexpr int groups_a_register = lanes / width;  // groups whose sums fill a register
  static constexpr int columns = 1;
  using left = left_rows<Arch, Types>;
  using right = right_columns<Arch, Types, columns>;
  /// Panels that give a row 64 lanes, so that the overhead of a group weighs equally for all elements.
  static constexpr int panels_together = simd::elements_a_lane<lane>;

  /// Bytes of sampled_arguments::scratch for any lines of this index and `cols` columns.
  static std::size_t scratch_bytes(block_index const& index, std::int64_t cols) {
    const ranges r(index, cols);
    std::int64_t all = 0, longest = 0;
    for (int line = 0; line < index.lines(); ++line) {
      const std::int64_t groups = r.groups(index.line(line).count);
      all += groups;
      longest = std::max(longest, groups);
    }
    const std::int64_t groups = std::min(all, groups_a_slice) + longest + r.count * groups_a_register;
    return operand_bytes(index, cols) + std::size_t(groups) * (sizeof(group) + width * sizeof(T)) +
           std::size_t(r.count + 1 + rows_a_slice(index)) * sizeof(std::int32_t);
  }

  static int fewest_column_ranges(std::int64_t /*cols*/) { return 1; }
  static int most_column_ranges(std::int64_t /*cols*/) { return 1; }

  static void run(arguments const& a) noexcept {
    if (!a.accumulates)
      std::fill(a.values + a.index.blocks_before(a.first_line), a.values + a.index.blocks_before(a.last_line),
                T(0));
    const ranges r(a.index, a.cols);
    std::int64_t all = 0;
    for (int line = a.first_line; line < a.last_line; ++line) all += r.groups(a.index.line(line).count);
    if (all == 0) return;
    const std::int64_t target = ceil_div(all, ceil_div(all, groups_a_slice));  // slices of about one size
    for (int first = a.first_line, last; first < a.last_line; first = last) {
      std::int64_t groups = 0;
      for (last = first; last < a.last_line && last - first < most_rows && groups < target; ++last)
        groups += r.groups(a.index.line(last).count);
      lists l = list(a, r, first, last, groups + r.count * groups_a_register);
      int panel = 0;
      for (; panel + panels_together <= a.panels; panel += panels_together)
        multiply<panels_together>(a, r, l, first, last, panel);
      for (; panel < a.panels; ++panel) multiply<1>(a, r, l, first, last, panel);
      add(a, l);
    }
  }

 private:
  static constexpr int columns_in_l1 = int(std::size_t(128) * sizeof(float) / sizeof(lane));
  static constexpr std::int64_t groups_a_slice = 16384;  // with rows of a and sums they should fit the L2
  static constexpr int most_rows = 4096;
  static int rows_a_slice(block_index const& index) { return std::min(index.lines(), most_rows); }

  struct group {
    std::int32_t slot;
    std::uint16_t row;  // within the slice
    std::uint16_t count;
    std::uint16_t column[unsigned(width)];  // within the range
  };

  /// Scratch begins with packed rows of a, then regrouped columns of b.
  static std::size_t left_bytes(block_index const& index) {
    return left::bytes(rows_a_slice(index), panels_together);
  }
  static std::size_t operand_bytes(block_index const& index, std::int64_t cols) {
    return left_bytes(index) + right::bytes(cols, panels_together);
  }

  /// Ranges of columns of b that fit the L1, or wider ones if stored elements are few and most groups would
  /// not be full.
  struct ranges {
    int columns, count;
    ranges(block_index const& index, std::int64_t cols) {
      const std::int64_t few = 2 * width * cols * index.lines() / std::max<std::int64_t>(1, index.blocks());
      columns = int(std::clamp<std::int64_t>(round_up<std::int64_t>(few, granule), columns_in_l1,
                                             std::numeric_limits<std::uint16_t>::max()));
      count = int(ceil_div<std::int64_t>(cols, columns));
    }
    std::int64_t groups(std::int64_t elements) const {
      return elements / width + std::min<std::int64_t>(count, elements);
    }
  };

  struct lists {
    T* sums;
    group* groups;
    std::int32_t* start;  // first group of each range
    int count;
  };

  /// Prefetches memory of a few panels into the L2, in equal shares.
  struct stream {
    static constexpr int step = 64 / sizeof(lane);
    lane const *at, *end;
    std::int64_t share;
    stream(lane const* from, std::int64_t count, int shares)
        : at(from),
          end(from + count),
          share(ceil_div<std::int64_t>(count, std::int64_t(shares) * step) * step) {}
    template <int Panels> TESSERA_INLINE void fetch(std::int64_t stride) {
      lane const* const to = std::min(at + share, end);
      for (; at < to; at += step)
        unroll<Panels>([&](auto p) TESSERA_INLINE_LAMBDA { simd::prefetch<2>(at + p * stride); });
    }
  };

  /// Lists the stored elements of lines [first, last) in at most `most` groups. Groups without elements fill
  /// up the last register of a range.
  static lists list(arguments const& a, ranges const& r, int first, int last, std::int64_t most) {
    lists l;
    l.sums = reinterpret_cast<T*>(a.scratch + operand_bytes(a.index, a.cols));
    l.groups = reinterpret_cast<group*>(l.sums + most * width);
    l.start = reinterpret_cast<std::int32_t*>(l.groups + most);
    l.count = 0;
    std::int32_t* const walked = l.start + r.count + 1;
    std::fill_n(walked, last - first, 0);
    for (int range = 0; range < r.count; ++range) {
      l.start[range] = l.count;
      for (int line = first; line < last; ++line)
        list_row(a.index.line(line), range * r.columns, r.columns, std::uint16_t(line - first),
                 walked[line - first], l);
      while (l.count % groups_a_register != 0) l.groups[l.count++] = {};
    }
    l.start[r.count] = l.count;
    std::fill_n(l.sums, std::int64_t(l.count) * width, T(0));
    return l;
  }

  /// Lists the stored elements of a line in columns from … from + most - 1. `at` is the first element not yet
  /// listed. The size of the last group, which may be 0, decides no branch: it would be mispredicted.
  static void list_row(block_line const& line, std::int32_t from, std::int32_t most, std::uint16_t row,
                       std::int32_t& at, lists& l) {
    const std::int32_t end = line.count;
    const auto slot = std::int32_t(line.first);
    if (at == end) return;
    group* next = l.groups + l.count;
    std::int32_t s = at;
    for (; s + width <= end && line.columns[s + width - 1] - from < most; s += width) {
      group full{slot + s, row, width, {}};
      for (int i = 0; i < width; ++i) full.column[i] = std::uint16_t(line.columns[s + i] - from);
      *next++ = full;
    }
    group rest{slot + s, row, 0, {}};
    for (int i = 0; i < width; ++i) {
      const std::int32_t column = line.columns[std::min(s + i, end - 1)] - from;
      const bool here = s + i < end && column < most;
      rest.column[i] = std::uint16_t(here ? column : 0);
      rest.count = std::uint16_t(rest.count + here);
    }
    *next = rest;
    l.count = int(next - l.groups) + (rest.count > 0);
    at = s + rest.count;
  }

  template <int Panels>
  static void multiply(arguments const& a, ranges const& r, lists const& l, int first, int last, int panel) {
    const auto rows_of_a = left::of(a, first, last, panel, Panels);
    const auto columns_of_b = right::of(a, 0, a.cols, panel, Panels, a.scratch + left_bytes(a.index));
    for (int range = 0; range < r.count; ++range)
      multiply_range<Panels>(a, r, l, rows_of_a, columns_of_b, panel, range);
  }

  template <int Panels>
  static void multiply_range(arguments const& a, ranges const& r, lists const& l, left rows_of_a, right b,
                             int panel, int range) {
    constexpr int row = in_lanes::row;
    lane const* const first = b.first + std::int64_t(range) * r.columns * row;
    const int end = l.start[range + 1];
    const int batches = std::max(1, (end - l.start[range]) / groups_a_register);
    const bool last = range + 1 == r.count;
    const std::int64_t next_range = last ? 0 : range + 1;
    const std::int64_t next_columns = std::min<std::int64_t>(r.columns, a.cols - next_range * r.columns);
    const bool next_panel = last && !right::regroups && panel + 2 * Panels <= a.panels;
    stream next_b(b.first + (next_panel ? Panels * b.stride : 0) + next_range * r.columns * row,
                  next_columns * row, batches);
    for (int g = l.start[range]; g < end; g += groups_a_register) {
      next_b.template fetch<Panels>(b.stride);
      reg partial[unsigned(groups_a_register)];  // sums of each group
      unroll<groups_a_register>([&](auto j) TESSERA_INLINE_LAMBDA {
        group const& now = l.groups[g + j];
        lane const* y = rows_of_a.first + std::size_t(now.row) * row;
        lane const* x[unsigned(width)];  // columns of b
        reg acc[1][unsigned(width)];     // (one row of a, columns of b)
        unroll<width>([&](auto i) TESSERA_INLINE_LAMBDA {
          x[i] = first + std::size_t(now.column[i]) * row;
          acc[0][i] = simd::zero<Arch, T>();
        });
        // A row in up to four parts: wide registers make it four registers.
        constexpr int parts = std::min(4, row / lanes);
        unroll<Panels * parts>([&](auto at) TESSERA_INLINE_LAMBDA {
          constexpr int p = at / parts, part = at % parts;
          for (int t = part * row / parts; t < (part + 1) * row / parts; t += lanes)
            multiply_registers<lane, Arch>(
                acc,
                [&](auto) TESSERA_INLINE_LAMBDA { return simd::load<Arch>(y + p * rows_of_a.stride + t); },
                [&](auto i) TESSERA_INLINE_LAMBDA { return simd::load<Arch>(x[i] + p * b.stride + t); });
        });
        partial[j] = simd::sum_groups<width, T, Arch>(acc[0]);
      });
      T* const sums = l.sums + std::int64_t(g) * width;
      (batch::load_unaligned(sums) + batch(simd::sum_groups<groups_a_register, T, Arch>(partial)))
          .store_unaligned(sums);
    }
  }

  static void add(arguments const& a, lists const& l) {
    T nowhere = 0;  // takes the sums behind a group's elements, without a branch
    for (int g = 0; g < l.count; ++g) {
      T* const values = a.values + l.groups[g].slot;
      const int count = l.groups[g].count;
      unroll<width>([&](auto i) TESSERA_INLINE_LAMBDA {
        *(i < count ? values + i : &nowhere) += l.sums[g * width + i];
      });
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/eval/sampled.hpp
#ifndef TESSERA_SINGLE_EVAL_SAMPLED
#define TESSERA_SINGLE_EVAL_SAMPLED
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// matrix = a·bᵀ of activations, at the blocks that the matrix stores (SDDMM). The kernel makes a regrouped
// copy of its second operand. If the second operand is much the larger one, the product is computed
// transposed, b·aᵀ, in memory of the run, and transposed back tile by tile.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// c = a·bᵀ at the blocks of `result`. If `to` is cᵀ, c is computed in `transposed_to`, in memory of the run,
/// and each tile transposes its blocks back to `to`. Tiles are ranges of block rows times ranges of block
/// columns. Each tile regroups its own columns of b, because data that another core has just written is slow
/// to read.
template <class Types, class Block> struct sampled_body {
  using A = typename Types::left;
  using B = typename Types::right;
  using T = typename Types::accumulator;
  static constexpr bool by_amx = Types::by == engine::amx;
  using kernel =
      std::conditional_t<by_amx, kernels::amx_sampled_product<simd::native_amx, simd::native, Types, Block>,
                         kernels::sampled_product<simd::native, Types, Block>>;

  operand to, a, b;
  operand transposed_to;            // c, if `to` is its transpose
  kernels::block_grid result;       // the blocks of c
  std::int64_t a_stride, b_stride;  // elements from panel to panel
  std::int64_t tokens;
  operand scratch;
  int line_ranges, column_ranges, group_columns;
  bool accumulates, transposes;  // whether to += …; whether to is cᵀ

  range lines(tile const& t) const {
    return result.index.lines_of_part(int(t.index) / column_ranges, line_ranges);
  }
  range columns(tile const& t) const {
    const int width = result.index.width();
    const range groups = part_of(ceil_div(width, group_columns), int(t.index) % column_ranges, column_ranges);
    return {std::min(width, groups.first * group_columns), std::min(width, groups.last * group_columns)};
  }
  int panels() const { return int(ceil_div<std::int64_t>(tokens, panel_tokens)); }

  kernels::sampled_arguments<Types> arguments(tile const& t) const {
    const range l = lines(t), c = columns(t);
    return {.index = result.index,
            .a = t.address<A const>(a),
            .b = t.address<B const>(b),
            .a_stride = a_stride,
            .b_stride = b_stride,
            .rows = round_up<std::int64_t>(result.rows, granule),
            .cols = round_up<std::int64_t>(result.cols, granule),
            .values = t.address<T>(transposes ? transposed_to : to),
            .first_line = l.first,
            .last_line = l.last,
            .first_col = c.first,
            .last_col = c.last,
            .panels = panels(),
            .accumulates = accumulates && !transposes,
            .scratch = t.address<std::byte>(scratch)};
  }

  void compute(tile const& t) const noexcept {
    const auto now = arguments(t);
    kernel::run(now);
    finish(t, now);
  }
  /// Clears overhang and transposes back, after the kernel.
  void finish(tile const& t, kernels::sampled_arguments<Types> const& now) const noexcept {
    result.clear_overhang(now.values, lines(t), columns(t));
    if (transposes)
      kernels::transpose_blocks_back<simd::native, Block>(now.index, now.values, t.address<T>(to),
                                                          now.first_line, now.last_line, now.first_col,
                                                          now.last_col, accumulates);
  }

  void describe(tile const& t, task_description& d) const {
    const range l = lines(t), c = columns(t);
    for (int panel = 0; panel < panels(); ++panel) {
      const int live = tokens_of(panel, tokens);
      const auto rows_of = [&]<class E>(E const*, operand const& x, std::int64_t stride, range r, int height,
                                        std::int64_t size) {
        const std::int64_t first = std::min<std::int64_t>(size, std::int64_t(r.first) * height),
                           last = std::min<std::int64_t>(size, std::int64_t(r.last) * height);
        const std::uintptr_t at = x.at + std::uintptr_t(panel * stride) * sizeof(E);
        if (first < last) d.read(part_of_panel<E>(x.owner, at, first, last, live));
      };
      rows_of(static_cast<A const*>(nullptr), a, a_stride, l, Block::rows, result.rows);
      rows_of(static_cast<B const*>(nullptr), b, b_stride, c, Block::cols, result.cols);
    }
    std::int64_t multiplied = 0;
    for (int line = l.first; line < l.last; ++line) {
      const kernels::block_line blocks = result.index.line(line);
      for (int k = 0; k < blocks.count; ++k) {
        if (blocks.columns[k] < c.first || blocks.columns[k] >= c.last) continue;
        const std::int64_t slot = transposes ? blocks.slot(k) : blocks.first + k;
        d.write(elements_of<T>(to, 0, slot * Block::elements, Block::elements));
        if (accumulates) d.read(d.writes.back());
        ++multiplied;
      }
    }
    d.streams = true;
    d.multiply({l.last - l.first, multiplied, tokens, Block::rows, Block::cols, int(sizeof(A))});
  }
};

/// An activation as all tiles read it.
struct sampled_operand {
  operand from;
  std::int64_t features, stride;  // stride: elements from panel to panel
};

/// A copy of an activation in elements E, with zeros behind its last feature and token, where a slice has
/// neighbours.
template <class E, class From> struct padding_body {
  operand to, from;
  std::int64_t features, tokens;

  void compute(tile const& t) const noexcept {
    constexpr std::int64_t lane = element_traits<E>::features_a_lane, row = lane * panel_tokens;
    From const* source = t.address<From const>(from);
    E* const copy = t.address<E>(to);
    std::fill(copy, copy + round_up<std::int64_t>(features, granule) * panel_tokens, E(0));
    const int live = tokens_of(t.index, tokens);
    if constexpr (std::is_same_v<E, From>)
      for (std::int64_t f = 0; f < features; f += lane, source += row)
        std::copy(source, source + lane * live, copy + f * panel_tokens);
    else
      kernels::map<simd::native, E, tree::panel<From>>::run_panel(tree::panel<From>(source), copy, 0,
                                                                  features, live, 0);
  }
  void describe(tile const& t, task_description& d) const {
    d.read(part_of_panel<From>(from, t.index, 0, features, tokens_of(t.index, tokens)));
    d.write(part_of_panel<E>(to, t.index, 0, round_up<std::int64_t>(features, granule), panel_tokens));
  }
};

/// The element in which a sampled product reads an operand, which an engine other than fma multiplies as E:
/// fma multiplies accumulators, to which numbers of one byte are widened as they are regrouped.
template <engine By, class E, class Leaf>
using sampled_element = std::conditional_t<By == engine::fma && in_panels<typename Leaf::tensor_type> &&
                                               sizeof(typename Leaf::value_type) == 1,
                                           typename Leaf::value_type, E>;

/// An activation of elements E where it lies; or a copy: of rows, of a slice that has neighbours, of other
/// elements.
template <class E, class Leaf> sampled_operand sampled_operand_of(plan& p, Leaf const& leaf) {
  using From = typename Leaf::value_type;
  constexpr bool converts = !std::is_same_v<E, From>, is_view = tensor_view<typename Leaf::tensor_type>;
  auto const& x = leaf.tensor();
  const std::int64_t panel = round_up<std::int64_t>(x.features(), granule) * panel_tokens,
                     panels = ceil_div<std::int64_t>(x.tokens(), panel_tokens);
  const std::size_t bytes = std::size_t(panel) * sizeof(E);
  const auto copied = [&](operand copy) {
    copy.touches = footprint::everything;
    copy.stride = 0;
    return sampled_operand{copy, x.features(), panel};
  };
  if constexpr (!in_panels<typename Leaf::tensor_type>) {
    static_assert(!converts,
                  "[a * transposed(b)] rows of 8-bit numbers: copy them into a panel_matrix first");
    const operand copy = p.run_memory(bytes * std::size_t(panels), bytes);
    lower_to(p, panels_to<E>{copy, x.features(), x.tokens()}, leaf);
    return copied(copy);
  } else {
    if constexpr (converts || is_view) {
      bool copies = converts;
      if constexpr (is_view) copies = copies || !x.has_padded_features() || !x.has_padded_tokens();
      if (copies) {
        step_draft s("padding", cut::panels);
        s.divides = division::never;
        s.tiles = int(panels);
        const operand copy = s.writes(p.run_memory(bytes * std::size_t(panels), bytes));
        const operand from = s.reads(by_panel(x));
        p.add(s, padding_body<E, From>{copy, from, x.features(), x.tokens()});
        return copied(copy);
      }
    }
    return {all_of(x), x.features(), x.panel_stride()};
  }
}

/// to = a·bᵀ, or to = (a·bᵀ)ᵀ.
template <class Types, class Block, class Matrix>
TESSERA_COLD void lower_sampled(plan& p, Matrix& to, sampled_operand const& a, sampled_operand const& b,
                                std::int64_t tokens, bool accumulates, bool transposes) {
  using body = sampled_body<Types, Block>;
  using kernel = typename body::kernel;
  if (to.size() == 0) return;
  step_draft s("sampled product", cut::lines);
  body of{.to = s.writes(all_of(to)),
          .a = s.reads(a.from),
          .b = s.reads(b.from),
          .transposed_to = {},
          .result = {index_of(to.pattern(), transposes), a.features, b.features, Block::rows, Block::cols},
          .a_stride = a.stride,
          .b_stride = b.stride,
          .tokens = tokens,
          .scratch = {},
          .line_ranges = 1,
          .column_ranges = 1,
          .group_columns = granule / kernels::power_of_two_divisor(
                                         granule, Block::cols),  // ranges begin at whole granules
          .accumulates = accumulates,
          .transposes = transposes};
  kernels::block_index const& index = of.result.index;
  if (transposes) of.transposed_to = s.writes(p.run_memory(to.size_bytes()));

  // A tile for each worker. Ranges of lines each regroup all of b; columns are cut too where ranges of lines
  // would become short.
  const std::int64_t rows = round_up<std::int64_t>(a.features, granule),
                     cols = round_up<std::int64_t>(b.features, granule);
  const int column_groups = ceil_div(index.width(), of.group_columns);
  const int most = std::min(kernel::most_column_ranges(cols), column_groups);
  const int few_rows = most > 1 ? 256 : 1;
  of.line_ranges = int(std::clamp<std::int64_t>(rows / few_rows, 1, std::min(p.workers(), index.lines())));
  of.column_ranges = std::clamp(ceil_div(p.workers(), of.line_ranges),
                                std::min(most, kernel::fewest_column_ranges(cols)), most);
  if (p.machine().worker_bytes > 0) {
    // Where a worker has little memory, tiles are about square: they need the least of a and b.
    const auto square = int(std::lround(std::sqrt(double(p.workers()) * double(cols) / double(rows))));
    const int possible = kernel::right::regroups ? column_groups : most;
    of.column_ranges = std::clamp(square, std::min(possible, kernel::fewest_column_ranges(cols)), possible);
    of.line_ranges = std::clamp(ceil_div(p.workers(), of.column_ranges), 1, index.lines());
  }
  s.tiles = of.line_ranges * of.column_ranges;
  const std::int64_t widest =
      std::int64_t(ceil_div(column_groups, of.column_ranges)) * of.group_columns * Block::cols;
  of.scratch = p.worker_memory(kernel::scratch_bytes(index, std::min(cols, widest)));
  s.around = around_products<Types::by>;
  p.add(s, of);
}

template <class T, class Block, class A, class B, bool Accumulates>
TESSERA_COLD void lower(
    plan& p,
    expr::statement<block_sparse_matrix<T, Block>, expr::outer_product<A, B>, Accumulates> const& s) {
  using left = multiplied_as<typename A::value_type, typename B::value_type>;
  using right = multiplied_as<typename B::value_type, typename A::value_type>;
  using exchanged_block = block_shape<Block::cols, Block::rows>;
  static_assert(std::is_same_v<accumulator_t<T>, accumulator_t<left>>,
                "the operands and the destination of a statement have different element "
                "types: " TESSERA_ONE_ACCUMULATOR);
  static_assert(std::is_same_v<T, accumulator_t<T>>,
                "[c = a * transposed(b)] the sums over tokens are kept in c: store a float");
  block_sparse_matrix<T, Block>& to = s.destination();
  if (!s.value.sampled && !to.pattern().is_dense())
    throw shape_error(message("[c = a * transposed(b)] c stores ", to.pattern().blocks(), " of ",
                              std::int64_t(to.pattern().block_rows()) * to.pattern().block_cols(),
                              " blocks, the others would be lost: write c = sampled(a * transposed(b))"));
  const std::int64_t tokens = s.value.a.tensor().tokens();
  // A block of 4x4 would take the unit as long as one of 16x16, which is no faster than other engines.
  using amx = kernels::engine_policy<engine::amx>;
  constexpr bool fits = amx::template fits<Block, simd::native> &&
                        amx::template fits<exchanged_block, simd::native> &&
                        (Block::rows > 4 || Block::cols > 4);
  with_engine<left, right, engine::pairs, fits ? engine::amx : engine::fma>(
      p.machine(), [&]<engine By>(engine_constant<By>) {
        using read_left = sampled_element<By, left, A>;
        using read_right = sampled_element<By, right, B>;
        using types = kernels::sampled_types<read_left, read_right, By>;
        const sampled_operand a = sampled_operand_of<read_left>(p, s.value.a),
                              b = sampled_operand_of<read_right>(p, s.value.b);
        // The second operand is regrouped. Exchanges the operands if a smaller second operand saves more than
        // the transposition costs.
        const bool first_is_smaller = (b.features - a.features) * tokens > 4 * to.size();
        if (sampled_body<types, Block>::kernel::right::regroups && first_is_smaller)
          lower_sampled<kernels::sampled_types<read_right, read_left, By>, exchanged_block>(
              p, to, b, a, tokens, Accumulates, true);
        else
          lower_sampled<types, Block>(p, to, a, b, tokens, Accumulates, false);
      });
}

}}}  // namespace tessera::TESSERA_ISA::eval
#endif

// ---- tessera/kernels/token_rows.hpp
#ifndef TESSERA_SINGLE_KERNELS_TOKEN_ROWS
#define TESSERA_SINGLE_KERNELS_TOKEN_ROWS
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Where lines that are written stay: in the caches, or past them in memory, for tensors that would not be
/// found there when they are read.
enum class lines_go { to_caches, to_memory };

/// Brings rows of tokens into a panel, and back. A word is a lane of the panel: one feature of a token, or
/// several, which stand together in a row, too. Squares of words are transposed in registers, whole cache
/// lines of rows and panel at a time; words at the edges one by one.
template <class Arch, element E> struct row_transposition {
  static constexpr int features_a_word = element_traits<E>::features_a_lane;
  using word = std::conditional_t<sizeof(E) * features_a_word == 8, double, float>;
  static constexpr int side = simd::lanes<word, Arch>;
  static constexpr int line_words = std::max<int>(side, 64 / int(sizeof(word))),
                       squares_a_line = line_words / side,
                       line_features = line_words * features_a_word;  // of a cache line

  /// Features [first, last) of the rows into a panel; tokens beyond the last one become zero. `first` begins
  /// a word.
  ///   rows    of the panel's first token   stride   elements from one row to the next
  static void to_panel(E const* rows, std::int64_t stride, E* panel, std::int64_t first, std::int64_t last,
                       int tokens, lines_go go) noexcept {
    const std::int64_t square_features = last - (last - first) % line_features;
    const int square_tokens = stride % features_a_word == 0 ? tokens / side * side : 0;
    const auto bring = [&]<int squares>(std::integral_constant<int, squares>, int t, lines_go where) {
      for (std::int64_t f = first; f < square_features; f += line_features)
        transpose<squares, squares_a_line>(words(rows + t * stride + f), stride / features_a_word,
                                           words(panel + place_in_panel<E>(f, t)), panel_tokens, where);
    };
    const int line_tokens = square_tokens / line_words * line_words;
    for (int t = 0; t < line_tokens; t += line_words)
      bring(std::integral_constant<int, squares_a_line>(), t, go);
    for (int t = line_tokens; t < square_tokens; t += side)
      bring(std::integral_constant<int, 1>(), t, lines_go::to_caches);
    finish(first, last, tokens, square_features, square_tokens, go,
           [&](std::int64_t f, int t) { panel[place_in_panel<E>(f, t)] = rows[t * stride + f]; });
    for (std::int64_t f = first; tokens < panel_tokens && f < last; ++f)
      for (int t = tokens; t < panel_tokens; ++t) panel[place_in_panel<E>(f, t)] = E(0);
  }

  /// Features [first, last) of a panel into the rows.
  static void to_rows(E const* panel, E* rows, std::int64_t stride, std::int64_t first, std::int64_t last,
                      int tokens, lines_go go) noexcept {
    const std::int64_t square_features = last - (last - first) % line_features;
    const int square_tokens = stride % features_a_word == 0 ? tokens / side * side : 0;
    // More rows at once are written slower past the caches, so that a pass takes parts of lines out of all of
    // the panel. It has to be near by then: past the caches, the panel behind is asked for while this one
    // goes.
    auto next = reinterpret_cast<std::byte const*>(panel + last * panel_tokens);
    constexpr int square_bytes = line_features * side * int(sizeof(E));
    for (int t = 0; t < square_tokens; t += side)
      for (std::int64_t f = first; f < square_features; f += line_features) {
        if (go == lines_go::to_memory) prefetch(next, square_bytes);
        next += square_bytes;
        transpose<squares_a_line, 1>(words(panel + place_in_panel<E>(f, t)), panel_tokens,
                                     words(rows + t * stride + f), stride / features_a_word, go);
      }
    finish(first, last, tokens, square_features, square_tokens, go,
           [&](std::int64_t f, int t) { rows[t * stride + f] = panel[place_in_panel<E>(f, t)]; });
  }

 private:
  static word const* words(E const* at) { return reinterpret_cast<word const*>(at); }
  static word* words(E* at) { return reinterpret_cast<word*>(at); }
  static void prefetch(std::byte const* from, int bytes) {
    for (int byte = 0; byte < bytes; byte += 64) simd::prefetch<2>(from + byte);
  }

  /// Squares of registers, `Down` below each other and `Across` beside each other, by way of whole lines:
  /// rows whose distance is a power of two drive each other's lines out of the L1.
  template <int Down, int Across>
  static void transpose(word const* from, std::int64_t from_stride, word* to, std::int64_t to_stride,
                        lines_go go) noexcept {
    alignas(64) word lines[unsigned(Across * side)][unsigned(Down * side)];
    unroll<Down * Across>([&](auto square) TESSERA_INLINE_LAMBDA {
      constexpr int i = square / Across * side, j = square % Across * side;
      simd::transpose_square<word, Arch>(from + i * from_stride + j, from_stride, lines[j] + i, Down * side);
    });
    const bool stream = go == lines_go::to_memory && to_stride * std::int64_t(sizeof(word)) % 64 == 0 &&
                        reinterpret_cast<std::uintptr_t>(to) % 64 == 0;
    for (int i = 0; i < Across * side; ++i)
      unroll<Down>([&](auto j) TESSERA_INLINE_LAMBDA {
        const auto part = simd::load<Arch>(lines[i] + j * side);
        word* const at = to + i * to_stride + j * side;
        stream ? simd::stream<Arch>(at, part) : simd::store<Arch>(at, part);
      });
  }

  /// The features and tokens that no square covers, and the end of the streams.
  template <class Visit>
  static void finish(std::int64_t first, std::int64_t last, int tokens, std::int64_t square_features,
                     int square_tokens, lines_go go, Visit&& visit) {
    for (int t = 0; t < tokens; ++t)
      for (std::int64_t f = t < square_tokens ? square_features : first; f < last; ++f) visit(f, t);
    if (go == lines_go::to_memory) simd::streams_end();
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/tensor/token_rows.hpp
#ifndef TESSERA_SINGLE_TENSOR_TOKEN_ROWS
#define TESSERA_SINGLE_TENSOR_TOKEN_ROWS
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA {

/// An activation in the user's memory, a row of features for each token, as PyTorch and NumPy have it:
/// element (feature, token) stands at data[token * stride + feature]. An operand and a destination of
/// statements, which bring it into panels and back while they compute: `run(ctx, rows_out = w * rows_in +
/// b)`.
///   Element   const if the memory is only read
template <class Element> class token_rows {
  static_assert(
      element<std::remove_const_t<Element>>,
      "token_rows hold elements: float, double, bfloat16, float16 and, after #include "
      "<tessera/statements/quantised.hpp>, float8_e4m3, float8_e5m2 and int8 (not std::int8_t); `copy` "
      "converts others");

 public:
  using tensor_tag = void;
  using view_tag = void;
  using value_type = std::remove_const_t<Element>;
  static constexpr domain laid_over = domain::panels;

  /// Throws shape_error unless the sizes are possible and the rows do not overlap.
  token_rows(Element* data, std::int64_t tokens, std::int64_t features)
      : token_rows(data, tokens, features, features) {}
  TESSERA_COLD token_rows(Element* data, std::int64_t tokens, std::int64_t features, std::int64_t stride)
      : data_(data), tokens_(tokens), features_(features), stride_(stride) {
    if (!data && tokens > 0 && features > 0) throw shape_error("[token_rows] null is no memory of rows");
    if (tokens < 0 || features < 0 || stride < features)
      throw shape_error(
          message("[token_rows] ", tokens, " tokens of ", features, " features, ", stride,
                  " elements from one to the next: none may be negative, and rows may not overlap"));
  }
  token_rows(token_rows const&) = default;

  std::int64_t features() const { return features_; }
  std::int64_t tokens() const { return tokens_; }
  /// Elements from one token to the next.
  std::int64_t stride() const { return stride_; }
  std::size_t size_bytes() const {
    if (tokens_ == 0) return 0;
    return std::size_t((tokens_ - 1) * stride_ + features_) * sizeof(value_type);
  }
  Element* data() const { return data_; }
  std::conditional_t<std::is_const_v<Element>, value_type, Element&> operator()(std::int64_t feature,
                                                                                std::int64_t token) const {
    TESSERA_ASSERT(feature >= 0 && feature < features_ && token >= 0 && token < tokens_,
                   "indices are in range");
    return data_[token * stride_ + feature];
  }

  // An assignment describes a statement that writes to the memory, also that of other rows.
  auto operator=(token_rows const& value) const { return assign(*this, value); }
  template <class Value>
    requires(assigned<Value> || tensor<Value>)
  auto operator=(Value const& value) const {
    return assign(*this, value);
  }
  template <expression Expression> auto operator+=(Expression&& value) const {
    return accumulate(*this, static_cast<Expression&&>(value));
  }

 private:
  Element* data_;
  std::int64_t tokens_, features_, stride_;
};

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/eval/token_rows.hpp
#ifndef TESSERA_SINGLE_EVAL_TOKEN_ROWS
#define TESSERA_SINGLE_EVAL_TOKEN_ROWS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

// Rows of tokens in the user's memory as operands and destinations. An operand is brought into a panel by a
// step before the one that reads it. A destination is computed in memory of the worker, a part of a panel at
// a time that stays in the L2, and brought into the rows from there.

namespace tessera { inline namespace TESSERA_ISA { namespace eval {

/// Rows of tokens, of which a tile touches the rows of its panel.
template <class E> operand rows_by_panel(token_rows<E> const& rows) {
  operand o = all_of(rows);
  o.touches = footprint::own_rows;
  o.stride = std::size_t(panel_tokens * rows.stride()) * sizeof(E);
  return o;
}

/// The bytes of features [first, last) of the rows of a panel.
template <class E>
touched_bytes part_of_rows(operand const& rows, std::int64_t stride, tile const& t, std::int64_t first,
                           std::int64_t last, int tokens) {
  touched_bytes part = elements_of<E>(rows, t.index, first, last - first);
  part.count = tokens, part.stride = stride * std::int64_t(sizeof(E));
  return part;
}

/// A tensor is written past the caches if it is larger than a core's share of the last one.
template <class E> kernels::lines_go lines_of(operand const& to, std::int64_t features, std::int64_t tokens) {
  const bool large = features * tokens * std::int64_t(sizeof(E)) > (1 << 24);
  return large && to.owner != memory::worker ? kernels::lines_go::to_memory : kernels::lines_go::to_caches;
}

/// panel = rows
template <class E> struct from_rows_body {
  panels_to<E> to;
  operand rows;
  std::int64_t stride;
  kernels::lines_go go = lines_of<E>(to.at, to.features, to.tokens);

  panels_to<E> const& destination() const { return to; }
  range features_of(tile const&) const { return {0, int(to.features)}; }
  void compute_at(tile const& t, E* panel) const noexcept {
    kernels::row_transposition<simd::native, E>::to_panel(t.address<E const>(rows), stride, panel, 0,
                                                          to.features, tokens_of(t.index, to.tokens), go);
  }
  void describe(tile const& t, task_description& d) const {
    d.read(part_of_rows<E>(rows, stride, t, 0, to.features, tokens_of(t.index, to.tokens)));
  }
};

template <class E, class T>
  requires std::is_same_v<E, std::remove_const_t<T>>
TESSERA_COLD void lower_to(plan& p, panels_to<E> const& to, expr::by_value<token_rows<T>> const& leaf) {
  token_rows<T> const& rows = leaf.tensor();
  step_draft s("rows to panels", cut::panels);
  s.divides = division::never;
  s.tiles = to.panels();
  s.writes(to.at);
  const operand from = s.reads(rows_by_panel(rows));
  p.add(s, from_rows_body<E>{to, from, rows.stride()});
}

/// A panel_body, which computes panels a piece at a time, and brings each into the rows.
template <class E, class Body> struct rows_body {
  Body of;
  operand rows;
  std::int64_t stride, tokens;
  int pieces;

  tile piece_of(tile const& t, int piece) const {
    tile part = t;
    part.part = t.part * pieces + piece;
    part.parts = t.parts * pieces;
    return part;
  }
  void compute(tile const& t) const noexcept {
    E* const to = t.address<E>(rows);
    for (int i = 0; i < pieces; ++i) {
      const tile now = piece_of(t, i);
      const range f = of.features_of(now);
      if (f.size() <= 0) continue;
      // Where the panel would begin whose feature f.first stands in the piece's memory.
      E* const panel = t.address<E>(of.destination().at) - place_in_panel<E>(f.first, 0);
      of.compute_at(now, panel);
      kernels::row_transposition<simd::native, E>::to_rows(
          panel, to, stride, f.first, f.last, tokens_of(t.index, tokens), kernels::lines_go::to_caches);
    }
  }
  void describe(tile const& t, task_description& d) const {
    for (int i = 0; i < pieces; ++i) {
      const tile now = piece_of(t, i);
      const range f = of.features_of(now);
      task_description inner;
      of.describe(now, inner);
      for (touched_bytes const& bytes : inner.reads) read_once(d, bytes);
      d.multiplies += inner.multiplies;
      d.operations += inner.operations;
      d.products.insert(d.products.end(), inner.products.begin(), inner.products.end());
      d.write(part_of_rows<E>(rows, stride, t, f.first, f.last, tokens_of(t.index, tokens)));
    }
  }
};

/// The destination of a step over panels that brings its results into rows.
template <element E> struct rows_to {
  static constexpr std::int64_t piece_features = (1 << 18) / (panel_tokens * std::int64_t(sizeof(E)));

  operand at;
  std::int64_t features, tokens, stride;
  operand piece = {};  // in the worker's memory
  int pieces = 1;

  int panels() const { return int(ceil_div<std::int64_t>(tokens, panel_tokens)); }
  panels_to<E> computed_at() const { return {piece, features, tokens}; }
  void cut(plan& p, int most, function_ref<range(int, int)> features_of) {
    pieces = int(std::clamp<std::int64_t>(features / piece_features, 1, std::max(1, most)));
    int widest = 0;
    for (int i = 0; i < pieces; ++i) widest = std::max(widest, features_of(i, pieces).size());
    piece = p.worker_memory(std::size_t(round_up(widest, granule)) * panel_tokens * sizeof(E));
  }
  template <class Body> rows_body<E, Body> finished(Body const& body) const {
    return {body, at, stride, tokens, pieces};
  }
};

/// rows = panel
template <class E> struct to_rows_body {
  operand rows, from;
  std::int64_t features, tokens, stride;
  kernels::lines_go go = lines_of<E>(rows, features, tokens);

  void compute(tile const& t) const noexcept {
    kernels::row_transposition<simd::native, E>::to_rows(t.address<E const>(from), t.address<E>(rows), stride,
                                                         0, features, tokens_of(t.index, tokens), go);
  }
  void describe(tile const& t, task_description& d) const {
    const int live = tokens_of(t.index, tokens);
    d.read(part_of_panel<E>(from, t.index, 0, features, live));
    d.write(part_of_rows<E>(rows, stride, t, 0, features, live));
  }
};

template <class T, class Value> void lower(plan& p, expr::statement<token_rows<T>, Value, false> const& s) {
  token_rows<T> const& y = s.destination();
  if constexpr (expr::leaf<Value>)
    if constexpr (in_panels<typename Value::tensor_type> && Value::laid_over == domain::panels &&
                  std::is_same_v<T, typename Value::value_type>) {
      step_draft copy("panels to rows", cut::panels);
      copy.divides = division::never;
      copy.tiles = int(ceil_div<std::int64_t>(y.tokens(), panel_tokens));
      const operand to = copy.writes(rows_by_panel(y)), from = copy.reads(by_panel(s.value.tensor()));
      return p.add(copy, to_rows_body<T>{to, from, y.features(), y.tokens(), y.stride()});
    }
  const rows_to<T> to{rows_by_panel(y), y.features(), y.tokens(), y.stride()};
  if constexpr (has_product<Value> && sizeof(T) > 1)
    add_product_of<T>(p, to, s.value, first_product(s.value));
  else
    add_elementwise<T>(p, to, s.value);
}

}}}  // namespace tessera::TESSERA_ISA::eval
#endif

// ---- tessera/tensor/panel_slice.hpp
#ifndef TESSERA_SINGLE_TENSOR_PANEL_SLICE
#define TESSERA_SINGLE_TENSOR_PANEL_SLICE
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA {

/// A range of the features and of the panels of an activation, as an operand or a destination: the gates of a
/// recurrent layer, a time step of many. Refers to the activation, which must outlive it.
///   Element   const if the activation is
/// Tokens of the last panel beyond the slice's tokens are padding: statements on the slice write zeros there,
/// up to a multiple of 16 at least.
template <class Element> class panel_slice {
 public:
  using tensor_tag = void;
  using view_tag = void;
  using value_type = std::remove_const_t<Element>;
  using whole_type =
      std::conditional_t<std::is_const_v<Element>, panel_matrix<value_type> const, panel_matrix<value_type>>;
  static constexpr domain laid_over = domain::panels;

  /// All of an activation.
  explicit panel_slice(whole_type& whole)
      : whole_(&whole),
        built_features_(whole.features()),
        built_tokens_(whole.tokens()),
        features_(whole.features()),
        tokens_(whole.tokens()) {}
  panel_slice(panel_slice const&) = default;

  std::int64_t features() const { return features_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t padded_features() const { return round_up<std::int64_t>(features_, granule); }
  std::int64_t panels() const { return ceil_div<std::int64_t>(tokens_, panel_tokens); }
  /// Elements from one panel to the next.
  std::int64_t panel_stride() const { return whole_->panel_stride(); }
  /// From the first element to behind the last one, elements of other features between them included.
  std::size_t size_bytes() const {
    if (panels() == 0 || features_ == 0) return 0;
    const std::int64_t last = round_up<std::int64_t>(features_, element_traits<value_type>::features_a_lane);
    return std::size_t((panels() - 1) * panel_stride() + last * panel_tokens) * sizeof(value_type);
  }
  /// Whether the features behind the slice, until it has a multiple of 16, are zeros of its activation.
  bool has_padded_features() const {
    return features_ % granule == 0 ||
           (first_feature_ + features_ == built_features_ &&
            first_feature_ + padded_features() <= round_up<std::int64_t>(built_features_, granule));
  }
  /// Whether the tokens behind the slice, up to a multiple of 64, are zero.
  bool has_padded_tokens() const {
    return tokens_ % panel_tokens == 0 || first_panel_ * panel_tokens + tokens_ == built_tokens_;
  }

  /// Throws shape_error if the activation has another size than when the slice was made.
  Element* data() const {
    if (whole_->features() != built_features_ || whole_->tokens() != built_tokens_)
      throw shape_error(message("[slice] the activation was (", built_features_, ", ", built_tokens_,
                                ") when the slice was made and is (", whole_->features(), ", ",
                                whole_->tokens(), ") now: make the slice anew"));
    Element* const all = whole_->data();  // null if it has no elements
    return all ? all + first_panel_ * panel_stride() + place_in_panel<value_type>(first_feature_, 0) : all;
  }
  Element* panel(std::int64_t p) const { return data() + p * panel_stride(); }

  std::conditional_t<std::is_const_v<Element>, value_type, Element&> operator()(std::int64_t feature,
                                                                                std::int64_t token) const {
    TESSERA_ASSERT(feature >= 0 && feature < features_ && token >= 0 && token < tokens_,
                   "indices are in range");
    return (*whole_)(first_feature_ + feature, first_panel_ * panel_tokens + token);
  }

  /// The elements: feature by feature, the tokens of each in order. The slice must outlive the iterators.
  auto begin() const { return panel_iterator<panel_slice const>(*this, 0); }
  auto end() const { return panel_iterator<panel_slice const>(*this, tokens_ > 0 ? features_ : 0); }

  /// Features [first, last) of this slice.
  TESSERA_COLD panel_slice with_features(std::int64_t first, std::int64_t last) const {
    require_range("slice_features", "features", first, last, features_);
    constexpr std::int64_t lane = element_traits<value_type>::features_a_lane;
    if (first % lane != 0 || (last % lane != 0 && last != features_))
      throw shape_error(message("[slice_features] features ", first, " to ", last, " of ", features_, ": ",
                                lane, " features share a lane, so a slice begins at a multiple of ", lane,
                                " and ends at one, or at ", features_));
    panel_slice part = *this;
    part.first_feature_ += first;
    part.features_ = last - first;
    return part;
  }
  /// Tokens [first, last) of this slice.
  TESSERA_COLD panel_slice with_tokens(std::int64_t first, std::int64_t last) const {
    require_range("slice_tokens", "tokens", first, last, tokens_);
    if (first % panel_tokens != 0)
      throw shape_error(message("[slice_tokens] tokens ", first, " to ", last, " of ", tokens_,
                                ": a slice begins at a panel, a multiple of ", panel_tokens, ", such as ",
                                first / panel_tokens * panel_tokens));
    panel_slice part = *this;
    part.first_panel_ += first / panel_tokens;
    part.tokens_ = last - first;
    return part;
  }

  // An assignment describes a statement that writes to the activation, also that of another slice.
  auto operator=(panel_slice const& value) const { return assign(*this, value); }
  template <class Value>
    requires(assigned<Value> || tensor<Value>)
  auto operator=(Value const& value) const {
    return assign(*this, value);
  }
  template <expression Expression> auto operator+=(Expression&& value) const {
    return accumulate(*this, static_cast<Expression&&>(value));
  }

 private:
  static void require_range(const char* operation, const char* what, std::int64_t first, std::int64_t last,
                            std::int64_t all) {
    if (first < 0 || last < first || last > all)
      throw shape_error(message("[", operation, "] ", what, " ", first, " to ", last, " of ", all,
                                ": they must be in ascending order within 0 … ", all));
  }

  whole_type* whole_;
  std::int64_t built_features_, built_tokens_;
  std::int64_t first_feature_ = 0, features_;
  std::int64_t first_panel_ = 0, tokens_;
};

namespace detail {
template <class Element> panel_slice<Element> slice_of(panel_matrix<Element>& x) {
  return panel_slice<Element>(x);
}
template <class Element> panel_slice<Element const> slice_of(panel_matrix<Element> const& x) {
  return panel_slice<Element const>(x);
}
template <class Element> panel_slice<Element> slice_of(panel_slice<Element> const& x) { return x; }
template <class Panels>
concept can_be_sliced = !tensor_view<Panels> && requires(Panels& x) { slice_of(x); };
}  // namespace detail

/// Features [first, last) of an activation or of a slice. Throws shape_error unless they begin and end at a
/// lane: anywhere for float and double, at even numbers for bfloat16 and float16, at multiples of four for
/// 8-bit floats.
template <class Panels>
  requires detail::can_be_sliced<Panels>
auto slice_features(Panels&& x TESSERA_LIFETIMEBOUND, std::int64_t first, std::int64_t last) {
  static_assert(std::is_lvalue_reference_v<Panels>,
                "[slice_features] a slice refers to an activation, which must be a variable");
  return detail::slice_of(x).with_features(first, last);
}
template <class Element>
auto slice_features(panel_slice<Element> const& x, std::int64_t first, std::int64_t last) {
  return x.with_features(first, last);
}

/// Tokens [first, last) of an activation or of a slice. Throws shape_error unless they begin at a multiple of
/// 64.
template <class Panels>
  requires detail::can_be_sliced<Panels>
auto slice_tokens(Panels&& x TESSERA_LIFETIMEBOUND, std::int64_t first, std::int64_t last) {
  static_assert(std::is_lvalue_reference_v<Panels>,
                "[slice_tokens] a slice refers to an activation, which must be a variable");
  return detail::slice_of(x).with_tokens(first, last);
}
template <class Element>
auto slice_tokens(panel_slice<Element> const& x, std::int64_t first, std::int64_t last) {
  return x.with_tokens(first, last);
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/statements/concatenation.hpp
#ifndef TESSERA_SINGLE_STATEMENTS_CONCATENATION
#define TESSERA_SINGLE_STATEMENTS_CONCATENATION
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

// Features of several activations, one behind the other, as an operand and as a destination.

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

template <class E, std::size_t Parts, class Value> struct split_assignment;

template <class T> inline constexpr bool is_written_part = false;
template <class E>
inline constexpr bool is_written_part<expr::by_value<panel_slice<E>>> = !std::is_const_v<E>;

/// The element of a concatenation: that of its parts if they have one, else their accumulator.
template <class...> struct concatenated_element;
template <class First, class... Rest> struct concatenated_element<First, Rest...> {
  using type = std::conditional_t<(std::is_same_v<First, Rest> && ...), First,
                                  typename expr::common_value<First, Rest...>::type>;
};

template <class... Parts> struct concatenation {
  using node_tag = void;
  using value_type = typename concatenated_element<typename Parts::value_type...>::type;
  using stored_element = value_type;
  static constexpr domain laid_over = domain::panels;
  static constexpr bool is_destination = (is_written_part<Parts> && ...);
  std::tuple<Parts...> parts;

  explicit concatenation(Parts... all) : parts(std::move(all)...) {}
  concatenation(concatenation const&) = default;

  expr::extent size() const {
    return std::apply(
        [](auto const& first, auto const&... rest) {
          const expr::extent one = expr::extent_of(first);
          return expr::extent{(one.features + ... + expr::extent_of(rest).features), one.tokens};
        },
        parts);
  }

  // An assignment describes a statement that writes to the parts.
  auto operator=(concatenation const& value) const
    requires is_destination
  {
    return assigned_from(value);
  }
  template <class Value>
    requires(is_destination && (assigned<Value> || tensor<Value>))
  auto operator=(Value const& value) const {
    return assigned_from(expr::hold(value));
  }
  template <expr::operand Value>
    requires is_destination
  auto operator+=(Value&& value) const {
    return assigned_from(*this + std::forward<Value>(value));
  }

 private:
  template <class Value> auto assigned_from(Value const& value) const {
    static_assert((std::is_same_v<typename Parts::value_type, value_type> && ...),
                  "[concat_features(…) = …] the parts have different element types: bring them to one");
    expr::check_sizes(size(), expr::extent_of(value));
    return std::apply(
        [&](auto const&... part) {
          return split_assignment<value_type, sizeof...(Parts), Value>{{part.tensor()...}, value};
        },
        parts);
  }
};

/// Part of a panel: features from `first` on.
template <class E> operand features_from(operand panel, std::int64_t first, std::int64_t features) {
  panel.at += std::size_t(place_in_panel<E>(first, 0)) * sizeof(E);
  panel.bytes =
      std::size_t(round_up<std::int64_t>(features, element_traits<E>::features_a_lane) * panel_tokens) *
      sizeof(E);
  return panel;
}

/// Zeroes the features of a panel in the worker's memory that pad it to a multiple of 16.
template <class E> struct end_padding_body {
  operand to;
  std::int64_t features;

  void compute(tile const& t) const noexcept { clear_padding(to, features, t.address<E>(to), t); }
  void describe(tile const&, task_description&) const {}
};

/// Adds the step that copies features of a panel in the worker's memory to where they belong.
template <class E> TESSERA_COLD void add_copy(plan& p, panels_to<E> const& to, operand const& from) {
  step_draft s("elementwise", cut::panels);
  s.writes(to.at);
  const source<tree::panel<E>> tree(s.reads(from));
  s.tiles = to.panels();
  p.add(s, elementwise_body<E, source<tree::panel<E>>>{to, tree});
}

/// In the worker's memory every part is computed where it stands; its own padding is overwritten by the next
/// one. Memory of the run, which tasks share, gets a copy.
template <class E, class... Parts>
TESSERA_COLD void lower_to(plan& p, panels_to<E> const& to, concatenation<Parts...> const& node) {
  if (to.at.owner == memory::user) return add_elementwise<E>(p, to, node);
  if (to.at.owner == memory::run) {
    const panels_to<E> whole{p.worker_memory(panel_bytes<E>(to.features)), to.features, to.tokens};
    lower_to(p, whole, node);
    return add_copy(p, to, whole.at);
  }
  std::int64_t first = 0;
  const auto lower_part = [&](auto const& part) {
    const std::int64_t features = expr::extent_of(part).features;
    if (features > 0)
      lower_to(p, panels_to<E>{features_from<E>(to.at, first, features), features, to.tokens}, part);
    first += features;
  };
  std::apply([&](auto const&... part) { (lower_part(part), ...); }, node.parts);
  if (to.features % granule == 0 && to.features > 0) return;
  step_draft s("padding", cut::panels);
  s.tiles = to.panels();
  s.writes(to.at);
  p.add(s, end_padding_body<E>{to.at, to.features});
}

/// The parts of a destination, each a slice. The value is computed in the worker's memory before any part is
/// written, so that it may read them.
template <class E, std::size_t Parts, class Value> struct TESSERA_STATEMENT split_assignment {
  using statement_tag = void;
  std::array<panel_slice<E>, Parts> parts;
  Value value;

  void lower(plan& p) const {
    std::int64_t features = 0;
    for (panel_slice<E> const& part : parts) features += part.features();
    const std::int64_t tokens = parts[0].tokens();
    for (std::size_t i = 0; i < Parts; ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (shared_tiles(by_panel(parts[i]), by_panel(parts[j])) != relation::none)
          throw shape_error(message("[concat_features(…) = …] parts ", j, " and ", i, " share memory"));
    const panels_to<E> whole{p.worker_memory(panel_bytes<E>(features)), features, tokens};
    lower_to(p, whole, value);
    std::int64_t first = 0;
    for (panel_slice<E> const& part : parts) {
      if (part.features() == 0) continue;
      add_copy<E>(p, {by_panel(part), part.features(), tokens},
                  features_from<E>(whole.at, first, part.features()));
      first += part.features();
    }
  }
};

/// A part of a concatenation: a slice, which can be written, of a tensor that has a name.
template <class Part> auto concatenated(Part&& part) {
  if constexpr (detail::can_be_sliced<Part> && (std::is_lvalue_reference_v<Part> || tensor_view<Part>))
    return expr::by_value<decltype(detail::slice_of(part))>{detail::slice_of(part)};
  else
    return expr::hold(std::forward<Part>(part));
}

/// Throws shape_error unless all parts have the tokens of the first one, and each begins at a lane.
void require_parts(std::span<expr::extent const> parts, std::int64_t lane);

}  // namespace eval

/// Features of several activations, one behind the other: all features of the first, then all of the second,
/// and so on. An operand, `w * concat_features(x, h)`, and if all parts are tensors or slices, a destination,
/// `concat_features(a, b) = w * x`. A product of which parts are wanted as tensors can instead have slices of
/// one tensor, which are not copied. Throws shape_error unless all parts have the same tokens and begin at a
/// lane, which holds two features of bfloat16 and float16, four of 8-bit floats.
template <expr::activation... Parts>
  requires(sizeof...(Parts) > 0)
auto concat_features(Parts&&... parts) {
  using made = eval::concatenation<decltype(eval::concatenated(std::forward<Parts>(parts)))...>;
  static_assert(element<typename made::value_type>,
                "[concat_features] the parts have different element types: " TESSERA_ONE_ACCUMULATOR);
  if constexpr (element<typename made::value_type>) {
    const made all(eval::concatenated(std::forward<Parts>(parts))...);
    std::apply(
        [](auto const&... part) {
          const expr::extent sizes[] = {expr::extent_of(part)...};
          eval::require_parts(sizes, element_traits<typename made::value_type>::features_a_lane);
        },
        all.parts);
    return all;
  } else {
    return (expr::hold(std::forward<Parts>(parts)), ...);
  }
}

#ifdef TESSERA_BODY

namespace eval {

TESSERA_COLD TESSERA_BODY void require_parts(std::span<expr::extent const> parts, std::int64_t lane) {
  std::int64_t first = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].features < 0 || parts[i].tokens < 0)
      throw shape_error(
          message("[concat_features] part ", i,
                  " has no number of features and tokens of its own: store it in a panel_matrix first"));
    if (parts[i].tokens != parts[0].tokens)
      throw shape_error(message("[concat_features] part ", i, " has ", parts[i].tokens,
                                " tokens but part 0 has ", parts[0].tokens));
    if (first % lane != 0)
      throw shape_error(message("[concat_features] part ", i, " would begin at feature ", first, ": ", lane,
                                " features share a lane, so each part but the last must have a multiple of ",
                                lane, " features"));
    first += parts[i].features;
  }
}

}  // namespace eval

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/statements/run.hpp
#ifndef TESSERA_SINGLE_STATEMENTS_RUN
#define TESSERA_SINGLE_STATEMENTS_RUN
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA {

/// A statement that `run` takes: `y = …`, `y += …`, or one of another kind, such as attention.
template <class T>
concept runnable = requires { typename std::remove_cvref_t<T>::statement_tag; };

namespace eval {

/// activation = expression, or token_vector = expression: argument-dependent lookup of lower_to(plan,
/// destination, expression) finds the kind of step that computes the expression, in eval/ or in a user's
/// namespace.
template <class T, class Value> void lower(plan& p, expr::statement<panel_matrix<T>, Value, false> const& s) {
  panel_matrix<T>& y = s.destination();
  lower_to(p, panels_to<T>{by_panel(y), y.features(), y.tokens()}, s.value);
}
template <class T, class Value> void lower(plan& p, expr::statement<panel_slice<T>, Value, false> const& s) {
  panel_slice<T> const& y = s.destination();
  lower_to(p, panels_to<T>{by_panel(y), y.features(), y.tokens()}, s.value);
}
template <class T, class Value> void lower(plan& p, expr::statement<token_vector<T>, Value, false> const& s) {
  token_vector<T>& y = s.destination();
  lower_to(p, tokens_to<T>{by_panel(y), y.tokens()}, s.value);
}

/// Adds the steps of a statement to a plan. A statement that is no assignment has a member `lower`. Each kind
/// of assignment has an overload of `lower` in its file, which may be a user's.
template <class Statement> void lower_statement(plan& p, Statement const& s) {
  if constexpr (requires { s.lower(p); })
    s.lower(p);
  else if constexpr (requires { lower(p, s); })
    lower(p, s);
  else
    static_assert(sizeof(Statement) == 0,
                  "no kind of step computes this statement: one that is no assignment has a member `void "
                  "lower(tessera::eval::plan&) const`, an assignment an overload of lower(plan&, statement) "
                  "in the namespace of its tensors");
}

}  // namespace eval

/// A statement, or none. Owns the statement, so that a plan may refer to it.
template <class Statement> struct TESSERA_STATEMENT optional_statement {
  using statement_tag = void;
  std::optional<Statement> statement;
  void lower(eval::plan& p) const {
    if (statement) eval::lower_statement(p, *statement);
  }
};

/// Several statements as one, in order: for functions that add more than one statement to a run.
template <class... Statement> struct TESSERA_STATEMENT statement_list {
  using statement_tag = void;
  std::tuple<Statement...> all;
  void lower(eval::plan& p) const {
    std::apply([&](auto const&... each) { (eval::lower_statement(p, each), ...); }, all);
  }
};
template <runnable... Statement> statement_list<Statement...> statements(Statement... each) {
  return {{std::move(each)...}};
}

/// The statement that make() returns, if the condition holds; otherwise nothing is computed and `make` is not
/// called: `run(ctx, when(dx, [&] { return *dx = transposed(w) * dy; }))`
template <class Make>
  requires runnable<std::invoke_result_t<Make const&>>
optional_statement<std::invoke_result_t<Make const&>> when(bool condition, Make const& make) {
  if (!condition) return {std::nullopt};
  return {make()};
}

/// The statement that make() returns if the condition holds, else the statement that otherwise() returns.
template <class Make, class Otherwise>
auto when(bool condition, Make const& make, Otherwise const& otherwise) {
  return statements(when(condition, make), when(!condition, otherwise));
}

/// Runs the statements as if one after another. Statements over the same panels are carried together, panel
/// by panel. Throws shape_error before anything is computed. Repeating a run allocates nothing.
template <class... Statement> void run(context& ctx, Statement const&... statement) {
  static_assert((runnable<Statement> && ...),
                "run takes statements such as `y = w * x`: an assignment of one tensor to another is none "
                "(`y = converted(x)`"
                " is), nor is an expression without a destination");
  if constexpr ((runnable<Statement> && ...)) {
    eval::plan plan(ctx.runs_on());
    (eval::lower_statement(plan, statement), ...);
    plan.run(ctx);
  }
}

/// The message for a run without a context, or with one that nothing else can use.
template <class First, class... Statement>
  requires(!std::is_convertible_v<First, context&>)
void run(First&&, Statement const&...) {
  static_assert(
      std::is_void_v<First>,
      "the first argument of run is a context, a variable that all runs share: `context ctx(2); run(ctx, "
      "y = w * x);`");
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/tensor/matrix_view.hpp
#ifndef TESSERA_SINGLE_TENSOR_MATRIX_VIEW
#define TESSERA_SINGLE_TENSOR_MATRIX_VIEW
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA {

/// A matrix in the user's memory: element (i, j) stands at data[i * row_stride + j * col_stride]. This is how
/// buffers of NumPy, Eigen or PyTorch go in and out; strides are in elements and may be negative.
template <class T> struct matrix_view {
  T* data;
  std::int64_t rows, cols;
  std::int64_t row_stride, col_stride;

  T& operator()(std::int64_t i, std::int64_t j) const { return data[i * row_stride + j * col_stride]; }
  matrix_view<T const> as_const() const { return {data, rows, cols, row_stride, col_stride}; }
};

/// Row after row.
template <class T> matrix_view<T> row_major(T* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols, cols, 1};
}

/// A view with rows and columns exchanged: (tokens, features) memory seen as (features, tokens).
template <class T> matrix_view<T> transposed(matrix_view<T> view) {
  return {view.data, view.cols, view.rows, view.col_stride, view.row_stride};
}

namespace detail {
inline void require_shape(const char* what, std::int64_t rows, std::int64_t cols, const char* other,
                          std::int64_t other_rows, std::int64_t other_cols, const char* operation = "copy") {
  if (rows != other_rows || cols != other_cols)
    throw shape_error(message("[", operation, "] the ", what, " is ", rows, " x ", cols, " but the ", other,
                              " is ", other_rows, " x ", other_cols));
}

/// Calls visit(feature, token, element) for each element of panels [first_panel, last_panel) of an
/// activation, a granule of a panel after the other, and of that feature by feature or token by token.
template <class Panels, class Visit>
void for_each_element(Panels& x, std::int64_t first_panel, std::int64_t last_panel, Visit&& visit,
                      bool token_by_token = false) {
  using T = typename Panels::value_type;
  for (std::int64_t p = first_panel; p < last_panel; ++p) {
    const std::int64_t first = p * panel_tokens,
                       count = std::min<std::int64_t>(panel_tokens, x.tokens() - first);
    const auto at = [&](std::int64_t f, std::int64_t t) {
      visit(f, first + t, x.panel(p)[place_in_panel<T>(f, t)]);
    };
    for (std::int64_t begin = 0; begin < x.features(); begin += granule) {
      const std::int64_t end = std::min<std::int64_t>(begin + granule, x.features());
      if (token_by_token) {
        for (std::int64_t t = 0; t < count; ++t)
          for (std::int64_t f = begin; f < end; ++f) at(f, t);
      } else {
        for (std::int64_t f = begin; f < end; ++f)
          for (std::int64_t t = 0; t < count; ++t) at(f, t);
      }
    }
  }
}
template <class Panels, class Visit>
void for_each_element(Panels& x, Visit&& visit, bool token_by_token = false) {
  for_each_element(x, 0, x.panels(), visit, token_by_token);
}

template <class T, element Element>
void copy_panels(matrix_view<T> from, panel_matrix<Element>& to, std::int64_t first, std::int64_t last) {
  for_each_element(
      to, first, last, [&](auto f, auto t, Element& value) { value = static_cast<Element>(from(f, t)); },
      std::abs(from.row_stride) < std::abs(from.col_stride));
}
template <class T, element Element>
void copy_panels(panel_matrix<Element> const& from, matrix_view<T> to, std::int64_t first,
                 std::int64_t last) {
  // The order follows the smaller stride of the view.
  for_each_element(
      from, first, last, [&](auto f, auto t, Element value) { to(f, t) = static_cast<T>(value); },
      std::abs(to.row_stride) < std::abs(to.col_stride));
}
template <class T, element Element>
void require_copy(panel_matrix<Element> const& x, matrix_view<T> const& view) {
  require_shape("panel_matrix", x.features(), x.tokens(), "view", view.rows, view.cols);
}
}  // namespace detail

/// Fills `to` (features, tokens) from a view (features, tokens).
template <class T, element Element> void copy(matrix_view<T> from, panel_matrix<Element>& to) {
  detail::require_copy(to, from);
  detail::copy_panels(from, to, 0, to.panels());
}

template <class T, tensor Vector>
  requires(Vector::laid_over == domain::features || Vector::laid_over == domain::tokens)
void copy(matrix_view<T>, Vector&) = delete;  // make it of a span: feature_vector<float> b(numbers)

/// Writes `from` (features, tokens) to a view (features, tokens).
template <class T, element Element> void copy(panel_matrix<Element> const& from, matrix_view<T> to) {
  detail::require_copy(from, to);
  detail::copy_panels(from, to, 0, from.panels());
}

/// Converts the values to another element.
template <element From, element To> void copy(panel_matrix<From> const& from, panel_matrix<To>& to) {
  detail::require_shape("panel_matrix", to.features(), to.tokens(), "source", from.features(), from.tokens());
  detail::for_each_element(to, [&](auto f, auto t, To& value) { value = static_cast<To>(from(f, t)); });
}

/// Fills the stored blocks of `to` from a view of the whole matrix; elements of absent blocks are left out.
template <class T, element Element, class Block>
void copy(matrix_view<T> from, block_sparse_matrix<Element, Block>& to) {
  detail::require_shape("block_sparse_matrix", to.rows(), to.cols(), "view", from.rows, from.cols);
  to.generate([&](std::int64_t i, std::int64_t j) { return from(i, j); });
}

/// Writes `from` to a view of the whole matrix, zeros where nothing is stored.
template <class T, element Element, class Block>
void copy(block_sparse_matrix<Element, Block> const& from, matrix_view<T> to) {
  detail::require_shape("block_sparse_matrix", from.rows(), from.cols(), "view", to.rows, to.cols);
  for (std::int64_t i = 0; i < to.rows; ++i)
    for (std::int64_t j = 0; j < to.cols; ++j) to(i, j) = T{};
  from.pattern().for_each([&](int i, int j, std::int64_t slot) {
    const std::int64_t row = std::int64_t(i) * Block::rows, col = std::int64_t(j) * Block::cols;
    const std::int64_t height = std::min<std::int64_t>(Block::rows, from.rows() - row);
    const std::int64_t width = std::min<std::int64_t>(Block::cols, from.cols() - col);
    for (std::int64_t r = 0; r < height; ++r)
      for (std::int64_t c = 0; c < width; ++c)
        to(row + r, col + c) = static_cast<T>(from.data()[slot * Block::elements + r * Block::cols + c]);
  });
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/statements/copy.hpp
#ifndef TESSERA_SINGLE_STATEMENTS_COPY
#define TESSERA_SINGLE_STATEMENTS_COPY
#include <cstddef>
#include <cstdint>
#include <type_traits>

// Copies of activations from and to the user's memory by the threads of a context.

namespace tessera { inline namespace TESSERA_ISA {

namespace detail {
/// Whether a view is rows of tokens, of elements that a statement can convert.
template <class T> bool is_token_rows(matrix_view<T> const& view) {
  return view.row_stride == 1 && view.col_stride >= view.rows;
}
template <class Element, class T> constexpr bool may_be_token_rows() {
  if constexpr (element<std::remove_const_t<T>>)
    return std::is_same_v<accumulator_t<std::remove_const_t<T>>, accumulator_t<Element>>;
  else
    return false;
}
}  // namespace detail

/// As copy without a context, by its threads. Throws shape_error if the sizes differ.
template <class T, element Element> void copy(context& ctx, matrix_view<T> from, panel_matrix<Element>& to) {
  detail::require_copy(to, from);
  if constexpr (detail::may_be_token_rows<Element, T>())
    if (detail::is_token_rows(from))
      return run(ctx, to = token_rows<T const>(from.data, from.cols, from.rows, from.col_stride));
  ctx.run(int(to.panels()), [&](int p, std::byte*) { detail::copy_panels(from, to, p, p + 1); });
}
template <class T, element Element>
void copy(context& ctx, panel_matrix<Element> const& from, matrix_view<T> to) {
  detail::require_copy(from, to);
  if constexpr (detail::may_be_token_rows<Element, T>())
    if (detail::is_token_rows(to))
      return run(ctx, token_rows<T>(to.data, to.cols, to.rows, to.col_stride) = converted(from));
  ctx.run(int(from.panels()), [&](int p, std::byte*) { detail::copy_panels(from, to, p, p + 1); });
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/kernels/sequence_sums.hpp
#ifndef TESSERA_SINGLE_KERNELS_SEQUENCE_SUMS
#define TESSERA_SINGLE_KERNELS_SEQUENCE_SUMS
#include <algorithm>
#include <cstdint>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The sum of one feature over tokens [begin, end), which may cross panels.
///   x        the first panel of an activation
///   stride   elements from panel to panel
template <class Arch, class X>
accumulator_t<X> sum_of_tokens(X const* x, std::int64_t stride, std::int64_t feature, std::int64_t begin,
                               std::int64_t end) noexcept {
  using T = accumulator_t<X>;
  using batch = simd::batch<T, Arch>;
  constexpr int lanes = simd::lanes<T, Arch>;
  batch sum(T(0));
  for (std::int64_t p = begin / panel_tokens; p * panel_tokens < end; ++p) {
    const int first = int(std::max<std::int64_t>(begin - p * panel_tokens, 0));
    const int last = int(std::min<std::int64_t>(end - p * panel_tokens, panel_tokens));
    for (int token = first / lanes * lanes; token < last; token += lanes) {
      batch value = simd::load_feature<Arch>(x + p * stride, feature, token);
      if (last - token < lanes) value = simd::first_lanes<T, Arch>(value, last - token);
      if (token < first) value = simd::without_first_lanes<T, Arch>(value, first - token);
      sum = sum + value;
    }
  }
  return simd::sum_lanes<T, Arch>(sum);
}

/// One feature of some tokens of a panel: `value` at tokens [first, last).
template <class X> void fill_tokens(X* panel, std::int64_t feature, int first, int last, X value) noexcept {
  constexpr int step = element_traits<X>::features_a_lane;
  X* const to = panel + place_in_panel<X>(feature, 0);
  for (int t = first; t < last; ++t) to[t * step] = value;
}

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/tensor/sequences.hpp
#ifndef TESSERA_SINGLE_TENSOR_SEQUENCES
#define TESSERA_SINGLE_TENSOR_SEQUENCES
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace tessera { inline namespace TESSERA_ISA {

/// Where the sequences of a flat row of tokens begin and end, and how many of the first tokens of each may be
/// attended to: the rest are padding. A sequence may be empty, start anywhere in a panel, and cross panels.
/// It may go on with one whose first tokens are in a cache of keys: its tokens then have later positions.
class sequences {
 public:
  /// No sequences, no tokens.
  sequences() = default;

  /// Sequence i holds the tokens offsets[i] … offsets[i + 1] - 1, of which the first valid[i] are keys; all
  /// of them if `valid` is left out. Throws shape_error unless 0 = offsets[0] ≤ offsets[1] ≤ … and no
  /// sequence has more keys than tokens.
  explicit sequences(std::vector<std::int64_t> offsets, std::vector<std::int64_t> valid = {});

  static sequences from_lengths(std::span<std::int64_t const> lengths, std::vector<std::int64_t> valid = {});
  static sequences of_equal_length(std::int64_t count, std::int64_t length);

  std::int64_t count() const { return std::int64_t(offsets().size()) - 1; }
  std::int64_t tokens() const { return offsets().back(); }
  std::int64_t begin(std::int64_t sequence) const { return offsets_[std::size_t(sequence)]; }
  std::int64_t end(std::int64_t sequence) const { return offsets_[std::size_t(sequence) + 1]; }
  std::int64_t length(std::int64_t sequence) const { return end(sequence) - begin(sequence); }
  std::int64_t keys(std::int64_t sequence) const { return keys_[std::size_t(sequence)]; }
  /// The position of its first token.
  std::int64_t start(std::int64_t sequence) const {
    return starts_.empty() ? 0 : starts_[std::size_t(sequence)];
  }
  /// Gives the first token of each sequence a position. Allocates only to grow. Throws shape_error unless
  /// there is one for each, none negative.
  void start_at(std::span<std::int64_t const> positions);
  std::span<std::int64_t const> offsets() const { return from_zero(offsets_); }

  /// The sequence that holds a token, in log(count) steps.
  std::int64_t sequence_of(std::int64_t token) const {
    TESSERA_ASSERT(token >= 0 && token < tokens(), "indices are in range");
    return std::upper_bound(offsets_.begin(), offsets_.end(), token) - offsets_.begin() - 1;
  }
  /// How many tokens of its sequence stand before a token, here or in a cache.
  std::int64_t position_of(std::int64_t token) const {
    const std::int64_t sequence = sequence_of(token);
    return start(sequence) + token - begin(sequence);
  }

  /// Groups of panels that no sequence leaves: group i holds the panels panel_groups()[i] … [i + 1] - 1.
  std::span<std::int64_t const> panel_groups() const { return from_zero(groups_); }

 private:
  static std::span<std::int64_t const> from_zero(std::vector<std::int64_t> const& bounds) {
    static constexpr std::int64_t zero = 0;
    if (bounds.empty()) return {&zero, 1};
    return bounds;
  }

  // The bounds begin with 0; none at all, as a move leaves them, mean that 0 alone.
  std::vector<std::int64_t> offsets_, keys_, groups_;
  std::vector<std::int64_t> starts_;  // none: all 0
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY sequences::sequences(std::vector<std::int64_t> offsets,
                                               std::vector<std::int64_t> valid)
    : offsets_(std::move(offsets)), keys_(std::move(valid)) {
  if (offsets_.empty() || offsets_[0] != 0) throw shape_error("[sequences] the first offset must be 0");
  for (std::int64_t i = 0; i < count(); ++i)
    if (end(i) < begin(i))
      throw shape_error(message("[sequences] offset ", i + 1, " is ", end(i), " but the one before it ",
                                begin(i), ": offsets may not decrease"));
  if (keys_.empty())
    for (std::int64_t i = 0; i < count(); ++i) keys_.push_back(length(i));
  if (std::int64_t(keys_.size()) != count())
    throw shape_error(message("[sequences] ", keys_.size(), " numbers of keys for ", count(),
                              " sequences: give one for each, or none"));
  for (std::int64_t i = 0; i < count(); ++i)
    if (keys(i) < 0 || keys(i) > length(i))
      throw shape_error(message("[sequences] sequence ", i, " has ", length(i), " tokens but ", keys(i),
                                " keys: give 0 to ", length(i)));
  groups_.push_back(0);
  for (const std::int64_t offset : offsets_)
    if (offset % panel_tokens == 0 && offset < tokens() && offset / panel_tokens != groups_.back())
      groups_.push_back(offset / panel_tokens);
  if (tokens() > 0) groups_.push_back(ceil_div<std::int64_t>(tokens(), panel_tokens));
}

TESSERA_BODY void sequences::start_at(std::span<std::int64_t const> positions) {
  if (std::int64_t(positions.size()) != count())
    throw shape_error(message("[sequences] ", positions.size(), " first positions for ", count(),
                              " sequences: give one for each"));
  for (const std::int64_t position : positions)
    if (position < 0) throw shape_error(message("[sequences] a first position is ", position));
  starts_.assign(positions.begin(), positions.end());
}

TESSERA_COLD TESSERA_BODY sequences sequences::from_lengths(std::span<std::int64_t const> lengths,
                                                            std::vector<std::int64_t> valid) {
  std::vector<std::int64_t> offsets{0};
  for (const std::int64_t length : lengths) {
    if (length < 0)
      throw shape_error(message("[sequences] length ", offsets.size() - 1, " is ", length,
                                ": a sequence cannot have fewer tokens than none"));
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    if (length > most - offsets.back())
      throw shape_error(message("[sequences] length ", offsets.size() - 1, " is ", length, ", after ",
                                offsets.back(), " tokens: there can be at most ", most, " in all"));
    offsets.push_back(offsets.back() + length);
  }
  return sequences(std::move(offsets), std::move(valid));
}

TESSERA_BODY sequences sequences::of_equal_length(std::int64_t count, std::int64_t length) {
  if (count < 0)
    throw shape_error(message("[sequences] ", count, " sequences: there cannot be fewer than none"));
  return from_lengths(std::vector<std::int64_t>(std::size_t(count), length));
}

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/statements/sequence_sums.hpp
#ifndef TESSERA_SINGLE_STATEMENTS_SEQUENCE_SUMS
#define TESSERA_SINGLE_STATEMENTS_SEQUENCE_SUMS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

// Sums and means over the tokens of each sequence of a batch, whose result has a token for each sequence, and
// the reverse: the tokens of a sequence all alike.

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

enum class token_average : std::uint8_t { sum, mean };

/// The sum or mean over the tokens of each sequence: an expression of as many tokens as there are sequences.
template <class X> struct sequence_sum {
  using node_tag = void;
  using value_type = typename X::value_type;
  static constexpr domain laid_over = domain::panels;
  X x;
  sequences const* batch;
  token_average kind;
  expr::extent size() const { return {x.tensor().features(), batch->count()}; }
};

/// The token of its sequence, at each token of a batch, and zero at padding.
template <class X> struct repeated_tokens {
  using node_tag = void;
  using value_type = typename X::value_type;
  static constexpr domain laid_over = domain::panels;
  X x;
  sequences const* batch;
  expr::extent size() const { return {x.tensor().features(), batch->tokens()}; }
};

/// What both directions know: tiles are panels of the result, or granules of its features.
template <class Y, class X> struct sequence_tiles {
  panels_to<Y> to;
  operand from;
  std::int64_t stride;  // of x: elements from panel to panel
  sequences const* batch;

  panels_to<Y> const& destination() const { return to; }
  range features_of(tile const& t) const { return granules_of(to.features, t.part, t.parts); }
  int live(tile const& t) const { return tokens_of(t.index, to.tokens); }
  /// Features of tokens [begin, end) of x.
  void describe_tokens(task_description& d, range f, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t p = begin / panel_tokens; p * panel_tokens < end; ++p) {
      const std::int64_t first = std::max<std::int64_t>(begin - p * panel_tokens, 0),
                         last = std::min<std::int64_t>(end - p * panel_tokens, panel_tokens);
      constexpr int lane = element_traits<X>::features_a_lane;
      d.read({from.owner,
              from.at + std::uintptr_t(p * stride + place_in_panel<X>(f.first, first)) * sizeof(X),
              (last - first) * lane * std::int64_t(sizeof(X)), ceil_div<std::int64_t>(f.size(), lane),
              lane * panel_tokens * std::int64_t(sizeof(X))});
    }
  }
};

template <class Y, class X> struct sequence_sum_body : sequence_tiles<Y, X> {
  token_average kind;

  void compute_at(tile const& t, Y* y) const noexcept {
    using T = accumulator_t<X>;
    const range f = this->features_of(t);
    X const* const x = t.address<X const>(this->from, 0);
    const int live = this->live(t);
    for (int token = 0; token < live; ++token) {
      const std::int64_t sequence = t.index * panel_tokens + token, begin = this->batch->begin(sequence),
                         keys = this->batch->keys(sequence);
      const T share = kind == token_average::mean && keys > 0 ? T(1) / T(keys) : T(1);
      for (int feature = f.first; feature < f.last; ++feature)
        y[place_in_panel<Y>(feature, token)] =
            Y(share * kernels::sum_of_tokens<simd::native>(x, this->stride, feature, begin, begin + keys));
    }
  }
  void describe(tile const& t, task_description& d) const {
    for (int token = 0; token < this->live(t); ++token) {
      const std::int64_t sequence = t.index * panel_tokens + token, begin = this->batch->begin(sequence);
      this->describe_tokens(d, this->features_of(t), begin, begin + this->batch->keys(sequence));
    }
  }
};

template <class Y, class X> struct repeated_tokens_body : sequence_tiles<Y, X> {
  /// Calls visit(sequence, first, last, keys) for the sequences of a panel, with the tokens of the panel.
  template <class Visit> void for_each_sequence(tile const& t, Visit const& visit) const {
    const std::int64_t first = t.index * panel_tokens, last = first + this->live(t);
    for (std::int64_t token = first; token < last;) {
      const std::int64_t sequence = this->batch->sequence_of(token),
                         end = std::min(last, this->batch->end(sequence)),
                         keys = this->batch->begin(sequence) + this->batch->keys(sequence);
      visit(sequence, int(token - first), int(end - first), int(std::clamp(keys, token, end) - first));
      token = end;
    }
  }
  void compute_at(tile const& t, Y* y) const noexcept {
    const range f = this->features_of(t);
    X const* const x = t.address<X const>(this->from, 0);
    for_each_sequence(t, [&](std::int64_t sequence, int first, int last, int keys) {
      X const* const of = x + sequence / panel_tokens * this->stride;
      for (int feature = f.first; feature < f.last; ++feature) {
        using T = accumulator_t<X>;
        const auto value = Y(T(of[place_in_panel<X>(feature, sequence % panel_tokens)]));
        kernels::fill_tokens(y, feature, first, keys, value);
        kernels::fill_tokens(y, feature, keys, last, Y(0));
      }
    });
  }
  void describe(tile const& t, task_description& d) const {
    for_each_sequence(t, [&](std::int64_t sequence, int, int, int) {
      this->describe_tokens(d, this->features_of(t), sequence, sequence + 1);
    });
  }
};

/// Adds the step of either direction; make(tiles) is its body.
template <class E, class X, class Make>
TESSERA_COLD void add_sequence_step(plan& p, panels_to<E> const& to, X const& x, sequences const& batch,
                                    Make const& make) {
  using element = typename X::value_type;
  static_assert(std::is_same_v<accumulator_t<E>, accumulator_t<element>>,
                "the operand and the destination have different element types: " TESSERA_ONE_ACCUMULATOR);
  step_draft s("sequences", cut::panels);
  s.tiles = to.panels();
  s.most_parts = int(ceil_div<std::int64_t>(to.features, granule));
  const operand written = s.writes(to.at), read = s.reads(all_of(x.tensor()));
  if (shared_tiles(written, read) != relation::none)
    throw shape_error("[sum_tokens] the destination is also the operand: tokens cannot move in place");
  p.add(s, make(sequence_tiles<E, element>{to, read, x.tensor().panel_stride(), &batch}));
}
template <class E, class X> void lower_to(plan& p, panels_to<E> const& to, sequence_sum<X> const& node) {
  add_sequence_step(p, to, node.x, *node.batch, [&](auto const& tiles) {
    return sequence_sum_body<E, typename X::value_type>{tiles, node.kind};
  });
}
template <class E, class X> void lower_to(plan& p, panels_to<E> const& to, repeated_tokens<X> const& node) {
  add_sequence_step(p, to, node.x, *node.batch, [&](auto const& tiles) {
    return repeated_tokens_body<E, typename X::value_type>{tiles};
  });
}

/// The node Node{x, batch, more…} of a stored activation of `tokens` tokens.
template <template <class> class Node, class X, class... More>
auto over_sequences(char const* operation, X&& x, sequences const& batch, std::int64_t tokens, More... more) {
  constexpr bool stored = tensor<X> && in_panels<std::remove_cvref_t<X>>;
  static_assert(stored,
                "[sum_tokens(x, batch)] the tokens of a sequence are read from several panels: store x in a "
                "panel_matrix first");
  if constexpr (stored) {
    if (x.tokens() != tokens)
      throw shape_error(
          message("[", operation, "] the activation has ", x.tokens(), " tokens but the batch ", tokens));
    return Node<expr::held<X>>{expr::hold(std::forward<X>(x)), &batch, more...};
  } else {
    return expr::hold(std::forward<X>(x));
  }
}

}  // namespace eval

/// The sum over the tokens of each sequence of a batch (features, sequences); padding takes no part.
///   x       a tensor (features, tokens of the batch)
///   batch   must outlive the statement
/// Throws shape_error if x has other tokens than the batch.
template <expr::activation X> auto sum_tokens(X&& x, sequences const& batch) {
  return eval::over_sequences<eval::sequence_sum>("sum_tokens", std::forward<X>(x), batch, batch.tokens(),
                                                  eval::token_average::sum);
}
/// The mean over the tokens of each sequence; zero for a sequence without any.
template <expr::activation X> auto mean_tokens(X&& x, sequences const& batch) {
  return eval::over_sequences<eval::sequence_sum>("mean_tokens", std::forward<X>(x), batch, batch.tokens(),
                                                  eval::token_average::mean);
}

/// At each token of a batch the token of its sequence, and zero at padding: the gradient of sum_tokens, and
/// of mean_tokens if each token of y is divided by the tokens of its sequence.
///   y   a tensor (features, sequences)
/// Throws shape_error if y has another number of tokens than the batch has sequences.
template <expr::activation Y> auto repeat_tokens(Y&& y, sequences const& batch) {
  return eval::over_sequences<eval::repeated_tokens>("repeat_tokens", std::forward<Y>(y), batch,
                                                     batch.count());
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/tensor/pattern_sources.hpp
#ifndef TESSERA_SINGLE_TENSOR_PATTERN_SOURCES
#define TESSERA_SINGLE_TENSOR_PATTERN_SOURCES
#include <algorithm>
#include <cmath>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera { inline namespace TESSERA_ISA {

/// Contiguous numbers: a vector, an array, a span.
template <class T>
concept number_array = requires(T const& array) { std::span(array); };

/// Contiguous integers of any width: SciPy's 32-bit indices and PyTorch's 64-bit ones alike.
template <class T>
concept index_array = number_array<T> && requires(T const& array) {
  requires std::integral<typename decltype(std::span(array))::value_type>;
};

/// The units of a BSR index.
///   blocks      row starts count blocks, columns are block columns (SciPy, PyTorch)
///   elements    row starts count elements, so they are multiples of a block's area; a column is that of
///               the block's first element, so they are multiples of its width (popsparse)
enum class index_unit { blocks, elements };

/// Blocks or elements that an index lists several times: an error, or, as for SciPy and Eigen, stored once,
/// with the sum of their values.
enum class duplicates { refused, summed };

namespace detail {

/// A read-only view whose length is not part of its type.
template <number_array Array> auto view(Array const& array) {
  return std::span<const typename decltype(std::span(array))::value_type>(array);
}

}  // namespace detail

/// The blocks that hold at least one non-zero (or NaN) of a dense matrix or mask.
///   mask (rows, cols)    row-major; with blocks of 1 x 1, the default, it says directly which blocks to
///                        store
/// Blocks on the lower and right edge may stick out of the matrix.
template <number_array Mask>
pattern pattern_from_mask(int rows, int cols, Mask const& mask, block_size block = {}) {
  const char* const operation = "pattern_from_mask";
  detail::check_grid(operation, rows, cols);
  detail::check_block(operation, block);
  const auto values = detail::view(mask);
  if (static_cast<std::int64_t>(values.size()) != std::int64_t{rows} * cols)
    throw shape_error(message("[", operation, "] the mask has ", values.size(), " numbers but ", rows, " x ",
                              cols, " are ", std::int64_t{rows} * cols));

  const auto holds_any = [&](std::int64_t block_row, std::int64_t block_col) {
    const std::int64_t i = block_row * block.rows, j = block_col * block.cols;
    const std::int64_t height = std::min<std::int64_t>(block.rows, rows - i);
    const std::int64_t width = std::min<std::int64_t>(block.cols, cols - j);
    for (std::int64_t r = i; r < i + height; ++r) {
      const auto* const first = values.data() + r * cols + j;
      if (std::any_of(first, first + width, [](auto x) { return x != decltype(x)(0); })) return true;
    }
    return false;
  };
  const int block_cols = detail::blocks_over(cols, block.cols);
  return detail::pattern_by_rows(operation, detail::blocks_over(rows, block.rows), block_cols,
                                 [&](int i, auto& columns) {
                                   for (int j = 0; j < block_cols; ++j)
                                     if (holds_any(i, j)) columns.push_back(j);
                                 });
}

/// The pattern of a mask whose bits are packed.
pattern pattern_from_mask(int rows, int cols, std::vector<bool> const& mask, block_size block = {});

namespace detail {

/// The line of each entry of a compressed index that has been checked.
template <class Start> std::vector<std::int32_t> lines_of_entries(std::span<Start> start, std::int64_t unit) {
  std::vector<std::int32_t> lines;
  for (std::size_t l = 0; l + 1 < start.size(); ++l)
    lines.resize(static_cast<std::size_t>(static_cast<std::int64_t>(start[l + 1]) / unit),
                 static_cast<std::int32_t>(l));
  return lines;
}

/// Numbers of any integer type, which are multiples of `unit`, in units.
template <class Number> std::vector<std::int32_t> in_units(std::span<Number> numbers, std::int64_t unit) {
  std::vector<std::int32_t> result;
  result.reserve(numbers.size());
  for (const auto n : numbers)
    result.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(n) / unit));
  return result;
}

/// The pattern of blocks (is[p], js[p]), in any order.
template <class Row, class Col>
pattern pattern_of_entries(const char* operation, int block_rows, int block_cols, std::span<Row> is,
                           std::span<Col> js, duplicates repeated) {
  check_grid(operation, block_rows, block_cols);
  check_stored(operation, static_cast<std::int64_t>(is.size()));
  if (is.size() != js.size())
    throw shape_error(message("[", operation, "] ", is.size(), " row numbers but ", js.size(),
                              " column numbers: they must be equal"));

  struct entry {
    std::int32_t i, j;
    std::size_t position;
    auto operator<=>(entry const&) const = default;
  };
  std::vector<entry> entries;
  entries.reserve(is.size());
  for (std::size_t p = 0; p < is.size(); ++p) {
    const auto i = static_cast<std::int64_t>(is[p]), j = static_cast<std::int64_t>(js[p]);
    if (i < 0 || i >= block_rows || j < 0 || j >= block_cols)
      throw shape_error(message("[", operation, "] block (", i, ", ", j, ") at position ", p,
                                " is outside the grid of ", block_rows, " x ", block_cols, " blocks"));
    entries.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(j), p});
  }
  std::sort(entries.begin(), entries.end());

  std::vector<std::int32_t> row_start{0}, sorted_cols;
  row_start.reserve(static_cast<std::size_t>(block_rows) + 1);
  sorted_cols.reserve(entries.size());
  std::size_t e = 0;
  for (int i = 0; i < block_rows; ++i) {
    for (; e < entries.size() && entries[e].i == i; ++e) {
      if (e > 0 && entries[e - 1].i == i && entries[e - 1].j == entries[e].j) {
        if (repeated == duplicates::summed) continue;
        throw shape_error(message("[", operation, "] block (", i, ", ", entries[e].j, ") at position ",
                                  entries[e].position, " repeats the one at position ",
                                  entries[e - 1].position,
                                  ": list each block once, or ask for duplicates::summed"));
      }
      sorted_cols.push_back(entries[e].j);
    }
    row_start.push_back(static_cast<std::int32_t>(sorted_cols.size()));
  }
  return pattern::from_rows(block_rows, block_cols, std::move(row_start), std::move(sorted_cols));
}

/// Checks a compressed index of any integer type and makes the pattern whose rows are its lines.
template <class Start, class Index>
pattern pattern_from_compressed(const char* operation, const char* line, const char* entry, int lines,
                                int entries, std::span<Start> start, std::span<Index> index,
                                index_order order, duplicates repeated, std::int64_t start_unit = 1,
                                std::int64_t index_unit = 1) {
  if (repeated == duplicates::summed) order = index_order::any;
  check_compressed(operation, line, entry, lines, entries, start, index, start_unit, index_unit, order);
  std::vector<std::int32_t> columns = in_units(index, index_unit);
  if (order == index_order::any) {
    const std::vector<std::int32_t> all = lines_of_entries(start, start_unit);
    return pattern_of_entries(operation, lines, entries, std::span(all), std::span(columns), repeated);
  }
  return pattern::from_right_rows(lines, entries, in_units(start, start_unit), std::move(columns));
}

}  // namespace detail

/// Blocks (rows[p], cols[p]), in any order (COO). Throws shape_error, with the position p, for a block that
/// is outside the grid or, unless it may be, repeated.
template <index_array Rows, index_array Cols>
pattern pattern_from_coo(int block_rows, int block_cols, Rows const& rows, Cols const& cols,
                         duplicates repeated = duplicates::refused) {
  return detail::pattern_of_entries("pattern_from_coo", block_rows, block_cols, detail::view(rows),
                                    detail::view(cols), repeated);
}

/// Columns of each row (CSR).
///   row_start (block_rows + 1), cols (row_start.back())
///   Throws shape_error, as the other compressed formats, with the position of the first number that is
///   duplicate, unsorted, out of range or not monotone. Where duplicates may be, any order may be.
template <index_array Starts, index_array Cols>
pattern pattern_from_csr(int block_rows, int block_cols, Starts const& row_start, Cols const& cols,
                         index_order order = index_order::ascending,
                         duplicates repeated = duplicates::refused) {
  return detail::pattern_from_compressed("pattern_from_csr", "row", "column", block_rows, block_cols,
                                         detail::view(row_start), detail::view(cols), order, repeated);
}

/// Rows of each column (CSC).
///   col_start (block_cols + 1), rows (col_start.back())
template <index_array Starts, index_array Rows>
pattern pattern_from_csc(int block_rows, int block_cols, Starts const& col_start, Rows const& rows,
                         index_order order = index_order::ascending,
                         duplicates repeated = duplicates::refused) {
  return transposed(detail::pattern_from_compressed("pattern_from_csc", "column", "row", block_cols,
                                                    block_rows, detail::view(col_start), detail::view(rows),
                                                    order, repeated));
}

/// Columns of each row of blocks (BSR), of a matrix of (rows, cols) elements.
///   row_start (block rows + 1), block_columns (stored blocks)
template <index_array Starts, index_array Cols>
pattern pattern_from_bsr(int rows, int cols, block_size block, Starts const& row_start,
                         Cols const& block_columns, index_unit unit = index_unit::blocks,
                         index_order order = index_order::ascending,
                         duplicates repeated = duplicates::refused) {
  const char* const operation = "pattern_from_bsr";
  detail::check_grid(operation, rows, cols);
  detail::check_block(operation, block);
  const bool in_elements = unit == index_unit::elements;
  return detail::pattern_from_compressed(
      operation, "row", "column", detail::blocks_over(rows, block.rows),
      detail::blocks_over(cols, block.cols), detail::view(row_start), detail::view(block_columns), order,
      repeated, in_elements ? std::int64_t{block.rows} * block.cols : 1, in_elements ? block.cols : 1);
}

/// Exactly round(density · blocks) blocks, but at least one if the grid has any; all choices are
/// equally likely. Density in (0, 1], else option_error.
///   Selection sampling (Knuth, The Art of Computer Programming 2, 3.4.2, algorithm S): one random number per
///   block of the grid, and no memory beyond the result.
pattern random_pattern(int block_rows, int block_cols, double density, random_stream const& random);
/// A random pattern from a seed, as the first pattern of a matrix.
pattern random_pattern(int block_rows, int block_cols, double density, std::uint64_t seed);

/// Blocks (i, j) with i - lower ≤ j ≤ i + upper. A negative number moves that edge across the diagonal; (n,
/// n, n, 0) is the lower triangle.
pattern band_pattern(int block_rows, int block_cols, int lower, int upper);

/// Full squares or rectangles of equal size along the diagonal: `groups` layers side by side. Throws
/// shape_error unless `groups` ≥ 1 divides both sides of the grid.
pattern block_diagonal_pattern(int block_rows, int block_cols, int groups);

#ifdef TESSERA_BODY

TESSERA_BODY pattern pattern_from_mask(int rows, int cols, std::vector<bool> const& mask, block_size block) {
  return pattern_from_mask(rows, cols, std::vector<char>(mask.begin(), mask.end()), block);
}

TESSERA_COLD TESSERA_BODY pattern random_pattern(int block_rows, int block_cols, double density,
                                                 random_stream const& random) {
  const char* const operation = "random_pattern";
  detail::check_grid(operation, block_rows, block_cols);
  if (!(density > 0.0 && density <= 1.0))
    throw option_error(message("[", operation, "] density ", density, " is outside (0, 1]"));
  const std::int64_t blocks = std::int64_t{block_rows} * block_cols;
  const std::int64_t count = std::max<std::int64_t>(1, std::llround(density * static_cast<double>(blocks)));
  if (count >= blocks) return pattern::dense(block_rows, block_cols);
  detail::check_stored(operation, count);

  std::vector<std::int32_t> row_start(static_cast<std::size_t>(block_rows) + 1);
  std::vector<std::int32_t> cols(static_cast<std::size_t>(count));
  std::int32_t* next = cols.data();
  auto left = static_cast<std::uint64_t>(blocks), wanted = static_cast<std::uint64_t>(count);
  for (int i = 0; i < block_rows; ++i) {
    for (int j = 0; j < block_cols; ++j, --left)
      if (random.below(left, left) < wanted) {  // `left` also counts the draws
        *next++ = j;
        --wanted;
      }
    row_start.data()[i + 1] = static_cast<std::int32_t>(next - cols.data());
  }
  return pattern::from_right_rows(block_rows, block_cols, std::move(row_start), std::move(cols));
}

TESSERA_BODY pattern random_pattern(int block_rows, int block_cols, double density, std::uint64_t seed) {
  return random_pattern(block_rows, block_cols, density,
                        random_stream(seed, random_purpose::initial_pattern));
}

TESSERA_BODY pattern band_pattern(int block_rows, int block_cols, int lower, int upper) {
  return detail::pattern_by_rows("band_pattern", block_rows, block_cols, [&](std::int64_t i, auto& columns) {
    const std::int64_t last = std::min<std::int64_t>(i + upper, block_cols - 1);
    for (std::int64_t j = std::max<std::int64_t>(i - lower, 0); j <= last; ++j)
      columns.push_back(static_cast<std::int32_t>(j));
  });
}

TESSERA_BODY pattern block_diagonal_pattern(int block_rows, int block_cols, int groups) {
  const char* const operation = "block_diagonal_pattern";
  detail::check_grid(operation, block_rows, block_cols);
  if (groups < 1 || block_rows % groups != 0 || block_cols % groups != 0)
    throw shape_error(message("[", operation, "] ", groups, " groups in a grid of ", block_rows, " x ",
                              block_cols,
                              " blocks: the number of groups must be at least 1 and divide both"));
  const int height = block_rows / groups, width = block_cols / groups;
  return detail::pattern_by_rows(operation, block_rows, block_cols, [&](int i, auto& columns) {
    const int first = i / height * width;
    for (int j = first; j < first + width; ++j) columns.push_back(j);
  });
}

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/tensor/matrix_sources.hpp
#ifndef TESSERA_SINGLE_TENSOR_MATRIX_SOURCES
#define TESSERA_SINGLE_TENSOR_MATRIX_SOURCES
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// Matrices from the arrays of SciPy and PyTorch: indices of any integer type, values of any number type. Each
// function throws shape_error, with the position, for an index that is out of range, repeated, or, unless its
// order is index_order::any, unsorted. With duplicates::summed, which takes any order, values of one place
// are added, in double, in their order.

namespace tessera { inline namespace TESSERA_ISA {

namespace detail {

void check_values(const char* operation, std::size_t values, std::size_t indices, std::int64_t elements);

/// Adds numbers at places of a matrix whose values are zero, and rounds the sums once.
template <element Element, class Block> class summed_values {
 public:
  explicit summed_values(block_sparse_matrix<Element, Block>& w) : w_(w), sums_(std::size_t(w.size())) {}
  void add(std::int64_t at, auto const& value) { sums_[std::size_t(at)] += double(value); }
  void store() {
    for (std::size_t i = 0; i < sums_.size(); ++i) w_.data()[i] = Element(sums_[i]);
  }

 private:
  block_sparse_matrix<Element, Block>& w_;
  std::vector<double> sums_;
};

/// A matrix whose element (rows[p], cols[p]) is values[p]. It stores the blocks that hold such an element.
template <element Element, class Block, class Value>
block_sparse_matrix<Element, Block> matrix_from_elements(int rows, int cols, pattern const& elements,
                                                         auto const& row_of, auto const& col_of,
                                                         std::span<Value> values) {
  block_sparse_matrix<Element, Block> w(rows, cols,
                                        reblocked(elements, rows, cols, {1, 1}, {Block::rows, Block::cols}));
  const auto at = [&](std::size_t p) { return w.find(std::int64_t(row_of[p]), std::int64_t(col_of[p])); };
  if (std::size_t(elements.blocks()) == values.size()) {
    for (std::size_t p = 0; p < values.size(); ++p) w.data()[at(p)] = Element(values[p]);
  } else {
    summed_values sums(w);
    for (std::size_t p = 0; p < values.size(); ++p) sums.add(at(p), values[p]);
    sums.store();
  }
  return w;
}

}  // namespace detail

/// BSR: `matrix_from_bsr<float, block_shape<4>>(rows, cols, a.indptr, a.indices, a.data)`
///   row_start (block rows + 1), block_columns (stored blocks), values (stored blocks, Block::rows,
///   Block::cols) Values that overhang the matrix are left out.
template <element Element, class Block, index_array Starts, index_array Cols, number_array Values>
block_sparse_matrix<Element, Block> matrix_from_bsr(int rows, int cols, Starts const& row_start,
                                                    Cols const& block_columns, Values const& values,
                                                    index_order order = index_order::ascending,
                                                    duplicates repeated = duplicates::refused) {
  const auto starts = detail::view(row_start);
  const auto columns = detail::view(block_columns);
  const auto numbers = detail::view(values);
  block_sparse_matrix<Element, Block> w(rows, cols,
                                        pattern_from_bsr(rows, cols, {Block::rows, Block::cols}, starts,
                                                         columns, index_unit::blocks, order, repeated));
  detail::check_values("matrix_from_bsr", numbers.size(), columns.size(), Block::elements);
  const auto lines = detail::lines_of_entries(starts, 1);
  if (std::size_t(w.pattern().blocks()) != columns.size()) {
    detail::summed_values sums(w);
    for (std::size_t p = 0; p < columns.size(); ++p) {
      const std::int64_t i = std::int64_t(lines[p]) * Block::rows, j = std::int64_t(columns[p]) * Block::cols;
      for (int r = 0; r < Block::rows && i + r < rows; ++r)
        for (int c = 0; c < Block::cols && j + c < cols; ++c)
          sums.add(w.find(i + r, j + c), numbers[p * Block::elements + std::size_t(r * Block::cols + c)]);
    }
    sums.store();
    return w;
  }
  for (std::size_t p = 0; p < columns.size(); ++p) {
    const int i = lines[p], j = int(columns[p]);
    const int height = std::min<int>(Block::rows, rows - i * Block::rows),
              width = std::min<int>(Block::cols, cols - j * Block::cols);
    const auto to = w.at_slot(w.pattern().find(i, j)).data();
    const auto* const from = numbers.data() + p * Block::elements;
    for (int r = 0; r < height; ++r)
      for (int c = 0; c < width; ++c) to[r * Block::cols + c] = Element(from[r * Block::cols + c]);
  }
  return w;
}

/// CSR: columns and values of each row.
///   row_start (rows + 1), columns (stored), values (stored)
///   A block larger than 1x1 is stored if the index has an element of it.
template <element Element, class Block = block_shape<1>, index_array Starts, index_array Cols,
          number_array Values>
block_sparse_matrix<Element, Block> matrix_from_csr(int rows, int cols, Starts const& row_start,
                                                    Cols const& columns, Values const& values,
                                                    index_order order = index_order::ascending,
                                                    duplicates repeated = duplicates::refused) {
  const pattern elements = pattern_from_csr(rows, cols, row_start, columns, order, repeated);
  const auto numbers = detail::view(values);
  detail::check_values("matrix_from_csr", numbers.size(), detail::view(columns).size(), 1);
  return detail::matrix_from_elements<Element, Block>(rows, cols, elements,
                                                      detail::lines_of_entries(detail::view(row_start), 1),
                                                      detail::view(columns), numbers);
}

/// CSC: rows and values of each column.
///   col_start (cols + 1), row_numbers (stored), values (stored)
template <element Element, class Block = block_shape<1>, index_array Starts, index_array Rows,
          number_array Values>
block_sparse_matrix<Element, Block> matrix_from_csc(int rows, int cols, Starts const& col_start,
                                                    Rows const& row_numbers, Values const& values,
                                                    index_order order = index_order::ascending,
                                                    duplicates repeated = duplicates::refused) {
  const pattern elements = pattern_from_csc(rows, cols, col_start, row_numbers, order, repeated);
  const auto numbers = detail::view(values);
  detail::check_values("matrix_from_csc", numbers.size(), detail::view(row_numbers).size(), 1);
  return detail::matrix_from_elements<Element, Block>(rows, cols, elements, detail::view(row_numbers),
                                                      detail::lines_of_entries(detail::view(col_start), 1),
                                                      numbers);
}

/// COO: element (row_numbers[p], col_numbers[p]) is values[p], in any order.
template <element Element, class Block = block_shape<1>, index_array Rows, index_array Cols,
          number_array Values>
block_sparse_matrix<Element, Block> matrix_from_coo(int rows, int cols, Rows const& row_numbers,
                                                    Cols const& col_numbers, Values const& values,
                                                    duplicates repeated = duplicates::refused) {
  const pattern elements = pattern_from_coo(rows, cols, row_numbers, col_numbers, repeated);
  const auto numbers = detail::view(values);
  detail::check_values("matrix_from_coo", numbers.size(), detail::view(row_numbers).size(), 1);
  return detail::matrix_from_elements<Element, Block>(rows, cols, elements, detail::view(row_numbers),
                                                      detail::view(col_numbers), numbers);
}

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY void check_values(const char* operation, std::size_t values, std::size_t indices,
                                            std::int64_t elements) {
  if (values != checked_multiply(indices, std::size_t(elements)))
    throw shape_error(message("[", operation, "] ", values, " values for ", indices,
                              " indices: there must be ", checked_multiply(indices, std::size_t(elements)),
                              elements == 1 ? "" : ", those of each block row by row"));
}

}  // namespace detail

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/tensor/pruning.hpp
#ifndef TESSERA_SINGLE_TENSOR_PRUNING
#define TESSERA_SINGLE_TENSOR_PRUNING
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

// Pruning by magnitude: the blocks of greatest norm stay.

namespace tessera { inline namespace TESSERA_ISA {

/// The sum of absolute values; infinite if one is not-a-number.
template <class T, std::size_t Size>
TESSERA_INLINE accumulator_t<T> l1_norm(std::span<T const, Size> values) {
  using sum_type = accumulator_t<T>;
  const auto size = static_cast<int>(values.size());
  T const* value = values.data();
  sum_type norm = 0;
  const auto add =
      [&]<int Lanes>(std::integral_constant<int, Lanes>) {  // independent sums, for the vector unit
        sum_type sums[unsigned(Lanes)] = {};
        for (int i = 0; i < size; i += Lanes, value += Lanes)
          for (int lane = 0; lane < Lanes; ++lane) sums[lane] += std::abs(sum_type(value[lane]));
        for (const sum_type sum : sums) norm += sum;
      };
  if (size % 16 == 0)
    add(std::integral_constant<int, 16>());
  else
    add(std::integral_constant<int, 1>());
  return std::isnan(norm) ? std::numeric_limits<sum_type>::infinity() : norm;
}

/// How large a block is: the sum of its absolute values, the root of the sum of their squares, or the
/// greatest of them.
enum class block_norm { l1, l2, max };

/// Infinite if one value is not-a-number.
template <class T, std::size_t Size>
TESSERA_INLINE accumulator_t<T> norm_of(std::span<T const, Size> values, block_norm kind) {
  using sum_type = accumulator_t<T>;
  if (kind == block_norm::l1) return l1_norm(values);
  sum_type squares = 0, greatest = 0;
  for (const T value : values) {
    squares += sum_type(value) * sum_type(value);
    greatest = std::max(greatest, std::abs(sum_type(value)));
  }
  if (std::isnan(squares)) return std::numeric_limits<sum_type>::infinity();
  return kind == block_norm::l2 ? std::sqrt(squares) : greatest;
}

/// The norm of each stored block, by slot; infinite if one value is not-a-number.
template <class T, class Block>
std::vector<accumulator_t<T>> block_norms(block_sparse_matrix<T, Block> const& w,
                                          block_norm kind = block_norm::l1) {
  std::vector<accumulator_t<T>> norms(static_cast<std::size_t>(w.pattern().blocks()));
  std::int64_t slot = 0;
  for (auto& norm : norms) norm = norm_of(w.at_slot(slot++), kind);
  return norms;
}

/// Memory in which `weakest` works. Kept, it allocates nothing when as many norms come again.
template <class T> struct weakest_room {
  std::vector<char> chosen;
  std::vector<std::int32_t> sizes;
  std::vector<T> numbers, candidates;
};

namespace detail {

/// A mark for each slot: 1 for the `count` slots of least norm, of which the greatest norm is `greatest`.
template <class T>
std::vector<char> const& marked_up_to(std::span<T const> norms, T greatest, std::int64_t count,
                                      std::vector<char>& chosen) {
  chosen.resize(norms.size());
  std::int64_t below = 0;
  for (std::size_t slot = 0; slot < norms.size(); ++slot)
    below += chosen.data()[slot] = norms.data()[slot] < greatest;
  for (std::size_t slot = 0; below < count; ++slot)
    if (norms[slot] == greatest) {
      chosen[slot] = 1;
      ++below;
    }
  return chosen;
}

}  // namespace detail

/// A mark for each slot: 1 for the `count` slots of least norm; of equal norms the lower slot wins.
/// count ≤ slots; not-a-number counts as infinite. Scores may stand for norms: if one is negative, or
/// not-a-number, selection takes longer.
///   Finds the greatest norm to mark: counts norms in classes (exponent and 4 more bits), then selects inside
///   the class that holds it. This is 4 to 6 times as fast as partitioning all pairs of norm and slot.
///   room   has the result
template <class T>
std::vector<char> const& weakest(std::span<T const> norms, std::int64_t count, weakest_room<T>& room) {
  if (count == 0) {
    room.chosen.assign(norms.size(), 0);
    return room.chosen;
  }
  const auto is_unordered = [](T norm) { return std::isnan(norm) || std::signbit(norm); };
  if (std::any_of(norms.begin(), norms.end(), is_unordered)) {  // bits are not in the order of the numbers
    room.numbers.assign(norms.begin(), norms.end());
    for (T& norm : room.numbers)
      if (std::isnan(norm)) norm = std::numeric_limits<T>::infinity();
    std::vector<T>& candidates = room.candidates;
    candidates = room.numbers;
    std::nth_element(candidates.begin(), candidates.begin() + (count - 1), candidates.end());
    return detail::marked_up_to(std::span<T const>(room.numbers), candidates[std::size_t(count - 1)], count,
                                room.chosen);
  }
  using word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr int exponents = 2 * std::numeric_limits<T>::max_exponent;
  const auto class_of = [](T norm) {
    return std::bit_cast<word>(norm) >> (std::numeric_limits<T>::digits - 1 - 4);
  };
  std::vector<std::int32_t>& sizes = room.sizes;
  sizes.assign(16 * exponents, 0);
  for (const T norm : norms) ++sizes.data()[class_of(norm)];
  std::int64_t rank = count - 1;
  word chosen_class = 0;
  for (; rank >= sizes[chosen_class]; ++chosen_class) rank -= sizes[chosen_class];

  std::vector<T>& candidates = room.candidates;
  candidates.reserve(norms.size() + 1);  // as many as another class may have
  candidates.resize(static_cast<std::size_t>(sizes[chosen_class]) + 1);
  std::size_t found = 0;
  for (const T norm : norms) {  // without a branch: a norm of another class is overwritten by the next
    candidates.data()[found] = norm;
    found += class_of(norm) == chosen_class;
  }
  std::nth_element(candidates.begin(), candidates.begin() + rank, candidates.end() - 1);
  return detail::marked_up_to(norms, candidates[static_cast<std::size_t>(rank)], count, room.chosen);
}
template <class T> std::vector<char> weakest(std::span<T const> norms, std::int64_t count) {
  weakest_room<T> room;
  return weakest(norms, count, room);
}

/// The sum of the elements of each stored block, by slot.
template <class T, class Block> std::vector<double> block_sums(block_sparse_matrix<T, Block> const& w) {
  std::vector<double> sums(static_cast<std::size_t>(w.pattern().blocks()));
  std::int64_t slot = 0;
  for (double& sum : sums)
    for (const T value : w.at_slot(slot++)) sum += double(value);
  return sums;
}

namespace detail {

/// The number of blocks that a density leaves of a grid: rounded, and at least one if the grid has any.
std::int64_t blocks_at(const char* operation, double density, std::int64_t blocks);

/// The pattern without the slots that are marked.
pattern without(pattern const& stored, std::vector<char> const& marked);

}  // namespace detail

/// The matrix without its weakest blocks, so that round(density · blocks of the grid) are left; as it is if
/// it stores fewer. Throws option_error unless density is in (0, 1].
template <class T, class Block>
block_sparse_matrix<T, Block> pruned(block_sparse_matrix<T, Block> w, double density) {
  pattern const stored = w.pattern();
  const std::int64_t left =
      detail::blocks_at("pruned", density, std::int64_t{stored.block_rows()} * stored.block_cols());
  if (left < stored.blocks()) {
    const auto norms = block_norms(w);
    w.set_pattern(detail::without(stored, weakest(std::span(norms), stored.blocks() - left)));
  }
  return w;
}

/// A dense matrix in the user's memory, pruned to blocks: `pruned<block_shape<4>>(row_major(data, rows,
/// cols), 0.1)`. Its elements are `Element`, or, without it, T.
template <class Block, class Element = void, class T> auto pruned(matrix_view<T> dense, double density) {
  using chosen = std::conditional_t<std::is_void_v<Element>, std::remove_const_t<T>, Element>;
  block_sparse_matrix<chosen, Block> w(dense.rows, dense.cols);
  copy(dense, w);
  return pruned(std::move(w), density);
}

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY std::int64_t blocks_at(const char* operation, double density, std::int64_t blocks) {
  if (!(density > 0 && density <= 1))
    throw option_error(message("[", operation, "] density ", density, " is outside (0, 1]"));
  return std::min(blocks, std::max<std::int64_t>(1, std::llround(density * double(blocks))));
}

TESSERA_COLD TESSERA_BODY pattern without(pattern const& stored, std::vector<char> const& marked) {
  return pattern_by_rows("pruned", stored.block_rows(), stored.block_cols(), [&](int i, auto& columns) {
    auto slot = std::size_t(stored.first_slot(i));
    for (const std::int32_t j : stored.row(i))
      if (!marked[slot++]) columns.push_back(j);
  });
}

}  // namespace detail

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/tensor/text.hpp
#ifndef TESSERA_SINGLE_TENSOR_TEXT
#define TESSERA_SINGLE_TENSOR_TEXT
#include <algorithm>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <type_traits>
#include <vector>

// Tensors, patterns and sequences as short texts, for people: `std::cout << w`. A large tensor is cut off.

namespace tessera { inline namespace TESSERA_ISA {

namespace detail {

inline constexpr std::int64_t most_rows_shown = 8, most_columns_shown = 8;

std::string number_text(double number);
/// Rows of numbers, each (rows, cols) of at(i, j); none where stored(i, j) is false.
template <class At, class Stored>
std::string grid_text(std::int64_t rows, std::int64_t cols, At&& at, Stored&& stored) {
  std::string text;
  for (std::int64_t i = 0; i < std::min(rows, most_rows_shown); ++i) {
    for (std::int64_t j = 0; j < std::min(cols, most_columns_shown); ++j)
      text += stored(i, j) ? number_text(double(at(i, j))) : "         .";
    text += cols > most_columns_shown ? "  …\n" : "\n";
  }
  return rows > most_rows_shown ? text + "         …\n" : text;
}

}  // namespace detail

/// Kind, size and first numbers of a tensor.
template <tensor Tensor> std::string to_text(Tensor const& x) {
  using E = typename Tensor::value_type;
  const char* const name = element_traits<E>::name;
  if constexpr (Tensor::laid_over == domain::blocks) {
    return message("matrix of ", name, ", ", x.rows(), " x ", x.cols(), " in blocks of ", Tensor::block::rows,
                   " x ", Tensor::block::cols, ", ", x.pattern().blocks(), " of ",
                   std::int64_t{x.pattern().block_rows()} * x.pattern().block_cols(), " stored\n") +
           detail::grid_text(
               x.rows(), x.cols(), [&](auto i, auto j) { return x(i, j); },
               [&](auto i, auto j) { return x.find(i, j) >= 0; });
  } else if constexpr (Tensor::laid_over == domain::panels) {
    return message("activation of ", name, ", ", x.features(), " features x ", x.tokens(), " tokens\n") +
           detail::grid_text(
               x.features(), x.tokens(), [&](auto f, auto t) { return x(f, t); },
               [](auto, auto) { return true; });
  } else {
    return message("vector of ", name, ", ", x.size(),
                   Tensor::laid_over == domain::features ? " features\n" : " tokens\n") +
           detail::grid_text(
               x.size() == 0 ? 0 : 1, x.size(), [&](auto, auto i) { return x[i]; },
               [](auto, auto) { return true; });
  }
}

/// A character for each block, or, of a grid of more than 64, for a square of blocks: ' ' if none is stored,
/// '.' for few, up to '#' for all.
std::string to_text(pattern const& p);

std::string to_text(sequences const& all);

/// The picture of a pattern: a rectangle for each run of stored blocks in a row. A browser shows it.
///   side   width and height of the picture, at most, in pixels
std::string to_svg(pattern const& p, int side = 512);

template <class T>
concept printed = requires(T const& of) { to_text(of); } &&
                  (tensor<T> || std::is_same_v<T, pattern> || std::is_same_v<T, sequences>);

template <class Traits, printed Printed>
auto& operator<<(std::basic_ostream<char, Traits>& out, Printed const& of) {
  return out << to_text(of).c_str();
}

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY std::string number_text(double number) {
  const std::string text = general_text(number, 4);
  return std::string(text.size() < 10 ? 10 - text.size() : 0, ' ') + text;
}

}  // namespace detail

TESSERA_BODY std::string to_text(pattern const& p) {
  constexpr int most = 64;
  const int side = std::max(1, ceil_div(std::max(p.block_rows(), p.block_cols()), most));
  const int rows = ceil_div(p.block_rows(), side), cols = ceil_div(p.block_cols(), side);
  std::vector<int> stored(std::size_t(rows) * std::size_t(cols));
  p.for_each([&](int i, int j, std::int64_t) {
    ++stored[std::size_t(i / side) * std::size_t(cols) + std::size_t(j / side)];
  });
  std::string text =
      message("pattern, ", p.blocks(), " of ", p.block_rows(), " x ", p.block_cols(), " blocks");
  text += side > 1 ? message(", ", side, " x ", side, " a character\n") : "\n";
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) {
      const int height = std::min(side, p.block_rows() - i * side),
                width = std::min(side, p.block_cols() - j * side);
      constexpr char shades[] = " .:-=+*%@#";
      const int count = stored[std::size_t(i) * std::size_t(cols) + std::size_t(j)];
      text += count == height * width ? '#' : shades[std::min(8, ceil_div(count * 8, height * width))];
    }
    text += '\n';
  }
  return text;
}

TESSERA_BODY std::string to_text(sequences const& all) {
  std::string text = message(all.count(), " sequences, ", all.tokens(), " tokens:");
  for (std::int64_t i = 0; i < std::min<std::int64_t>(all.count(), 16); ++i) {
    text += message(" ", all.length(i));
    if (all.keys(i) != all.length(i)) text += message(" (", all.keys(i), " keys)");
  }
  return text + (all.count() > 16 ? " …\n" : "\n");
}

TESSERA_BODY std::string to_svg(pattern const& p, int side) {
  const double scale = double(side) / std::max({1, p.block_rows(), p.block_cols()});
  const auto number = [](double n) { return general_text(n, 6); };
  std::string text =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(scale * p.block_cols()) + "\" height=\"" +
      number(scale * p.block_rows()) + "\" viewBox=\"0 0 " + std::to_string(p.block_cols()) + " " +
      std::to_string(p.block_rows()) + "\"><title>" + std::to_string(p.blocks()) + " of " +
      std::to_string(p.block_rows()) + " x " + std::to_string(p.block_cols()) +
      " blocks</title><rect width=\"100%\" height=\"100%\" fill=\"#eeeeee\"/><path fill=\"#1f4e79\" d=\"";
  for (int i = 0; i < p.block_rows(); ++i) {
    const auto row = p.row(i);
    for (std::size_t k = 0; k < row.size();) {
      std::size_t end = k + 1;
      while (end < row.size() && row[end] == row[end - 1] + 1) ++end;
      text += "M" + std::to_string(row[k]) + " " + std::to_string(i) + "h" + std::to_string(end - k) +
              "v1h-" + std::to_string(end - k) + "z";
      k = end;
    }
  }
  return text + "\"/></svg>\n";
}

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/tessera.hpp
#ifndef TESSERA_SINGLE_TESSERA
#define TESSERA_SINGLE_TESSERA
// Block-sparse tensors for CPUs: tensors, expressions and run. Layers are in nn/nn.hpp, training in train/.
#endif

// ---- tessera/kernels/attention_keys.hpp
#ifndef TESSERA_SINGLE_KERNELS_ATTENTION_KEYS
#define TESSERA_SINGLE_KERNELS_ATTENTION_KEYS
#include <algorithm>
#include <cstdint>
#include <limits>

// The keys that the queries of a panel see.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The diagonal of panel_times_panel::run for a block that is computed completely.
inline constexpr int whole_block = -1;

/// The visited keys of one panel: rows first … last - 1 of a block of scores.
struct key_block {
  std::int64_t panel;
  int first, last;  // multiples of the rows of a register block
  bool masked;      // some lane does not see all of these keys
  bool causal;      // no lane sees a later key than its own number in the panel

  /// The argument `diagonal` of a product whose first key or query has number `number`.
  int diagonal(int number) const { return causal ? number : whole_block; }
  /// The number of registers of `lanes` lanes, from `lane` on, that do not see a key.
  int blind_registers(int key, int lane, int lanes) const {
    return causal ? std::max(0, key - lane) / lanes : 0;
  }
};

/// The keys that the queries in the 64 lanes of a panel see.
struct lane_keys {
  std::int64_t low[panel_tokens], high[panel_tokens];  // lane i sees low[i] … high[i] - 1
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;                // some lane sees
  std::int64_t common_first = 0, common_last = std::numeric_limits<std::int64_t>::max();  // every lane sees
  std::int64_t reach = 0;  // lane i sees no key from i + reach on

  void set(int lane, std::int64_t from, std::int64_t to) {
    low[lane] = from;
    high[lane] = to;
    common_first = std::max(common_first, from);
    common_last = std::min(common_last, to);
    if (from >= to) return;
    reach = std::max(reach, to - lane);
    first = std::min(first, from);
    last = std::max(last, to);
  }
  bool sees(int lane, std::int64_t key) const { return low[lane] <= key && key < high[lane]; }
  std::int64_t first_panel() const { return last == 0 ? 0 : first / panel_tokens; }
  std::int64_t last_panel() const { return ceil_div<std::int64_t>(last, panel_tokens); }
  int panels() const { return int(std::max<std::int64_t>(1, last_panel() - first_panel())); }

  key_block block(std::int64_t panel, int rows) const {
    const std::int64_t begin = panel * panel_tokens;
    const int from = int(std::max(first, begin) - begin) / rows * rows;
    const int to = round_up(int(std::min(last, begin + panel_tokens) - begin), rows);
    return {panel, from, to, begin + from < common_first || begin + to > common_last, reach <= begin + 1};
  }
};

/// The panels of keys that a panel of queries visits: all, or the panels of a list.
struct live_panels {
  bool all = true;
  std::int32_t const* numbers = nullptr;  // ascending
  int count = 0;
  std::int64_t first = 0;  // the panel of number 0

  bool contain(std::int64_t panel) const {
    return all || std::binary_search(numbers, numbers + count, panel - first);
  }
};

/// The bounds of lane_keys, counted from the first key of one panel, as numbers for comparisons in registers.
template <class Arch, class T> struct lane_limits {
  using batch = simd::batch<T, Arch>;
  alignas(64) T low[panel_tokens], high[panel_tokens];

  lane_limits(lane_keys const& keys, std::int64_t panel) {
    const auto from_panel = [&](std::int64_t key) {
      return T(std::clamp<std::int64_t>(key - panel * panel_tokens, 0, panel_tokens));
    };
    for (int i = 0; i < panel_tokens; ++i) {
      low[i] = from_panel(keys.low[i]);
      high[i] = from_panel(keys.high[i]);
    }
  }
  /// The lanes that see a key.
  TESSERA_INLINE auto see(int key, int lane) const {
    const batch number{T(key)};
    return number >= batch::load_unaligned(low + lane) && number < batch::load_unaligned(high + lane);
  }
  /// The scores of a key, -infinity in lanes that do not see it.
  TESSERA_INLINE batch apply(batch scores, int key, int lane) const {
    return select(see(key, lane), scores, batch(-std::numeric_limits<T>::infinity()));
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/panel_times_panel.hpp
#ifndef TESSERA_SINGLE_KERNELS_PANEL_TIMES_PANEL
#define TESSERA_SINGLE_KERNELS_PANEL_TIMES_PANEL
#include <algorithm>
#include <cstddef>
#include <type_traits>

// The products of attention, of two panels.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The rows of a product with a panel on its left: the panel's features (a sum over its tokens; elements are
/// stored one by one), or its tokens (a sum over its features).
enum class rows_are { features, tokens };

/// The layout of the right operand (depth, 64): a panel, or a regrouped panel, register of columns after
/// register of columns, as simd::regroup makes from the transpose.
enum class columns { panel, regrouped };

/// The term that a product is added to: none, the present result, or the present result times a factor for
/// each column.
enum class onto { nothing, result, scaled_result };

/// The state that engines with registers of numbers keep from product to product: none.
struct no_unit {};

/// c (rows, 64) = a (rows, depth) · b (depth, 64) + …, with a and b of elements E and c stored like a panel.
template <class Arch, class E, rows_are Left, columns Right> struct panel_times_panel {
  using T = accumulator_t<E>;
  using reg = simd::reg<T, Arch>;
  using batch = simd::batch<T, Arch>;
  static constexpr bool scores = Left == rows_are::tokens;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int rows = register_block<T, Arch>::rows;
  static constexpr int registers = register_block<T, Arch>::registers;
  /// Elements in a lane, side by side along the depth.
  static constexpr int group = element_traits<E>::features_a_lane;
  static constexpr int row_step = scores ? group : panel_tokens;
  static constexpr int depth_step = scores ? group * panel_tokens : group;
  static constexpr int b_step = group * (Right == columns::panel ? panel_tokens : lanes);
  static constexpr int b_register = Right == columns::panel ? group * lanes : panel_tokens * lanes;

  /// The number of register blocks of `row_count` rows.
  static constexpr int pieces(int row_count) {
    return ceil_div(row_count, rows) * (panel_tokens / (registers * lanes));
  }

  ///   start     scores begin with nothing
  ///   soon      prefetches one share with each register block
  ///   diagonal  whole_block; or, if no query sees a key beyond its own number in the block, the number of
  ///             the first key (a row of scores, or summed over) or of the first query summed over: registers
  ///             with hidden scores only are neither read nor computed
  ///   factor    64 numbers, for onto::scaled_result only
  [[gnu::noinline]] static void run(no_unit, E const* a, E const* b, T* c, int row_count, int depth,
                                    onto start, rows_ahead& soon, int diagonal,
                                    T const* factor = nullptr) noexcept {
    for (int column = 0; column < panel_tokens; column += registers * lanes) {
      E const* const b_columns = b + column / lanes * b_register;
      int row = 0;
      for (; row + rows <= row_count; row += rows) {
        soon.fetch();
        const int first =
            scores && diagonal != whole_block ? std::max(0, diagonal + row - column) / lanes : 0;
        unroll<scores ? registers : 1>([&](auto r) TESSERA_INLINE_LAMBDA {
          if (first == r)
            tile<rows, r>(a + row * row_step, b_columns, c + row * panel_tokens, column, depth, start,
                          diagonal, factor);
        });
      }
      if constexpr (!scores)
        for (; row < row_count; ++row)
          tile<1, 0>(a + row * row_step, b_columns, c + row * panel_tokens, column, depth, start, diagonal,
                     factor);
    }
  }

 private:
  /// Computes R rows of a register block, registers First … registers - 1.
  template <int R, int First>
  TESSERA_INLINE static void tile(E const* a, E const* b, T* c, int column, int depth, onto start,
                                  int diagonal, T const* factor) {
    reg acc[unsigned(R)][unsigned(registers)];  // (rows of a, registers of columns)
    const auto each = [&](auto body) TESSERA_INLINE_LAMBDA {
      unroll<R>([&](auto i) TESSERA_INLINE_LAMBDA {
        unroll<registers - First>(
            [&](auto j) TESSERA_INLINE_LAMBDA { body(i, std::integral_constant<int, First + j>()); });
      });
    };
    c += column;
    if (scores || start == onto::nothing)
      each([&](auto i, auto j) TESSERA_INLINE_LAMBDA { acc[i][j] = simd::zero<Arch, T>(); });
    else if constexpr (!scores)
      each([&](auto i, auto j) TESSERA_INLINE_LAMBDA {
        acc[i][j] = simd::load<Arch>(static_cast<T const*>(c) + i * panel_tokens + j * lanes);
      });
    if constexpr (!scores)
      if (start == onto::scaled_result)
        each([&](auto i, auto j) TESSERA_INLINE_LAMBDA {
          acc[i][j] = (batch(acc[i][j]) * batch::load_unaligned(factor + column + j * lanes)).data;
        });
    int k = 0;
    if (scores || diagonal == whole_block) {
      for (; k < depth; k += group) multiply<R, First, registers>(acc, a, b);
    } else if constexpr (!scores) {
      // A range of keys, or queries, for each set of registers that see them.
      unroll<registers>([&](auto j) TESSERA_INLINE_LAMBDA {
        const int begin = std::min(depth, column + j * lanes - diagonal), end = begin + lanes;
        if constexpr (Right == columns::panel) {
          for (; k < std::min(depth, end); k += group) multiply<R, j, registers>(acc, a, b);
        } else {
          for (; k < begin; k += group) a += depth_step, b += b_step;
          for (; k < (j + 1 < registers ? std::min(depth, end) : depth); k += group)
            multiply<R, 0, j + 1>(acc, a, b);
        }
      });
    }
    each([&](auto i, auto j)
             TESSERA_INLINE_LAMBDA { simd::store<Arch>(c + i * panel_tokens + j * lanes, acc[i][j]); });
  }

  template <int R, int First, int Last>
  TESSERA_INLINE static void multiply(reg (&acc)[unsigned(R)][unsigned(registers)], E const*& a,
                                      E const*& b) {
    multiply_some_registers<simd::stored_lane<E>, Arch, First, Last>(
        acc, [&](auto i) TESSERA_INLINE_LAMBDA { return simd::broadcast_lane<Arch>(a + i * row_step); },
        [&](auto j) TESSERA_INLINE_LAMBDA { return simd::load_lanes<Arch>(b + j * b_register); });
    a += depth_step;
    b += b_step;
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/amx_panel_times_panel.hpp
#ifndef TESSERA_SINGLE_KERNELS_AMX_PANEL_TIMES_PANEL
#define TESSERA_SINGLE_KERNELS_AMX_PANEL_TIMES_PANEL
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// AMX with whole registers: 0 … 3 are sums of 16 columns each.
class amx_unit : public simd::native_amx {
 public:
  amx_unit() : simd::native_amx(shapes) {}

 private:
  static constexpr simd::amx_shapes shapes = [] {
    simd::amx_shapes all;
    for (int r = 0; r < 6; ++r) all.set(r, simd::amx_rows, simd::amx_row_bytes);
    return all;
  }();
};

/// panel_times_panel by AMX, of whole blocks: rows and depth are multiples of 16 and 32, whatever is hidden
/// counts as zero.
template <class Arch, class E, rows_are Left, columns Right> struct amx_panel_times_panel {
  static constexpr int group = 2;
  static constexpr int depth_step = 32;  // of a register

  static constexpr int pieces(int row_count) { return row_count / simd::amx_rows; }

  [[gnu::noinline]] static void run(amx_unit& unit, E const* a, E const* b, float* c, int row_count,
                                    int depth, onto start, rows_ahead& soon, int /*diagonal*/,
                                    float const* factor = nullptr) noexcept {
    constexpr std::size_t c_bytes = panel_tokens * sizeof(float);
    for (int row = 0; row < row_count; row += simd::amx_rows, c += simd::amx_rows * panel_tokens) {
      soon.fetch();
      if (start == onto::scaled_result) scale(c, factor);
      unroll<register_columns>([&](auto j) TESSERA_INLINE_LAMBDA {
        if (start == onto::nothing)
          unit.zero<j>();
        else
          unit.load<j>(c + j * simd::amx_columns, c_bytes);
      });
      for (int k = 0; k < depth; k += depth_step) {
        if constexpr (Left == rows_are::features) {
          unit.load<left>(a + row * panel_tokens + k, panel_tokens * sizeof(E));
        } else {
          alignas(64) std::uint32_t rows_of_a[simd::amx_rows][unsigned(depth_step / group)];
          transpose(a + k * panel_tokens + row * group, rows_of_a);
          unit.load<left>(rows_of_a, sizeof rows_of_a[0]);
        }
        unroll<register_columns>([&](auto j) TESSERA_INLINE_LAMBDA {
          if constexpr (Right == columns::panel)
            unit.load<right>(b + k * panel_tokens + j * simd::amx_columns * group,
                             panel_tokens * group * sizeof(E));
          else
            unit.load<right>(b + (j * panel_tokens + k) * simd::amx_columns,
                             simd::amx_columns * group * sizeof(E));
          unit.multiply_add<j, left, right, E>();
        });
      }
      unroll<register_columns>(
          [&](auto j) TESSERA_INLINE_LAMBDA { unit.store<j>(c + j * simd::amx_columns, c_bytes); });
    }
  }

 private:
  static constexpr int left = 4, right = 5;
  static constexpr int register_columns = panel_tokens / simd::amx_columns;

  /// Pairs of features of 16 tokens, feature by feature in a panel, to rows of tokens.
  TESSERA_INLINE static void transpose(E const* from,
                                       std::uint32_t (&to)[simd::amx_rows][unsigned(depth_step / group)]) {
    constexpr int side = simd::lanes<std::uint32_t, Arch>;
    for (int pair = 0; pair < depth_step / group; pair += side)
      for (int token = 0; token < simd::amx_rows; token += side)
        simd::transpose_square<std::uint32_t, Arch>(
            reinterpret_cast<std::uint32_t const*>(from) + pair * panel_tokens + token, panel_tokens,
            &to[token][pair], depth_step / group);
  }

  /// Multiplies 16 rows by a factor for each column.
  TESSERA_INLINE static void scale(float* c, float const* factor) {
    using batch = simd::batch<float, Arch>;
    for (int column = 0; column < panel_tokens; column += int(batch::size)) {
      const batch by = batch::load_unaligned(factor + column);
      for (int row = 0; row < simd::amx_rows; ++row) {
        float* const at = c + row * panel_tokens + column;
        (batch::load_unaligned(at) * by).store_unaligned(at);
      }
    }
  }
};

/// The product of an engine, and the state that it keeps from product to product.
template <class Arch, class E, engine By, rows_are Left, columns Right>
using attention_product = std::conditional_t<By == engine::amx, amx_panel_times_panel<Arch, E, Left, Right>,
                                             panel_times_panel<Arch, factor_of<By, E, Arch>, Left, Right>>;
template <engine By> using unit_of = std::conditional_t<By == engine::amx, amx_unit, no_unit>;
/// The number of keys, and of queries, of which the products of an engine take multiples.
template <engine By> constexpr int step_of(int step) { return By == engine::amx ? panel_tokens : step; }

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/attention_scores.hpp
#ifndef TESSERA_SINGLE_KERNELS_ATTENTION_SCORES
#define TESSERA_SINGLE_KERNELS_ATTENTION_SCORES
#include <concepts>
#include <cstdint>
#include <type_traits>

// A score functor changes the scores of attention before the softmax: s, the scaled product of a query and a
// key, becomes f(s, w), where w depends on the head and on the distance, which is the position of the query
// minus the position of the key. All pairs of a block on one diagonal have one distance: w is a function of
// integers, called once for each diagonal, and f an op of registers.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Leaves scores unchanged.
struct plain_scores {};

template <class Score> inline constexpr bool changes_scores = !std::is_same_v<Score, plain_scores>;

/// For a score s and w = f.term(head, distance), all of them finite:
///   f(s, w)              the argument of the softmax
///   f.derivative(s, w)   ∂f/∂s
/// Both take registers too, as ops do. The term is also computed for distances that no query sees.
template <class F>
concept score_functor = !changes_scores<F> || requires(F const& f, double s, std::int64_t distance) {
  { f.term(0, distance) } -> std::convertible_to<double>;
  { f(s, s) } -> std::same_as<double>;
  { f.derivative(s, s) } -> std::same_as<double>;
};

/// A score functor whose terms have parameters, equally many for each head.
///   f.parameters()                               number of parameters for each head
///   f.term_derivative(s, w)                      ∂f/∂w
///   f.add_gradient(head, distance, dw, to)       adds dw ∂w/∂(parameter) of each parameter of the head
template <class F>
concept learned_score_functor =
    score_functor<F> && requires(F const& f, double s, std::int64_t distance, double* dparameters) {
      { f.parameters() } -> std::convertible_to<std::int64_t>;
      { f.term_derivative(s, s) } -> std::same_as<double>;
      f.add_gradient(0, distance, s, dparameters);
    };

/// A number for each diagonal of a block of 64 keys and 64 queries.
template <class Arch, class T> class block_diagonals {
 public:
  using batch = simd::batch<T, Arch>;

  /// Calls visit(distance, number) for each diagonal.
  ///   panels   panel of the queries minus panel of the keys
  template <class Visit> void for_each(std::int64_t panels, Visit&& visit) {
    for (int i = 0; i < count; ++i) visit(panels * panel_tokens + i - first_key, number_[i]);
  }
  /// The numbers of a key with the queries of a register.
  TESSERA_INLINE batch load(int key, int lane) const {
    return batch::load_unaligned(number_ + first_key + lane - key);
  }
  TESSERA_INLINE void add(int key, int lane, batch const& value) {
    (load(key, lane) + value).store_unaligned(number_ + first_key + lane - key);
  }

 private:
  static constexpr int first_key = panel_tokens - 1,
                       count = 2 * panel_tokens;  // one more, for whole registers
  alignas(64) T number_[count];
};

/// Replaces block_diagonals that are not needed.
struct no_diagonals {};

/// The terms of a functor for a block of scores; none for plain scores.
template <class Arch, class T, class Score>
using score_terms = std::conditional_t<changes_scores<Score>, block_diagonals<Arch, T>, no_diagonals>;
/// The sums of gradients by these terms; none without parameters.
template <class Arch, class T, class Score>
using score_term_sums =
    std::conditional_t<learned_score_functor<Score>, block_diagonals<Arch, T>, no_diagonals>;

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/visible_factors.hpp
#ifndef TESSERA_SINGLE_KERNELS_VISIBLE_FACTORS
#define TESSERA_SINGLE_KERNELS_VISIBLE_FACTORS
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// The left operand (rows, 64 tokens) of a product whose columns do not see all tokens: the weight of a token
/// that a column does not see is 0. Zero times infinity would be not-a-number, so numbers that are not finite
/// are left out of the product, and added afterwards to the columns that see their token. Such numbers are
/// rare: without them attention pays one scan of each operand of a block that hides tokens.
template <class Arch, class P> class visible_factors {
 public:
  using T = accumulator_t<P>;

  /// Multiplies all of `values`.
  explicit visible_factors(P const* values) : values_(values), finite_(values) {}
  /// Multiplies the finite values, and zeros in place of the others.
  ///   room   rows · 64 elements, used if some values are not finite
  visible_factors(P const* values, int rows, P* room) : visible_factors(values) {
    if (!all_finite(values, rows)) hide(rows, room);
  }

  /// The operand of the product.
  P const* finite() const { return finite_; }

  /// Adds the products of the values left out to c (rows, 64).
  ///   sees(token, column)     whether the column sees the token
  ///   weight(token, column)   weight of the token for the column
  template <class Sees, class Weight>
  void add_hidden(T* c, int rows, Sees const& sees, Weight const& weight) const {
    if (finite_ != values_) add(c, rows, sees, weight);
  }

 private:
  /// Compares bits: floating-point numbers without their signs are ordered like the integers of their bits,
  /// with infinity and then not-a-number above all others.
  static bool all_finite(P const* values, int rows) {
    using bits = std::conditional_t<sizeof(P) == 2, std::int16_t,
                                    std::conditional_t<sizeof(P) == 4, std::int32_t, std::int64_t>>;
    using batch = simd::batch<bits, Arch>;
    static_assert(sizeof(P) == sizeof(bits));
    constexpr int lanes = int(batch::size), maxima = std::min(4, panel_tokens / lanes);
    const batch magnitude(std::numeric_limits<bits>::max());
    batch most[unsigned(maxima)];
    unroll<maxima>([&](auto i) TESSERA_INLINE_LAMBDA { most[i] = batch(bits(0)); });
    for (int at = 0; at < rows * panel_tokens; at += maxima * lanes)
      unroll<maxima>([&](auto i) TESSERA_INLINE_LAMBDA {
        batch value;
        std::memcpy(&value, values + at + i * lanes, sizeof value);
        most[i] = max(most[i], value & magnitude);
      });
    const batch infinity(std::bit_cast<bits>(P(std::numeric_limits<T>::infinity())));
    bool finite = true;
    for (batch const& m : most) finite &= !any(m >= infinity);
    return finite;
  }

  TESSERA_COLD void hide(int rows, P* room) {
    std::transform(values_, values_ + rows * panel_tokens, room,
                   [](P value) { return std::isfinite(T(value)) ? value : P(0); });
    finite_ = room;
  }

  template <class Sees, class Weight>
  TESSERA_COLD void add(T* c, int rows, Sees const& sees, Weight const& weight) const {
    for (int row = 0; row < rows; ++row)
      for (int token = 0; token < panel_tokens; ++token) {
        const T value(values_[row * panel_tokens + token]);
        if (std::isfinite(value)) continue;
        for (int column = 0; column < panel_tokens; ++column)
          if (sees(token, column)) c[row * panel_tokens + column] += value * T(weight(token, column));
      }
  }

  P const *values_, *finite_;
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/attention.hpp
#ifndef TESSERA_SINGLE_KERNELS_ATTENTION
#define TESSERA_SINGLE_KERNELS_ATTENTION
#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

// Attention of one head on panels. A panel of the head is (head size, 64 tokens), so the scores of 64 queries
// (keys, queries) = Kᵀ·Q, and the result (head size, queries) = V·P, are products of one form: elements of
// the left panel are broadcast, the lanes are queries. No score outlives its block of 64 keys (Dao et al.
// 2022). If the engine multiplies pairs of elements, sums over features read elements as they are stored. For
// sums over tokens, two tokens of a feature are packed side by side, a block of keys at a time, and
// probabilities and gradients of scores are rounded, as flash attention on GPUs does; e^score is summed
// before rounding, so that log sums are as in float. For other narrow elements operands are widened, a block
// of keys at a time, and only results are rounded.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// One head of a panel of queries. Panels are (head size, 64); no head shares a lane with another.
template <class E, class Score = plain_scores> struct attention_operands {
  using T = accumulator_t<E>;
  E const* q;           // the panel of the queries
  E const *k, *v;       // panel 0
  std::int64_t stride;  // elements from a panel to the next
  int head_size;
  T scale;
  lane_keys const* keys;
  // The arguments of a score functor.
  Score const* score = nullptr;
  int head = 0;
  std::int64_t panel = 0;  // of the queries
  live_panels live = {};

  /// The factor that scores in memory still need: a functor has already scaled the scores that it changed.
  T remaining_scale() const { return changes_scores<Score> ? T(1) : scale; }
  /// The terms of a block of scores.
  template <class Terms> void compute_terms([[maybe_unused]] Terms& terms, std::int64_t key_panel) const {
    if constexpr (changes_scores<Score>)
      terms.for_each(panel - key_panel,
                     [&](std::int64_t distance, T& term) { term = T(score->term(head, distance)); });
  }
};

/// Numbers of a head's panel widened to accumulators; 0 if elements are accumulators.
template <class E> constexpr std::int64_t wide_numbers(std::int64_t head_size) {
  return std::is_same_v<E, accumulator_t<E>> ? 0 : head_size * panel_tokens;
}
/// The factors of an operand: the panel itself, or a copy in `room` that is widened.
template <class Arch, class P, class E>
TESSERA_INLINE P const* factors(E const* panel, int features, [[maybe_unused]] P* room) {
  if constexpr (std::is_same_v<P, E>)
    return panel;
  else
    return simd::one_by_one<Arch>(panel, features, room);
}
/// The memory for sums that are finally stored at `to`: `to` itself, or `room` if `to` is narrow.
template <class E> accumulator_t<E>* sums_of(E* to, [[maybe_unused]] accumulator_t<E>* room) {
  if constexpr (std::is_same_v<E, accumulator_t<E>>)
    return to;
  else
    return room;
}

template <class E, class Score = plain_scores> struct attention_arguments : attention_operands<E, Score> {
  using T = accumulator_t<E>;
  E* y;         // (head size, 64)
  T* log_sums;  // 64
  int tokens;   // of this panel, 1 … 64
  T* scratch;   // attention_scratch(head size) numbers
  rows_ahead soon;
};
/// A block of scores, one of V, then y, q and a block of K or V if they are not stored as T.
template <class E> constexpr std::int64_t attention_scratch(int head_size) {
  return panel_tokens * panel_tokens + head_size * panel_tokens + 3 * wide_numbers<E>(head_size);
}

/// y = V softmax(scale Kᵀ Q), of scores that a functor may change, and log Σ e^score of each query; 0 and
/// -infinity where a query sees no key. Reads each block of keys once, with a running maximum (Milakov and
/// Gimelshein 2018).
template <class Arch, class E, engine By, score_functor Score = plain_scores> struct attention_panel {
  using T = accumulator_t<E>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int rows = register_block<T, Arch>::rows;
  static constexpr int registers = register_block<T, Arch>::registers;
  using P = factor_of<By, E, Arch>;
  using scores_product = attention_product<Arch, E, By, rows_are::tokens, columns::panel>;
  using values_product = attention_product<Arch, E, By, rows_are::features, columns::panel>;

  static void run(attention_arguments<E, Score> const& a) noexcept {
    T* const scores = a.scratch;
    P* const visible_room = reinterpret_cast<P*>(scores + panel_tokens * panel_tokens);
    T* const wide = scores + panel_tokens * panel_tokens + a.head_size * panel_tokens;
    T* const y = sums_of(a.y, wide);
    P* const room = reinterpret_cast<P*>(wide + wide_numbers<E>(a.head_size));
    P const* const q =
        factors<Arch>(a.q, a.head_size, reinterpret_cast<P*>(wide + 2 * wide_numbers<E>(a.head_size)));
    P const* const p = reinterpret_cast<P const*>(scores);
    state now;
    unit_of<By> unit;
    onto start = onto::nothing;
    rows_ahead soon = a.soon;
    soon.cut(a.keys->panels() * (scores_product::pieces(panel_tokens) + values_product::pieces(a.head_size)));
    for (std::int64_t panel = a.keys->first_panel(); panel < a.keys->last_panel(); ++panel) {
      if (!a.live.contain(panel)) continue;
      const key_block keys = a.keys->block(panel, step_of<By>(rows));
      P const* const k = factors<Arch>(a.k + panel * a.stride, a.head_size, room);
      scores_product::run(unit, k + scores_product::group * keys.first, q, scores + keys.first * panel_tokens,
                          keys.last - keys.first, a.head_size, onto::nothing, soon,
                          keys.diagonal(keys.first));
      if (keys.masked)
        online_softmax<true>(a, keys, now);
      else
        online_softmax<false>(a, keys, now);
      P const* const v = simd::one_by_one<Arch>(a.v + panel * a.stride, a.head_size, room);
      const auto values =
          keys.masked ? visible_factors<Arch, P>(v, a.head_size, visible_room) : visible_factors<Arch, P>(v);
      values_product::run(unit, values.finite() + keys.first, p + keys.first * panel_tokens, y, a.head_size,
                          keys.last - keys.first, start, soon, keys.diagonal(keys.first), now.factor);
      values.add_hidden(
          y, a.head_size, [&](int key, int lane) { return a.keys->sees(lane, panel * panel_tokens + key); },
          [&](int key, int lane) { return p[place_in_panel<P>(key, lane)]; });
      start = onto::scaled_result;
    }
    if (start == onto::nothing) std::fill_n(y, a.head_size * panel_tokens, T(0));
    finish(a, now, y);
    simd::store_narrowed<Arch>(y, a.head_size, a.y);
  }

 private:
  struct state {
    // The maximum begins finite, also when scaled, so that no difference of two is not-a-number.
    alignas(64) T maximum[panel_tokens], sum[panel_tokens], factor[panel_tokens];
    state() {
      std::fill_n(maximum, panel_tokens, std::numeric_limits<T>::lowest() / 2);
      std::fill_n(sum, panel_tokens, T(0));
    }
  };

  /// Replaces scores by e^(scale (score - maximum so far)), computed as powers of two with scale · log2 e. A
  /// functor changes the scores first.
  template <bool Masked>
  [[gnu::noinline]] static void online_softmax(attention_arguments<E, Score> const& a, key_block const& keys,
                                               state& now) {
    [[maybe_unused]] const lane_limits<Arch, T> limits(*a.keys, keys.panel);
    [[maybe_unused]] score_terms<Arch, T, Score> terms;
    a.compute_terms(terms, keys.panel);
    const batch scale(a.remaining_scale() * std::numbers::log2e_v<T>);
    // The scaled maximum is rounded upwards: no exponent is positive, however large the scores.
    const batch above = scale * batch(T(0.51) * std::numeric_limits<T>::epsilon());
    constexpr int group = values_product::group;
    for (int lane = 0; lane < panel_tokens; lane += registers * lanes) {
      batch maximum[unsigned(registers)], sum[unsigned(registers)];
      unroll<registers>([&](auto j) TESSERA_INLINE_LAMBDA {
        maximum[j] = batch::load_unaligned(now.maximum + lane + j * lanes);
      });
      for (int key = keys.first; key < keys.last; ++key) {
        T* const scores = a.scratch + key * panel_tokens + lane;
        const int blind = Masked ? keys.blind_registers(key, lane, lanes) : 0;
        unroll<registers>([&](auto j) TESSERA_INLINE_LAMBDA {
          if (Masked && j < blind) return;
          batch s = batch::load_unaligned(scores + j * lanes);
          if constexpr (changes_scores<Score>)
            s = (*a.score)(s * batch(a.scale), terms.load(key, lane + j * lanes));
          if constexpr (Masked) s = limits.apply(s, key, lane + j * lanes);
          if constexpr (Masked || changes_scores<Score>) s.store_unaligned(scores + j * lanes);
          maximum[j] = max(maximum[j], s);
        });
      }
      unroll<registers>([&](auto j) TESSERA_INLINE_LAMBDA {
        raise(now, lane + j * lanes, maximum[j], scale);
        maximum[j] = fma(maximum[j], scale, abs(maximum[j]) * above);
        sum[j] = batch::load_unaligned(now.sum + lane + j * lanes);
      });
      for (int key = keys.first; key < keys.last; key += group) {
        const int blind = Masked ? keys.blind_registers(key, lane, lanes) : 0;
        unroll<registers>([&](auto j) TESSERA_INLINE_LAMBDA {
          const int column = lane + j * lanes;
          P* const to = reinterpret_cast<P*>(a.scratch) + key * panel_tokens + group * column;
          if (Masked && j < blind) {
            if constexpr (By == engine::amx) std::fill_n(to, group * lanes, P(0));
            return;
          }
          batch p[unsigned(group)];
          unroll<group>([&](auto i) TESSERA_INLINE_LAMBDA {
            T const* const score = a.scratch + (key + i) * panel_tokens + column;
            p[i] = simd::exp2(fms(batch::load_unaligned(score), scale, maximum[j]));
            sum[j] = sum[j] + p[i];
          });
          simd::store_lanes<simd::numbers::normal>(to, p);
        });
      }
      unroll<registers>([&](auto j)
                            TESSERA_INLINE_LAMBDA { sum[j].store_unaligned(now.sum + lane + j * lanes); });
    }
  }

  /// Raises the maximum of one register of queries, and scales their sum by the factor that follows.
  [[gnu::noinline]] static void raise(state& now, int lane, batch maximum, batch scale) {
    const batch factor = simd::exp2((batch::load_unaligned(now.maximum + lane) - maximum) * scale);
    factor.store_unaligned(now.factor + lane);
    maximum.store_unaligned(now.maximum + lane);
    (batch::load_unaligned(now.sum + lane) * factor).store_unaligned(now.sum + lane);
  }

  static void finish(attention_arguments<E, Score> const& a, state const& now, T* sums) {
    for (int lane = 0; lane < panel_tokens; lane += lanes) {
      const batch sum = batch::load_unaligned(now.sum + lane), zero(T(0));
      const auto blind = sum == zero;
      const batch inverse = simd::quotient(batch(T(1)), sum);
      for (int f = 0; f < a.head_size; ++f) {
        T* const y = sums + f * panel_tokens + lane;
        select(blind, zero, batch::load_unaligned(y) * inverse).store_unaligned(y);
      }
      const batch log_sum =
          select(blind, batch(-std::numeric_limits<T>::infinity()),
                 fma(batch::load_unaligned(now.maximum + lane), batch(a.remaining_scale()), log(sum)));
      simd::first_lanes(log_sum, std::clamp(a.tokens - lane, 0, lanes)).store_unaligned(a.log_sums + lane);
    }
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/kernels/attention_backward.hpp
#ifndef TESSERA_SINGLE_KERNELS_ATTENTION_BACKWARD
#define TESSERA_SINGLE_KERNELS_ATTENTION_BACKWARD
#include <algorithm>
#include <cstdint>
#include <numbers>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Sums for the keys of some consecutive panels at a time: panel p has place p modulo `panels`.
template <class T> struct key_sums {
  T* first;
  std::int64_t stride, panels;
  T* of_panel(std::int64_t panel) const { return first + panel % panels * stride; }
};

template <class E, class Score = plain_scores>
struct attention_backward_arguments : attention_operands<E, Score> {
  using T = accumulator_t<E>;
  E const *y, *dy;     // (head size, 64)
  T const* log_sums;   // 64
  E* dq;               // the panel of the queries
  key_sums<T> dk, dv;  // this panel of queries adds to them
  T* scratch;          // attention_backward_scratch(head size) numbers
  rows_ahead soon;
  T* dparameters = nullptr;  // of a learned score functor: this panel adds to them; null if not wanted
};
/// Three blocks of scores, three operands without hidden tokens, then dq, q, dy and a block of K or V if
/// these are not stored as T.
template <class E> constexpr std::int64_t attention_backward_scratch(int head_size) {
  return 3 * panel_tokens * (panel_tokens + head_size) + 4 * wide_numbers<E>(head_size);
}

/// The gradients from one head of a panel of queries (Dao et al. 2022, algorithm 4): with P the softmax,
/// recomputed from its log sums, and D = Σ dy∘y over the features of the head,
///   dV += dY Pᵀ   dS = scale P∘(Vᵀ dY - D)   dQ = K dS   dK += Q dSᵀ
/// Where a functor f changes the scores, dS has a factor ∂f/∂s too.
template <class Arch, class E, engine By, score_functor Score = plain_scores>
struct attention_backward_panel {
  using T = accumulator_t<E>;
  using batch = simd::batch<T, Arch>;
  static constexpr int lanes = simd::lanes<T, Arch>;
  static constexpr int rows = register_block<T, Arch>::rows;
  static constexpr int registers = register_block<T, Arch>::registers;
  using P = factor_of<By, E, Arch>;
  using scores_product = attention_product<Arch, E, By, rows_are::tokens, columns::panel>;
  using query_product = attention_product<Arch, E, By, rows_are::features, columns::panel>;
  using key_product = attention_product<Arch, E, By, rows_are::features, columns::regrouped>;
  static constexpr int group = key_product::group;

  static void run(attention_backward_arguments<E, Score> const& a) noexcept {
    const auto [scores, products, p, ds, transposed, visible_room, wide, room_of_q, room_of_dy, block] =
        places(a);
    const auto visible = [&, all = visible_room](P const* values, int place) {
      return visible_factors<Arch, P>(values, a.head_size,
                                      reinterpret_cast<P*>(all + place * a.head_size * panel_tokens));
    };
    T* const dq = sums_of(a.dq, wide);
    P const* const q_lanes = factors<Arch>(a.q, a.head_size, room_of_q);
    P const* const dy_lanes = factors<Arch>(a.dy, a.head_size, room_of_dy);
    P const* const q = simd::one_by_one<Arch>(q_lanes, a.head_size, room_of_q);
    P const* const dy = simd::one_by_one<Arch>(dy_lanes, a.head_size, room_of_dy);
    const auto visible_q = visible(q, 0), visible_dy = visible(dy, 1);
    alignas(64) T d[panel_tokens];
    sum_features(a, d);
    unit_of<By> unit;
    onto start = onto::nothing;
    rows_ahead soon = a.soon;
    soon.cut(a.keys->panels() *
             (2 * scores_product::pieces(panel_tokens) + 3 * query_product::pieces(a.head_size)));
    for (std::int64_t panel = a.keys->first_panel(); panel < a.keys->last_panel(); ++panel) {
      if (!a.live.contain(panel)) continue;
      const key_block keys = a.keys->block(panel, step_of<By>(rows));
      const auto [first, last] = queries(*a.keys, panel);
      if (first >= last) continue;
      const int count = keys.last - keys.first, at = keys.first * panel_tokens;
      P const* const v = factors<Arch>(a.v + panel * a.stride, a.head_size, block);
      scores_product::run(unit, v + scores_product::group * keys.first, dy_lanes, products + at, count,
                          a.head_size, onto::nothing, soon, keys.diagonal(keys.first));
      P const* const k = factors<Arch>(a.k + panel * a.stride, a.head_size, block);
      scores_product::run(unit, k + scores_product::group * keys.first, q_lanes, scores + at, count,
                          a.head_size, onto::nothing, soon, keys.diagonal(keys.first));
      if (keys.masked)
        differentiate<true>(a, keys, d, scores, products);
      else
        differentiate<false>(a, keys, d, scores, products);
      const auto sees = [&](int lane, int key) { return a.keys->sees(lane, panel * panel_tokens + key); };
      P const* const keys_one_by_one = simd::one_by_one<Arch>(k, a.head_size, block);
      const auto visible_k =
          keys.masked ? visible(keys_one_by_one, 2) : visible_factors<Arch, P>(keys_one_by_one);
      query_product::run(unit, visible_k.finite() + keys.first, ds + at, dq, a.head_size, count, start, soon,
                         keys.diagonal(keys.first));
      visible_k.add_hidden(
          dq, a.head_size, [&](int key, int lane) { return sees(lane, key); },
          [&](int key, int lane) { return ds[place_in_panel<P>(key, lane)]; });
      start = onto::result;
      transpose(p, transposed, keys);
      key_product::run(unit, visible_dy.finite() + first, transposed + first * lanes, a.dv.of_panel(panel),
                       a.head_size, last - first, onto::result, soon, keys.diagonal(first));
      visible_dy.add_hidden(a.dv.of_panel(panel), a.head_size, sees,
                            [&](int lane, int key) { return p[place_in_panel<P>(key, lane)]; });
      transpose(ds, transposed, keys);
      key_product::run(unit, visible_q.finite() + first, transposed + first * lanes, a.dk.of_panel(panel),
                       a.head_size, last - first, onto::result, soon, keys.diagonal(first));
      visible_q.add_hidden(a.dk.of_panel(panel), a.head_size, sees,
                           [&](int lane, int key) { return ds[place_in_panel<P>(key, lane)]; });
    }
    if (start == onto::nothing) std::fill_n(dq, a.head_size * panel_tokens, T(0));
    simd::store_narrowed<Arch>(dq, a.head_size, a.dq);
  }

 private:
  /// The parts of attention_backward_arguments::scratch.
  struct parts_of_scratch {
    T *scores, *products;  // (keys, queries) of a panel
    P *p, *ds;             // probabilities in the place of scores, their gradient in that of products
    P* transposed;         // p or ds
    T* visible_room;       // of three visible_factors
    T* wide;               // sums of dq, if it is narrower
    P *room_of_q, *room_of_dy, *block;  // factors, if they are no stored lanes
  };
  static parts_of_scratch places(attention_backward_arguments<E, Score> const& a) {
    constexpr int square = panel_tokens * panel_tokens;
    const std::int64_t each = wide_numbers<E>(a.head_size);
    T* const scores = a.scratch;
    T *const products = scores + square, *const visible_room = products + 2 * square;
    T* const wide = visible_room + 3 * a.head_size * panel_tokens;
    P* const room = reinterpret_cast<P*>(wide + each);
    return {scores,
            products,
            reinterpret_cast<P*>(scores),
            reinterpret_cast<P*>(products),
            reinterpret_cast<P*>(products + square),
            visible_room,
            wide,
            room,
            room + each,
            room + 2 * each};
  }

  /// The lanes from the first to the last that sees a key of a panel, extended to whole groups.
  static std::pair<int, int> queries(lane_keys const& keys, std::int64_t panel) {
    const std::int64_t begin = panel * panel_tokens, end = begin + panel_tokens;
    const auto sees = [&](int lane) {
      return std::max(keys.low[lane], begin) < std::min(keys.high[lane], end);
    };
    int first = 0, last = panel_tokens;
    while (first < last && !sees(first)) ++first;
    while (last > first && !sees(last - 1)) --last;
    constexpr int step = step_of<By>(group);
    return {first / step * step, round_up(last, step)};
  }

  static void sum_features(attention_backward_arguments<E, Score> const& a, T* d) {
    for (int lane = 0; lane < panel_tokens; lane += lanes) {
      batch sum(T(0));
      for (int f = 0; f < a.head_size; ++f)
        sum = fma(simd::load_feature<Arch>(a.y, f, lane), simd::load_feature<Arch>(a.dy, f, lane), sum);
      sum.store_unaligned(d + lane);
    }
  }

  /// Replaces scores by probabilities, and products (Vᵀ dY) by the gradient of the scores. Narrow results
  /// take the first half of their place.
  template <bool Masked>
  [[gnu::noinline]] static void differentiate(attention_backward_arguments<E, Score> const& a,
                                              key_block const& keys, T const* d, T* scores, T* products) {
    [[maybe_unused]] const lane_limits<Arch, T> limits(*a.keys, keys.panel);
    [[maybe_unused]] score_terms<Arch, T, Score> terms;
    [[maybe_unused]] score_term_sums<Arch, T, Score> dterms;
    a.compute_terms(terms, keys.panel);
    if constexpr (learned_score_functor<Score>) dterms.for_each(0, [](std::int64_t, T& sum) { sum = 0; });
    const batch scale(a.scale), scale_to_two(a.remaining_scale() * std::numbers::log2e_v<T>);
    alignas(64) T log_sums[panel_tokens];  // to the base of 2
    for (int i = 0; i < panel_tokens; ++i) log_sums[i] = a.log_sums[i] * std::numbers::log2e_v<T>;
    for (int lane = 0; lane < panel_tokens; lane += registers * lanes)
      for (int key = keys.first; key < keys.last; key += group) {
        const int blind = Masked ? keys.blind_registers(key, lane, lanes) : 0;
        unroll<registers>([&](auto j) TESSERA_INLINE_LAMBDA {
          const int column = lane + j * lanes, to = key * panel_tokens + group * column;
          if (Masked && j < blind) {
            if constexpr (By == engine::amx)
              for (T* const values : {scores, products})
                std::fill_n(reinterpret_cast<P*>(values) + to, group * lanes, P(0));
            return;
          }
          batch p[unsigned(group)], ds[unsigned(group)];
          unroll<group>([&](auto i) TESSERA_INLINE_LAMBDA {
            const int at = (key + i) * panel_tokens + column;
            const batch product = batch::load_unaligned(scores + at);
            batch score = product, slope = scale;  // ∂score/∂product
            if constexpr (changes_scores<Score>) {
              score = (*a.score)(product * scale, terms.load(key + i, column));
              slope = a.score->derivative(product * scale, terms.load(key + i, column)) * scale;
            }
            batch x = fms(score, scale_to_two, batch::load_unaligned(log_sums + column));
            if constexpr (Masked) x = limits.apply(x, key + i, column);
            p[i] = simd::exp2(x);
            // A hidden value may be infinite: zero times infinity would be not-a-number.
            const auto seen = [&](batch const& value) TESSERA_INLINE_LAMBDA {
              if constexpr (Masked)
                return select(limits.see(key + i, column), value, batch(T(0)));
              else
                return value;
            };
            const batch dp = batch::load_unaligned(products + at) - batch::load_unaligned(d + column);
            ds[i] = seen(p[i] * slope * dp);
            if constexpr (learned_score_functor<Score>)
              dterms.add(
                  key + i, column,
                  seen(p[i] * dp * a.score->term_derivative(product * scale, terms.load(key + i, column))));
          });
          simd::store_lanes<simd::numbers::normal>(reinterpret_cast<P*>(scores) + to, p);
          simd::store_lanes<simd::numbers::normal>(reinterpret_cast<P*>(products) + to, ds);
        });
      }
    if constexpr (learned_score_functor<Score>)
      if (a.dparameters)
        dterms.for_each(a.panel - keys.panel, [&](std::int64_t distance, T sum) {
          a.score->add_gradient(a.head, distance, sum, a.dparameters);
        });
  }

  /// Transposes (keys, queries) to (queries, keys) in the layout columns::regrouped; keys outside the block
  /// become zero.
  [[gnu::noinline]] static void transpose(P* from, P* to, key_block const& keys) {
    std::fill_n(from, keys.first * panel_tokens, P(0));
    std::fill(from + keys.last * panel_tokens, from + panel_tokens * panel_tokens, P(0));
    constexpr int columns = By == engine::amx ? simd::amx_columns : lanes;
    for (int key = 0; key < panel_tokens * panel_tokens; key += columns * panel_tokens)
      simd::regroup<columns, Arch>(static_cast<P const*>(from + key),
                                   reinterpret_cast<simd::stored_lane<P>*>(to + key));
  }
};

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/statements/attention_heads.hpp
#ifndef TESSERA_SINGLE_STATEMENTS_ATTENTION_HEADS
#define TESSERA_SINGLE_STATEMENTS_ATTENTION_HEADS
#include <algorithm>

namespace tessera { inline namespace TESSERA_ISA {

/// The heads of an attention: as many of keys and values as of queries, or fewer, each for a group of
/// consecutive heads of queries (grouped-query attention: Ainslie et al. 2023).
struct attention_heads {
  int queries, keys;

  attention_heads(int all) : queries(all), keys(all) {}
  /// Throws option_error.
  attention_heads(int of_queries, int of_keys);

  /// Heads of queries for each of keys.
  int group() const { return queries / keys; }
  /// Heads of queries, keys and values in qkv.
  int all() const { return queries + 2 * keys; }
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY attention_heads::attention_heads(int of_queries, int of_keys)
    : queries(of_queries), keys(of_keys) {
  if (queries >= 1 && keys >= 1 && queries % keys == 0) return;
  int below = std::clamp(keys, 1, std::max(1, queries)), above = below;
  while (queries % below != 0) --below;
  while (above < queries && queries % above != 0) ++above;
  throw option_error(message("[attention] ", queries, " heads of queries and ", keys,
                             " of keys and values: the latter must divide the former: make them ", below,
                             below == above ? message("") : message(" or ", above)));
}

#endif

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/tensor/mask.hpp
#ifndef TESSERA_SINGLE_TENSOR_MASK
#define TESSERA_SINGLE_TENSOR_MASK
namespace tessera { inline namespace TESSERA_ISA {

/// The keys of its sequence that a query sees: all keys, or the keys up to its own position.
enum class mask { bidirectional, causal };

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/statements/attention_shape.hpp
#ifndef TESSERA_SINGLE_STATEMENTS_ATTENTION_SHAPE
#define TESSERA_SINGLE_STATEMENTS_ATTENTION_SHAPE
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

// The keys that queries see, and the place of a head's rows.

namespace tessera { inline namespace TESSERA_ISA {

/// The keys that a query sees: the keys of its sequence that `order` allows, of these, if there is a window,
/// only the keys at a distance below it (so `window` keys if causal: Beltagy et al. 2020, Jiang et al. 2023),
/// and, if there are patterns, only the keys in blocks of 64 x 64 positions that the pattern of its head
/// stores (Child et al. 2019, Beltagy et al. 2020, Zaheer et al. 2020). Other blocks are neither read nor
/// computed.
///   blocks   a pattern for each head of queries, or one for all, held by reference; block (i, j) are the
///            queries from 64 i on of a sequence, and its keys from 64 j on. Sequences then begin at
///            multiples of 64 tokens
///   window   0: none
struct visible_keys {
  mask order;
  std::span<pattern const> blocks;
  std::int64_t window;

  visible_keys(mask of_sequence, std::span<pattern const> blocks_of_heads TESSERA_LIFETIMEBOUND = {},
               std::int64_t keys_of_window = 0)
      : order(of_sequence), blocks(blocks_of_heads), window(keys_of_window) {}

  /// The keys [first, last) among `count` keys of its sequence that a query sees by order and window.
  struct bounds {
    std::int64_t first, last;
  };
  bounds of_query(std::int64_t query, std::int64_t count) const {
    bounds seen{0, order == mask::causal ? std::min(count, query + 1) : count};
    if (window == 0) return seen;
    return {std::max<std::int64_t>(0, query + 1 - window), std::min(seen.last, query + window)};
  }
};

using kernels::learned_score_functor;
using kernels::plain_scores;
using kernels::score_functor;

namespace eval {

/// The keys that each lane of a panel of queries sees; lanes beyond the last token see none.
inline kernels::lane_keys keys_of_panel(sequences const& layout, visible_keys const& seen,
                                        std::int64_t panel) {
  kernels::lane_keys keys;
  std::int64_t token = panel * panel_tokens, sequence = layout.sequence_of(token);
  for (int lane = 0; lane < panel_tokens; ++lane, ++token) {
    if (token >= layout.tokens()) {
      keys.set(lane, 0, 0);
      continue;
    }
    while (token >= layout.end(sequence)) ++sequence;
    const std::int64_t begin = layout.begin(sequence);
    const auto visible = seen.of_query(token - begin, layout.keys(sequence));
    keys.set(lane, begin + visible.first, begin + visible.last);
  }
  return keys;
}

/// Panels first … last - 1.
struct panel_range {
  std::int64_t first, last;
};
/// The panels of all sequences that have a token in a panel.
inline panel_range panels_of_sequences(sequences const& layout, std::int64_t panel) {
  const std::int64_t token = panel * panel_tokens;
  const std::int64_t last = std::min(token + panel_tokens, layout.tokens()) - 1;
  return {layout.begin(layout.sequence_of(token)) / panel_tokens,
          ceil_div<std::int64_t>(layout.end(layout.sequence_of(last)), panel_tokens)};
}
/// The largest number of panels_of_sequences for the panels [first, last).
inline std::int64_t most_panels_seen(sequences const& layout, std::int64_t first, std::int64_t last) {
  std::int64_t most = 0;
  for (std::int64_t panel = first; panel < last; ++panel) {
    const panel_range seen = panels_of_sequences(layout, panel);
    most = std::max(most, seen.last - seen.first);
  }
  return most;
}

/// The panels whose keys the queries of a panel may see.
inline panel_range visited_panels(sequences const& layout, visible_keys const& seen, std::int64_t panel) {
  const std::int64_t first = panel * panel_tokens;
  const std::int64_t last = std::min(first + panel_tokens, layout.tokens()) - 1;
  const auto bounds_of = [&](std::int64_t token) {
    const std::int64_t sequence = layout.sequence_of(token), begin = layout.begin(sequence);
    const auto visible = seen.of_query(token - begin, layout.keys(sequence));
    return visible_keys::bounds{begin + visible.first, begin + visible.last};
  };
  const std::int64_t begin = bounds_of(first).first / panel_tokens;
  return {begin, std::max(begin, ceil_div<std::int64_t>(bounds_of(last).last, panel_tokens))};
}

/// The score functor of a statement without one.
inline constexpr plain_scores scores_as_they_are;

/// Panels ahead whose rows of one head stay in the L2 beside the rows in use.
inline constexpr int most_panels_ahead = 8;

/// The arguments of attention and of its backward, and their checks.
template <class T, class Score = plain_scores> struct attention_shape {
  using sum = accumulator_t<T>;
  panel_matrix<T> const* qkv;
  sequences const* layout;
  attention_heads heads;
  visible_keys seen;
  Score const* score;

  int head_size() const { return int(qkv->features() / heads.all()); }
  /// Features of y.
  std::int64_t hidden() const { return std::int64_t(heads.queries) * head_size(); }
  /// The first features in qkv of a head of queries, and of its keys and values.
  std::array<std::int64_t, 3> rows_of(std::int64_t head) const {
    const std::int64_t key = heads.queries + head / heads.group(), size = head_size();
    return {head * size, key * size, (key + heads.keys) * size};
  }
  /// Parameters of a learned score functor for each head, else 0.
  std::int64_t parameters() const {
    if constexpr (learned_score_functor<Score>)
      return score->parameters();
    else
      return 0;
  }

  /// Throws shape_error.
  ///   cached   whether keys stand in a cache, where each sequence has panels of its own
  void check(const char* operation, bool cached = false) const {
    if (heads.queries < 1 || qkv->features() == 0 || qkv->features() % heads.all() != 0)
      throw shape_error(message("[", operation, "] qkv has ", qkv->features(), " features for ",
                                heads.queries, " heads of queries and ", heads.keys,
                                " of keys and values: it needs a multiple of ", std::max(3, heads.all()),
                                ", and at least one head"));
    if (head_size() % element_traits<T>::features_a_lane != 0)
      throw shape_error(message("[", operation, "] ", heads.queries, " heads of ", head_size(),
                                " features: in ", element_traits<T>::name,
                                " two features share a lane, so that a head needs ", "an even number"));
    if (layout->tokens() != qkv->tokens())
      throw shape_error(message("[", operation, "] qkv has ", qkv->tokens(), " tokens but the sequences ",
                                layout->tokens()));
    if constexpr (requires { score->check(heads.queries); }) score->check(heads.queries);
    if (!seen.blocks.empty()) check_blocks(operation, cached);
  }
  template <class E>
  void check(const char* operation, const char* name, panel_matrix<E> const& x, std::int64_t features) const {
    if (x.features() != features || x.tokens() != qkv->tokens())
      throw shape_error(message("[", operation, "] ", name, " is (", x.features(), " features, ", x.tokens(),
                                " tokens) but should be (", features, ", ", qkv->tokens(), ")"));
  }

  kernels::attention_operands<T, Score> operands(int head, std::int64_t panel,
                                                 kernels::lane_keys const& keys) const {
    const auto rows = rows_of(head);
    return {qkv->panel(panel) + rows[0] * panel_tokens,
            qkv->data() + rows[1] * panel_tokens,
            qkv->data() + rows[2] * panel_tokens,
            qkv->panel_stride(),
            head_size(),
            sum(1 / std::sqrt(double(head_size()))),
            &keys,
            score,
            head,
            panel,
            live(head, panel)};
  }
  /// The panels of keys that a panel of queries visits, for one head.
  kernels::live_panels live(int head, std::int64_t panel) const {
    if (seen.blocks.empty()) return {};
    const std::int64_t first = layout->begin(layout->sequence_of(panel * panel_tokens)) / panel_tokens;
    const auto row = seen.blocks[seen.blocks.size() == 1 ? 0 : std::size_t(head)].row(int(panel - first));
    return {false, row.data(), int(row.size()), first};
  }
  /// The rows of a head of queries in a panel of qkv and of tensors as y and dqkv.
  template <class... X>
  kernels::rows_ahead rows_ahead(int head, std::int64_t panel, X const&... others) const {
    kernels::rows_ahead soon;
    soon.bytes = std::size_t(head_size()) * panel_tokens * sizeof(T);
    const auto rows = rows_of(head);
    const auto add = [&](panel_matrix<T> const& x) {
      for (int part = 0; part < (x.features() == qkv->features() ? 3 : 1); ++part)
        soon.add(x.panel(panel) + rows[std::size_t(part)] * panel_tokens);
    };
    add(*qkv);
    (add(others), ...);
    return soon;
  }
  /// Calls visit(range) for the panels of keys that a panel of queries visits, for one head.
  template <class Visit> void for_each_visited(int head, std::int64_t panel, Visit&& visit) const {
    const panel_range keys = visited_panels(*layout, seen, panel);
    if (seen.blocks.empty()) return visit(keys);
    const kernels::live_panels among = live(head, panel);
    for (std::int64_t p = keys.first; p < keys.last; ++p)
      if (among.contain(p)) visit(panel_range{p, p + 1});
  }
  /// Multiply-adds of `products` products of a panel of queries with the keys that it visits, for one head.
  std::int64_t multiplies(int head, std::int64_t panel, int products) const {
    std::int64_t panels = 0;
    for_each_visited(head, panel, [&](panel_range keys) { panels += keys.last - keys.first; });
    return products * panels * panel_tokens * panel_tokens * head_size();
  }
  /// Lists `rows` rows of a tensor, from feature `first` on, in some panels.
  template <class E>
  void touch(std::vector<touched_bytes>& list, panel_matrix<E> const& x, std::int64_t first,
             std::int64_t rows, panel_range panels) const {
    for (std::int64_t p = panels.first; p < panels.last; ++p)
      list.push_back(part_of_panel<E>(memory::user, reinterpret_cast<std::uintptr_t>(x.panel(p)), first,
                                      first + rows, tokens_of(p, x.tokens())));
  }

 private:
  TESSERA_COLD void check_blocks(const char* operation, bool cached) const {
    if (seen.blocks.size() != 1 && std::ssize(seen.blocks) != heads.queries)
      throw shape_error(message("[", operation, "] ", seen.blocks.size(), " patterns of visible blocks for ",
                                heads.queries, " heads of queries: give one for each, or one for all"));
    for (std::int64_t s = 0; s < layout->count(); ++s) {
      if (!cached && layout->begin(s) % panel_tokens != 0 && layout->length(s) > 0)
        throw shape_error(message("[", operation, "] sequence ", s, " begins at token ", layout->begin(s),
                                  ": with visible blocks sequences begin at multiples of ", panel_tokens));
      const std::int64_t length = layout->start(s) + layout->length(s);
      const std::int64_t blocks = ceil_div<std::int64_t>(length, panel_tokens);
      for (std::size_t head = 0; head < seen.blocks.size(); ++head) {
        pattern const& p = seen.blocks[head];
        if (p.block_rows() < blocks || p.block_cols() < blocks)
          throw shape_error(message("[", operation, "] the visible blocks of head ", head, " are a grid of ",
                                    p.block_rows(), " x ", p.block_cols(), ", but sequence ", s, " has ",
                                    length, " tokens, which take ", blocks, " x ", blocks, " blocks of ",
                                    panel_tokens));
      }
    }
  }
};

}  // namespace eval

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/statements/attention.hpp
#ifndef TESSERA_SINGLE_STATEMENTS_ATTENTION
#define TESSERA_SINGLE_STATEMENTS_ATTENTION
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace TESSERA_ISA {

namespace eval {

/// with_engine for attention: AMX sums over whole registers of 32 features.
template <class T, class Use> void with_attention_engine(machine on, int head_size, Use&& use) {
  if (head_size % 32 != 0) on.engines.forbid(engine::amx);
  with_engine<T, T, engine::pairs, sizeof(T) == 2 ? engine::amx : engine::fma>(on, static_cast<Use&&>(use));
}

/// Computes attention. A tile is one head of a panel of queries.
template <class T, engine By, class Score> struct attention_body {
  using sum = accumulator_t<T>;
  attention_shape<T, Score> shape;
  panel_matrix<T>* y;
  panel_matrix<sum>* log_sums;
  operand scratch;

  std::int64_t tiles() const { return shape.heads.queries * y->panels(); }

  void compute(tile const& t) const noexcept {
    const std::int64_t head = t.index / y->panels(), panel = t.index % y->panels();
    const kernels::lane_keys keys = keys_of_panel(*shape.layout, shape.seen, panel);
    // The next tile whose rows are not in use yet.
    const std::int64_t next = t.index + std::min(keys.panels(), most_panels_ahead);
    kernels::attention_panel<simd::native, T, By, Score>::run(
        {shape.operands(int(head), panel, keys), y->panel(panel) + head * shape.head_size() * panel_tokens,
         log_sums->panel(panel) + head * panel_tokens, tokens_of(panel, y->tokens()), t.address<sum>(scratch),
         next < tiles() ? shape.rows_ahead(int(next / y->panels()), next % y->panels(), *y)
                        : kernels::rows_ahead{}});
  }

  void describe(tile const& t, task_description& d) const {
    const std::int64_t head = t.index / y->panels(), panel = t.index % y->panels();
    const std::int64_t size = shape.head_size();
    const panel_range own{panel, panel + 1};
    const auto rows = shape.rows_of(head);
    shape.touch(d.reads, *shape.qkv, rows[0], size, own);
    for (const int part : {1, 2})
      shape.for_each_visited(int(head), panel, [&](panel_range keys) {
        shape.touch(d.reads, *shape.qkv, rows[std::size_t(part)], size, keys);
      });
    shape.touch(d.writes, *y, head * size, size, own);
    shape.touch(d.writes, *log_sums, head, 1, own);
    d.multiplies += shape.multiplies(int(head), panel, 2);
  }
};

template <class T, class Score> struct TESSERA_STATEMENT attention_statement {
  using statement_tag = void;
  using sum = accumulator_t<T>;
  attention_shape<T, Score> shape;
  panel_matrix<T>* y;
  panel_matrix<sum>* log_sums;

  /// Throws shape_error.
  void check() const {
    shape.check("attention");
    shape.check("attention", "y", *y, shape.hidden());
    shape.check("attention", "log_sums", *log_sums, shape.heads.queries);
    if (static_cast<void const*>(y) == log_sums)
      throw shape_error("[attention] y and log_sums are the same tensor: give two");
  }

  void lower(plan& p) const {
    check();
    step_draft s("attention", cut::lines);
    s.writes(all_of(*y));
    s.writes(all_of(*log_sums));
    s.reads(all_of(*shape.qkv));
    s.tiles = int(shape.heads.queries * y->panels());
    const operand scratch =
        p.worker_memory(std::size_t(kernels::attention_scratch<T>(shape.head_size())) * sizeof(sum));
    with_attention_engine<T>(p.machine(), shape.head_size(), [&]<engine By>(engine_constant<By>) {
      s.around = around_products<By>;
      p.add(s, attention_body<T, By, Score>{shape, y, log_sums, scratch});
    });
  }
};

/// Computes the gradients of attention. A tile is one head of keys, with its heads of queries, of a group of
/// panels: panels outside the group share no sequence with it, so no other tile adds to its gradients.
template <class T, engine By, class Score> struct attention_backward_body {
  using sum = accumulator_t<T>;
  attention_shape<T, Score> shape;
  panel_matrix<T> const* y;
  panel_matrix<sum> const* log_sums;
  panel_matrix<T> const* dy;
  panel_matrix<T>* dqkv;
  operand scratch;
  operand dparameters;  // a row for each group of panels, head by head; stride 0 if not wanted

  std::int64_t panel_group(tile const& t) const { return t.index / shape.heads.keys; }
  panel_range panels_of(tile const& t) const {
    const auto bounds = shape.layout->panel_groups().subspan(std::size_t(panel_group(t)), 2);
    return {bounds[0], bounds[1]};
  }
  range queries_of(tile const& t) const {
    const int first = int(t.index % shape.heads.keys) * shape.heads.group();
    return {first, first + shape.heads.group()};
  }

  void compute(tile const& t) const noexcept {
    const range heads = queries_of(t);
    const int size = shape.head_size();
    const panel_range panels = panels_of(t);
    const auto rows = shape.rows_of(heads.first);
    sum* const room = t.address<sum>(scratch);
    kernels::key_sums<sum> sums[2];  // dk and dv
    for (int part = 0; part < 2; ++part)
      if constexpr (std::is_same_v<T, sum>) {
        sums[part] = {dqkv->data() + rows[std::size_t(1 + part)] * panel_tokens, dqkv->panel_stride(),
                      dqkv->panels()};
      } else {
        const std::int64_t numbers = kernels::wide_numbers<T>(size);
        sums[part] = {room + kernels::attention_backward_scratch<T>(size) + part * numbers, 2 * numbers,
                      most_panels_seen(*shape.layout, panels.first, panels.last)};
      }
    const auto dparameters_of = [&](int head) -> sum* {
      if (dparameters.stride == 0) return nullptr;
      return t.address<sum>(dparameters, panel_group(t)) + head * shape.parameters();
    };
    for (int head = heads.first; head < heads.last && dparameters.stride > 0; ++head)
      std::fill_n(dparameters_of(head), shape.parameters(), sum(0));
    // No later query sees panels before `complete`: their gradients are stored. Panels complete … begun - 1
    // have sums.
    std::int64_t begun = panels.first, complete = panels.first;
    const auto complete_until = [&](std::int64_t panel) {
      for (; complete < panel; ++complete)
        for (int part = 0; part < 2; ++part)
          simd::store_narrowed<simd::native>(
              sums[part].of_panel(complete), size,
              dqkv->panel(complete) + rows[std::size_t(1 + part)] * panel_tokens);
    };
    for (std::int64_t panel = panels.first; panel < panels.last; ++panel) {
      const panel_range seen = panels_of_sequences(*shape.layout, panel);
      complete_until(seen.first);
      for (; begun < seen.last; ++begun)
        for (auto const& part : sums) std::fill_n(part.of_panel(begun), size * panel_tokens, sum(0));
      const kernels::lane_keys keys = keys_of_panel(*shape.layout, shape.seen, panel);
      for (int head = heads.first; head < heads.last; ++head) {
        // Prefetches for the next head, unless that would evict rows that this head still needs.
        kernels::rows_ahead soon;
        if (head + 1 < shape.heads.queries && panels.last - panels.first <= most_panels_ahead)
          soon = shape.rows_ahead(head + 1, panel, *y, *dy, *dqkv);
        const std::int64_t row = std::int64_t(head) * size * panel_tokens;
        kernels::attention_backward_panel<simd::native, T, By, Score>::run(
            {shape.operands(head, panel, keys), y->panel(panel) + row, dy->panel(panel) + row,
             log_sums->panel(panel) + head * panel_tokens, dqkv->panel(panel) + row, sums[0], sums[1], room,
             soon, dparameters_of(head)});
      }
    }
    complete_until(panels.last);
  }

  void describe(tile const& t, task_description& d) const {
    const panel_range panels = panels_of(t);
    const range heads = queries_of(t);
    const std::int64_t size = shape.head_size();
    const auto rows = shape.rows_of(heads.first);
    for (const int part : {0, 1, 2}) {
      const std::int64_t first = rows[std::size_t(part)], features = part == 0 ? heads.size() * size : size;
      shape.touch(d.reads, *shape.qkv, first, features, panels);
      shape.touch(d.writes, *dqkv, first, features, panels);
    }
    for (auto const* x : {y, dy}) shape.touch(d.reads, *x, heads.first * size, heads.size() * size, panels);
    shape.touch(d.reads, *log_sums, heads.first, heads.size(), panels);
    const std::int64_t bytes = shape.parameters() * std::int64_t(sizeof(sum));
    if (dparameters.stride > 0)
      d.write({dparameters.owner,
               dparameters.at + dparameters.stride * std::size_t(panel_group(t)) +
                   std::size_t(heads.first * bytes),
               heads.size() * bytes});
    for (std::int64_t panel = panels.first; panel < panels.last; ++panel)
      for (int head = heads.first; head < heads.last; ++head)
        d.multiplies += shape.multiplies(head, panel, 5);
  }
};

template <class T, class Score> struct TESSERA_STATEMENT attention_backward_statement {
  using statement_tag = void;
  using sum = accumulator_t<T>;
  attention_shape<T, Score> shape;
  panel_matrix<T> const* y;
  panel_matrix<sum> const* log_sums;
  panel_matrix<T> const* dy;
  panel_matrix<T>* dqkv;
  feature_vector<sum>* dparameters;  // null if not wanted

  /// Throws shape_error.
  void check() const {
    shape.check("attention_backward");
    shape.check("attention_backward", "y", *y, shape.hidden());
    shape.check("attention_backward", "log_sums", *log_sums, shape.heads.queries);
    shape.check("attention_backward", "dy", *dy, shape.hidden());
    shape.check("attention_backward", "dqkv", *dqkv, shape.qkv->features());
    if (dqkv == shape.qkv)
      throw shape_error("[attention_backward] dqkv is qkv itself: the gradient cannot be computed in place");
    if (dparameters && dparameters->size() != shape.heads.queries * shape.parameters())
      throw shape_error(message("[attention_backward] dparameters has ", dparameters->size(),
                                " numbers but should have ", shape.heads.queries * shape.parameters(), ": ",
                                shape.parameters(), " for each of ", shape.heads.queries, " heads"));
  }

  void lower(plan& p) const {
    check();
    step_draft s("attention backward", cut::lines);
    const int groups = int(shape.layout->panel_groups().size()) - 1;
    s.tiles = shape.heads.keys * groups;
    s.writes(all_of(*dqkv));
    for (auto* read : {shape.qkv, y, dy}) s.reads(all_of(*read));
    s.reads(all_of(*log_sums));
    // Wide sums of the gradients of keys and values: 1 MiB for head size 64 and 2048 tokens.
    const std::int64_t wide =
        2 * kernels::wide_numbers<T>(shape.head_size()) * most_panels_seen(*shape.layout, 0, dqkv->panels());
    const operand scratch = p.worker_memory(
        std::size_t(kernels::attention_backward_scratch<T>(shape.head_size()) + wide) * sizeof(sum));
    operand rows{};
    if (dparameters && dparameters->size() > 0) {
      const std::size_t row = std::size_t(dparameters->size()) * sizeof(sum);
      rows = p.run_memory(row * std::size_t(groups), row);
      rows.touches = footprint::everything;
      s.writes(rows);
    }
    with_attention_engine<T>(p.machine(), shape.head_size(), [&]<engine By>(engine_constant<By>) {
      s.around = around_products<By>;
      p.add(s, attention_backward_body<T, By, Score>{shape, y, log_sums, dy, dqkv, scratch, rows});
    });
    if (rows.stride > 0) add_row_sum<sum>(p, all_of(*dparameters), rows, dparameters->size(), groups, true);
  }
};

}  // namespace eval

/// y = V softmax(Kᵀ Q / √d), head by head and sequence by sequence.
///   qkv (3 hidden, tokens)    the features of q, then of k, then of v; of each, head h has features
///                             h d … (h + 1) d - 1 with d = hidden / heads. Of fewer heads of keys and values
///                             than of queries: ((queries + 2 keys) d, tokens)
///   y (hidden, tokens)        zero where a query sees no key
///   log_sums (heads, tokens)  log Σ e^score of each query, for backward; -infinity where a query sees no key
///   seen                      mask::causal or mask::bidirectional; with a window, or the blocks that each
///                             head sees
///   score                     changes the scores before the softmax
/// Scores and sums are in the accumulator type. If the engine multiplies pairs of T, or is AMX, which takes
/// heads of multiples of 32 features, probabilities, and in backward the gradients of scores, are rounded to
/// T before sums over tokens: each product has a relative error of unit_roundoff<T>, log_sums none. Throws
/// shape_error, also if heads would share lanes. All arguments are held by reference until run.
template <element T, score_functor Score = plain_scores>
auto attention(panel_matrix<T> const& qkv, sequences const& layout, attention_heads heads, visible_keys seen,
               panel_matrix<T>& y, panel_matrix<accumulator_t<T>>& log_sums,
               Score const& score = eval::scores_as_they_are) {
  const eval::attention_statement<T, Score> statement{{&qkv, &layout, heads, seen, &score}, &y, &log_sums};
  statement.check();
  return statement;
}

/// dqkv, the gradient of a loss by qkv and as large, from dy (hidden, tokens), its gradient by y, and the
/// results of `attention`. The gradient by the parameters of a learned score functor is added to dparameters:
/// for head h, the numbers h n … (h + 1) n - 1 of n = score.parameters() for each; if nobody wants it, null.
/// Throws shape_error. All are held by reference until run.
template <element T, score_functor Score = plain_scores>
auto attention_backward(panel_matrix<T> const& qkv, panel_matrix<T> const& y,
                        panel_matrix<accumulator_t<T>> const& log_sums, panel_matrix<T> const& dy,
                        sequences const& layout, attention_heads heads, visible_keys seen,
                        panel_matrix<T>& dqkv, Score const& score = eval::scores_as_they_are,
                        feature_vector<accumulator_t<T>>* dparameters = nullptr) {
  const eval::attention_backward_statement<T, Score> statement{
      {&qkv, &layout, heads, seen, &score}, &y, &log_sums, &dy, &dqkv, dparameters};
  statement.check();
  return statement;
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/kernels/embedding.hpp
#ifndef TESSERA_SINGLE_KERNELS_EMBEDDING
#define TESSERA_SINGLE_KERNELS_EMBEDDING
#include <algorithm>
#include <cstdint>

// Copies rows of a dense table, stored in blocks, to tokens of panels and back. The loops go by block columns
// of the table, which are `Block::cols` features of a panel, so that the touched parts of both fit the L1. A
// row of the table is a column of the panel: squares of `lanes` tokens × `lanes` features are transposed in
// registers, and the remainder moves number by number.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

template <class Arch, class T, class Block> struct embedding {
  using sum = accumulator_t<T>;

  /// Address of row `id` of a table at block column `column`.
  template <class Value>
  static Value* row(Value* table, std::int64_t block_cols, std::int64_t column, int id) {
    return table + ((id / Block::rows) * block_cols + column) * Block::elements +
           id % Block::rows * Block::cols;
  }

  /// y(:, t) = table(ids[t], :), or += if `accumulates`, for the tokens of a panel and block columns [first,
  /// last).
  template <class Value>
  static void gather(Value const* table, std::int64_t block_cols, std::int32_t const* ids, int tokens,
                     bool accumulates, T* y, std::int64_t features, int first, int last) noexcept {
    for (std::int64_t column = first; column < last; ++column) {
      const std::int64_t feature = column * Block::cols;
      const int height = int(std::min<std::int64_t>(Block::cols, features - feature));
      const auto row_of = [&](int t) TESSERA_INLINE_LAMBDA {
        Value const* const from = row(table, block_cols, column, ids[t]);
        if (column + 1 < last)
          simd::prefetch<1>(from + Block::elements);  // this row of the next block column
        return from;
      };
      int t = 0;
      if (in_tiles && height == Block::cols)
        for (; t + lanes <= tokens; t += lanes) {
          Value const* from[unsigned(lanes)];
          unroll<lanes>([&](auto i) TESSERA_INLINE_LAMBDA { from[i] = row_of(t + i); });
          for (int f = 0; f < Block::cols; f += lanes) gather_tile(from, f, accumulates, y, feature + f, t);
        }
      for (; t < tokens; ++t) {
        Value const* const from = row_of(t);
        for_each_feature(y, feature, height, t, [&](int f, T& to) TESSERA_INLINE_LAMBDA {
          to = T((accumulates ? sum(to) : sum(0)) + sum(from[f]));
        });
      }
    }
  }

  /// table(ids[t], :) += y(:, t), for the tokens of a panel in ascending order, in one block column.
  static void scatter(sum* table, std::int64_t block_cols, std::int32_t const* ids, int tokens, T const* y,
                      std::int64_t features, std::int64_t column) noexcept {
    const std::int64_t feature = column * Block::cols;
    const int height = int(std::min<std::int64_t>(Block::cols, features - feature));
    int t = 0;
    if (in_tiles && height == Block::cols)
      for (; t + lanes <= tokens; t += lanes)
        for (int f = 0; f < Block::cols; f += lanes) {
          tile all = load_tile(y, feature + f, t);
          simd::transpose<sum, Arch>(all.r);
          for (int i = 0; i < lanes; ++i) {
            sum* const to = row(table, block_cols, column, ids[t + i]) + f;
            (batch::load_unaligned(to) + batch(all.r[i])).store_unaligned(to);
          }
        }
    for (; t < tokens; ++t) {
      sum* const to = row(table, block_cols, column, ids[t]);
      for_each_feature(y, feature, height, t, [&](int f, T from) TESSERA_INLINE_LAMBDA { to[f] += from; });
    }
  }

 private:
  using batch = simd::batch<sum, Arch>;
  static constexpr int lanes = simd::lanes<sum, Arch>, features_a_lane = element_traits<T>::features_a_lane;
  static constexpr bool in_tiles = Block::cols % lanes == 0;

  /// A square of `lanes` features × `lanes` tokens: a register for each feature, or for each token.
  struct tile {
    simd::reg<sum, Arch> r[unsigned(lanes)];
  };

  /// Loads the square at (feature, token) of a panel.
  TESSERA_INLINE static tile load_tile(T const* y, std::int64_t feature, int token) {
    tile all;
    unroll<lanes / features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
      simd::load_features<sum, Arch>(y + (feature + features_a_lane * i) * panel_tokens, token,
                                     all.r + features_a_lane * i);
    });
    return all;
  }

  /// Copies features f … f + lanes - 1 of `lanes` rows to the square at (feature, token) of a panel.
  template <class Value>
  TESSERA_INLINE static void gather_tile(Value const* const (&from)[unsigned(lanes)], int f, bool accumulates,
                                         T* y, std::int64_t feature, int token) {
    tile all;
    unroll<lanes>([&](auto i)
                      TESSERA_INLINE_LAMBDA { all.r[i] = simd::load_values<Arch>(from[i] + f).data; });
    simd::transpose<sum, Arch>(all.r);
    if (accumulates) {
      const tile old = load_tile(y, feature, token);
      unroll<lanes>([&](auto i)
                        TESSERA_INLINE_LAMBDA { all.r[i] = (batch(old.r[i]) + batch(all.r[i])).data; });
    }
    unroll<lanes / features_a_lane>([&](auto i) TESSERA_INLINE_LAMBDA {
      batch features[unsigned(features_a_lane)];
      unroll<features_a_lane>(
          [&](auto j) TESSERA_INLINE_LAMBDA { features[j] = batch(all.r[features_a_lane * i + j]); });
      simd::store_lanes<simd::numbers::any>(y + place_in_panel<T>(feature + features_a_lane * i, token),
                                            features);
    });
  }

  /// Calls visit(f, y(feature + f, t)) for the `height` features of a block column: lane by lane if the
  /// column begins at a lane.
  template <class Value, class Visit>
  TESSERA_INLINE static void for_each_feature(Value* y, std::int64_t feature, int height, int t,
                                              Visit&& visit) {
    int f = 0;
    if constexpr (Block::cols % features_a_lane == 0)
      for (Value* const first = y + place_in_panel<T>(feature, t); f + features_a_lane <= height;
           f += features_a_lane)
        for (int i = 0; i < features_a_lane; ++i) visit(f + i, first[f * panel_tokens + i]);
    for (; f < height; ++f) visit(f, y[place_in_panel<T>(feature + f, t)]);
  }
};

/// y(:, t) *= scales[ids[t]], for some features of the tokens of a panel.
template <class T>
void scale_tokens(float const* scales, std::int32_t const* ids, int tokens, T* y, range features) noexcept {
  for (int t = 0; t < tokens; ++t) {
    const float scale = scales[ids[t]];
    for (int f = features.first; f < features.last; ++f) {
      T& value = y[place_in_panel<T>(f, t)];
      value = T(accumulator_t<T>(value) * accumulator_t<T>(scale));
    }
  }
}

/// y(:, t) = x(:, positions[t]), for features [first, last) of one panel of y.
///   stride   elements from one panel of x to the next
template <class T>
void gather_tokens(T const* x, std::int64_t stride, std::int32_t const* positions, int tokens, T* y,
                   std::int64_t first, std::int64_t last) noexcept {
  for (int t = 0; t < tokens; ++t) {
    T const* const from = x + positions[t] / panel_tokens * stride;
    for (std::int64_t f = first; f < last; ++f)
      y[place_in_panel<T>(f, t)] = from[place_in_panel<T>(f, positions[t] % panel_tokens)];
  }
}

/// Reverse of gather_tokens, for one panel of x that holds tokens begin … begin + tokens - 1: x(:,
/// positions[i]) = y(:, i), and zero at all other tokens. Positions ascend.
///   stride   elements from one panel of y to the next
template <class T>
void scatter_tokens(T const* y, std::int64_t stride, std::int32_t const* positions, std::int64_t count,
                    std::int64_t begin, int tokens, T* x, std::int64_t first, std::int64_t last) noexcept {
  const std::int64_t stored = round_up<std::int64_t>(last, element_traits<T>::features_a_lane);
  std::fill(x + first * panel_tokens, x + stored * panel_tokens, T(0));
  std::int64_t i = std::lower_bound(positions, positions + count, begin) - positions;
  for (; i < count && positions[i] < begin + tokens; ++i) {
    T const* const from = y + i / panel_tokens * stride;
    for (std::int64_t f = first; f < last; ++f)
      x[place_in_panel<T>(f, positions[i] - begin)] = from[place_in_panel<T>(f, i % panel_tokens)];
  }
}

}}}  // namespace tessera::TESSERA_ISA::kernels
#endif

// ---- tessera/tensor/row_quantised_matrix.hpp
#ifndef TESSERA_SINGLE_TENSOR_ROW_QUANTISED_MATRIX
#define TESSERA_SINGLE_TENSOR_ROW_QUANTISED_MATRIX
#include <cstdint>
#include <utility>

namespace tessera { inline namespace TESSERA_ISA {

/// A matrix in 8 bits, each row with a scale of its own, as weights are kept for use ("per channel": Wu et
/// al. 2020, §3.1.3): W(i, :) ≈ scale[i] * values(i, :). As a factor of a product it is W.
///   values (rows, cols)   scale (rows)
template <element E, class Block>
  requires(sizeof(E) == 1)
struct row_quantised_matrix {
  using value_type = E;
  using block = Block;

  block_sparse_matrix<E, Block> values;
  feature_vector<float> scale;

  std::int64_t rows() const { return values.rows(); }
  std::int64_t cols() const { return values.cols(); }
  tessera::pattern const& pattern() const { return values.pattern(); }
  static void parts(auto& each, auto&... of) { each("", of.values...), each("scale", of.scale...); }
};

/// The expression scale ⊙ (values x).
template <element E, class Block, class X>
auto operator*(row_quantised_matrix<E, Block> const& w TESSERA_LIFETIMEBOUND, X&& x) {
  return w.scale * (w.values * std::forward<X>(x));
}
template <element E, class Block, class X>
void operator*(row_quantised_matrix<E, Block> const&&, X&&) = delete;

/// Wᵀ of a row_quantised_matrix, for use in a product: transposed(w) * y.
template <element E, class Block> struct row_quantised_transpose {
  row_quantised_matrix<E, Block> const& of;
};
template <element E, class Block>
row_quantised_transpose<E, Block> transposed(row_quantised_matrix<E, Block> const& w TESSERA_LIFETIMEBOUND) {
  return {w};
}
template <element E, class Block> void transposed(row_quantised_matrix<E, Block> const&&) = delete;

/// The expression valuesᵀ (scale ⊙ y).
template <element E, class Block, class Y> auto operator*(row_quantised_transpose<E, Block> const& w, Y&& y) {
  return transposed(w.of.values) * (w.of.scale * std::forward<Y>(y));
}

}}  // namespace tessera::TESSERA_ISA
#endif

// ---- tessera/statements/embedding.hpp
#ifndef TESSERA_SINGLE_STATEMENTS_EMBEDDING
#define TESSERA_SINGLE_STATEMENTS_EMBEDDING
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

// Statements that move whole tokens: rows of a table to tokens and back, chosen tokens to a smaller
// activation and back. Every result has one writer and a fixed order of sums. Indices are held by reference
// and must live until the end of the run.

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

/// The bytes of a row of a table in some of its block columns.
template <class Value, class Block>
touched_bytes table_row(operand const& table, int block_cols, range some, std::int64_t id) {
  const std::int64_t at =
      (id / Block::rows * block_cols + some.first) * Block::elements + id % Block::rows * Block::cols;
  touched_bytes row = elements_of<Value>(table, 0, at, Block::cols);
  row.count = some.size(), row.stride = Block::elements * std::int64_t(sizeof(Value));
  return row;
}

/// y(:, t) = or += a row of a table. A tile is a panel of y, or a range of its block columns in the table.
template <class T, class Value, class Block> struct row_gathering_body {
  panels_to<T> y;
  operand table;
  std::int32_t const* ids;
  int block_cols;  // of the table
  bool accumulates;
  operand scale = {};      // of rows in 8 bits
  bool has_scale = false;  // then it does not accumulate

  panels_to<T> const& destination() const { return y; }
  range columns_of(tile const& t) const { return part_of(block_cols, t.part, t.parts); }
  range features_of(tile const& t) const {
    const auto [first, last] = columns_of(t);
    return {first * Block::cols, int(std::min<std::int64_t>(y.features, last * Block::cols))};
  }
  void compute_at(tile const& t, T* panel) const noexcept {
    const range l = columns_of(t);
    kernels::embedding<simd::native, T, Block>::gather(
        t.address<Value const>(table), block_cols, ids + t.index * panel_tokens, tokens_of(t.index, y.tokens),
        accumulates, panel, y.features, l.first, l.last);
    if constexpr (sizeof(Value) == 1)
      if (has_scale)
        kernels::scale_tokens(t.address<float const>(scale), ids + t.index * panel_tokens,
                              tokens_of(t.index, y.tokens), panel, features_of(t));
  }
  void describe(tile const& t, task_description& d) const {
    for (int i = 0; i < tokens_of(t.index, y.tokens); ++i) {
      const std::int64_t id = ids[t.index * panel_tokens + i];
      read_once(d, table_row<Value, Block>(table, block_cols, columns_of(t), id));
      if (has_scale) read_once(d, elements_of<float>(scale, 0, id, 1));
    }
    if (accumulates) d.read(y.part(t, features_of(t)));
  }
};

/// Rows of a table += tokens of y. A tile owns a block column of the whole table.
template <class T, class Value, class Block> struct row_scattering_body {
  operand table, y;
  std::int64_t features, tokens;
  std::int32_t const* ids;
  int block_cols;

  void compute(tile const& t) const noexcept {
    for (std::int64_t panel = 0; panel * panel_tokens < tokens; ++panel)
      kernels::embedding<simd::native, T, Block>::scatter(
          t.address<Value>(table), block_cols, ids + panel * panel_tokens, tokens_of(panel, tokens),
          t.address<T const>(y, panel), features, t.index);
  }
  void describe(tile const& t, task_description& d) const {
    const auto column = int(t.index);
    std::vector<std::int32_t> rows(ids, ids + tokens);
    std::ranges::sort(rows);
    const auto repeated = std::ranges::unique(rows);
    rows.erase(repeated.begin(), repeated.end());
    for (const std::int32_t id : rows) {
      d.write(table_row<Value, Block>(table, block_cols, {column, column + 1}, id));
      d.read(d.writes.back());
    }
    for (std::int64_t panel = 0; panel * panel_tokens < tokens; ++panel)
      d.read(part_of_panel<T>(y, panel, column * Block::cols,
                              std::min<std::int64_t>(features, (column + 1) * Block::cols),
                              tokens_of(panel, tokens)));
  }
};

/// The direction in which chosen tokens move.
enum class token_move : std::uint8_t {
  gather,   // tokens at some positions become the tokens 0, 1, … of the result
  scatter,  // the tokens 0, 1, … go to some positions of the result; its other tokens become zero
};

/// Moves tokens. A tile is a panel of the result, or a range of its granules.
template <class T> struct token_choice_body {
  panels_to<T> to;
  operand from;
  std::int32_t const* positions;
  std::int64_t count;
  token_move move;

  panels_to<T> const& destination() const { return to; }
  range features_of(tile const& t) const { return granules_of(to.features, t.part, t.parts); }
  std::int64_t stride() const { return round_up<std::int64_t>(to.features, granule) * panel_tokens; }

  void compute_at(tile const& t, T* panel) const noexcept {
    const range f = features_of(t);
    const int live = tokens_of(t.index, to.tokens);
    T const* const source = t.address<T const>(from, 0);
    if (move == token_move::scatter)
      kernels::scatter_tokens(source, stride(), positions, count, t.index * panel_tokens, live, panel,
                              f.first, f.last);
    else
      kernels::gather_tokens(source, stride(), positions + t.index * panel_tokens, live, panel, f.first,
                             f.last);
  }
  void describe(tile const& t, task_description& d) const {
    constexpr int group = element_traits<T>::features_a_lane;
    const range f = features_of(t);
    const int live = tokens_of(t.index, to.tokens);
    const std::int64_t first = t.index * panel_tokens;
    const auto read = [&](std::int64_t token) {
      const std::int64_t at =
          token / panel_tokens * stride() + place_in_panel<T>(f.first, token % panel_tokens);
      d.read({from.owner, from.at + std::uintptr_t(at) * sizeof(T), group * std::int64_t(sizeof(T)),
              ceil_div<std::int64_t>(f.size(), group), group * panel_tokens * std::int64_t(sizeof(T))});
    };
    if (move == token_move::scatter) {
      const auto* at = std::lower_bound(positions, positions + count, first);
      for (; at < positions + count && *at < first + live; ++at) read(at - positions);
    } else {
      for (int i = 0; i < live; ++i) read(positions[first + i]);
    }
  }
};

/// Throws shape_error, with the place, unless every index is in 0 … end - 1.
void require_indices(const char* operation, const char* what, std::span<std::int32_t const> index,
                     std::int64_t end, const char* hint = "");

template <class T, class Value, class Block>
void require_table(const char* operation, block_sparse_matrix<Value, Block> const& table,
                   panel_matrix<T> const& y, std::span<std::int32_t const> ids) {
  if (!table.pattern().is_dense())
    throw shape_error(message("[", operation, "] the table stores ", table.pattern().blocks(),
                              " blocks: it must be dense"));
  if (table.cols() != y.features() || std::int64_t(ids.size()) != y.tokens())
    throw shape_error(message("[", operation, "] the table has ", table.cols(), " columns and there are ",
                              ids.size(), " ids, but the activation has ", y.features(), " features and ",
                              y.tokens(), " tokens"));
  require_indices(operation, "rows in the table", ids, table.rows());
}

template <class T, class Value, class Block> struct TESSERA_STATEMENT gathered_rows {
  static_assert(std::is_same_v<accumulator_t<T>, accumulator_t<Value>>,
                "the table and the activation have different element types: " TESSERA_ONE_ACCUMULATOR);
  using statement_tag = void;
  char const* operation;
  panel_matrix<T>* y;
  block_sparse_matrix<Value, Block> const* table;
  std::span<std::int32_t const> ids;
  bool accumulates;
  feature_vector<float> const* scale = nullptr;  // of the rows, or none

  /// Throws shape_error.
  void check() const {
    require_table(operation, *table, *y, ids);
    if (scale && scale->size() != table->rows())
      throw shape_error(message("[", operation, "] there are ", scale->size(), " scales of ", table->rows(),
                                " rows of the table"));
  }

  void lower(plan& p) const {
    check();
    step_draft s("gather", cut::panels);
    s.tiles = int(y->panels());
    s.most_parts = table->pattern().block_cols();
    const panels_to<T> to{s.writes(by_panel(*y)), y->features(), y->tokens()};
    const operand from = s.reads(all_of(*table));
    row_gathering_body<T, Value, Block> body{to, from, ids.data(), s.most_parts, accumulates};
    if (scale) body.scale = s.reads(all_of(*scale)), body.has_scale = true;
    p.add(s, body);
  }
};

template <class T, class Value, class Block> struct TESSERA_STATEMENT scattered_rows {
  static_assert(
      std::is_same_v<Value, accumulator_t<T>>,
      "the table that tokens are summed into has the accumulator type: float for those of two bytes");
  using statement_tag = void;
  block_sparse_matrix<Value, Block>* table;
  panel_matrix<T> const* y;
  std::span<std::int32_t const> ids;

  /// Throws shape_error.
  void check() const { require_table("scatter_rows", *table, *y, ids); }

  void lower(plan& p) const {
    check();
    step_draft s("scatter", cut::lines);
    s.tiles = table->pattern().block_cols();
    const operand to = s.writes(all_of(*table));
    operand from = s.reads(all_of(*y));
    from.stride = by_panel(*y).stride;
    p.add(s, row_scattering_body<T, Value, Block>{to, from, y->features(), y->tokens(), ids.data(), s.tiles});
  }
};

template <class T> struct TESSERA_STATEMENT chosen_tokens {
  using statement_tag = void;
  panel_matrix<T>* to;
  panel_matrix<T> const* from;
  std::span<std::int32_t const> positions;  // in the activation that has more tokens
  token_move move;

  /// Throws shape_error.
  void check() const {
    const bool scatters = move == token_move::scatter;
    char const* const operation = scatters ? "scatter_tokens" : "gather_tokens";
    auto const& few = scatters ? *from : *to;
    auto const& many = scatters ? *to : *from;
    if (to->features() != from->features() || few.tokens() != std::int64_t(positions.size()))
      throw shape_error(message("[", operation, "] there are ", positions.size(),
                                " positions in an activation of ", many.features(),
                                " features, but the chosen tokens are ", few.tokens(), " of ", few.features(),
                                " features"));
    if (to == from)
      throw shape_error(
          message("[", operation, "] the destination is also the source: tokens cannot move in place"));
    require_indices(operation, "tokens", positions, many.tokens());
    for (std::size_t i = 1; scatters && i < positions.size(); ++i)
      if (positions[i - 1] >= positions[i])
        throw shape_error(message("[scatter_tokens] position ", positions[i], " follows ", positions[i - 1],
                                  ": positions must ascend"));
  }

  void lower(plan& p) const {
    check();
    step_draft s("move tokens", cut::panels);
    s.tiles = int(to->panels());
    s.most_parts = int(ceil_div<std::int64_t>(to->features(), granule));
    const panels_to<T> written{s.writes(by_panel(*to)), to->features(), to->tokens()};
    const operand read = s.reads(all_of(*from));
    p.add(s, token_choice_body<T>{written, read, positions.data(), std::int64_t(positions.size()), move});
  }
};

}  // namespace eval

/// y(:, t) = row ids[t] of a dense table (rows, features).
template <element T, element Value, class Block>
auto gather_rows(panel_matrix<T>& y, block_sparse_matrix<Value, Block> const& table,
                 std::span<std::int32_t const> ids) {
  const eval::gathered_rows<T, Value, Block> statement{"gather_rows", &y, &table, ids, false};
  statement.check();
  return statement;
}

/// Of a table in 8 bits, whose rows have scales.
template <element T, element E, class Block>
auto gather_rows(panel_matrix<T>& y, row_quantised_matrix<E, Block> const& table,
                 std::span<std::int32_t const> ids) {
  const eval::gathered_rows<T, E, Block> statement{"gather_rows", &y,    &table.values,
                                                   ids,           false, &table.scale};
  statement.check();
  return statement;
}

/// y(:, t) += row ids[t] of a dense table (rows, features), rounded once.
template <element T, element Value, class Block>
auto add_rows(panel_matrix<T>& y, block_sparse_matrix<Value, Block> const& table,
              std::span<std::int32_t const> ids) {
  const eval::gathered_rows<T, Value, Block> statement{"add_rows", &y, &table, ids, true};
  statement.check();
  return statement;
}

/// Row ids[t] of a dense table += y(:, t): the gradient of gather_rows. The tokens of a row are added in
/// ascending order, in the accumulator type, which is the element of the table.
template <element T, element Value, class Block>
auto scatter_rows(block_sparse_matrix<Value, Block>& table, panel_matrix<T> const& y,
                  std::span<std::int32_t const> ids) {
  const eval::scattered_rows<T, Value, Block> statement{&table, &y, ids};
  statement.check();
  return statement;
}

/// y(:, i) = x(:, positions[i]).
template <element T>
auto gather_tokens(panel_matrix<T>& y, panel_matrix<T> const& x, std::span<std::int32_t const> positions) {
  const eval::chosen_tokens<T> statement{&y, &x, positions, eval::token_move::gather};
  statement.check();
  return statement;
}

/// x(:, positions[i]) = y(:, i), and zero at all other tokens. Positions must ascend.
template <element T>
auto scatter_tokens(panel_matrix<T>& x, panel_matrix<T> const& y, std::span<std::int32_t const> positions) {
  const eval::chosen_tokens<T> statement{&x, &y, positions, eval::token_move::scatter};
  statement.check();
  return statement;
}

#ifdef TESSERA_BODY

namespace eval {

TESSERA_BODY void require_indices(const char* operation, const char* what,
                                  std::span<std::int32_t const> index, std::int64_t end, const char* hint) {
  for (std::size_t i = 0; i < index.size(); ++i)
    if (index[i] < 0 || index[i] >= end)
      throw shape_error(message("[", operation, "] index ", i, " is ", index[i], " but there are ", end, " ",
                                what, ": 0 … ", end - 1, " are possible", hint));
}

}  // namespace eval

#endif

}}  // namespace tessera::TESSERA_ISA
#endif
