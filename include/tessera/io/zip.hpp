// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/crc32.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/inflate.hpp>
#include <tessera/io/text.hpp>

// Zip archives (PKWARE's APPNOTE 6.3), as far as NumPy's .npz need them: members that are stored or deflated,
// of any size.

namespace tessera { inline namespace TESSERA_ISA { namespace io {

namespace detail {

struct zip_member {
  std::uint64_t at = 0, packed = 0, size = 0;  // at: of the member's own header
  std::uint32_t crc = 0;
  std::uint16_t method = 0;
  bool encrypted = false;
};

inline constexpr std::uint32_t local_mark = 0x04034b50, member_mark = 0x02014b50, end_mark = 0x06054b50,
                               wide_end_mark = 0x06064b50, wide_locator_mark = 0x07064b50,
                               in_wide = 0xffffffff;
inline constexpr std::uint16_t wide_field = 1, stored_method = 0, deflated_method = 8;

}  // namespace detail

/// A zip archive, mapped; its members by their names, of which the last of one name counts, as for Python.
/// Opening it reads its index alone, and throws io_error, with the path and the byte offset, if that is
/// damaged or the archive in several parts. A mistake in a member is found when its content is asked for.
class zip_archive {
 public:
  explicit zip_archive(std::string path) : zip_archive(mapped_file(std::move(path))) {}
  explicit zip_archive(mapped_file file) : file_(std::move(file)) { index(); }

  std::string const& path() const { return file_.path(); }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (auto const& [name, member] : members_) all.push_back(name);
    return all;
  }

  bool contains(std::string const& name) const { return members_.find(name) != members_.end(); }

  /// The content of a member: in the mapped file if it is stored, else unpacked to `room`. Throws io_error if
  /// the member is damaged, encrypted, compressed by another method than DEFLATE, or becomes more than the
  /// limit allows.
  std::span<std::byte const> content(std::string const& name, std::vector<std::byte>& room,
                                     memory_limit limit = {}) const {
    const auto found = members_.find(name);
    if (found == members_.end()) throw io_error(message("[read ", path(), "] no member ", in_quotes(name)));
    detail::zip_member const& member = found->second;
    if (member.encrypted) fail(member.at, message("member ", in_quotes(name), " is encrypted"));
    if (get<std::uint32_t>(member.at) != detail::local_mark) fail(member.at, "no member begins here");
    const std::uint64_t begin =
        member.at + 30 + get<std::uint16_t>(member.at + 26) + get<std::uint16_t>(member.at + 28);
    if (begin > bytes().size() || member.packed > bytes().size() - begin)
      fail(bytes().size(), message("the file ends within member ", in_quotes(name)));
    std::span<std::byte const> content = bytes().subspan(begin, member.packed);
    const std::string where = message("read ", path(), ", member ", in_quotes(name));
    if (member.method == detail::deflated_method) {
      room = inflate(content, member.size, where, limit);
      content = room;
    } else if (member.method != detail::stored_method) {
      throw io_error(message("[", where, "] compressed by method ", member.method,
                             ": only stored and deflated members are read"));
    }
    if (content.size() != member.size || detail::crc32(content) != member.crc)
      throw io_error(message("[", where, "] some of its bytes were changed: their checksum differs"));
    return content;
  }

 private:
  std::span<std::byte const> bytes() const { return file_.bytes(); }

  [[noreturn]] void fail(std::uint64_t byte, std::string const& what) const {
    throw io_error(message("[read ", path(), "] byte ", byte, ": ", what));
  }

  template <class T> T get(std::uint64_t at) const {
    if (at > bytes().size() || sizeof(T) > bytes().size() - at)
      fail(bytes().size(), "the file ends within a header: a zip archive that was cut off, or none");
    T value;
    std::memcpy(&value, bytes().data() + at, sizeof(T));
    return value;
  }

  /// Where the last record is, behind which only a comment may follow.
  std::uint64_t end_record() const {
    constexpr std::uint64_t size = 22, longest_comment = 65535;
    for (std::uint64_t comment = 0; comment <= longest_comment && comment + size <= bytes().size();
         ++comment) {
      const std::uint64_t at = bytes().size() - size - comment;
      if (get<std::uint32_t>(at) == detail::end_mark && get<std::uint16_t>(at + 20) == comment) return at;
    }
    fail(bytes().size(), "no zip archive ends here");
  }

