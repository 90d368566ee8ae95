// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/checksum.hpp>
#include <tessera/io/dtypes.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/file_format.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/io/own_checksum.hpp>
#include <tessera/io/parse_number.hpp>
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

/// Describes values in memory, to be written.
template <class T>
safetensor make_safetensor(std::string name, std::vector<std::int64_t> shape, std::span<T const> values) {
  return {std::move(name), dtype_name<T>(), std::move(shape), std::as_bytes(values)};
}

/// Whether a file carries checksums, in its metadata: of each tensor, and of the header itself.
enum class checksums { none, in_metadata };

namespace detail {

inline constexpr std::uint64_t longest_safetensors_header = 100'000'000;  // as in the reference
inline constexpr std::size_t alignment_of_tensors = 64;                   // as of an aligned_array
inline constexpr std::string_view metadata_name = "__metadata__";

/// The key in the metadata of a tensor's checksum.
inline std::string checksum_key(std::string const& tensor) { return "tessera.checksum." + tensor; }

}  // namespace detail

/// Writes the tensors as one safetensors file, through write_atomically and straight from where they are.
/// Tensors of a multiple of 64 bytes begin at such a multiple, so that a program that maps the file can
/// borrow them. They are first, and among them and among the others wider numbers are, so that each tensor is
/// aligned to its numbers. Throws shape_error or io_error, before anything is written, if a tensor's bytes do
/// not fit its shape or two have one name.
void write_safetensors(std::string const& path, std::span<safetensor const> tensors,
                       safetensors_metadata metadata = {}, checksums wanted = checksums::none);

/// The metadata of a file that follows a convention of ours: its name, and the version of the convention.
inline safetensors_metadata format_metadata(std::string const& format, int number) {
  return {{"tessera.format", format}, {"tessera.version", std::to_string(number)}};
}

/// A safetensors file, mapped and checked: opening it throws io_error, with the path and the byte offset,
/// unless every tensor lies within the file, beside the others and without holes. Opening takes O(n log n)
/// for n tensors; memory follows the header, which has at most 100 MB, as in the reference; tensors are read
/// from disk when they are used. A tensor of a dtype that is not known is there, with its bytes; conversions
/// of its numbers refuse it.
class safetensors_file {
 public:
  explicit safetensors_file(std::string path) : file_(std::move(path)) { index(); }

  std::string const& path() const { return file_.path(); }
  safetensors_metadata const& metadata() const { return metadata_; }
  /// All tensors, by name. Their bytes live as long as this file.
  std::map<std::string, safetensor, std::less<>> const& tensors() const { return tensors_; }

  bool contains(std::string_view name) const { return tensors_.find(name) != tensors_.end(); }

  safetensor const& at(std::string_view name) const;

  /// Copies a tensor, which must have this dtype and shape, to memory of its size.
  void read_into(std::string_view name, std::string_view dtype, std::span<std::int64_t const> shape,
                 std::span<std::byte> destination) const;
  template <class T>
  void read_into(std::string_view name, std::vector<std::int64_t> const& shape,
                 std::span<T> destination) const {
    read_into(name, dtype_name<T>(), shape, std::as_writable_bytes(destination));
  }

  /// The bytes of a tensor, to be changed by this process for itself: see mapped_file.
  std::span<std::byte> writable_bytes(std::string_view name) const {
    safetensor const& tensor = at(name);
    return file_.writable_bytes().subspan(offset(tensor), tensor.bytes.size());
  }

  /// Throws io_error unless the bytes of a tensor have the checksum written with checksums::in_metadata.
  void check(std::string_view name) const;

  /// Throws io_error unless the header has a checksum, which was compared when the file was opened.
  void check_header() const {
    if (!header_has_checksum_) fail(header_at, "no checksum of the header");
  }

  /// Throws io_error unless the file was written with format_metadata(format, a version from 1 to `newest`).
  /// Returns that version.
  int expect_format(std::string const& format, int newest) const;

  /// Throws io_error: `[read path] byte …:` and the text, without a byte for a fault that has no place in the
  /// file.
  [[noreturn]] void fail(std::uint64_t byte, std::string const& what) const {
    fail(message("byte ", byte, ": ", what));
  }
  [[noreturn]] void fail(std::string const& what) const;

