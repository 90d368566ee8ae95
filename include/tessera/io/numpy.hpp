// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/io/text.hpp>
#include <tessera/io/zip.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/matrix_view.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/vectors.hpp>

// NumPy's files: .npy, an array (numpy.lib.format), and .npz, a zip archive of them.
// `io::read(io::numpy_file("x.npz"), "name", tensor)` brings an array into a tensor.

namespace tessera { inline namespace TESSERA_ISA { namespace io {

namespace detail {

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

/// Reads the header of an array, a Python dictionary with three keys.
template <class Fail> class numpy_header {
 public:
  numpy_header(std::string_view text, Fail const& fail) : rest_(text), fail_(fail) {
    expect('{');
    while (!skip('}')) {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr")
        descr = quoted();
      else if (key == "fortran_order")
        by_columns = truth();
      else if (key == "shape")
        read_shape();
      else
        fail_(message("the header has an unknown key '", std::string(key), "'"));
      ++keys_;
      if (!skip(',')) {
        expect('}');
        break;
      }
    }
    if (keys_ != 3) fail_("the header does not have the keys descr, fortran_order and shape");
  }

  std::string_view descr;
  bool by_columns = false;
  std::vector<std::int64_t> shape;

 private:
  bool skip(char c) {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size()));
    if (rest_.empty() || rest_[0] != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!skip(c)) fail_(message("the header lacks a '", std::string(1, c), "'"));
  }
  std::string_view quoted() {
    const char quote = skip('"') ? '"' : '\'';
    if (quote == '\'') expect('\'');
    const std::size_t end = rest_.find(quote);
    if (end == rest_.npos) fail_("the header's text does not end");
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool truth() {
    static_cast<void>(skip('\0'));  // spaces
    for (const std::string_view word : {"True", "False"})
      if (rest_.starts_with(word)) {
        rest_.remove_prefix(word.size());
        return word == "True";
      }
    fail_("fortran_order is neither True nor False");
    return false;
  }
  void read_shape() {
    expect('(');
    while (!skip(')')) {
      static_cast<void>(skip('\0'));
      std::int64_t extent = 0;
      const auto [stop, failure] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), extent);
      if (failure != std::errc{} || extent < 0) fail_("the shape is not one of whole numbers");
      rest_.remove_prefix(std::size_t(stop - rest_.data()));
      shape.push_back(extent);
      if (skip(',')) continue;
      expect(')');
      break;
    }
  }

  std::string_view rest_;
  Fail const& fail_;
  int keys_ = 0;
};

/// Numbers whose first index runs fastest, in the order in which the last one does.
inline std::vector<std::byte> in_row_order(std::span<std::byte const> bytes,
                                           std::span<std::int64_t const> shape, std::size_t size) {
  std::vector<std::byte> ordered(bytes.size());
  std::vector<std::int64_t> stride(shape.size()), at(shape.size(), 0);
  std::int64_t before = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) stride[d] = std::exchange(before, before * shape[d]);
  std::int64_t from = 0;
  for (std::size_t to = 0; to < bytes.size(); to += size) {
    std::memcpy(ordered.data() + to, bytes.data() + std::size_t(from) * size, size);
    for (std::size_t d = shape.size(); d-- > 0;) {
      from += stride[d];
      if (++at[d] < shape[d]) break;
      from -= stride[d] * shape[d];
      at[d] = 0;
    }
  }
  return ordered;
}

}  // namespace detail

/// The arrays of a .npz file by their names, without ".npy"; or the one of a .npy file, whose name is "".
/// Opening it throws io_error, with the path, for a damaged file and for numbers that are big-endian or no
/// numbers of C.
class numpy_file {
 public:
  explicit numpy_file(std::string path) : path_(std::move(path)) {
    mapped_file& file = files_.emplace_back(path_);
    const auto bytes = file.bytes();
    if (begins_with(bytes, array_mark)) {
      add("", bytes);
    } else if (begins_with(bytes, "PK")) {
      archive_.emplace_back(std::move(file));
      for (std::string const& name : archive_[0].names()) {
        std::vector<std::byte> room;
        const auto content = archive_[0].content(name, room);
        add(name.ends_with(".npy") ? name.substr(0, name.size() - 4) : name, content);
        unpacked_.push_back(std::move(room));
      }
    } else {
      fail("neither a .npy nor a .npz file");
    }
  }

