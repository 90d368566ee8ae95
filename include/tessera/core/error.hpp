// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/decimal.hpp>

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
