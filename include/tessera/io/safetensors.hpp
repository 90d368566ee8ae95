// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/checksum.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/io/own_checksum.hpp>
#include <tessera/io/text.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

// A safetensors file (github.com/huggingface/safetensors) is the length of its header in 8 bytes, the header
// in JSON, and the tensors' bytes, row by row and without holes.
static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

/// A tensor that is in a file or shall be written to one. It refers to its bytes, which need not be aligned.
struct safetensor {
  std::string name;
  std::string dtype;  // "F32", …: see dtypes
  std::vector<std::int64_t> shape;
  std::span<std::byte const> bytes;
};

/// Text that a file carries beside its tensors.
using safetensors_metadata = std::map<std::string, std::string, std::less<>>;

struct dtype_size {
  std::string_view name;
  std::uint64_t bytes;
};
inline constexpr std::array<dtype_size, 19> dtypes{{
    {"BOOL", 1},    {"U8", 1},          {"I8", 1},          {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1}, {"I16", 2},     {"U16", 2},
    {"F16", 2},     {"BF16", 2},        {"I32", 4},         {"U32", 4},     {"F32", 4},
    {"F64", 8},     {"I64", 8},         {"U64", 8},         {"C64", 8},
}};

/// Bytes of one number, or 0 for a dtype that is not known.
constexpr std::uint64_t dtype_bytes(std::string_view dtype) {
  for (dtype_size const& known : dtypes)
    if (known.name == dtype) return known.bytes;
  return 0;
}

/// The dtype of an element or an integer.
template <class T> constexpr char const* dtype_name() {
  if constexpr (element<T>) {
    return element_traits<T>::name;
  } else if constexpr (std::same_as<T, bool>) {
    return "BOOL";
  } else {
    static_assert(std::integral<T>, "safetensors files hold elements, integers and bool");
    constexpr std::array is_signed{"I8", "I16", "I32", "I64"}, is_unsigned{"U8", "U16", "U32", "U64"};
    return (std::is_signed_v<T> ? is_signed : is_unsigned)[std::countr_zero(sizeof(T))];
  }
}

/// Describes values in memory, to be written.
template <class T>
safetensor make_safetensor(std::string name, std::vector<std::int64_t> shape, std::span<T const> values) {
  return {std::move(name), dtype_name<T>(), std::move(shape), std::as_bytes(values)};
}

/// Whether a file carries checksums, in its metadata: of each tensor, and of the header itself.
enum class checksums { none, in_metadata };

namespace detail {

inline constexpr std::uint64_t longest_safetensors_header = 100'000'000;  // as in the reference
inline constexpr std::string_view metadata_name = "__metadata__";

/// Bytes of a tensor, or none if the dtype is unknown, an extent is negative or the product too large.
inline std::optional<std::uint64_t> tensor_bytes(std::string_view dtype,
                                                 std::span<std::int64_t const> shape) {
  std::uint64_t bytes = dtype_bytes(dtype);
  if (bytes == 0) return std::nullopt;
  for (const std::int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes))
      return std::nullopt;
  return bytes;
}

/// The key in the metadata of a tensor's checksum.
inline std::string checksum_key(std::string const& tensor) { return "tessera.checksum." + tensor; }

/// "F32 (3, 4)".
inline std::string tensor_text(std::string_view dtype, std::span<std::int64_t const> shape) {
  std::string text = std::string(dtype) + " (";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + ")";
}

/// "is F31 (3, 4)", and why that has no size.
inline std::string no_size_text(std::string_view dtype, std::span<std::int64_t const> shape) {
  std::string text = "is " + tensor_text(dtype, shape);
  if (dtype_bytes(dtype) > 0) return text + ", which has no size in 64 bits";
  text += ", but the known dtypes are";
  for (dtype_size const& known : dtypes) (text += ' ') += known.name;
  return text;
}

