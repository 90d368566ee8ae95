// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>

#include <tessera/core/error.hpp>

// Functions that one program holds for several instruction sets, and chooses when it runs. In a header
// without tensors, which are of one instruction set, in its parameters:
//   TESSERA_DISPATCHED(double, loss_after, (int steps));
// in a source file that the CMake function tessera_add_variants compiles once for each instruction set:
//   double TESSERA_VARIANT(loss_after)(int steps) { … }
// and anywhere, in code that any CPU can run: `loss_after(10)`, and `loss_after.instruction_set()`.
// Errors of a variant are types of its instruction set: catch std::exception.

namespace tessera { inline namespace TESSERA_ISA {

/// A function for one instruction set.
template <class Function> struct variant {
  char const* instruction_set;
  bool (*runs_here)();
  Function* function;
};

/// A function for several instruction sets, the best first. A call takes the first that this CPU has.
template <class Function> class dispatched;
template <class Result, class... Parameters> class dispatched<Result(Parameters...)> {
 public:
  using function = Result(Parameters...);
  static constexpr std::size_t most = 5;

  /// Of no function is an error of the compiler.
  constexpr dispatched(char const* name, std::initializer_list<variant<function>> all) : name_(name) {
    if (all.size() == 0)
      throw option_error("no instruction set: link the library that tessera_add_variants makes");
    for (variant<function> const& each : all) all_[count_++] = each;
  }

  /// Throws machine_error if this CPU has none of the instruction sets.
  template <class... Arguments> Result operator()(Arguments&&... arguments) const {
    return chosen().function(static_cast<Arguments&&>(arguments)...);
  }
  /// The name of the one that is taken. Throws machine_error.
  char const* instruction_set() const { return chosen().instruction_set; }

 private:
  variant<function> const& chosen() const {
    for (std::size_t i = 0; i < count_; ++i)
      if (all_[i].runs_here()) return all_[i];
    std::string names;
    for (std::size_t i = 0; i < count_; ++i)
      names += (i > 0 ? ", " : "") + std::string(all_[i].instruction_set);
    throw machine_error(message("[", name_, "] is compiled for ", names,
                                ", and this CPU has none of them: add the variant baseline"));
  }

  char const* name_;
  variant<function> all_[most] = {};
  std::size_t count_ = 0;
};

}}  // namespace tessera::TESSERA_ISA

/// The function of this source file's instruction set.
#define TESSERA_VARIANT(name) tessera_variants::TESSERA_ISA::name

// The variants that tessera_add_variants has compiled: each declares its function, and says which CPUs run
// it.
#define TESSERA_DECLARE(set, result, name, parameters) \
  namespace set {                                      \
  result name parameters;                              \
  }
#define TESSERA_LIST(set, name, condition) {#set, [] { return condition; }, &tessera_variants::set::name},
#define TESSERA_CPU_HAS(feature) (__builtin_cpu_supports(feature) != 0)
#define TESSERA_CPU_HAS_BF16 \
  (TESSERA_CPU_HAS("x86-64-v4") && TESSERA_CPU_HAS("avx512bf16") && TESSERA_CPU_HAS("avx512vnni"))

#ifdef TESSERA_HAS_avx512_amx
#define TESSERA_DECLARE_AMX(...) TESSERA_DECLARE(avx512_amx, __VA_ARGS__)
#define TESSERA_LIST_AMX(name)   \
  TESSERA_LIST(avx512_amx, name, \
               TESSERA_CPU_HAS("amx-bf16") && TESSERA_CPU_HAS("amx-int8") && TESSERA_CPU_HAS_BF16)
#else
#define TESSERA_DECLARE_AMX(...)
#define TESSERA_LIST_AMX(name)
#endif
#ifdef TESSERA_HAS_avx512_bf16
#define TESSERA_DECLARE_BF16(...) TESSERA_DECLARE(avx512_bf16, __VA_ARGS__)
#define TESSERA_LIST_BF16(name) TESSERA_LIST(avx512_bf16, name, TESSERA_CPU_HAS_BF16)
#else
#define TESSERA_DECLARE_BF16(...)
#define TESSERA_LIST_BF16(name)
#endif
#ifdef TESSERA_HAS_avx512
#define TESSERA_DECLARE_AVX512(...) TESSERA_DECLARE(avx512, __VA_ARGS__)
#define TESSERA_LIST_AVX512(name) TESSERA_LIST(avx512, name, TESSERA_CPU_HAS("x86-64-v4"))
#else
#define TESSERA_DECLARE_AVX512(...)
#define TESSERA_LIST_AVX512(name)
#endif
#ifdef TESSERA_HAS_avx2
#define TESSERA_DECLARE_AVX2(...) TESSERA_DECLARE(avx2, __VA_ARGS__)
#define TESSERA_LIST_AVX2(name) TESSERA_LIST(avx2, name, TESSERA_CPU_HAS("x86-64-v3"))
#else
#define TESSERA_DECLARE_AVX2(...)
#define TESSERA_LIST_AVX2(name)
#endif
#ifdef TESSERA_HAS_baseline
#define TESSERA_DECLARE_BASELINE(...) TESSERA_DECLARE(baseline, __VA_ARGS__)
#define TESSERA_LIST_BASELINE(name) TESSERA_LIST(baseline, name, true)
#else
#define TESSERA_DECLARE_BASELINE(...)
#define TESSERA_LIST_BASELINE(name)
#endif

/// Declares a function `result name parameters` of several instruction sets.
#define TESSERA_DISPATCHED(result, name, parameters)                                   \
  namespace tessera_variants {                                                         \
  TESSERA_DECLARE_AMX(result, name, parameters)                                        \
  TESSERA_DECLARE_BF16(result, name, parameters)                                       \
  TESSERA_DECLARE_AVX512(result, name, parameters)                                     \
  TESSERA_DECLARE_AVX2(result, name, parameters)                                       \
  TESSERA_DECLARE_BASELINE(result, name, parameters)                                   \
  }                                                                                    \
  [[maybe_unused]] static constexpr tessera::dispatched<result parameters> name(       \
      #name, {TESSERA_LIST_AMX(name) TESSERA_LIST_BF16(name) TESSERA_LIST_AVX512(name) \
                  TESSERA_LIST_AVX2(name) TESSERA_LIST_BASELINE(name)})
