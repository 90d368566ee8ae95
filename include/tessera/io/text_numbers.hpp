// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/file_format.hpp>
#include <tessera/io/gunzip.hpp>
#include <tessera/io/memory_limit.hpp>
#include <tessera/io/parse_number.hpp>
#include <tessera/io/text.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// A text file of numbers between spaces, commas and ends of lines. One that was compressed by gzip is
/// unpacked, whatever its name. Throws io_error, with the path, for a file of another format.
///   reader   the name of who reads it, for that error
class text_numbers {
 public:
  explicit text_numbers(std::string const& path, std::string_view reader, memory_limit limit = {})
      : file_(path) {
    std::span<std::byte const> bytes = file_.bytes();
    if (is_gzip(bytes)) bytes = unpacked_ = gunzip(bytes, path, limit);
    rest_ = {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
    refuse_other_format(path, rest_, reader);
  }
  text_numbers(text_numbers const&) = delete;
  text_numbers& operator=(text_numbers const&) = delete;

  /// The rest of the line, without its end, which is not passed over.
  std::string_view line() {
    std::string_view text = rest_.substr(0, rest_.find('\n'));
    rest_.remove_prefix(text.size());
    if (text.ends_with('\r')) text.remove_suffix(1);
    return text;
  }
  /// Passes over empty lines, and over lines that begin with the letter `comment`.
  void skip_lines(char comment) {
    for (skip_blank(); !rest_.empty() && rest_[0] == comment; skip_blank()) line();
  }

  /// The next number, as parse_number reads it, and with Fortran's exponents: 1.5D+00, 1.5+100. Throws
  /// io_error, with the line, if there is none.
  template <class T> T number(char const* what) {
    skip_blank();
    if (rest_.empty()) fail(message("the file ends where ", what, " should be"));
    T value{};
    std::size_t length = parse_number(rest_, value);
    if (length == 0 || (length < rest_.size() && !is_blank(rest_[length]))) {
      const std::string_view word = rest_.substr(0, rest_.find_first_of(blanks));
      if (!std::floating_point<T> || !is_number(with_exponent_of_c(word), value))
        fail(message(in_quotes(word), " is not ", what));
      length = word.size();
    }
    rest_.remove_prefix(length);
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
    const std::int64_t last = line_;
    skip_blank();
    if (!rest_.empty()) fail("there is more than the file says");
    line_ = last;
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
  /// Fortran writes the exponent of a double behind a D, and one of three digits behind its sign alone.
  static std::string with_exponent_of_c(std::string_view word) {
    std::string text(word);
    const std::size_t at = text.find_first_of("DdQq+-", 1);
    if (at == text.npos || text.find_first_not_of("+-.0123456789") < at) return "";
    if (text[at] != '+' && text[at] != '-')
      text[at] = 'e';
    else if (text.find('.') < at)
      text.insert(at, 1, 'e');
    return text;
  }

  mapped_file file_;
  std::vector<std::byte> unpacked_;
  std::string_view rest_;
  std::int64_t line_ = 1;
};

}}}  // namespace tessera::TESSERA_ISA::io
