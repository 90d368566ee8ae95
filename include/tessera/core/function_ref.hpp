// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>

#include <tessera/core/config.hpp>

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
