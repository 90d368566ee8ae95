// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/parse_number.hpp>
#include <tessera/io/text.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// The value of a JSON text. Strict: throws io_error with the byte and the expected characters, also for
/// keys that come twice, integers beyond 64 bits, numbers beyond the largest double, which to_text could not
/// write, text that is not UTF-8 and nesting deeper than 100. A number too small for a double is zero. Takes
/// O(n log n) for n bytes, and memory as its values need.
///   source   the name of the text in errors
///   origin   where it begins in there, in bytes
///   most     values in the text, which take 20 times its memory; more are an error
json parse_json(std::string_view text, std::string const& source = "json", std::uint64_t origin = 0,
                std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

#ifdef TESSERA_BODY

namespace detail {

/// Recursive descent over RFC 8259, one function per rule of its grammar.
class json_parser {
 public:
  static constexpr int deepest = 100;

  json_parser(std::string_view text, std::string const& source, std::uint64_t origin, std::uint64_t most)
      : text_(text), source_(source), origin_(origin), most_(most) {}

  json document() {
    json all = value(0);
    skip_space();
    if (at_ != text_.size()) expected("the end of the document");
    return all;
  }

 private:
  json value(int depth) {
    if (depth > deepest) expected(message("at most ", deepest, " levels of nesting"));
    skip_space();
    if (++values_ > most_) expected(message("at most ", most_, " values"));
    switch (peek()) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return string();
      case 't':
        return word("true", true);
      case 'f':
        return word("false", false);
      case 'n':
        return word("null", json());
      default:
        return number();
    }
  }

  json object(int depth) {
    json::object members;
    std::vector<std::pair<std::string, std::size_t>> keys;  // with the place of each
    take('{');
    skip_space();
    if (take('}')) return members;
    do {
      skip_space();
      const std::size_t place = at_;
      std::string key = string();
      keys.emplace_back(key, place);
      skip_space();
      if (!take(':')) expected("':'");
      members.push_back({std::move(key), value(depth + 1)});
      skip_space();
    } while (take(','));
    if (!take('}')) expected("',' or '}'");
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end(),
                                          [](auto const& a, auto const& b) { return a.first == b.first; });
    if (twice != keys.end()) {
      at_ = (twice + 1)->second;
      expected("a key that differs from those before it");
    }
    return members;
  }

  json array(int depth) {
    json::array elements;
    take('[');
    skip_space();
    if (take(']')) return elements;
    do {
      elements.push_back(value(depth + 1));
      skip_space();
    } while (take(','));
    if (!take(']')) expected("',' or ']'");
    return elements;
  }

  json word(std::string_view spelling, json meaning) {
    for (const char letter : spelling)
      if (!take(letter)) expected(std::string(spelling));
    return meaning;
  }

  json number() {
    const std::size_t begin = at_;
    bool whole = true;
    take('-');
    if (!take('0')) digits(at_ == begin ? "a value" : "a digit");
    if (take('.')) whole = false, digits("a digit");
    if (take('e') || take('E')) {
      whole = false;
      if (!take('+')) take('-');
      digits("a digit");
    }
    const std::string_view written = text_.substr(begin, at_ - begin);
    std::int64_t integer = 0;
    std::uint64_t large = 0;
    double real = 0;
    if (whole && fits(written, integer)) return integer;
    if (whole && fits(written, large)) return large;
    if (!whole && fits(written, real) && std::isfinite(real)) return real;  // too small a number is zero
    at_ = begin;
    expected(whole ? "an integer of 64 bits" : "a number in the range of a double");
  }

  void digits(char const* wanted) {
    if (peek() < '0' || peek() > '9') expected(wanted);
    while (peek() >= '0' && peek() <= '9') ++at_;
  }

  template <class Number> static bool fits(std::string_view written, Number& number) {
    return is_number(written, number);
  }

  std::string string() {
    if (!take('"')) expected("a string");
    std::string out;
    while (!take('"')) {
      const std::size_t length = utf8_length(text_.substr(at_));
      if (at_ == text_.size()) expected("'\"'");
      if (length == 0) expected("UTF-8");
      if (static_cast<unsigned char>(peek()) < 0x20) expected("an escape instead of a control character");
      if (take('\\')) {
        escape(out);
      } else {
        out.append(text_, at_, length);
        at_ += length;
      }
    }
    return out;
  }

  void escape(std::string& out) {
    constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    if (take('u')) return append_utf8(out, character());
    const std::size_t which = at_ < text_.size() ? letters.find(peek()) : std::string_view::npos;
    if (which == std::string_view::npos) expected("one of \"\\/bfnrtu after '\\'");
    out += meanings[which];
    ++at_;
  }

  /// The character of a \u escape, or of a pair of them: UTF-16 surrogates.
  std::uint32_t character() {
    const std::size_t begin = at_;
    const std::uint32_t high = four_hex_digits();
    if (high < 0xd800 || high > 0xdfff) return high;
    if (high < 0xdc00 && take('\\') && take('u'))
      if (const std::uint32_t low = four_hex_digits(); low >= 0xdc00 && low <= 0xdfff)
        return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    at_ = begin;
    expected("a pair of surrogates, high then low");
  }

  std::uint32_t four_hex_digits() {
    std::uint32_t code = 0;
    const std::string_view four = text_.substr(at_, 4);
    const auto result = std::from_chars(four.data(), four.data() + four.size(), code, 16);
    if (four.size() < 4 || result.ptr != four.data() + 4) expected("four hexadecimal digits");
    at_ += 4;
    return code;
  }

  static void append_utf8(std::string& out, std::uint32_t code) {
    const auto follow = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xc0 | (code >> 6)), follow(0);
    } else if (code < 0x10000) {
      out += static_cast<char>(0xe0 | (code >> 12)), follow(6), follow(0);
    } else {
      out += static_cast<char>(0xf0 | (code >> 18)), follow(12), follow(6), follow(0);
    }
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    const bool there = at_ < text_.size() && text_[at_] == c;
    at_ += there;
    return there;
  }
  void skip_space() {
    while (take(' ') || take('\n') || take('\r') || take('\t')) {
    }
  }

  [[noreturn]] void expected(std::string const& what) const {
    std::string found = "the end";
    if (at_ < text_.size())
      found = peek() > ' ' && peek() < 0x7f ? message("'", std::string(1, peek()), "'")
                                            : message("code ", static_cast<unsigned char>(peek()));
    throw io_error(
        message("[read ", source_, "] byte ", origin_ + at_, ": expected ", what, ", found ", found));
  }

  std::string_view text_;
  std::string const& source_;
  std::uint64_t origin_, most_, values_ = 0;
  std::size_t at_ = 0;
};

}  // namespace detail

TESSERA_BODY json parse_json(std::string_view text, std::string const& source, std::uint64_t origin,
                             std::uint64_t most) {
  return detail::json_parser(text, source, origin, most).document();
}

#endif

}}}  // namespace tessera::TESSERA_ISA::io
