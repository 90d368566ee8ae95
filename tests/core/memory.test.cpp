// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>

#include <doctest/doctest.h>

#include <tessera/core/memory.hpp>

namespace memory_test {

using namespace tessera;

TEST_CASE("aligned_array: values begin as zero at an address that is a multiple of 64") {
  for (const std::size_t size : {1u, 3u, 64u, 1000u}) {
    const aligned_array<float> values(size);
    CHECK(reinterpret_cast<std::uintptr_t>(values.data()) % 64 == 0);
    CHECK(values.size() == size);
    CHECK(values.size_bytes() == 4 * size);
    for (const float value : values) CHECK(value == 0.0f);
  }
}

TEST_CASE("aligned_array: an empty one holds no memory") {
  const std::size_t before = tensor_memory::live();
  const aligned_array<double> values(0);
  CHECK(values.data() == nullptr);
  CHECK(values.begin() == values.end());
  CHECK(values.span().empty());
  CHECK(tensor_memory::live() == before);
}

TEST_CASE("aligned_array: a copy has its own values") {
  aligned_array<int> original(3);
  original[1] = 7;
  aligned_array<int> copy = original;
  copy[1] = 8;
  CHECK(original[1] == 7);
  copy = original;
  CHECK(copy[1] == 7);
  CHECK(copy.data() != original.data());
  copy = *&copy;
  CHECK(copy.size() == 3);
  CHECK(copy[1] == 7);
}

TEST_CASE("aligned_array: a move leaves the source empty and keeps the address") {
  aligned_array<int> source(5);
  const int* const address = source.data();
  aligned_array<int> target = std::move(source);
  CHECK(target.data() == address);
  CHECK(target.size() == 5);
  CHECK(source.data() == nullptr);  // NOLINT(bugprone-use-after-move): what a move leaves is the subject
  CHECK(source.size() == 0);
}

TEST_CASE("tensor_memory: counts what arrays hold and remembers the peak") {
  const std::size_t before = tensor_memory::live();
  tensor_memory::reset_peak();
  {
    const aligned_array<float> first(256);
    CHECK(tensor_memory::live() == before + 1024);
    const aligned_array<float> second = first;
    CHECK(second.size() == first.size());
    CHECK(tensor_memory::live() == before + 2048);
  }
  CHECK(tensor_memory::live() == before);
  CHECK(tensor_memory::peak() == before + 2048);
  tensor_memory::reset_peak();
  CHECK(tensor_memory::peak() == before);
}

TEST_CASE("checked_multiply: gives the product or says that it does not fit") {
  constexpr std::size_t largest = std::numeric_limits<std::ptrdiff_t>::max();
  CHECK(checked_multiply(6, 7) == 42);
  CHECK(checked_multiply(0, std::numeric_limits<std::size_t>::max()) == 0);
  CHECK(checked_multiply(largest, 1) == largest);
  CHECK_THROWS_AS(checked_multiply(largest / 2 + 1, 2), shape_error);
  CHECK_THROWS_WITH_AS(checked_multiply(std::size_t{1} << 40, std::size_t{1} << 30),
                       "[allocate] 1099511627776 times 1073741824 does not fit the address space",
                       shape_error);
}

TEST_CASE("aligned_array: an absurd size is refused before anything is allocated") {
  const std::size_t before = tensor_memory::live();
  CHECK_THROWS_AS(aligned_array<double>(std::numeric_limits<std::size_t>::max() / 2), shape_error);
  CHECK(tensor_memory::live() == before);
}

}  // namespace memory_test
