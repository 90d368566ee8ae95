// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <support/types.hpp>

#include <tessera/core/int8.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/tensor/pattern_sources.hpp>

#include "scratch_folder.hpp"

namespace read_tensors_test {

using namespace tessera;

template <class T> std::vector<T> counting(int count) {
  std::vector<T> numbers;
  for (int i = 0; i < count; ++i) numbers.push_back(static_cast<T>(float(i)));
  return numbers;
}

/// "numbers" (6, 10) and "vector" (10): i counts their numbers.
template <class T> void write_sample(std::string const& path) {
  const auto numbers = counting<T>(60);
  io::write_safetensors(
      path, std::vector{io::make_safetensor("numbers", {6, 10}, std::span<T const>(numbers)),
                        io::make_safetensor("vector", {10}, std::span<T const>(numbers).first(10))});
}

TEST_CASE_TEMPLATE("read tensors: every dtype of numbers becomes a matrix, a vector, an activation", From,
                   float, double, bfloat16, float16, float8_e4m3, float8_e5m2, std::int64_t, std::int32_t,
                   std::int16_t, std::int8_t, std::uint8_t, int8) {
  const auto stored = [](int i) { return float(From(i)); };  // rounded to 8 bits
  const scratch_folder folder;
  write_sample<From>(folder / "a");
  const io::safetensors_file file(folder / "a");
  block_sparse_matrix<float, block_shape<4>> w(6, 10, band_pattern(2, 3, 0, 0));
  block_sparse_matrix<bfloat16, block_shape<4>> transposed(10, 6);
  panel_matrix<double> x(10, 6);
  feature_vector<float16> b(10);
  io::read(file, "numbers", w);
  io::read(file, "numbers", transposed, io::orientation::transposed);
  io::read(file, "numbers", x);
  io::read(file, "vector", b);
  int wrong = 0;
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 10; ++j) {
      const float number = stored(i * 10 + j);
      wrong += w(i, j) != (i / 4 == j / 4 ? number : 0);
      wrong += float(transposed(j, i)) != number;
      wrong += x(j, i) != number;
    }
  const auto numbers = io::read_numbers<int>(file, "vector");
  REQUIRE(numbers.size() == 10);
  for (int j = 0; j < 10; ++j) {
    wrong += float(b[j]) != stored(j);
    wrong += numbers[std::size_t(j)] != int(stored(j));
  }
  CHECK(wrong == 0);
}

TEST_CASE("read tensors: a wrong shape, name or dtype is refused with the file, and nothing is changed") {
  const scratch_folder folder;
  write_sample<float>(folder / "a");
  const io::safetensors_file file(folder / "a");
  const auto says = [](auto&& body) { return error_of<io_error>(body); };
  panel_matrix<float> x(6, 10);
  x(0, 0) = 7;
  CHECK(says([&] { io::read(file, "numbers", x); }) ==
        "[read " + (folder / "a") + "] tensor \"numbers\" is F32 (6, 10) but should be F32 (10, 6)");
  CHECK(x(0, 0) == 7);
  feature_vector<float> b(9);
  CHECK(says([&] { io::read(file, "vector", b); }).find("is F32 (10) but should be F32 (9)") !=
        std::string::npos);
  block_sparse_matrix<float, block_shape<4>> w(6, 10);
  CHECK(says([&] {
          io::read(file, "numbers", w, io::orientation::transposed);
        }).find("is F32 (6, 10) but should be F32 (10, 6)") != std::string::npos);
  CHECK(says([&] { io::read(file, "number", w); }).find("no tensor \"number\", but \"numbers\"") !=
        std::string::npos);

  const std::array<std::byte, 4> bytes{};
  io::write_safetensors(folder / "f8", std::vector{io::safetensor{"x", "F8_E8M0", {4}, bytes}});
  const io::safetensors_file narrow(folder / "f8");
  CHECK(says([&] { io::read_numbers<float>(narrow, "x"); }) ==
        "[read " + (folder / "f8") + "] tensor \"x\" is \"F8_E8M0\": numbers of this dtype are not read");
}

TEST_CASE("read tensors: an integer that cannot hold a number refuses it") {
  const scratch_folder folder;
  const auto write = [&]<class T>(std::vector<T> const& numbers) {
    io::write_safetensors(folder / "n", std::vector{io::make_safetensor("n", {std::int64_t(numbers.size())},
                                                                        std::span<T const>(numbers))});
    return io::safetensors_file(folder / "n");
  };
  const auto refused = [&]<class T>(T, auto const& numbers) {
    return error_of<io_error>([&] { (void)io::read_numbers<T>(write(numbers), "n"); });
  };
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(refused(std::int32_t(), std::vector<std::int64_t>{1, 5'000'000'000}).find("number 1") !=
        std::string::npos);
  CHECK(refused(std::uint8_t(), std::vector<std::int32_t>{-1}) != "");
  CHECK(refused(std::int32_t(), std::vector<float>{0, 2.5f}) != "");
  CHECK(refused(std::int32_t(), std::vector<double>{inf - inf}) != "");
  CHECK(refused(std::int32_t(), std::vector<double>{2147483648.0}) != "");
  CHECK(refused(std::int32_t(), std::vector<double>{2147483647.0, -2147483648.0}) == "");
  CHECK(refused(std::int64_t(), std::vector<double>{-inf}) != "");
  CHECK(refused(float(), std::vector<double>{inf}) == "");
}

TEST_CASE("read tensors: several files are read as one") {
  const scratch_folder folder;
  write_sample<float>(folder / "a");
  const std::vector<double> more{1, 2, 3};
  io::write_safetensors(folder / "b",
                        std::vector{io::make_safetensor("more", {3}, std::span<double const>(more))});
  const io::safetensors_files files({folder / "a", folder / "b"});
  feature_vector<float> three(3), ten(10);
  io::read(files, "more", three);
  io::read(files, "vector", ten);
  CHECK(std::ranges::equal(three, more));
  CHECK(ten[9] == 9);
  CHECK(files.contains("more"));
  CHECK_FALSE(files.contains("less"));
  CHECK(error_of<io_error>([&] { io::read(files, "less", three); }) ==
        "[read " + (folder / "a") + " and 1 more] no tensor \"less\" in any of these files");
  CHECK(error_of<io_error>([&] {
          io::safetensors_files({folder / "a", folder / "a"});
        }).find("tensor \"numbers\" is in " + (folder / "a") + ", too") != std::string::npos);
  CHECK(error_of<option_error>([] { io::safetensors_files(std::vector<std::string>()); }) ==
        "[read] no safetensors files are given");
}

}  // namespace read_tensors_test