/// The header of tensors that follow each other in this order.
inline std::string safetensors_header(std::span<safetensor const* const> order,
                                      safetensors_metadata const& metadata) {
  json::object header, texts;
  for (auto const& [key, text] : metadata) texts.push_back({key, text});
  if (!texts.empty()) header.push_back({std::string(metadata_name), std::move(texts)});
  std::uint64_t end = 0;
  for (safetensor const* tensor : order) {
    const std::uint64_t begin = std::exchange(end, end + tensor->bytes.size());
    header.push_back(
        {tensor->name, json::object{{"dtype", tensor->dtype},
                                    {"shape", json::array(tensor->shape.begin(), tensor->shape.end())},
                                    {"data_offsets", json::array{begin, end}}}});
  }
  std::string text = to_text(std::move(header));
  text.resize(round_up<std::size_t>(text.size(), 8), ' ');  // the data begin at a multiple of 8
  return text;
}

/// Writes in pieces that are still in the L2 cache when they are written, and returns the checksum.
inline std::uint64_t write_summed(file_writer& out, std::span<std::byte const> bytes) {
  constexpr std::size_t piece = 512 * 1024;
  static_assert(piece % checksum::stretch == 0, "the checksum takes pieces of this size");
  checksum sum;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(piece, bytes.size()))) {
    const auto next = bytes.first(std::min(piece, bytes.size()));
    sum.add(next);
    out.write(next);
  }
  return sum.value();
}

}  // namespace detail

/// Writes the tensors as one safetensors file, through write_atomically and straight from where they are.
/// Wider numbers come first, so that each tensor is aligned to its numbers. Throws shape_error or io_error,
/// before anything is written, if a tensor's bytes do not fit its shape or two have one name.
inline void write_safetensors(std::string const& path, std::span<safetensor const> tensors,
                              safetensors_metadata metadata = {}, checksums wanted = checksums::none) {
  std::vector<safetensor const*> order;
  std::set<std::string_view> names{detail::metadata_name};
  for (safetensor const& tensor : tensors) {
    const auto about = [&](std::string const& what) {
      return message("[write ", path, "] tensor \"", tensor.name, "\" ", what);
    };
    if (!names.insert(tensor.name).second) throw io_error(about("has a name that is taken"));
    const auto bytes = detail::tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes) throw shape_error(about(detail::no_size_text(tensor.dtype, tensor.shape)));
    if (*bytes != tensor.bytes.size())
      throw shape_error(about(message("is ", detail::tensor_text(tensor.dtype, tensor.shape), ", ", *bytes,
                                      " bytes, but ", tensor.bytes.size(), " bytes are given")));
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](safetensor const* a, safetensor const* b) {
    return std::pair(dtype_bytes(b->dtype), a) < std::pair(dtype_bytes(a->dtype), b);
  });

  metadata.erase(std::string(detail::own_checksum_key));  // of another header
  if (wanted == checksums::in_metadata) {
    metadata[std::string(detail::own_checksum_key)] = detail::checksum_text(0);  // until they are known
    for (safetensor const* tensor : order)
      metadata[detail::checksum_key(tensor->name)] = detail::checksum_text(0);
  }
  const std::string text = detail::safetensors_header(order, metadata);
  const std::uint64_t length = text.size();
  if (length > detail::longest_safetensors_header)
    throw io_error(message("[write ", path, "] the header takes ", length, " bytes, but at most ",
                           detail::longest_safetensors_header, " are allowed"));
  write_atomically(path, [&](file_writer& out) {
    out.write(std::as_bytes(std::span(&length, 1)));
    out.write(text);
    for (safetensor const* tensor : order)
      if (wanted == checksums::none)
        out.write(tensor->bytes);
      else
        metadata[detail::checksum_key(tensor->name)] =
            detail::checksum_text(detail::write_summed(out, tensor->bytes));
    if (wanted == checksums::none) return;
    std::string header = detail::safetensors_header(order, metadata);
    const std::size_t at = detail::own_checksum_at(header);
    const std::string own = detail::own_checksum(header, at);
    out.rewrite(sizeof(length), header.replace(at, own.size(), own));
  });
}

/// The metadata of a file that follows a convention of ours: its name, and the version of the convention.
inline safetensors_metadata format_metadata(std::string const& format, int number) {
  return {{"tessera.format", format}, {"tessera.version", std::to_string(number)}};
}

/// A safetensors file, mapped and checked: opening it throws io_error, with the path and the byte offset,
/// unless every tensor lies within the file, beside the others and without holes.
class safetensors_file {
 public:
  explicit safetensors_file(std::string path) : file_(std::move(path)) { index(); }

