// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include <tessera/io/printable.hpp>
#include <tessera/io/text.hpp>

namespace pretrain {

/// Whether a character of UTF-8 may begin so and go on: its first bytes, not all.
inline bool begins_character(std::string_view bytes) {
  for (char const* rest :
       {"\x80\x80\x80", "\xa0\x80\x80"})  // some second bytes are at least a0, others below
    if (tessera::io::utf8_length(std::string(bytes) + rest) > bytes.size()) return true;
  return false;
}

/// io::printable of a text that comes in pieces, which may cut characters in two.
class printable_pieces {
 public:
  /// The bytes that can be shown after another piece.
  std::string add(std::string_view piece) {
    text_ += piece;
    std::size_t kept = 0;
    for (std::size_t last = 1; last <= 3 && last <= text_.size(); ++last)
      if (begins_character(std::string_view(text_).substr(text_.size() - last))) kept = last;
    const std::string shown = tessera::io::printable(std::string_view(text_).substr(0, text_.size() - kept));
    text_.erase(0, text_.size() - kept);
    return shown;
  }
  /// The rest, after the last piece.
  std::string end() { return tessera::io::printable(std::exchange(text_, {})); }

 private:
  std::string text_;  // the beginning of a character
};

/// Writes a text that comes in pieces: its bytes, or, to a terminal, which would obey control characters,
/// the text that io::printable makes of them.
class text_output {
 public:
  explicit text_output(std::FILE* out) : out_(out), is_terminal_(isatty(fileno(out)) != 0) {}
  text_output(text_output const&) = delete;
  text_output& operator=(text_output const&) = delete;

  void add(std::string_view piece) { write(is_terminal_ ? pieces_.add(piece) : std::string(piece)); }
  /// After the last piece: a character that was not completed.
  void end() { write(pieces_.end()); }

 private:
  void write(std::string const& text) {
    std::fwrite(text.data(), 1, text.size(), out_);  // a byte of it may be zero
    std::fflush(out_);
  }

  std::FILE* out_;
  bool is_terminal_;
  printable_pieces pieces_;
};

/// A text that comes in pieces, and ends before the first of some strings.
class text_before {
 public:
  /// No string is empty.
  explicit text_before(std::vector<std::string> strings) : strings_(std::move(strings)) {}

  /// The bytes that another piece completes: the beginning of a string waits.
  std::string add(std::string_view piece) {
    text_ += piece;
    std::size_t kept = 0;
    for (std::string const& each : strings_) {
      if (const std::size_t at = text_.find(each); at != std::string::npos) {
        ended_ = true;
        text_.resize(at);
      }
      for (std::size_t n = std::min(each.size() - 1, text_.size()); n > kept; --n)
        if (std::string_view(text_).ends_with(std::string_view(each).substr(0, n))) kept = n;
    }
    if (ended_) kept = 0;
    std::string shown = text_.substr(0, text_.size() - kept);
    text_.erase(0, text_.size() - kept);
    return shown;
  }
  /// Whether one of the strings came.
  bool ended() const { return ended_; }
  /// The rest, behind the last piece.
  std::string end() { return std::exchange(text_, {}); }

 private:
  std::vector<std::string> strings_;
  std::string text_;  // that waits
  bool ended_ = false;
};

}  // namespace pretrain