  std::string const& path() const { return path_; }
  /// All arrays, by name. Their bytes live as long as this file.
  std::map<std::string, safetensor, std::less<>> const& tensors() const { return tensors_; }
  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  safetensor const& at(std::string_view name) const {
    if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
    fail(message("no array \"", std::string(name), "\"", other_names(tensors_)));
  }

  [[noreturn]] void fail(std::string const& what) const {
    throw io_error(message("[read ", path(), "] ", what));
  }

 private:
  static constexpr std::string_view array_mark = "\x93NUMPY";

  static bool begins_with(std::span<std::byte const> bytes, std::string_view text) {
    return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
  }

  void add(std::string const& name, std::span<std::byte const> bytes) {
    const auto fail_here = [&](std::string const& what) {
      fail(name.empty() ? what : message("array \"", name, "\": ", what));
    };
    if (!begins_with(bytes, array_mark)) fail_here("not an array of NumPy");
    const std::size_t wide = bytes.size() > 6 && bytes[6] != std::byte(1) ? 4 : 2, begin = 8 + wide;
    std::uint32_t length = 0;
    if (bytes.size() < begin) fail_here("the file ends within its header");
    if (bytes[6] < std::byte(1) || bytes[6] > std::byte(3)) fail_here("of a version that is not known");
    std::memcpy(&length, bytes.data() + 8, wide);
    if (length > bytes.size() - begin) fail_here("the file ends within its header");
    const detail::numpy_header header({reinterpret_cast<char const*>(bytes.data()) + begin, length},
                                      fail_here);
    safetensor tensor{name, std::string(header.descr), header.shape, bytes.subspan(begin + length)};
    std::uint64_t size = 0;
    for (auto const& [dtype, descr] : detail::numpy_types)
      if (header.descr == descr) {
        tensor.dtype = dtype;
        size = dtype_bytes(dtype);
      }
    if (header.descr.starts_with(">")) fail_here("its numbers are big-endian: save x.astype('<f4')");
    if (size == 0) {  // a text, say: its bytes only
      tensor.shape = {};
    } else {
      const auto wanted = detail::tensor_bytes(tensor.dtype, tensor.shape);
      if (!wanted || *wanted != tensor.bytes.size())
        fail_here(message("is ", detail::tensor_text(tensor.dtype, tensor.shape), ", but ",
                          tensor.bytes.size(), " bytes follow the header"));
      if (header.by_columns && tensor.shape.size() > 1) {
        unpacked_.push_back(detail::in_row_order(tensor.bytes, tensor.shape, size));
        tensor.bytes = unpacked_.back();
      }
    }
    tensors_.emplace(name, std::move(tensor));
  }

  std::string path_;
  std::vector<mapped_file> files_;
  std::vector<zip_archive> archive_;
  std::vector<std::vector<std::byte>> unpacked_;  // whose bytes do not move when this vector grows
  std::map<std::string, safetensor, std::less<>> tensors_;
};

