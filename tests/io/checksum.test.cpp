// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <set>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/core/random.hpp>
#include <tessera/io/checksum.hpp>

namespace checksum_test {

using tessera::random_purpose;
using tessera::random_stream;
using tessera::io::checksum;

using bytes = std::vector<std::byte>;

bytes random_bytes(std::size_t size) {
  const random_stream random(size, random_purpose::test);
  bytes all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = std::byte(random.bits(i) & 0xff);
  return all;
}

std::uint64_t of(std::span<std::byte const> all) {
  checksum sum;
  sum.add(all);
  return sum.value();
}

/// The checksum by its definition, a word at a time.
std::uint64_t slowly(bytes all) {
  const std::uint64_t size = all.size();
  all.resize((size + 127) / 128 * 128);
  std::uint32_t lanes[32];
  for (std::uint32_t i = 0; i < 32; ++i) lanes[i] = (i + 1) * 2654435761u;
  for (std::size_t at = 0; at < all.size(); at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, all.data() + at, 4);
    std::uint32_t& lane = lanes[at / 4 % 32];
    lane += word * 2246822519u;
    lane = (lane << 13 | lane >> 19) * 2654435761u;
  }
  std::uint64_t result = size;
  for (const std::uint32_t lane : lanes) {
    result += lane * 0xc2b2ae3d27d4eb4fu;
    result = (result << 31 | result >> 33) * 0x9e3779b185ebca87u;
  }
  return result;
}

TEST_CASE("checksum: it is the one defined, whatever the pieces") {
  for (const std::size_t size : std::initializer_list<std::size_t>{0, 1, 3, 4, 127, 128, 129, 1000, 4096}) {
    const bytes all = random_bytes(size);
    CHECK(of(all) == slowly(all));
    checksum sum;
    for (std::size_t at = 0; at < size; at += 256)
      sum.add(std::span(all).subspan(at, std::min<std::size_t>(256, size - at)));
    CHECK(sum.value() == of(all));
  }
}

TEST_CASE("checksum: it is the same on every machine") {
  bytes counted;
  for (int i = 0; i < 3 * 256; ++i) counted.push_back(std::byte(i & 0xff));
  counted.push_back(std::byte('x'));
  CHECK(of(std::as_bytes(std::span("foobar", 6))) == 0x34446b7359c43ea2u);
  CHECK(of(counted) == 0x4a963e3b4540ef8bu);
}

TEST_CASE("checksum: every changed bit is found, also among zeros") {
  for (bytes all : {random_bytes(517), bytes(517)}) {
    const std::uint64_t right = of(all);
    std::size_t found = 0;
    for (std::byte& byte : all)
      for (int bit = 0; bit < 8; ++bit) {
        byte ^= std::byte(1 << bit);
        found += of(all) != right;
        byte ^= std::byte(1 << bit);
      }
    CHECK(found == 517 * 8);
  }
}

TEST_CASE("checksum: two changed bits, exchanged words and other lengths are found") {
  bytes all(640);  // five words of each lane
  std::set<std::uint64_t> seen{of(all)};
  std::size_t tried = 1;
  for (std::size_t one = 0; one < 640 * 8; one += 13)
    for (std::size_t other = one + 1; other < 640 * 8; other += 17, ++tried) {
      for (const std::size_t bit : {one, other}) all[bit / 8] ^= std::byte(1 << bit % 8);
      seen.insert(of(all));
      for (const std::size_t bit : {one, other}) all[bit / 8] ^= std::byte(1 << bit % 8);
    }
  for (std::size_t length = 0; length < 640; ++length, ++tried) seen.insert(of(std::span(all).first(length)));
  CHECK(seen.size() == tried);
  bytes words = random_bytes(640);
  const std::uint64_t right = of(words);
  for (std::size_t at = 0; at + 132 <= words.size(); at += 4)
    for (const std::size_t distance : std::initializer_list<std::size_t>{4, 128}) {
      std::swap_ranges(&words[at], &words[at] + 4, &words[at + distance]);
      CHECK(of(words) != right);
      std::swap_ranges(&words[at], &words[at] + 4, &words[at + distance]);
    }
}

}  // namespace checksum_test
