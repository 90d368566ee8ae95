// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/memory_limit.hpp>

// DEFLATE (RFC 1951), the compression of zip files, so that NumPy's files need no other library.

namespace tessera { inline namespace TESSERA_ISA { namespace io {

namespace detail {

/// Decompresses one stream to `to`, which is empty and grows with the content, to at most `most` bytes.
/// `fail` throws io_error with the reason, `too_long` for more bytes.
template <class Fail, class TooLong> class inflater {
 public:
  inflater(std::span<std::byte const> from, std::vector<std::byte>& to, std::uint64_t most, Fail const& fail,
           TooLong const& too_long)
      : from_(from), to_(to), most_(most), fail_(fail), too_long_(too_long) {}

  /// Returns the number of compressed bytes.
  std::size_t run() {
    for (bool last = false; !last;) {
      last = take(1) != 0;
      switch (take(2)) {
        case 0:
          stored();
          break;
        case 1:
          if (fixed_.empty()) fixed_ = {fixed_literals(), fixed_distances()};
          compressed_by(fixed_[0], fixed_[1]);
          break;
        case 2:
          dynamic();
          break;
        default:
          fail_("a block of an unknown kind");
      }
    }
    to_.resize(filled_);
    return at_ - std::size_t(bits_) / 8;
  }

 private:
  static constexpr int longest_code = 15;

  /// A prefix code: the next bits are looked up as they are.
  struct code {
    struct entry {
      std::uint16_t symbol;
      std::uint8_t bits;  // 0 for bits that no symbol has
    };
    int bits = 0;  // of the longest symbol
    std::vector<entry> of;
  };

  code make_code(std::span<std::uint8_t const> lengths) const {
    std::array<int, longest_code + 1> count{}, next{};
    for (const std::uint8_t length : lengths) ++count[length];
    count[0] = 0;
    code made;
    for (int length = 1, left = 1, first = 0; length <= longest_code; ++length) {
      const auto l = static_cast<unsigned>(length);
      left = 2 * left - count[l];
      if (left < 0) fail_("a code with more symbols than there is room for");
      first = 2 * (first + count[l - 1]);
      next[l] = first;
      if (count[l] > 0) made.bits = length;
    }
    made.of.resize(std::size_t(1) << made.bits, {0, 0});
    for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
      const std::uint8_t length = lengths[symbol];
      if (length == 0) continue;
      const auto bits = static_cast<unsigned>(next[length]++);
      std::size_t reversed = 0;
      for (int b = 0; b < length; ++b) reversed |= std::size_t((bits >> b) & 1) << (length - 1 - b);
      for (; reversed < made.of.size(); reversed += std::size_t(1) << length)
        made.of[reversed] = {static_cast<std::uint16_t>(symbol), length};
    }
    return made;
  }

  code fixed_literals() const {
    std::array<std::uint8_t, 288> lengths;
    for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    return make_code(lengths);
  }
  code fixed_distances() const {
    std::array<std::uint8_t, 30> lengths;
    lengths.fill(5);
    return make_code(lengths);
  }

  /// Bits beyond the end are zeros, until one of them is taken.
  void look(int bits) {
    for (; bits_ < bits; bits_ += 8, ++at_)
      if (at_ < from_.size()) waiting_ |= std::uint64_t(from_[at_]) << bits_;
  }
  void drop(int bits) {
    waiting_ >>= bits;
    bits_ -= bits;
    if (at_ - std::size_t(bits_) / 8 > from_.size()) fail_("the compressed data end early");
  }
  unsigned take(int bits) {
    look(bits);
    const auto value = static_cast<unsigned>(waiting_ & ((std::uint64_t(1) << bits) - 1));
    drop(bits);
    return value;
  }
  int symbol(code const& c) {
    look(c.bits);
    const auto entry = c.of[waiting_ & (c.of.size() - 1)];
    if (entry.bits == 0) fail_("bits that are no symbol");
    drop(entry.bits);
    return entry.symbol;
  }

  void require_room(std::size_t bytes) {
    if (bytes <= to_.size() - filled_) return;
    if (bytes > most_ - filled_) too_long_();
    to_.resize(std::size_t(std::min<std::uint64_t>(most_, 2 * (filled_ + bytes))));
  }

