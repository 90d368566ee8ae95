// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>

#include <tessera/core/config.hpp>

namespace tessera::inline TESSERA_ISA {

/// Base of everything the library throws. Messages begin with the operation in brackets, give the actual
/// numbers, and say what would have been right: `[W * x] W has 48 columns but x has 32 features`.
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

/// An option has no meaning here; lists what would.
struct option_error : error {
  using error::error;
};

/// This CPU or this build cannot do what was asked.
struct machine_error : error {
  using error::error;
};

namespace detail {
inline std::string text(const std::string& s) { return s; }
inline std::string text(const char* s) { return s; }
template <class Number> std::string text(Number n) { return std::to_string(n); }
}  // namespace detail

/// Joins strings and numbers to one message.
template <class... Part> std::string message(Part const&... part) {
  std::string all;
  ((all += detail::text(part)), ...);
  return all;
}

}  // namespace tessera::inline TESSERA_ISA
