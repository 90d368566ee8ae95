// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/parse_number.hpp>
#include <tessera/io/text.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io { namespace detail {

struct numpy_type {
  std::string_view dtype, descr;
};
inline constexpr std::array<numpy_type, 13> numpy_types{{{"BOOL", "|b1"},
                                                         {"U8", "|u1"},
                                                         {"I8", "|i1"},
                                                         {"U16", "<u2"},
                                                         {"I16", "<i2"},
                                                         {"F16", "<f2"},
                                                         {"U32", "<u4"},
                                                         {"I32", "<i4"},
                                                         {"F32", "<f4"},
                                                         {"U64", "<u8"},
                                                         {"I64", "<i8"},
                                                         {"F64", "<f8"},
                                                         {"C64", "<c8"}}};

/// The dtype of a description, "<f4": with any byte order where numbers have one byte, as some writers have
/// it, or none, the machine's own. "" for a type that is no number of C.
inline std::string_view dtype_of(std::string_view descr) {
  if (!descr.empty() && std::string_view("<>|=").find(descr[0]) != descr.npos) {
    if (descr[0] == '>' && !descr.ends_with('1')) return "";
    descr.remove_prefix(1);
  }
  for (numpy_type const& type : numpy_types)
    if (type.descr.substr(1) == descr) return type.dtype;
  return "";
}

inline constexpr std::size_t most_numpy_extents = 64;

/// Reads the header of an array, a Python dictionary with three keys, of which the last of one name counts.
template <class Fail> class numpy_header {
 public:
  numpy_header(std::string_view text, Fail const& fail) : rest_(text), fail_(fail) {
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!skip('}')) {
      const std::string_view key = string();
      expect(':');
      if (key == "descr")
        has_descr = true, read_descr();
      else if (key == "fortran_order")
        has_order = true, by_columns = truth();
      else if (key == "shape")
        has_shape = true, read_shape();
      else
        fail_(message("the header has an unknown key ", in_quotes(key)));
      if (!skip(',')) {
        expect('}');
        break;
      }
    }
    skip_blank();
    if (!rest_.empty()) fail_(message("the header goes on behind its '}': ", in_quotes(rest_)));
    if (!has_descr || !has_order || !has_shape)
      fail_("the header does not have the keys descr, fortran_order and shape");
  }

  std::string_view descr;
  bool structured = false;  // the description is no string
  bool by_columns = false;
  std::vector<std::int64_t> shape;

 private:
  void skip_blank() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }
  bool skip(char c) {
    skip_blank();
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!skip(c)) fail_(message("the header lacks a '", std::string(1, c), "'"));
  }
  std::string_view string() {
    static_cast<void>(skip('u'));  // of Python 2
    const char quote = skip('"') ? '"' : '\'';
    if (quote == '\'') expect('\'');
    const std::size_t end = rest_.find(quote);
    if (end == rest_.npos) fail_("the header's text does not end");
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }
  void read_descr() {
    skip_blank();
    const std::string_view from = rest_;
    structured = rest_.starts_with('[') || rest_.starts_with('(');
    if (!structured) {
      descr = string();
      return;
    }
    int depth = 0;
    do {  // brackets, and strings, which may hold brackets
      if (rest_.empty()) fail_("the header's description does not end");
      const char c = rest_[0];
      if (c == '\'' || c == '"') {
        static_cast<void>(string());
        continue;
      }
      depth += c == '[' || c == '(' ? 1 : c == ']' || c == ')' ? -1 : 0;
      rest_.remove_prefix(1);
    } while (depth > 0);
    descr = from.substr(0, from.size() - rest_.size());
  }
  bool truth() {
    skip_blank();
    for (const std::string_view word : {"True", "False"})
      if (rest_.starts_with(word)) {
        rest_.remove_prefix(word.size());
        return word == "True";
      }
    fail_("fortran_order is neither True nor False");
    return false;
  }
  void read_shape() {
    shape.clear();
    expect('(');
    while (!skip(')')) {
      skip_blank();
      std::int64_t extent = 0;
      const std::size_t length = parse_number(rest_, extent);
      if (length == 0 || extent < 0) fail_("the shape is not one of whole numbers");
      rest_.remove_prefix(length);
      if (rest_.starts_with('L')) rest_.remove_prefix(1);  // a long integer of Python 2
      if (shape.size() == most_numpy_extents)
        fail_(message("the shape has more than ", most_numpy_extents, " extents"));
      shape.push_back(extent);
      if (skip(',')) continue;
      expect(')');
      break;
    }
  }

  std::string_view rest_;
  Fail const& fail_;
};

}}}}  // namespace tessera::TESSERA_ISA::io::detail