 private:
  static constexpr std::uint64_t header_at = sizeof(std::uint64_t);

  struct extent {
    std::uint64_t begin, end;  // within the data
    safetensor* tensor;
  };

  std::uint64_t offset(safetensor const& tensor) const {
    return static_cast<std::uint64_t>(tensor.bytes.data() - file_.bytes().data());
  }

  void index();

  std::string_view header_text() const;

  /// Before it is parsed, as a change may be anything.
  void require_unchanged(std::string_view header);

  /// Enters a tensor, still without bytes, from its line in the header.
  extent declared(std::string const& name, json_place const& place);

  mapped_file file_;
  bool header_has_checksum_ = false;
  safetensors_metadata metadata_;
  std::map<std::string, safetensor, std::less<>> tensors_;
};

#ifdef TESSERA_BODY

namespace detail {

/// The header of tensors that follow each other in this order.
TESSERA_BODY std::string safetensors_header(std::span<safetensor const* const> order,
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
  constexpr std::size_t length = sizeof(std::uint64_t);
  text.resize(round_up(length + text.size(), alignment_of_tensors) - length, ' ');
  return text;
}

/// Writes in pieces that are still in the L2 cache when they are written, and returns the checksum.
TESSERA_BODY std::uint64_t write_summed(file_writer& out, std::span<std::byte const> bytes) {
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

TESSERA_BODY void write_safetensors(std::string const& path, std::span<safetensor const> tensors,
                                    safetensors_metadata metadata, checksums wanted) {
  std::vector<safetensor const*> order;
  std::set<std::string_view> names{detail::metadata_name};
  for (safetensor const& tensor : tensors) {
    const auto about = [&](std::string const& what) {
      return message("[write ", path, "] tensor ", in_quotes(tensor.name), " ", what);
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
    const auto ends_between = [](safetensor const* tensor) {
      return tensor->bytes.size() % detail::alignment_of_tensors != 0;
    };
    return std::tuple(ends_between(a), dtype_bits(b->dtype), a) <
           std::tuple(ends_between(b), dtype_bits(a->dtype), b);
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

TESSERA_BODY safetensor const& safetensors_file::at(std::string_view name) const {
  if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
  fail(header_at, message("no tensor ", in_quotes(name), other_names(tensors_)));
}

TESSERA_BODY void safetensors_file::read_into(std::string_view name, std::string_view dtype,
                                              std::span<std::int64_t const> shape,
                                              std::span<std::byte> destination) const {
  safetensor const& tensor = at(name);
  const auto describe = [&](std::string const& what) {
    return message("tensor ", in_quotes(tensor.name), " is ", detail::tensor_text(tensor.dtype, tensor.shape),
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

TESSERA_BODY void safetensors_file::check(std::string_view name) const {
  safetensor const& tensor = at(name);
  const auto written = metadata_.find(detail::checksum_key(tensor.name));
  if (written == metadata_.end()) fail(header_at, message("no checksum of tensor ", in_quotes(tensor.name)));
  checksum sum;
  sum.add(tensor.bytes);
  if (const std::string found = detail::checksum_text(sum.value()); found != written->second)
    fail(offset(tensor),
         message("the bytes of tensor ", in_quotes(tensor.name), " have the checksum ", found,
                 " but were written with ", in_quotes(written->second), ": some were changed"));
}

TESSERA_BODY int safetensors_file::expect_format(std::string const& format, int newest) const {
  const auto name = metadata_.find("tessera.format"), number = metadata_.find("tessera.version");
  if (name == metadata_.end() || number == metadata_.end())
    fail(header_at,
         message("not the format \"", format, "\": the metadata lack tessera.format or tessera.version"));
  if (name->second != format)
    fail(header_at, message("the format is ", in_quotes(name->second), " but should be ", in_quotes(format)));
  int found = 0;
  const bool is_whole = is_number(number->second, found);
  if (!is_whole || found < 1 || found > newest)
    fail(header_at, message("format ", in_quotes(format), " of version ",
                            is_whole ? std::to_string(found) : in_quotes(number->second),
                            ", but versions 1 to ", newest, " can be read"));
  return found;
}

TESSERA_BODY void safetensors_file::fail(std::string const& what) const {
  throw io_error(message("[read ", path(), "] ", what));
}

TESSERA_BODY void safetensors_file::index() {
  const std::string_view header = header_text();
  require_unchanged(header);
  // A tensor has 7 values, 8 if it is a row, and takes 50 bytes at least; a value takes 40 bytes of memory.
  const json top = parse_json(header, path(), header_at, 1000 + header.size() / 4);
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
  for (extent const& here : extents) {
    const auto which = [&](char const* fault) {
      return message("tensor ", in_quotes(here.tensor->name), ", bytes ", here.begin, " to ", here.end,
                     " of the data, ", fault);
    };
    if (here.begin < filled) fail(data_at + here.begin, which("overlaps the one before"));
    if (here.begin > filled) fail(data_at + filled, which("leaves a hole here"));
    if (here.end > data.size()) fail(file_.bytes().size(), which("is cut off here: the file ends"));
    here.tensor->bytes = data.subspan(here.begin, here.end - here.begin);
    filled = here.end;
  }
  if (filled != data.size())
    fail(data_at + filled, message(data.size() - filled, " bytes belong to no tensor"));
}

TESSERA_BODY std::string_view safetensors_file::header_text() const {
  const std::span<std::byte const> all = file_.bytes();
  std::uint64_t length = 0;
  refuse_other_format(path(), all, "io::safetensors_file");
  if (all.size() < header_at)
    fail(all.size(), "the file ends within the length of the header: not a safetensors file");
  std::memcpy(&length, all.data(), sizeof(length));
  if (length > detail::longest_safetensors_header)
    fail(0, message("a header of ", length, " bytes, more than the ", detail::longest_safetensors_header,
                    " allowed: not a safetensors file"));
  if (length > all.size() - header_at)
    fail(all.size(), message("the file ends within the header of ", length, " bytes"));
  const std::string_view text(reinterpret_cast<char const*>(all.data()) + header_at, length);
  if (text.substr(0, 1) != "{") fail(header_at, "the header does not begin with '{': not a safetensors file");
  return text;
}

TESSERA_BODY void safetensors_file::require_unchanged(std::string_view header) {
  const std::size_t at = detail::own_checksum_at(header);
  if (at == header.npos) return;
  const std::string found = detail::own_checksum(std::string(header), at);
  if (const std::string_view written = header.substr(at, found.size()); found != written)
    fail(header_at, message("the header has the checksum ", found, " but was written with ",
                            in_quotes(written), ": some of it was changed"));
  header_has_checksum_ = true;
}

TESSERA_BODY safetensors_file::extent safetensors_file::declared(std::string const& name,
                                                                 json_place const& place) {
  safetensor tensor{name, place.at("dtype").as_string(), {}, {}};
  const json_place shape = place.at("shape"), offsets = place.at("data_offsets");
  for (std::size_t i = 0; i < shape.size(); ++i) tensor.shape.push_back(shape.at(i).as_integer());
  const auto bytes = detail::tensor_bytes(tensor.dtype, tensor.shape);
  const bool is_known = dtype_bits(tensor.dtype) > 0;
  if (is_known && !bytes) place.fail(detail::no_size_text(tensor.dtype, tensor.shape));
  if (offsets.size() != 2) offsets.fail(message("has ", offsets.size(), " numbers but should have 2"));
  const auto begin = offsets.at(0).as_integer<std::uint64_t>(),
             end = offsets.at(1).as_integer<std::uint64_t>();
  if (begin > end) offsets.fail(message("is [", begin, ",", end, "], which ends before it begins"));
  if (is_known && end - begin != *bytes)
    offsets.fail(message("is [", begin, ",", end, "], but ", detail::tensor_text(tensor.dtype, tensor.shape),
                         " takes ", *bytes, " bytes"));
  return {begin, end, &(tensors_[name] = std::move(tensor))};
}

#endif

}}}  // namespace tessera::TESSERA_ISA::io
