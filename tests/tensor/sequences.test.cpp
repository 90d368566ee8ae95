// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/tensor/sequences.hpp>

namespace sequences_test {

using namespace tessera;

using numbers = std::vector<std::int64_t>;
numbers groups(sequences const& s) { return {s.panel_groups().begin(), s.panel_groups().end()}; }

TEST_CASE("sequences: lengths become offsets") {
  const sequences s = sequences::from_lengths(numbers{3, 0, 5});
  CHECK(s.count() == 3);
  CHECK(s.tokens() == 8);
  CHECK(numbers(s.offsets().begin(), s.offsets().end()) == numbers{0, 3, 3, 8});
  CHECK(s.begin(2) == 3);
  CHECK(s.end(2) == 8);
  CHECK(s.length(1) == 0);
}

TEST_CASE("sequences: a negative length is named") {
  CHECK_THROWS_WITH_AS(sequences::from_lengths(numbers{5, -3}),
                       "[sequences] length 1 is -3: a sequence cannot have fewer tokens than none",
                       shape_error);
}

TEST_CASE("sequences: equal lengths are cut from the same number of tokens") {
  const sequences s = sequences::of_equal_length(3, 50);
  CHECK(s.count() == 3);
  CHECK(s.tokens() == 150);
  for (int i = 0; i < 3; ++i) CHECK(s.begin(i) == 50 * i);
}

TEST_CASE("sequences: without tokens there are none") {
  CHECK(sequences().count() == 0);
  CHECK(sequences().tokens() == 0);
  CHECK(sequences::of_equal_length(0, 7).tokens() == 0);
  CHECK(groups(sequences()) == numbers{0});
}

TEST_CASE("sequences: a token finds its sequence and its position in it") {
  const sequences s = sequences::from_lengths(numbers{0, 3, 0, 0, 5, 0});
  const numbers in{1, 1, 1, 4, 4, 4, 4, 4}, at{0, 1, 2, 0, 1, 2, 3, 4};
  for (std::int64_t t = 0; t < 8; ++t) {
    CHECK(s.sequence_of(t) == in[std::size_t(t)]);
    CHECK(s.position_of(t) == at[std::size_t(t)]);
  }
}

TEST_CASE("sequences: positions count on from those of earlier tokens") {
  sequences s = sequences::from_lengths(numbers{2, 0, 3});
  CHECK(s.start(2) == 0);
  s.start_at(numbers{7, 1, 100});
  const numbers at{7, 8, 100, 101, 102};
  for (std::int64_t t = 0; t < 5; ++t) CHECK(s.position_of(t) == at[std::size_t(t)]);
  CHECK_THROWS_WITH_AS(s.start_at(numbers{1}),
                       "[sequences] 1 first positions for 3 sequences: give one for each", shape_error);
  CHECK_THROWS_WITH_AS(s.start_at(numbers{1, -2, 1}), "[sequences] a first position is -2", shape_error);
}

TEST_CASE("sequences: all tokens are keys unless told otherwise") {
  const sequences all = sequences::from_lengths(numbers{3, 5});
  CHECK(all.keys(0) == 3);
  CHECK(all.keys(1) == 5);
  const sequences some = sequences::from_lengths(numbers{3, 5}, {0, 4});
  CHECK(some.keys(0) == 0);
  CHECK(some.keys(1) == 4);
}

TEST_CASE("sequences: a group of panels ends where a sequence and a panel end together") {
  CHECK(groups(sequences::of_equal_length(2, 64)) == numbers{0, 1, 2});
  CHECK(groups(sequences::of_equal_length(2, 128)) == numbers{0, 2, 4});
  CHECK(groups(sequences::from_lengths(numbers{60, 4, 0, 100})) == numbers{0, 1, 3});
  CHECK(groups(sequences::from_lengths(numbers{150})) == numbers{0, 3});
  CHECK(groups(sequences::from_lengths(numbers{63, 65, 1})) == numbers{0, 2, 3});
}

TEST_CASE("sequences: a move leaves the source without sequences and tokens") {
  sequences a = sequences::from_lengths(numbers{3, 0, 5}), c;
  sequences b = std::move(a);
  // NOLINTBEGIN(bugprone-use-after-move): what a move leaves is the subject
  CHECK(b.tokens() == 8);
  c = std::move(b);
  CHECK(c.tokens() == 8);
  for (sequences const* left : {&a, &b}) {
    CHECK(left->count() == 0);
    CHECK(left->tokens() == 0);
    CHECK(numbers(left->offsets().begin(), left->offsets().end()) == numbers{0});
    CHECK(groups(*left) == numbers{0});
  }
  // NOLINTEND(bugprone-use-after-move)
  static_assert(std::is_nothrow_move_constructible_v<sequences>);
  static_assert(std::is_nothrow_move_assignable_v<sequences>);
}

TEST_CASE("sequences: tokens are counted in 63 bits, and more are refused") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const sequences one(numbers{0, most});
  CHECK(one.tokens() == most);
  CHECK(groups(one) == numbers{0, most / 64 + 1});
  CHECK(sequences::from_lengths(numbers{most - 1, 1}).tokens() == most);
  CHECK_THROWS_WITH_AS(sequences::from_lengths(numbers{most, 1}),
                       "[sequences] length 1 is 1, after 9223372036854775807 tokens: there can be at most "
                       "9223372036854775807 in all",
                       shape_error);
  CHECK_THROWS_AS(sequences::of_equal_length(3, std::int64_t(1) << 62), shape_error);
  CHECK_THROWS_AS(sequences(numbers{0, 5, std::numeric_limits<std::int64_t>::min()}), shape_error);
}

TEST_CASE("sequences: what cannot be is refused with the numbers") {
  CHECK_THROWS_WITH_AS(sequences(numbers{}), "[sequences] the first offset must be 0", shape_error);
  CHECK_THROWS_WITH_AS(sequences(numbers{1, 2}), "[sequences] the first offset must be 0", shape_error);
  CHECK_THROWS_WITH_AS(sequences(numbers{0, 5, 4}),
                       "[sequences] offset 2 is 4 but the one before it 5: offsets may not decrease",
                       shape_error);
  CHECK_THROWS_WITH_AS(sequences(numbers{0, 5, 9}, {1}),
                       "[sequences] 1 numbers of keys for 2 sequences: give one for each, or none",
                       shape_error);
  CHECK_THROWS_WITH_AS(sequences(numbers{0, 5}, {6}),
                       "[sequences] sequence 0 has 5 tokens but 6 keys: give 0 to 5", shape_error);
  CHECK_THROWS_AS(sequences(numbers{0, 5}, {-1}), shape_error);
  CHECK_THROWS_AS(sequences::from_lengths(numbers{-1}), shape_error);
  CHECK_THROWS_AS(sequences::of_equal_length(-1, 2), shape_error);
}

}  // namespace sequences_test