namespace detail {

/// Numbers of a tensor to be written, which live here if it is not one array of C already.
struct numpy_array {
  std::string header;
  std::vector<float> widened;
  std::span<std::byte const> bytes;
};

inline numpy_array make_numpy_array(std::string const& path, safetensor const& tensor) {
  const auto fail = [&](std::string const& what) {
    throw shape_error(message("[write ", path, "] array \"", tensor.name, "\" ", what));
  };
  const bool is_text = tensor.dtype == message("|S", tensor.bytes.size());  // of one array element
  const auto wanted = is_text ? tensor.bytes.size() : tensor_bytes(tensor.dtype, tensor.shape);
  if (!wanted || *wanted != tensor.bytes.size())
    fail(message("is ", tensor_text(tensor.dtype, tensor.shape), ", but ", tensor.bytes.size(),
                 " bytes are given"));
  numpy_array made{{}, {}, tensor.bytes};
  std::string_view descr = is_text ? std::string_view(tensor.dtype) : "";
  if (tensor.dtype == dtype_name<bfloat16>()) {  // which NumPy does not have
    made.widened.resize(tensor.bytes.size() / sizeof(bfloat16));
    for (std::size_t i = 0; i < made.widened.size(); ++i)
      made.widened[i] = number_at<bfloat16, float>(tensor.bytes.data(), std::int64_t(i));
    made.bytes = std::as_bytes(std::span(made.widened));
    descr = "<f4";
  }
  for (numpy_type const& type : numpy_types)
    if (type.dtype == tensor.dtype) descr = type.descr;
  if (descr.empty()) fail(message("is ", tensor.dtype, ", which NumPy does not have"));
  std::string shape;
  for (const std::int64_t extent : tensor.shape) shape += std::to_string(extent) + ",";
  std::string text =
      message("{'descr': '", std::string(descr), "', 'fortran_order': False, 'shape': (", shape, "), }");
  const std::size_t begin = 10, padded = round_up<std::size_t>(begin + text.size() + 1, 64) - begin;
  text.resize(padded - 1, ' ');
  text += '\n';
  const auto length = static_cast<std::uint16_t>(text.size());
  made.header =
      std::string("\x93NUMPY\x01\x00", 8) + std::string(reinterpret_cast<char const*>(&length), 2) + text;
  return made;
}

}  // namespace detail

/// Writes a .npy file, through write_atomically. bfloat16, which NumPy does not have, becomes float32. Throws
/// shape_error, before anything is written, unless the tensor's bytes fit its shape.
inline void write_npy(std::string const& path, safetensor const& tensor) {
  const detail::numpy_array array = detail::make_numpy_array(path, tensor);
  write_atomically(path, [&](file_writer& out) {
    out.write(array.header);
    out.write(array.bytes);
  });
}

/// Writes a .npz file, as numpy.savez does.
inline void write_npz(std::string const& path, std::span<safetensor const> tensors) {
  std::vector<detail::numpy_array> arrays;
  std::vector<zip_content> members;
  arrays.reserve(tensors.size());
  for (safetensor const& tensor : tensors) {
    detail::numpy_array const& array = arrays.emplace_back(detail::make_numpy_array(path, tensor));
    for (zip_content const& other : members)
      if (other.name == tensor.name + ".npy")
        throw io_error(message("[write ", path, "] array \"", tensor.name, "\" has a name that is taken"));
    members.push_back({tensor.name + ".npy", {std::as_bytes(std::span(array.header)), array.bytes}});
  }
  write_zip(path, members);
}

/// A tensor as an array: a matrix (rows, cols), zero where nothing is stored; a vector (size); an activation
/// (tokens, features).
template <element T, class Block>
void write_npy(std::string const& path, block_sparse_matrix<T, Block> const& w) {
  std::vector<T> numbers(std::size_t(w.rows() * w.cols()));
  copy(w, row_major(numbers.data(), w.rows(), w.cols()));
  write_npy(path, make_safetensor("", {w.rows(), w.cols()}, std::span<T const>(numbers)));
}
template <element T, domain Axis> void write_npy(std::string const& path, axis_vector<T, Axis> const& v) {
  write_npy(path, make_safetensor("", {v.size()}, std::span<T const>(v.data(), std::size_t(v.size()))));
}
template <element T> void write_npy(std::string const& path, panel_matrix<T> const& x) {
  std::vector<T> numbers(std::size_t(x.tokens() * x.features()));
  copy(x, transposed(row_major(numbers.data(), x.tokens(), x.features())));
  write_npy(path, make_safetensor("", {x.tokens(), x.features()}, std::span<T const>(numbers)));
}

}}}  // namespace tessera::TESSERA_ISA::io