  void index() {
    const std::uint64_t end = end_record();
    std::uint64_t count = get<std::uint16_t>(end + 10), at = get<std::uint32_t>(end + 16);
    if (get<std::uint16_t>(end + 4) != get<std::uint16_t>(end + 6)) fail(end, "an archive in several parts");
    if (end >= 20 && get<std::uint32_t>(end - 20) == detail::wide_locator_mark) {
      const auto wide = get<std::uint64_t>(end - 12);
      if (get<std::uint32_t>(wide) != detail::wide_end_mark) fail(wide, "no record of a wide archive");
      count = get<std::uint64_t>(wide + 32);
      at = get<std::uint64_t>(wide + 48);
    }
    for (; count > 0; --count) {
      if (get<std::uint32_t>(at) != detail::member_mark) fail(at, "no entry of the archive's index");
      const std::uint64_t name_length = get<std::uint16_t>(at + 28), extra = get<std::uint16_t>(at + 30),
                          comment = get<std::uint16_t>(at + 32),
                          next = at + 46 + name_length + extra + comment;
      if (next > bytes().size()) fail(bytes().size(), "the file ends within its index");
      std::string name(reinterpret_cast<char const*>(bytes().data()) + at + 46, name_length);
      detail::zip_member member{.at = get<std::uint32_t>(at + 42),
                                .packed = get<std::uint32_t>(at + 20),
                                .size = get<std::uint32_t>(at + 24),
                                .crc = get<std::uint32_t>(at + 16),
                                .method = get<std::uint16_t>(at + 10),
                                .encrypted = (get<std::uint16_t>(at + 8) & 1) != 0};
      widen(member, at + 46 + name_length, at + 46 + name_length + extra);
      members_.insert_or_assign(std::move(name), member);
      at = next;
    }
  }

  /// Sizes and places beyond 32 bits, out of the extra fields in bytes [at, end).
  void widen(detail::zip_member& member, std::uint64_t at, std::uint64_t end) const {
    while (at + 4 <= end) {
      const std::uint64_t next = at + 4 + get<std::uint16_t>(at + 2);
      if (next > end) fail(at, "an extra field that is longer than all of them");
      if (get<std::uint16_t>(at) == detail::wide_field) {
        std::uint64_t number = at + 4;
        for (std::uint64_t* narrow : {&member.size, &member.packed, &member.at})
          if (*narrow == detail::in_wide && number + 8 <= next) {
            *narrow = get<std::uint64_t>(number);
            number += 8;
          }
      }
      at = next;
    }
  }

  mapped_file file_;
  std::map<std::string, detail::zip_member> members_;
};

/// A member to be written: its name, and its content in pieces.
struct zip_content {
  std::string name;
  std::vector<std::span<std::byte const>> pieces;
};

/// Writes an archive of stored members, through write_atomically. All sizes are written in 64 bits. Throws
/// io_error, before anything is written, for a name of more than 65535 bytes.
inline void write_zip(std::string const& path, std::span<zip_content const> members) {
  const auto record = [](auto... numbers) {  // little-endian, one after the other
    std::string text;
    (text.append(reinterpret_cast<char const*>(&numbers), sizeof numbers), ...);
    return text;
  };
  constexpr std::uint16_t version = 45, no = 0, utf8 = 1 << 11, date = (1 << 5) | 1;  // 1980-01-01
  constexpr std::uint16_t in_wide_count = 0xffff;
  for (zip_content const& member : members)
    if (member.name.size() > std::numeric_limits<std::uint16_t>::max())
      throw io_error(message("[write ", path, "] member ", in_quotes(member.name), " has a name of ",
                             member.name.size(), " bytes, but at most 65535 are allowed"));
  write_atomically(path, [&](file_writer& out) {
    std::string index;
    for (zip_content const& member : members) {
      std::uint64_t size = 0;
      std::uint32_t crc = 0;
      for (auto const& piece : member.pieces) {
        size += piece.size();
        crc = detail::crc32(piece, crc);
      }
      const std::uint64_t at = out.offset();
      const auto length = static_cast<std::uint16_t>(member.name.size());
      out.write(record(detail::local_mark, version, utf8, detail::stored_method, no, date, crc,
                       detail::in_wide, detail::in_wide, length, std::uint16_t(20)) +
                member.name + record(detail::wide_field, std::uint16_t(16), size, size));
      for (auto const& piece : member.pieces) out.write(piece);
      index += record(detail::member_mark, version, version, utf8, detail::stored_method, no, date, crc,
                      detail::in_wide, detail::in_wide, length, std::uint16_t(28), no, no, no,
                      std::uint32_t(0), detail::in_wide) +
               member.name + record(detail::wide_field, std::uint16_t(24), size, size, at);
    }
    const std::uint64_t at = out.offset(), bytes = index.size(), count = members.size();
    out.write(
        index +
        record(detail::wide_end_mark, std::uint64_t(44), version, version, std::uint32_t(0), std::uint32_t(0),
               count, count, bytes, at) +
        record(detail::wide_locator_mark, std::uint32_t(0), at + bytes, std::uint32_t(1)) +
        record(detail::end_mark, no, no, in_wide_count, in_wide_count, detail::in_wide, detail::in_wide, no));
  });
}

}}}  // namespace tessera::TESSERA_ISA::io
