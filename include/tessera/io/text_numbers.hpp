// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// A text file of numbers between spaces, commas and ends of lines.
class text_numbers {
 public:
  explicit text_numbers(std::string const& path)
      : file_(path), rest_(reinterpret_cast<char const*>(file_.bytes().data()), file_.bytes().size()) {}

  /// What remains of the line, which is passed over.
  std::string_view line() {
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_;
    if (text.ends_with('\r')) text.remove_suffix(1);
    return text;
  }
  /// Passes over empty lines, and over those that begin with this letter.
  void skip_lines(char comment) {
    for (skip_blank(); !rest_.empty() && rest_[0] == comment; skip_blank()) line();
  }

  /// The next number. Throws io_error, with the line, if there is none.
  template <class T> T number(char const* what) {
    skip_blank();
    T value{};
    char const* first = rest_.data();
    char const* const last = first + rest_.size();
    if (last - first > 1 && first[0] == '+' && first[1] != '-') ++first;
    const auto [stop, failure] = std::from_chars(first, last, value);
    if (rest_.empty()) fail(message("the file ends where ", what, " should be"));
    const bool beyond = std::is_floating_point_v<T> && failure == std::errc::result_out_of_range;
    if constexpr (std::is_floating_point_v<T>)
      if (beyond) value = out_of_range({first, std::size_t(stop - first)});
    if ((failure != std::errc{} && !beyond) || (stop != last && !is_blank(*stop))) {
      const std::string_view word = rest_.substr(0, std::min<std::size_t>(rest_.find_first_of(blanks), 30));
      fail(message("\"", std::string(word), "\" is not ", what));
    }
    rest_.remove_prefix(std::size_t(stop - rest_.data()));
    return value;
  }
  /// A whole number of at least `least` and at most `most`.
  std::int64_t integer(char const* what, std::int64_t least, std::int64_t most) {
    const auto value = number<std::int64_t>(what);
    if (value < least || value > most)
      fail(message(what, " is ", value, ", which is not from ", least, " to ", most));
    return value;
  }

  void expect_end() {
    skip_blank();
    if (!rest_.empty()) fail("there is more than the file says");
  }

  [[noreturn]] void fail(std::string const& what) const {
    throw io_error(message("[read ", file_.path(), "] line ", line_, ": ", what));
  }

 private:
  static constexpr std::string_view blanks = " \t\r\n,";
  static bool is_blank(char c) { return blanks.find(c) != blanks.npos; }

  void skip_blank() {
    for (; !rest_.empty() && is_blank(rest_[0]); rest_.remove_prefix(1)) line_ += rest_[0] == '\n';
  }
  /// Too large a number is infinite, too small a one zero, as everywhere else.
  static double out_of_range(std::string_view digits) {
    return digits.find("e-") != digits.npos || digits.find("E-") != digits.npos
               ? 0.0
               : (digits[0] == '-' ? -1.0 : 1.0) * std::numeric_limits<double>::infinity();
  }

  mapped_file file_;
  std::string_view rest_;
  std::int64_t line_ = 1;
};

}}}  // namespace tessera::TESSERA_ISA::io