  std::string const& path() const { return file_.path(); }
  safetensors_metadata const& metadata() const { return metadata_; }
  /// All tensors, by name. Their bytes live as long as this file.
  std::map<std::string, safetensor, std::less<>> const& tensors() const { return tensors_; }

  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  safetensor const& at(std::string_view name) const {
    if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
    fail(header_at, message("no tensor \"", std::string(name), "\"", other_names(tensors_)));
  }

  /// Copies a tensor, which must have this dtype and shape, to memory of its size.
  void read_into(std::string_view name, std::string_view dtype, std::span<std::int64_t const> shape,
                 std::span<std::byte> destination) const {
    safetensor const& tensor = at(name);
    const auto describe = [&](std::string const& what) {
      return message("tensor \"", tensor.name, "\" is ", detail::tensor_text(tensor.dtype, tensor.shape),
                     what);
    };
    if (tensor.dtype != dtype ||
        !std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end()))
      fail(offset(tensor), describe(" but should be " + detail::tensor_text(dtype, shape)));
    if (destination.size() != tensor.bytes.size())
      throw shape_error(message("[read ", path(), "] ", describe(", "), tensor.bytes.size(),
                                " bytes, but there is room for ", destination.size()));
    std::copy(tensor.bytes.begin(), tensor.bytes.end(), destination.begin());
  }
  template <class T>
  void read_into(std::string_view name, std::vector<std::int64_t> const& shape,
                 std::span<T> destination) const {
    read_into(name, dtype_name<T>(), shape, std::as_writable_bytes(destination));
  }

  /// Throws io_error unless the bytes of a tensor have the checksum written with checksums::in_metadata.
  void check(std::string_view name) const {
    safetensor const& tensor = at(name);
    const auto written = metadata_.find(detail::checksum_key(tensor.name));
    if (written == metadata_.end()) fail(header_at, message("no checksum of tensor \"", tensor.name, "\""));
    checksum sum;
    sum.add(tensor.bytes);
    if (const std::string found = detail::checksum_text(sum.value()); found != written->second)
      fail(offset(tensor), message("the bytes of tensor \"", tensor.name, "\" have the checksum ", found,
                                   " but were written with ", written->second, ": some were changed"));
  }

  /// Throws io_error unless the header has a checksum, which was compared when the file was opened.
  void check_header() const {
    if (!header_has_checksum_) fail(header_at, "no checksum of the header");
  }

  /// Throws io_error unless the file was written with format_metadata(format, a version from 1 to `newest`).
  /// Returns that version.
  int expect_format(std::string const& format, int newest) const {
    const auto name = metadata_.find("tessera.format"), number = metadata_.find("tessera.version");
    if (name == metadata_.end() || number == metadata_.end())
      fail(header_at,
           message("not the format \"", format, "\": the metadata lack tessera.format or tessera.version"));
    if (name->second != format)
      fail(header_at, message("the format is \"", name->second, "\" but should be \"", format, "\""));
    std::string const& digits = number->second;
    int found = 0;
    const auto [stop, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), found);
    if (failure != std::errc{} || stop != digits.data() + digits.size() || found < 1 || found > newest)
      fail(header_at, message("format \"", format, "\" of version ", digits, ", but versions 1 to ", newest,
                              " can be read"));
    return found;
  }

  /// Throws io_error: `[read path] byte …:` and the text, without a byte for a fault that has no place in the
  /// file.
  [[noreturn]] void fail(std::uint64_t byte, std::string const& what) const {
    fail(message("byte ", byte, ": ", what));
  }
  [[noreturn]] void fail(std::string const& what) const {
    throw io_error(message("[read ", path(), "] ", what));
  }

 private:
  static constexpr std::uint64_t header_at = sizeof(std::uint64_t);
  static constexpr std::uint64_t most_values = 1000000;  // in a header: those of 160 thousand tensors

  struct extent {
    std::uint64_t begin, end;  // within the data
    safetensor* tensor;
  };

  std::uint64_t offset(safetensor const& tensor) const {
    return static_cast<std::uint64_t>(tensor.bytes.data() - file_.bytes().data());
  }

  void index() {
    const std::string_view header = header_text();
    require_unchanged(header);
    const json top = parse_json(header, path(), header_at, most_values);
    const std::string document = message("read ", path(), ", header at byte ", header_at);
    std::vector<extent> extents;
    for (json_member const& member : json_place(top, document).members()) {
      const json_place place(member.value, document, member.key);
      if (member.key == detail::metadata_name)
        for (json_member const& text : place.members())
          metadata_[text.key] = json_place(text.value, document, member.key + "." + text.key).as_string();
      else
        extents.push_back(declared(member.key, place));
    }

    const std::uint64_t data_at = header_at + header.size();
    const std::span<std::byte const> data = file_.bytes().subspan(data_at);
    std::sort(extents.begin(), extents.end(), [](extent const& a, extent const& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t filled = 0;
    for (auto const& [begin, end, tensor] : extents) {
      const std::string which =
          message("tensor \"", tensor->name, "\", bytes ", begin, " to ", end, " of the data, ");
      if (begin < filled) fail(data_at + begin, which + "overlaps the one before");
      if (begin > filled) fail(data_at + filled, which + "leaves a hole here");
      if (end > data.size()) fail(file_.bytes().size(), which + "is cut off here: the file ends");
      tensor->bytes = data.subspan(begin, end - begin);
      filled = end;
    }
    if (filled != data.size())
      fail(data_at + filled, message(data.size() - filled, " bytes belong to no tensor"));
  }

  std::string_view header_text() const {
    const std::span<std::byte const> all = file_.bytes();
    std::uint64_t length = 0;
    if (all.size() < header_at)
      fail(all.size(), "the file ends within the length of the header: not a safetensors file");
    std::memcpy(&length, all.data(), sizeof(length));
    if (length > detail::longest_safetensors_header)
      fail(0, message("a header of ", length, " bytes, more than the ", detail::longest_safetensors_header,
                      " allowed: not a safetensors file"));
    if (length > all.size() - header_at)
      fail(all.size(), message("the file ends within the header of ", length, " bytes"));
    const std::string_view text(reinterpret_cast<char const*>(all.data()) + header_at, length);
    if (text.substr(0, 1) != "{")
      fail(header_at, "the header does not begin with '{': not a safetensors file");
    return text;
  }

  /// Before it is parsed, as a change may be anything.
  void require_unchanged(std::string_view header) {
    const std::size_t at = detail::own_checksum_at(header);
    if (at == header.npos) return;
    const std::string found = detail::own_checksum(std::string(header), at);
    if (const std::string_view written = header.substr(at, found.size()); found != written)
      fail(header_at, message("the header has the checksum ", found, " but was written with ",
                              std::string(written), ": some of it was changed"));
    header_has_checksum_ = true;
  }

  /// Enters a tensor, still without bytes, from its line in the header.
  extent declared(std::string const& name, json_place const& place) {
    safetensor tensor{name, place.at("dtype").as_string(), {}, {}};
    const json_place shape = place.at("shape"), offsets = place.at("data_offsets");
    for (std::size_t i = 0; i < shape.size(); ++i) tensor.shape.push_back(shape.at(i).as_integer());
    const auto bytes = detail::tensor_bytes(tensor.dtype, tensor.shape);
    if (!bytes) place.fail(detail::no_size_text(tensor.dtype, tensor.shape));
    if (offsets.size() != 2) offsets.fail(message("has ", offsets.size(), " numbers but should have 2"));
    const auto begin = offsets.at(0).as_integer<std::uint64_t>(),
               end = offsets.at(1).as_integer<std::uint64_t>();
    if (begin > end || end - begin != *bytes)
      offsets.fail(message("is ", to_text(offsets.value()), ", but ",
                           detail::tensor_text(tensor.dtype, tensor.shape), " takes ", *bytes, " bytes"));
    return {begin, end, &(tensors_[name] = std::move(tensor))};
  }

  mapped_file file_;
  bool header_has_checksum_ = false;
  safetensors_metadata metadata_;
  std::map<std::string, safetensor, std::less<>> tensors_;
};

}}}  // namespace tessera::TESSERA_ISA::io