  void stored() {
    drop(bits_ % 8);
    const unsigned length = take(16);
    if (take(16) != (~length & 0xffff)) fail_("a stored block whose length is damaged");
    at_ -= std::size_t(bits_) / 8;
    waiting_ = 0;
    bits_ = 0;
    if (length > from_.size() - at_) fail_("the compressed data end early");
    require_room(length);
    std::copy_n(from_.begin() + std::ptrdiff_t(at_), length, to_.begin() + std::ptrdiff_t(filled_));
    at_ += length;
    filled_ += length;
  }

  void dynamic() {
    const unsigned literals = take(5) + 257, distances = take(5) + 1, code_lengths = take(4) + 4;
    if (literals > 286 || distances > 30) fail_("a code of too many symbols");
    static constexpr std::uint8_t order[] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                             11, 4,  12, 3, 13, 2, 14, 1, 15};
    std::array<std::uint8_t, 19> of_lengths{};
    for (unsigned i = 0; i < code_lengths; ++i) of_lengths[order[i]] = static_cast<std::uint8_t>(take(3));
    const code by_length = make_code(of_lengths);
    std::array<std::uint8_t, 286 + 30> lengths{};
    for (unsigned i = 0; i < literals + distances;) {
      const int next = symbol(by_length);
      if (next < 16) {
        lengths[i++] = static_cast<std::uint8_t>(next);
        continue;
      }
      if (next == 16 && i == 0) fail_("a repetition of nothing");
      const std::uint8_t repeated = next == 16 ? lengths[i - 1] : 0;
      unsigned times = next == 16 ? 3 + take(2) : next == 17 ? 3 + take(3) : 11 + take(7);
      if (times > literals + distances - i) fail_("a code of too many symbols");
      for (; times > 0; --times) lengths[i++] = repeated;
    }
    const std::span all(lengths);
    compressed_by(make_code(all.first(literals)), make_code(all.subspan(literals, distances)));
  }

  void compressed_by(code const& literals, code const& distances) {
    static constexpr std::uint16_t length_base[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                                    15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                                    67, 83, 99, 115, 131, 163, 195, 227, 258};
    static constexpr std::uint8_t length_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                   2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static constexpr std::uint16_t distance_base[] = {
        1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
        193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    for (;;) {
      const int next = symbol(literals);
      if (next == 256) return;
      if (next < 256) {
        require_room(1);
        to_[filled_++] = static_cast<std::byte>(next);
        continue;
      }
      if (next > 285) fail_("a length that does not exist");
      const int l = next - 257;
      const std::size_t length = length_base[l] + take(length_bits[l]);
      const int d = symbol(distances);
      const std::size_t distance = distance_base[d] + take(d < 4 ? 0 : d / 2 - 1);
      if (distance > filled_) fail_("a repetition of bytes before the first");
      require_room(length);
      for (std::size_t i = 0; i < length; ++i, ++filled_) to_[filled_] = to_[filled_ - distance];
    }
  }

  std::span<std::byte const> from_;
  std::vector<std::byte>& to_;
  std::uint64_t most_;
  Fail const& fail_;
  TooLong const& too_long_;
  std::vector<code> fixed_;  // of literals and distances, made once: blocks may be as short as 10 bits
  std::size_t at_ = 0, filled_ = 0;
  std::uint64_t waiting_ = 0;
  int bits_ = 0;
};

}  // namespace detail

/// The `size` bytes that were compressed by DEFLATE. Throws io_error, `[where] …`, if they are others,
/// damaged, or more than the limit allows. Memory grows with the content, whatever `size` claims.
inline std::vector<std::byte> inflate(std::span<std::byte const> compressed, std::uint64_t size,
                                      std::string_view where, memory_limit limit = {}) {
  const auto fail = [&](std::string const& what) {
    throw io_error(message("[", std::string(where), "] ", what));
  };
  if (size / 1032 > compressed.size()) fail("less data than the file says");  // the most a byte can become
  if (size > limit.bytes)
    fail(message(compressed.size(), " bytes become ", size, ", but the memory_limit is ", limit.bytes));
  std::vector<std::byte> bytes;
  const auto too_long = [&] { fail("more data than the file says"); };
  detail::inflater(compressed, bytes, size, fail, too_long).run();
  if (bytes.size() != size) fail("less data than the file says");
  return bytes;
}

}}}  // namespace tessera::TESSERA_ISA::io
