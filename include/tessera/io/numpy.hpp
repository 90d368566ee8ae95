// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
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
#include <tessera/io/file_format.hpp>
#include <tessera/io/memory_limit.hpp>
#include <tessera/io/numpy_header.hpp>
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

/// The arrays of a .npz file by their names, with or without ".npy"; or the one of a .npy file, whose name is
/// "". Opening a .npz reads its index alone: an array is looked at when at() asks for it, and is unpacked
/// then, so an array that nobody asks for takes no memory and spoils nothing. Throws io_error, with the path,
/// for a file that is neither, or whose index is damaged; a .npy file is looked at when it is opened.
///   limit   of the size of an array that is compressed
class numpy_file {
 public:
  explicit numpy_file(std::string path, memory_limit limit = {})
      : contents_(std::make_unique<contents>(std::move(path), limit)) {
    mapped_file& file = contents_->file;
    refuse_other_format(contents_->path, file.bytes(), "io::numpy_file");
    if (begins_with(file.bytes(), array_mark)) {
      contents_->members.emplace("", "");
      static_cast<void>(at(""));
    } else if (begins_with(file.bytes(), "PK")) {
      contents_->archive.emplace(std::move(file));
      for (std::string const& member : contents_->archive->names()) {
        const std::string name = member.ends_with(".npy") ? member.substr(0, member.size() - 4) : member;
        if (name == member || !contents_->archive->contains(name)) contents_->members.emplace(name, member);
      }
    } else {
      fail("neither a .npy nor a .npz file");
    }
  }

  std::string const& path() const { return contents_->path; }
  /// The names of all arrays, without ".npy", in the order of the alphabet.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (auto const& [name, member] : contents_->members) all.push_back(name);
    return all;
  }
  bool contains(std::string_view name) const { return member_of(name).has_value(); }

  /// An array, whose bytes live as long as this file. Several threads may ask. Throws io_error, with the
  /// array's name, if there is none, it is damaged, becomes larger than the limit, is big-endian or
  /// structured, or has another number of bytes than its header says. Of other arrays without numbers of C,
  /// texts say, the bytes are given, with NumPy's name of their type.
  safetensor const& at(std::string_view name) const {
    const std::optional<std::string> member = member_of(name);
    if (!member) fail(message("no array ", in_quotes(name), other_names(contents_->members)));
    const std::scoped_lock lock(contents_->busy);
    auto found = contents_->arrays.find(*member);
    if (found == contents_->arrays.end()) found = contents_->arrays.emplace(*member, load(*member)).first;
    return found->second.tensor;
  }

  [[noreturn]] void fail(std::string const& what) const {
    throw io_error(message("[read ", path(), "] ", what));
  }

 private:
  static constexpr std::string_view array_mark = "\x93NUMPY";

  struct array {
    safetensor tensor;
    std::vector<std::byte> unpacked, ordered;
  };
  struct contents {  // in one place when the file is moved
    contents(std::string name, memory_limit most) : path(std::move(name)), limit(most), file(path) {}
    std::string path;
    memory_limit limit;
    mapped_file file;
    std::optional<zip_archive> archive;
    std::map<std::string, std::string, std::less<>> members;  // by the names of their arrays
    std::mutex busy;
    std::map<std::string, array, std::less<>> arrays;  // that were asked for, by their members
  };

  static bool begins_with(std::span<std::byte const> bytes, std::string_view text) {
    return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
  }

  /// The member that holds an array, if there is one. NumPy, too, looks for a member of this very name first.
  std::optional<std::string> member_of(std::string_view name) const {
    if (contents_->archive && contents_->archive->contains(std::string(name))) return std::string(name);
    const auto found = contents_->members.find(name);
    if (found == contents_->members.end()) return std::nullopt;
    return found->second;
  }

  array load(std::string const& member) const {
    const std::string name = member.ends_with(".npy") ? member.substr(0, member.size() - 4) : member;
    const auto fail_here = [&](std::string const& what) {
      fail(name.empty() ? what : message("array ", in_quotes(name), ": ", what));
    };
    array made;
    const std::span<std::byte const> bytes =
        contents_->archive ? contents_->archive->content(member, made.unpacked, contents_->limit)
                           : contents_->file.bytes();
    if (!begins_with(bytes, array_mark)) fail_here("not an array of NumPy");
    const std::size_t wide = bytes.size() > 6 && bytes[6] != std::byte(1) ? 4 : 2, begin = 8 + wide;
    std::uint32_t length = 0;
    if (bytes.size() < begin) fail_here("the file ends within its header");
    if (bytes[6] < std::byte(1) || bytes[6] > std::byte(3)) fail_here("of a version that is not known");
    std::memcpy(&length, bytes.data() + 8, wide);
    if (length > bytes.size() - begin) fail_here("the file ends within its header");
    const detail::numpy_header header({reinterpret_cast<char const*>(bytes.data()) + begin, length},
                                      fail_here);
    if (header.structured)
      fail_here(message("a structured array, of ", in_quotes(header.descr), ": save its fields one by one"));
    const std::string_view dtype = detail::dtype_of(header.descr);
    const bool has_order = std::string_view("<>|=").find(header.descr.substr(0, 1)) != header.descr.npos;
    const std::string descr = (has_order ? "" : "|") + std::string(header.descr);
    if (dtype.empty() && descr.starts_with(">") && detail::kind_of_descr(descr).empty())
      fail_here("its numbers are big-endian: save x.astype('<f4')");
    made.tensor = {name, dtype.empty() ? descr : std::string(dtype), header.shape,
                   bytes.subspan(begin + length)};
    if (dtype.empty()) {  // a text, say: its bytes only
      made.tensor.shape = {};
      return made;
    }
    const auto wanted = detail::tensor_bytes(dtype, header.shape);
    if (!wanted || *wanted != made.tensor.bytes.size())
      fail_here(message("is ", detail::tensor_text(dtype, header.shape), ", but ", made.tensor.bytes.size(),
                        " bytes follow the header"));
    if (header.by_columns && header.shape.size() > 1 && *wanted > 0) {
      made.ordered = detail::in_row_order(made.tensor.bytes, header.shape, dtype_bytes(dtype));
      made.tensor.bytes = made.ordered;
      made.unpacked = {};
    }
    return made;
  }

  std::unique_ptr<contents> contents_;
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
    throw shape_error(message("[write ", path, "] array ", in_quotes(tensor.name), " ", what));
  };
  const bool is_text = tensor.dtype == message("|S", tensor.bytes.size());  // of one array element
  const auto wanted = is_text ? tensor.bytes.size() : tensor_bytes(tensor.dtype, tensor.shape);
  if (!wanted || *wanted != tensor.bytes.size())
    fail(message("is ", tensor_text(tensor.dtype, tensor.shape), ", but ", tensor.bytes.size(),
                 " bytes are given"));
  if (tensor.shape.size() > most_numpy_extents)
    fail(message("has ", tensor.shape.size(), " extents, but NumPy's arrays have at most ",
                 most_numpy_extents));
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
  if (descr.empty()) fail(message("is ", excerpt(tensor.dtype), ", which NumPy does not have"));
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
  std::set<std::string_view> names;
  for (safetensor const& tensor : tensors) {
    detail::numpy_array const& array = arrays.emplace_back(detail::make_numpy_array(path, tensor));
    if (!names.insert(tensor.name).second)
      throw io_error(
          message("[write ", path, "] array ", in_quotes(tensor.name), " has a name that is taken"));
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
